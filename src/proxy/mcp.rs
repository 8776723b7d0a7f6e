//! `/_compactproxy/mcp`: the tools for clients that speak MCP, by the same credential as the provider's API.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Request, Response, StatusCode, Uri};
use http_body::Body;
use percent_encoding::percent_decode_str;
use serde_json::json;
use tokio::time::timeout;

use super::Proxy;
use super::agent::agent;
use super::budget::Permit;
use super::identity::Names;
use super::reply::{self, ReplyBody};
use super::tenant::{self, Asker, Proof};
use crate::config::TenantRule;
use crate::store::{Store, Tenant};
use crate::tools::definitions::Enabled;
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
    let home = home(&reading.store, &tenants).await;
    // Nobody's session is empty, whatever its name.
    let tenant = home.unwrap_or_else(|| reading.store.tenant(&[b"nobody"]));
    let names = Names::of_headers(request.headers());
    let session = names.own_session(&reading.store, &tenant).map(|session| session.id);
    let view = View::of(settings.scope, &names.agent, session, None);
    let caller = Caller { tenants, home, agent: agent(request.headers()), view };
    let strategies = &proxy.config.strategies;
    let enabled = Enabled { sessions: strategies.log, memory: strategies.memory.is_some() };
    let tools = Toolbox::new(reading, caller, enabled, settings.page_chars);
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
    let named = upstream_named(request.uri());
    let known = proxy.config.upstreams.iter().filter(|upstream| shown || upstream.api_key.is_some());
    let known = known.filter(|upstream| named.as_ref().is_none_or(|named| **named == upstream.name));
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

/// `?upstream=NAME`: a client whose credential is good for several says which one it means.
fn upstream_named(uri: &Uri) -> Option<Cow<'_, str>> {
    let named = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("upstream="))?;
    Some(percent_decode_str(named).decode_utf8_lossy())
}

/// Whose sessions and memory: the first tenant of which something was seen. Whoever only shows some credential writes
/// nothing.
async fn home(store: &Store, tenants: &[Tenant]) -> Option<Tenant> {
    for tenant in tenants {
        if store.is_seen(tenant).await {
            return Some(*tenant);
        }
    }
    None
}

/// An error in the protocol's own form.
fn refuse(status: StatusCode, code: i64, message: &str) -> Response<ReplyBody> {
    let message = format!("compactproxy: {message}");
    let body = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    reply::own(status, "application/json", body.to_string())
}
