//! Which headers pass. Everything end-to-end does, in its order; hop-by-hop ones never do.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING,
};

use super::route::Route;
use crate::wire::Dialect;

/// Where Anthropic looks for a key.
pub const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Where Azure looks for a key.
pub const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");
pub const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const OWN_PREFIX: &str = "x-compactproxy-";

/// Set to `1` by a client whose request must pass untouched.
pub const BYPASS: HeaderName = HeaderName::from_static("x-compactproxy-bypass");

/// What the request's body needs of the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyHeaders {
    /// The client's own bytes pass.
    Kept,
    /// The client's own bytes, already here: there is nothing left to wait for with `Expect`.
    TakenIn,
    /// A rewritten body of this many bytes, not encoded.
    Rewritten(u64),
}

/// The headers for the upstream. `Trailer` announces what the body's end will bring: it stays with the
/// client's own bytes.
/// `Host` is set in its place for plain HTTP; over TLS the client adds it where the protocol turns out
/// to be HTTP/1.
pub fn to_upstream(mut headers: HeaderMap, route: &Route, dialect: Option<Dialect>, body: BodyHeaders) -> HeaderMap {
    let trailers = wants_trailers(&headers);
    let key = route.key.as_ref().map(|key| key.header(dialect, &headers));
    if !route.is_https() {
        headers.insert(HOST, route.host.clone());
    }
    let mut out = end_to_end(headers, |name| {
        is_own(name)
            || (*name == HOST && route.is_https())
            || match body {
                BodyHeaders::Kept => false,
                BodyHeaders::TakenIn => *name == EXPECT,
                BodyHeaders::Rewritten(_) => [EXPECT, CONTENT_ENCODING, CONTENT_LENGTH, TRAILER].contains(name),
            }
            || (key.is_some() && [AUTHORIZATION, API_KEY, AZURE_KEY].contains(name))
    });
    if trailers {
        out.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let BodyHeaders::Rewritten(length) = body {
        out.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some((name, value)) = key {
        out.insert(name, value);
    }
    out
}

/// Adds a feature to those that `anthropic-beta` asks for.
pub fn add_beta(headers: &mut HeaderMap, feature: &str) {
    let asked = headers.get_all(ANTHROPIC_BETA).iter().flat_map(tokens).any(|name| name == feature.as_bytes());
    if asked {
        return;
    }
    let first = headers.get(ANTHROPIC_BETA).map(HeaderValue::as_bytes).filter(|first| !first.is_empty());
    let joined = first.map_or_else(|| feature.as_bytes().to_vec(), |first| [first, b",", feature.as_bytes()].concat());
    let Ok(joined) = HeaderValue::from_bytes(&joined) else { return };
    match headers.get_mut(ANTHROPIC_BETA) {
        Some(first) => *first = joined,
        None => drop(headers.insert(ANTHROPIC_BETA, joined)),
    }
}

/// The headers for the client. A length beside a transfer coding is void.
pub fn to_client(headers: HeaderMap) -> HeaderMap {
    let coded = headers.contains_key(TRANSFER_ENCODING);
    end_to_end(headers, |name| coded && *name == CONTENT_LENGTH)
}

/// The headers without the hop-by-hop ones and those that `dropped` names. The map is rebuilt
/// rather than shrunk: removing from a `HeaderMap` moves its last entry.
fn end_to_end(headers: HeaderMap, dropped: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let named = named_by_connection(&headers);
    let stays = |name: &HeaderName| !is_hop_by_hop(name) && !dropped(name) && !named.contains(name);
    if headers.keys().all(stays) {
        return headers;
    }
    let mut out = HeaderMap::with_capacity(headers.len() + 1);
    let mut current: Option<HeaderName> = None;
    for (name, value) in headers {
        if let Some(name) = name {
            current = stays(&name).then_some(name);
        }
        if let Some(name) = &current {
            out.append(name, value);
        }
    }
    out
}

/// Makes one `Cookie` of those that HTTP/2 lets a client send apart (RFC 9113 8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    if let Ok(joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// The names that `Connection` makes hop-by-hop for this message.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(tokens)
        .filter(|token| !token.eq_ignore_ascii_case(b"keep-alive") && !token.eq_ignore_ascii_case(b"close"))
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .collect()
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    // As text: a list of `HeaderName`s would be made anew for every header.
    matches!(
        name.as_str(),
        "connection"
            | "transfer-encoding"
            | "te"
            | "upgrade"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
    )
}

/// Headers that speak to this proxy.
fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with(OWN_PREFIX)
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().flat_map(tokens).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

/// The elements of a comma-separated list.
pub fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{Secret, Upstream};

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn lines(map: &HeaderMap) -> Vec<(&str, &str)> {
        map.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    #[test]
    fn hop_by_hop_and_named_headers_go_and_the_rest_keeps_its_order() {
        let out = to_client(map(&[
            ("x-a", "1"),
            ("connection", "X-Named, close"),
            ("x-named", "no"),
            ("set-cookie", "b"),
            ("keep-alive", "5"),
            ("x-b", "2"),
            ("set-cookie", "a"),
            ("x-c", "3"),
        ]));
        assert_eq!(lines(&out), [("x-a", "1"), ("set-cookie", "b"), ("set-cookie", "a"), ("x-b", "2"), ("x-c", "3")]);
    }

    #[test]
    fn cookies_that_came_apart_are_joined_in_their_order_and_place() {
        let mut headers =
            map(&[("x-a", "1"), ("cookie", "a=1"), ("x-b", "2"), ("cookie", "b=2; c=3"), ("cookie", "d")]);
        join_cookies(&mut headers);
        assert_eq!(lines(&headers), [("x-a", "1"), ("cookie", "a=1; b=2; c=3; d"), ("x-b", "2")]);
        let before = headers.clone();
        join_cookies(&mut headers);
        assert_eq!(headers, before);
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_void() {
        let out = to_client(map(&[("content-length", "5"), ("transfer-encoding", "chunked")]));
        assert!(out.is_empty());
        assert_eq!(to_client(map(&[("content-length", "5")])).len(), 1);
    }

    #[test]
    fn of_te_only_trailers_passes() {
        let route = Route::for_tests("http://h");
        let kept = to_upstream(map(&[("te", "gzip;q=1, Trailers")]), &route, None, BodyHeaders::Kept);
        assert_eq!(lines(&kept), [("host", "h"), ("te", "trailers")]);
        let other = to_upstream(map(&[("te", "gzip")]), &route, None, BodyHeaders::Kept);
        assert_eq!(lines(&other), [("host", "h")]);
    }

    #[test]
    fn a_beta_feature_is_added_to_those_asked_for() {
        let with = |lines: &[(&'static str, &'static str)]| {
            let mut map = map(lines);
            add_beta(&mut map, "x-1");
            map.get_all("anthropic-beta").iter().map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(with(&[]), ["x-1"]);
        assert_eq!(with(&[("anthropic-beta", "a,b")]), ["a,b,x-1"]);
        assert_eq!(with(&[("anthropic-beta", "a, x-1"), ("anthropic-beta", "b")]), ["a, x-1", "b"]);
        assert_eq!(with(&[("anthropic-beta", "a"), ("anthropic-beta", "b")]), ["a,x-1", "b"]);
    }

    #[test]
    fn a_held_key_takes_the_place_of_the_clients_in_the_form_that_the_upstream_reads() {
        let key = |base: &str, client: &'static str| {
            let mut upstream = Upstream::clone(&Route::for_tests(base).upstream);
            upstream.api_key = Some(Secret::new("held".into()));
            let (route, headers) = (Route::new(Arc::new(upstream)).unwrap(), map(&[(client, "theirs")]));
            let out = to_upstream(headers, &route, Some(Dialect::Chat), BodyHeaders::Kept);
            let lines: Vec<_> = out.iter().filter(|(name, _)| *name != HOST).collect();
            let [(name, value)] = lines[..] else { panic!("{lines:?}") };
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let (bearer, azure) =
            (("authorization".to_owned(), "Bearer held".to_owned()), ("api-key".to_owned(), "held".to_owned()));
        assert_eq!(key("http://h", "authorization"), bearer);
        assert_eq!(key("http://h", "x-api-key"), bearer);
        assert_eq!(key("http://h", "api-key"), azure);
        assert_eq!(key("https://mine.openai.azure.com/openai", "authorization"), azure);
    }

    #[test]
    fn a_rewritten_body_loses_its_encoding_and_gets_its_length() {
        let headers =
            map(&[("content-encoding", "zstd"), ("content-length", "9"), ("trailer", "x-sum"), ("accept", "*/*")]);
        let out = to_upstream(headers, &Route::for_tests("http://h"), None, BodyHeaders::Rewritten(120));
        assert_eq!(lines(&out), [("accept", "*/*"), ("host", "h"), ("content-length", "120")]);
    }
}
