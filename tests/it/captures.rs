//! Requests of real clients, recorded, sent again byte for byte through the real proxy with every strategy on
//! and nothing to do: what reaches the provider is what the client sent.

mod written;

use std::path::{Path, PathBuf};

use compactproxy::config::{Config, SHIPPED};
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use crate::support::proxy::{self, Served};
use crate::support::scripted::{Message, Scripted, ask, end_to_end};
use crate::support::wire::{Listener, connect, patiently};

/// Nothing recorded comes near any of these limits.
const ROOMY: &str = "[[window]]\nmodel = \"*\"\ntotal = 10_000_000\n\
    [[policy]]\nmatch = {}\ntool_result_eviction = { max_result_chars = 10_000_000 }\n\
    truncate_args = { min_gain_tokens = 10_000_000 }\nprune = { min_gain_tokens = 10_000_000 }\n";
/// Fields of an upgrade that concern one connection, lower-case. Compression is offered by each side for itself.
const HANDSHAKE: [&str; 5] = ["connection", "upgrade", "host", "sec-websocket-key", "sec-websocket-extensions"];

/// How a request was recorded, beside its body.
#[derive(Deserialize)]
struct Meta {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    /// `upgrade` or `message`.
    #[serde(default)]
    websocket: Option<String>,
}

struct Capture {
    /// Its file, or what it asks for.
    name: String,
    meta: Meta,
    body: Vec<u8>,
}

impl Capture {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.meta.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The request as the client sent it.
    fn request(&self) -> Message {
        let zstd = self.header("content-encoding") == Some("zstd");
        let body = if zstd { zstd::encode_all(self.body.as_slice(), 3).unwrap() } else { self.body.clone() };
        let start = format!("{} {} HTTP/1.1", self.meta.method, self.meta.path);
        let made = if self.header("content-length").is_some() { Message::whole } else { Message::open };
        made(start, end_to_end(self.meta.headers.iter().cloned()), body)
    }
}

/// The requests of one client, in order.
fn read(folder: &Path) -> Vec<Capture> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut metas: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().ends_with(".meta.json")).collect();
    metas.sort();
    let capture = |file: PathBuf| {
        let meta: Meta = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let body = file.to_string_lossy().replace(".meta.json", ".json");
        let body = if Path::new(&body).exists() { std::fs::read(body).unwrap() } else { Vec::new() };
        Capture { name: file.display().to_string(), meta, body }
    };
    metas.into_iter().map(capture).collect()
}

fn serve(base_url: &str) -> Served {
    let mut config = Config::parse(&format!("{SHIPPED}\n{ROOMY}"), &|_| None).unwrap();
    let usual = proxy::config(base_url);
    (config.server, config.upstreams) = (usual.server, usual.upstreams);
    proxy::start(config)
}

/// Sends what went over plain HTTP; how many requests and encoded bodies.
async fn replay(captures: &[&Capture]) -> (usize, usize) {
    let upstream = Scripted::start().await;
    let served = serve(&upstream.url());
    let json = vec![("content-type".into(), "application/json".into())];
    let answer = Message::whole("HTTP/1.1 200 OK".into(), json, b"{\"ok\": true}".to_vec());
    upstream.will_answer(answer.clone());
    let mut client = connect(served.proxy_addr).await;
    let mut encoded = 0;
    for capture in captures {
        let request = capture.request();
        let answered = ask(&mut client, &request).await;
        let file = &capture.name;
        assert!(answered == answer, "{file}: {answered:?}");
        let arrived = upstream.take();
        assert_eq!(arrived.len(), 1, "{file}");
        assert_eq!(arrived[0].start, request.start, "{file}");
        assert_eq!(arrived[0].fields, request.fields, "{file}");
        assert_eq!(arrived[0].length, request.length, "{file}");
        assert!(arrived[0].body == request.body, "{file}: {} bytes", arrived[0].body.len());
        encoded += usize::from(capture.header("content-encoding").is_some());
    }
    (captures.len(), encoded)
}

/// Fields that must reach the provider with an upgrade.
fn upgrade_fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let fields = headers.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    end_to_end(fields.filter(|(name, _)| !HANDSHAKE.contains(&name.as_str())))
}

/// Opens the recorded WebSocket and sends its messages; how many.
#[expect(clippy::result_large_err, reason = "the callback's type is the library's")]
async fn replay_socket(upgrade: &Capture, messages: &[&Capture]) -> usize {
    let listener = Listener::bind().await;
    let served = serve(&listener.url());
    let expected: Vec<Vec<u8>> = messages.iter().map(|message| message.body.clone()).collect();
    let server = async {
        let mut seen = Vec::new();
        let stream = listener.accept().await.stream;
        let mut socket = tokio_tungstenite::accept_hdr_async(stream, |request: &Request, response: Response| {
            seen = upgrade_fields(request.headers());
            Ok::<_, ErrorResponse>(response)
        })
        .await
        .unwrap();
        let mut received = Vec::new();
        while let Some(Ok(frame)) = socket.next().await {
            if frame.is_text() {
                received.push(frame.into_data().to_vec());
                let event = r#"{"type":"response.completed","response":{"id":"resp_1","output":[]}}"#;
                socket.send(Frame::text(event)).await.unwrap();
            }
        }
        (seen, received)
    };
    let client = async {
        let mut request = format!("ws://{}{}", served.proxy_addr, upgrade.meta.path).into_client_request().unwrap();
        for (name, value) in &upgrade.meta.headers {
            let name = HeaderName::try_from(name.as_str()).unwrap();
            if !HANDSHAKE.contains(&name.as_str()) {
                request.headers_mut().insert(name, HeaderValue::try_from(value.as_str()).unwrap());
            }
        }
        let sent = upgrade_fields(request.headers());
        let stream = TcpStream::connect(served.proxy_addr).await.unwrap();
        let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
        for message in &expected {
            socket.send(Frame::text(String::from_utf8(message.clone()).unwrap())).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap().is_text());
        }
        socket.close(None).await.unwrap();
        while socket.next().await.is_some() {}
        sent
    };
    let ((seen, received), sent) = patiently("the socket", async { tokio::join!(server, client) }).await;
    assert_eq!(seen, sent, "{}", upgrade.name);
    assert!(received == expected, "{}: the messages differ", upgrade.name);
    messages.len()
}

/// How many requests, encoded bodies and messages of sockets were sent again.
#[derive(Debug, Default)]
struct Count {
    clients: usize,
    requests: usize,
    encoded: usize,
    frames: usize,
}

async fn replay_all(clients: Vec<(String, Vec<Capture>)>) -> Count {
    let mut all = Count::default();
    for (client, captures) in clients {
        let is = |capture: &&Capture, kind: Option<&str>| capture.meta.websocket.as_deref() == kind;
        let plain: Vec<&Capture> = captures.iter().filter(|capture| is(capture, None)).collect();
        let upgrade = captures.iter().find(|capture| is(capture, Some("upgrade")));
        let messages: Vec<&Capture> = captures.iter().filter(|capture| is(capture, Some("message"))).collect();
        let (requests, encoded) = replay(&plain).await;
        let frames = match upgrade {
            Some(upgrade) => replay_socket(upgrade, &messages).await,
            None => 0,
        };
        println!("{client:32} requests {requests:2} encoded {encoded} socket messages {frames:2}");
        all.clients += 1;
        all.requests += requests;
        all.encoded += encoded;
        all.frames += frames;
    }
    println!("{all:?}");
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_requests_of_real_clients_pass_unchanged() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/clients/captures"));
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("the recorded requests of real clients are not here: only the self-written ones are sent");
        return;
    };
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let name = |folder: &PathBuf| folder.file_name().unwrap().to_string_lossy().into_owned();
    let count = replay_all(folders.iter().map(|folder| (name(folder), read(folder))).collect()).await;
    assert!(count.clients >= 16 && count.requests >= 80 && count.encoded >= 3 && count.frames >= 11, "{count:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn self_written_requests_of_clients_pass_unchanged() {
    let count = replay_all(written::clients()).await;
    assert!(count.clients >= 8 && count.requests >= 24 && count.encoded >= 3 && count.frames >= 3, "{count:?}");
}
