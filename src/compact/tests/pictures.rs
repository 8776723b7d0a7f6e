use std::sync::Arc;

use serde_json::{Value, json};

use crate::compact::render::render;
use crate::compact::rows::{Head, Known, Level};
use crate::compact::{Change, Checkpoint, pictures};
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Dialect, read};

/// The array and a turn of a session in each dialect: a user's message with words and a picture, an answer.
fn turn(dialect: Dialect, n: usize, marked: bool) -> [Value; 2] {
    let words = format!("Look {n}.");
    match dialect {
        Dialect::Chat => {
            let picture =
                json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{n}AAA") } });
            let content = json!([{ "type": "text", "text": words }, picture]);
            [json!({ "role": "user", "content": content }), json!({ "role": "assistant", "content": "Seen." })]
        }
        Dialect::Responses => {
            let picture = json!({ "type": "input_image", "image_url": format!("data:image/png;base64,{n}AAA") });
            let content = json!([{ "type": "input_text", "text": words }, picture]);
            let answer = json!([{ "type": "output_text", "text": "Seen." }]);
            [
                json!({ "type": "message", "role": "user", "content": content }),
                json!({ "type": "message", "role": "assistant", "content": answer }),
            ]
        }
        Dialect::Messages => {
            let source = json!({ "type": "base64", "media_type": "image/png", "data": format!("{n}AAA") });
            let mut picture = json!({ "type": "image", "source": source });
            if marked {
                picture["cache_control"] = json!({ "type": "ephemeral" });
            }
            let content = json!([{ "type": "text", "text": words }, picture]);
            [json!({ "role": "user", "content": content }), json!({ "role": "assistant", "content": "Seen." })]
        }
    }
}

fn body(dialect: Dialect, items: usize, marked: usize) -> Vec<u8> {
    let all: Vec<Value> = (0..items.div_ceil(2)).flat_map(|n| turn(dialect, n, n == marked)).take(items).collect();
    let mut body = json!({ "model": "m", "max_tokens": 9 });
    body[dialect.array()] = all.into();
    body.to_string().into_bytes()
}

fn folded(upto: usize, asks: bool) -> Known {
    let head = Head { upto, text: "what was said".into(), asks, ..Head::default() };
    let checkpoint =
        Checkpoint { level: Level::Fold, covers: upto, head: Some(head), edits: Vec::new(), tokens: Change::default() };
    Known { active: Some(Arc::new(checkpoint)), ..Known::default() }
}

fn rendered(dialect: Dialect, body: &[u8], known: &Known) -> Vec<Value> {
    let conversation = read(dialect, body, &Memo::new(0), [0; 16]).unwrap();
    let edits = render(&conversation, known).edits;
    let sent: Value = serde_json::from_slice(&splice(&body.to_vec().into(), edits).unwrap().concat()).unwrap();
    sent[dialect.array()].as_array().unwrap().clone()
}

/// What the last message shows stays with what it says, and no older picture does.
#[test]
fn a_fold_keeps_the_pictures_of_what_is_asked() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let sent = rendered(dialect, &body(dialect, 5, 2), &folded(5, true));
        assert_eq!((sent.len(), &sent[0]["role"]), (1, &json!("user")));
        let [text, picture] = &sent[0]["content"].as_array().unwrap()[..] else { panic!("{sent:?}") };
        assert_eq!(text["text"], "what was said");
        let own = &turn(dialect, 2, false)[0]["content"][1];
        assert_eq!(picture, own, "{dialect:?}: the breakpoint moves from turn to turn");
        let older = rendered(dialect, &body(dialect, 5, 2), &folded(5, false));
        assert!(!older[0].to_string().contains("AAA"), "a summary's head has none");
    }
}

/// Once it is answered, it stands there as before, wherever the client's breakpoint is by then.
#[test]
fn the_picture_stays_where_it_was_in_later_turns() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let first = rendered(dialect, &body(dialect, 5, 9), &folded(5, true));
        for items in [6, 7, 9] {
            let later = rendered(dialect, &body(dialect, items, items / 2), &folded(5, true));
            assert_eq!((later.len(), &later[0]), (items - 4, &first[0]), "{dialect:?}");
        }
    }
}

/// The user goes on before anything was answered, and what is covered grows: no picture is lost, and nothing moves.
#[test]
fn the_picture_stays_where_the_next_message_is_the_users() {
    for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let first = rendered(dialect, &body(dialect, 5, 9), &folded(5, true));
        let mut items: Vec<Value> = (0..3).flat_map(|n| turn(dialect, n, false)).take(5).collect();
        let more = turn(dialect, 7, false);
        items.extend(more.clone());
        let mut body = json!({ "model": "m", "max_tokens": 9 });
        body[dialect.array()] = items.into();
        for covers in [5, 7] {
            let mut known = folded(5, true);
            Arc::make_mut(known.active.as_mut().unwrap()).covers = covers;
            let sent = rendered(dialect, body.to_string().as_bytes(), &known);
            assert_eq!(sent, [&first[..], &more[..]].concat(), "{dialect:?} {covers}");
        }
    }
}

/// A history that ends in an answer asks nothing.
#[test]
fn behind_an_answer_no_picture_stays() {
    let body = body(Dialect::Messages, 4, 9);
    let sent = rendered(Dialect::Messages, &body, &folded(4, true));
    assert!(!sent[0].to_string().contains("AAA"));
    let conversation = read(Dialect::Messages, &body, &Memo::new(0), [0; 16]).unwrap();
    assert_eq!(pictures::tokens(&conversation, 4), 0);
    assert!(pictures::tokens(&conversation, 3) > 0);
}
