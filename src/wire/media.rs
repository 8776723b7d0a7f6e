//! What pictures, sounds and files cost. Their bytes are never counted as text; the estimates here are
//! rough and corrected by the factor that is learned from reported usage.

use memchr::memmem;

/// A picture at `detail: low` (OpenAI's price list).
const LOW_DETAIL: u32 = 85;
/// A picture of six tiles, which is what a screenshot comes to (85 + 6 · 170).
const PICTURE: u32 = 1_105;
/// Speech costs about ten tokens a second, which is some 20 KB of base64 in a compressed format.
const BYTES_PER_AUDIO_TOKEN: usize = 2_000;
/// A page of a document with its picture, and the bytes of base64 that hold one.
const PAGE: u32 = 1_500;
const BYTES_PER_PAGE: usize = 64_000;
/// A second of video, and the bytes of base64 that hold one.
const VIDEO_SECOND: u32 = 300;
const BYTES_PER_VIDEO_SECOND: usize = 200_000;

/// What a medium's cost goes by.
#[derive(Clone, Copy)]
enum Kind {
    Picture,
    Sound,
    Document,
    Video,
}

/// The types that media have in all dialects.
const TYPES: [(&str, Kind); 13] = [
    ("image_url", Kind::Picture),
    ("image", Kind::Picture),
    ("input_image", Kind::Picture),
    ("computer_screenshot", Kind::Picture),
    ("input_audio", Kind::Sound),
    ("audio_url", Kind::Sound),
    ("audio", Kind::Sound),
    ("file", Kind::Document),
    ("input_file", Kind::Document),
    ("document", Kind::Document),
    ("video_url", Kind::Video),
    ("video", Kind::Video),
    ("input_video", Kind::Video),
];

/// A generated picture is a member of its item, whose type this is.
const GENERATED: &str = "image_generation_call";

/// Whether a string, as it is spelt, is the type of a medium, of a generated picture as well.
pub(super) fn is_type(text: &[u8]) -> bool {
    // Nearly all strings are longer, or begin otherwise.
    let may_be = text.len() <= GENERATED.len() && matches!(text.first(), Some(b'i' | b'c' | b'a' | b'f' | b'd' | b'v'));
    may_be && (text == GENERATED.as_bytes() || TYPES.iter().any(|(name, _)| name.as_bytes() == text))
}

/// Estimated input tokens of a content part of type `form`; `None` if it is no medium.
pub(super) fn tokens(form: &str, part: &[u8]) -> Option<u32> {
    let units = |bytes: usize| u32::try_from(part.len() / bytes + 1).unwrap_or(u32::MAX);
    let (_, kind) = TYPES.iter().find(|(name, _)| *name == form)?;
    Some(match kind {
        Kind::Picture if is_low_detail(part) => LOW_DETAIL,
        Kind::Picture => PICTURE,
        Kind::Sound => units(BYTES_PER_AUDIO_TOKEN),
        Kind::Document => units(BYTES_PER_PAGE).saturating_mul(PAGE),
        Kind::Video => units(BYTES_PER_VIDEO_SECOND).saturating_mul(VIDEO_SECOND),
    })
}

/// `"low"` occurs as a whole JSON string only as the value of `detail`.
fn is_low_detail(part: &[u8]) -> bool {
    memmem::find(part, b"\"low\"").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Dialect, glance};

    #[test]
    fn estimates_follow_kind_detail_and_size() {
        let picture = |detail: &str| format!(r#"{{"type":"image_url","image_url":{{"url":"x"{detail}}}}}"#);
        assert_eq!(tokens("image_url", br#"{"image_url":{"url":"https://x/low.png"}}"#), Some(PICTURE));
        assert_eq!(tokens("image_url", picture(r#","detail":"low""#).as_bytes()), Some(LOW_DETAIL));
        assert_eq!(tokens("input_audio", &[b'A'; 200_000]), Some(101));
        assert_eq!(tokens("file", b"{}"), Some(PAGE));
        assert_eq!(tokens("text", b"{}"), None);
    }

    #[test]
    fn whatever_is_counted_as_a_medium_is_found_in_a_body() {
        let carries =
            |text: &str| glance(Dialect::Chat, format!(r#"{{"messages":[{text}]}}"#).as_bytes()).unwrap().media;
        for (form, _) in TYPES {
            assert!(tokens(form, b"{}").is_some(), "{form}");
            assert!(carries(&format!(r#"{{"content":[{{"type": "{form}"}}]}}"#)), "{form}");
        }
        assert!(carries(r#"{"type":"image_generation_call","result":"aGk="}"#));
        assert!(carries(r#"{"role":"user","content":[{"image_url":{"url":"https://x"}}]}"#));
        assert!(!carries(r#"{"name":"file_path","description":"an image \"image\" \"file"}"#));
        assert!(glance(Dialect::Chat, br#"{"audio":{}}"#).unwrap().media);
    }
}
