//! What the strategies see of a request, whatever its dialect.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::scan::{unescaped, unescaped_spelt};

/// A chain digest: BLAKE3, 32 bytes. `d(i) = BLAKE3(d(i-1), canonical(item i))`.
pub type Digest = [u8; 32];

/// How many items before a result its call is looked for; between them only results may stand, and
/// one turn has at most 128 calls (C1, C8).
pub const REACH: usize = 1_024;

/// One wire API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI Chat Completions (`…/chat/completions`).
    Chat,
    /// OpenAI Responses (`…/responses`).
    Responses,
    /// Anthropic Messages (`…/messages`).
    Messages,
}

/// Who an item speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// `system` or `developer`.
    System,
    User,
    Assistant,
    /// A tool's or a legacy function's result.
    Tool,
    /// A role this version does not know: opaque, never cut from its neighbours.
    Unknown,
}

/// A request body, read by borrowed ranges. Nothing in it is copied but small fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation<'b> {
    pub dialect: Dialect,
    /// The whole decoded body.
    pub body: &'b [u8],
    pub fields: Fields,
    /// Byte ranges of the leading system/developer messages: outside the chain, never touched.
    pub lead: Vec<Range<usize>>,
    /// What no strategy may touch for a provider's compaction in it, but the model still reads: outside the chain.
    pub settled: Vec<Item>,
    /// Byte ranges of what a provider's compaction stands for: sent, but ignored (R10, A19). Never touched.
    pub superseded: Vec<Range<usize>>,
    /// The conversation behind all that, in order.
    pub items: Vec<Item>,
}

/// What is read of a body beside its conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    pub model: Option<Arc<str>>,
    pub stream: bool,
    /// `store`, where the client sent it.
    pub store: Option<bool>,
    /// The client's output limits: `max_tokens`, `max_completion_tokens`, `max_output_tokens`.
    pub max_output: Vec<MaxOutput>,
    /// Byte ranges of the values that cost input tokens beside the conversation (tools, schemas).
    pub overhead: Vec<Range<usize>>,
    /// Every top-level member in order of appearance: its key, and the byte range of its value.
    /// The conversation is the member [`Dialect::array`].
    pub members: Vec<(Arc<str>, Range<usize>)>,
    /// The request continues a history that the provider holds (R8, R9, message threads).
    pub continues: bool,
    /// Tools by the ids of calls in the history that the provider holds, as far as somebody saw them.
    pub unseen: Arc<HashMap<String, String>>,
    /// The provider compacts the history by itself (R12): nothing is planned, only an overflow is mended.
    pub managed: bool,
    /// Beta features that the body asks for (Bedrock, Vertex).
    pub betas: Vec<Arc<str>>,
    /// Output tokens below which a limit may not be lowered for the dialect's own reasons (A14); else 0.
    pub least_output: u64,
}

impl Fields {
    /// The client's output limit in tokens, if it set one.
    pub fn most_output(&self) -> Option<u64> {
        self.max_output.iter().map(|limit| limit.value).max()
    }

    /// Takes note of an output limit; other numbers are the provider's to refuse.
    pub(super) fn limit_output(&mut self, body: &[u8], span: &Range<usize>) {
        let value = body.get(span.clone()).and_then(|raw| serde_json::from_slice(raw).ok());
        self.max_output.extend(value.map(|value| MaxOutput { span: span.clone(), value }));
    }
}

/// How much of the history a request shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// All that may be touched.
    Whole,
    /// Some of it is at the provider: only results that are new may be shortened.
    Partial,
}

/// What an item is beside a part of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    #[default]
    Plain,
    /// It stands for all that precedes it, which the provider ignores (R10, A19): that and itself stay as they are.
    Compaction,
    /// It refers to something that the provider holds (R9).
    Reference,
    /// It asks the provider to compact the history (R11).
    Trigger,
    /// It sets what the model can do, or asked for that: where the items around it are replaced, it stays, before what
    /// stands for them (R3, R15).
    Kept,
}

/// An output-limit field of the client's, as it stands in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxOutput {
    /// Byte range of the number.
    pub span: Range<usize>,
    /// Tokens.
    pub value: u64,
}

/// One element of the conversation array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Byte range of the JSON value in the body: an object, or a string where the whole conversation is one.
    pub span: Range<usize>,
    /// What was read of it; shared between requests by a hash of the raw bytes.
    pub facts: Arc<Facts>,
    /// Chain digest up to and including this item.
    pub chain: Digest,
}

/// What is known of an item from its bytes alone. Ranges are relative to the item's start.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    pub role: Role,
    /// The texts of the item: array elements in order, members of an object by key. Items of equal
    /// `canonical` have the same slots at the same indices, wherever they stand in the bytes.
    pub slots: Vec<Slot>,
    /// Calls this item makes, in order.
    pub calls: Vec<Call>,
    /// Ids of the calls this item answers; a legacy function result has its function's name here.
    pub results: Vec<String>,
    /// Images, audio and files: their bytes are never counted as text.
    pub media: Vec<Media>,
    pub standing: Standing,
    /// Byte ranges of signed thinking blocks within the item's content (A10, A27), in order.
    pub signed: Vec<Range<usize>>,
    /// Whether it may hold what outlives it where a head stands for it: in Messages a cache breakpoint, or a change of
    /// tools or instructions.
    pub lasting: bool,
    /// Length of the item in bytes without the media's.
    pub text_bytes: usize,
    /// BLAKE3 of the canonical form (it ignores `cache_control`, key order, absent ≡ null,
    /// a string ≡ one text part).
    pub canonical: Digest,
    /// Input tokens of the item as it stands, once counted (`compact::tokens`), uncalibrated.
    pub tokens: OnceLock<u32>,
}

/// One call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Empty for a legacy `function_call`, which is answered by name and adjacency.
    pub id: String,
    pub name: String,
}

/// A text inside an item that a strategy may read and, for results and arguments, replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Byte range of the JSON value, quotes included, relative to the item.
    pub span: Range<usize>,
    pub kind: SlotKind,
}

/// What a slot's text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// Text of the item's role.
    Text,
    /// Reasoning that travels with the item: counted, never changed.
    Reasoning,
    /// Text of a tool result; index into [`Facts::results`].
    Result(usize),
    /// A call's arguments: a JSON string that holds JSON, or the object itself. Index into [`Facts::calls`].
    Arguments(usize),
    /// A custom tool's free-text input, a JSON string. Index into [`Facts::calls`].
    Input(usize),
    /// What else a call is given: counted by bytes, never changed.
    Given,
    /// A picture or file, as JSON: it costs what [`Facts::media`] says, and may give way to a text block.
    Media,
    /// Anything else that costs tokens (unknown members, names): counted by bytes, never changed.
    Other,
}

/// A picture, a sound or a file within an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// Byte range of the part that carries it, relative to the item.
    pub span: Range<usize>,
    /// Estimated input tokens.
    pub tokens: u32,
}

#[cfg(test)]
thread_local! {
    /// How many texts were decoded on this thread: known history must cost none.
    pub static DECODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

impl Conversation<'_> {
    /// Raw bytes of item `i`; empty when there is none.
    pub fn raw(&self, i: usize) -> &[u8] {
        self.items.get(i).and_then(|item| self.body.get(item.span.clone())).unwrap_or_default()
    }

    /// The decoded text of a slot: of a JSON string what it says (lone surrogates, which no text can hold, as they are
    /// spelt), of an object its own spelling. `None` where it is something else.
    pub fn text(&self, item: usize, slot: &Slot) -> Option<String> {
        #[cfg(test)]
        DECODED.set(DECODED.get() + 1);
        let raw = self.raw(item).get(slot.span.clone())?;
        match raw.first() {
            Some(b'{') => std::str::from_utf8(raw).ok().map(str::to_owned),
            _ => unescaped(raw).or_else(|| unescaped_spelt(raw)),
        }
    }

    /// Byte ranges of what calls are given, in ascending order: words of the model's own, at whatever depth.
    pub fn given(&self) -> Vec<Range<usize>> {
        let is_given = |kind| matches!(kind, SlotKind::Arguments(_) | SlotKind::Input(_) | SlotKind::Given);
        let of = |item: &Item| {
            let start = item.span.start;
            let slots = item.facts.slots.iter().filter(|slot| is_given(slot.kind));
            slots.map(|slot| start + slot.span.start..start + slot.span.end).collect::<Vec<_>>()
        };
        let mut given: Vec<Range<usize>> = self.items.iter().flat_map(of).collect();
        given.sort_unstable_by_key(|span| span.start);
        given
    }

    /// Names of the tools to which the answer to a search in item `i` refers (A21); none outside Messages.
    pub fn referenced_tools(&self, i: usize) -> Vec<String> {
        match self.dialect {
            Dialect::Chat | Dialect::Responses => Vec::new(),
            Dialect::Messages => super::anthropic::referenced_tools(self.raw(i)),
        }
    }

    /// The chain digests of all items, in order.
    pub fn chain(&self) -> impl DoubleEndedIterator<Item = &Digest> + ExactSizeIterator {
        self.items.iter().map(|item| &item.chain)
    }

    /// Name of the tool whose call the result `id` of item `item` answers: that of the nearest call
    /// in it (tools of the provider's) or before it with this id (ids are reused for other calls), else with
    /// this name (legacy functions and clients that leave ids out); else that of a call that the provider holds. `None`
    /// if there is none among [`REACH`] items.
    pub fn tool_of(&self, item: usize, id: &str) -> Option<&str> {
        let answers = self.items.get(item).is_some_and(|item| !item.facts.results.is_empty());
        let before = self.items.get(..item + usize::from(answers))?.iter().rev().take(REACH);
        let calls = before.flat_map(|item| item.facts.calls.iter().rev());
        let by_id = calls.clone().find(|call| !call.id.is_empty() && call.id == id);
        let seen = by_id.or_else(|| calls.into_iter().find(|call| call.name == id)).map(|call| call.name.as_str());
        seen.or_else(|| self.fields.unseen.get(id).map(String::as_str))
    }

    /// What the history begins with: the items before the first answer. None where its beginning is out of sight.
    pub fn opening(&self) -> &[Item] {
        if !self.superseded.is_empty() || self.sight() == Sight::Partial {
            return &[];
        }
        let items = if self.settled.is_empty() { &self.items } else { &self.settled };
        let opens = |item: &Item| {
            let Facts { role, results, standing, .. } = &*item.facts;
            let stands = matches!(standing, Standing::Plain | Standing::Kept);
            stands && results.is_empty() && matches!(role, Role::User | Role::System)
        };
        items.get(..items.iter().take_while(|item| opens(item)).count()).unwrap_or_default()
    }

    /// Whether nothing was answered yet: a user has just begun.
    pub fn begins(&self) -> bool {
        let opening = self.opening();
        let asked = opening.iter().any(|item| item.facts.role == Role::User);
        asked && self.settled.is_empty() && opening.len() == self.items.len()
    }

    /// What is settled, as if it were all of a conversation.
    pub fn settled_alone(&self) -> Self {
        Self {
            items: self.settled.clone(),
            fields: Fields::default(),
            lead: Vec::new(),
            settled: Vec::new(),
            superseded: Vec::new(),
            ..*self
        }
    }

    /// Whether all of the history that may be touched is here.
    pub fn sight(&self) -> Sight {
        let refers = |item: &Item| item.facts.standing == Standing::Reference;
        let partial = self.fields.continues || self.items.iter().any(refers);
        if partial { Sight::Partial } else { Sight::Whole }
    }

    /// The last of the user's messages among the first `upto` items with which a turn begins. Those between two
    /// answers are one message to the provider (A5); where it holds results, the tool loop goes on (A10).
    pub fn turn(&self, upto: usize) -> Option<usize> {
        let items = self.items.get(..upto.min(self.items.len()))?;
        let mut end = items.len();
        for run in items.rsplit(|item| item.facts.role == Role::Assistant) {
            let start = end - run.len();
            let typed = run.iter().rposition(|item| item.facts.role == Role::User);
            if let Some(at) = typed.filter(|_| run.iter().all(|item| item.facts.results.is_empty())) {
                return Some(start + at);
            }
            end = start.saturating_sub(1);
        }
        None
    }

    /// The client's output limit in tokens, if it set one.
    pub fn max_output(&self) -> Option<u64> {
        self.fields.most_output()
    }
}
