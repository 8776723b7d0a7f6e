//! An upstream that takes no tools, on a socket: understood, mended and remembered as over HTTP.

use super::*;
use crate::support::chat::{parsed, send_to};
use crate::support::proxy::start;
use crate::support::scripted::receive;
use crate::support::wire::Listener;

fn refusal(status: u16, message: &str) -> Value {
    json!({"type": "error", "status": status, "error": {"type": "x", "message": message}})
}

/// Under whatever status, under none, and as the end of a response.
fn refusals() -> [Value; 6] {
    let said = "This model does not support tools.";
    [
        refusal(400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        refusal(403, "`tool calling` is not supported with this model"),
        refusal(404, "No endpoints found that support tool use."),
        refusal(500, "tools param requires --jinja flag"),
        json!({"type": "error", "error": {"message": said}}),
        json!({"type": "response.failed", "response": {"id": "resp_x", "status": "failed", "error": {"message": said}}}),
    ]
}

impl Ends {
    async fn asked_json(&mut self) -> Value {
        serde_json::from_str(&self.asked().await).unwrap()
    }

    /// The client asks: what the upstream gets, which has the tool.
    async fn offered(&mut self) -> Value {
        self.ask(&asking(None)).await;
        let asked = self.asked_json().await;
        assert_eq!(asked["tools"][1]["name"], OWN);
        asked
    }

    /// The client asks: what the upstream gets, which has its own tools alone.
    async fn plain(&mut self) -> Value {
        self.ask(&asking(None)).await;
        let asked = self.asked_json().await;
        assert_eq!(asked["tools"], asking(None)["tools"]);
        asked
    }
}

#[tokio::test]
async fn a_refusal_of_tools_is_understood_whatever_its_status_and_remembered() {
    for refusal in refusals() {
        let mut ends = ends(&sections()).await;
        let first = ends.offered().await;
        ends.tell(&refusal).await;
        let again = ends.asked_json().await;
        assert_eq!((&again["tools"], &again["input"]), (&asking(None)["tools"], &first["input"]), "{refusal}");
        ends.answer("resp_0", "fine").await;
        assert_eq!(ends.plain().await["input"], first["input"], "it stays compacted: {refusal}");
        ends.answer("resp_1", "fine").await;
    }
}

/// What was told on a socket holds over HTTP too, and the other way round.
#[tokio::test]
async fn a_model_that_was_found_to_take_no_tools_gets_none_whichever_way_it_is_asked() {
    let listener = Listener::bind().await;
    let proxy = start(parsed(&format!("{}/v1", listener.url()), &sections()));
    let (mut ends, listener) = super::super::joined(proxy, listener).await;
    ends.offered().await;
    ends.tell(&refusals()[2]).await;
    assert_eq!(ends.asked_json().await["tools"], asking(None)["tools"]);
    ends.answer("resp_0", "fine").await;

    let mut body = asking(None);
    body.as_object_mut().unwrap().remove("type");
    body["input"][0] = user("another conversation");
    let url = format!("http://{}/v1/responses", ends.proxy.proxy_addr);
    let client = tokio::spawn(async move { send_to(&url, &[], body.to_string().into()).await });
    let asked = patiently("a request", receive(&mut listener.accept().await)).await.unwrap();
    let asked: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(asked["tools"], asking(None)["tools"]);
    assert!(asked["input"].to_string().contains("/_compactproxy/evicted/"), "{asked}");
    client.abort();
}

/// In a later round, whose history is the provider's: the same request without the tools.
#[tokio::test]
async fn a_refusal_of_tools_in_a_later_round_is_mended_there() {
    for refusal in refusals() {
        let mut ends = ends(&sections()).await;
        let round = ends.called(None).await;
        assert_eq!(round["tools"][1]["name"], OWN);
        ends.tell(&refusal).await;
        let again = ends.asked_json().await;
        assert_eq!(again["tools"], asking(None)["tools"], "{refusal}");
        for member in ["previous_response_id", "input", "model"] {
            assert_eq!(again[member], round[member], "{refusal}");
        }
        ends.tell(&created("resp_1")).await;
        ends.tell(&delta("It says so.")).await;
        let shown = ends.told().await;
        assert_eq!((&shown["delta"], &shown["sequence_number"]), (&json!("It says so."), &json!(1)), "{refusal}");
        let last = ends.ends_with(None, "completed", "resp_1").await;
        assert_eq!(last["response"]["id"], "resp_0");
        ends.plain().await;
        ends.answer("resp_2", "fine").await;
    }
}

/// Of two errors the client sees the one that is about its request, and its conversation gets no tools any more.
#[tokio::test]
async fn where_tools_were_not_all_that_was_wrong_nobody_is_asked_a_third_time() {
    let tools = refusals()[2].clone();
    for (second, shown) in
        [(refusal(400, "what is this"), tools.clone()), (refusal(429, "slow down"), refusal(429, "slow down"))]
    {
        let is_refusal = second["status"] == 400;
        let mut ends = ends(&sections()).await;
        ends.offered().await;
        ends.tell(&tools).await;
        assert_eq!(ends.asked_json().await["tools"], asking(None)["tools"]);
        ends.tell(&second).await;
        assert_eq!(ends.told().await, shown);
        if is_refusal {
            ends.plain().await;
        } else {
            // It says nothing of the tools.
            ends.offered().await;
        }
    }
}

/// A second attempt that brings tools to what was too long: the client sees its own error, and the model gets none again.
#[tokio::test]
async fn tools_that_are_refused_behind_an_overflow_are_remembered() {
    let window = format!("{}[[window]]\nmodel = \"m\"\ninput = 400_000\n", sections());
    let mut ends = ends(&window).await;
    let turns = (1..5).flat_map(|n| [call(n), result(n, &words(n as u64, 3_000))]);
    let input: Vec<Value> = [user("begin")].into_iter().chain(turns).collect();
    let mut body = asking(None);
    body["input"] = json!(input);
    ends.ask(&body).await;
    assert_eq!(ends.asked().await, body.to_string(), "nothing is removed yet");
    let mut long = super::super::too_long();
    long["error"]["message"] =
        json!("This model's maximum context length is 8000 tokens. However, your messages resulted in 12200 tokens.");
    ends.tell(&long).await;
    assert_eq!(ends.asked_json().await["tools"][1]["name"], OWN, "recovery brings the tool");
    ends.tell(&refusals()[2]).await;
    assert_eq!(ends.told().await, long);
    ends.plain().await;
}
