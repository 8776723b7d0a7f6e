//! Knows a stream's last event by the bytes that were sent last.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::wire::Dialect;

/// The last bytes that were sent, and whether the last event of Responses began before them: enough to know
/// a stream's last event.
#[derive(Default)]
pub(super) struct Last {
    bytes: [u8; Self::SIZE],
    conclusion: Conclusion,
}

/// The event with which a stream of Responses ends.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Conclusion {
    #[default]
    Awaited,
    Begun,
    /// Other dialects have none.
    Never,
}

/// Types of the events with which a stream of Responses ends, behind the quote they begin with. In a text the quotes
/// would be escaped; a tool of the client's, which the first events repeat, may name them where no type stands.
const CONCLUSIONS: [&[u8]; 3] = [b"response.completed\"", b"response.incomplete\"", b"response.failed\""];

impl Last {
    /// More than any conclusion has.
    const SIZE: usize = 32;

    pub(super) fn of(dialect: Option<Dialect>) -> Self {
        let never = matches!(dialect, Some(Dialect::Chat | Dialect::Messages));
        let conclusion = if never { Conclusion::Never } else { Conclusion::Awaited };
        Self { bytes: [0; Self::SIZE], conclusion }
    }

    pub(super) fn add(&mut self, data: &[u8]) {
        let (first, _) = data.split_at(data.len().min(Self::SIZE));
        let (_, last) = data.split_at(data.len().saturating_sub(Self::SIZE));
        if self.conclusion == Conclusion::Awaited {
            let mut seam = [0; 2 * Self::SIZE];
            let (before, behind) = seam.split_at_mut(Self::SIZE);
            before.copy_from_slice(&self.bytes);
            behind.split_at_mut(first.len()).0.copy_from_slice(first);
            if concludes(&seam) || concludes(data) {
                self.conclusion = Conclusion::Begun;
            }
        }
        self.bytes.rotate_left(last.len());
        self.bytes.split_at_mut(Self::SIZE - last.len()).1.copy_from_slice(last);
    }

    /// A client that closes after this has had everything.
    pub(super) fn is_final_event(&self) -> bool {
        let end = self.bytes.trim_ascii_end();
        let blank = self.bytes.ends_with(b"\n\n") || self.bytes.ends_with(b"\r\n\r\n");
        self.conclusion == Conclusion::Begun && blank && end.ends_with(b"}")
            || end.ends_with(b"data: [DONE]")
            || end.ends_with(b"data:[DONE]")
            || end.ends_with(b"\"message_stop\"}")
    }
}

/// Whether the type of a last event of Responses stands in `data`.
fn concludes(data: &[u8]) -> bool {
    static TYPE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"response."));
    TYPE.find_iter(data).any(|at| {
        let (before, rest) = data.split_at(at + 1);
        let is_type = before.strip_suffix(b"\"").is_some_and(ends_with_type);
        is_type && CONCLUSIONS.iter().any(|conclusion| rest.starts_with(conclusion))
    })
}

fn ends_with_type(before: &[u8]) -> bool {
    let key = before.trim_ascii_end().strip_suffix(b":");
    key.is_some_and(|key| key.trim_ascii_end().ends_with(b"\"type\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conclusion_of_responses_is_known_however_it_was_cut() {
        let stream = b"event: response.completed\ndata: {\"type\": \"response.completed\",\"response\":{\"output\":[],\"usage\":{\"input_tokens\":1}}}\n\n";
        for cut in 0..=stream.len() {
            let mut last = Last::default();
            last.add(&stream[..cut]);
            assert_eq!(last.is_final_event(), cut == stream.len(), "{cut}");
            last.add(&stream[cut..]);
            assert!(last.is_final_event(), "{cut}");
        }
        let mut bytes = Last::default();
        stream.iter().for_each(|byte| bytes.add(&[*byte]));
        assert!(bytes.is_final_event());
        let mut quoted = Last::default();
        quoted.add(b"data: {\"delta\":\"\\\"response.completed\\\"\"}\n\n");
        assert!(!quoted.is_final_event());
    }

    #[test]
    fn the_last_event_is_known_however_it_was_cut() {
        let stream = b"data: {\"a\":1}\n\ndata: [DONE]\n\n";
        for cut in 0..=stream.len() {
            let mut last = Last::default();
            last.add(&stream[..cut]);
            assert_eq!(last.is_final_event(), cut >= stream.len() - 2, "{cut}");
            last.add(&stream[cut..]);
            assert!(last.is_final_event(), "{cut}");
        }
        let mut last = Last::default();
        last.add(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\r\n\r\n");
        assert!(last.is_final_event());
        last.add(b"x");
        assert!(!last.is_final_event());
    }

    #[test]
    fn only_a_stream_of_responses_ends_with_a_conclusion() {
        let event = b"data: {\"type\":\"response.completed\"}\n\n";
        for (dialect, ends) in [
            (None, true),
            (Some(Dialect::Responses), true),
            (Some(Dialect::Chat), false),
            (Some(Dialect::Messages), false),
        ] {
            let mut last = Last::of(dialect);
            last.add(event);
            assert_eq!(last.is_final_event(), ends, "{dialect:?}");
            last.add(b"data: [DONE]\n\n");
            assert!(last.is_final_event(), "{dialect:?}");
        }
    }
}
