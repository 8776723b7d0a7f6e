//! Hosts that carry the same bodies on paths of their own: Azure, Vertex, Bedrock with a bearer key.

use std::sync::Arc;

use bytes::Bytes;
use compactproxy::config::TenantRule;
use compactproxy::proxy::tenant::{Asker, Verified, identify};
use http::{HeaderMap, Uri};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::task::AbortOnDropHandle;

use crate::support::amazon::{chunk, exception};
use crate::support::chat::{Answered, history, over, parsed, send_to, whole, words};
use crate::support::proxy::{Served, open, start};
use crate::support::wire::{Listener, patiently};

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n";
const SUMMARY: &str = "## SESSION INTENT\nRun the steps, one after the other, and say what came of them.";
const FRAMES: &str = "application/vnd.amazon.eventstream";
const VERTEX: &str = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@2:streamRawPredict";
const BEDROCK: &str = "/model/eu.anthropic.claude-x-v1:0/invoke-with-response-stream";

/// An answer: status, content type, bytes.
type Reply = (u16, &'static str, Vec<u8>);

/// One way to ask a host.
#[derive(Clone)]
struct Host {
    path: &'static str,
    /// Where a call goes whose answer is to come whole.
    side: &'static str,
    model: &'static str,
    /// The client's body with so many calls and results, each of so many tokens.
    body: fn(usize, usize) -> Value,
    answer: Reply,
    refusal: Reply,
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn hosts() -> Vec<Host> {
    let json = |status, body: &str| (status, "application/json", body.as_bytes().to_vec());
    let too_long = json(
        400,
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 20000 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
    );
    let chat = json(200, &said("chat", "Done."));
    let deployment = "/openai/deployments/mine-small/chat/completions?api-version=2024-10-21";
    let v1 = "/openai/v1/chat/completions?api-version=preview";
    let vertex_whole = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-x@2:rawPredict";
    let bedrock_whole = "/model/eu.anthropic.claude-x-v1:0/invoke";
    let message = json(200, &said("messages", "Done."));
    let vertex_long =
        json(413, r#"{"type":"error","error":{"type":"invalid_request_error","message":"Prompt is too long"}}"#);
    let bedrock_long = json(400, r#"{"message":"Input is too long for requested model."}"#);
    let mut events = streamed();
    events[0]["message"]["usage"] = json!({ "input_tokens": 9_000, "output_tokens": 1 });
    events[5].as_object_mut().unwrap().remove("amazon-bedrock-invocationMetrics");
    let events = events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>().into_bytes();
    let vertex = Host {
        path: VERTEX,
        side: vertex_whole,
        model: "claude-x@2",
        body: |calls, tokens| claude("vertex-2023-10-16", calls, tokens),
        answer: (200, "text/event-stream", events),
        refusal: vertex_long,
    };
    let bedrock = Host {
        path: BEDROCK,
        side: bedrock_whole,
        model: "eu.anthropic.claude-x-v1:0",
        body: |calls, tokens| claude("bedrock-2023-05-31", calls, tokens),
        answer: (200, FRAMES, frames()),
        refusal: bedrock_long,
    };
    let in_stream = [
        chunk(&json!({ "type": "message_start", "message": { "type": "message", "content": [] } })),
        exception("validationException", &nova()),
    ];
    let azure = Host {
        path: deployment,
        side: deployment,
        model: "mine-small",
        body: |calls, tokens| {
            let mut body = history("a", calls, tokens);
            body.as_object_mut().unwrap().remove("model");
            body
        },
        answer: chat,
        refusal: too_long,
    };
    vec![
        Host {
            path: v1,
            side: v1,
            model: "demo-model",
            body: |calls, tokens| history("a", calls, tokens),
            ..azure.clone()
        },
        azure,
        Host { path: vertex_whole, answer: message.clone(), ..vertex.clone() },
        vertex,
        Host { path: bedrock_whole, answer: message, ..bedrock.clone() },
        bedrock.clone(),
        Host { refusal: (200, FRAMES, in_stream.concat()), ..bedrock },
    ]
}

/// What Bedrock says inside a stream, recorded where the recordings are there.
fn nova() -> String {
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl");
    let Ok(recorded) = std::fs::read_to_string(recorded) else {
        return r#"{"message":"Number of input tokens exceeds maximum length. Please update the input to try again."}"#
            .to_owned();
    };
    let case = recorded.lines().find(|line| line.contains(r#""id": "bedrock-nova-stream""#)).unwrap();
    serde_json::from_str::<Value>(case).unwrap()["body"].as_str().unwrap().to_owned()
}

fn said(api: &str, text: &str) -> String {
    match api {
        "chat" => json!({ "object": "chat.completion", "model": "m", "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": text } }],
            "usage": { "prompt_tokens": 9_000, "completion_tokens": 20, "total_tokens": 9_020 } })
        .to_string(),
        _ => json!({ "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": text }], "usage": { "input_tokens": 9_000, "output_tokens": 20 } })
        .to_string(),
    }
}

/// A streamed answer's events; it counts its input in the last one alone.
fn streamed() -> Vec<Value> {
    vec![
        json!({ "type": "message_start", "message": { "type": "message", "model": "claude-x", "content": [] } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Done." } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop", "amazon-bedrock-invocationMetrics": { "inputTokenCount": 8_000,
            "cacheReadInputTokenCount": 1_000, "outputTokenCount": 20, "invocationLatency": 5 } }),
    ]
}

fn frames() -> Vec<u8> {
    streamed().iter().flat_map(chunk).collect()
}

/// A body of Messages for a host whose path names the model.
fn claude(version: &str, calls: usize, tokens: usize) -> Value {
    let mut messages = vec![json!({ "role": "user", "content": "Work on it. Rule 1: never touch the folder vendor." })];
    for n in 0..calls {
        let call =
            json!({ "type": "tool_use", "id": format!("t{n}"), "name": "execute", "input": { "command": "ls" } });
        messages.push(json!({ "role": "assistant", "content": [call] }));
        let content = words(n as u64, tokens);
        messages.push(json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": format!("t{n}"), "content": content }] }));
    }
    json!({ "anthropic_version": version, "max_tokens": 500, "messages": messages,
        "tools": [{ "name": "execute", "input_schema": { "type": "object" } }] })
}

/// A request as the host got it.
#[derive(Debug)]
struct Asked {
    target: String,
    head: String,
    body: Value,
    bytes: usize,
    side: bool,
}

/// A host that refuses so many requests and answers the rest, and summarizes.
struct Played {
    url: String,
    seen: UnboundedReceiver<Asked>,
    _task: AbortOnDropHandle<()>,
}

async fn played(host: &Host, mut refusals: usize) -> Played {
    let listener = Listener::bind().await;
    let (url, host) = (listener.url(), host.clone());
    let (tell, seen) = unbounded_channel();
    let task = tokio::spawn(async move {
        loop {
            let mut server = listener.accept_any().await;
            let head = server.head().await;
            let length = head.to_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            let body = server.exactly(length.trim().parse().unwrap()).await;
            let text = String::from_utf8(body).unwrap();
            let side = text.contains("You write the working record of a conversation");
            let api = if host.path.starts_with("/openai") { "chat" } else { "messages" };
            let (status, kind, bytes) = match side {
                true => (200, "application/json", said(api, SUMMARY).into_bytes()),
                false if refusals > 0 => {
                    refusals -= 1;
                    host.refusal.clone()
                }
                false => host.answer.clone(),
            };
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let (length, body) = (text.len(), serde_json::from_str(&text).unwrap());
            tell.send(Asked { target, head, body, bytes: length, side }).unwrap();
            let answer = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
                bytes.len()
            );
            server.send([answer.as_bytes(), &bytes].concat()).await;
        }
    });
    Played { url, seen, _task: AbortOnDropHandle::new(task) }
}

impl Played {
    /// What came so far: the agent's requests, and side calls.
    fn asked(&mut self) -> (Vec<Asked>, Vec<Asked>) {
        let all = std::iter::from_fn(|| self.seen.try_recv().ok());
        all.partition(|asked: &Asked| !asked.side)
    }
}

async fn ask(proxy: &Served, host: &Host, body: &Value) -> Answered {
    let url = format!("http://{}{}", proxy.proxy_addr, host.path);
    whole(send_to(&url, &[("authorization", "Bearer k")], body.to_string().into()).await.unwrap()).await
}

fn is_answer_of(host: &Host, answer: &Answered) -> bool {
    let (status, kind, bytes) = &host.answer;
    (answer.status, answer.header("content-type"), &answer.body[..]) == (*status, *kind, &bytes[..])
}

#[tokio::test]
async fn a_result_is_evicted_on_every_hosts_paths() {
    for host in hosts() {
        let mut upstream = played(&host, 0).await;
        let proxy = start(parsed(&upstream.url, EVICTION));
        let body = (host.body)(1, 3_000);
        let answer = ask(&proxy, &host, &body).await;
        assert!(is_answer_of(&host, &answer), "{}: {answer:?}", host.path);
        assert_eq!(answer.actions(), ["evicted"], "{}", host.path);
        let (asked, _) = upstream.asked();
        assert_eq!((asked.len(), &*asked[0].target), (1, host.path));
        assert!(asked[0].bytes < body.to_string().len() / 2);
        let keys = |body: &Value| body.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&asked[0].body), keys(&body), "nothing added, nothing lost");
    }
}

/// An overflow is mended on all of them, however it comes, by a summary that is asked for where an answer comes whole and
/// in the form of the client's own request.
#[tokio::test]
async fn an_overflow_is_mended_on_every_hosts_paths() {
    for host in hosts() {
        let mut upstream = played(&host, 1).await;
        let proxy = start(parsed(&upstream.url, "[compaction]\n"));
        let body = (host.body)(14, 1_200);
        let answer = ask(&proxy, &host, &body).await;
        assert!(is_answer_of(&host, &answer), "{}: {answer:?}", host.path);
        assert_eq!(answer.actions(), ["summarized", "recovered"], "{}", host.path);
        let (asked, side) = upstream.asked();
        assert_eq!(asked.iter().map(|asked| &*asked.target).collect::<Vec<_>>(), [host.path; 2]);
        assert!(asked[1].bytes < asked[0].bytes && asked[1].body.to_string().contains("Run the steps, one after"));
        assert!(!side.is_empty());
        for asked in side {
            assert_eq!(asked.target, host.side);
            let same = ["model", "anthropic_version"].iter().all(|member| asked.body.get(member) == body.get(member));
            assert!(same && asked.body.get("stream").is_none(), "{}", asked.body);
            assert!(!asked.head.to_lowercase().contains("eventstream"), "{}", asked.head);
        }
        let mut next = body.clone();
        next["messages"].as_array_mut().unwrap().push(json!({ "role": "assistant", "content": "Done." }));
        next["messages"].as_array_mut().unwrap().push(json!({ "role": "user", "content": "Go on." }));
        assert_eq!(ask(&proxy, &host, &next).await.actions(), ["checkpoint"], "{}", host.path);
    }
}

/// The path's model has a window, so that history is compacted before it overflows, and what the host counted corrects
/// the estimates for that model.
#[tokio::test]
async fn the_model_of_a_path_has_its_window_and_its_counts() {
    for host in hosts() {
        let mut upstream = played(&host, 0).await;
        let window = format!("[[window]]\nmodel = \"{}\"\ninput = 20_000\n", host.model);
        let (mut config, folder) =
            (parsed(&upstream.url, &format!("[compaction]\n{window}")), tempfile::tempdir().unwrap());
        config.state.url = format!("sqlite://{}", folder.path().join("state.db").display());
        let store = open(&config.state.url);
        let proxy = over(config, Arc::clone(&store), |_| {}).with_state(folder);
        let answer = ask(&proxy, &host, &(host.body)(14, 1_600)).await;
        assert_eq!(answer.actions(), ["summarized"], "{}", host.path);
        let (asked, side) = upstream.asked();
        assert!(asked.len() == 1 && side.iter().all(|side| side.target == host.side), "{side:?}");
        let headers = HeaderMap::from_iter([("authorization".parse().unwrap(), "Bearer k".parse().unwrap())]);
        let asker = Asker { upstream: "up", headers: &headers, uri: &Uri::default() };
        let tenant = identify(&store, &TenantRule::Credential, &Verified::default(), &asker).tenant;
        patiently(host.path, async {
            while store.calibration(&tenant, "up", host.model).is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A model that the configuration names stands in the path, unless the client's own body names one.
#[tokio::test]
async fn a_configured_model_is_named_where_the_host_looks_for_it() {
    for host in hosts() {
        let mut upstream = played(&host, 1).await;
        let proxy = start(parsed(&upstream.url, "[compaction]\nmodel = \"small\"\n"));
        let body = (host.body)(14, 1_200);
        assert_eq!(ask(&proxy, &host, &body).await.status, 200, "{}", host.path);
        let (_, side) = upstream.asked();
        assert!(!side.is_empty(), "{}", host.path);
        for asked in side {
            let in_path = host.model != "demo-model";
            let target = if in_path { host.side.replace(host.model, "small") } else { host.side.to_owned() };
            assert_eq!((asked.target, asked.body["model"].as_str()), (target, (!in_path).then_some("small")));
        }
    }
}

/// Vertex counts on a path of its own, and the body names the model.
#[tokio::test]
async fn a_count_on_vertex_is_of_what_would_be_sent() {
    let path = "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict";
    let host = hosts().into_iter().find(|host| host.path == VERTEX).unwrap();
    let counted = (200, "application/json", br#"{"input_tokens":9}"#.to_vec());
    let host = Host { path, answer: counted, ..host };
    let mut upstream = played(&host, 0).await;
    let proxy = start(parsed(&upstream.url, EVICTION));
    let mut body = (host.body)(1, 3_000);
    body["model"] = json!("claude-x@2");
    assert_eq!(ask(&proxy, &host, &body).await.text(), r#"{"input_tokens":9}"#);
    let (counted, _) = upstream.asked();
    assert_eq!(counted[0].target, path);
    assert!(counted[0].bytes < body.to_string().len() / 2);
    body.as_object_mut().unwrap().remove("model");
    ask(&proxy, &Host { path: VERTEX, ..host }, &body).await;
    let (asked, _) = upstream.asked();
    assert_eq!(asked[0].body["messages"], counted[0].body["messages"]);
}

/// Frames that cannot be read pass, and so does all behind them.
#[tokio::test]
async fn frames_in_doubt_pass_as_they_are() {
    let mut host = hosts().pop().unwrap();
    let last = host.refusal.2.len() - 1;
    host.refusal.2[last] ^= 1;
    let mut upstream = played(&host, 1).await;
    let proxy = start(parsed(&upstream.url, "[compaction]\n"));
    let answer = ask(&proxy, &host, &(host.body)(14, 1_200)).await;
    assert_eq!((answer.status, &answer.body), (200, &Bytes::from(host.refusal.2.clone())));
    assert_eq!(upstream.asked().0.len(), 1);
}

/// Out of an answer in frames the proxy's own calls could not be taken: there are no tools of its own.
#[tokio::test]
async fn no_tools_are_offered_where_answers_come_in_frames() {
    for host in hosts().into_iter().filter(|host| host.path.starts_with("/model")) {
        let mut upstream = played(&host, 0).await;
        let proxy =
            start(parsed(&upstream.url, &format!("{EVICTION}[tools]\ninject = \"always\"\npage_chars = 1_900\n")));
        ask(&proxy, &host, &(host.body)(1, 3_000)).await;
        let offered = upstream.asked().0[0].body["tools"].to_string().contains("read_evicted");
        assert_eq!(offered, host.path != BEDROCK, "{}", host.path);
    }
}

/// A signature covers the body's bytes: neither eviction nor a second attempt.
#[tokio::test]
async fn a_signed_call_of_bedrocks_passes_untouched_and_so_does_its_error() {
    let host = hosts().pop().unwrap();
    let mut upstream = played(&host, 1).await;
    let proxy = start(parsed(&upstream.url, &format!("{EVICTION}[compaction]\n")));
    let body = (host.body)(14, 3_000);
    let url = format!("http://{}{BEDROCK}", proxy.proxy_addr);
    let signed = [("authorization", "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c")];
    let answer = whole(send_to(&url, &signed, body.to_string().into()).await.unwrap()).await;
    assert_eq!((answer.status, &answer.body[..]), (200, &host.refusal.2[..]));
    let (asked, side) = upstream.asked();
    assert_eq!((asked.len(), side.len(), &asked[0].body), (1, 0, &body));
}
