//! What is no message, no request that there is, or one with other parameters: JSON-RPC's own errors.

use compactproxy::demo::provider::Settings;
use serde_json::{Value, json};

use super::{KEY, SECTIONS, message};
use crate::support::chat::pair;

/// The status, the code of the error and the id of its message.
async fn refused(addr: std::net::SocketAddr, body: &str) -> (u16, Value, Value) {
    let answer = message(addr, &[KEY], body.to_owned()).await;
    assert_eq!(answer.header("content-type"), "application/json", "{body:.80}: {}", answer.text());
    let mut error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&error["jsonrpc"], error["error"]["message"].is_string()), (&json!("2.0"), true), "{error}");
    assert!(error.as_object().unwrap().contains_key("id") && error.get("result").is_none(), "{error}");
    (answer.status, error["error"]["code"].take(), error["id"].take())
}

#[tokio::test]
async fn what_is_no_message_gets_the_error_of_the_protocol() {
    let (provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let deep = "[".repeat(10_000);
    for body in ["", " ", "{", "nonsense", "{\"jsonrpc\":\"2.0\",\"id\":1", &deep] {
        assert_eq!(refused(addr, body).await, (400, json!(-32_700), Value::Null), "{body:.20}");
    }
    for (body, id) in [
        ("[]", json!(null)),
        ("1", json!(null)),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, json!(null)),
        (r#"{"jsonrpc":"2.0"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1}"#, json!(1)),
        (r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#, json!("a")),
        (r#"{"id":7,"method":"ping"}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","id":2,"method":5}"#, json!(2)),
        (r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":[]}"#, json!(4)),
    ] {
        assert_eq!(refused(addr, body).await, (400, json!(-32_600), id), "{body}");
    }
    // The transport's own: another form, and too much of it.
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for body in [list, "{"] {
        assert_eq!(message(addr, &[KEY, ("content-type", "text/plain")], body).await.status, 415);
    }
    let typed = [KEY, ("content-type", "Application/JSON; charset=utf-8")];
    assert_eq!(message(addr, &typed, list).await.status, 200);
    assert_eq!(message(addr, &typed, "{").await.status, 400);
    assert_eq!(message(addr, &[KEY], "{".repeat((1 << 20) + 1)).await.status, 413);
    assert_eq!(provider.requests().len(), 0);
}

#[tokio::test]
async fn what_is_not_served_or_asked_for_wrongly_gets_the_error_of_the_protocol() {
    let (_provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let asked = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 3, "method": method, "params": params}).to_string();
        let (_, code, id) = refused(addr, &body).await;
        assert_eq!(id, json!(3), "{body}");
        code
    };
    for method in ["tools/none", "resources/list", "", "tools/call "] {
        assert_eq!(asked(method, json!({})).await, json!(-32_601), "{method:?}");
    }
    for params in [
        json!({"name": "read_evicted", "arguments": "id"}),
        json!({"name": "read_evicted", "arguments": [1]}),
        json!({"name": 5, "arguments": {}}),
        json!({"arguments": {}}),
        json!({"name": "no_such_tool", "arguments": {}}),
        json!({"name": "memory_save", "arguments": {"content": "it is not enabled"}}),
    ] {
        assert_eq!(asked("tools/call", params.clone()).await, json!(-32_602), "{params}");
    }
    assert_eq!(asked("initialize", json!({"protocolVersion": 1})).await, json!(-32_602));
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}).to_string();
    let answer = message(addr, &[KEY], unknown).await;
    assert!(answer.text().contains("the tools are read_evicted"), "{}", answer.text());
}
