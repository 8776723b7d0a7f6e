//! What a client never saw of an answer, put back among the items that it sends.

use super::super::object::{Object, utf8};
use super::super::told::{Said, position};
use super::{Aside, Conversation, Edit, is_call, texts, without_id};
use crate::wire::conversation::{Item, Role, Standing};
use crate::wire::scan::elements;

pub(in super::super) fn put_back(conversation: &Conversation<'_>, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
    let items = of_answer(conversation, tip, aside);
    let objects: Vec<Object<'_>> =
        items.iter().filter_map(|item| Object::read(conversation.body, item.span.start)).collect();
    if objects.len() != items.len() || !is_of(&objects, aside) {
        return None;
    }
    let solid: Vec<bool> = objects.iter().map(|item| !is_reasoning(item)).collect();
    let sent_whole = aside.inserts.iter().all(|insert| {
        let first = solid.get(..insert.parts);
        first.is_some_and(|first| first.iter().filter(|solid| **solid).count() == insert.text)
    });
    let mut places: Vec<Vec<String>> = vec![Vec::new(); items.len() + 1];
    let mut last = Vec::new();
    for insert in &aside.inserts {
        let place = places.get_mut(position(&solid, insert)?)?;
        if !insert.calls.is_empty() {
            place.push(if sent_whole { insert.calls.clone() } else { without_ids(&insert.calls)? });
            last.extend((!insert.items.is_empty()).then(|| insert.items.clone()));
        } else {
            place.push(insert.items.clone());
        }
    }
    places.last_mut()?.extend(last);
    let start = conversation.items.get(tip)?.span.end;
    let ends = std::iter::once(start).chain(items.iter().map(|item| item.span.end));
    let edits = ends.zip(places).filter(|(_, more)| !more.is_empty());
    Some(edits.map(|(at, more)| Edit { span: at..at, with: format!(",{}", more.join(",")).into() }).collect())
}

/// The items of the answer that follows `tip`. Clients may send a result right behind its call, or other items between:
/// the answer goes on until all of its calls are there.
fn of_answer<'c>(conversation: &'c Conversation<'_>, tip: usize, aside: &Aside) -> Vec<&'c Item> {
    let mut missing: Vec<&str> = aside.calls.iter().map(String::as_str).collect();
    let mut items = Vec::new();
    for item in conversation.items.iter().skip(tip + 1) {
        if item.facts.role == Role::Assistant || item.facts.standing == Standing::Reference {
            let object = Object::read(conversation.body, item.span.start);
            let call = object.filter(|item| is_call(&item.string("type"))).map(|call| call.string("call_id"));
            missing.retain(|id| call.as_deref() != Some(id));
            items.push(item);
        } else if missing.is_empty() {
            break;
        }
    }
    items
}

/// Whether the client saw what `aside` is about, as far as its items are there.
fn is_of(items: &[Object<'_>], aside: &Aside) -> bool {
    let refers = items.iter().any(|item| matches!(item.string("type").as_ref(), "item_reference" | ""));
    let calls = items.iter().filter(|item| is_call(&item.string("type")) && item.get("call_id").is_some());
    let calls: Vec<String> = calls.map(|item| item.string("call_id").into_owned()).collect();
    let mut said = Said::default();
    items.iter().flat_map(texts).for_each(|text| said.add(&text));
    match refers && items.iter().any(|item| item.get("content").is_none()) {
        // What the provider holds cannot be compared.
        true => calls.iter().all(|id| aside.calls.contains(id)),
        false => calls == aside.calls && said.digest() == aside.text,
    }
}

/// Reasoning is what clients leave out where it is not encrypted.
fn is_reasoning(item: &Object<'_>) -> bool {
    item.string("type") == "reasoning" || item.string("id").starts_with("rs_")
}

/// Calls whose reasoning the client left out: by their ids the provider would miss it (R4).
fn without_ids(calls: &str) -> Option<String> {
    let list = format!("[{calls}]");
    let mut out = Vec::new();
    for span in elements(list.as_bytes(), 0).ok()? {
        let raw = bytes::Bytes::copy_from_slice(list.as_bytes().get(span)?);
        out.push(utf8(&without_id(&raw)));
    }
    Some(out.join(","))
}
