//! The reserved prefix: what the proxy answers itself on its proxy port.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::{HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::Proxy;
use super::budget::Permit;
use super::reply::{self, ReplyBody};
use crate::compact::TextId;
use crate::compact::page::{Query, QueryError, lines};

/// Requests below it never go upstream.
pub const PREFIX: &str = "/_compactproxy/";
const EVICTED: &str = "/_compactproxy/evicted/";
/// Reads of removed texts in one second, of all clients together.
pub const READS_A_SECOND: u32 = 200;

/// Pages that are cut or searched at once; others wait.
pub const MAX_PAGES: usize = 2;

/// Whether a path is the proxy's own.
pub fn is_own(path: &str) -> bool {
    path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/')
}

/// Answers a request for the proxy itself.
pub async fn serve(proxy: &Proxy, method: &Method, uri: &Uri) -> Response<ReplyBody> {
    let Some(id) = uri.path().strip_prefix(EVICTED) else {
        return refuse(StatusCode::NOT_FOUND, "there is nothing here");
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "removed texts can only be read");
    }
    if !proxy.reads.admit(Instant::now()) {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too many reads of removed texts at once: try again in a second");
    }
    let unknown = || refuse(StatusCode::NOT_FOUND, "no text is kept under this id");
    let (Ok(id), Some(compactor)) = (id.parse::<TextId>(), proxy.compactor.as_ref()) else { return unknown() };
    let text = match compactor.store.text(&id).await {
        Ok(Some(text)) => text,
        Ok(None) => return unknown(),
        Err(error) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    };
    let query = match query(uri) {
        Ok(query) => query,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let mut permit = Permit::empty(&proxy.budget);
    if !permit.grow(text.len()) {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the proxy's buffers are full: try again later");
    }
    // A pattern over a long text takes its time.
    let work = move || {
        let _share = permit;
        query.page(&text).map(|page| Page { lines: lines(&text), chars: text.chars().count(), text: page })
    };
    match proxy.pages.run(work).await {
        Some(Ok(page)) => paged(page),
        Some(Err(error)) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        None => refuse(StatusCode::SERVICE_UNAVAILABLE, "the text could not be searched"),
    }
}

/// What is asked for of a text, and the whole text's totals.
struct Page {
    text: String,
    lines: usize,
    chars: usize,
}

fn query(uri: &Uri) -> Result<Query, QueryError> {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    Query::of(pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    }))
}

fn paged(page: Page) -> Response<ReplyBody> {
    let mut response = reply::own(StatusCode::OK, "text/plain; charset=utf-8", page.text);
    for (name, total) in [("x-compactproxy-lines", page.lines), ("x-compactproxy-chars", page.chars)] {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(total));
    }
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

fn refuse(status: StatusCode, message: &str) -> Response<ReplyBody> {
    let body = json!({"error": {"message": format!("compactproxy: {message}"), "type": "compactproxy_error"}});
    reply::own(status, "application/json", body.to_string())
}

/// Counts what happens within the current second.
pub struct PerSecond {
    start: Instant,
    most: u32,
    /// The second since the start, and what happened in it.
    now: AtomicU64,
}

impl PerSecond {
    pub fn new(most: u32) -> Self {
        Self { start: Instant::now(), most, now: AtomicU64::new(0) }
    }

    /// Whether one more may happen at this time.
    pub fn admit(&self, at: Instant) -> bool {
        let second = at.saturating_duration_since(self.start).as_secs();
        let counted = self.now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let (current, count) = (now >> 32, now & 0xffff_ffff);
            match current == second {
                true if count >= u64::from(self.most) => None,
                true => Some(now + 1),
                false => Some((second << 32) | 1),
            }
        });
        counted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_admits_its_share() {
        let limit = PerSecond::new(2);
        let at = limit.start;
        assert!(limit.admit(at) && limit.admit(at));
        assert!(!limit.admit(at));
        let later = at + Duration::from_secs(1);
        assert!(limit.admit(later) && limit.admit(later) && !limit.admit(later));
    }

    #[test]
    fn a_query_is_decoded() {
        let uri: Uri = "/x?pattern=a%2Bb+c&limit=3".parse().unwrap();
        let read = query(&uri).unwrap();
        assert_eq!((read.pattern.as_deref(), read.limit), (Some("a+b c"), Some(3)));
    }
}
