//! Tools and items added to a request.

use std::ops::Range;

use super::super::messages::added;
use super::super::object::{Object, utf8};
use super::super::tools::{self, MOST_TOOLS, tools};
use super::{Conversation, Edit, Offer, quoted};
use crate::wire::conversation::Standing;
use crate::wire::scan::kind;

pub(in super::super) fn may_offer(conversation: &Conversation<'_>, count: usize) -> bool {
    may_keep(conversation, count)
        && conversation.fields.members.iter().all(|(key, span)| {
            let value = conversation.body.get(span.clone()).unwrap_or_default();
            key.as_ref() != "tool_choice" || matches!(value, b"null" | b"\"auto\"")
        })
}

pub(in super::super) fn may_keep(conversation: &Conversation<'_>, count: usize) -> bool {
    let body = conversation.body;
    let free = conversation.fields.members.iter().all(|(key, span)| {
        let value = body.get(span.clone()).unwrap_or_default();
        match key.as_ref() {
            "text" => value == b"null" || Object::read(body, span.start).is_some_and(|text| is_plain(&text)),
            "background" => matches!(value, b"null" | b"false"),
            "prompt" | "conversation" => value == b"null",
            _ => true,
        }
    });
    // What tools are in force may change within the input, and an item that the provider holds may be a call.
    let plain = |standing| !matches!(standing, Standing::Reference | Standing::Trigger);
    let mut items = conversation.items.iter().chain(&conversation.settled).map(|item| item.facts.standing);
    let setting = |item: &Range<usize>| {
        let word = body.get(item.clone()).map(|raw| memchr::memmem::find(raw, b"\"additional_tools\""));
        word.flatten().is_some()
    };
    let kept = conversation.items.iter().filter(|item| item.facts.standing == Standing::Kept).map(|item| &item.span);
    let sets = conversation.lead.iter().chain(kept).any(setting);
    free && items.all(plain) && !sets && tools(conversation).is_some_and(|tools| tools.len() + count <= MOST_TOOLS)
}

fn is_plain(text: &Object<'_>) -> bool {
    text.object("format").is_none_or(|format| format.string("type") == "text")
}

pub(in super::super) fn declared(conversation: &Conversation<'_>) -> Vec<String> {
    let spans = tools(conversation).unwrap_or_default();
    let mut names = Vec::new();
    for tool in spans.iter().filter_map(|span| Object::read(conversation.body, span.start)) {
        names.push(tool.string("name").into_owned());
        let inner = tool.elements("tools");
        let inner = inner.iter().filter_map(|span| Object::read(conversation.body, span.start));
        names.extend(inner.map(|tool| tool.string("name").into_owned()));
    }
    names.retain(|name| !name.is_empty());
    names
}

pub(in super::super) fn offer(conversation: &Conversation<'_>, offers: &[Offer]) -> Option<Edit> {
    let defined = offers.iter().map(|offer| {
        let (name, description) = (quoted(&offer.name), quoted(&offer.description));
        let parameters = &offer.parameters;
        format!(
            r#"{{"type":"function","name":{name},"description":{description},"parameters":{parameters},"strict":false}}"#
        )
    });
    tools::added(conversation, &defined.collect::<Vec<_>>().join(","))
}

/// An input that is one string becomes an array.
pub(in super::super) fn appended(conversation: &Conversation<'_>, items: &[u8]) -> Option<Edit> {
    let (_, span) = conversation.fields.members.iter().find(|(key, _)| key.as_ref() == "input")?;
    if kind(conversation.body, span) != b'"' {
        return added(conversation, "input", &utf8(items));
    }
    let said = conversation.body.get(span.clone())?;
    let with = [br#"[{"role":"user","content":"#, said, b"},", items, b"]"].concat();
    Some(Edit { span: span.clone(), with: with.into() })
}
