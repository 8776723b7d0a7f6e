//! `/_compactproxy/mcp`: the tools for clients that speak MCP, by the same credential as the provider's API.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body::Body;
use serde_json::json;
use tokio::time::timeout;

use super::Proxy;
use super::agent::agent;
use super::askers::Askers;
use super::budget::Permit;
use super::identity::Names;
use super::origin::workspace;
use super::reply::{self, ReplyBody};
use super::rounds::enabled;
use crate::config::{Strategies, Subject};
use crate::tools::execution::{Caller, Toolbox};
use crate::tools::mcp::{self, Hosts, MAX_MESSAGE};
use crate::tools::sessions::View;

/// Where it is served.
pub const PATH: &str = "/_compactproxy/mcp";
/// From a message's head to its answer's, its body included.
pub const ANSWER_BOUND: Duration = Duration::from_secs(60);

/// JSON-RPC's codes for errors of a server's own.
const NOT_ALLOWED: i64 = -32_001;
const BUSY: i64 = -32_002;

/// Answers one message; `None` where the tools are not served.
pub async fn serve<B>(proxy: &Proxy, request: Request<B>) -> Option<Response<ReplyBody>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Display,
{
    let reading = Arc::clone(proxy.reading.as_ref().filter(|_| proxy.config.serves_mcp())?);
    let Some(askers) = Askers::of(proxy, request.headers(), request.uri()) else {
        let message = "send the credential of the provider's API (authorization or x-api-key)";
        let mut response = refuse(StatusCode::UNAUTHORIZED, NOT_ALLOWED, message);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"compactproxy\""));
        return Some(response);
    };
    let home = askers.home(&reading).await;
    let strategies = strategies(proxy, &request, askers.upstream(home));
    let settings = strategies.tools.as_ref()?;
    let mut permit = Permit::empty(&proxy.budget);
    if !permit.grow(MAX_MESSAGE) {
        return Some(refuse(StatusCode::SERVICE_UNAVAILABLE, BUSY, "the proxy's buffers are full: try again later"));
    }
    let hosts = if proxy.config.server.listen.ip().is_loopback() { Hosts::Local } else { Hosts::Any };
    // Nobody's session is empty, whatever its name.
    let tenant = home.unwrap_or_else(|| reading.store.tenant(&[b"nobody"]));
    let names = Names::of_headers(request.headers());
    let session = names.own_session(&reading.store, &tenant).map(|session| session.id);
    let view = View::of(settings.scope, &names.agent, session, None);
    let (tenants, who) = (askers.tenants(), askers.who(home));
    let caller = Caller { tenants, home, who, agent: agent(request.headers()), view };
    let folder = home.and_then(|home| workspace(&strategies, home));
    let tools = Toolbox::new(reading, caller, enabled(&strategies), settings.page_chars).mirrored(folder);
    let answer = timeout(ANSWER_BOUND, mcp::answer(tools, hosts, request)).await;
    Some(match answer {
        Ok(answer) => answer.map(ReplyBody::Mcp),
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, BUSY, "the message did not come, or was not answered, in time"),
    })
}

/// The sections in force: a policy by upstream, path or header may match a message as it may a request; one by model
/// does not, for there is none.
fn strategies<B>(proxy: &Proxy, request: &Request<B>, upstream: &str) -> Arc<Strategies> {
    let subject = Subject { model: "", upstream, path: request.uri().path(), headers: request.headers() };
    proxy.config.strategies(&subject)
}

/// An error in the protocol's own form.
fn refuse(status: StatusCode, code: i64, message: &str) -> Response<ReplyBody> {
    let message = format!("compactproxy: {message}");
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    reply::own(status, "application/json", body.to_string())
}
