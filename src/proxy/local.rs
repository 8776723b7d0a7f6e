//! The reserved prefix: what the proxy answers itself on its proxy port.

use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::askers::Askers;
use super::reading::{Unread, Who};
use super::reply::{self, ReplyBody};
use super::{Proxy, mcp};
use crate::compact::TextId;
use crate::compact::page::{Query, QueryError, lines};
use crate::tools::lookup::lookup;

/// Requests below it never go upstream.
pub const PREFIX: &str = "/_compactproxy/";
const EVICTED: &str = "/_compactproxy/evicted/";

/// Whether a path is the proxy's own.
pub fn is_own(path: &str) -> bool {
    path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/')
}

/// Answers a request for the proxy itself.
pub async fn serve(proxy: &Proxy, request: Request<Incoming>) -> Response<ReplyBody> {
    let nothing = || refuse(StatusCode::NOT_FOUND, "there is nothing here");
    if request.uri().path() == mcp::PATH {
        return mcp::serve(proxy, request).await.unwrap_or_else(nothing);
    }
    let (method, uri) = (request.method(), request.uri());
    let Some(id) = uri.path().strip_prefix(EVICTED) else { return nothing() };
    if !matches!(*method, Method::GET | Method::HEAD) {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "removed texts can only be read");
    }
    let query = match query(uri) {
        Ok(query) => query,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let (Ok(id), Some(reading)) = (id.parse::<TextId>(), proxy.reading.as_ref()) else {
        return unread(Unread::Unknown);
    };
    // A pattern over a long text takes its time.
    let work = move |text: &str| {
        lookup(text, &query).map(|page| Page { lines: lines(text), chars: text.chars().count(), text: page })
    };
    let who = match Askers::of(proxy, request.headers(), uri) {
        Some(askers) if askers.shown => askers.who(askers.home(reading).await),
        _ => Who::Anyone,
    };
    match reading.text(who, id, work).await {
        Ok(Ok(page)) => paged(page),
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
        Err(why) => unread(why),
    }
}

fn unread(why: Unread) -> Response<ReplyBody> {
    let status = match why {
        Unread::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Unread::Unknown => StatusCode::NOT_FOUND,
        Unread::Store(_) | Unread::Full | Unread::Failed => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = refuse(status, &why.to_string());
    if matches!(why, Unread::TooMany) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let uri: Uri = "/x?pattern=a%2Bb+c&limit=3".parse().unwrap();
        let read = query(&uri).unwrap();
        assert_eq!((read.pattern.as_deref(), read.limit), (Some("a+b c"), Some(3)));
    }
}
