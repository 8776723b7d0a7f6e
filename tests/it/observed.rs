//! `mode = "observe"`: what would be done is told, and nothing is done.

use std::collections::BTreeSet;

use bytes::Bytes;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::window::Limit;
use serde_json::{Value, json};

use crate::support::chat::{attempts, call, get, history, pair, parsed, result, side_calls, with, words};
use crate::support::dialects::{Chat, Dialect, Messages};
use crate::support::program::{Program, configure};
use crate::support::proxy::{Served, start};
use crate::support::scripted::{Message, Scripted};
use crate::support::wire::{Listener, connect, patiently};

const OBSERVE: &str = "[[policy]]\nmode = \"observe\"\n";
const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
const TRIM: &str =
    "[truncate_args]\ntrigger_messages = 6\nkeep_messages = 2\nmax_arg_length = 400\nmin_gain_tokens = 50\n";
const PRUNE: &str = "[prune]\nprotect_tokens = 100\nmin_gain_tokens = 100\n";
const SUMMARY: &str = "[compaction]\n[[window]]\nmodel = \"*\"\ninput = 6000\n";
const RECOVERY: &str = "[compaction]\n";
const OVERFLOW: &str = r#"{"error":{"message":"This model's maximum context length is 8000 tokens. However, your messages resulted in 36000 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#;

struct Case {
    sections: &'static str,
    limit: Limit,
    body: Value,
    /// What is done to it, among others.
    due: &'static str,
}

/// Calls that write files.
fn writing(turns: usize) -> Value {
    let mut body = history("a", 0, 0);
    let messages = body["messages"].as_array_mut().unwrap();
    for turn in 0..turns {
        let mut calling = call(turn);
        let arguments = json!({"path": "src/a.rs", "content": words(turn as u64, 300)}).to_string();
        calling["tool_calls"][0]["function"] = json!({"name": "write_file", "arguments": arguments});
        messages.extend([calling, result(turn, "written")]);
    }
    body
}

fn cases() -> [Case; 6] {
    let (endless, small) = (Limit::default(), Limit::of(6_000));
    let long = || history("a", 12, 1_000);
    let greedy = with(&history("a", 10, 1_000), json!({"max_tokens": 8_000}));
    [
        Case { sections: EVICTION, limit: endless, body: history("a", 2, 1_000), due: "evicted" },
        Case { sections: TRIM, limit: endless, body: writing(5), due: "truncated" },
        Case { sections: PRUNE, limit: endless, body: history("a", 5, 1_000), due: "pruned" },
        Case { sections: SUMMARY, limit: endless, body: long(), due: "summarized" },
        Case { sections: RECOVERY, limit: small, body: long(), due: "recovered" },
        Case { sections: RECOVERY, limit: Limit::of(16_000), body: greedy, due: "output-lowered" },
    ]
}

/// Waits until these actions are counted, and no others are.
async fn counts(proxy: &Served, expected: &BTreeSet<String>) {
    let counted = async {
        loop {
            let page = get(proxy.admin_addr, "/metrics").await.text().to_owned();
            let actions = page.lines().filter_map(|line| line.strip_prefix("compactproxy_actions_total{action=\""));
            let actions: BTreeSet<String> =
                actions.map(|action| action.split('"').next().unwrap().to_owned()).collect();
            if actions == *expected {
                return;
            }
        }
    };
    patiently("the count", counted).await;
}

fn set(actions: Vec<&str>) -> BTreeSet<String> {
    actions.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_is_observed_is_what_would_be_done_and_every_byte_stays() {
    for Case { sections, limit, body, due } in cases() {
        let settings = || Settings { limit, ..Settings::default() };
        let (_provider, proxy) = pair(settings(), sections).await;
        let active = (&Chat as &dyn Dialect).ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!(active.status, 200, "{due}: {}", active.text());
        let done = set(active.actions());
        assert!(done.contains(due), "{due}: {done:?}");
        counts(&proxy, &done).await;

        let (provider, proxy) = pair(settings(), &format!("{sections}{OBSERVE}")).await;
        let answer = (&Chat as &dyn Dialect).ask(proxy.proxy_addr, "k", &body).await;
        counts(&proxy, &done).await;
        let sent = attempts(&provider);
        assert_eq!((sent.len(), side_calls(&provider).len()), (1, 0), "{due}");
        assert!(sent[0].body == body.to_string() && sent[0].told.bytes() == answer.body, "{due}");
        let told = (answer.header("x-compactproxy-action"), answer.header("x-compactproxy-tokens"));
        assert_eq!(told, ("", ""), "{due}");
    }
}

/// A tool loop whose thinking is signed, and longer than its window.
fn signed_loop() -> Value {
    let mut messages = vec![json!({"role": "user", "content": "Look around."})];
    for n in 0..6 {
        let thought = json!({"type": "thinking", "thinking": "hm", "signature": format!("s{n}")});
        let call = json!({"type": "tool_use", "id": format!("t{n}"), "name": "execute", "input": {}});
        messages.push(json!({"role": "assistant", "content": [thought, call]}));
        let text = words(n, 1_500);
        let result = json!({"type": "tool_result", "tool_use_id": format!("t{n}"), "content": text});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    (&Messages as &dyn Dialect).request(messages, false)
}

#[tokio::test]
async fn a_full_fold_is_observed_too() {
    let upstream = Scripted::start().await;
    let said = r#"{"type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Done."}],"stop_reason":"end_turn","usage":{"input_tokens":5,"output_tokens":2}}"#;
    let fields = vec![("content-type".to_owned(), "application/json".to_owned())];
    upstream.will_answer(Message::whole("HTTP/1.1 200 OK".to_owned(), fields, said.into()));
    let body = signed_loop();
    let raw: Bytes = (&Messages as &dyn Dialect).bytes(&body);
    for (mode, observes) in [("", false), (OBSERVE, true)] {
        let proxy = start(parsed(&upstream.url(), &format!("{SUMMARY}{mode}")));
        let answer = (&Messages as &dyn Dialect).ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!((answer.status, answer.actions()), (200, if observes { vec![] } else { vec!["folded"] }));
        counts(&proxy, &set(vec!["folded"])).await;
        let bodies: Vec<Vec<u8>> = upstream.take().into_iter().map(|message| message.body).collect();
        assert_eq!(bodies == [raw.to_vec()], observes);
    }
}

/// What may overflow is held back elsewhere, until it says more than bookkeeping; and what is refused until it is whole.
#[tokio::test]
async fn what_is_observed_is_delayed_by_nothing() {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&listener.url(), &format!("{RECOVERY}{OBSERVE}")));
    let (begun, rest) = OVERFLOW.split_at(20);
    let event = format!("data: {OVERFLOW}\n\n");
    for (model, status, kind, opening, rest) in [
        ("a", "200 OK", "text/event-stream", ": one\n\n", event.as_str()),
        ("b", "400 Bad Request", "application/json", begun, rest),
    ] {
        let body = with(&history("a", 12, 3_000), json!({"model": model, "stream": true})).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nAuthorization: Bearer k\r\n\
            Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut client = connect(proxy.proxy_addr).await;
        client.send(format!("{head}{body}")).await;
        let mut upstream = listener.accept().await;
        upstream.head().await;
        upstream.exactly(body.len()).await;
        let answer = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{opening}");
        upstream.send(answer).await;
        // The rest comes only once this was seen.
        client.until(opening).await;
        upstream.send(rest).await;
        client.until(rest).await;
    }
    let observed = "compactproxy_recoveries_total{result=\"observed\"} 2";
    let recovered = async { while !get(proxy.admin_addr, "/metrics").await.text().contains(observed) {} };
    patiently("what would be", recovered).await;
}

#[tokio::test]
async fn the_log_says_what_would_be() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), &format!("{SUMMARY}{OBSERVE}"));
    let program = Program::within(folder.path(), &[]);
    let answer = (&Chat as &dyn Dialect).ask(program.proxy, "k", &history("a", 12, 1_000)).await;
    assert_eq!((answer.status, answer.actions().len()), (200, 0));
    let said = async {
        let observed = |line: &str| line.contains("observed") && line.contains("summarized");
        while !program.log().lines().any(observed) {
            tokio::task::yield_now().await;
        }
    };
    patiently("the log", said).await;
}
