//! A message of the proxy's own, as an item of a response.

use bytes::Bytes;

use super::{Splicer, quoted};

impl Splicer {
    /// The client sees nothing else of an answer that ends with calls of the proxy's: the events of a message.
    pub(in super::super) fn is_silent(&self) -> bool {
        self.told.is_silent()
    }

    pub(in super::super) fn break_silence(&mut self, text: &str) -> Vec<Bytes> {
        if !self.told.is_silent() {
            return Vec::new();
        }
        let message = Said::of(text, self.told.parts(), &self.last);
        self.told.part(false);
        self.told.say(text);
        self.filler = Some(message.item.clone());
        message.events()
    }
}

/// A message that says a text.
struct Said {
    item: Bytes,
    id: String,
    /// The text, quoted.
    text: String,
    /// Its place among the items.
    place: usize,
}

impl Said {
    /// `beside`: what is unlike in every answer.
    fn of(text: &str, place: usize, beside: &[u8]) -> Self {
        let digest = blake3::hash(beside).to_hex();
        let id = quoted(&format!("msg_{}", digest.get(..32).unwrap_or_default()));
        let text = quoted(text);
        let part = part(&text);
        let item = message(&id, "completed", &part).into();
        Self { item, id, text, place }
    }

    /// The events that tell of it. Their numbers are set where they are told.
    fn events(&self) -> Vec<Bytes> {
        let Self { item, id, text, place } = self;
        let begun = message(id, "in_progress", "");
        let item = String::from_utf8_lossy(item);
        let of_part = format!(r#""item_id":{id},"content_index":0,"#);
        let event = |kind: &str, rest: &str| {
            let data = format!(r#"{{"type":"{kind}","sequence_number":0,"output_index":{place},{rest}}}"#);
            format!("event: {kind}\ndata: {data}\n\n").into()
        };
        vec![
            event("response.output_item.added", &format!(r#""item":{begun}"#)),
            event("response.content_part.added", &format!(r#"{of_part}"part":{}"#, part("\"\""))),
            event("response.output_text.delta", &format!(r#"{of_part}"logprobs":[],"delta":{text}"#)),
            event("response.output_text.done", &format!(r#"{of_part}"logprobs":[],"text":{text}"#)),
            event("response.content_part.done", &format!(r#"{of_part}"part":{}"#, part(text))),
            event("response.output_item.done", &format!(r#""item":{item}"#)),
        ]
    }
}

fn part(text: &str) -> String {
    format!(r#"{{"type":"output_text","text":{text},"annotations":[],"logprobs":[]}}"#)
}

fn message(id: &str, status: &str, content: &str) -> String {
    format!(r#"{{"type":"message","id":{id},"status":"{status}","role":"assistant","content":[{content}]}}"#)
}
