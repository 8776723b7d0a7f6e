//! Tools and messages added to a request.

use super::super::object::{Object, utf8};
use super::super::tools::{self, tools};
use super::{Conversation, Edit, Offer, quoted};
use crate::wire::scan::{elements, kind};

pub(in super::super) fn may_offer(conversation: &Conversation<'_>, count: usize) -> bool {
    let body = conversation.body;
    may_keep(conversation, count)
        && conversation.fields.members.iter().all(|(key, span)| {
            let is_auto = || Object::read(body, span.start).is_some_and(|choice| choice.string("type") == "auto");
            key.as_ref() != "tool_choice" || kind(body, span) == b'n' || is_auto()
        })
}

pub(in super::super) fn may_keep(conversation: &Conversation<'_>, _count: usize) -> bool {
    let body = conversation.body;
    let free = conversation.fields.members.iter().all(|(key, span)| match (key.as_ref(), kind(body, span)) {
        (_, b'n') => true,
        ("output_config", _) => Object::read(body, span.start).is_some_and(|config| config.get("format").is_none()),
        ("output_format" | "thread" | "fallback_credit_token", _) => false,
        _ => true,
    });
    free && tools(conversation).is_some()
}

/// Where the array `key` of the request stands.
fn array(conversation: &Conversation<'_>, key: &str) -> Option<std::ops::Range<usize>> {
    let (_, span) = conversation.fields.members.iter().find(|(name, _)| name.as_ref() == key)?;
    Some(span.clone()).filter(|span| kind(conversation.body, span) == b'[')
}

pub(in super::super) fn declared(conversation: &Conversation<'_>) -> Vec<String> {
    let spans = tools(conversation).unwrap_or_default();
    let read = spans.iter().filter_map(|span| Object::read(conversation.body, span.start));
    read.map(|tool| tool.string("name").into_owned()).filter(|name| !name.is_empty()).collect()
}

pub(in super::super) fn offer(conversation: &Conversation<'_>, offers: &[Offer]) -> Option<Edit> {
    let defined = offers.iter().map(|offer| {
        let (name, description) = (quoted(&offer.name), quoted(&offer.description));
        format!(r#"{{"name":{name},"description":{description},"input_schema":{}}}"#, offer.parameters)
    });
    tools::added(conversation, &defined.collect::<Vec<_>>().join(","))
}

/// The edit that puts `elements` behind those of the array `key` of the request.
pub(in super::super) fn added(conversation: &Conversation<'_>, key: &str, more: &str) -> Option<Edit> {
    let span = array(conversation, key)?;
    let spans = elements(conversation.body, span.start).ok()?;
    let end = spans.last().map_or(span.start + 1, |last| last.end);
    let comma = if spans.is_empty() || more.is_empty() { "" } else { "," };
    Some(Edit { span: end..end, with: format!("{comma}{more}").into() })
}

pub(in super::super) fn appended(conversation: &Conversation<'_>, items: &[u8]) -> Option<Edit> {
    added(conversation, "messages", &utf8(items))
}
