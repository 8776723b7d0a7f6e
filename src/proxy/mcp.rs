//! `/_compactproxy/mcp`: the tools for clients that speak MCP, by the same credential as the provider's API.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode};
use http_body::Body;
use serde_json::json;
use tokio::time::timeout;

use super::Proxy;
use super::budget::Permit;
use super::reply::{self, ReplyBody};
use super::tenant::{self, Asker, Proof};
use crate::config::TenantRule;
use crate::store::Tenant;
use crate::tools::definitions::Enabled;
use crate::tools::execution::Toolbox;
use crate::tools::mcp::{self, Hosts, MAX_MESSAGE};

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
    B: Body + Send + 'static,
    B::Error: Display,
{
    let settings = proxy.config.strategies.tools.as_ref().filter(|tools| tools.mcp)?;
    let reading = Arc::clone(proxy.reading.as_ref()?);
    let Some(tenants) = tenants(proxy, &request) else {
        let message = "send the credential of the provider's API (authorization or x-api-key)";
        let mut response = refuse(StatusCode::UNAUTHORIZED, NOT_ALLOWED, message);
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"compactproxy\""));
        return Some(response);
    };
    let mut permit = Permit::empty(&proxy.budget);
    if !permit.grow(MAX_MESSAGE) {
        return Some(refuse(StatusCode::SERVICE_UNAVAILABLE, BUSY, "the proxy's buffers are full: try again later"));
    }
    let hosts = if proxy.config.server.listen.ip().is_loopback() { Hosts::Local } else { Hosts::Any };
    let tools = Toolbox::new(reading, tenants, Enabled::default(), settings.page_chars);
    let answer = timeout(ANSWER_BOUND, mcp::answer(tools, hosts, request)).await;
    Some(match answer {
        Ok(answer) => answer.map(ReplyBody::Mcp),
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, BUSY, "the message did not come, or was not answered, in time"),
    })
}

/// Who sends a request, at every upstream: the client does not say which one its model is at. `None` without a
/// credential where one is needed. A token that no upstream has accepted yet is nobody so far.
fn tenants<B>(proxy: &Proxy, request: &Request<B>) -> Option<Vec<Tenant>> {
    let compactor = proxy.compactor.as_ref()?;
    let shown =
        compactor.tenant_rule == TenantRule::Single || tenant::shows_credential(request.headers(), request.uri());
    // Where the proxy holds the key its clients have none.
    let known = proxy.config.upstreams.iter().filter(|upstream| shown || upstream.api_key.is_some());
    let identities = known.map(|upstream| {
        let asker = Asker { upstream: &upstream.name, headers: request.headers(), uri: request.uri() };
        tenant::identify(&compactor.store, &compactor.tenant_rule, &compactor.verified, &asker)
    });
    let identities: Vec<_> = identities.collect();
    let mut tenants = Vec::new();
    for identity in identities.iter().filter(|identity| identity.proof == Proof::Known) {
        if !tenants.contains(&identity.tenant) {
            tenants.push(identity.tenant);
        }
    }
    (!identities.is_empty()).then_some(tenants)
}

/// An error in the protocol's own form.
fn refuse(status: StatusCode, code: i64, message: &str) -> Response<ReplyBody> {
    let message = format!("compactproxy: {message}");
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    reply::own(status, "application/json", body.to_string())
}
