//! Responses whose provider keeps them, continued by id: what was hidden of an answer leaves no call without its result,
//! whichever way the answer ended, also after a restart.

use serde_json::json;

use crate::support::chat::{Answered, attempts, parsed};
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

fn user(text: &str) -> Value {
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
fn id(answer: &Answered) -> Value {
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
    let start = || serve(parsed(&provider.base_url(), &sections("max_rounds = 2\n")), Some(open(&url)), None);
    let proxy = start();
    let mut body = cell.asked(turn.name);
    body.as_object_mut().unwrap().remove("store");
    let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
    cell.dialect.read(&answer);
    let calls = attempts(&provider).len();
    proxy.stop();
    tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();

    let proxy = start();
    let next = with(&body, json!({"input": (turn.next)(), "previous_response_id": id(&answer)}));
    let later = cell.dialect.ask(proxy.proxy_addr, "k", &next).await;
    assert_eq!(provider.violations(), [], "{}", later.text());
    assert_eq!(later.status, 200, "{}", later.text());
    cell.dialect.read(&later);
    // Where nothing is hidden the client's own id is the provider's.
    let last = with(&body, json!({"input": "And on.", "previous_response_id": id(&later)}));
    assert_eq!(cell.dialect.ask(proxy.proxy_addr, "k", &last).await.status, 200);
    let sent = attempts(&provider);
    assert_eq!((sent.len(), &sent[calls + 1].json()), (calls + 2, &last));
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
