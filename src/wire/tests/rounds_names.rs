//! By which names hidden calls stand in a history.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::wire::memo::Memo;
use crate::wire::splice::splice;

const DIALECTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
const WRITTEN: &str = "functions.read_evicted";
const CLIENTS: &str = "functions.execute";

/// One answer with these calls, as its provider writes it.
fn body(dialect: Dialect, form: Form, names: &[&str]) -> String {
    let calls = names.iter().enumerate();
    let sse = |events: Vec<Value>| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    match dialect {
        Dialect::Chat => {
            let calls: Vec<Value> = calls
                .map(|(n, name)| {
                    json!({"index": n, "id": format!("c{n}"), "type": "function", "function": {"name": name, "arguments": "{}"}})
                })
                .collect();
            let member = if form == Form::Stream { "delta" } else { "message" };
            let choice = json!({"index": 0, member: {"role": "assistant", "content": null, "tool_calls": calls}, "finish_reason": "tool_calls"});
            let whole = json!({"id": "a", "choices": [choice]});
            if form == Form::Stream { sse(vec![whole]) } else { whole.to_string() }
        }
        Dialect::Messages => {
            let used = |(n, name): (usize, &&str)| json!({"type": "tool_use", "id": format!("c{n}"), "name": name, "input": {}});
            if form == Form::Json {
                let content: Vec<Value> = calls.map(used).collect();
                return json!({"type": "message", "content": content, "stop_reason": "tool_use"}).to_string();
            }
            let block = |(n, name)| {
                let start = json!({"type": "content_block_start", "index": n, "content_block": used((n, name))});
                [start, json!({"type": "content_block_stop", "index": n})]
            };
            let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
            sse(calls.flat_map(block).chain([end, json!({"type": "message_stop"})]).collect())
        }
        Dialect::Responses => {
            let item = |(n, name): (usize, &&str)| json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("c{n}"), "name": name, "arguments": "{}"});
            let output: Vec<Value> = calls.clone().map(item).collect();
            let response = json!({"id": "r", "status": "completed", "store": false, "output": output});
            if form == Form::Json {
                return response.to_string();
            }
            let events = calls.flat_map(|(n, name)| {
                ["added", "done"].map(|kind| {
                    json!({"type": format!("response.output_item.{kind}"), "output_index": n, "item": item((n, name))})
                })
            });
            sse(events.chain([json!({"type": "response.completed", "response": response})]).collect())
        }
    }
}

/// The history goes to every provider again: the proxy's calls stand in it by the name of the offer, the client's own as
/// they were called.
#[test]
fn hidden_calls_stand_in_the_history_by_the_name_of_the_offer() {
    for (dialect, form) in DIALECTS.into_iter().flat_map(|dialect| [(dialect, Form::Stream), (dialect, Form::Json)]) {
        for names in [vec![WRITTEN], vec![CLIENTS, WRITTEN]] {
            let mut answer = Answer::new(dialect, form, ["read_evicted".to_owned()].into());
            let shown = answer.push(&body(dialect, form, &names).into()).concat();
            let (Ending::Again(round) | Ending::Handed(round)) = answer.end() else { panic!("{dialect:?} {form:?}") };
            let results = vec![vec![OwnResult { text: "r".to_owned(), failed: false }]];
            let aside = serde_json::to_string(&answer.aside(&results).unwrap()).unwrap();
            let shown = [shown, answer.finish().concat()].concat();
            assert_eq!(round.calls[0].name, "read_evicted", "{dialect:?} {form:?}");
            let turn = std::str::from_utf8(&round.turn).unwrap();
            for kept in [turn, &aside] {
                assert!(kept.contains("read_evicted") && !kept.contains(WRITTEN), "{dialect:?} {form:?} {kept}");
            }
            for seen in [turn, std::str::from_utf8(&shown).unwrap()] {
                assert_eq!(seen.contains(CLIENTS), names.len() > 1, "{dialect:?} {form:?} {seen}");
            }
        }
    }
}

/// L4: what went out once with the name as the model wrote it, as rows of older versions have it, goes out so again.
#[test]
fn what_was_kept_by_another_name_is_put_back_byte_for_byte() {
    for dialect in DIALECTS {
        let (call, result) = match dialect {
            Dialect::Chat => (
                format!(
                    r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"o","type":"function","function":{{"name":"{WRITTEN}","arguments":"{{}}"}}}}]}}"#
                ),
                r#"{"role":"tool","tool_call_id":"o","content":"r"}"#,
            ),
            Dialect::Messages => (
                format!(
                    r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"o","name":"{WRITTEN}","input":{{}}}}]}}"#
                ),
                r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"o","content":"r"}]}"#,
            ),
            Dialect::Responses => (
                format!(r#"{{"type":"function_call","call_id":"o","name":"{WRITTEN}","arguments":"{{}}"}}"#),
                r#"{"type":"function_call_output","call_id":"o","output":"r"}"#,
            ),
        };
        let items = format!("{call},{result}");
        let text = match dialect {
            Dialect::Chat => blake3::hash(b"said").into(),
            Dialect::Messages | Dialect::Responses => {
                let mut said = told::Said::default();
                said.add("said");
                said.digest()
            }
        };
        let insert = Insert { parts: 0, text: 0, calls: String::new(), items: items.clone() };
        // Where a round's turn and its results are apart, a row has them so.
        let inserts = match dialect {
            Dialect::Chat | Dialect::Responses => vec![insert],
            Dialect::Messages => {
                let calls = format!(r#"{{"type":"tool_use","id":"o","name":"{WRITTEN}","input":{{}}}}"#);
                let before = Insert { calls, items: String::new(), ..insert.clone() };
                vec![before, Insert { items: result.to_owned(), ..insert }]
            }
        };
        let aside = Aside { calls: vec![], text, inserts };
        let array = if dialect == Dialect::Responses { "input" } else { "messages" };
        let sent = format!(
            r#"{{"model":"m","{array}":[{{"role":"user","content":"do"}},{{"role":"assistant","content":"said"}},{{"role":"user","content":"on"}}]}}"#
        );
        let conversation = crate::wire::read(dialect, sent.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
        let edits = conversation.put_back(0, &aside).unwrap();
        let whole: Vec<Bytes> = splice(&Bytes::from(sent.clone()), edits).unwrap();
        let whole = String::from_utf8(whole.concat()).unwrap();
        assert!(whole.contains(&items), "{dialect:?} {whole}");
    }
}
