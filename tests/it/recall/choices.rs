//! Every form of `tool_choice`, and of what limits calls, before tools were offered and after.

use serde_json::json;

use crate::support::chat::{attempts, with};
use crate::support::dialects::{Chat, Messages, Responses};

use super::*;

/// What a client writes.
struct Choice {
    fields: Value,
    /// Whether tools may be offered for the first time.
    begins: bool,
    /// The model has to call a tool, whichever.
    demands: bool,
}

fn choice(fields: Value) -> Choice {
    Choice { fields, begins: false, demands: false }
}

fn beginning(fields: Value) -> Choice {
    Choice { begins: true, ..choice(fields) }
}

fn demanding(fields: Value) -> Choice {
    Choice { demands: true, ..choice(fields) }
}

fn choices(dialect: &dyn Dialect) -> Vec<Choice> {
    let of = |choice: Value| json!({"tool_choice": choice});
    match dialect.path() {
        path if path == Chat.path() => {
            let named = json!({"type": "function", "function": {"name": "execute"}});
            let allowed =
                |mode: &str| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [named]}});
            vec![
                beginning(of(json!("auto"))),
                beginning(json!({"parallel_tool_calls": false})),
                choice(of(json!("none"))),
                choice(of(named.clone())),
                choice(of(allowed("auto"))),
                choice(of(allowed("required"))),
                demanding(of(json!("required"))),
                demanding(json!({"tool_choice": "required", "parallel_tool_calls": false})),
            ]
        }
        path if path == Responses.path() => {
            let named = json!({"type": "function", "name": "execute"});
            let allowed = |mode: &str| json!({"type": "allowed_tools", "mode": mode, "tools": [named]});
            vec![
                beginning(of(json!("auto"))),
                beginning(json!({"parallel_tool_calls": false, "max_tool_calls": 1})),
                choice(of(json!("none"))),
                choice(of(named.clone())),
                choice(of(allowed("auto"))),
                choice(of(allowed("required"))),
                demanding(of(json!("required"))),
            ]
        }
        path if path == Messages.path() => vec![
            beginning(of(json!({"type": "auto"}))),
            beginning(of(json!({"type": "auto", "disable_parallel_tool_use": true}))),
            choice(of(json!({"type": "none"}))),
            choice(of(json!({"type": "tool", "name": "execute"}))),
            choice(of(json!({"type": "tool", "name": "execute", "disable_parallel_tool_use": true}))),
            demanding(of(json!({"type": "any"}))),
            demanding(of(json!({"type": "any", "disable_parallel_tool_use": true}))),
        ],
        path => panic!("{path}"),
    }
}

/// The tools of a request as bytes, and whether the proxy's are among them.
fn tools(exchange: &Exchange) -> (String, bool) {
    let text = String::from_utf8(exchange.body.to_vec()).unwrap();
    // Behind those that a choice allows.
    let tools = &text[text.rfind("\"tools\":[").unwrap() + 8..];
    let mut parsed = serde_json::Deserializer::from_str(tools).into_iter::<Value>();
    let whole = parsed.next().unwrap().unwrap();
    (tools[..parsed.byte_offset()].to_owned(), whole.as_array().unwrap().len() > 1)
}

/// The client's words stand as it wrote them.
fn assert_chosen(exchange: &Exchange, fields: &Value) {
    let sent = exchange.json();
    for (name, value) in fields.as_object().unwrap() {
        assert_eq!(sent[name], *value);
    }
}

#[tokio::test]
async fn a_choice_that_is_made_at_first_keeps_the_tools_out_and_breaks_nothing() {
    for cell in cells() {
        for choice in choices(cell.dialect) {
            let what = format!("{cell:?} {}", choice.fields);
            let steps = vec![step(|_| says("", vec![clients(7)]))];
            let (provider, proxy) = staged(steps, "").await;
            let body = with(&cell.asked("first"), choice.fields.clone());
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
            assert_eq!(answer.actions(), ["evicted"], "{what}");
            let had = cell.dialect.read(&answer);
            assert_eq!((had.calls.len(), had.waits), (1, true), "{what}");
            let sent = attempts(&provider);
            assert_eq!((sent.len(), tools(&sent[0]).1), (1, choice.begins), "{what}");
            assert_chosen(&sent[0], &choice.fields);
            let named = String::from_utf8_lossy(&sent[0].body).contains("read_evicted");
            assert_eq!(named, choice.begins, "{what}: nothing names what is not there");
            assert_unhurt(&provider);
        }
    }
}

#[tokio::test]
async fn tools_that_are_offered_stay_byte_for_byte_whatever_is_chosen_for_a_turn() {
    for cell in cells() {
        let steps = vec![step(|request| says("", vec![own(request, 1)])), found()];
        let (provider, proxy) = staged(steps, "").await;
        let body = cell.asked("stays");
        let mut had = cell.had(&proxy, &body).await;
        let mut body = body;
        for choice in choices(cell.dialect) {
            let next = cell.dialect.went_on(&body, &had);
            had = cell.had(&proxy, &with(&next, choice.fields.clone())).await;
            assert_chosen(&attempts(&provider).pop().unwrap(), &choice.fields);
            body = next;
        }
        // And where it is left to the model again.
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        let sent = attempts(&provider);
        assert_eq!(sent.len(), 3 + choices(cell.dialect).len());
        assert!(sent.iter().all(|exchange| tools(exchange) == tools(&sent[0])) && tools(&sent[0]).1, "{cell:?}");
        assert_one_grows_from_the_other(&cell.sent(&provider));
        assert_unhurt(&provider);
    }
}

/// A model that has to call something may call the proxy's tool first: the client gets a call of its own all the same.
#[tokio::test]
async fn who_demands_a_call_gets_one_of_its_own() {
    for cell in cells() {
        for choice in choices(cell.dialect).into_iter().filter(|choice| choice.demands) {
            let what = format!("{cell:?} {}", choice.fields);
            let steps = vec![
                step(|_| says("Fine.", vec![])),
                step(|request| says("", vec![own(request, 1)])),
                step(|request| says("", vec![own(request, 2)])),
                step(|request| match request.tools().len() {
                    1 => says("", vec![clients(7)]),
                    _ => says("", vec![own(request, 3)]),
                }),
            ];
            let (provider, proxy) = staged(steps, "max_rounds = 3\n").await;
            let body = cell.asked("demands");
            let had = cell.had(&proxy, &body).await;
            let next = cell.dialect.went_on(&body, &had);
            let had = cell.had(&proxy, &with(&next, choice.fields.clone())).await;
            let calls: Vec<&str> = had.calls.iter().map(|call| call.name.as_str()).collect();
            assert_eq!((calls.as_slice(), had.waits), (["execute"].as_slice(), true), "{what}");
            let sent = attempts(&provider);
            assert_eq!(sent.iter().map(|exchange| tools(exchange).1).collect::<Vec<_>>(), [true, true, true, false]);
            sent[1..].iter().for_each(|exchange| assert_chosen(exchange, &choice.fields));
            assert_eq!(provider.violations(), []);
        }
    }
}

/// A server that does not keep to a choice: what its model calls all the same is run, and the turn ends well.
#[tokio::test]
async fn a_call_against_the_choice_is_a_round_like_others() {
    for cell in cells() {
        for choice in choices(cell.dialect).into_iter().filter(|choice| !choice.demands) {
            let steps = vec![step(|_| says("Fine.", vec![])), step(|request| says("", vec![own(request, 1)])), found()];
            let (provider, proxy) = staged(steps, "").await;
            let body = cell.asked("against");
            let had = cell.had(&proxy, &body).await;
            let next = cell.dialect.went_on(&body, &had);
            let had = cell.had(&proxy, &with(&next, choice.fields.clone())).await;
            assert_eq!((had.text.as_str(), had.calls.len()), ("It is 4711.", 0), "{cell:?} {}", choice.fields);
            assert_unhurt(&provider);
        }
    }
}
