//! Conversations that went on by id, and whose client then sends all of the history (as after a reconnect): what it never
//! saw is put back as in one that was always sent whole.

use serde_json::{Value, json};

use super::by_id::{RESPONSES, Stand, TURNS, Turn, WAYS, Way, calling, result};
use super::continued::user;
use super::*;

/// How a client writes down what it was answered.
#[derive(Debug, Clone, Copy)]
enum Spelling {
    AsItCame,
    /// As Codex does.
    WithoutIds,
}

fn spelt(items: &[Value], spelling: Spelling) -> Vec<Value> {
    let mut items = items.to_vec();
    if matches!(spelling, Spelling::WithoutIds) {
        items.retain(|item| item["type"] != "reasoning");
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.retain(|key, _| !matches!(key.as_str(), "id" | "status"));
        }
    }
    items
}

/// Ids of the hidden calls and of their results in a request, in order.
fn hidden(body: &Value) -> Vec<String> {
    let ids = body["input"].as_array().into_iter().flatten().filter_map(|item| item["call_id"].as_str());
    ids.filter(|id| id.starts_with("own_")).map(str::to_owned).collect()
}

async fn retold(turn: &Turn, way: Way, spelling: Spelling) {
    let mut steps = vec![calling()];
    steps.extend((turn.steps)());
    let stand = Stand::new(way, &sections(""), steps).await;
    let mut history = vec![user("Begin.")];
    let (had, first) = stand.ask(&stand.body(None, json!("Begin."))).await;
    history.extend(spelt(&had.items, spelling));
    history.push(result("call_0", &long()));
    let (had, second) = stand.ask(&stand.body(Some(&first), json!([result("call_0", &long())]))).await;
    history.extend(spelt(&had.items, spelling));
    let mut input: Vec<Value> = turn.calls.iter().map(|call| result(call, "done")).collect();
    input.push(user("Go on."));
    let (had, _) = stand.ask(&stand.body(Some(&second), json!(input))).await;
    history.extend(input);
    history.extend(spelt(&had.items, spelling));
    let by_id: Vec<String> = stand.sent().iter().flat_map(hidden).collect();
    let calls = by_id.len();
    assert!(calls > 0, "the results at least");
    let before = stand.sent().len();
    for question in ["All of it.", "And on."] {
        history.push(user(question));
        let (had, _) = stand.ask(&stand.body(None, json!(history))).await;
        history.extend(spelt(&had.items, spelling));
    }
    let whole = stand.sent().split_off(before);
    assert_eq!(hidden(&whole[0]).len(), 2 * calls, "{} {way:?} {spelling:?}: {}", turn.name, whole[0]);
    assert_eq!(whole[0]["tools"], stand.sent()[1]["tools"], "the tools that were there");
    let names = RESPONSES.called(&whole[0], 0);
    assert!(names.iter().all(|name| ["execute", "read_evicted"].contains(&name.as_str())), "{names:?}");
    let sent: Vec<String> =
        attempts(&stand.provider).iter().skip(before).map(|exchange| RESPONSES.sent(&exchange.body)).collect();
    assert_one_grows_from_the_other(&sent);
    assert_unhurt(&stand.provider);
}

#[tokio::test]
async fn what_was_hidden_by_id_is_put_back_into_a_history_that_is_sent_whole() {
    for way in WAYS {
        for turn in TURNS.iter().filter(|turn| turn.name != "client's alone") {
            retold(turn, way, Spelling::WithoutIds).await;
        }
    }
}

#[tokio::test]
async fn the_answers_may_stand_there_as_they_came() {
    for turn in TURNS.iter().filter(|turn| !matches!(turn.name, "client's alone" | "own after thinking")) {
        retold(turn, Way::Whole, Spelling::AsItCame).await;
    }
}

/// Of another conversation that begins alike nothing is put back.
#[tokio::test]
async fn another_history_gets_nothing_of_it() {
    let steps = vec![calling(), step(|request| says("", vec![own(request, 1)])), found()];
    let stand = Stand::new(Way::Whole, &sections(""), steps).await;
    let (first, id) = stand.ask(&stand.body(None, json!("Begin."))).await;
    let (second, _) = stand.ask(&stand.body(Some(&id), json!([result("call_0", &long())]))).await;
    let told = |result: Value, answer: &str| {
        let mut items = vec![user("Begin.")];
        items.extend(spelt(&first.items, Spelling::WithoutIds));
        items.push(result);
        items.push(json!({"role": "assistant", "content": answer}));
        items.push(user("Go on."));
        json!(items)
    };
    for (items, known) in [
        (told(result("call_0", &long()), &second.text), true),
        (told(result("call_0", &long()), "It is 0815."), false),
        (told(result("call_0", "short"), &second.text), false),
    ] {
        stand.ask(&stand.body(None, items)).await;
        assert_eq!(hidden(&stand.sent().pop().unwrap()).is_empty(), !known);
    }
    assert_unhurt(&stand.provider);
}
