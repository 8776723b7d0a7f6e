//! Where the list of tools stands, and where it comes where there is none.

use serde_json::{Value, json};

use super::super::Offer;
use super::{MOST_TOOLS, added};
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{Dialect, read};

const ALL: [Dialect; 3] = [Dialect::Chat, Dialect::Responses, Dialect::Messages];

fn offer() -> Offer {
    Offer { name: "peek".to_owned(), description: "Looks.".to_owned(), parameters: json!({"type": "object"}) }
}

/// A body of this dialect with more members before its conversation.
fn body(dialect: Dialect, more: &str) -> String {
    let array = dialect.array();
    format!(r#" {{{more}"model":"m","store":false,"{array}":[{{"role":"user","content":"x"}}], "z":1.50}}"#)
}

/// Whether one tool may come, and the body with it.
fn offered(dialect: Dialect, body: &str) -> (bool, Option<String>) {
    let memo = Memo::new(1 << 20);
    let conversation = read(dialect, body.as_bytes(), &memo, [0; 16]).unwrap();
    let edit = conversation.offer(&[offer()]);
    let with = edit.map(|edit| splice(&body.to_owned().into(), vec![edit]).unwrap().concat());
    (conversation.may_offer(1), with.map(|with| String::from_utf8(with).unwrap()))
}

/// The tools of a body, as they are written.
fn tools(body: &str) -> String {
    let (_, list) = body.split_once("\"tools\":").unwrap();
    let mut parsed = serde_json::Deserializer::from_str(list).into_iter::<Value>();
    parsed.next().unwrap().unwrap();
    list.get(..parsed.byte_offset()).unwrap().to_owned()
}

#[test]
fn where_there_is_no_list_it_comes_first_and_no_other_byte_changes() {
    for dialect in ALL {
        let plain = body(dialect, "");
        let (may, with) = offered(dialect, &plain);
        let with = with.unwrap();
        assert!(may && with.starts_with(" {\"tools\":[{"), "{with}");
        assert_eq!(with.replacen(&format!("\"tools\":{},", tools(&with)), "", 1), plain);
        for none in ["null", "[]", "[ ]"] {
            let plain = body(dialect, &format!("\"tools\":{none},"));
            let (may, with) = offered(dialect, &plain);
            let with = with.unwrap();
            assert!(may, "{plain}");
            let left = tools(&with);
            assert_eq!(serde_json::from_str::<Value>(&left).unwrap().as_array().unwrap().len(), 1, "{with}");
            assert_eq!(with.replacen(&left, none, 1), plain);
        }
        for wrong in ["{}", "\"none\"", "1"] {
            let plain = body(dialect, &format!("\"tools\":{wrong},"));
            assert_eq!(offered(dialect, &plain), (false, None), "{plain}");
        }
    }
}

#[test]
fn a_client_has_tools_where_its_list_has_any() {
    for dialect in ALL {
        let memo = Memo::new(1 << 20);
        let has = |more: &str| {
            let body = body(dialect, more);
            read(dialect, body.as_bytes(), &memo, [0; 16]).unwrap().has_tools()
        };
        assert!(!has("") && !has(r#""tools":null,"#) && !has(r#""tools":[],"#));
        assert!(has(r#""tools":[{"name":"a"}],"#) && has(r#""tools":{},"#));
    }
}

/// C8, in both of OpenAI's APIs.
#[test]
fn at_the_limit_of_tools_none_comes() {
    for (dialect, limited) in ALL.into_iter().zip([true, true, false]) {
        for (own, may) in [(0, true), (MOST_TOOLS - 1, true), (MOST_TOOLS, !limited)] {
            let tool = |n: usize| format!(r#"{{"type":"function","name":"t{n}"}}"#);
            let list = (0..own).map(tool).collect::<Vec<_>>().join(",");
            let body = body(dialect, &format!("\"tools\":[{list}],"));
            let memo = Memo::new(1 << 20);
            let conversation = read(dialect, body.as_bytes(), &memo, [0; 16]).unwrap();
            assert_eq!((conversation.may_offer(1), conversation.may_keep(1)), (may, may), "{dialect:?} {own}");
            if limited {
                assert!(conversation.may_offer(MOST_TOOLS - own) && !conversation.may_offer(MOST_TOOLS - own + 1));
            }
        }
    }
}

#[test]
fn nothing_is_added_where_nothing_is_offered_beside_a_list() {
    let memo = Memo::new(1 << 20);
    let body = body(Dialect::Chat, r#""tools":[{"name":"a"}],"#);
    let conversation = read(Dialect::Chat, body.as_bytes(), &memo, [0; 16]).unwrap();
    assert_eq!(added(&conversation, "").unwrap().with.len(), 0);
}

/// Where the client has made the choice it is made anew, in its place; else it comes first.
#[test]
fn that_none_may_be_called_is_said_once_and_no_other_byte_changes() {
    for dialect in ALL {
        let none = if dialect == Dialect::Messages { r#"{"type":"none"}"# } else { r#""none""# };
        let chosen = format!(r#""tool_choice":{none},"#);
        for (more, due) in [
            ("", body(dialect, &chosen)),
            (r#""tool_choice":null,"#, body(dialect, &chosen)),
            (r#""user":"u","tool_choice": {"a":1},"#, body(dialect, &format!(r#""user":"u","tool_choice": {none},"#))),
        ] {
            let (memo, asked) = (Memo::new(1 << 20), body(dialect, more));
            let edit = read(dialect, asked.as_bytes(), &memo, [0; 16]).unwrap().calls_none().unwrap();
            let with = splice(&asked.into(), vec![edit]).unwrap().concat();
            assert_eq!(String::from_utf8(with).unwrap(), due, "{dialect:?}");
        }
    }
}
