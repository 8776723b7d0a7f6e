//! For all answers of rounds: the client reads one well-formed response, and what it never saw comes back.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Answer, Dialect, Ending, Form};
use super::*;
use crate::wire::memo::Memo;
use crate::wire::splice::splice;

const BASE: &str = r#"{"input":[{"role":"user","content":"do"}"#;

pub(super) fn item(kind: u8, id: usize) -> Value {
    let call = |name: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"), "name": name, "arguments": "{}"});
    match kind {
        0 => json!({"type": "reasoning", "id": format!("rs_{id}"), "summary": [], "encrypted_content": "x"}),
        1 => {
            json!({"type": "message", "id": format!("msg_{id}"), "role": "assistant", "content": [{"type": "output_text", "text": format!("said {id}")}]})
        }
        2 => call("peek"),
        _ => call("bash"),
    }
}

fn is_own(item: &Value) -> bool {
    item["name"] == "peek"
}

fn rounds() -> impl Strategy<Value = Vec<Vec<Value>>> {
    let hidden = (prop::collection::vec(0..2_u8, 0..3), prop::collection::vec(Just(2_u8), 1..3));
    let last =
        (prop::collection::vec(0..2_u8, 0..3), prop::sample::select(vec![vec![1], vec![3], vec![2, 3], vec![3, 2, 2]]));
    (prop::collection::vec(hidden, 0..3), last).prop_map(|(hidden, last)| {
        let rounds = hidden.into_iter().chain([last]).map(|(said, calls)| [said, calls].concat());
        let number = |(r, round): (usize, Vec<u8>)| {
            round.into_iter().enumerate().map(|(k, kind)| item(kind, r * 10 + k)).collect()
        };
        rounds.enumerate().map(number).collect()
    })
}

pub(super) fn response(output: &[Value], nth: usize, status: &str) -> Value {
    let usage = json!({"input_tokens": 100 + nth, "output_tokens": 10, "total_tokens": 110 + nth});
    let tools = json!([{"type": "function", "name": "bash"}, {"type": "function", "name": "peek"}]);
    json!({"id": format!("resp_{nth}"), "created_at": nth, "status": status, "output": output, "tools": tools, "usage": usage})
}

pub(super) fn stream(round: &[Value], nth: usize) -> Vec<u8> {
    let mut events = vec![json!({"type": "response.created", "response": response(&[], nth, "in_progress")})];
    for (index, item) in round.iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        events.push(json!({"type": "response.some.delta", "output_index": index, "delta": "d"}));
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": response(round, nth, "completed")}));
    let sse = |(number, mut event): (usize, Value)| {
        event["sequence_number"] = json!(number);
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
    };
    events.into_iter().enumerate().map(sse).collect::<String>().into_bytes()
}

fn run(rounds: &[Vec<Value>], form: Form, cut: usize) -> (Vec<u8>, Option<Aside>, String) {
    let mut answer = Answer::new(Dialect::Responses, form, Arc::from(["peek".to_owned()]));
    let (mut client, mut all, mut asked) = (Vec::new(), Vec::new(), String::new());
    for (nth, round) in rounds.iter().enumerate() {
        let json = || response(round, nth, "completed").to_string().into_bytes();
        let body = if form == Form::Json { json() } else { stream(round, nth) };
        for piece in body.chunks(cut) {
            client.extend(answer.push(&Bytes::copy_from_slice(piece)));
        }
        let found = |round: &Round| vec![OwnResult { text: "found".into(), failed: false }; round.calls.len()];
        match answer.end() {
            Ending::Again(round) => {
                let items = Dialect::Responses.results(&round, &found(&round));
                asked.push_str(&format!(",{},{}", utf8(&round.turn), utf8(&items)));
                all.push(found(&round));
                answer.next_round();
            }
            Ending::Handed(round) => all.push(found(&round)),
            Ending::Answered => assert_eq!(nth + 1, rounds.len()),
        }
    }
    let aside = answer.aside(&all);
    client.extend(answer.finish());
    (client.concat(), aside, asked)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn one_response_is_read_and_the_rest_is_put_back(rounds in rounds(), json in any::<bool>(), cut in 1..400_usize) {
        let (client, aside, asked) = run(&rounds, if json { Form::Json } else { Form::Stream }, cut);
        prop_assert!(memchr::memmem::find(&client, b"peek").is_none());
        let seen: Vec<Value> = rounds.iter().flatten().filter(|item| !is_own(item)).cloned().collect();
        let whole = if json {
            serde_json::from_slice(&client).unwrap()
        } else {
            let text = std::str::from_utf8(&client).unwrap();
            let read = |event: &str| serde_json::from_str::<Value>(event.split_once("\ndata: ").unwrap().1).unwrap();
            let events: Vec<Value> = text.split_terminator("\n\n").map(read).collect();
            for (at, event) in events.iter().enumerate() {
                prop_assert_eq!(&event["sequence_number"], at);
                prop_assert_eq!(event["type"] == "response.created", at == 0);
                prop_assert_eq!(event["type"] == "response.completed", at + 1 == events.len());
            }
            let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
            for (at, event) in done.enumerate() {
                prop_assert_eq!((&event["output_index"], &event["item"]), (&json!(at), &seen[at]));
            }
            let last = events.last().unwrap()["response"].clone();
            prop_assert_eq!(&last["id"], "resp_0");
            last
        };
        prop_assert_eq!(&whole["output"], &json!(seen));
        prop_assert_eq!(&whole["usage"]["output_tokens"], 10 * rounds.len());
        prop_assert_eq!(&whole["usage"]["total_tokens"], 99 + 11 * rounds.len());
        let Some(aside) = aside else { return Ok(()) };
        for keep in [true, false] {
            let kept = |item: &&Value| keep || item["type"] != "reasoning";
            let mut items: Vec<Value> = seen.iter().filter(kept).cloned().collect();
            let calls = seen.iter().filter(|item| item["type"] == "function_call");
            items.extend(calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "ok"})));
            items.push(json!({"role": "user", "content": "go on"}));
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            let body = format!("{BASE},{}]}}", items.join(","));
            let memo = Memo::new(1 << 20);
            let conversation = crate::wire::read(Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap();
            let edits = conversation.put_back(0, &aside).unwrap();
            let back = utf8(&splice(&Bytes::from(body.clone()), edits).unwrap().concat());
            if keep {
                prop_assert!(back.starts_with(&format!("{BASE}{asked}")), "{}\n{}", back, asked);
            }
            let read: Value = serde_json::from_str(&back).unwrap();
            let of = |kind: &str| read["input"].as_array().unwrap().iter().filter(|item| item["type"] == kind).map(|item| item["call_id"].to_string()).collect::<Vec<_>>();
            let (mut calls, mut outputs) = (of("function_call"), of("function_call_output"));
            prop_assert_eq!(calls.len(), rounds.iter().flatten().filter(|item| item["type"] == "function_call").count());
            calls.sort();
            outputs.sort();
            prop_assert_eq!(calls, outputs);
        }
    }
}

fn ended(output: &[Value], rest: Value) -> Ending {
    let mut body = response(output, 0, "completed");
    body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let mut answer = Answer::new(Dialect::Responses, Form::Json, Arc::from(["peek".to_owned()]));
    answer.push(&Bytes::from(body.to_string()));
    answer.end()
}

#[test]
fn done_waits_for_the_end() {
    let mut answer = Answer::new(Dialect::Responses, Form::Stream, Arc::from(["peek".to_owned()]));
    let mut client = Vec::new();
    for (nth, round) in [[item(2, 1)], [item(1, 2)]].iter().enumerate() {
        let body = [&*stream(round, nth), b"data: [DONE]\n\n"].concat();
        client.extend(answer.push(&body.into()));
        if matches!(answer.end(), Ending::Again(_)) {
            answer.next_round();
        }
    }
    client.extend(answer.finish());
    let client = utf8(&client.concat());
    assert_eq!(client.matches("[DONE]").count(), 1);
    assert!(client.ends_with("data: [DONE]\n\n"));
}

#[test]
fn ids_go_with_the_reasoning_that_is_not_kept() {
    let bare = json!({"type": "reasoning", "id": "rs_0", "summary": []});
    let Ending::Again(round) = ended(&[bare, item(1, 1), item(2, 2)], json!({"store": false})) else { panic!() };
    let turn = utf8(&round.turn);
    assert!(!["rs_0", "msg_1", "fc_2", "null"].iter().any(|id| turn.contains(id)), "{turn}");
    let open = json!({"type": "reasoning", "id": "rs_0", "content": [{"type": "reasoning_text", "text": "hm"}]});
    let Ending::Again(round) = ended(&[open, item(2, 2)], json!({"store": false})) else { panic!() };
    assert!(utf8(&round.turn).contains("rs_0") && utf8(&round.turn).contains("fc_2"));
}

#[test]
fn only_what_waits_for_the_client_hands_over() {
    let shell = json!({"type": "shell_call", "id": "sh_1", "call_id": "c1"});
    let answered = json!({"type": "shell_call_output", "call_id": "c1", "output": []});
    assert!(matches!(ended(&[shell.clone(), answered, item(2, 1)], json!({})), Ending::Again(_)));
    assert!(matches!(ended(&[shell, item(2, 1)], json!({})), Ending::Handed(_)));
    let approval = json!({"type": "mcp_approval_request", "id": "mcpr_1"});
    assert!(matches!(ended(&[approval, item(2, 1)], json!({})), Ending::Handed(_)));
    let mut other = item(2, 1);
    other["namespace"] = json!("theirs");
    assert!(matches!(ended(&[other], json!({})), Ending::Answered));
}

#[test]
fn an_empty_result_says_so() {
    let call = OwnCall { id: "c".into(), name: "peek".into(), arguments: "{}".into() };
    let text = outputs(&[call], &[OwnResult { text: String::new(), failed: false }]);
    assert!(text.contains("(nothing)"));
}

/// Both calls of a turn, with one of the proxy's between them, and what is put back where the client sends `items`.
fn put_back_into(items: &[Value]) -> Option<Value> {
    let round = [item(3, 1), item(2, 2), item(3, 3)];
    let (_, aside, _) = run(&[round.to_vec()], Form::Json, 1);
    let items: Vec<String> = items.iter().map(Value::to_string).collect();
    let body = format!("{BASE},{},{{\"role\":\"user\",\"content\":\"go on\"}}]}}", items.join(","));
    let memo = Memo::new(1 << 20);
    let conversation = crate::wire::read(Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap();
    let edits = conversation.put_back(0, &aside.unwrap())?;
    serde_json::from_slice(&splice(&Bytes::from(body.clone()), edits).unwrap().concat()).ok()
}

#[test]
fn an_answer_is_found_by_its_calls_whatever_stands_between_them() {
    let result = |id: usize| json!({"type": "function_call_output", "call_id": format!("call_{id}"), "output": "ok"});
    let note = json!({"role": "developer", "content": "a note"});
    let (a, b) = (item(3, 1), item(3, 3));
    for items in [
        vec![a.clone(), b.clone(), result(3), result(1)],
        vec![a.clone(), result(1), b.clone(), result(3)],
        vec![a.clone(), note.clone(), b.clone(), result(1), result(3)],
    ] {
        let read = put_back_into(&items).unwrap_or_else(|| panic!("{items:?}"));
        let input = read["input"].as_array().unwrap();
        let at = |kind: &str| input.iter().position(|item| item["type"] == kind && item["call_id"] == "call_2");
        assert!(at("function_call").unwrap() < at("function_call_output").unwrap(), "{read}");
        let theirs: Vec<&Value> = input.iter().filter(|item| item["call_id"] != "call_2").collect();
        assert_eq!(theirs[1..theirs.len() - 1], items.iter().collect::<Vec<_>>());
    }
    assert_eq!(put_back_into(&[a, result(1)]), None, "another answer");
}

/// What the client gets of a stream of these events.
fn streamed(events: &[Value]) -> (Value, String) {
    let mut answer = Answer::new(Dialect::Responses, Form::Stream, Arc::from(["peek".to_owned()]));
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let mut out = answer.push(&body.into());
    assert!(matches!(answer.end(), Ending::Answered));
    out.extend(answer.finish());
    let text = utf8(&out.concat());
    let last = text.trim_end().rsplit_once("data: ").unwrap().1;
    (serde_json::from_str(last).unwrap(), text.clone())
}

#[test]
fn a_call_that_was_begun_and_never_done_is_not_shown_and_leaves_no_reasoning_behind() {
    let partial =
        json!({"type": "function_call", "id": "fc_3", "call_id": "call_3", "name": "peek", "arguments": "{\"a"});
    let output = [item(1, 1), item(0, 2), partial.clone()];
    let mut events = vec![json!({"type": "response.created", "response": response(&[], 0, "in_progress")})];
    for (index, item) in output.iter().enumerate() {
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
        if index < 2 {
            events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        }
    }
    for (kind, status) in [("response.incomplete", "incomplete"), ("response.completed", "completed")] {
        let end = json!({"type": kind, "response": response(&output, 0, status)});
        let (last, all) = streamed(&[&*events, &[end]].concat());
        assert_eq!(last["response"]["output"], json!([item(1, 1)]));
        assert!(!all.contains("peek"), "{all}");
    }
    // What stays in the middle keeps what follows it; where calls are put back, so does the last.
    let mut answer = Answer::new(Dialect::Responses, Form::Json, Arc::from(["peek".to_owned()]));
    answer.push(&response(&[item(0, 1), item(1, 2), item(0, 3), item(2, 4)], 0, "completed").to_string().into());
    assert!(matches!(answer.end(), Ending::Again(_)));
    let whole: Value = serde_json::from_slice(&answer.finish().concat()).unwrap();
    assert_eq!(whole["output"], json!([item(0, 1), item(1, 2), item(0, 3)]));
}

#[test]
fn tools_of_namespaces_are_told_apart() {
    let own = json!({"type": "function", "name": "peek"});
    let theirs = json!({"type": "namespace", "name": "peek", "tools": [{"type": "function", "name": "bash"}]});
    let mixed = json!({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "bash"}, own]});
    let alone = json!({"type": "namespace", "name": "m", "tools": [own]});
    let mut body = response(&[item(1, 1)], 0, "completed");
    body["tools"] = json!([own, theirs, mixed, alone]);
    let mut answer = Answer::new(Dialect::Responses, Form::Json, Arc::from(["peek".to_owned()]));
    answer.push(&body.to_string().into());
    answer.end();
    let whole: Value = serde_json::from_slice(&answer.finish().concat()).unwrap();
    let kept = json!({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "bash"}]});
    assert_eq!(whole["tools"], json!([theirs, kept]));
}

#[test]
fn reasoning_that_stands_last_at_the_limit_gets_its_call_back() {
    let mut answer = Answer::new(Dialect::Responses, Form::Json, Arc::from(["peek".to_owned()]));
    answer.push(&response(&[item(0, 1), item(2, 2)], 0, "completed").to_string().into());
    assert!(matches!(answer.end(), Ending::Again(_)));
    let not_run = OwnResult { text: "not run".into(), failed: true };
    let aside = answer.aside(&[vec![not_run]]).unwrap();
    let whole: Value = serde_json::from_slice(&answer.finish().concat()).unwrap();
    assert_eq!(whole["output"], json!([item(0, 1)]));
    let body = format!("{BASE},{},{{\"role\":\"user\",\"content\":\"go on\"}}]}}", item(0, 1));
    let memo = Memo::new(1 << 20);
    let conversation = crate::wire::read(Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap();
    let edits = conversation.put_back(0, &aside).unwrap();
    let back: Value = serde_json::from_slice(&splice(&Bytes::from(body.clone()), edits).unwrap().concat()).unwrap();
    assert_eq!((&back["input"][1], &back["input"][2]), (&item(0, 1), &item(2, 2)));
    assert_eq!(back["input"][3]["output"], "not run");
}
