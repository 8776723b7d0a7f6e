//! Where an answer of several rounds is continued by id, and with what before the client's own input.

use serde_json::{Value, json};

use super::super::super::{Answer, Dialect, Ending, Form};
use super::super::tests::{item, response, stream};
use super::*;
use crate::wire::memo::Memo;
use crate::wire::splice::splice;

/// What is kept of an answer whose rounds have items of these kinds; the last one's calls are not run where nothing
/// else ends the answer.
fn alias(rounds: &[&[u8]], form: Form, more: Value) -> Option<(String, Alias)> {
    let mut answer = Answer::new(Dialect::Responses, form, ["peek".to_owned()].into());
    let mut results = Vec::new();
    for (nth, kinds) in rounds.iter().enumerate() {
        let items: Vec<Value> = kinds.iter().enumerate().map(|(k, kind)| item(*kind, nth * 10 + k)).collect();
        let mut whole = response(&items, nth, "completed");
        whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = if form == Form::Json { whole.to_string().into_bytes() } else { stream(&items, nth) };
        answer.push(&body.into());
        if let Ending::Again(round) | Ending::Handed(round) = answer.end() {
            results.push(vec![OwnResult { text: "found".into(), failed: false }; round.calls.len()]);
        }
        if nth + 1 < rounds.len() {
            answer.next_round();
        }
    }
    answer.alias(&results, Reach::Store)
}

#[test]
fn an_answer_is_continued_where_it_is_whole() {
    let (stored, waiting) =
        (json!({}), |id: &str| format!(r#"{{"type":"function_call_output","call_id":"{id}","output":"found"}}"#));
    let known = |shown: &str, id: &str, results: String| Some((shown.to_owned(), Alias { id: id.into(), results }));
    let both = |rounds: &[&[u8]]| [Form::Stream, Form::Json].map(|form| alias(rounds, form, stored.clone()));
    assert_eq!(both(&[&[1]]), [None, None], "nothing is hidden");
    assert_eq!(both(&[&[2], &[1]]), [known("resp_0", "resp_1", String::new()), None], "JSON shows the last id");
    let handed = known("resp_0", "resp_0", waiting("call_1"));
    assert_eq!(both(&[&[3, 2]]), [handed.clone(), handed], "a call of the client's beside it");
    let limit = |shown| known(shown, "resp_1", waiting("call_10"));
    assert_eq!(both(&[&[2], &[2]]), [limit("resp_0"), limit("resp_1")], "at the limit of rounds");
    assert_eq!(alias(&[&[3, 2]], Form::Json, json!({"store": false})), None, "nobody can continue it");
}

#[test]
fn results_stand_before_the_clients_own_input() {
    let whole = Alias { id: "r\"2".into(), results: String::new() };
    let waiting = Alias { results: "{\"o\":1}".into(), ..whole.clone() };
    for (body, alias, expected) in [
        (r#"{"previous_response_id":"r1", "input":"go"}"#, &whole, r#"{"previous_response_id":"r\"2", "input":"go"}"#),
        (
            r#"{"input" : [ {"role":"user","content":"go"}],"previous_response_id":"r1"}"#,
            &waiting,
            r#"{"input" : [{"o":1}, {"role":"user","content":"go"}],"previous_response_id":"r\"2"}"#,
        ),
        (
            r#"{"previous_response_id":"r1","input":"go"}"#,
            &waiting,
            r#"{"previous_response_id":"r\"2","input":[{"o":1},{"role":"user","content":"go"}]}"#,
        ),
        (
            r#"{"previous_response_id":"r1","input":[]}"#,
            &waiting,
            r#"{"previous_response_id":"r\"2","input":[{"o":1}]}"#,
        ),
    ] {
        let memo = Memo::new(1 << 20);
        let conversation = crate::wire::read(Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap();
        let edits = conversation.continued(alias).unwrap();
        let written = splice(&bytes::Bytes::from(body), edits).unwrap().concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}

#[test]
fn a_round_that_broke_off_leaves_the_one_before_waiting() {
    let mut answer = Answer::new(Dialect::Responses, Form::Stream, ["peek".to_owned()].into());
    answer.push(&stream(&[item(2, 0)], 0).into());
    assert!(matches!(answer.end(), Ending::Again(_)));
    let results = [vec![OwnResult { text: "found".into(), failed: false }]];
    answer.next_round();
    let begun = stream(&[item(1, 10)], 1);
    answer.push(&bytes::Bytes::copy_from_slice(&begun[..begun.len() / 2]));
    answer.break_off();
    let owed = r#"{"type":"function_call_output","call_id":"call_0","output":"found"}"#;
    let alias = Alias { id: "resp_0".into(), results: owed.into() };
    assert_eq!(answer.alias(&results, Reach::Store), Some(("resp_0".to_owned(), alias)));
}

#[test]
fn the_next_round_stands_behind_the_one_before() {
    for (body, expected) in [
        (r#"{"previous_response_id":"r1", "input":"go"}"#, r#"{"previous_response_id":"r2", "input":[{"o":1}]}"#),
        (
            r#"{"input":[{"role":"user","content":"go"}],"previous_response_id":null}"#,
            r#"{"input":[{"o":1}],"previous_response_id":"r2"}"#,
        ),
        (r#" { "store":false,"input":[]}"#, r#" {"previous_response_id":"r2", "store":false,"input":[{"o":1}]}"#),
    ] {
        let memo = Memo::new(1 << 20);
        let conversation = crate::wire::read(Dialect::Responses, body.as_bytes(), &memo, [0; 16]).unwrap();
        let edits = conversation.behind("r2", br#"{"o":1}"#).unwrap();
        let written = splice(&bytes::Bytes::from(body), edits).unwrap().concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
