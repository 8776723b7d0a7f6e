//! Request bodies: conversations of a coding agent whose text is this benchmark's own source.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::api::{Api, Item};

const SOURCE: [&str; 4] =
    [include_str!("bodies.rs"), include_str!("minimal.rs"), include_str!("upstream.rs"), include_str!("cases.rs")];
/// Characters of the last user message that makes a request unique.
const LAST_MESSAGE: usize = 512;

/// What a conversation is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// User and assistant text only: nothing in it can be truncated, pruned or evicted.
    Talk,
    /// A user's text only, without `store` in Responses: the provider keeps the answer and the proxy records it.
    Recorded,
    /// Tool calls that write files and read them back, one result of 90,000 characters among them.
    Tools,
}

/// A body in two pieces, so that a megabyte that stays the same is shared between requests.
#[derive(Clone)]
pub struct Pieces(VecDeque<Bytes>);

impl Pieces {
    /// `conversation` closed by one more user message of 512 characters that begins with `serial`.
    pub fn with_last_message(api: Api, conversation: &Bytes, serial: u64) -> Self {
        let mut text = format!("Request {serial}: ");
        let filler = "look at the next file and say what you find. ";
        text.extend(filler.chars().cycle().take(LAST_MESSAGE));
        Self(VecDeque::from([conversation.clone(), Bytes::from(api.last_message(&text))]))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

/// Lines of source, escaped for JSON, from which conversations are cut.
pub struct Writer {
    api: Api,
    lines: Vec<String>,
}

impl Writer {
    pub fn new(api: Api) -> Self {
        let escaped = |line: &str| line.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t") + "\\n";
        Self { api, lines: SOURCE.iter().flat_map(|file| file.lines()).map(escaped).collect() }
    }

    /// The open beginning of a body (no last message, array not closed) of about `bytes`; another seed gives other
    /// text in every message.
    pub fn conversation(&self, model: &str, shape: Shape, bytes: usize, seed: u64) -> Bytes {
        let mut out = self.api.opening(model, shape, &format!("Session {seed}: read everything and report."));
        out.reserve(bytes + 16 * 1024);
        let mut random = Random(seed);
        let mut step = 0;
        while out.len() + LAST_MESSAGE < bytes {
            let left = bytes - out.len() - LAST_MESSAGE;
            match shape {
                Shape::Talk => self.exchange(&mut out, &mut random, (seed, step), left),
                Shape::Recorded => self.question(&mut out, &mut random, (seed, step), left),
                Shape::Tools => self.tool_calls(&mut out, &mut random, (seed, step), left),
            }
            step += 1;
        }
        Bytes::from(out)
    }

    fn exchange(&self, out: &mut String, random: &mut Random, (seed, step): (u64, u64), left: usize) {
        let mut said = format!("Step {step} of session {seed}:\\n");
        self.text(&mut said, random, left.min(4_000));
        self.push(out, &Item::Assistant(&said));
        self.push(out, &Item::User(&format!("Go on after step {step} of session {seed}.")));
    }

    /// What a user says before the model has said anything: only such a request begins a chain.
    fn question(&self, out: &mut String, random: &mut Random, (seed, step): (u64, u64), left: usize) {
        let mut said = format!("Question {step} of session {seed}:\\n");
        self.text(&mut said, random, left.min(4_000));
        self.push(out, &Item::User(&said));
    }

    fn tool_calls(&self, out: &mut String, random: &mut Random, (seed, step): (u64, u64), left: usize) {
        let (tool, size) = match step {
            1 => ("grep", 90_000),
            _ if step % 2 == 0 => ("write_file", 200),
            _ => ("bash", 5_000),
        };
        let mut arguments = format!(r#"{{"path":"src/part_{step}.rs","content":"{seed} {step}"#);
        if tool == "write_file" {
            arguments.extend("fn part of the file that is written here ".chars().cycle().take(left.min(4_000)));
        }
        arguments.push_str(r#""}"#);
        let (id, say) = (format!("{seed}_{step}"), format!("Step {step}."));
        self.push(out, &Item::Call { id: &id, say: &say, tool, arguments: &arguments });
        let mut text = format!("Result {step} of session {seed}:\\n");
        self.text(&mut text, random, left.min(size));
        self.push(out, &Item::Result { id: &id, text: &text });
    }

    fn push(&self, out: &mut String, item: &Item<'_>) {
        out.push(',');
        out.push_str(&self.api.item(item));
    }

    /// Whole lines from a random one on, until there are `bytes` of them.
    fn text(&self, out: &mut String, random: &mut Random, bytes: usize) {
        let end = out.len() + bytes;
        let from = random.below(self.lines.len());
        for line in self.lines.iter().cycle().skip(from) {
            out.push_str(line);
            if out.len() >= end {
                return;
            }
        }
    }
}

/// Weyl steps, mixed: enough to choose lines.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed >> 32) as usize) % bound.max(1)
    }
}
