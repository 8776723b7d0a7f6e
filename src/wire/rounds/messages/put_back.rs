//! What a client never saw of an answer, put back into the message that it sends.

use std::ops::Range;

use super::super::object::{Object, utf8};
use super::super::told::{Said, position};
use super::{Aside, Conversation, Edit, is_reasoning};
use crate::wire::conversation::Role;
use crate::wire::scan::{elements, kind};

/// The client's message of the answer.
struct Echo<'b> {
    body: &'b [u8],
    span: Range<usize>,
    content: Range<usize>,
    /// Its blocks; the content itself where that is a string.
    blocks: Vec<Range<usize>>,
    solid: Vec<bool>,
}

/// What goes in at one boundary between blocks.
#[derive(Default)]
struct Seam {
    /// Calls, each followed by what ends the message there, if it ends.
    pieces: Vec<(String, Option<String>)>,
}

pub(in super::super) fn put_back(conversation: &Conversation<'_>, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
    let echo = conversation.items.get(tip + 1).filter(|item| item.facts.role == Role::Assistant);
    let echo = echo.and_then(|item| Echo::read(conversation.body, item.span.clone()));
    let Some(echo) = echo.filter(|echo| echo.is_of(aside)) else {
        return unseen(conversation, tip, aside);
    };
    let mut seams: Vec<Seam> = (0..=echo.blocks.len()).map(|_| Seam::default()).collect();
    let mut results = Vec::new();
    for insert in &aside.inserts {
        let seam = seams.get_mut(position(&echo.solid, insert)?)?;
        if insert.calls.is_empty() {
            seam.pieces.push((String::new(), Some(insert.items.clone())));
        } else {
            seam.pieces.push((insert.calls.clone(), None));
            results.extend((!insert.items.is_empty()).then_some(insert.items.as_str()));
        }
    }
    let mut edits = echo.edits(&seams)?;
    if !results.is_empty() {
        edits.extend(with_results(conversation, tip + 2, &results.join(","))?);
    }
    Some(edits)
}

/// Where the client saw nothing of the answer, and so has no message of it.
fn unseen(conversation: &Conversation<'_>, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
    let next = conversation.items.get(tip + 1).filter(|item| item.facts.role != Role::Assistant)?;
    if !aside.calls.is_empty() || aside.text != Said::default().digest() {
        return None;
    }
    let (mut out, mut calls) = (String::new(), Vec::new());
    for insert in &aside.inserts {
        if insert.calls.is_empty() {
            let calls = std::mem::take(&mut calls).join(",");
            out.push_str(&format!(r#"{{"role":"assistant","content":[{calls}]}},{},"#, insert.items));
        } else {
            calls.push(insert.calls.as_str());
        }
    }
    let at = next.span.start;
    calls.is_empty().then(|| vec![Edit { span: at..at, with: out.into() }])
}

impl<'b> Echo<'b> {
    fn read(body: &'b [u8], span: Range<usize>) -> Option<Self> {
        let content = Object::read(body, span.start)?.get("content")?;
        let (blocks, solid) = match kind(body, &content) {
            b'"' => (vec![content.clone()], vec![true]),
            _ => {
                let blocks = elements(body, content.start).ok()?;
                let is_solid = |block: &Range<usize>| {
                    Object::read(body, block.start).is_none_or(|block| !is_reasoning(&block.string("type")))
                };
                let solid = blocks.iter().map(is_solid).collect();
                (blocks, solid)
            }
        };
        Some(Self { body, span, content, blocks, solid })
    }

    fn is_text(&self) -> bool {
        kind(self.body, &self.content) == b'"'
    }

    /// Whether the client saw what `aside` is about.
    fn is_of(&self, aside: &Aside) -> bool {
        let (mut calls, mut said) = (Vec::new(), Said::default());
        if self.is_text() {
            said.add(&crate::wire::scan::string(self.body, &self.content).unwrap_or_default());
        } else {
            for block in self.blocks.iter().filter_map(|block| Object::read(self.body, block.start)) {
                match block.string("type").as_ref() {
                    "tool_use" => calls.push(block.string("id").into_owned()),
                    "text" => said.add(&block.string("text")),
                    _ => {}
                }
            }
        }
        calls == aside.calls && said.digest() == aside.text
    }

    /// What stands before the first block and behind the last one, for messages cut out of this one.
    fn around(&self) -> (String, String) {
        let part = |span: Range<usize>| utf8(self.body.get(span).unwrap_or_default());
        let head = part(self.span.start..self.content.start) + "[";
        let tail = "]".to_owned() + &part(self.content.end..self.span.end);
        (head, tail)
    }

    fn edits(&self, seams: &[Seam]) -> Option<Vec<Edit>> {
        let (head, tail) = self.around();
        let mut edits = Vec::new();
        let inside = if self.is_text() { (r#"[{"type":"text","text":"#, "}]") } else { ("", "") };
        let last = self.blocks.len();
        for (at, seam) in seams.iter().enumerate() {
            // Where a block stands before and behind this place, the comma between them goes into the edit.
            let before = at.checked_sub(1).and_then(|at| self.blocks.get(at));
            let behind = self.blocks.get(at);
            let open = self.content.start + usize::from(!self.is_text());
            let close = self.content.end.checked_sub(usize::from(!self.is_text()))?;
            let span = before.map_or(open, |block| block.end)..behind.map_or(close, |block| block.start);
            let lead = if before.is_none() {
                inside.0.strip_suffix(r#"{"type":"text","text":"#).unwrap_or_default()
            } else {
                ""
            };
            let (text_open, text_close) = if self.is_text() { (r#"{"type":"text","text":"#, "}") } else { ("", "") };
            if seam.pieces.is_empty() {
                // A string becomes an array, whatever stands at its other end.
                match (self.is_text(), at) {
                    (true, 0) => edits.push(Edit { span: open..open, with: inside.0.into() }),
                    (true, _) => edits.push(Edit { span: close..close, with: inside.1.into() }),
                    _ => {}
                }
                continue;
            }
            let mut out = String::from(lead);
            let mut is_empty = before.is_none();
            if before.is_some() {
                out.push_str(text_close);
            }
            let mut ended = false;
            for (calls, end) in &seam.pieces {
                if ended {
                    out.push_str(&format!(",{head}"));
                    (ended, is_empty) = (false, true);
                }
                if !calls.is_empty() {
                    out.push_str(if is_empty { "" } else { "," });
                    out.push_str(calls);
                    is_empty = false;
                }
                if let Some(items) = end {
                    out.push_str(&format!("{tail},{items}"));
                    ended = true;
                }
            }
            match (behind, ended) {
                (Some(_), true) => out.push_str(&format!(",{head}{text_open}")),
                (Some(_), false) => out.push_str(&format!("{}{text_open}", if is_empty { "" } else { "," })),
                (None, false) => out.push_str(if self.is_text() { "]" } else { "" }),
                (None, true) => {
                    // Nothing of the client's is left for another message.
                    edits.push(Edit { span: span.start..self.span.end, with: out.into() });
                    continue;
                }
            }
            let _ = last;
            edits.push(Edit { span, with: out.into() });
        }
        Some(edits)
    }
}

/// Results at the front of the message that answers the client's own calls (A1 to A3).
fn with_results(conversation: &Conversation<'_>, item: usize, results: &str) -> Option<Vec<Edit>> {
    let item = conversation.items.get(item).filter(|item| matches!(item.facts.role, Role::User | Role::Tool))?;
    let body = conversation.body;
    let content = Object::read(body, item.span.start)?.get("content")?;
    if kind(body, &content) == b'"' {
        let front = format!(r#"[{results},{{"type":"text","text":"#);
        let edits = [(content.start, front), (content.end, "}]".to_owned())];
        return Some(edits.into_iter().map(|(at, with)| Edit { span: at..at, with: with.into() }).collect());
    }
    let comma = if elements(body, content.start).ok()?.is_empty() { "" } else { "," };
    let at = content.start + 1;
    Some(vec![Edit { span: at..at, with: format!("{results}{comma}").into() }])
}
