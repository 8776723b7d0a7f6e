//! Signed thinking is bound to the tools that were there when it was signed (Messages): where there is some, no tool
//! comes, until a cut leaves none of it.

use compactproxy::demo::messages::{self, Binding};
use compactproxy::demo::provider::Settings;
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
