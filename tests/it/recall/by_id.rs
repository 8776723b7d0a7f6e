//! Conversations that go on by id (`previous_response_id`), their history at the provider: the tool comes with the first
//! removal and stays, further rounds continue the one before, and nothing hidden waits for its result.

use std::net::SocketAddr;
use std::sync::Arc;

use compactproxy::proxy::Proxy;
use compactproxy::store::Store;
use futures_util::{SinkExt, StreamExt};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::continued::{id, user};
use crate::support::chat::{Answered, attempts, parsed, with};
use crate::support::dialects::Responses;
use crate::support::proxy::open;
use crate::support::wire::patiently;

use super::*;

pub(super) const RESPONSES: &dyn Dialect = &Responses;
pub(super) const OWN: &str = "read_evicted";

/// A provider that keeps its answers, a client that goes on by their ids, and a proxy that can be started anew.
pub(super) struct Stand {
    pub(super) provider: Provider,
    folder: tempfile::TempDir,
    sections: String,
    running: Option<Running>,
    way: Way,
    /// Whether the provider is to keep the answers.
    pub(super) keeps: bool,
    line: Mutex<Option<Line>>,
}

/// How requests and answers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Stream,
    Whole,
    Socket,
}

/// Where answers can be continued.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    ByTheProvider,
    OnTheConnection,
}

pub(super) const WAYS: [Way; 3] = [Way::Stream, Way::Whole, Way::Socket];

type Line = WebSocketStream<MaybeTlsStream<TcpStream>>;

struct Running {
    proxy: Arc<Proxy>,
    store: Arc<Store>,
    served: Served,
}

impl Stand {
    pub(super) async fn new(way: Way, sections: &str, steps: Vec<Step>) -> Self {
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let (folder, sections) = (tempfile::tempdir().unwrap(), sections.to_owned());
        let (running, line) = (None, Mutex::new(None));
        let mut stand = Self { provider, folder, sections, running, way, keeps: true, line };
        stand.start();
        stand
    }

    fn start(&mut self) {
        let url = format!("sqlite://{}", self.folder.path().join("state.db").display());
        let (config, store) = (parsed(&self.provider.base_url(), &self.sections), open(&url));
        let proxy = Proxy::new(config, Some(Arc::clone(&store))).unwrap();
        self.running = Some(Running { served: Served::of(Arc::clone(&proxy)), proxy, store });
    }

    pub(super) async fn restart(&mut self) {
        let Running { served, store, .. } = self.running.take().unwrap();
        *self.line.lock().await = None;
        served.stop();
        tokio::task::spawn_blocking(move || served.join()).await.unwrap();
        // A busy machine takes longer than the close waits.
        store.flush().await;
        store.close().await;
        self.start();
    }

    /// Waits until all that was said is in the log.
    pub(super) async fn logged(&self) {
        let Running { proxy, store, .. } = self.running.as_ref().unwrap();
        proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
        store.flush_log().await;
    }

    /// A request of a client's.
    pub(super) fn body(&self, previous: Option<&Value>, input: Value) -> Value {
        let mut body = with(&RESPONSES.fields(self.way == Way::Stream), json!({"input": input}));
        if self.keeps {
            body.as_object_mut().unwrap().remove("store");
        }
        if self.way == Way::Socket {
            body.as_object_mut().unwrap().remove("stream");
            body["type"] = json!("response.create");
        }
        if let Some(previous) = previous {
            body["previous_response_id"] = previous.clone();
        }
        body
    }

    /// Its answer, and the id to go on by.
    pub(super) async fn ask(&self, body: &Value) -> (Had, Value) {
        let addr = self.running.as_ref().unwrap().served.proxy_addr;
        let answer = match self.way {
            Way::Stream | Way::Whole => RESPONSES.ask(addr, "k", body).await,
            Way::Socket => self.said(addr, body).await,
        };
        (RESPONSES.read(&answer), id(&answer))
    }

    /// An answer over the socket, as if it were a stream.
    async fn said(&self, addr: SocketAddr, body: &Value) -> Answered {
        let mut line = self.line.lock().await;
        let line = match &mut *line {
            Some(line) => line,
            none => none.insert(connected(addr).await),
        };
        line.send(Message::text(body.to_string())).await.unwrap();
        let mut text = String::new();
        loop {
            let message = patiently("an event", line.next()).await.unwrap().unwrap().into_text().unwrap();
            let event: Value = serde_json::from_str(&message).unwrap();
            text += &format!("data: {message}\n\n");
            if LAST.iter().any(|kind| event["type"] == *kind) {
                break;
            }
        }
        let headers = [(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))].into_iter().collect();
        Answered { status: 200, headers, body: text.into() }
    }

    /// The id of an answer that breaks off.
    pub(super) async fn broken(&self, body: &Value) -> Value {
        let addr = self.running.as_ref().unwrap().served.proxy_addr;
        let mut answer = RESPONSES.send(addr, "k", body).await;
        let mut text = Vec::new();
        while let Some(Ok(frame)) = answer.body_mut().frame().await {
            text.extend(frame.into_data().unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("response.completed"), "{text}");
        let first = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str::<Value>(first).unwrap()["response"]["id"].clone()
    }

    /// Two turns, in the second of which a long result comes.
    pub(super) async fn begun(&self) -> (Had, Value) {
        let (had, first) = self.ask(&self.body(None, json!("Begin."))).await;
        assert_eq!(had.calls.len(), 1);
        self.ask(&self.body(Some(&first), json!([result("call_0", &long())]))).await
    }

    pub(super) fn sent(&self) -> Vec<Value> {
        attempts(&self.provider).iter().map(Exchange::json).collect()
    }

    /// How many of the proxy's tools each request had.
    pub(super) fn offered(&self) -> Vec<usize> {
        self.sent().iter().map(|body| body["tools"].as_array().unwrap().len() - 1).collect()
    }
}

const LAST: [&str; 4] = ["response.completed", "response.failed", "response.incomplete", "error"];

async fn connected(addr: SocketAddr) -> Line {
    let mut request = format!("ws://{addr}/v1/responses").into_client_request().unwrap();
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer k"));
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

pub(super) fn result(call: &str, output: &str) -> Value {
    json!({"type": "function_call_output", "call_id": call, "output": output})
}

/// The turn before: the model calls the client's tool.
pub(super) fn calling() -> Step {
    step(|_| says("", vec![clients(0)]))
}

pub(super) struct Turn {
    pub(super) name: &'static str,
    pub(super) steps: fn() -> Vec<Step>,
    text: &'static str,
    /// Ids of the calls that the client has.
    pub(super) calls: &'static [&'static str],
    /// Results of the proxy's that stand before the client's next input.
    owed: usize,
}

pub(super) const TURNS: [Turn; 8] = [
    Turn {
        name: "own alone",
        steps: || vec![step(|request| says("", vec![own(request, 1)])), found()],
        text: "It is 4711.",
        calls: &[],
        owed: 0,
    },
    Turn {
        name: "client's alone",
        steps: || vec![step(|_| says("Run it.", vec![clients(7), clients(8)]))],
        text: "Run it.",
        calls: &["call_7", "call_8"],
        owed: 0,
    },
    Turn {
        name: "both",
        steps: || vec![step(|request| says("Both.", vec![own(request, 1), clients(7)]))],
        text: "Both.",
        calls: &["call_7"],
        owed: 1,
    },
    Turn {
        name: "between two of the client's",
        steps: || vec![step(|request| says("", vec![clients(7), own(request, 1), clients(8), own(request, 2)]))],
        text: "",
        calls: &["call_7", "call_8"],
        owed: 2,
    },
    Turn {
        name: "two own at once, one of them in a namespace",
        steps: || vec![step(|request| says("", vec![own(request, 1), spaced(own(request, 2))])), found()],
        text: "It is 4711.",
        calls: &[],
        owed: 0,
    },
    Turn {
        name: "own after text",
        steps: || vec![step(|request| says("Let me look. ", vec![own(request, 1)])), found()],
        text: "Let me look. It is 4711.",
        calls: &[],
        owed: 0,
    },
    Turn {
        name: "own after thinking",
        steps: || vec![step(|request| thinks("Think.", "", vec![own(request, 1)])), found()],
        text: "It is 4711.",
        calls: &[],
        owed: 0,
    },
    Turn {
        name: "several rounds, both in the last",
        steps: || {
            vec![
                step(|request| says("", vec![own(request, 1), own(request, 2)])),
                step(|request| {
                    assert!(told(request));
                    says("Again.", vec![own(request, 3), clients(9)])
                }),
            ]
        },
        text: "Again.",
        calls: &["call_9"],
        owed: 1,
    },
];

async fn played(turn: &Turn, way: Way, kept: Kept) {
    let mut steps = vec![calling()];
    steps.extend((turn.steps)());
    let mut stand = Stand::new(way, &sections(""), steps).await;
    stand.keeps = kept == Kept::ByTheProvider;
    let (had, mut last) = stand.begun().await;
    assert_eq!(had.text, turn.text);
    assert_eq!(had.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), turn.calls);
    let rounds = stand.sent().len();
    assert_eq!(rounds, 1 + (turn.steps)().len());
    assert_usage(&had, &attempts(&stand.provider)[1..]);
    let mut input: Vec<Value> = turn.calls.iter().map(|call| result(call, "done")).collect();
    input.push(user("Go on."));
    for turns in 0..2 {
        let next = stand.body(Some(&last), json!(input));
        (_, last) = stand.ask(&next).await;
        let sent = stand.sent().pop().unwrap();
        let owed = if turns == 0 { turn.owed } else { 0 };
        let items = sent["input"].as_array().unwrap();
        assert_eq!((items.len(), &items[owed..]), (owed + input.len(), &input[..]), "{sent}");
        assert!(items[..owed].iter().all(|item| item["call_id"].as_str().unwrap().starts_with("own_")));
        input = vec![user("And on.")];
        // What is offered, and where an answer goes on, is known after a restart as well.
        if stand.keeps {
            stand.restart().await;
        }
    }
    // The second turn brought the tool.
    assert_eq!(stand.offered(), [vec![0], vec![1; rounds + 1]].concat());
    let tools: Vec<Value> = stand.sent().iter().skip(1).map(|body| body["tools"].clone()).collect();
    assert!(tools.iter().all(|offered| *offered == tools[0]), "frozen");
    for round in &stand.sent()[2..rounds] {
        let items = round["input"].as_array().unwrap();
        assert!(items.iter().all(|item| item["type"] == "function_call_output"), "nothing is sent twice: {round}");
    }
    assert_unhurt(&stand.provider);
}

#[tokio::test]
async fn every_turn_goes_on_by_id() {
    for way in WAYS {
        for turn in &TURNS {
            println!("{} {way:?}", turn.name);
            played(turn, way, Kept::ByTheProvider).await;
        }
    }
}

/// As Codex works.
#[tokio::test]
async fn every_turn_goes_on_where_only_the_connection_has_it() {
    for turn in &TURNS {
        println!("{}", turn.name);
        played(turn, Way::Socket, Kept::OnTheConnection).await;
    }
}

/// After a restart nothing of the chain is in memory: what was removed is read all the same.
#[tokio::test]
async fn the_needle_is_found_by_id_after_a_restart() {
    for way in WAYS {
        let steps = vec![
            calling(),
            step(|_| says("Seen.", vec![])),
            step(|request| says("", vec![own(request, 1)])),
            found(),
            step(|request| says("Once more.", vec![own(request, 2), clients(7)])),
            step(|request| says(if request.body.to_string().contains(NEEDLE) { "4711." } else { "?" }, vec![])),
        ];
        let mut stand = Stand::new(way, &sections(""), steps).await;
        let (_, seen) = stand.begun().await;
        stand.restart().await;
        let (had, found) = stand.ask(&stand.body(Some(&seen), json!("What was the code?"))).await;
        assert_eq!(had.text, "It is 4711.");
        stand.restart().await;
        let (had, both) = stand.ask(&stand.body(Some(&found), json!("Again?"))).await;
        assert_eq!((had.text.as_str(), had.calls.len()), ("Once more.", 1));
        stand.restart().await;
        let (had, _) = stand.ask(&stand.body(Some(&both), json!([result("call_7", "done")]))).await;
        assert_eq!(had.text, "4711.");
        assert_unhurt(&stand.provider);
    }
}

#[tokio::test]
async fn always_means_from_the_first_request_where_the_provider_keeps_the_answer_too() {
    for way in WAYS {
        let steps = vec![step(|request| says("", vec![own(request, 1)])), step(|_| says("Nothing there.", vec![]))];
        let mut stand = Stand::new(way, &sections("inject = \"always\"\n"), steps).await;
        let (had, first) = stand.ask(&stand.body(None, json!("Begin."))).await;
        assert_eq!(had.text, "Nothing there.");
        // A request of that conversation may have them as they are, whatever is configured by then.
        stand.sections = sections("");
        stand.restart().await;
        let (_, second) = stand.ask(&stand.body(Some(&first), json!("Go on."))).await;
        stand.ask(&stand.body(Some(&second), json!([user("And on.")]))).await;
        assert_eq!(stand.offered(), [1; 4]);
        assert_unhurt(&stand.provider);
    }
}

/// The same request again is the same bytes; an older answer goes on as what it was.
#[tokio::test]
async fn retries_and_forks_go_on_from_the_answer_that_they_name() {
    for way in WAYS {
        let both = step(|request| says("Both.", vec![own(request, 1), clients(7)]));
        let stand = Stand::new(way, &sections(""), vec![calling(), both]).await;
        let (_, first) = stand.ask(&stand.body(None, json!("Begin."))).await;
        let second = stand.body(Some(&first), json!([result("call_0", &long())]));
        let (_, both) = stand.ask(&second).await;
        let third = stand.body(Some(&both), json!([result("call_7", "done"), user("Go on.")]));
        let (_, done) = stand.ask(&third).await;
        stand.ask(&stand.body(Some(&done), json!("And on."))).await;
        for again in [&third, &second] {
            stand.ask(again).await;
        }
        let other = stand.body(Some(&first), json!([result("call_0", "short"), user("Never mind.")]));
        stand.ask(&other).await;
        let sent = stand.sent();
        assert_eq!((&sent[4], &sent[5]), (&sent[2], &sent[1]));
        assert_eq!(stand.offered(), [0, 1, 1, 1, 1, 1, 0], "nothing was removed in the last one's history");
        assert_unhurt(&stand.provider);
    }
}
