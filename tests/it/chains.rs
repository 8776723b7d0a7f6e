//! Requests whose history the provider holds (`previous_response_id`), over HTTP.

use std::sync::Arc;

use compactproxy::config::TenantRule;
use compactproxy::proxy::tenant::{Asker, Verified, identify};
use compactproxy::store::Store;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::support::chat::{over, parsed, words};
use crate::support::proxy::{Served, open, start};
use crate::support::wire::{Listener, patiently, values};

const SECTIONS: &str = "[tool_result_eviction]\nmax_result_chars = 20_000\n[truncate_args]\n[prune]\n[compaction]\n";

/// How an answer comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Stream,
}

/// The proxy, and the upstream whose part the test plays.
struct Ends {
    listener: Listener,
    proxy: Served,
    form: Form,
}

impl Ends {
    async fn new(form: Form) -> Self {
        let listener = Listener::bind().await;
        let proxy = start(parsed(&format!("{}/v1", listener.url()), SECTIONS));
        Self { listener, proxy, form }
    }

    /// Sends `body`; the upstream plays `answers`, one a request. What it was sent, and what the client got.
    async fn exchange(&self, body: &Value, answers: &[(u16, Value)]) -> (Vec<Value>, String) {
        let client: Client<_, Full<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}/v1/responses", self.proxy.proxy_addr))
            .header("authorization", "Bearer k")
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))
            .unwrap();
        let got = async {
            let answer = client.request(request).await.unwrap();
            String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
        };
        let upstream = async {
            let mut asked = Vec::new();
            for (status, answer) in answers {
                let mut wire = self.listener.accept().await;
                let head = wire.head().await;
                let length: usize = values(&head, "content-length")[0].parse().unwrap();
                asked.push(serde_json::from_slice(&wire.exactly(length).await).unwrap());
                let text = self.text(*status, answer);
                let kind = if text.starts_with('{') { "application/json" } else { "text/event-stream" };
                wire.send(format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\n\r\n{text}"))
                    .await;
            }
            asked
        };
        let (asked, got) = patiently("the exchange", async { tokio::join!(upstream, got) }).await;
        (asked, got)
    }

    fn text(&self, status: u16, answer: &Value) -> String {
        if status != 200 || self.form == Form::Json {
            return answer.to_string();
        }
        let items = answer["output"].as_array().unwrap();
        let mut events = vec![json!({"type": "response.created", "response": {"id": answer["id"]}})];
        events.extend(items.iter().map(|item| json!({"type": "response.output_item.done", "item": item})));
        events.push(json!({"type": "response.completed", "response": answer}));
        let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        events.iter().map(event).collect()
    }
}

fn request(ends: &Ends, previous: Option<&str>, input: Value) -> Value {
    let mut body = json!({"model": "m", "input": input, "stream": ends.form == Form::Stream});
    if let Some(previous) = previous {
        body["previous_response_id"] = json!(previous);
    }
    body
}

fn response(n: usize) -> Value {
    let call = json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "exec_command",
        "arguments": "{\"cmd\":\"ls\"}"});
    json!({"id": format!("resp_{n}"), "object": "response", "output": [call],
        "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}})
}

fn result(n: usize) -> Value {
    json!([{"type": "function_call_output", "call_id": format!("call_{n}"), "output": words(n as u64, 3_000)}])
}

fn too_long() -> Value {
    json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded", "param": "input",
        "message": "Your input exceeds the context window of this model. Please adjust your input and try again."}})
}

/// A chain of three turns, each of which passes as it is; gives the request that continues it.
async fn chained(ends: &Ends) -> Value {
    let mut body = request(ends, None, json!("Rule: never touch main.rs. Begin."));
    for n in 0..3 {
        let (asked, got) = ends.exchange(&body, &[(200, response(n))]).await;
        assert_eq!(asked, [body]);
        assert_eq!(got, ends.text(200, &response(n)));
        body = request(ends, Some(&format!("resp_{n}")), result(n));
    }
    body
}

#[tokio::test]
async fn an_overflow_of_a_chain_that_was_seen_whole_is_recovered_without_it() {
    for form in [Form::Json, Form::Stream] {
        let ends = Ends::new(form).await;
        let body = chained(&ends).await;
        let (asked, got) = ends.exchange(&body, &[(400, too_long()), (200, response(3))]).await;
        assert_eq!(got, ends.text(200, &response(3)));
        assert_eq!(asked[0], body);
        let again = &asked[1];
        assert_eq!((again.get("previous_response_id"), &again["stream"]), (None, &body["stream"]));
        let text = again["input"].to_string();
        assert!(text.contains("never touch main.rs") && text.len() < 40_000, "{} bytes", text.len());
        let ids = |kind: &str| {
            let items = again["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind);
            items.map(|item| item["call_id"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids("function_call"), ids("function_call_output"));
        // The new chain goes on, and its own overflow is mended with the same history again.
        for n in 3..6 {
            let body = request(&ends, Some(&format!("resp_{n}")), result(n));
            assert_eq!(ends.exchange(&body, &[(200, response(n + 1))]).await.0, [body]);
        }
        let body = request(&ends, Some("resp_6"), result(6));
        let (asked, got) = ends.exchange(&body, &[(400, too_long()), (200, response(7))]).await;
        assert_eq!(got, ends.text(200, &response(7)));
        assert!(asked[1]["input"].to_string().contains("never touch main.rs"));
    }
}

#[tokio::test]
async fn an_overflow_whose_history_was_not_seen_passes_byte_for_byte() {
    let ends = Ends::new(Form::Json).await;
    let mut unseen = vec![request(&ends, Some("resp_elsewhere"), result(1))];
    let mut conversation = request(&ends, None, result(1));
    conversation["conversation"] = json!("conv_1");
    unseen.push(conversation);
    unseen.push(request(&ends, None, json!([{"type": "item_reference", "id": "msg_1"}, result(1)[0]])));
    for body in unseen {
        let (asked, got) = ends.exchange(&body, &[(400, too_long())]).await;
        assert_eq!((asked, got), (vec![body], too_long().to_string()));
    }
}

/// What the provider counts is the whole chain; the estimate is of an increment.
#[tokio::test]
async fn the_count_of_a_whole_chain_corrects_no_estimate_of_an_increment() {
    let (listener, folder) = (Listener::bind().await, tempfile::tempdir().unwrap());
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let config = parsed(&format!("{}/v1", listener.url()), SECTIONS);
    let ends = Ends { listener, proxy: over(config, Arc::clone(&store), |_| {}), form: Form::Json };
    let mut refusal = too_long();
    refusal["error"]["message"] = json!(
        "This model's maximum context length is 128000 tokens. However, your messages \
        resulted in 200000 tokens. Please reduce the length of the messages."
    );
    let body = request(&ends, Some("resp_elsewhere"), result(1));
    ends.exchange(&body, &[(400, refusal)]).await;
    assert_eq!(factor(&store), None, "from an error");
    let mut large = result(2);
    large[0]["output"] = json!(words(2, 20_000));
    let mut counted = response(3);
    counted["usage"]["input_tokens"] = json!(200_000);
    let mut body = request(&ends, Some("resp_elsewhere"), large);
    // It is counted because its output may be more than what is left of the limit that was told.
    body["max_output_tokens"] = json!(127_000);
    let (asked, _) = ends.exchange(&body, &[(200, counted)]).await;
    assert!(asked[0].to_string().contains("/_compactproxy/evicted/"));
    assert_eq!(factor(&store), None, "from an answer");
}

/// The factor that was learned for the test's model.
fn factor(store: &Store) -> Option<f64> {
    let headers = [(AUTHORIZATION, HeaderValue::from_static("Bearer k"))].into_iter().collect();
    let asker = Asker { upstream: "up", headers: &headers, uri: &Uri::default() };
    let tenant = identify(store, &TenantRule::Credential, &Verified::default(), &asker).tenant;
    store.calibration(&tenant, "up", "m")
}

/// A result's call is out of sight, but was seen: its tool decides, as it does where the history is shown.
#[tokio::test]
async fn in_a_recorded_chain_a_result_goes_by_its_tool() {
    for (tool, evicted) in [("exec_command", true), ("read_file", false), ("update_plan", false)] {
        let ends = Ends::new(Form::Stream).await;
        let mut called = response(0);
        called["output"][0]["name"] = json!(tool);
        ends.exchange(&request(&ends, None, json!("Begin.")), &[(200, called)]).await;
        let mut output = result(0);
        // Over the limit, but within that of the tools that bound their results themselves.
        output[0]["output"] = json!(words(1, 6_000));
        let body = request(&ends, Some("resp_0"), output.clone());
        let (asked, _) = ends.exchange(&body, &[(200, response(1))]).await;
        assert_eq!(asked[0]["input"] != output, evicted, "{tool}");
        assert_eq!(asked[0]["previous_response_id"], "resp_0");
        // Nobody saw the call.
        output[0]["output"] = json!(words(2, 6_000));
        let unseen = request(&ends, Some("resp_elsewhere"), output.clone());
        assert_eq!(ends.exchange(&unseen, &[(200, response(2))]).await.0[0]["input"], output, "{tool}");
    }
}

/// A plan is pinned where its call is in sight, and so it is where that is known from before, whatever is excluded.
#[tokio::test]
async fn in_a_recorded_chain_a_plan_is_not_evicted() {
    for (tool, evicted) in [("update_plan", false), ("exec_command", true)] {
        let mut ends = Ends::new(Form::Json).await;
        let sections = "[tool_result_eviction]\nmax_result_chars = 2_000\npreview_chars = 100\nexcluded_tools = []\n";
        ends.proxy = start(parsed(&format!("{}/v1", ends.listener.url()), sections));
        let mut called = response(0);
        called["output"][0]["name"] = json!(tool);
        ends.exchange(&request(&ends, None, json!("Begin.")), &[(200, called)]).await;
        let mut output = result(0);
        output[0]["output"] = json!(words(1, 900));
        let body = request(&ends, Some("resp_0"), output.clone());
        let (asked, _) = ends.exchange(&body, &[(200, response(1))]).await;
        assert_eq!(asked[0]["input"] != output, evicted, "{tool}");
    }
}
