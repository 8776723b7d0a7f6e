//! Who may continue an answer in which a hidden call waits for its result: the tenant that it was made for, whichever of
//! its keys it uses, and nobody else.

use serde_json::json;

use super::by_id::{RESPONSES, result};
use super::continued::id;
use super::*;
use crate::support::chat::{Answered, send_to, whole};

/// What a client sends to say who it is: a key, and a header of its service's.
type Who = (&'static str, &'static str);

async fn ask(proxy: &Served, (key, user): Who, body: &Value) -> Answered {
    let (name, value) = RESPONSES.credential(key);
    let url = format!("http://{}{}", proxy.proxy_addr, RESPONSES.path());
    whole(send_to(&url, &[(name, value.as_str()), ("x-user", user)], RESPONSES.bytes(body)).await.unwrap()).await
}

#[tokio::test]
async fn who_may_continue_an_answer_whose_hidden_call_waits() {
    let one = ("k", "1");
    for (rule, who, may) in [
        ("credential", one, true),
        ("credential", ("k2", "1"), false),
        ("single", ("k2", "1"), true),
        ("header:x-user", one, true),
        ("header:x-user", ("k", "2"), false),
        ("header:x-user", ("k2", "1"), false),
    ] {
        let both = step(|_| {
            let own = ToolCall { id: "own_1".to_owned(), name: "read_evicted".to_owned(), arguments: "{}".to_owned() };
            says("Both.", vec![own, clients(7)])
        });
        let state = format!("inject = \"always\"\n[state]\ntenant = \"{rule}\"\n");
        let (provider, proxy) = staged(vec![both], &state).await;
        let mut body = with(&RESPONSES.fields(false), json!({"input": "Begin."}));
        body.as_object_mut().unwrap().remove("store");
        let first = ask(&proxy, one, &body).await;
        assert_eq!(first.status, 200, "{}", first.text());
        let next = with(&body, json!({"previous_response_id": id(&first), "input": [result("call_7", "done")]}));
        let answer = ask(&proxy, who, &next).await;
        let waits = attempts(&provider).pop().unwrap().json()["input"].to_string().contains("own_1");
        assert_eq!((waits, answer.status == 200), (may, may), "{rule} {who:?}: {}", answer.text());
    }
}
