//! Connections that become tunnels (WebSocket): both handshakes pass unchanged, then bytes both ways.

use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::body::SendBody;
use super::headers::{self, BodyHeaders};
use super::outcome::{Outcome, Record};
use super::relay::Relay;
use super::reply::{Fault, ReplyBody};
use super::{Shard, Target};

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
    parts.headers = headers::to_upstream(parts.headers, route, target.dialect, BodyHeaders::Kept);
    set_upgrade(&mut parts.headers, wanted);
    let mut answer = match clients.send_upgrade(route, Request::from_parts(parts, SendBody::Stream(body))).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, record)),
    };
    record.status = answer.status().as_u16();
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut parts, body) = answer.into_parts();
        parts.headers = headers::to_client(parts.headers);
        let relay = Relay::new(body, route.upstream.idle_timeout, record);
        return Ok(Response::from_parts(parts, ReplyBody::Relay(relay)));
    }
    let upstream_side = hyper::upgrade::on(&mut answer);
    let (mut parts, _) = answer.into_parts();
    let agreed = parts.headers.get(UPGRADE).cloned();
    parts.headers = headers::to_client(parts.headers);
    set_upgrade(&mut parts.headers, agreed);
    shard.tasks.spawn(tunnel(client_side, upstream_side, record));
    Ok(Response::from_parts(parts, ReplyBody::Own(bytes::Bytes::new())))
}

fn set_upgrade(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        headers.insert(UPGRADE, protocol);
    }
}

/// Ends when both sides have closed or one has failed.
async fn tunnel(client_side: OnUpgrade, upstream_side: OnUpgrade, mut record: Record) {
    let (client, upstream) = match tokio::try_join!(client_side, upstream_side) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(%error, "an upgrade was agreed but did not come about");
            return;
        }
    };
    let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
    let copied =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, TUNNEL_BUFFER, TUNNEL_BUFFER).await;
    if let Err(error) = copied {
        tracing::debug!(%error, "a tunnel broke off");
    }
    record.close(Outcome::Upgraded);
}
