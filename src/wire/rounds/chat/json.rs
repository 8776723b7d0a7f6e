//! The JSON answers of several rounds as one.

use bytes::Bytes;

use super::super::{Ending, Own};
use super::chunk::{Choice, Chunk, Object};
use super::seam::edited;
use super::story::Story;
use super::stream::said;
use super::turn::{Member, Standing};
use crate::wire::scan::kind;
use crate::wire::splice::Edit;
use crate::wire::writing::quoted;

/// Puts whole answers together.
#[derive(Debug, Default)]
pub(super) struct Json {
    /// Texts of the rounds before, by member.
    before: Vec<(String, String)>,
}

impl Json {
    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.before.iter().map(|(_, text)| text.len()).sum()
    }

    pub(super) fn end(story: &mut Story, own: &Own, body: &[u8]) -> Ending {
        let Some(chunk) = Chunk::read(body.trim_ascii(), "message") else { return Ending::Answered };
        story.seam.note(&chunk);
        let Some(choice) = &chunk.choice else { return Ending::Answered };
        story.add(&choice.said);
        said(choice).for_each(|text| story.say(&text));
        for element in choice.calls.iter().filter_map(|span| Object::at(choice.said.text, span)) {
            story.turn.add_whole_call(&element);
        }
        story.turn.calls.iter_mut().for_each(|call| call.settle(own, true));
        story.reason = chunk.finish();
        story.ending(!chunk.is_error)
    }

    pub(super) fn next_round(&mut self, story: &Story) {
        let text = |(key, member): &(String, Member)| match member {
            Member::Text(text) => Some((key.clone(), text.clone())),
            Member::Items(_) | Member::Value(_) => None,
        };
        let content = ("content".to_owned(), story.turn.text.clone());
        for (key, more) in story.turn.members.iter().filter_map(text).chain([content]) {
            match self.before.iter_mut().find(|(name, _)| *name == key) {
                Some((_, text)) => text.push_str(&more),
                None => self.before.push((key, more)),
            }
        }
        self.before.retain(|(_, text)| !text.is_empty());
    }

    /// The answer with what the client sees of all.
    pub(super) fn whole(&self, story: &Story, body: Bytes) -> Bytes {
        let text = body.slice_ref(body.trim_ascii());
        let changed = story.seam.before > 0 || story.turn.has(Standing::Own);
        let chunk = Chunk::read(&text, "message").filter(|_| changed);
        let Some((chunk, choice)) = chunk.as_ref().and_then(|chunk| Some((chunk, chunk.choice.as_ref()?))) else {
            return body;
        };
        let mut edits = story.seam.edits(chunk);
        let message = choice.span.clone().map(|span| Edit { span, with: self.message(story, choice).into() });
        edits.extend(message);
        if let Some((span, reason)) = choice.finish.clone().zip(story.other_reason()) {
            edits.push(Edit { span, with: quoted(reason).into() });
        }
        edited(&text, edits)
    }

    /// The last round's message with the texts of all, and without the proxy's own calls. With a text where nothing is
    /// left: no provider takes a message back that has neither text nor calls.
    fn message(&self, story: &Story, choice: &Choice<'_>) -> String {
        let said = &choice.said;
        let silence = story.silence();
        let mut members = Vec::new();
        for (key, span) in &said.members {
            let before = self.before.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str());
            let raw = String::from_utf8_lossy(said.text.get(span.clone()).unwrap_or_default());
            let value = match (key.as_ref(), before, kind(said.text, span)) {
                ("tool_calls", _, b'[') => match shown(story, choice) {
                    calls if calls.is_empty() => continue,
                    calls => format!("[{}]", calls.join(",")),
                },
                (_, Some(before), b'"') => quoted(&format!("{before}{}", said.string(span))),
                (_, Some(before), b'n') => quoted(before),
                ("content", Some(before), b'[') => with_part(before, &said.elements(span)),
                ("content", None, _) if silence.is_some() => continue,
                _ => raw.into_owned(),
            };
            members.push(format!("{}:{value}", quoted(key)));
        }
        let missing = self.before.iter().filter(|(key, _)| !said.members.iter().any(|(name, _)| name == key));
        members.extend(missing.map(|(key, text)| format!("{}:{}", quoted(key), quoted(text))));
        members.extend(silence.map(|text| format!(r#""content":{}"#, quoted(text))));
        format!("{{{}}}", members.join(","))
    }
}

/// The elements of `tool_calls` that are the client's.
fn shown(story: &Story, choice: &Choice<'_>) -> Vec<String> {
    let calls = choice.calls.iter().zip(&story.turn.calls);
    let shown = calls.filter(|(_, call)| call.standing != Standing::Own);
    let raw = |span: &std::ops::Range<usize>| choice.said.text.get(span.clone()).unwrap_or_default();
    shown.map(|(span, _)| String::from_utf8_lossy(raw(span)).into_owned()).collect()
}

fn with_part(text: &str, parts: &[Bytes]) -> String {
    let first = format!(r#"{{"type":"text","text":{}}}"#, quoted(text));
    let rest = parts.iter().map(|part| String::from_utf8_lossy(part).into_owned());
    format!("[{}]", std::iter::once(first).chain(rest).collect::<Vec<_>>().join(","))
}
