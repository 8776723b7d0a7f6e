//! What pictures, sounds and files cost. Their bytes are never counted as text; the estimates here are
//! rough and corrected by the factor that is learned from reported usage.

use std::sync::LazyLock;

use memchr::memmem::{self, Finder};
use regex::bytes::Regex;

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

/// The types that media have in all dialects, as JSON text.
const TYPES: [(&str, Kind); 13] = [
    (r#""image_url""#, Kind::Picture),
    (r#""image""#, Kind::Picture),
    (r#""input_image""#, Kind::Picture),
    (r#""computer_screenshot""#, Kind::Picture),
    (r#""input_audio""#, Kind::Sound),
    (r#""audio_url""#, Kind::Sound),
    (r#""audio""#, Kind::Sound),
    (r#""file""#, Kind::Document),
    (r#""input_file""#, Kind::Document),
    (r#""document""#, Kind::Document),
    (r#""video_url""#, Kind::Video),
    (r#""video""#, Kind::Video),
    (r#""input_video""#, Kind::Video),
];

/// A generated picture is a member of its item, whose type this is.
const GENERATED: &str = r#""image_generation_call""#;

/// One of these stands in every name of [`TYPES`] and in [`GENERATED`].
const PARTS: [&str; 6] = ["image", "audio", "video", "file\"", "document\"", "screenshot\""];

/// Whether a body may hold pictures, sounds, files or videos: whether it names the type of one.
pub fn carries_media(body: &[u8]) -> bool {
    // Most bodies have none, which six searches tell sooner than one for all names that begins at every quote.
    static FINDERS: LazyLock<[Finder<'static>; PARTS.len()]> = LazyLock::new(|| PARTS.map(Finder::new));
    if !FINDERS.iter().any(|part| part.find(body).is_some()) {
        return false;
    }
    // One pass for all names.
    static ANY: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).chain([GENERATED]).collect();
        Regex::new(&names.join("|")).ok()
    });
    ANY.as_ref().is_none_or(|any| any.is_match(body))
}

/// Estimated input tokens of a content part of type `form`; `None` if it is no medium.
pub(super) fn tokens(form: &str, part: &[u8]) -> Option<u32> {
    let units = |bytes: usize| u32::try_from(part.len() / bytes + 1).unwrap_or(u32::MAX);
    let (_, kind) = TYPES.iter().find(|(name, _)| name.trim_matches('"') == form)?;
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
        for name in TYPES.iter().map(|(name, _)| *name).chain([GENERATED]) {
            assert!(carries_media(format!(r#"{{"type":{name}}}"#).as_bytes()), "{name}");
        }
        for form in ["image", "input_image", "input_audio", "audio_url", "audio", "input_video", "file", "document"] {
            assert!(tokens(form, b"{}").is_some(), "{form}");
            assert!(carries_media(format!(r#"{{"type": "{form}"}}"#).as_bytes()), "{form}");
        }
        assert!(carries_media(br#"{"type":"image_generation_call","result":"aGk="}"#));
        assert!(carries_media(br#"{"type": "image_url","image_url":{"url":"https://x"}}"#));
        assert!(!carries_media(br#"{"name":"file_path","description":"an image"}"#));
    }
}
