//! What comes beside an answer of several rounds or behind it, and what must not be seen of it.

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::super::{ends, request, user};
use super::{OWN, asking, created, delta, ended, item, on, overrun, own, sections};
use crate::support::wire::patiently;

/// Until the other lane's first event the upstream may not know of lanes.
#[tokio::test]
async fn the_default_lanes_answer_stays_its_own_where_another_lane_is_asked_beside_it() {
    for told in [false, true] {
        let mut ends = ends(&sections()).await;
        ends.ask(&asking(None)).await;
        let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
        assert_eq!(asked["tools"][1]["name"], OWN);
        if told {
            ends.tell(&created("resp_0")).await;
            assert_eq!(ends.told().await, created("resp_0"));
        }
        let other = on(Some("b"), request(None, json!([user("other")])));
        ends.ask(&other).await;
        assert_eq!(ends.asked().await, other.to_string());
        if told {
            ends.tell(&item(&own("1", &json!({})), "done")).await;
            ends.tell(&ended("completed", "resp_0", &json!([own("1", &json!({}))]))).await;
        } else {
            ends.calls(&asked, None).await;
        }
        // Which answer a further request's is nobody could tell.
        let last = ends.told().await;
        assert_eq!((&last["type"], &last["response"]["output"]), (&json!("response.completed"), &json!([])));
        ends.tell(&on(Some("b"), created("resp_b"))).await;
        assert_eq!(ends.told().await, on(Some("b"), created("resp_b")));
        ends.ends_with(Some("b"), "completed", "resp_b").await;
    }
}

/// Answers behind it and what belongs to none may come while the tools run.
#[tokio::test]
async fn what_comes_while_the_tools_run_follows() {
    let limits = json!({"type": "codex.rate_limits", "plan": "x"});
    let mut ends = ends(&sections()).await;
    let asked = overrun(&mut ends).await;
    ends.calls(&asked, None).await;
    let behind: Vec<Value> = (0..17).map(|n| ended("completed", &format!("resp_{n}"), &json!([]))).collect();
    for event in behind.iter().chain([&limits]) {
        ends.tell(event).await;
    }
    assert_eq!(ends.told().await["response"]["id"], "resp_0");
    for event in behind.iter().chain([&limits]) {
        assert_eq!(ends.told().await, *event);
    }
    ends.ask(&asking(None)).await;
    assert!(ends.asked().await.contains(OWN), "looked at again");
}

#[tokio::test]
async fn what_belongs_to_no_answer_passes_while_the_tools_run() {
    let limits = json!({"type": "codex.rate_limits", "plan": "x"});
    let mut ends = ends(&sections()).await;
    ends.ask(&asking(None)).await;
    let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
    ends.calls(&asked, None).await;
    ends.tell(&limits).await;
    assert_eq!(ends.told().await, limits);
    assert!(ends.asked().await.contains("own_1"));
    ends.tell(&created("resp_1")).await;
    ends.ends_with(None, "completed", "resp_1").await;
}

/// Also where the provider repeats them in an answer that comes to nothing.
#[tokio::test]
async fn no_refusal_shows_the_proxys_tools() {
    for later in [false, true] {
        let mut ends = ends(&sections()).await;
        let (id, tools) = if later {
            ends.called(None).await;
            let error = json!({"type": "error", "status": 429, "error": {"type": "rate_limit_error"}});
            ends.tell(&error).await;
            assert_eq!(ends.told().await, error);
            ("resp_9", json!([{"type": "function", "name": "exec_command"}, {"type": "function", "name": OWN}]))
        } else {
            ends.ask(&asking(None)).await;
            let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
            ("resp_0", asked["tools"].clone())
        };
        if later {
            ends.ask(&asking(None)).await;
            assert!(ends.asked().await.contains(OWN));
        }
        let mut failed = ended("failed", id, &json!([]));
        failed["response"]["tools"] = tools.clone();
        failed["response"]["error"] = json!({"code": "server_error", "message": "m"});
        ends.tell(&failed).await;
        failed["response"]["tools"].as_array_mut().unwrap().pop();
        assert_eq!(ends.told().await, failed);
    }
}

#[tokio::test]
async fn a_cancel_of_another_answer_passes_as_it_came() {
    let mut ends = ends(&sections()).await;
    ends.called(None).await;
    let cancel = json!({"type": "response.cancel", "response_id": "resp_7"});
    for begun in [false, true] {
        if begun {
            ends.tell(&created("resp_1")).await;
            ends.tell(&delta("It")).await;
            assert_eq!(ends.told().await["delta"], "It");
        }
        ends.ask(&cancel).await;
        assert_eq!(ends.asked().await, cancel.to_string());
    }
    let last = ends.ends_with(None, "completed", "resp_1").await;
    assert_eq!(last["response"]["id"], "resp_0");
}

/// An answer that has come is told before the close behind it.
#[tokio::test]
async fn an_upstream_that_closes_behind_a_last_answer_takes_nothing_of_it() {
    let mut ends = ends(&sections()).await;
    ends.called(None).await;
    ends.tell(&created("resp_1")).await;
    ends.tell(&ended("completed", "resp_1", &json!([]))).await;
    ends.upstream.close(None).await.unwrap();
    let last = ends.told().await;
    assert_eq!((&last["type"], &last["response"]["id"]), (&json!("response.completed"), &json!("resp_0")));
    assert!(patiently("the close", ends.client.next()).await.unwrap().unwrap().is_close());
}

/// OpenAI sends a `response.failed` behind an `error`.
#[tokio::test]
async fn an_answer_that_was_told_does_not_fail_again() {
    let mut ends = ends(&sections()).await;
    ends.called(None).await;
    ends.tell(&created("resp_1")).await;
    ends.tell(&delta("It")).await;
    assert_eq!(ends.told().await["delta"], "It");
    ends.tell(&json!({"type": "error", "status": 500, "error": {"type": "server_error"}})).await;
    assert_eq!(ends.told().await["type"], "error");
    ends.tell(&ended("failed", "resp_1", &json!([]))).await;
    let next = request(None, json!([user("next")]));
    ends.ask(&next).await;
    assert_eq!(ends.asked().await, next.to_string());
    ends.answer("resp_2", "fine").await;
}

/// A refusal with which the turn ends is one of the response that its client knows.
#[tokio::test]
async fn a_late_refusal_names_no_response_that_the_client_has_not_seen() {
    let failed = |id: &str| {
        let mut failed = ended("failed", id, &json!([]));
        failed["response"]["error"] = json!({"code": "server_error", "message": "it broke"});
        failed
    };
    for cancelled in [false, true] {
        let mut ends = ends(&sections()).await;
        ends.called(None).await;
        let last = if cancelled {
            ends.ask(&json!({"type": "response.cancel", "response_id": "resp_0"})).await;
            // It is taken in behind the cancel.
            ends.ask(&json!({"type": "session.note"})).await;
            assert!(ends.asked().await.contains("session.note"));
            "resp_1"
        } else {
            ends.tell(&failed("resp_1")).await;
            assert!(!ends.asked().await.contains("previous_response_id"), "the client's own request once more");
            "resp_2"
        };
        ends.tell(&created(last)).await;
        if cancelled {
            assert!(ends.asked().await.contains("response.cancel"));
        }
        ends.tell(&failed(last)).await;
        let told = ends.told().await;
        assert_eq!((&told["type"], &told["response"]["id"]), (&json!("response.failed"), &json!("resp_0")), "{told}");
        if !cancelled {
            assert_eq!(told["response"]["error"], json!({"code": "server_error", "message": "it broke"}));
        }
        // The lane is free.
        let next = request(None, json!([user("next")]));
        ends.ask(&next).await;
        assert_eq!(ends.asked().await, next.to_string());
    }
}

/// The body goes out once more as compacted as it was, and no tools come again.
#[tokio::test]
async fn a_refusal_of_the_tools_costs_no_more_than_the_tools() {
    let mut ends = ends(&sections()).await;
    ends.ask(&asking(None)).await;
    let refused: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!(refused["tools"][1]["name"], OWN);
    let message = "this model does not support tools";
    ends.tell(&json!({"type": "error", "status": 400, "error": {"type": "invalid_request_error", "message": message}}))
        .await;
    let again: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!(again["tools"], asking(None)["tools"]);
    let shown = |body: &Value| body["input"][2]["output"].as_str().unwrap().len();
    assert!(shown(&again) < 10_000, "as compacted as it was: {}", shown(&again));
    assert!(shown(&asking(None)) > 20_000);
    ends.answer("resp_0", "fine").await;
    let mut other = asking(None);
    other["input"][0] = user("another");
    ends.ask(&other).await;
    let asked: Value = serde_json::from_str(&ends.asked().await).unwrap();
    assert_eq!(asked["tools"], other["tools"]);
    assert!(shown(&asked) < 10_000);
}
