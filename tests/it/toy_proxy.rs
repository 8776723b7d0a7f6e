//! The crudest thing that does what the demo claims, to show that its claims can hold. It keeps one
//! conversation and knows no law.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "functions of a test")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use compactproxy::demo::chart::{Screen, Style};
use compactproxy::demo::{Ending, run};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Characters from which a result is evicted; bytes from which the rest is trimmed and cut.
const EVICT: usize = 80_000;
const TRIM: usize = 110_000;
const CUT: usize = 80_000;

struct Toy {
    upstream: SocketAddr,
    texts: Mutex<HashMap<String, String>>,
    /// How many messages had their arguments clipped, and how many went behind a summary.
    frozen: Mutex<(usize, usize)>,
}

async fn start(upstream: SocketAddr) -> Result<(SocketAddr, JoinSet<()>), String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let toy = Arc::new(Toy { upstream, texts: Mutex::default(), frozen: Mutex::default() });
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let toy = toy.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| {
                    let toy = toy.clone();
                    async move { Ok::<_, Infallible>(toy.serve(request).await) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    Ok((addr, server))
}

impl Toy {
    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (mut head, body) = request.into_parts();
        if let Some(id) = head.uri.path().strip_prefix("/_compactproxy/evicted/") {
            return Response::new(Full::new(self.texts.lock().unwrap()[id].clone().into()));
        }
        head.uri = format!("http://{}{}", self.upstream, head.uri).parse().unwrap();
        head.headers.remove("host");
        head.headers.remove("content-length");
        let body = body.collect().await.unwrap().to_bytes();
        if head.method == Method::GET {
            return self.send(head, body).await;
        }
        let (small, mut actions) = self.compact(&body, CUT);
        let mut response = self.send(head.clone(), small).await;
        if response.status() == 400 {
            let (smaller, more) = self.compact(&body, CUT / 2);
            actions = [more, vec!["recovered"]].concat();
            response = self.send(head, smaller).await;
        }
        if !actions.is_empty() {
            response.headers_mut().insert("x-compactproxy-action", actions.join(", ").parse().unwrap());
        }
        response
    }

    async fn send(&self, head: http::request::Parts, body: Bytes) -> Response<Full<Bytes>> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(Request::from_parts(head, Full::new(body))).await.unwrap();
        let (head, body) = response.into_parts();
        Response::from_parts(head, Full::new(body.collect().await.unwrap().to_bytes()))
    }

    /// Evicts; where the body is over `TRIM` or `keep` is small, clips arguments and cuts to `keep` bytes.
    fn compact(&self, body: &[u8], keep: usize) -> (Bytes, Vec<&'static str>) {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        let mut list = std::mem::take(body["messages"].as_array_mut().unwrap());
        let mut actions = Vec::new();
        for message in &mut list {
            let text = message["content"].as_str().unwrap_or_default().to_owned();
            if text.len() > EVICT {
                let id = format!("{:032x}", text.len());
                let (head, tail) = (&text.as_bytes()[..2_000], &text.as_bytes()[text.len() - 2_000..]);
                let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
                message["content"] = format!("{head}\n[id {id}, /_compactproxy/evicted/{id}]\n{tail}").into();
                self.texts.lock().unwrap().insert(id, text);
                actions.push("evicted");
            }
        }
        let size = |list: &[Value]| list.iter().map(|message| message.to_string().len()).sum::<usize>();
        let (mut trimmed, mut cut) = *self.frozen.lock().unwrap();
        clip(&mut list[..trimmed]);
        let due = |list: &[Value], cut: usize| size(&list[cut.max(2)..]) > TRIM || keep < CUT;
        if due(&list, cut) {
            trimmed = list.len() - 4;
            clip(&mut list[..trimmed]);
            actions.push("truncated");
        }
        if due(&list, cut) {
            let fits = |from: &usize| size(&list[*from..]) <= keep && list[*from]["role"] == "assistant";
            cut = (2..list.len()).find(fits).unwrap();
            actions.push("summarized");
        }
        *self.frozen.lock().unwrap() = (trimmed, cut);
        if cut > 2 {
            let told = format!("{}\n\nEarlier work is done.", list[1]["content"].as_str().unwrap());
            list.splice(1..cut, [json!({"role": "user", "content": told})]);
        }
        body["messages"] = list.into();
        (body.to_string().into(), actions)
    }
}

fn clip(list: &mut [Value]) {
    let calls = list.iter_mut().filter_map(|message| message.get_mut("tool_calls")?.as_array_mut()).flatten();
    for arguments in calls.map(|call| &mut call["function"]["arguments"]) {
        if arguments.as_str().unwrap().len() > 2_000 {
            *arguments = "{\"content\":\"[truncated]\"}".into();
        }
    }
}

#[tokio::test]
async fn all_claims_can_hold() {
    let mut out = Vec::new();
    let screen = Screen { width: 100, style: Style::Plain };
    let ending = run(&mut out, screen, async |upstream| start(upstream).await).await.unwrap();
    assert_eq!(ending, Ending::AllHeld, "{}", String::from_utf8(out).unwrap());
    println!("{}", String::from_utf8(out).unwrap());
}
