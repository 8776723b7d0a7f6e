//! Responses over WebSocket: each text message is a request, its events come back as text messages.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Response, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::judge::{Denied, Turn};
use super::request::kind;
use super::responses::store::Chains;
use super::responses::{frames, rejected};
use super::script::Reply;
use super::serve::{Body, Received, Shared, whole};

/// Largest message, bytes.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The 101 response.
pub(super) fn handshake(headers: &HeaderMap) -> io::Result<Response<Body>> {
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(|key| key.as_bytes()).unwrap_or_default();
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key))
        .body(whole(Bytes::new()))
        .map_err(io::Error::other)
}

/// Answers what comes until the client closes. `opening` is the request that was upgraded; its head counts
/// for every message.
pub(super) async fn serve(shared: Arc<Shared>, opening: Received, upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let mut local = Chains::new();
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let received = Received { body: Bytes::copy_from_slice(text.as_bytes()), ..opening.clone() };
        if let Err(error) = answer(&shared, received, &mut local, &mut socket).await {
            tracing::debug!(%error, "provider socket ended");
            return;
        }
    }
}

/// Sends the events that answer one message; an error ends the connection.
async fn answer(shared: &Shared, received: Received, local: &mut Chains, socket: &mut Socket) -> io::Result<()> {
    let known: Value = serde_json::from_slice(&received.body).unwrap_or_default();
    if kind(&known) != "response.create" {
        let text = format!("Unknown event type '{}'.", kind(&known));
        return send(socket, &[rejected(400, &json!({"type": "invalid_request_error", "message": text}))]).await;
    }
    match shared.turn(received, Some(local)).await {
        Ok(turn) => reply(turn, socket).await,
        Err(Denied::Violation(violation)) => {
            let error = violation.body.get("error").cloned().unwrap_or_default();
            send(socket, &[rejected(violation.status, &error)]).await
        }
        Err(Denied::Misfit(misfit, request)) => {
            send(socket, &shared.settings.responses.surface.frames(misfit, &request)).await
        }
    }
}

async fn reply(turn: Turn, socket: &mut Socket) -> io::Result<()> {
    let Turn { request, reply, usage } = turn;
    match reply {
        Reply::Say(answer) => paced(&frames(&answer, &request, usage), answer.pace.as_ref(), socket).await,
        Reply::Late(gate, answer) => {
            gate.pass().await;
            paced(&frames(&answer, &request, usage), answer.pace.as_ref(), socket).await
        }
        Reply::HangUp => Err(io::ErrorKind::ConnectionAborted.into()),
        Reply::CutOff { answer, after } => {
            let mut frames = frames(&answer, &request, usage);
            frames.truncate(after);
            send(socket, &frames).await?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Reply::Raw { status, body, .. } => {
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            send(socket, &[rejected(status, body.get("error").unwrap_or(&body))]).await
        }
    }
}

async fn paced(frames: &[Value], pace: Option<&super::script::Gate>, socket: &mut Socket) -> io::Result<()> {
    for frame in frames {
        if let Some(gate) = pace {
            gate.pass().await;
        }
        send(socket, std::slice::from_ref(frame)).await?;
    }
    Ok(())
}

async fn send(socket: &mut Socket, frames: &[Value]) -> io::Result<()> {
    for frame in frames {
        socket.send(Message::text(frame.to_string())).await.map_err(io::Error::other)?;
    }
    Ok(())
}
