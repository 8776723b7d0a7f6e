use super::*;

const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";

#[test]
fn a_whole_stream_is_read() {
    let read = from_stream([ROLE, STOP, DONE].concat().as_bytes()).unwrap();
    assert_eq!((read.text.as_deref(), read.finish.as_str()), (Some("hi"), "stop"));
}

#[test]
fn broken_streams_are_errors() {
    let broken = |parts: &[&str]| from_stream(parts.concat().as_bytes()).unwrap_err();
    broken(&[ROLE, STOP]);
    broken(&[ROLE, DONE]);
    broken(&[ROLE, STOP, DONE, ROLE]);
    broken(&["data: {\"choi\n\n", STOP, DONE]);
    assert_eq!(broken(&[ROLE, "data: {\"error\":{\"message\":\"too long\"}}\n\n", DONE]), "too long");
    let orphan =
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]}}]}\n\n";
    broken(&[orphan, STOP, DONE]);
}

#[test]
fn errors_are_found_wherever_they_stand() {
    assert_eq!(error_message(br#"{"error":{"message":"a"}}"#), "a");
    assert_eq!(error_message(br#"{"message":"b"}"#), "b");
    assert_eq!(error_message(br#"{"error":"c"}"#), "c");
    assert_eq!(error_message(b"plain"), "plain");
    assert!(from_json(br#"{"error":{"message":"in a 200"}}"#).is_err());
}
