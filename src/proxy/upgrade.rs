//! Connections that become tunnels (WebSocket): both handshakes pass unchanged, then bytes both ways. Where model
//! calls go over the socket and strategies are on, it is a [`Socket`] instead.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::body::SendBody;
use super::headers::{self, BodyHeaders};
use super::intake::{self, Look};
use super::outcome::{Outcome, Record};
use super::pulse::Pulse;
use super::relay::Relay;
use super::reply::{Fault, ReplyBody};
use super::route;
use super::socket::Socket;
use super::{Shard, Target};
use crate::config::Api;
use crate::wire::Dialect;

/// Buffer for each direction of a tunnel.
const TUNNEL_BUFFER: usize = 8 * 1024;

/// Whether the client wants a tunnel. HTTP/2 by upgrade is not one: it would carry requests past the proxy.
pub fn is_wanted(version: Version, headers: &HeaderMap) -> bool {
    let lists = |name, wanted: &[u8]| {
        headers.get_all(name).iter().flat_map(headers::tokens).any(|token| token.eq_ignore_ascii_case(wanted))
    };
    version == Version::HTTP_11
        && lists(CONNECTION, b"upgrade")
        && headers.contains_key(UPGRADE)
        && !lists(UPGRADE, b"h2c")
}

/// Asks the upstream for the upgrade. Its refusal is relayed as any other answer.
pub async fn open(
    shard: Arc<Shard>,
    target: Target,
    mut request: Request<Incoming>,
    mut record: Record,
) -> Result<Response<ReplyBody>, (Fault, Record)> {
    let Some((route, clients)) = shard.upstream(target.index) else { return Err((super::no_route(), record)) };
    let client_side = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let wanted = parts.headers.get(UPGRADE).cloned();
    parts.uri = target.uri;
    let calls = model_calls(&shard, route.upstream.api, &parts);
    if calls.is_some() {
        // Compressed messages could not be read; without the offer there are none.
        parts.headers = without(parts.headers, |name| *name == SEC_WEBSOCKET_EXTENSIONS);
    }
    parts.headers = headers::to_upstream(parts.headers, route, target.dialect, BodyHeaders::Kept);
    set_upgrade(&mut parts.headers, wanted);
    let mut answer = match clients.send_upgrade(route, Request::from_parts(parts, SendBody::Stream(body))).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, record)),
    };
    record.status = answer.status().as_u16();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut parts, body) = answer.into_parts();
        let demanded = parts.headers.get(UPGRADE).filter(|_| parts.status == StatusCode::UPGRADE_REQUIRED).cloned();
        parts.headers = headers::to_client(parts.headers);
        if demanded.is_some() {
            // A 426 has to say to what (RFC 9110, 15.5.22).
            set_upgrade(&mut parts.headers, demanded);
        }
        let relay = Relay::new(body, route.upstream.idle_timeout, record);
        return Ok(Response::from_parts(parts, ReplyBody::Relay(relay)));
    }
    let upstream_side = hyper::upgrade::on(&mut answer);
    let (mut parts, _) = answer.into_parts();
    let agreed = parts.headers.get(UPGRADE).cloned();
    parts.headers = headers::to_client(parts.headers);
    set_upgrade(&mut parts.headers, agreed);
    let ends = Ends { client: client_side, upstream: upstream_side };
    match calls {
        Some(parts) => shard.tasks.spawn(compacted(Arc::clone(&shard), (target.index, parts), ends, record)),
        None => shard.tasks.spawn(tunnel(ends, route.upstream.idle_timeout, record)),
    };
    Ok(Response::from_parts(parts, ReplyBody::Own(bytes::Bytes::new())))
}

fn set_upgrade(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
}

/// The head that each model call on a socket would have as a request of its own, where such calls are looked at.
fn model_calls(shard: &Shard, api: Api, parts: &Parts) -> Option<Parts> {
    shard.proxy.compactor.as_ref()?;
    let websocket = parts.headers.get(UPGRADE)?.as_bytes().eq_ignore_ascii_case(b"websocket");
    let path = parts.uri.path();
    let named = route::model_call(api, &Method::POST, path) == Some(Dialect::Responses);
    // Where nothing else is spoken, the path need not say so.
    let only = route::unnamed(api, &Method::POST, path, &parts.headers) == [Dialect::Responses];
    let readable = websocket && (named || only) && parts.method == Method::GET;
    let mut call = readable.then(|| parts.clone())?;
    call.method = Method::POST;
    let of_socket =
        |name: &HeaderName| name.as_str().starts_with("sec-websocket-") || [CONNECTION, UPGRADE].contains(name);
    call.headers = without(call.headers, of_socket);
    call.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let permitted = intake::permits(&call.headers, call.uri.query(), shard.proxy.config.server.max_body_bytes);
    (permitted == Look::Rewrite).then_some(call)
}

/// The headers without some of them, in their order.
fn without(headers: HeaderMap, dropped: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len());
    headers.iter().filter(|(name, _)| !dropped(name)).for_each(|(name, value)| {
        out.append(name.clone(), value.clone());
    });
    out
}

/// Both ends of an upgrade that was agreed on.
struct Ends {
    client: OnUpgrade,
    upstream: OnUpgrade,
}

impl Ends {
    async fn open(self) -> Option<(Upgraded, Upgraded)> {
        let opened = tokio::try_join!(self.client, self.upstream);
        opened.inspect_err(|error| tracing::debug!(%error, "an upgrade was agreed but did not come about")).ok()
    }
}

/// A socket with model calls. Ends as [`tunnel`] does.
async fn compacted(shard: Arc<Shard>, (index, parts): (usize, Parts), ends: Ends, mut record: Record) {
    let Some(ends) = ends.open().await else { return };
    if let Err(error) = Socket::new(shard, index, parts, ends).relay().await {
        tracing::debug!(%error, "a socket broke off");
    }
    record.close(Outcome::Upgraded);
}

/// Ends when both sides have closed, one has failed, or nothing has come from either for `idle`.
async fn tunnel(ends: Ends, idle: Duration, mut record: Record) {
    let Some((client, upstream)) = ends.open().await else { return };
    let pulse = Pulse::default();
    let mut client = pulse.of(TokioIo::new(client));
    let mut upstream = pulse.of(TokioIo::new(upstream));
    let copying = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, TUNNEL_BUFFER, TUNNEL_BUFFER);
    tokio::select! {
        copied = copying => if let Err(error) = copied {
            tracing::debug!(%error, "a tunnel broke off");
        },
        () = pulse.stopped(idle) => tracing::debug!("a tunnel fell silent"),
    }
    record.close(Outcome::Upgraded);
}
