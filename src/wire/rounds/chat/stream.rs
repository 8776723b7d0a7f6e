//! The streams of several rounds as one.

use bytes::Bytes;

use super::super::answer::Out;
use super::super::events::{Event, event};
use super::super::{Ending, Own};
use super::chunk::{Choice, Chunk, Object};
use super::seam::edited;
use super::story::Story;
use super::turn::Standing;
use crate::wire::scan::{Member, kind};
use crate::wire::splice::Edit;
use crate::wire::writing::quoted;

/// Reads the events of each round and hands on those that the client is to see.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Pieces of a call whose name may yet become one of the proxy's own.
    held: Vec<Held>,
    role_shown: bool,
    closed: bool,
    failed: bool,
    /// The last chunk with a call in it.
    frame: Option<Event>,
}

/// A chunk that is longer is no frame for another.
const MOST_FRAME: usize = 64 * 1024;

#[derive(Debug)]
struct Held {
    call: usize,
    event: Event,
    element: Bytes,
}

impl Stream {
    pub(super) fn end(&mut self, story: &mut Story) -> Ending {
        let ended = self.closed || story.reason.is_some();
        story.ending(ended && !self.failed)
    }

    /// Whether the stream has neither given a reason for its end nor said that it is over, and calls the proxy's tools.
    pub(super) fn is_unended(&self, story: &Story, own: &Own) -> bool {
        let is_own = |call: &super::turn::Call| call.standing == Standing::Own || own.has(&call.name);
        !self.closed && !self.failed && story.reason.is_none() && story.turn.calls.iter().any(is_own)
    }

    /// A chunk that says `text` and ends the answer.
    pub(super) fn said(&self, story: &Story, text: &str) -> Option<Bytes> {
        let frame = self.frame.as_ref()?;
        let chunk = Chunk::read(frame.data(), "delta")?;
        let inside =
            |edit: &Edit| chunk.usage.iter().any(|usage| usage.start <= edit.span.start && edit.span.end <= usage.end);
        let mut edits = story.seam.edits(&chunk);
        edits.retain(|edit| !inside(edit));
        let text = quoted(text);
        let with = format!(r#"[{{"index":0,"delta":{{"content":{text}}},"finish_reason":"stop"}}]"#).into();
        edits.push(Edit { span: chunk.whole.get("choices")?.clone(), with });
        edits.extend(chunk.usage.iter().cloned().map(null));
        Some(frame.with(&edited(frame.data(), edits)))
    }

    pub(super) fn next_round(&mut self) {
        *self = Self { role_shown: self.role_shown, ..Self::default() };
    }

    /// Bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.held.iter().map(|held| held.event.bytes.len()).sum()
    }

    pub(super) fn event(&mut self, story: &mut Story, own: &Own, (event, out): (Event, &mut Out)) {
        let data = event.data().clone();
        let Some(chunk) = Chunk::read(&data, "delta") else {
            let done = data.trim_ascii() == b"[DONE]";
            self.closed |= done;
            if done {
                out.now.extend(self.release(story, own));
            }
            return self.hand_on(story, out, event.bytes);
        };
        self.failed |= chunk.is_error;
        story.seam.note(&chunk);
        let Some(choice) = &chunk.choice else {
            let edits = story.seam.edits(&chunk);
            let bytes = if edits.is_empty() { event.bytes } else { event.with(&edited(&data, edits)) };
            return self.hand_on(story, out, bytes);
        };
        story.add(&choice.said);
        said(choice).for_each(|text| story.say(&text));
        story.reason = chunk.finish().or(story.reason.take());
        let before = self.held.len();
        self.take_calls(story, own, &event, choice);
        // What was held before this comes out before it.
        let mut mine = Vec::new();
        for (number, held) in self.settled(story) {
            match number < before {
                true => out.now.push(alone(story, &held)),
                false => mine.push(numbered(story, &held)),
            }
        }
        self.chunk(story, (&event, &chunk, choice), mine, out);
    }

    /// Hands an event on, or keeps it where it belongs to the end of a round that may not be the last.
    fn hand_on(&mut self, story: &Story, out: &mut Out, bytes: Bytes) {
        let ending = self.closed || story.reason.is_some();
        if ending && story.waits() { out.ends.push(bytes) } else { out.now.push(bytes) }
    }

    /// Takes in the calls of a chunk, and settles whose they are as far as that can be said.
    fn take_calls(&mut self, story: &mut Story, own: &Own, event: &Event, choice: &Choice<'_>) {
        let text = choice.said.text;
        if !choice.calls.is_empty() && event.bytes.len() <= MOST_FRAME {
            self.frame = Some(event.clone());
        }
        for span in &choice.calls {
            let Some(element) = Object::at(text, span) else { continue };
            let call = story.turn.add_call(&element);
            for (at, other) in story.turn.calls.iter_mut().enumerate() {
                other.settle(own, at != call);
            }
            let element = Bytes::copy_from_slice(element.raw);
            self.held.push(Held { call, event: event.clone(), element });
        }
        if story.reason.is_some() {
            story.turn.calls.iter_mut().for_each(|call| call.settle(own, true));
        }
    }

    /// Takes out what is settled: the client's, with its number among those held; the proxy's own is gone.
    fn settled(&mut self, story: &Story) -> Vec<(usize, Held)> {
        let mut shown = Vec::new();
        let standing = |held: &Held| story.turn.calls.get(held.call).map_or(Standing::Shown, |call| call.standing);
        let mut open = Vec::new();
        for (number, held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            match standing(&held) {
                Standing::Open => open.push(held),
                Standing::Own => {}
                Standing::Shown => shown.push((number, held)),
            }
        }
        self.held = open;
        shown
    }

    /// No more of any call comes.
    pub(super) fn release(&mut self, story: &mut Story, own: &Own) -> Vec<Bytes> {
        story.turn.calls.iter_mut().for_each(|call| call.settle(own, true));
        let settled = self.settled(story);
        settled.iter().map(|(_, held)| alone(story, held)).collect()
    }

    /// Hands on a chunk with the calls that the client is to see of it.
    fn chunk(
        &mut self,
        story: &Story,
        (event, chunk, choice): (&Event, &Chunk<'_>, &Choice<'_>),
        calls: Vec<Bytes>,
        out: &mut Out,
    ) {
        let same =
            |(span, element): (&std::ops::Range<usize>, &Bytes)| choice.said.text.get(span.clone()) == Some(&**element);
        let all_calls = calls.len() == choice.calls.len() && choice.calls.iter().zip(&calls).all(same);
        let role_again = self.role_shown && choice.said.get("role").is_some();
        let later_role = role_again && story.seam.before > 0;
        self.role_shown |= choice.said.get("role").is_some();
        let ends = story.reason.is_some() && story.waits();
        let mut edits = story.seam.edits(chunk);
        if all_calls && !later_role && !ends {
            let bytes = if edits.is_empty() { event.bytes.clone() } else { event.with(&edited(event.data(), edits)) };
            out.now.push(bytes);
            return;
        }
        let delta = without(&choice.said, later_role, &calls);
        let with = |delta: &[u8], edits: Vec<Edit>, more: Vec<Edit>| {
            let span = choice.span.clone();
            let delta = span.map(|span| Edit { span, with: Bytes::copy_from_slice(delta) });
            let edits = edits.into_iter().chain(delta).chain(more).collect();
            event.with(&edited(event.data(), edits))
        };
        if !ends {
            if delta.is_some() || chunk.finish().is_some() {
                out.now.push(with(&delta.unwrap_or(b"{}".to_vec()), edits, Vec::new()));
            }
            return;
        }
        out.ends.push(with(b"{}", edits.clone(), Vec::new()));
        if let Some(delta) = delta {
            let inside = |edit: &Edit| {
                chunk.usage.iter().any(|usage| usage.start <= edit.span.start && edit.span.end <= usage.end)
            };
            edits.retain(|edit| !inside(edit));
            let nulled = chunk.usage.iter().chain(&choice.finish).map(|span| null(span.clone())).collect();
            out.now.push(with(&delta, edits, nulled));
        }
    }
}

fn null(span: std::ops::Range<usize>) -> Edit {
    Edit { span, with: Bytes::from_static(b"null") }
}

/// The visible text of a delta or message.
pub(super) fn said(choice: &Choice<'_>) -> impl Iterator<Item = String> {
    let said = &choice.said;
    let content = said.get("content");
    let text = content.filter(|span| kind(said.text, span) == b'"').map(|span| said.string(span));
    let parts = content.filter(|span| kind(said.text, span) == b'[').map(|span| said.elements(span));
    let of_part = |part: Bytes| {
        let part = Object::at(&part, &(0..part.len()))?;
        let is_text = part.get("type").is_some_and(|span| part.string(span) == "text");
        part.get("text").filter(|_| is_text).map(|span| part.string(span))
    };
    text.into_iter().chain(parts.into_iter().flatten().filter_map(of_part))
}

/// A delta with `calls` for its calls. `None` where nothing is left that says anything.
fn without(said: &Object<'_>, role_shown: bool, calls: &[Bytes]) -> Option<Vec<u8>> {
    let kept = |(key, _): &&Member<'_>| key != "tool_calls" && !(role_shown && key == "role");
    let members: Vec<&Member<'_>> = said.members.iter().filter(kept).collect();
    let says =
        |(_, span): &&Member<'_>| !matches!(said.text.get(span.clone()), Some(b"null" | b"\"\"" | b"[]" | b"{}"));
    if calls.is_empty() && !members.iter().copied().any(|member| says(&member)) {
        return None;
    }
    let mut written: Vec<Vec<u8>> = Vec::new();
    for (key, span) in members {
        written.push([quoted(key).as_bytes(), b":", said.text.get(span.clone()).unwrap_or_default()].concat());
    }
    if !calls.is_empty() {
        written.push([b"\"tool_calls\":[", &*calls.join(&b","[..]), b"]"].concat());
    }
    Some([b"{", &*written.join(&b","[..]), b"}"].concat())
}

/// A piece of a call with the index that the call has among those that the client sees.
fn numbered(story: &Story, held: &Held) -> Bytes {
    let Some(element) = Object::at(&held.element, &(0..held.element.len())) else { return held.element.clone() };
    let Some((span, index)) = element.get("index").and_then(|span| Some((span, element.number(span)?))) else {
        return held.element.clone();
    };
    let before = story.turn.calls.iter().take(held.call);
    let hidden = before.filter(|call| call.standing == Standing::Own && call.index.is_some_and(|other| other < index));
    let hidden = hidden.count() as u64;
    if hidden == 0 {
        return held.element.clone();
    }
    let with = index.saturating_sub(hidden).to_string().into();
    edited(&held.element, vec![Edit { span: span.clone(), with }])
}

/// A piece of a call as an event of its own, in the frame of the one that it came with.
fn alone(story: &Story, held: &Held) -> Bytes {
    let data = held.event.data();
    let Some(chunk) = Chunk::read(data, "delta") else { return Bytes::new() };
    let Some(choice) = &chunk.choice else { return Bytes::new() };
    let delta = [b"{\"tool_calls\":[", &*numbered(story, held), b"]}"].concat();
    let inside =
        |edit: &Edit| chunk.usage.iter().any(|usage| usage.start <= edit.span.start && edit.span.end <= usage.end);
    let mut edits = story.seam.edits(&chunk);
    edits.retain(|edit| !inside(edit));
    edits.extend(choice.span.clone().map(|span| Edit { span, with: delta.into() }));
    edits.extend(chunk.usage.iter().chain(&choice.finish).map(|span| null(span.clone())));
    held.event.with(&edited(data, edits))
}

/// An event of the end: with another reason where the calls are hidden, and with a text where nothing else is left, since
/// no provider takes a message back that has neither text nor calls.
pub(super) fn ended(story: &Story, event: Event) -> Bytes {
    let choice = Chunk::read(event.data(), "delta").and_then(|chunk| chunk.choice);
    let Some((span, finish)) = choice.and_then(|choice| Some((choice.span, choice.finish?))) else {
        return event.bytes;
    };
    let reason = story.other_reason().map(|reason| Edit { span: finish, with: quoted(reason).into() });
    let text = span.zip(story.silence()).map(|(span, text)| {
        let with = format!(r#"{{"content":{}}}"#, quoted(text)).into();
        Edit { span, with }
    });
    let edits: Vec<Edit> = reason.into_iter().chain(text).collect();
    if edits.is_empty() { event.bytes } else { event.with(&edited(event.data(), edits)) }
}

/// An error as an event of a stream.
pub(super) fn error(body: &[u8]) -> Bytes {
    let told = Object::at(body, &(0..body.len())).is_some_and(|object| object.get("error").is_some());
    if told {
        return event(body);
    }
    let message = quoted(&String::from_utf8_lossy(body));
    event(format!(r#"{{"error":{{"message":{message},"type":"upstream_error"}}}}"#).as_bytes())
}
