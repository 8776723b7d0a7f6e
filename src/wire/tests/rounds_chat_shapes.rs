//! Chunks as some servers write them.

use bytes::Bytes;

use super::super::{Answer, Ending, Form};
use crate::wire::Dialect;

fn answered(name: &str, end: &str) -> (String, Ending, String) {
    let call = format!(
        r#"data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"{name}","arguments":"{{}}"}}}}]}}}}]}}"#
    );
    let mut answer = Answer::new(Dialect::Chat, Form::Stream, ["read_evicted".to_owned()].into());
    let text = |pieces: Vec<Bytes>| String::from_utf8(pieces.concat()).unwrap();
    let now = text(answer.push(&format!("{call}\n\n{end}\n\n").into()));
    let ending = answer.end();
    (now, ending, text(answer.finish()))
}

#[test]
fn a_chunk_that_says_why_the_answer_ended_needs_no_delta() {
    for end in [
        r#"data: {"choices":[{"index":0,"finish_reason":"tool_calls"}]}"#,
        r#"data: {"choices":[{"index":0,"delta":null,"finish_reason":"tool_calls"}]}"#,
    ] {
        let (now, ending, rest) = answered("read_evicted", end);
        assert!(now.is_empty() && matches!(ending, Ending::Again(_)), "{now}");
        // Should no other round follow, the client is not left with a reason that it cannot see.
        assert_eq!(rest, format!("{end}\n\n").replace("tool_calls", "stop"));
        let (now, ending, rest) = answered("execute", end);
        assert!(now.ends_with(&format!("{end}\n\n")) && rest.is_empty(), "{now}");
        assert_eq!(ending, Ending::Answered);
    }
}

/// Providers refuse a message that has neither text nor calls, and the client sends back what it was given.
#[test]
fn what_is_left_of_nothing_but_hidden_calls_has_a_text() {
    let end = r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;
    let (_, _, rest) = answered("read_evicted", end);
    let silent = end.replace("{}", r#"{"content":""}"#);
    assert_eq!(rest, format!("{silent}\n\n").replace("tool_calls", "stop"));
    // Some servers have one reason for all.
    let (_, _, rest) = answered("read_evicted", &end.replace("tool_calls", "stop"));
    assert_eq!(rest, format!("{silent}\n\n").replace("tool_calls", "stop"));

    let call = |name| format!(r#"{{"id":"a","type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}"#);
    let whole = |content: &str, calls: &[String]| {
        let calls = calls.join(",");
        let message = format!(r#"{{"role":"assistant",{content}"tool_calls":[{calls}]}}"#);
        let body = format!(r#"{{"choices":[{{"index":0,"message":{message},"finish_reason":"tool_calls"}}]}}"#);
        let mut answer = Answer::new(Dialect::Chat, Form::Json, ["read_evicted".to_owned()].into());
        assert!(answer.push(&body.into()).is_empty());
        answer.end();
        let whole: serde_json::Value = serde_json::from_slice(&answer.finish().concat()).unwrap();
        whole["choices"][0]["message"].clone()
    };
    for content in [r#""content":null,"#, "", r#""content":"","#] {
        let message = whole(content, &[call("read_evicted")]);
        assert_eq!(message, serde_json::json!({"role": "assistant", "content": ""}));
    }
    // Beside calls there need be none.
    let message = whole(r#""content":null,"#, &[call("read_evicted"), call("execute")]);
    assert!(message["content"].is_null() && message["tool_calls"].as_array().unwrap().len() == 1, "{message}");
}
