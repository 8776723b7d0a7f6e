//! Responses whose provider keeps them, continued by id: what was hidden of an answer leaves no call without its result,
//! whichever way the answer ended, also after a restart.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use compactproxy::demo::script::error;
use compactproxy::demo::window::Limit;
use serde_json::json;

use crate::support::chat::{Answered, attempts, parsed, send_to, whole, words};
use crate::support::dialects::Responses;
use crate::support::proxy::{open, serve};

use super::*;

struct Turn {
    name: &'static str,
    steps: fn() -> Vec<Step>,
    /// What its client says next.
    next: fn() -> Value,
    /// Whether the model was told what its call found.
    told: bool,
}

pub(super) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

const TURNS: [Turn; 5] = [
    Turn {
        name: "own alone",
        steps: || vec![step(|request| says("", vec![own(request, 1)])), found()],
        next: || json!("Go on."),
        told: true,
    },
    Turn {
        name: "both in one turn",
        steps: || vec![step(|request| says("Both.", vec![own(request, 1), clients(7)]))],
        next: || json!([{"type": "function_call_output", "call_id": "call_7", "output": "done"}, user("Go on.")]),
        told: true,
    },
    Turn {
        name: "rounds end",
        steps: || (0..2).map(|n| step(move |request| says("Look.", vec![own(request, n)]))).collect(),
        next: || json!("Go on."),
        told: true,
    },
    Turn {
        name: "a round fails",
        steps: || {
            vec![
                step(|request| says("", vec![own(request, 1)])),
                step(|_| Responses.broken("out of order")),
                step(|_| says("Without.", vec![])),
            ]
        },
        next: || json!([user("Go on.")]),
        told: false,
    },
    Turn {
        name: "a round fails behind text",
        steps: || {
            vec![
                step(|request| says("Look.", vec![own(request, 1)])),
                step(|_| Responses.broken("out of order")),
                step(|_| says("Without.", vec![])),
            ]
        },
        next: || json!([user("Go on.")]),
        told: false,
    },
];

/// The id by which a client knows an answer: the first that it sees.
pub(super) fn id(answer: &Answered) -> Value {
    match serde_json::from_str::<Value>(answer.text()) {
        Ok(whole) => whole["id"].clone(),
        Err(_) => {
            let first = answer.text().lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            serde_json::from_str::<Value>(first).unwrap()["response"]["id"].clone()
        }
    }
}

async fn played(turn: &Turn, stream: bool) {
    let cell = Cell { dialect: &Responses, stream };
    let provider = Provider::start(scripted((turn.steps)())).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let start = |store| serve(parsed(&provider.base_url(), &sections("max_rounds = 2\n")), Some(store), None);
    let store = open(&url);
    let proxy = start(Arc::clone(&store));
    let mut body = cell.asked(turn.name);
    body.as_object_mut().unwrap().remove("store");
    let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
    cell.dialect.read(&answer);
    let calls = attempts(&provider).len();
    proxy.stop();
    tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
    store.flush().await;
    store.close().await;

    let proxy = start(open(&url));
    let next = with(&body, json!({"input": (turn.next)(), "previous_response_id": id(&answer)}));
    let later = cell.dialect.ask(proxy.proxy_addr, "k", &next).await;
    assert_eq!(provider.violations(), [], "{}", later.text());
    assert_eq!(later.status, 200, "{}", later.text());
    cell.dialect.read(&later);
    // Where nothing is hidden the client's own id is the provider's. The tools stay.
    let last = with(&body, json!({"input": "And on.", "previous_response_id": id(&later)}));
    assert_eq!(cell.dialect.ask(proxy.proxy_addr, "k", &last).await.status, 200);
    let sent = attempts(&provider);
    let tools = |body: &Value| body["tools"].clone();
    assert_eq!((sent.len(), tools(&sent[calls].json())), (calls + 2, tools(&sent[0].json())));
    assert_eq!(sent[calls + 1].json(), with(&last, json!({"tools": tools(&sent[0].json())})));
    let seen: String = sent[..=calls].iter().map(|exchange| String::from_utf8_lossy(&exchange.body)).collect();
    assert!(seen.contains(NEEDLE) || !turn.told, "{seen}");
    // Another tenant's client that says the same id has nothing of it.
    let stolen = cell.dialect.ask(proxy.proxy_addr, "other", &next).await;
    let other = attempts(&provider).pop().unwrap();
    assert_eq!(other.json()["previous_response_id"], id(&answer), "{}", stolen.text());
    assert!(!String::from_utf8_lossy(&other.body).contains("own_"));
}

#[tokio::test]
async fn an_answer_that_the_provider_keeps_is_continued_by_the_id_that_the_client_knows() {
    for stream in [true, false] {
        for turn in &TURNS {
            println!("{} {stream}", turn.name);
            played(turn, stream).await;
        }
    }
}

const RESPONSES: &dyn Dialect = &Responses;

/// A token that speaks for the same client each hour.
fn token(hour: u32) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = format!(r#"{{"iss":"https://issuer","sub":"agent","exp":{hour}}}"#);
    format!("{}.{}.c2ln", part(r#"{"alg":"RS256"}"#), part(&claims))
}

/// An answer in which the model called a tool of the proxy's and one of the client's, which its provider keeps.
struct Handed {
    provider: Provider,
    folder: tempfile::TempDir,
    /// What its client says next.
    next: Value,
}

impl Handed {
    /// `later`: what the provider says then.
    async fn new(stream: bool, key: &str, later: Vec<Step>) -> Self {
        let mut steps =
            vec![step(|_| says("Hello.", vec![])), step(|request| says("Both.", vec![own(request, 1), clients(7)]))];
        steps.extend(later);
        let provider = Provider::start(scripted(steps)).await.unwrap();
        let mut handed = Self { provider, folder: tempfile::tempdir().unwrap(), next: Value::Null };
        let proxy = handed.serve("");
        let cell = Cell { dialect: RESPONSES, stream };
        let mut body = cell.asked("handed");
        body.as_object_mut().unwrap().remove("store");
        // Its answer proves a token.
        let hello = with(&body, json!({"input": "Hello."}));
        assert_eq!(RESPONSES.ask(proxy.proxy_addr, key, &hello).await.status, 200);
        let answer = RESPONSES.ask(proxy.proxy_addr, key, &body).await;
        RESPONSES.read(&answer);
        let input = json!([{"type": "function_call_output", "call_id": "call_7", "output": "done"}, user("Go on.")]);
        handed.next = with(&body, json!({"input": input, "previous_response_id": id(&answer)}));
        proxy.stop();
        tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
        handed
    }

    fn serve(&self, more: &str) -> Served {
        let url = format!("sqlite://{}", self.folder.path().join("state.db").display());
        let sections = format!("{}{more}", sections(""));
        serve(parsed(&self.provider.base_url(), &sections), Some(open(&url)), None)
    }

    /// The body that continues the answer where the provider has it.
    fn assert_continued(&self, sent: &Value, next: &Value) {
        assert_eq!(sent["input"][0]["call_id"], "own_1", "{sent}");
        assert!(sent["input"][0]["output"].to_string().contains(NEEDLE), "{sent}");
        let mut rest = sent.clone();
        rest["input"].as_array_mut().unwrap().remove(0);
        rest["previous_response_id"] = next["previous_response_id"].clone();
        assert_eq!(rest, *next);
        assert_eq!(self.provider.violations(), []);
    }
}

#[tokio::test]
async fn the_clients_id_is_followed_where_nothing_else_may_be_done() {
    const OBSERVING: &str = "[[policy]]\nmode = \"observe\"\n";
    for stream in [true, false] {
        for (name, key, more, header) in [
            ("observed", ["k".to_owned(), "k".to_owned()], OBSERVING, ("x-any", "1")),
            ("bypassed", ["k".to_owned(), "k".to_owned()], "", ("x-compactproxy-bypass", "1")),
            ("not proved", [token(1), token(2)], "", ("x-any", "1")),
        ] {
            println!("{name} {stream}");
            let handed = Handed::new(stream, &key[0], Vec::new()).await;
            let proxy = handed.serve(more);
            let url = format!("http://{}{}", proxy.proxy_addr, RESPONSES.path());
            let headers = [("authorization", &*format!("Bearer {}", key[1])), header];
            let answer = whole(send_to(&url, &headers, RESPONSES.bytes(&handed.next)).await.unwrap()).await;
            assert_eq!((answer.status, answer.actions().len()), (200, 0), "{}", answer.text());
            handed.assert_continued(&attempts(&handed.provider)[2].json(), &handed.next);
        }
    }
}

/// What goes out in place of a refused body continues the answer where the provider has it, too: the client's own bytes
/// would be refused for a call that it never saw.
#[tokio::test]
async fn the_original_of_such_a_request_is_the_one_that_can_be_answered() {
    let refusal = || step(|_| error(400, "not so", "invalid_request_error", "x"));
    // With something evicted.
    let handed = Handed::new(true, "k", vec![refusal()]).await;
    let proxy = handed.serve("");
    let mut next = handed.next.clone();
    // The proxy has not seen the call since it began: what reads files stays up to four times the limit.
    next["input"][0]["output"] = json!(format!("{}{}", long(), words(3, 2_000)));
    let answer = RESPONSES.ask(proxy.proxy_addr, "k", &next).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = attempts(&handed.provider);
    assert_eq!(sent.len(), 4);
    assert!(!sent[2].json()["input"][1]["output"].to_string().contains(NEEDLE), "evicted");
    handed.assert_continued(&sent[3].json(), &next);
    // With no tools in it either, it is the client's own request that was refused.
    let handed = Handed::new(true, "k", vec![refusal()]).await;
    let proxy = handed.serve("[[policy]]\ntools = false\n");
    let answer = RESPONSES.ask(proxy.proxy_addr, "k", &handed.next).await;
    assert!(answer.status == 400 && answer.text().contains("not so"), "{}", answer.text());
    handed.assert_continued(&attempts(&handed.provider)[2].json(), &handed.next);
    assert_eq!(attempts(&handed.provider).len(), 3);
}

#[tokio::test]
async fn an_overflow_of_a_chain_behind_hidden_rounds_is_recovered() {
    for stream in [true, false] {
        let steps = vec![
            step(|request| says("", vec![own(request, 1)])),
            step(|request| says("", vec![own(request, 2)])),
            found(),
        ];
        let (provider, proxy) = staged(steps, "[compaction]\n").await;
        let mut body = Cell { dialect: RESPONSES, stream }.asked("chained");
        body.as_object_mut().unwrap().remove("store");
        let mut answer = RESPONSES.ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!(RESPONSES.read(&answer).text, "It is 4711.");
        for turn in 0..3 {
            let next = json!({"input": [user(&words(turn, 900))], "previous_response_id": id(&answer)});
            answer = RESPONSES.ask(proxy.proxy_addr, "k", &with(&body, next)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        provider.set_limit(Limit::of(3_000));
        let next = json!({"input": [user("And now?")], "previous_response_id": id(&answer)});
        let answer = RESPONSES.ask(proxy.proxy_addr, "k", &with(&body, next)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.actions().contains(&"recovered"), "{:?}", answer.actions());
        let last = attempts(&provider).pop().unwrap().json();
        assert_eq!(last.get("previous_response_id"), None, "{last}");
        assert!(last["input"].to_string().contains("And now?"), "{last}");
        assert_eq!(provider.violations(), []);
    }
}
