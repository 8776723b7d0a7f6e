//! At the bounds of what is held of an answer: nothing is lost, no name of the proxy's tools gets through.

use serde_json::{Value, json};

use super::super::MOST_ARGUMENTS;
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
        // Where no tools were offered there is nothing to hide.
        let mut answer = Answer { own: Own::default(), ..answer(dialect, Form::Json) };
        let body = format!("{{\"a\":\"{long}\"}}");
        let out = answer.push(&body.clone().into());
        assert!(answer.is_raw() && out.concat() == body.as_bytes());
    }
}

/// What an answer names behind its bounds nobody can tell.
#[test]
fn a_json_answer_or_a_call_that_is_too_long_to_be_read_is_not_shown() {
    let long = "x".repeat(WHOLE);
    for dialect in DIALECTS {
        let mut json = answer(dialect, Form::Json);
        assert!(json.push(&format!("{{\"a\":\"{long}\"").into()).is_empty() && json.is_stuck());
        assert!(json.push(&format!(",\"name\":\"{OWN}\"}}").into()).is_empty());
        // The name may stand behind what is too long.
        let call = match dialect {
            Dialect::Chat => chunk(json!({"tool_calls": [{"function": {"arguments": long, "name": OWN}}]}), None),
            Dialect::Messages => {
                json!({"content_block": {"input": {"a": long}, "name": OWN}, "type": "content_block_start"})
            }
            Dialect::Responses => {
                json!({"item": {"arguments": long, "name": OWN}, "type": "response.output_item.added"})
            }
        };
        let call = sse(&[call]);
        let (begun, rest) = call.split_at(WHOLE + 50);
        let mut stream = answer(dialect, Form::Stream);
        let before = sse(&text(dialect, 0, "before"));
        assert_eq!(stream.push(&before.clone().into()).concat(), before.as_bytes());
        let out = [stream.push(&begun.to_owned().into()), stream.push(&rest.to_owned().into())].concat();
        assert!(stream.is_stuck() && out.is_empty(), "{dialect:?}");
    }
}

#[test]
fn behind_an_event_that_passed_as_it_came_calls_are_hidden_all_the_same() {
    let long = "x".repeat(WHOLE);
    for dialect in DIALECTS {
        for cut in [1, 500, WHOLE] {
            let mut answer = answer(dialect, Form::Stream);
            let all = sse(&[text(dialect, 0, &long), call(dialect, 1), end(dialect)].concat());
            let mut out = Vec::new();
            for piece in all.as_bytes().chunks(cut) {
                out.extend(answer.push(&Bytes::copy_from_slice(piece)));
            }
            assert!(matches!(answer.end(), Ending::Answered), "no further round");
            out.extend(answer.finish());
            let out = String::from_utf8(out.concat()).unwrap();
            assert!(out.contains(&long) && !out.contains(OWN), "{dialect:?} {cut}");
        }
    }
}

const LONG_ARGUMENTS: usize = 20 * MOST_ARGUMENTS;

/// A call of the proxy's with these arguments, in pieces.
fn long_call(dialect: Dialect, arguments: &str) -> Vec<Value> {
    let pieces = || arguments.as_bytes().chunks(100_000).map(|piece| std::str::from_utf8(piece).unwrap());
    match dialect {
        Dialect::Chat => {
            let delta = |function: Value| chunk(json!({"tool_calls": [{"index": 0, "function": function}]}), None);
            let pieces = pieces().map(|piece| delta(json!({"arguments": piece})));
            call(dialect, 0).into_iter().map(|_| delta(json!({"name": OWN, "arguments": ""}))).chain(pieces).collect()
        }
        Dialect::Messages => {
            let delta = |piece| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}});
            let mut events = call(dialect, 0);
            events.splice(1..1, pieces().map(delta));
            events
        }
        Dialect::Responses => {
            let delta =
                |piece| json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece});
            let mut events = call(dialect, 0);
            events.splice(1..1, pieces().map(delta));
            events.last_mut().unwrap()["item"]["arguments"] = arguments.into();
            events
        }
    }
}

/// The same as a JSON answer.
fn long_json(dialect: Dialect, arguments: &str) -> Value {
    match dialect {
        Dialect::Chat => {
            let call = json!({"id": "own", "type": "function", "function": {"name": OWN, "arguments": arguments}});
            json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": null, "tool_calls": [call]}, "finish_reason": "tool_calls"}]})
        }
        Dialect::Messages => {
            let input: Value = serde_json::from_str(arguments).unwrap();
            json!({"content": [{"type": "tool_use", "id": "own", "name": OWN, "input": input}], "stop_reason": "tool_use"})
        }
        Dialect::Responses => {
            let item = json!({"type": "function_call", "call_id": "own", "name": OWN, "arguments": arguments});
            json!({"status": "completed", "output": [item]})
        }
    }
}

#[test]
fn of_arguments_that_are_too_long_no_more_is_kept_than_tells_so() {
    let arguments = json!({"pattern": "y".repeat(LONG_ARGUMENTS)}).to_string();
    for dialect in DIALECTS {
        for form in [Form::Stream, Form::Json] {
            let mut answer = Answer::new(dialect, form, Arc::from([OWN.to_owned()]));
            let mut events = long_call(dialect, &arguments);
            let repeated = long_json(dialect, &arguments);
            events.extend(match dialect {
                Dialect::Responses => vec![json!({"type": "response.completed", "response": repeated})],
                _ => end(dialect),
            });
            let body = if form == Form::Json { repeated.to_string() } else { sse(&events) };
            let mut out = Vec::new();
            for piece in body.as_bytes().chunks(200_000) {
                out.extend(answer.push(&Bytes::copy_from_slice(piece)));
                let most = if form == Form::Json { body.len() } else { 2 * MOST_ARGUMENTS + arguments.len() + 500_000 };
                assert!(answer.held() <= most, "{dialect:?} {form:?}: {}", answer.held());
            }
            let Ending::Again(round) = answer.end() else { panic!("{dialect:?} {form:?}: the turn goes on") };
            let given = round.calls[0].arguments.len();
            assert!(given > MOST_ARGUMENTS && given < 2 * MOST_ARGUMENTS, "{dialect:?} {form:?}: {given}");
            assert!(round.turn.len() < 2_000, "{dialect:?} {form:?}: {}", round.turn.len());
            let failed = OwnResult { text: "too long".into(), failed: true };
            let aside = answer.aside(&[vec![failed]]).unwrap();
            assert!(serde_json::to_string(&aside).unwrap().len() < 4_000, "{dialect:?} {form:?}");
            answer.next_round();
            let last = match form {
                Form::Json => {
                    json!({"choices": [{"index": 0, "message": {"content": "Found."}, "finish_reason": "stop"}],
                    "content": [], "stop_reason": "end_turn", "status": "completed", "output": []})
                    .to_string()
                }
                Form::Stream => sse(&text(dialect, 0, "Found.")),
            };
            out.extend(answer.push(&last.into()));
            assert!(matches!(answer.end(), Ending::Answered));
            out.extend(answer.finish());
            let out = String::from_utf8(out.concat()).unwrap();
            assert!(!out.contains(OWN) && !out.contains("yyy"), "{dialect:?} {form:?}: {out:.500}");
        }
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
    assert!(rest == long.as_bytes());
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

/// Without the proxy's tools nothing can be hidden: what is too long passes, whatever it names.
#[test]
fn begun_anew_without_tools_all_of_an_answer_is_the_clients() {
    let long = "x".repeat(WHOLE);
    for dialect in DIALECTS {
        let stuck = |answer: &mut Answer| {
            assert!(answer.push(&format!("data: {{\"tool_calls\":\"{long}").into()).is_empty() && answer.is_stuck());
        };
        let hidden = |answer: &mut Answer| {
            answer.push(&sse(&[call(dialect, 0), end(dialect)].concat()).into());
            assert!(matches!(answer.end(), Ending::Again(_)));
            answer.next_round();
        };
        for before in [&stuck as &dyn Fn(&mut Answer), &hidden] {
            let mut answer = answer(dialect, Form::Stream);
            before(&mut answer);
            answer.begin_anew();
            let too_long = format!("data: {{\"name\":\"{OWN}\",\"tools\":\"{long}\"}}\n\n");
            let all = [sse(&text(dialect, 0, "Found.")), too_long.clone(), sse(&call(dialect, 1))].concat();
            let mut out = Vec::new();
            for piece in all.as_bytes().chunks(1_000) {
                out.extend(answer.push(&Bytes::copy_from_slice(piece)));
            }
            assert!(!answer.is_stuck(), "{dialect:?}");
            assert!(matches!(answer.end(), Ending::Answered), "{dialect:?}");
            out.extend(answer.finish());
            let out = String::from_utf8(out.concat()).unwrap();
            let (before, behind) = out.split_once(&too_long).unwrap();
            assert!(before.contains("Found.") && behind.contains(OWN), "{dialect:?} {before} {behind}");
        }
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
