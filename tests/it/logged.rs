//! What the program says of requests holds nothing of them: no credential, no text.

use compactproxy::demo::answer::Answer;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Fault, Reply, error};
use compactproxy::demo::window::Limit;
use serde_json::Value;

use crate::support::chat::{Answered, get, history, next_turn, send_to, whole};
use crate::support::program::{Program, configure};
use crate::support::wire::{connect, patiently};

/// It stands in every credential and every text.
const MARK: &str = "Zq7mark";
/// A token of the issuer "i" and the subject "Zq7marksubject".
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJpIiwic3ViIjoiWnE3bWFya3N1YmplY3QifQ.Zq7marksignature";
/// Where nobody listens.
const DEAD: &str = "[[upstream]]\nname = \"dead\"\nprefix = \"/dead\"\nbase_url = \"http://127.0.0.1:1\"\n";
const SECTIONS: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n[compaction]\n";

/// Takes no pointer in the conversation that says so, and makes no summary.
fn provider() -> Settings {
    let behaviour = Behaviour::new(|request: &ModelRequest| {
        let text = request.all_text();
        match text.contains("no pointers") && text.contains("/_compactproxy/evicted/") {
            true => error(400, "no such thing", "invalid_request_error", "bad"),
            false => Reply::Say(Answer::text("Done.")),
        }
    });
    Settings {
        limit: Limit::of(6_000),
        behaviour: behaviour.with_failing_summaries(Fault::ServerError),
        ..Settings::default()
    }
}

async fn ask(program: &Program, target: &str, credential: (&str, &str), body: &Value) -> Answered {
    let url = format!("http://{}{target}", program.proxy);
    whole(send_to(&url, &[credential], body.to_string().into()).await.unwrap()).await
}

/// Waits until the log says this.
async fn logged(program: &Program, text: &str) {
    let said = async {
        while !program.log().contains(text) {
            tokio::task::yield_now().await;
        }
    };
    patiently(text, said).await;
}

#[tokio::test]
async fn log_metrics_and_errors_hold_no_credential_and_no_text_whatever_happens() {
    let provider = Provider::start(provider()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), &format!("{DEAD}{SECTIONS}"));
    let program = Program::within(folder.path(), &[("COMPACTPROXY_LOG", "trace")]);
    let (chat, key, token) = ("/v1/chat/completions", format!("Bearer sk-{MARK}"), format!("Bearer {TOKEN}"));
    let mut own = Vec::new();

    let small = history(MARK, 1, 700);
    let query = format!("{chat}?key={MARK}");
    for (target, credential) in
        [(chat, ("authorization", &*key)), (&*query, ("x-goog-api-key", MARK)), (chat, ("authorization", &*token))]
    {
        let answer = ask(&program, target, credential, &small).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let refused =
        ask(&program, chat, ("authorization", &key), &history(&format!("{MARK}, no pointers"), 1, 1_000)).await;
    assert_eq!((refused.status, refused.actions().len()), (200, 0));
    let long = history(&format!("{MARK} again"), 30, 300);
    let recovered = ask(&program, chat, ("authorization", &key), &long).await;
    assert!(recovered.actions().contains(&"recovered"), "{:?} {}", recovered.actions(), recovered.text());
    let next = ask(&program, chat, ("authorization", &key), &next_turn(&long, MARK)).await;
    assert_eq!(next.status, 200, "{}", next.text());

    let dead = ask(&program, &format!("/dead{query}"), ("authorization", &key), &small).await;
    assert_eq!(dead.status, 502);
    own.push(dead.text().to_owned());
    own.push(get(program.proxy, &format!("/_compactproxy/evicted/{MARK}")).await.text().to_owned());
    let mut client = connect(program.proxy).await;
    client.send(format!("POST /{MARK} HTTP/1.1\r\nHost: p\r\nX-Key: {MARK}\r\nContent-Length: x\r\n\r\n")).await;
    own.push(String::from_utf8(client.rest().await).unwrap());
    own.push(get(program.admin, "/metrics").await.text().to_owned());

    for said in ["request ended", "a rewritten body was refused", "no summary", "upstream_connect_failed"] {
        logged(&program, said).await;
    }
    own.push(program.log());
    for text in &own {
        assert!(!text.is_empty());
        for secret in [MARK, &TOKEN[..60], "river", "never touch the folder vendor"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
