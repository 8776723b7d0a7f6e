//! Conversations that go on by id: rounds that fail, providers that refuse, answers that are not kept, and who sees what.

use std::sync::{Arc, Mutex};

use compactproxy::demo::script::error;
use serde_json::json;

use super::by_id::{OWN, Stand, WAYS, Way, calling, result};
use super::continued::user;
use crate::support::chat::{attempts, words};
use crate::support::dialects::Responses;

use super::*;

const RESPONSES: &dyn Dialect = &Responses;

#[tokio::test]
async fn a_round_that_fails_by_id_gives_way_to_the_clients_own_request() {
    for (way, said, expected) in [
        (Way::Stream, "", "Without."),
        (Way::Whole, "Look. ", "Without."),
        (Way::Stream, "Look. ", "Look. "),
        (Way::Socket, "", "Without."),
        (Way::Socket, "Look. ", "Look. "),
    ] {
        let steps = vec![
            calling(),
            step(move |request| says(said, vec![own(request, 1)])),
            step(|_| RESPONSES.broken("out of order")),
            step(|_| says("Without.", vec![])),
        ];
        let stand = Stand::new(way, &sections(""), steps).await;
        let (had, last) = stand.begun().await;
        assert_eq!((had.text.as_str(), had.waits), (expected, false));
        let (had, _) = stand.ask(&stand.body(Some(&last), json!("Go on."))).await;
        assert_eq!(had.text, if expected == "Without." { "Done." } else { "Without." });
        // The call that was shown nothing of is answered where it was left.
        let sent = stand.sent().pop().unwrap().to_string();
        assert_eq!(sent.contains(NEEDLE), expected == "Look. ", "{sent}");
        assert_eq!(stand.provider.violations(), []);
    }
}

/// Of a round that breaks off its provider has nothing: the one before goes on, with what its call found.
#[tokio::test]
async fn an_answer_that_broke_off_in_a_later_round_goes_on_where_it_was_whole() {
    let steps = vec![
        calling(),
        step(|request| says("Look. ", vec![own(request, 1)])),
        step(|_| Reply::CutOff { answer: Answer::text("Found."), after: 4 }),
        step(|request| says(if request.body.to_string().contains(NEEDLE) { "4711." } else { "?" }, vec![])),
    ];
    let stand = Stand::new(Way::Stream, &sections(""), steps).await;
    let (_, first) = stand.ask(&stand.body(None, json!("Begin."))).await;
    let seen = stand.broken(&stand.body(Some(&first), json!([result("call_0", &long())]))).await;
    let (had, _) = stand.ask(&stand.body(Some(&seen), json!("Go on."))).await;
    assert_eq!(had.text, "4711.");
    assert_eq!(stand.provider.violations(), []);
}

#[tokio::test]
async fn rounds_end_by_id() {
    for way in WAYS {
        let mut steps = vec![calling()];
        steps.extend((0..9).map(|n| step(move |request| says(&format!("{n} "), vec![own(request, n)]))));
        let stand = Stand::new(way, &sections("max_rounds = 3\n"), steps).await;
        let (had, last) = stand.begun().await;
        assert_eq!((had.text.as_str(), had.waits, had.calls.len()), ("0 1 2 ", false, 0));
        assert_eq!(stand.sent().len(), 4);
        assert_usage(&had, &attempts(&stand.provider)[1..]);
        let (had, _) = stand.ask(&stand.body(Some(&last), json!("Go on."))).await;
        assert_eq!((had.text.as_str(), stand.sent().len()), ("3 4 5 ", 7));
        assert!(stand.sent()[4]["input"][0]["output"].as_str().unwrap().contains("not run"));
        assert_eq!(stand.provider.violations(), []);
    }
}

/// A chain that overflows in a later round begins anew with all of its history compacted, the round's call with it.
#[tokio::test]
async fn an_overflow_of_a_later_round_by_id_is_recovered() {
    for way in WAYS {
        let steps = vec![
            calling(),
            step(|_| says("Seen.", vec![])),
            step(|request| says("", vec![own(request, 1)])),
            step(|_| RESPONSES.too_long()),
            step(|request| says(if told(request) { "It is 4711." } else { "?" }, vec![])),
        ];
        let stand = Stand::new(way, &format!("{}[compaction]\nkeep_tokens = 2000\n", sections("")), steps).await;
        let (_, seen) = stand.begun().await;
        let (had, last) = stand.ask(&stand.body(Some(&seen), json!(words(3, 4_000)))).await;
        assert_eq!(had.text, "It is 4711.");
        let sent = stand.sent();
        assert_eq!((sent[4].get("previous_response_id"), sent.len()), (None, 5), "{}", sent[4]);
        assert!(sent[4]["input"].to_string().contains(NEEDLE));
        let (had, _) = stand.ask(&stand.body(Some(&last), json!("Go on."))).await;
        assert_eq!(had.text, "Done.");
        assert_eq!(stand.offered(), [0, 1, 1, 1, 1, 1]);
        assert_unhurt(&stand.provider);
    }
}

/// Recovery's own removals bring the tool into a chain that had none.
#[tokio::test]
async fn the_tool_comes_with_what_recovery_removes_by_id() {
    for way in WAYS {
        let mut steps: Vec<Step> = (0..6).map(|_| step(|_| says("Noted.", vec![]))).collect();
        steps.push(step(|_| RESPONSES.too_long()));
        steps.push(step(|request| says("", vec![own(request, 1)])));
        steps.push(step(|_| says("Read.", vec![])));
        let mut stand = Stand::new(way, "[compaction]\nkeep_tokens = 2000\n[tools]\n", steps).await;
        let (_, mut last) = stand.ask(&stand.body(None, json!("Begin."))).await;
        for turn in 0..5 {
            (_, last) = stand.ask(&stand.body(Some(&last), json!(words(turn, 1_500)))).await;
        }
        let (had, last) = stand.ask(&stand.body(Some(&last), json!("And now?"))).await;
        assert_eq!(had.text, "Read.");
        assert_eq!(stand.offered(), [vec![0; 7], vec![1; 2]].concat());
        stand.restart().await;
        stand.ask(&stand.body(Some(&last), json!("Go on."))).await;
        assert_eq!(stand.offered().pop(), Some(1));
        assert_eq!(stand.provider.violations(), []);
    }
}

#[tokio::test]
async fn a_provider_that_takes_no_more_tools_by_id_gets_none() {
    let taking = |said: &'static str| {
        step(move |request: &ModelRequest| match request.tools().len() {
            1 => says(said, vec![]),
            _ => error(400, "unknown tool", "invalid_request_error", "x"),
        })
    };
    let steps = (0..9).map(|_| taking("Fine.")).collect();
    let stand = Stand::new(Way::Whole, &sections("inject = \"always\"\n"), steps).await;
    let (_, mut last) = stand.ask(&stand.body(None, json!("Begin."))).await;
    let mut asked = Vec::new();
    for turn in 0..3 {
        (_, last) = stand.ask(&stand.body(Some(&last), json!(format!("Go on, {turn}.")))).await;
        asked.push(stand.sent().len());
    }
    // At the beginning, and once more where the chain has an id.
    assert_eq!(asked, [4, 5, 6]);
    assert_eq!(stand.offered(), [1, 0, 1, 0, 0, 0]);
}

/// Behind an answer that is kept, one that is not: nobody can continue it, and its client sends what came of it.
#[tokio::test]
async fn an_answer_that_is_not_kept_behind_one_that_is() {
    for way in WAYS {
        let steps = vec![
            calling(),
            step(|_| says("Seen.", vec![])),
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|request| says("It is 4711.", vec![own(request, 2), clients(7)])),
        ];
        let stand = Stand::new(way, &sections(""), steps).await;
        let (_, seen) = stand.begun().await;
        let mut body = stand.body(Some(&seen), json!([user("Which code?")]));
        body["store"] = json!(false);
        let (had, _) = stand.ask(&body).await;
        assert_eq!((had.text.as_str(), had.calls.len()), ("Look. It is 4711.", 1));
        let next = RESPONSES.went_on(&body, &had);
        stand.ask(&next).await;
        let sent = stand.sent();
        // On a connection there is the answer before, too.
        let rounds = if way == Way::Socket { 4.. } else { 2.. };
        assert!(sent[rounds].iter().all(|body| body["previous_response_id"] == seen), "{sent:?}");
        let names = |body: &Value| RESPONSES.called(body, 0);
        assert_eq!(names(&sent[4]), ["read_evicted", "read_evicted", "execute"]);
        assert_unhurt(&stand.provider);
    }
}

/// Two conversations with the same words behind different answers: what was hidden in one is not put into the other.
#[tokio::test]
async fn the_same_words_behind_another_answer_are_another_history() {
    let reading = || vec![step(|request| says("", vec![own(request, 1)])), step(|_| says("Yes.", vec![]))];
    let mut steps = vec![calling(), step(|_| says("Seen.", vec![])), step(|_| says("Else.", vec![]))];
    steps.extend(reading());
    let stand = Stand::new(Way::Whole, &sections(""), steps).await;
    let (_, seen) = stand.begun().await;
    let (_, other) = stand.ask(&stand.body(None, json!("Something else."))).await;
    let unkept = |previous: &Value| {
        let mut body = stand.body(Some(previous), json!([user("Is it there?")]));
        body["store"] = json!(false);
        body
    };
    let body = unkept(&seen);
    let (had, _) = stand.ask(&body).await;
    let theirs = RESPONSES.went_on(&unkept(&other), &had);
    stand.ask(&theirs).await;
    assert!(!stand.sent().pop().unwrap().to_string().contains("own_"), "another's");
    stand.ask(&RESPONSES.went_on(&body, &had)).await;
    assert!(stand.sent().pop().unwrap().to_string().contains("own_"), "its own");
    assert_eq!(stand.provider.violations(), []);
}

/// The session tools see the conversation that a request continues, not that alone which it says itself.
#[tokio::test]
async fn session_tools_by_id_see_all_of_the_chain() {
    let said = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&said);
    let asking = |name: &'static str| {
        step(move |_| {
            let arguments = json!({"query": "heron nests"}).to_string();
            says("", vec![ToolCall { id: "own_1".to_owned(), name: name.to_owned(), arguments }])
        })
    };
    let steps = vec![
        step(|_| says("Noted.", vec![])),
        step(|_| says("Noted.", vec![])),
        asking("session_search"),
        step(move |request| {
            *heard.lock().unwrap() = request.messages().last().unwrap().to_string();
            says("There.", vec![])
        }),
    ];
    let stand = Stand::new(Way::Whole, &format!("{}[sessions]\n", sections("inject = \"always\"\n")), steps).await;
    let (_, first) = stand.ask(&stand.body(None, json!("The heron nests in April."))).await;
    let (_, second) = stand.ask(&stand.body(Some(&first), json!("Go on."))).await;
    stand.logged().await;
    stand.ask(&stand.body(Some(&second), json!("When?"))).await;
    assert!(said.lock().unwrap().contains("in April"), "{}", said.lock().unwrap());
}

/// A turn of a fixed format has no tools; the next one has those of before.
#[tokio::test]
async fn a_turn_without_tools_in_between_is_passed_over() {
    let stand = Stand::new(Way::Whole, &sections(""), vec![calling()]).await;
    let (_, seen) = stand.begun().await;
    let mut formatted = stand.body(Some(&seen), json!("As JSON."));
    formatted["text"] = json!({"format": {"type": "json_object"}});
    let (_, told) = stand.ask(&formatted).await;
    stand.ask(&stand.body(Some(&told), json!("Go on."))).await;
    assert_eq!(stand.offered(), [0, 1, 0, 1]);
    assert_eq!(stand.provider.violations(), []);
    let named = |body: &Value| body["tools"].to_string().contains(OWN);
    assert!(stand.sent().last().is_some_and(named));
}
