//! A text that goes out in turn after turn.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};

use super::writing::quoted;

/// A text that stands in a conversation for good. It is spelt as JSON once: to spell all that a checkpoint replaces anew
/// for each turn took a third of the turn's time.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "String")]
pub struct SentText {
    text: String,
    json: OnceLock<Bytes>,
}

impl SentText {
    /// The text as a JSON string, quotes included.
    pub fn json(&self) -> Bytes {
        // Without the room that was for escapes.
        self.json.get_or_init(|| quoted(&self.text).into_boxed_str().into_boxed_bytes().into()).clone()
    }

    /// Bytes that it takes in memory once it was sent: as it was read, and as JSON, of which a sixteenth is escapes unless
    /// it was spelt already.
    pub fn weight(&self) -> usize {
        let text = self.text.len();
        self.text.capacity() + self.json.get().map_or(text + text / 16 + 2, Bytes::len)
    }
}

impl Deref for SentText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<String> for SentText {
    fn from(text: String) -> Self {
        Self { text, json: OnceLock::new() }
    }
}

impl From<&str> for SentText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl PartialEq for SentText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for SentText {}

impl fmt::Debug for SentText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl Serialize for SentText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_text_to_all_but_those_who_send_it() {
        let text = SentText::from("a \"b\"\n");
        assert_eq!(text.json(), r#""a \"b\"\n""#);
        assert_eq!(text, SentText::from("a \"b\"\n"), "whether it was sent or not");
        assert_eq!(format!("{text:?}"), format!("{:?}", &*text));
        assert!(text.weight() >= text.len() + text.json().len());
        let stored = serde_json::to_string(&text).unwrap();
        assert_eq!(stored.as_bytes(), text.json(), "stored as the text alone");
        assert_eq!(serde_json::from_str::<SentText>(&stored).unwrap(), text);
    }
}
