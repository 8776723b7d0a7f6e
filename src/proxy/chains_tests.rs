//! Turns are found in their order, by their tenant, and within the cap.

use serde_json::json;

use super::*;
use crate::wire::memo::Memo;
use crate::wire::{Dialect, read};

const MINE: Tenant = Tenant([1; 16]);
const OTHERS: Tenant = Tenant([2; 16]);

/// Records a turn that says `text`.
fn turn(chains: &Arc<Chains>, (previous, id): (Option<&str>, &str), text: &str) -> bool {
    let mut body = json!({"model": "m", "input": [{"role": "user", "content": text}]});
    if let Some(previous) = previous {
        body["previous_response_id"] = json!(previous);
    }
    let body = body.to_string();
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let Some(mut recorder) = chains.record(MINE, &conversation, Beginning::New) else { return false };
    let response = json!({"id": id, "output": [{"type": "message", "role": "assistant", "content": text}]}).to_string();
    let (first, rest) = response.as_bytes().split_at(7);
    recorder.see(first);
    recorder.see(rest);
    true
}

#[test]
fn a_chain_is_whole_from_its_beginning_and_its_tenants_own() {
    let chains = Arc::new(Chains::default());
    assert!(turn(&chains, (None, "a"), "one"));
    assert!(turn(&chains, (Some("a"), "b"), "two"));
    assert!(!turn(&chains, (Some("unseen"), "c"), "three"));
    let history = chains.history(MINE, "b").unwrap();
    let items: Vec<&[u8]> = history.iter().map(|items| &**items).collect();
    let text = String::from_utf8(items.join(&b","[..])).unwrap();
    let order: Vec<usize> = ["one", "two"].iter().flat_map(|word| text.match_indices(word)).map(|(at, _)| at).collect();
    assert_eq!((history.len(), order.len(), order.is_sorted()), (4, 4, true), "{text}");
    assert_eq!(chains.history(OTHERS, "b"), None);
    assert_eq!(chains.history(MINE, "c"), None);
    let whole = |tenant, id| chains.is_whole(tenant, id);
    assert!(whole(MINE, "a") && whole(MINE, "b") && !whole(MINE, "c") && !whole(OTHERS, "b"));
}

#[test]
fn a_fork_continues_from_where_it_left() {
    let chains = Arc::new(Chains::default());
    turn(&chains, (None, "a"), "one");
    turn(&chains, (Some("a"), "b"), "two");
    turn(&chains, (Some("a"), "b2"), "other");
    assert_eq!(chains.history(MINE, "b2").unwrap().len(), 4);
}

#[test]
fn what_was_used_last_stays_within_the_cap() {
    let chains = Arc::new(Chains::default());
    turn(&chains, (None, "kept"), "x");
    for n in 0..40 {
        turn(&chains, (None, &format!("r{n}")), &"y".repeat(600_000));
        assert!(chains.history(MINE, "kept").is_some(), "{n}");
        assert!(chains.bytes() <= MAX_BYTES);
    }
    assert!(chains.history(MINE, "r0").is_none() && chains.history(MINE, "r39").is_some());
}

#[test]
fn a_client_that_sends_its_whole_history_is_not_recorded_except_on_a_socket() {
    let chains = Arc::new(Chains::default());
    let answer = json!({"role": "assistant", "id": "msg_1", "content": "y"});
    let body = json!({"input": [{"role": "user", "content": "x"}, answer]}).to_string();
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    assert!(chains.record(MINE, &conversation, Beginning::New).is_none());
    assert!(chains.record(MINE, &conversation, Beginning::Any).is_some());
}

#[test]
fn a_chain_may_begin_with_examples() {
    let chains = Arc::new(Chains::default());
    let example = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]);
    let body = json!({ "input": example }).to_string();
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    assert!(chains.record(MINE, &conversation, Beginning::New).is_some());
}

/// Who has the last event may go on over another connection before the body ends.
#[test]
fn a_response_is_recorded_when_its_last_event_has_come() {
    let chains = Arc::new(Chains::default());
    let body = json!({"input": "x"}).to_string();
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    let mut recorder = chains.record(MINE, &conversation, Beginning::New).unwrap();
    recorder.see(b"data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n");
    assert!(!chains.is_whole(MINE, "r"));
    recorder.see(b"data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"output\":[]}}\n\n");
    assert!(chains.is_whole(MINE, "r"));
    let mut recorder = chains.record(MINE, &conversation, Beginning::New).unwrap();
    recorder.see(b"{\"id\":\"whole\",\"output\":[]}\n");
    assert!(chains.is_whole(MINE, "whole"));
}

/// L7: who fills the memory loses what is its own.
#[test]
fn one_tenant_pushes_no_other_out() {
    let chains = Arc::new(Chains::default());
    let body = |size: usize| json!({"input": "y".repeat(size)}).to_string();
    let record = |tenant, id: &str, size| {
        let body = body(size);
        let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
        let mut recorder = chains.record(tenant, &conversation, Beginning::New).unwrap();
        recorder.see(json!({"id": id, "output": []}).to_string().as_bytes());
    };
    record(OTHERS, "others", 1_000_000);
    for n in 0..60 {
        record(MINE, &format!("r{n}"), 600_000);
        assert!(chains.bytes() <= MAX_BYTES);
    }
    assert!(chains.is_whole(OTHERS, "others") && chains.is_whole(MINE, "r59") && !chains.is_whole(MINE, "r0"));
    // Both fill it: each keeps half.
    for n in 0..60 {
        record(OTHERS, &format!("o{n}"), 600_000);
    }
    let kept = |tenant, of: &str| (0..60).filter(|n| chains.is_whole(tenant, &format!("{of}{n}"))).count();
    let (mine, others) = (kept(MINE, "r"), kept(OTHERS, "o"));
    assert!(mine >= 10 && others >= 10 && mine + others <= 27, "{mine} {others}");
}

#[test]
fn a_response_over_the_cap_and_one_that_broke_off_are_not_recorded() {
    let chains = Arc::new(Chains::default());
    let body = json!({"input": "x"}).to_string();
    let conversation = read(Dialect::Responses, body.as_bytes(), &Memo::new(0), [0; 16]).unwrap();
    for (id, text, rest) in [("long", "z".repeat(MAX_RESPONSE), "\"}]}"), ("broken", "z".to_owned(), "")] {
        let mut recorder = chains.record(MINE, &conversation, Beginning::New).unwrap();
        recorder.see(format!(r#"{{"id":"{id}","output":[{{"type":"message","content":"{text}{rest}"#).as_bytes());
        drop(recorder);
        assert!(!chains.is_whole(MINE, id) && chains.history(MINE, id).is_none(), "{id}");
    }
}

/// L7, L8: it would take the place of all others', and be held beside the cap on buffered bodies.
#[test]
fn a_request_over_the_cap_of_a_turn_is_not_recorded_and_others_stay() {
    let chains = Arc::new(Chains::default());
    assert!(turn(&chains, (None, "others"), "x"));
    for bytes in [MAX_INPUT + 1, MAX_BYTES + 1] {
        assert!(!turn(&chains, (None, "huge"), &"y".repeat(bytes)));
        assert!(!chains.is_whole(MINE, "huge") && chains.is_whole(MINE, "others"));
    }
}
