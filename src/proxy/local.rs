//! The reserved prefix: what the proxy answers itself on its proxy port.

use http::{Method, Response, StatusCode, Uri};

use super::Proxy;
use super::reply::{self, ReplyBody};

/// Requests below it never go upstream.
pub const PREFIX: &str = "/_compactproxy/";

/// Whether a path is the proxy's own.
pub fn is_own(path: &str) -> bool {
    path.starts_with(PREFIX) || path == PREFIX.trim_end_matches('/')
}

/// Answers a request for the proxy itself.
pub fn serve(_proxy: &Proxy, _method: &Method, _uri: &Uri) -> Response<ReplyBody> {
    let body = r#"{"error":{"message":"compactproxy: there is nothing here","type":"compactproxy_error"}}"#;
    reply::own(StatusCode::NOT_FOUND, "application/json", body)
}
