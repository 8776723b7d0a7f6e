//! Whether what comes as a further round's answer is one. Some gateways say with a success that nothing came: by a page,
//! by an error, by nothing at all. Behind the rounds before it that would be no end of an answer.

use bytes::Bytes;

use super::events::{Cutter, Event};
use super::object::Object;
use super::{Dialect, chat};

/// Most bytes of a stream that are looked at: behind them it counts as an answer.
const MOST_SEEN: usize = 64 * 1024;

/// Looks at a stream until the model says something, or it is clear that it does not.
#[derive(Debug)]
pub struct Look {
    dialect: Dialect,
    cutter: Cutter,
    held: Vec<Bytes>,
    seen: usize,
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
    /// That an answer begins, or something that nobody knows.
    Opening,
    Output,
    /// That no answer comes.
    Other,
}

impl Look {
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, cutter: Cutter::default(), held: Vec::new(), seen: 0 }
    }

    pub fn push(&mut self, piece: &[u8]) -> Looks {
        let mut alive = Vec::new();
        self.seen += piece.len();
        let mut is_answer = self.seen > MOST_SEEN;
        for event in self.cutter.push(piece) {
            match says(self.dialect, &event) {
                Says::Life if !is_answer => alive.push(event.bytes),
                Says::Other if !is_answer => return Looks::Other(event.data().clone()),
                says => {
                    is_answer |= matches!(says, Says::Output);
                    self.held.push(event.bytes);
                }
            }
        }
        if !is_answer {
            return Looks::Unclear(alive);
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

fn says(dialect: Dialect, event: &Event) -> Says {
    let data = event.data();
    if data.is_empty() {
        return if event.bytes.starts_with(b":") { Says::Life } else { Says::Opening };
    }
    let Some(object) = Object::read(data, 0) else { return Says::Other };
    let kind = object.string("type");
    let is_named_error = event.bytes.starts_with(b"event: error") || event.bytes.starts_with(b"event:error");
    if is_named_error || matches!(&*kind, "error" | "response.failed") || object.get("error").is_some() {
        return Says::Other;
    }
    let is_output = match dialect {
        Dialect::Chat => !object.elements("choices").is_empty() && !chat::begins(data),
        Dialect::Messages => kind.starts_with("content_block_") || matches!(&*kind, "message_delta" | "message_stop"),
        Dialect::Responses => {
            let opening = ["response.created", "response.in_progress", "response.queued"];
            kind.starts_with("response.") && !opening.contains(&&*kind)
        }
    };
    match is_output {
        true => Says::Output,
        false if kind == "ping" => Says::Life,
        false => Says::Opening,
    }
}

/// Whether a JSON body is an answer.
pub(super) fn is_answer(dialect: Dialect, body: &[u8]) -> bool {
    let Some(answer) = Object::read(body.trim_ascii(), 0).filter(|answer| answer.get("error").is_none()) else {
        return false;
    };
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
            for other in [ERROR, failed, named, "data: nonsense\n\n", "data: [DONE]\n\n"] {
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
        for (bytes, due) in [(MOST_SEEN, Looks::Unclear(vec![])), (MOST_SEEN + 1, Looks::Answer)] {
            assert_eq!(Look::new(Dialect::Chat).push(&vec![b'x'; bytes]), due);
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
