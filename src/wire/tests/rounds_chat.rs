//! For all scripts of rounds and all chunkings: one well-formed answer, all that was said, no own call.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Answer, Ending, Form};
use super::scripts::{OWN, Script, expected, read_json, read_strictly, run, scripts, styles};
use crate::wire::Dialect;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn streams_of_rounds_are_one(scripts in scripts(), style in styles(), cuts in prop::collection::vec(1_usize..400, 0..40)) {
        let run = run(&scripts, Form::Stream, &style, cuts);
        let shown = String::from_utf8_lossy(&run.shown);
        prop_assert!(!OWN.iter().any(|name| shown.contains(&format!("\"{name}\""))), "{}", shown);
        prop_assert_eq!(read_strictly(&run.shown, &style), expected(&scripts, &style), "{}", shown);
        let touched = scripts.iter().any(|script| script.calls.iter().any(|(name, _)| Script::is_own(name)));
        // Of a name that may yet become one of the proxy's own, the pieces wait and come in frames of their own.
        let doubtful = |name: &String| OWN.iter().any(|own| own.starts_with(name.as_str()));
        let held = style.split_names || scripts[0].calls.iter().any(|(name, _)| doubtful(name));
        if scripts.len() == 1 && !touched && !held {
            prop_assert!(run.shown == scripts[0].stream(0, &style), "{}", shown);
        }
    }

    #[test]
    fn json_answers_of_rounds_are_one(scripts in scripts(), style in styles(), cuts in prop::collection::vec(1_usize..400, 0..9)) {
        let run = run(&scripts, Form::Json, &style, cuts);
        prop_assert_eq!(read_json(&run.shown), expected(&scripts, &style));
        let touched = scripts.iter().any(|script| script.calls.iter().any(|(name, _)| Script::is_own(name)));
        if scripts.len() == 1 && !touched {
            prop_assert_eq!(run.shown, scripts[0].json(0, &style));
        }
    }
}

#[test]
fn text_never_waits_and_only_doubtful_calls_do() {
    let own: std::sync::Arc<[String]> = ["read_evicted".to_owned()].into();
    let mut answer = Answer::new(Dialect::Chat, Form::Stream, own);
    let chunk = |delta: &str| Bytes::from(format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n"));
    let text = chunk(r#"{"content":"a"}"#);
    assert_eq!(answer.push(&text), std::slice::from_ref(&text));
    let client = chunk(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"bash","arguments":""}}]}"#);
    assert_eq!(answer.push(&client), std::slice::from_ref(&client));
    let doubtful = chunk(r#"{"tool_calls":[{"index":1,"id":"b","function":{"name":"read_","arguments":""}}]}"#);
    assert!(answer.push(&doubtful).is_empty());
    assert_eq!(answer.push(&text), std::slice::from_ref(&text));
    let more = chunk(r#"{"tool_calls":[{"index":1,"function":{"name":"file"}}]}"#);
    assert_eq!(answer.push(&more), [doubtful, more]);
}

#[test]
fn an_answer_that_is_cut_off_or_fails_is_not_answered_with_results() {
    let own: std::sync::Arc<[String]> = ["read_evicted".to_owned()].into();
    let call = r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read_evicted","arguments":"{"}}]}}]}"#;
    for end in [
        r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#,
        r#"data: {"error":{"message":"no"}}"#,
        ": nothing",
    ] {
        let mut answer = Answer::new(Dialect::Chat, Form::Stream, own.clone());
        let shown = answer.push(&Bytes::from(format!("{call}\n\n{end}\n\n")));
        assert_eq!(answer.end(), Ending::Answered, "{end}");
        let shown = [shown, answer.finish()].concat().concat();
        // Of the call nothing is left but that there was no text.
        let left = format!("{end}\n\n").replace(r#""delta":{}"#, r#""delta":{"content":""}"#);
        assert_eq!(String::from_utf8(shown).unwrap(), left);
    }
}

#[test]
fn an_error_of_a_later_round_is_an_event() {
    let mut answer = Answer::new(Dialect::Chat, Form::Stream, [].into());
    assert_eq!(
        answer.fail(b"{\"error\":\n{\"message\":\"no\"}}").concat(),
        b"data: {\"error\": {\"message\":\"no\"}}\n\n"
    );
    let told = answer.fail(b"bad \"gateway\"").concat();
    assert_eq!(told, b"data: {\"error\":{\"message\":\"bad \\\"gateway\\\"\",\"type\":\"upstream_error\"}}\n\n");
}
