//! Signed thinking is bound to the tools that were there when it was signed (Messages): where there is some, no tool
//! comes, until a cut leaves none of it.

use compactproxy::demo::messages::{self, Binding};
use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::error;
use serde_json::json;

use crate::support::chat::{attempts, ids, parsed, with, words};
use crate::support::dialects::Messages;
use crate::support::proxy::start;

use super::*;

/// A provider that checks what signed blocks are bound to, and whose model thinks.
fn strict(steps: Vec<Step>) -> Settings {
    let messages = messages::Settings { binding: Binding::Conversation, ..messages::Settings::default() };
    Settings { messages, ..scripted(steps) }
}

fn offered(exchange: &Exchange) -> bool {
    exchange.json()["tools"].as_array().unwrap().len() > 1
}

fn named(exchange: &Exchange) -> bool {
    String::from_utf8_lossy(&exchange.body).contains("read_evicted")
}

/// A turn in which the model thinks and calls the client's tool, `number` of its calls.
fn calls(number: usize) -> Step {
    step(move |_| thinks("Let me see.", "", vec![clients(number)]))
}

/// The history with the answer, and what its call gave.
fn answered(cell: Cell, body: &Value, had: &Had, result: &str) -> Value {
    let mut body = body.clone();
    let items = body[cell.dialect.array()].as_array_mut().unwrap();
    items.extend(had.items.iter().cloned());
    if let Some(call) = had.calls.first() {
        items.extend(cell.dialect.results(&[(call.id.as_str(), &[result.to_owned()])]));
    }
    body
}

/// Two thinking calls, made when there was no proxy before the provider yet: the history that it finds.
async fn begun(cell: Cell, provider: &Provider) -> Value {
    let mut body = cell.dialect.request(vec![cell.dialect.user("Work.")], cell.stream);
    body = with(&body, cell.dialect.thinking());
    for result in ["short".to_owned(), long()] {
        let had = cell.dialect.had(provider.addr(), "k", &body).await;
        assert!(body.to_string().contains("\"signature\"") || !had.thoughts.is_empty());
        body = answered(cell, &body, &had, &result);
    }
    body
}

fn streamed_and_whole() -> [Cell; 2] {
    [true, false].map(|stream| Cell { dialect: &Messages, stream })
}

#[tokio::test]
async fn where_thinking_is_signed_no_tool_comes_until_a_cut_leaves_none_of_it() {
    for (inject, cell) in
        ["auto", "always"].into_iter().flat_map(|inject| streamed_and_whole().map(|cell| (inject, cell)))
    {
        let provider = Provider::start(strict((7..13).map(calls).collect())).await.unwrap();
        let mut body = begun(cell, &provider).await;
        let before = attempts(&provider).len();
        let sections = format!(
            "{}[compaction]\nkeep_tokens = 2000\n[[window]]\nmodel = \"*\"\ninput = 12000\n",
            sections(&format!("inject = \"{inject}\"\n"))
        );
        let proxy = start(parsed(&provider.base_url(), &sections));
        // Results are evicted meanwhile, all of them behind signed thinking.
        for n in 0..4 {
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
            assert_eq!(answer.actions(), ["evicted"], "{inject} {cell:?} {n}");
            let had = cell.dialect.read(&answer);
            let sent = attempts(&provider).pop().unwrap();
            assert!(!offered(&sent) && !named(&sent) && !ids(&sent.body).is_empty(), "{inject} {cell:?} {n}");
            assert_eq!((sent.dropped, sent.verdict), (0, compactproxy::demo::provider::Verdict::Accepted));
            body = answered(cell, &body, &had, &format!("{n} {}", long()));
        }
        // The turn ends, and the conversation grows until it is cut.
        let mut cut = None;
        for n in 0..12 {
            let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
            let actions: Vec<String> = answer.actions().iter().map(|action| (*action).to_owned()).collect();
            let had = cell.dialect.read(&answer);
            let sent = attempts(&provider).pop().unwrap();
            let signed = String::from_utf8_lossy(&sent.body).contains("\"signature\"");
            assert_eq!(offered(&sent), !signed || cut.is_some(), "{inject} {cell:?} {n} {actions:?}");
            if cut.is_none() && !signed {
                assert!(actions.iter().any(|action| action == "summarized" || action == "folded"), "{actions:?}");
                cut = Some(attempts(&provider).len() - 1);
            } else if cut.is_some_and(|cut| cut + 2 < attempts(&provider).len()) {
                break;
            }
            body = answered(cell, &body, &had, "short");
            let more = json!([{"type": "text", "text": format!("Next. {}", words(n, 900))}]);
            match had.calls.is_empty() {
                true => body["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": more})),
                false => {
                    let last = body["messages"].as_array_mut().unwrap().last_mut().unwrap();
                    last["content"].as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
                }
            }
        }
        let cut = cut.expect("a cut that leaves no signed thinking");
        let sent = attempts(&provider);
        assert!(sent[cut..].iter().all(offered) && !sent[before..cut].iter().any(offered), "{inject} {cell:?}");
        assert_eq!(provider.violations(), [], "{inject} {cell:?}");
    }
}

/// Every request that was sent, none of whose signed blocks were void, with the tools of the first.
fn assert_bound(cell: Cell, provider: &Provider) {
    let sent = attempts(provider);
    for exchange in &sent {
        assert_eq!(exchange.dropped, 0, "{cell:?}");
        assert_eq!(exchange.json()["tools"], sent[0].json()["tools"], "{cell:?}");
    }
    assert!(sent.iter().all(offered), "{cell:?}");
    assert_eq!(provider.violations(), [], "{cell:?}");
}

/// What the model thought in the turn was signed with the proxy's tools there: they stay in its last call.
#[tokio::test]
async fn the_last_call_of_a_turn_keeps_the_tools_to_which_its_thinking_is_bound() {
    for (cell, answers) in streamed_and_whole().into_iter().flat_map(|cell| [(cell, true), (cell, false)]) {
        let steps = vec![
            step(|request| thinks("Let me look.", "", vec![own(request, 1)])),
            step(move |request| match answers {
                true => thinks("There it is.", "It is 4711.", vec![]),
                false => thinks("And more.", "", vec![own(request, 2)]),
            }),
            step(|_| thinks("So.", "Done.", vec![])),
        ];
        let provider = Provider::start(strict(steps)).await.unwrap();
        let proxy = start(parsed(&provider.base_url(), &sections("max_rounds = 2\n")));
        let body = cell.thinking("the limit");
        let had = cell.had(&proxy, &body).await;
        assert!(
            had.text.starts_with(if answers { "It is 4711." } else { "(No answer yet: " }),
            "{cell:?} {}",
            had.text
        );
        assert_eq!((had.calls.len(), had.waits), (0, false), "{cell:?}");
        let next = cell.dialect.went_on(&body, &had);
        assert_eq!(cell.had(&proxy, &next).await.text, "Done.", "{cell:?}");
        assert_eq!(attempts(&provider).len(), 3, "{cell:?}");
        assert_bound(cell, &provider);
    }
}

/// Nor is a request whose history is bound to them asked again without: its client gets the error of the call that failed.
#[tokio::test]
async fn a_bound_history_is_not_asked_for_again_without_the_tools() {
    for cell in streamed_and_whole() {
        let steps = vec![
            step(|request| thinks("Let me look.", "", vec![own(request, 1)])),
            step(|_| thinks("There it is.", "It is 4711.", vec![])),
            step(|request| says("", vec![own(request, 2)])),
            step(|_| error(500, "out of order", "api_error", "x")),
        ];
        let provider = Provider::start(strict(steps)).await.unwrap();
        let proxy = start(parsed(&provider.base_url(), &sections("")));
        let body = cell.thinking("bound");
        let had = cell.had(&proxy, &body).await;
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.dialect.went_on(&body, &had)).await;
        match cell.stream {
            true => assert!(cell.dialect.told_error(&answer).contains("out of order"), "{}", answer.text()),
            false => assert!(answer.status == 500 && answer.text().contains("out of order"), "{answer:?}"),
        }
        assert_eq!(attempts(&provider).len(), 4, "{cell:?}");
        assert_bound(cell, &provider);
    }
}
