//! OpenAI Responses over real sockets: recovery in every shape of error, what is left alone, side calls.

use compactproxy::proxy::Proxy;
use serde_json::{Value, json};

use crate::support::chat::{changed, parsed, with};
use crate::support::proxy::Served;
use crate::support::responses::{
    Asked, Mock, Reply, TOO_LONG, answer, ask, event, history, opening, refusal, says, step, stream,
};

const COMPACTION: &str = "[compaction]\n";
/// Characters of a request above which the scripted provider refuses it.
const LIMIT: usize = 40_000;
const PATH: &str = "/v1/responses";

fn proxy(mock: &Mock, sections: &str) -> Served {
    changed(parsed(&mock.url(), sections), |_: &mut Proxy| {})
}

fn is_side_call(asked: &Asked) -> bool {
    String::from_utf8_lossy(&asked.bytes).contains("SESSION INTENT")
        && asked.body["store"] == false
        && asked.body["input"].as_array().is_some_and(|input| input.len() == 1)
}

fn summary() -> Value {
    let text = "## SESSION INTENT\nWork.\n## SUMMARY\nSteps were run.\n## ARTIFACTS\nNone.\n## NEXT STEPS\nGo on.";
    json!([says(text)])
}

/// Answers side calls with a summary and what fits with "Done."; what does not is refused as `refuse` says.
fn limited(refuse: impl Fn() -> Reply + Send + Sync + 'static) -> impl Fn(&Asked) -> Reply + Send + Sync {
    move |asked| match asked {
        _ if is_side_call(asked) => answer(asked, "resp_side", &summary()),
        _ if asked.bytes.len() > LIMIT => refuse(),
        _ => answer(asked, "resp_1", &json!([says("Done.")])),
    }
}

fn turns(mock: &Mock) -> Vec<Asked> {
    mock.asked().into_iter().filter(|asked| !is_side_call(asked)).collect()
}

fn next_turn(body: &Value, question: &str) -> Value {
    let mut body = body.clone();
    let input = body["input"].as_array_mut().unwrap();
    input.push(says("Done."));
    input.push(json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": question}]}));
    body
}

/// All nestings in which an overflow was observed in a stream, behind the bookkeeping.
fn streamed_refusals() -> Vec<String> {
    let error = json!({"type": "invalid_request_error", "code": "context_length_exceeded", "message": TOO_LONG, "param": "input"});
    let failed = |error: &Value| {
        json!({"type": "response.failed", "sequence_number": 3,
        "response": {"id": "resp_1", "object": "response", "status": "failed", "error": error, "output": []}})
    };
    let bare = json!({"code": "context_length_exceeded", "message": TOO_LONG});
    let events = [
        json!({"type": "error", "sequence_number": 2, "error": error}),
        json!({"type": "error", "code": "context_length_exceeded", "message": TOO_LONG, "param": null}),
        failed(&error),
        failed(&bare),
    ];
    let mut refusals: Vec<String> = events.iter().map(|event_| opening("resp_0") + &event(event_)).collect();
    refusals.push(format!("data: {}\n\n", json!({"error": error})));
    refusals
}

#[tokio::test]
async fn no_overflow_reaches_the_client() {
    let mut refusals = vec![(400, refusal(TOO_LONG, "context_length_exceeded")), (400, refusal(TOO_LONG, "x"))];
    refusals.extend(streamed_refusals().into_iter().map(|text| (200, text)));
    for (status, text) in refusals {
        let told = text.clone();
        let mock = Mock::start(limited(move || (status, text.clone()))).await;
        let proxy = proxy(&mock, COMPACTION);
        let body = with(&history("a", 12, 1_000), json!({"stream": true}));
        let answer = ask(proxy.proxy_addr, PATH, &body).await;
        assert_eq!(answer.text(), stream("resp_1", &json!([says("Done.")])), "{told}");
        assert!(answer.actions().contains(&"recovered"), "{told}: {:?}", answer.actions());
        let sent = turns(&mock);
        assert_eq!(sent.len(), 2, "{told}");
        assert_eq!(sent[0].bytes, body.to_string(), "{told}: the first attempt is the client's own");
        let text = String::from_utf8_lossy(&sent[1].bytes).into_owned();
        assert!(text.contains("Rule 1: never touch the folder vendor.") && text.len() < LIMIT, "{told}");

        let next = ask(proxy.proxy_addr, PATH, &next_turn(&body, "Go on.")).await;
        assert_eq!((next.status, next.actions()), (200, vec!["checkpoint"]), "{told}");
        assert_eq!(turns(&mock).len(), 3, "{told}: the next turn does not overflow");
    }
}

#[tokio::test]
async fn an_input_that_is_one_string_is_recovered_as_one() {
    let mock = Mock::start(limited(|| (400, refusal(TOO_LONG, "context_length_exceeded")))).await;
    let proxy = proxy(&mock, COMPACTION);
    let body = json!({"model": "demo-model", "input": crate::support::chat::words(1, 12_000)});
    let answer = ask(proxy.proxy_addr, "/openai/responses?api-version=preview", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = turns(&mock);
    assert_eq!(sent.len(), 2);
    assert!(sent[1].body["input"].is_string() && sent[1].bytes.len() < LIMIT);
    assert!(sent.iter().all(|asked| asked.target == "/openai/responses?api-version=preview"));
}

/// A summary is asked for at the path of the request, and never stored.
#[tokio::test]
async fn side_calls_keep_the_path() {
    for path in ["/openai/v1/responses", "/openai/responses?api-version=preview"] {
        let mock = Mock::start(limited(|| (400, refusal(TOO_LONG, "context_length_exceeded")))).await;
        let proxy = proxy(&mock, COMPACTION);
        let answer = ask(proxy.proxy_addr, path, &history("a", 12, 1_000)).await;
        assert_eq!((answer.status, answer.actions().contains(&"summarized")), (200, true));
        let asked = mock.asked();
        let side: Vec<_> = asked.iter().filter(|asked| is_side_call(asked)).collect();
        assert_eq!(side.len(), 1, "{path}");
        assert_eq!((side[0].target.as_str(), &side[0].body["store"]), (path, &json!(false)));
    }
}

/// What asks the provider to compact gets what is in force and recovery, and starts nothing.
#[tokio::test]
async fn the_clients_own_compaction_is_served_but_starts_nothing() {
    const SMALL: &str = "[compaction]\ntrigger_tokens = 8_000\n[[window]]\nmodel = \"*\"\ninput = 1_000_000\n";
    for (path, trigger) in [(PATH, true), ("/v1/responses/compact", false)] {
        let mock = Mock::start(limited(|| (400, refusal(TOO_LONG, "context_length_exceeded")))).await;
        let proxy = proxy(&mock, SMALL);
        let mut body = history("a", 9, 1_000);
        if trigger {
            body["input"].as_array_mut().unwrap().push(json!({"type": "compaction_trigger"}));
        }
        // Above the trigger, but it fits.
        let fits = with(&body, json!({}));
        assert!(fits.to_string().len() > LIMIT, "the provider refuses it");
        let answer = ask(proxy.proxy_addr, path, &body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let asked = mock.asked();
        assert_eq!(asked[0].bytes, body.to_string(), "{path}: nothing was planned");
        let recovered = turns(&mock);
        assert_eq!(recovered.len(), 2, "{path}");
        if trigger {
            assert_eq!(recovered[1].body["input"].as_array().unwrap().last(), body["input"].as_array().unwrap().last());
        } else {
            assert!(!asked.iter().any(is_side_call), "the side call would be a compaction too");
        }
    }
}

/// The provider compacts by itself: nothing is planned, an overflow that is left is mended.
#[tokio::test]
async fn context_management_is_left_to_the_provider() {
    let planned = "[compaction]\ntrigger_tokens = 4_000\n[truncate_args]\n[prune]\n";
    let managed = json!({"context_management": [{"type": "compaction", "compact_threshold": 1_000}]});
    let mock = Mock::start(limited(|| (400, refusal(TOO_LONG, "context_length_exceeded")))).await;
    let proxy = proxy(&mock, planned);
    let small = with(&history("a", 6, 1_000), managed.clone());
    assert_eq!(ask(proxy.proxy_addr, PATH, &small).await.actions(), Vec::<&str>::new());
    assert_eq!(mock.asked().len(), 1, "nothing was asked ahead either");
    let large = with(&history("b", 12, 1_000), managed);
    let answer = ask(proxy.proxy_addr, PATH, &large).await;
    assert!(answer.status == 200 && answer.actions().contains(&"recovered"), "{:?}", answer.actions());
}

/// Of a history that is out of sight only new results are shortened, and an overflow is the client's.
#[tokio::test]
async fn what_is_out_of_sight_is_left_alone() {
    let sections = "[compaction]\ntrigger_tokens = 4_000\n[tool_result_eviction]\nmax_result_chars = 20_000\n";
    let first = history("a", 12, 1_000);
    let items = first["input"].as_array().unwrap().clone();
    let reference = json!({"type": "item_reference", "id": "msg_9"});
    let referring = [vec![reference], items].concat();
    for (name, body) in [
        ("conversation", with(&first, json!({"conversation": "conv_1"}))),
        ("reference", with(&first, json!({"input": referring}))),
    ] {
        let error = refusal(TOO_LONG, "context_length_exceeded");
        let told = error.clone();
        let mock = Mock::start(limited(move || (400, error.clone()))).await;
        let proxy = proxy(&mock, sections);
        let answer = ask(proxy.proxy_addr, PATH, &body).await;
        assert_eq!((answer.status, answer.text()), (400, told.as_str()), "{name}");
        assert_eq!(mock.asked().len(), 1, "{name}");
        assert_eq!(mock.asked()[0].bytes, body.to_string(), "{name}");
    }
    let mock = Mock::start(limited(|| unreachable!())).await;
    let proxy = proxy(&mock, sections);
    // Its call is out of sight, so that it may be an excluded tool's: four times the limit are left alone.
    let long = step(0, &crate::support::chat::words(3, 20_000))[3].clone();
    let body = json!({"model": "demo-model", "previous_response_id": "resp_9", "input": [long]});
    let answer = ask(proxy.proxy_addr, PATH, &body).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["evicted"]));
    assert!(mock.asked()[0].bytes.len() < 8_000);
}

/// Continues the response `previous` with one tool result.
fn continued(previous: &str, turn: usize, stream: bool) -> Value {
    let output = step(turn, &crate::support::chat::words(turn as u64, 1_000))[3].clone();
    json!({"model": "demo-model", "previous_response_id": previous, "input": [output], "stream": stream})
}

/// What a provider that stores responses holds of them.
#[derive(Default)]
struct Stored(std::sync::Mutex<std::collections::HashMap<String, Vec<Value>>>);

impl Stored {
    /// Answers with reasoning and a call, the whole history in mind; refuses one of more than the limit.
    fn answer(&self, asked: &Asked, refuse: &Reply) -> Reply {
        let mut stored = self.0.lock().unwrap();
        let before = asked.body["previous_response_id"].as_str().map(|id| stored[id].clone());
        let mut history = before.unwrap_or_default();
        match &asked.body["input"] {
            Value::Array(items) => history.extend(items.iter().cloned()),
            text => history.push(json!({"role": "user", "content": text})),
        }
        if is_side_call(asked) {
            return answer(asked, "resp_side", &summary());
        }
        if Value::from(history.clone()).to_string().len() > LIMIT {
            return refuse.clone();
        }
        let turn = stored.len();
        let [reasoning, said, call, _] = step(turn, "");
        let output = [reasoning, said, call];
        history.extend(output.iter().cloned());
        let id = format!("resp_{turn}");
        stored.insert(id.clone(), history);
        answer(asked, &id, &json!(output))
    }
}

#[tokio::test]
async fn a_chain_that_was_seen_whole_is_recovered() {
    let mut refusals = vec![(400, refusal(TOO_LONG, "context_length_exceeded"))];
    refusals.extend(streamed_refusals().into_iter().map(|text| (200, text)));
    for refuse in refusals {
        for stream in [true, false] {
            let told = format!("{}, stream {stream}", refuse.1);
            let (stored, refuse) = (Stored::default(), refuse.clone());
            let mock = Mock::start(move |asked| stored.answer(asked, &refuse)).await;
            let proxy = proxy(&mock, COMPACTION);
            let task = "Rule 1: never touch the folder vendor.";
            let first = json!({"model": "demo-model", "instructions": "Be careful.", "input": task, "stream": stream});
            assert_eq!(ask(proxy.proxy_addr, PATH, &first).await.status, 200, "{told}");
            let mut recovered = None;
            for turn in 0..30 {
                let body = continued(&format!("resp_{turn}"), turn, stream);
                let answer = ask(proxy.proxy_addr, PATH, &body).await;
                assert_eq!(answer.status, 200, "{told}, turn {turn}: {}", answer.text());
                assert!(!answer.text().contains("exceeds"), "{told}, turn {turn}: {}", answer.text());
                if answer.actions().contains(&"recovered") {
                    recovered = Some(turn);
                    let asked = turns(&mock);
                    let [.., before, last] = &asked[..] else { panic!("{told}") };
                    assert_eq!(before.bytes, body.to_string(), "{told}");
                    assert_eq!(last.body.get("previous_response_id"), None, "{told}");
                    assert!(last.body["input"].to_string().contains(task), "{told}");
                    break;
                }
            }
            let turn = recovered.expect(&told) + 1;
            // The new chain goes on by itself.
            let body = continued(&format!("resp_{turn}"), turn, stream);
            let answer = ask(proxy.proxy_addr, PATH, &body).await;
            assert_eq!((answer.status, answer.actions()), (200, vec![]), "{told}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_chain_of_which_a_turn_was_not_seen_is_not() {
    let error = refusal(TOO_LONG, "context_length_exceeded");
    let told = error.clone();
    let mock = Mock::start(move |asked| match asked.body["previous_response_id"].is_string() {
        true => (400, error.clone()),
        false => answer(asked, "resp_0", &json!([says("Done.")])),
    })
    .await;
    let proxy = proxy(&mock, COMPACTION);
    let first = json!({"model": "demo-model", "input": "x"});
    assert_eq!(ask(proxy.proxy_addr, PATH, &first).await.status, 200);
    let answer = ask(proxy.proxy_addr, PATH, &continued("resp_7", 0, true)).await;
    assert_eq!((answer.status, answer.text(), mock.asked().len()), (400, told.as_str(), 2));
    // Another tenant's chain is nobody else's.
    let key = [("authorization", "Bearer other")];
    let url = format!("http://{}{PATH}", proxy.proxy_addr);
    let body = continued("resp_0", 0, true).to_string();
    let sent = crate::support::chat::send_to(&url, &key, body.into()).await.unwrap();
    assert_eq!((sent.status().as_u16(), mock.asked().len()), (400, 3));
}
