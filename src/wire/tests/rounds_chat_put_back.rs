//! For all answers of rounds: what was hidden is put back where it was, and the history is valid.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Answer, Ending, Form, Offer};
use super::scripts::{Had, Script, expected, run, scripts, styles};
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Conversation, Dialect};

fn read<'b>(memo: &Memo, body: &'b [u8]) -> Conversation<'b> {
    crate::wire::read(Dialect::Chat, body, memo, [0; 16]).unwrap()
}

fn memo() -> Memo {
    Memo::new(1 << 20)
}

/// The history of a client that had `had`, up to a next message of the user's.
fn history(had: &Had) -> Bytes {
    let mut answer = json!({"role": "assistant", "content": had.text});
    if !had.thoughts.is_empty() {
        answer["reasoning_content"] = json!(had.thoughts);
    }
    let mut messages = vec![json!({"role": "user", "content": "do"})];
    if !had.calls.is_empty() {
        answer["tool_calls"] = had
            .calls
            .iter()
            .map(|(id, name, arguments)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
            .collect();
    }
    messages.push(answer);
    messages.extend(had.calls.iter().map(|(id, ..)| json!({"role": "tool", "tool_call_id": id, "content": "done"})));
    messages.push(json!({"role": "user", "content": "go on"}));
    json!({"messages": messages}).to_string().into()
}

/// C1 and C2, and that no message is empty.
fn check(messages: &[Value]) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match message["tool_call_id"].as_str() {
            Some(id) => {
                let at = open.iter().position(|call| *call == id).unwrap_or_else(|| panic!("{id} answers nothing"));
                open.remove(at);
            }
            None => assert!(open.is_empty(), "{open:?} are not answered before {message}"),
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open.extend(calls.map(|call| call["id"].as_str().unwrap()));
    }
    assert!(open.is_empty(), "{open:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_hidden_is_put_back(scripts in scripts(), style in styles(), stream in any::<bool>()) {
        let form = if stream { Form::Stream } else { Form::Json };
        let run = run(&scripts, form, &style, Vec::new());
        let had = expected(&scripts, &style);
        let Some(aside) = run.asides else {
            prop_assert!(run.rounds.is_empty());
            return Ok(());
        };
        let body = history(&had);
        let memo = memo();
        let edits = read(&memo, &body).put_back(0, &aside).unwrap();
        let whole: Bytes = splice(&body, edits).unwrap().concat().into();
        let text = std::str::from_utf8(&whole).unwrap();
        // Byte for byte what the provider saw while the rounds ran; but where nothing follows them, the client's message
        // keeps their text, so that it is not empty.
        let follows = !had.calls.is_empty() || !scripts.last().unwrap().texts.concat().trim().is_empty();
        let first = br#"{"messages":[{"content":"do","role":"user"}"#.to_vec();
        let again = run.rounds.iter().take(run.rounds.len() - usize::from(run.handed));
        let sent = again.fold(first, |sent, (turn, results)| [&sent, &b","[..], turn, b",", results].concat());
        prop_assert!(!follows || whole.starts_with(&sent), "{} is no beginning of {text}", String::from_utf8_lossy(&sent));
        let messages: Value = serde_json::from_slice(&whole).unwrap();
        let messages = messages["messages"].as_array().unwrap();
        check(messages);
        let said: String = messages.iter().filter(|m| m["role"] == "assistant").filter_map(|m| m["content"].as_str()).collect();
        prop_assert_eq!(said.trim(), had.text.trim());
        let thought: String = messages.iter().filter_map(|m| m["reasoning_content"].as_str()).collect();
        prop_assert_eq!(thought, had.thoughts);
        let calls = messages.iter().flat_map(|m| m["tool_calls"].as_array().into_iter().flatten());
        let names: Vec<&str> = calls.map(|call| call["function"]["name"].as_str().unwrap()).collect();
        let rounds = scripts.iter().take(run.rounds.len().max(scripts.len() - 1));
        let asked = rounds.chain(scripts.last().filter(|_| !run.handed && scripts.len() > run.rounds.len()));
        let asked: Vec<String> = asked.flat_map(|script| script.calls.iter().map(|(name, _)| name.clone())).collect();
        let hidden_at_last = !run.handed && had.calls.is_empty();
        let last = if hidden_at_last { scripts.last().unwrap().calls.len() } else { 0 };
        prop_assert_eq!(names.len(), asked.len() - last);
        // The same once more, with the client's own bytes read afresh.
        prop_assert_eq!(splice(&body, read(&self::memo(), &body).put_back(0, &aside).unwrap()).unwrap().concat(), whole);
    }

    #[test]
    fn another_answer_at_the_same_place_gets_nothing(scripts in scripts()) {
        let style = Default::default();
        let run = run(&scripts, Form::Stream, &style, Vec::new());
        let Some(aside) = run.asides else { return Ok(()) };
        let mut had = expected(&scripts, &style);
        had.text.push_str("edited");
        let body = history(&had);
        let memo = memo();
        prop_assert_eq!(read(&memo, &body).put_back(0, &aside), None);
        prop_assert_eq!(read(&memo, &body).put_back(1, &aside), None);
        prop_assert_eq!(read(&memo, &body).put_back(9, &aside), None);
    }
}

#[test]
fn clients_that_trim_or_drop_text_are_known() {
    let script = |texts: &[&str], calls: &[&str]| Script {
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        calls: calls.iter().map(|name| ((*name).to_owned(), vec!["{}".to_owned()])).collect(),
        ..Script::default()
    };
    let style = Default::default();
    let scripts = [script(&["\nfirst "], &["read_evicted"]), script(&[" second\n"], &["bash"])];
    let aside = run(&scripts, Form::Stream, &style, Vec::new()).asides.unwrap();
    for (text, rest) in [("\nfirst  second\n", " second\n"), ("first  second", " second"), ("", "")] {
        let had = Had { text: text.to_owned(), ..expected(&scripts, &style) };
        let (body, memo) = (history(&had), memo());
        let edits = read(&memo, &body).put_back(0, &aside).unwrap();
        let whole: Value = serde_json::from_slice(&splice(&body, edits).unwrap().concat()).unwrap();
        assert_eq!(whole["messages"][1]["content"], "\nfirst ");
        assert_eq!(whole["messages"][3]["content"], rest);
    }
}

#[test]
fn tools_are_offered_behind_the_clients_own_where_the_model_may_choose() {
    let offer = Offer { name: "read_evicted".into(), description: "d".into(), parameters: json!({"type": "object"}) };
    let with = |more: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"x"}}],"tools":[{{"type":"function","function":{{"name":"a"}}}}]{more}}}"#
        )
    };
    let body = Bytes::from(with(""));
    let memo = memo();
    let conversation = read(&memo, &body);
    assert!(conversation.may_offer(1) && conversation.may_offer(127) && !conversation.may_offer(128));
    assert_eq!(conversation.declared(), ["a"]);
    let edit = conversation.offer(std::slice::from_ref(&offer)).unwrap();
    let whole: Value = serde_json::from_slice(&splice(&body, vec![edit]).unwrap().concat()).unwrap();
    assert_eq!(
        whole["tools"][1]["function"],
        json!({"name": "read_evicted", "description": "d", "parameters": {"type": "object"}})
    );
    for more in
        [r#","tool_choice":"auto""#, r#","n":1"#, r#","response_format":{"type":"text"}"#, r#","tool_choice":null"#]
    {
        assert!(read(&memo, with(more).as_bytes()).may_offer(1), "{more}");
    }
    for more in [
        r#","tool_choice":"none""#,
        r#","tool_choice":"required""#,
        r#","n":2"#,
        r#","functions":[]"#,
        r#","tool_choice":{"type":"function","function":{"name":"a"}}"#,
        r#","response_format":{"type":"json_object"}"#,
    ] {
        assert!(!read(&memo, with(more).as_bytes()).may_offer(1), "{more}");
    }
}

/// Some servers give the calls of one answer the same id.
#[test]
fn calls_of_a_whole_answer_are_told_apart_by_their_places() {
    let own: std::sync::Arc<[String]> = ["read_evicted".to_owned()].into();
    let call = |name: &str, given: &str| json!({"id": "c", "type": "function", "function": {"name": name, "arguments": given}});
    let (ours, theirs) = (call("read_evicted", "{\"id\":1}"), call("bash", "{}"));
    for calls in [json!([ours, theirs]), json!([theirs, ours])] {
        let body = json!({"choices": [{"index": 0, "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": null, "tool_calls": calls}}]});
        let mut answer = Answer::new(Dialect::Chat, Form::Json, own.clone());
        answer.push(&Bytes::from(body.to_string()));
        let Ending::Handed(round) = answer.end() else { panic!("the client's call waits") };
        let [run] = &*round.calls else { panic!("{round:?}") };
        assert_eq!((&*run.name, &*run.arguments), ("read_evicted", "{\"id\":1}"));
        let shown: Value = serde_json::from_slice(&answer.finish().concat()).unwrap();
        assert_eq!(shown["choices"][0]["message"]["tool_calls"], json!([theirs]));
    }
}
