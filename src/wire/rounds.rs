//! Rounds: one answer for the client, made of several answers of its provider, between which the proxy ran
//! tools of its own that the client never sees.
//!
//! Pure. [`Offer`]s are placed in a request; an answer in which the model calls them is cut so that the client
//! sees none of it; the next round's request carries the calls and their results; and when the client sends the
//! history of it all, what it never saw is put back where it was ([`Aside`]).

mod answer;
mod chat;
mod events;
mod look;
mod messages;
mod object;
mod own;
mod responses;
mod told;
mod tools;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::answer::{Answer, MOST_HELD, MOST_WHOLE};
use self::events::{Cutter, Event};
pub use self::look::{Look, Looks};
use self::object::Object;
pub use self::own::{NAMESPACE, Own};
use super::conversation::{Conversation, Dialect, Digest};
use super::scan::string;
use super::splice::Edit;

/// A tool that the proxy offers to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// As the model sees it; unlike every tool of the client's.
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: serde_json::Value,
}

/// The model's call of one of the proxy's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCall {
    pub id: String,
    /// The name under which it was offered, or as nobody offered it ([`Own::kept`]).
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

/// What one call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnResult {
    pub text: String,
    /// The arguments made no sense, or nothing was found.
    pub failed: bool,
}

/// A round in which the model called the proxy's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// The model's turn, calls included, as items of the conversation: JSON, joined by commas.
    pub turn: Bytes,
    /// Never empty; in the order of the turn.
    pub calls: Vec<OwnCall>,
}

/// How one round's answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// No tool of the proxy's was called, or the answer could not be read: what was held goes out, and that is all.
    Answered,
    /// Only tools of the proxy's were called: another round follows.
    Again(Round),
    /// Tools of the client's were called as well: its turn now. What was held goes out once the results are kept.
    Handed(Round),
}

/// What a client never saw of one answer, to be put back into the history that it sends: kept under the chain
/// digest of the last item that the answer followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aside {
    /// Ids of the calls that the client saw, in order.
    pub calls: Vec<String>,
    /// BLAKE3 of all text that it saw, joined and trimmed: another answer at this place is not this one.
    pub text: [u8; 32],
    /// In order.
    pub inserts: Vec<Insert>,
}

/// What stands at one place of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insert {
    /// Visible parts of the answer before it: content blocks (Messages), output items (Responses), calls (Chat).
    pub parts: usize,
    /// Bytes of visible text before it, decoded (Chat, whose content is one text).
    pub text: usize,
    /// Calls that stand among the client's own: JSON, joined by commas. Empty for a whole round.
    pub calls: String,
    /// A whole round (the turn up to here with its calls, and their results), or the results of `calls`: JSON
    /// items (in Messages for `calls`: blocks), joined by commas.
    pub items: String,
}

/// Where a provider that keeps responses has an answer, whose client may continue it by id: kept under the id that the
/// client knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alias {
    /// Of the last round.
    pub id: String,
    /// Results of the proxy's calls in that round, which wait for them there: JSON items, joined by commas.
    pub results: String,
}

/// From where an answer can be continued by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// From anywhere: its provider keeps it.
    Store,
    /// On the connection that it came on, also where it is not kept.
    Connection,
}

/// How an answer's body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Stream,
    /// One JSON object.
    Json,
}

/// Most bytes of the arguments with which a tool of the proxy's may be called. Longer ones are not kept, and no history
/// has them: the call fails.
pub const MOST_ARGUMENTS: usize = 256 << 10;

impl Conversation<'_> {
    /// Whether `count` tools may be added: the client leaves the choice of tools to the model, wants one answer of no fixed
    /// format, and there is room (C8).
    pub fn may_offer(&self, count: usize) -> bool {
        match self.dialect {
            Dialect::Chat => chat::may_offer(self, count),
            Dialect::Messages => messages::may_offer(self, count),
            Dialect::Responses => responses::may_offer(self, count),
        }
    }

    /// Whether `count` tools that were offered before may stay, so that the prefix which the provider has cached does not
    /// change for a turn: as [`may_offer`](Self::may_offer), but the choice may be made already. Where it names a tool
    /// of the client's or none, the proxy's cannot be called; where it asks for any, calling the proxy's is a round like
    /// others ([`demands_a_call`](Self::demands_a_call)).
    pub fn may_keep(&self, count: usize) -> bool {
        match self.dialect {
            Dialect::Chat => chat::may_keep(self, count),
            Dialect::Messages => messages::may_keep(self, count),
            Dialect::Responses => responses::may_keep(self, count),
        }
    }

    /// Says that no tool may be called.
    pub fn calls_none(&self) -> Option<Edit> {
        let none = if self.dialect == Dialect::Messages { r#"{"type":"none"}"# } else { r#""none""# };
        tools::chosen(self, none)
    }

    /// Whether the client wants an answer that calls a tool, whichever: one of its own.
    pub fn demands_a_call(&self) -> bool {
        // Of a member that is there twice, the last one counts.
        let choice = self.fields.members.iter().rfind(|(key, _)| key.as_ref() == "tool_choice");
        let Some((_, span)) = choice else { return false };
        match self.dialect {
            Dialect::Chat | Dialect::Responses => string(self.body, span).is_some_and(|choice| choice == "required"),
            Dialect::Messages => {
                Object::read(self.body, span.start).is_some_and(|choice| choice.string("type") == "any")
            }
        }
    }

    /// Names of the tools that the client declares.
    pub fn declared(&self) -> Vec<String> {
        match self.dialect {
            Dialect::Chat => chat::declared(self),
            Dialect::Messages => messages::declared(self),
            Dialect::Responses => responses::declared(self),
        }
    }

    /// Whether the client has tools of its own.
    pub fn has_tools(&self) -> bool {
        tools::tools(self).is_none_or(|tools| !tools.is_empty())
    }

    /// Adds tools behind the client's own, if it has any.
    pub fn offer(&self, offers: &[Offer]) -> Option<Edit> {
        match self.dialect {
            Dialect::Chat => chat::offer(self, offers),
            Dialect::Messages => messages::offer(self, offers),
            Dialect::Responses => responses::offer(self, offers),
        }
    }

    /// Adds `items` (JSON, joined by commas) behind the last item.
    pub fn appended(&self, items: &[u8]) -> Option<Edit> {
        match self.dialect {
            Dialect::Chat => chat::appended(self, items),
            Dialect::Messages => messages::appended(self, items),
            Dialect::Responses => responses::appended(self, items),
        }
    }

    /// Continues an answer where the provider has it, in place of the id that the client knows. Edits in ascending order.
    pub fn continued(&self, alias: &Alias) -> Option<Vec<Edit>> {
        match self.dialect {
            Dialect::Chat | Dialect::Messages => None,
            Dialect::Responses => responses::continued(self, alias),
        }
    }

    /// The same request one round on, where the provider has the round before under `id`: `items` (JSON, joined by commas)
    /// in place of the input. Edits in ascending order.
    pub fn behind(&self, id: &str, items: &[u8]) -> Option<Vec<Edit>> {
        match self.dialect {
            Dialect::Chat | Dialect::Messages => None,
            Dialect::Responses => responses::behind(self, id, items),
        }
    }

    /// Puts back what the client never saw of the answer that follows item `tip`. `None` where another answer stands
    /// there: edited, or of another branch. Edits in ascending order.
    pub fn put_back(&self, tip: usize, aside: &Aside) -> Option<Vec<Edit>> {
        match self.dialect {
            Dialect::Chat => chat::put_back(self, tip, aside),
            Dialect::Messages => messages::put_back(self, tip, aside),
            Dialect::Responses => responses::put_back(self, tip, aside),
        }
    }

    /// Digests of the history as its client knows it, at each item that is the client's own: the same whether the client
    /// sends it or its provider holds it, whose answers have ids, and calls of tools (`is_own`) that the client never
    /// saw. None but in Responses.
    pub fn retold(&self, is_own: fn(&str) -> bool) -> Vec<(usize, Digest)> {
        match self.dialect {
            Dialect::Chat | Dialect::Messages => Vec::new(),
            Dialect::Responses => responses::retold(self, is_own),
        }
    }
}

impl Dialect {
    /// Whether a piece of a stream says nothing yet but that an answer begins. In doubt it says more.
    pub fn opens(self, piece: &[u8]) -> bool {
        let holds = |word: &str| memchr::memmem::find(piece, word.as_bytes()).is_some();
        match self {
            Self::Chat => {
                let mut cutter = Cutter::default();
                let events = cutter.push(piece).into_iter().chain([Event::new(cutter.rest())]);
                events.map(|event| event.data().clone()).all(|data| data.is_empty() || chat::begins(&data))
            }
            Self::Messages => {
                let opening = ["\"message_start\"", "\"ping\""].iter().any(|word| holds(word));
                opening && !["content_block_", "message_delta", "message_stop"].iter().any(|word| holds(word))
            }
            Self::Responses => {
                let openings = ["\"response.created\"", "\"response.in_progress\"", "\"response.queued\""];
                let more = ["response.output_", "response.content_", "response.reasoning", "response.completed"];
                openings.iter().any(|word| holds(word)) && !more.iter().any(|word| holds(word))
            }
        }
    }

    /// The items (JSON, joined by commas) that answer a round's calls; `results` in the order of the calls.
    pub fn results(self, round: &Round, results: &[OwnResult]) -> Bytes {
        match self {
            Self::Chat => chat::results(&round.calls, results),
            Self::Messages => messages::results(&round.calls, results),
            Self::Responses => responses::results(&round.calls, results),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_shows_nothing_yet() {
        let opens = |dialect: Dialect, piece: &str| dialect.opens(piece.as_bytes());
        for piece in [
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content": null}}]}"#,
        ] {
            assert!(opens(Dialect::Chat, piece), "{piece}");
        }
        assert!(!opens(Dialect::Chat, r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}]}"#));
        for member in ["reasoning_content", "refusal", "audio", "a_member_of_tomorrow"] {
            let piece = |value: &str| {
                format!(
                    "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"\",\"{member}\":{value}}}}}]}}\n\n"
                )
            };
            assert!(!opens(Dialect::Chat, &piece("\"a\"")) && !opens(Dialect::Chat, &piece("{\"a\":1}")), "{member}");
            assert!(["null", "\"\"", "[]"].iter().all(|nothing| opens(Dialect::Chat, &piece(nothing))), "{member}");
        }
        assert!(opens(Dialect::Chat, ": alive\n\n") && !opens(Dialect::Chat, "data: [DONE]\n\n"));
        assert!(opens(Dialect::Messages, r#"data: {"type":"message_start","message":{"content":[]}}"#));
        assert!(!opens(Dialect::Messages, r#"data: {"type":"content_block_start","index":0}"#));
        assert!(opens(
            Dialect::Responses,
            r#"data: {"type":"response.created","response":{"error":null,"output":[]}}"#
        ));
        assert!(!opens(Dialect::Responses, r#"data: {"type":"response.output_item.added"}"#));
        assert!(!opens(Dialect::Responses, r#"data: {"type":"response.failed"}"#));
    }
}

#[cfg(test)]
#[path = "tests/rounds_names.rs"]
mod names_tests;
