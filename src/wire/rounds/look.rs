//! Whether what comes as a further round's answer is one. Some gateways say with a success that nothing came: by a page,
//! by an error, by nothing at all. Behind the rounds before it that would be no end of an answer.

use bytes::Bytes;

use super::events::{Cutter, Event};
use super::object::Object;
use super::{Dialect, chat};
use crate::wire::overflow;

/// Most bytes of a stream that are held: behind them it counts as an answer where one had begun, else as none.
const MOST_HELD: usize = 64 * 1024;

/// Looks at a stream until the model says something, or it is clear that it does not.
#[derive(Debug)]
pub struct Look {
    dialect: Dialect,
    cutter: Cutter,
    held: Vec<Bytes>,
    bytes: usize,
    /// An event of the dialect has come.
    begun: bool,
}

/// What a stream is by what has come of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Looks {
    /// Nothing was said yet. These signs of life need not wait for it.
    Unclear(Vec<Bytes>),
    Answer,
    /// This stands in an answer's place.
    Other(Bytes),
}

/// What one event says.
enum Says {
    /// That somebody is there.
    Life,
    /// What nobody knows.
    Unknown,
    /// That an answer begins.
    Opening,
    Output,
    /// That no answer comes.
    Other,
}

impl Look {
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, cutter: Cutter::default(), held: Vec::new(), bytes: 0, begun: false }
    }

    pub fn push(&mut self, piece: &[u8]) -> Looks {
        let mut alive = Vec::new();
        let mut is_answer = false;
        for event in self.cutter.push(piece) {
            match says(self.dialect, &event) {
                Says::Life if !is_answer => alive.push(event.bytes),
                Says::Other if !is_answer => return Looks::Other(event.data().clone()),
                says => {
                    is_answer |= matches!(says, Says::Output);
                    self.begun |= matches!(says, Says::Opening);
                    self.bytes += event.bytes.len();
                    self.held.push(event.bytes);
                }
            }
        }
        if !is_answer && self.bytes + self.cutter.held() <= MOST_HELD {
            return Looks::Unclear(alive);
        }
        // One event that is longer than all that is held is the opening that repeats a long request.
        if !is_answer && !self.begun && !begins_event(self.cutter.pending()) {
            let mut other = std::mem::take(&mut self.held).concat();
            other.extend_from_slice(self.cutter.pending());
            other.truncate(MOST_HELD);
            return Looks::Other(other.into());
        }
        self.held.splice(0..0, alive);
        Looks::Answer
    }

    /// What was looked at, without the signs of life that have gone on.
    pub fn into_held(mut self) -> Vec<Bytes> {
        self.held.push(self.cutter.rest());
        self.held
    }
}

/// Whether what has come of an event is the beginning of one with an object for its data.
fn begins_event(pending: &[u8]) -> bool {
    let fields = || pending.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let is_field = |line: &&[u8]| [&b"event:"[..], b"id:", b"retry:", b":"].iter().any(|field| line.starts_with(field));
    let data = fields().find(|line| !is_field(line)).and_then(|line| line.strip_prefix(b"data:"));
    data.is_some_and(|data| data.trim_ascii_start().starts_with(b"{"))
}

/// Names of events, and data, that say no more than that somebody is there.
const LIFE: &[&str] = &["ping", "keepalive", "keep-alive", "keep_alive", "heartbeat"];

fn says(dialect: Dialect, event: &Event) -> Says {
    let data = event.data().trim_ascii();
    let name = name(event);
    if name == b"error" {
        return Says::Other;
    }
    let is_life = |word: &[u8]| LIFE.iter().any(|life| word.eq_ignore_ascii_case(life.as_bytes()));
    let word = data.strip_prefix(b"[").and_then(|data| data.strip_suffix(b"]")).unwrap_or(data);
    if is_life(name) || is_life(word) || data.is_empty() && is_of_fields(event) {
        return Says::Life;
    }
    let Some(object) = Object::read(data, 0) else {
        // Nothing follows on this.
        return if data == b"[DONE]" { Says::Other } else { Says::Unknown };
    };
    let kind = object.string("type");
    if kind == "response.failed" || object.get("error").is_some() || is_error(data) {
        return Says::Other;
    }
    let (is_known, is_output) = match dialect {
        Dialect::Chat => {
            let ends = |span: std::ops::Range<usize>| {
                Object::read(data, span.start).is_some_and(|choice| choice.get("finish_reason").is_some())
            };
            let choices = object.elements("choices");
            let is_output = !choices.is_empty() && (!chat::begins(data) || choices.into_iter().any(ends));
            (object.get("choices").is_some(), is_output)
        }
        Dialect::Messages => {
            let is_output = kind.starts_with("content_block_") || matches!(&*kind, "message_delta" | "message_stop");
            (kind == "message_start", is_output)
        }
        Dialect::Responses => {
            let opening = ["response.created", "response.in_progress", "response.queued"];
            let is_opening = opening.contains(&&*kind);
            (is_opening, kind.starts_with("response.") && !is_opening)
        }
    };
    match (is_output, is_known) {
        (true, _) => Says::Output,
        (false, true) => Says::Opening,
        (false, false) if is_life(kind.as_bytes()) => Says::Life,
        (false, false) => Says::Unknown,
    }
}

/// The name of an event; empty where it has none.
fn name(event: &Event) -> &[u8] {
    let named = event.bytes.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"event:"));
    named.unwrap_or_default().trim_ascii()
}

/// Whether all lines are those of an event: a page is none.
fn is_of_fields(event: &Event) -> bool {
    let fields = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"];
    let mut lines = event.bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.all(|line| fields.iter().any(|field| line.starts_with(field)))
}

/// Whether JSON is an error by its shape.
fn is_error(data: &[u8]) -> bool {
    serde_json::from_slice(data).is_ok_and(|object| overflow::is_error(&object))
}

/// Whether a JSON body is an answer.
pub(super) fn is_answer(dialect: Dialect, body: &[u8]) -> bool {
    let Some(answer) = Object::read(body.trim_ascii(), 0).filter(|answer| answer.get("error").is_none()) else {
        return false;
    };
    if is_error(body.trim_ascii()) {
        return false;
    }
    match dialect {
        Dialect::Chat => !answer.elements("choices").is_empty(),
        Dialect::Messages => answer.raw("content").is_some_and(|content| content.starts_with(b"[")),
        Dialect::Responses => answer.raw("output").is_some() && answer.string("status") != "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: &str =
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n";
    const ITEM: &str = "data: {\"type\":\"response.output_item.added\"}\n\n";
    const START: &str = "data: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n";
    const BLOCK: &str = "data: {\"type\":\"content_block_start\",\"index\":0}\n\n";
    const ROLE: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    const END: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
    const ERROR: &str = "data: {\"error\":{\"message\":\"no\"}}\n\n";

    /// What a stream looks like, whole and byte by byte; and what is held of it.
    fn looks(dialect: Dialect, stream: &str) -> (Option<bool>, String) {
        let mut whole = Look::new(dialect);
        let seen = whole.push(stream.as_bytes());
        let held = String::from_utf8(whole.into_held().concat()).unwrap();
        let mut bytes = Look::new(dialect);
        let last = stream.bytes().map(|byte| bytes.push(&[byte])).find(|looks| !matches!(looks, Looks::Unclear(_)));
        let told = |looks: &Looks| match looks {
            Looks::Unclear(_) => None,
            Looks::Answer => Some(true),
            Looks::Other(_) => Some(false),
        };
        assert_eq!(last.as_ref().and_then(told), told(&seen), "{stream}");
        (told(&seen), held)
    }

    #[test]
    fn an_answer_is_known_by_its_first_output() {
        use Dialect::{Chat, Messages, Responses};
        for (dialect, opening, outputs) in
            [(Chat, ROLE, vec![TEXT, END]), (Messages, START, vec![BLOCK]), (Responses, CREATED, vec![ITEM])]
        {
            assert_eq!(looks(dialect, opening).0, None, "{opening}");
            for output in outputs {
                let stream = format!("{opening}{output}data: {{half");
                assert_eq!(looks(dialect, &stream), (Some(true), stream.clone()));
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_none() {
        use Dialect::{Chat, Messages, Responses};
        let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{}}\n\n";
        let named = "event: error\ndata: {\"message\":\"no\"}\n\n";
        for (dialect, opening) in [(Chat, ROLE), (Messages, START), (Responses, CREATED)] {
            let choice = "data: {\"choices\":[{\"error\":{\"code\":429,\"message\":\"no\"}}]}\n\n";
            let plain = "event: error\ndata: no\n\n";
            for other in [ERROR, failed, named, choice, plain, "data: [DONE]\n\n"] {
                assert_eq!(looks(dialect, &format!("{opening}{other}")).0, Some(false), "{other}");
            }
            for other in ["", "<html>\n\n<p>\n\n</html>", "{\"choices\":[{}]}", "data: {\"a\":[1,2]}\n\n"] {
                assert_eq!(looks(dialect, other), (None, other.to_owned()), "{other}");
            }
        }
        let mut look = Look::new(Chat);
        let told = Bytes::from("{\"error\":{\"message\":\"no\"}}");
        assert_eq!(look.push(ERROR.as_bytes()), Looks::Other(told));
    }

    #[test]
    fn signs_of_life_do_not_wait_and_what_is_looked_at_has_a_bound() {
        let mut look = Look::new(Dialect::Messages);
        let ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
        assert_eq!(look.push(START.as_bytes()), Looks::Unclear(vec![]));
        let alive = vec![Bytes::from(": working\n\n"), Bytes::from(ping)];
        assert_eq!(look.push(format!(": working\n\n{ping}").as_bytes()), Looks::Unclear(alive));
        assert_eq!(look.push(BLOCK.as_bytes()), Looks::Answer);
        assert_eq!(look.into_held().concat(), format!("{START}{BLOCK}").as_bytes());
    }

    /// Whatever it is called: data that is no JSON before an answer is not its end.
    #[test]
    fn what_only_keeps_a_stream_alive_is_no_end_of_it() {
        use Dialect::{Chat, Messages, Responses};
        for (dialect, opening, output) in [(Chat, ROLE, TEXT), (Messages, START, BLOCK), (Responses, CREATED, ITEM)] {
            for life in [
                "data: keep-alive\n\n",
                "data: \n\n",
                "data:\n\n",
                "data\n\n",
                ": ping\n\n",
                "event: ping\n\n",
                "event: ping\ndata: now\n\n",
                "event: keepalive\ndata: {\"n\":1}\n\n",
                "data: [PING]\r\n\r\n",
                "data: {\"type\":\"keepalive\"}\n\n",
                "id: 1\nretry: 5\n\n",
                "\n",
            ] {
                for before in ["", opening] {
                    let mut look = Look::new(dialect);
                    let seen = look.push(format!("{before}{life}").as_bytes());
                    assert_eq!(
                        seen,
                        Looks::Unclear(if life == "data\n\n" { vec![] } else { vec![life.into()] }),
                        "{life}"
                    );
                    assert_eq!(look.push(output.as_bytes()), Looks::Answer, "{life}");
                }
            }
            // What nobody knows waits until the answer begins, and is a part of it.
            let mut look = Look::new(dialect);
            assert_eq!(look.push(b"data: working on it\n\n"), Looks::Unclear(vec![]));
            assert_eq!(look.push(output.as_bytes()), Looks::Answer);
            assert!(look.into_held().concat().starts_with(b"data: working on it\n\n"));
        }
    }

    #[test]
    fn what_is_long_is_an_answer_only_where_one_has_begun() {
        use Dialect::{Chat, Messages, Responses};
        let long = "x".repeat(MOST_HELD);
        for (dialect, opening) in [(Chat, ROLE), (Messages, START), (Responses, CREATED)] {
            let started = opening.trim_end().trim_end_matches('}');
            for answer in [format!("{opening}: {long}"), format!("{started},\"a\":\"{long}")] {
                assert_eq!(looks(dialect, &answer).0, Some(true), "{dialect:?}");
            }
            let lines = "<p>a</p>\n\n".repeat(MOST_HELD / 10 + 1);
            let unknown = "data: {\"a\":1}\n\n".repeat(MOST_HELD / 15 + 1);
            for other in [format!("<html>{long}"), lines, unknown, format!("data: {long}"), long.clone() + "y"] {
                let mut look = Look::new(dialect);
                let Looks::Other(held) = look.push(other.as_bytes()) else { panic!("{dialect:?}") };
                assert_eq!(held, other.as_bytes()[..MOST_HELD]);
            }
        }
        // Of signs of life nothing is held.
        let mut look = Look::new(Chat);
        for _ in 0..MOST_HELD {
            assert_eq!(look.push(b": on\n\n"), Looks::Unclear(vec![": on\n\n".into()]));
        }
    }

    #[test]
    fn a_json_answer_has_what_its_dialect_says() {
        use Dialect::{Chat, Messages, Responses};
        for (dialect, answer) in [
            (Chat, r#"{"choices":[{"message":{}}],"error":null}"#),
            (Messages, r#" {"type":"message","content":[]}"#),
            (Responses, r#"{"object":"response","status":"completed","error":null,"output":[]}"#),
        ] {
            assert!(is_answer(dialect, answer.as_bytes()), "{answer}");
            assert!(!is_answer(dialect, &answer.as_bytes()[..answer.len() - 1]), "{answer}");
        }
        for other in [
            "",
            "<html></html>",
            "data: {}\n\n",
            r#"{"error":{"message":"no"},"choices":[{}],"content":[],"output":[]}"#,
            r#"{"type":"error","error":{}}"#,
            r#"{"choices":[],"content":"x","status":"failed","output":[]}"#,
        ] {
            assert!(
                [Chat, Messages, Responses].iter().all(|dialect| !is_answer(*dialect, other.as_bytes())),
                "{other}"
            );
        }
    }
}
