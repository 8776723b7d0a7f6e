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

/// What goes in at one boundary between blocks: calls, each followed by what ends the message there, if it ends.
type Seam = Vec<(String, Option<String>)>;

pub(in super::super) fn put_back(conversation: &Conversation<'_>, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
    let echo = conversation.items.get(tip + 1).filter(|item| item.facts.role == Role::Assistant);
    let echo = echo.and_then(|item| Echo::read(conversation.body, item.span.clone()));
    let Some(echo) = echo.filter(|echo| echo.is_of(aside)) else {
        return unseen(conversation, tip, aside);
    };
    let mut seams: Vec<Seam> = vec![Vec::new(); echo.blocks.len() + 1];
    let mut results = Vec::new();
    for insert in &aside.inserts {
        let seam = seams.get_mut(position(&echo.solid, insert)?)?;
        if insert.calls.is_empty() {
            seam.push((String::new(), Some(insert.items.clone())));
        } else {
            seam.push((insert.calls.clone(), None));
            results.extend((!insert.items.is_empty()).then_some(insert.items.as_str()));
        }
    }
    let mut edits = vec![Edit { span: echo.span.clone(), with: echo.with(&seams)?.into() }];
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

    /// The message with what goes in. Turns of rounds are written as they went to the provider in the round that followed
    /// (L4); the last is the client's own message, with what is left of its content.
    fn with(&self, seams: &[Seam]) -> Option<String> {
        let mut out = String::new();
        let mut content: Vec<String> = Vec::new();
        // Blocks that stand together stay as the client joined them.
        let mut run: Option<Range<usize>> = None;
        for (at, seam) in seams.iter().enumerate() {
            for (calls, end) in seam {
                content.extend(run.take().and_then(|run| self.block(run)));
                content.extend(Some(calls.clone()).filter(|calls| !calls.is_empty()));
                if let Some(items) = end {
                    let turn = std::mem::take(&mut content).join(",");
                    out.push_str(&format!(r#"{{"role":"assistant","content":[{turn}]}},{items},"#));
                }
            }
            if let Some(block) = self.blocks.get(at) {
                run = Some(run.map_or(block.start, |run| run.start)..block.end);
            }
        }
        if content.is_empty() && run.is_none() {
            // Nothing of the client's is left for another message.
            out.pop();
            return Some(out);
        }
        let part = |span: Range<usize>| self.body.get(span).map(utf8);
        let (head, tail) = (part(self.span.start..self.content.start)?, part(self.content.end..self.span.end)?);
        let content = match run {
            Some(run) if content.is_empty() && self.is_text() => part(run)?,
            run => {
                content.extend(run.and_then(|run| self.block(run)));
                format!("[{}]", content.join(","))
            }
        };
        Some(out + &head + &content + &tail)
    }

    /// Blocks as they stand in a list.
    fn block(&self, run: Range<usize>) -> Option<String> {
        let raw = utf8(self.body.get(run)?);
        Some(if self.is_text() { format!(r#"{{"type":"text","text":{raw}}}"#) } else { raw })
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
