//! At the bounds of what is held of an answer: nothing is lost, no name of the proxy's tools gets through.

use serde_json::{Value, json};

use super::*;

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
const OWN: &str = "read_evicted";

/// Bounds that a test reaches soon.
const HELD: usize = 8_000;
const WHOLE: usize = 32_000;

fn answer(dialect: Dialect, form: Form) -> Answer {
    let answer = Answer::new(dialect, form, Arc::from([OWN.to_owned()]));
    Answer { most: (HELD, WHOLE), ..answer }
}

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn chunk(delta: Value, reason: Option<&str>) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
}

/// A text, as its events; the `index`-th part of an answer.
fn text(dialect: Dialect, index: usize, text: &str) -> Vec<Value> {
    match dialect {
        Dialect::Chat => vec![chunk(json!({"content": text}), None)],
        Dialect::Messages => vec![
            json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}}),
            json!({"type": "content_block_stop", "index": index}),
        ],
        Dialect::Responses => {
            let item =
                json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
            vec![
                json!({"type": "response.output_item.added", "output_index": index, "item": {"type": "message"}}),
                json!({"type": "response.output_item.done", "output_index": index, "item": item}),
            ]
        }
    }
}

fn call(dialect: Dialect, index: usize) -> Vec<Value> {
    match dialect {
        Dialect::Chat => {
            let call =
                json!({"index": 0, "id": "own", "type": "function", "function": {"name": OWN, "arguments": "{}"}});
            vec![chunk(json!({"tool_calls": [call]}), None)]
        }
        Dialect::Messages => vec![
            json!({"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "id": "own", "name": OWN, "input": {}}}),
            json!({"type": "content_block_stop", "index": index}),
        ],
        Dialect::Responses => {
            let item = json!({"type": "function_call", "call_id": "own", "name": OWN, "arguments": "{}"});
            vec![
                json!({"type": "response.output_item.added", "output_index": index, "item": item}),
                json!({"type": "response.output_item.done", "output_index": index, "item": item}),
            ]
        }
    }
}

fn end(dialect: Dialect) -> Vec<Value> {
    match dialect {
        Dialect::Chat => vec![chunk(json!({}), Some("tool_calls"))],
        Dialect::Messages => vec![
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}}),
            json!({"type": "message_stop"}),
        ],
        Dialect::Responses => {
            vec![json!({"type": "response.completed", "response": {"status": "completed", "output": []}})]
        }
    }
}

#[test]
fn where_nothing_is_hidden_what_is_too_long_passes_as_it_came() {
    let long = "x".repeat(WHOLE);
    for dialect in DIALECTS {
        let first = sse(&text(dialect, 0, "before"));
        let all = format!("{first}{}data: [DONE]\n\n", sse(&text(dialect, 1, &long)));
        // What is whole and what is too long may come in one piece.
        for cut in [first.len() + 40, all.len() / 2, all.len() - 20] {
            let mut answer = answer(dialect, Form::Stream);
            let (a, b) = all.split_at(cut);
            let mut out = answer.push(&a.to_owned().into());
            out.extend(answer.push(&b.to_owned().into()));
            assert!(matches!(answer.end(), Ending::Answered));
            out.extend(answer.finish());
            assert!(out.concat() == all.as_bytes(), "{dialect:?} {cut}");
        }
        let mut answer = answer(dialect, Form::Json);
        let body = format!("{{\"a\":\"{long}\"}}");
        let out = answer.push(&body.clone().into());
        assert!(answer.is_raw() && out.concat() == body.as_bytes());
    }
}

#[test]
fn a_call_that_waits_for_the_rest_of_its_name_goes_out_before_what_is_too_long() {
    let mut answer = answer(Dialect::Chat, Form::Stream);
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": ""}});
    assert!(answer.push(&sse(&[chunk(json!({"tool_calls": [call]}), None)]).into()).is_empty(), "it waits");
    let long = format!("data: {}", "x".repeat(WHOLE));
    let out = answer.push(&long.clone().into()).concat();
    let (call, rest) = out.split_at(out.len() - long.len());
    assert!(answer.is_raw() && rest == long.as_bytes());
    assert!(String::from_utf8_lossy(call).contains(r#""name":"read""#));
}

#[test]
fn where_something_is_hidden_what_is_too_long_is_not_shown_in_half() {
    for dialect in DIALECTS {
        let mut answer = answer(dialect, Form::Stream);
        let before = sse(&[text(dialect, 0, "before"), call(dialect, 1)].concat());
        let mut out = answer.push(&before.into());
        out.extend(answer.push(&format!("data: {}", "x".repeat(WHOLE)).into()));
        assert!(answer.is_stuck());
        out.extend(answer.push(&sse(&end(dialect)).into()));
        out.extend(answer.fail(b"too long"));
        let out = String::from_utf8(out.concat()).unwrap();
        assert!(out.contains("before") && !out.contains(OWN) && !out.contains("xxx"), "{out}");
        assert!(out.trim_end().lines().last().unwrap().contains("too long"), "{out}");
    }
}

#[test]
fn an_answer_too_long_to_be_held_is_the_last_and_whole() {
    let piece = "y".repeat(HELD / 4);
    for dialect in DIALECTS {
        let mut answer = answer(dialect, Form::Stream);
        let mut out = Vec::new();
        for index in 0..5 {
            out.extend(answer.push(&sse(&text(dialect, index, &piece)).into()));
        }
        assert!(answer.held() < HELD / 2, "given back: {}", answer.held());
        out.extend(answer.push(&sse(&[call(dialect, 5), end(dialect)].concat()).into()));
        assert!(matches!(answer.end(), Ending::Answered), "no further round");
        out.extend(answer.finish());
        let out = String::from_utf8(out.concat()).unwrap();
        assert_eq!(out.matches("yyyy").count(), 5 * piece.len() / 4, "nothing is lost");
        assert!(!out.contains(OWN), "{dialect:?}");
        let ended = match dialect {
            Dialect::Chat => out.contains(r#""finish_reason":"stop""#),
            Dialect::Messages => out.contains(r#""stop_reason":"end_turn""#) && out.contains("message_stop"),
            Dialect::Responses => out.contains("response.completed"),
        };
        assert!(ended, "{dialect:?}");
        assert_eq!(answer.aside(&[]), None);
    }
}
