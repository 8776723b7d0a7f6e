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
