//! The head of an answer whose body is another than the upstream's.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderName, TRAILER};

/// Headers that speak of the bytes of a body.
const OF_THE_BODY: [HeaderName; 7] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    TRAILER,
    ETAG,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
];

/// A head for another body: what speaks of the bytes is left out, the rest keeps its order.
pub(super) fn without_body_headers(head: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(head.len());
    for (name, value) in head.iter().filter(|(name, _)| !OF_THE_BODY.contains(name)) {
        kept.append(name.clone(), value.clone());
    }
    kept
}
