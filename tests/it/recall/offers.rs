//! Where tools are offered, and where not.

use compactproxy::demo::names::Names;
use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::error;
use serde_json::json;

use crate::support::chat::{attempts, history, pair, post, with, words};
use crate::support::dialects::{Chat, Messages, Responses};

use super::*;

/// How often the last request names the tool.
fn named(provider: &Provider) -> usize {
    let last = attempts(provider).pop().unwrap();
    String::from_utf8_lossy(&last.body).matches("read_evicted").count()
}

/// Fields with which no tools may come.
fn forbidding(dialect: &dyn Dialect) -> Vec<Value> {
    match dialect.path() {
        path if path == Chat.path() => {
            vec![
                json!({"tool_choice": "required"}),
                json!({"n": 2}),
                json!({"response_format": {"type": "json_object"}}),
            ]
        }
        path if path == Messages.path() => vec![json!({"tool_choice": {"type": "any"}})],
        path if path == Responses.path() => {
            vec![json!({"tool_choice": "required"}), json!({"text": {"format": {"type": "json_object"}}})]
        }
        path => panic!("{path}"),
    }
}

#[tokio::test]
async fn tools_come_only_where_they_may() {
    for cell in cells().filter(|cell| !cell.stream) {
        let (provider, proxy) = pair(Settings::default(), &sections("")).await;
        for more in forbidding(cell.dialect) {
            let name = more.to_string();
            cell.dialect.ask(proxy.proxy_addr, "k", &with(&cell.asked(&name), more)).await;
            assert_eq!(named(&provider), 0, "{cell:?} {name}");
        }
        let small = cell.dialect.request(vec![cell.dialect.user("small")], false);
        cell.had(&proxy, &small).await;
        assert_eq!(named(&provider), 0, "nothing was removed");
        let (provider, proxy) = pair(Settings::default(), &sections("inject = \"always\"\n")).await;
        cell.had(&proxy, &small).await;
        assert_eq!(named(&provider), 1, "always: from the first request");
        let (provider, proxy) = pair(Settings::default(), &sections("inject = \"never\"\n")).await;
        cell.had(&proxy, &cell.asked("never")).await;
        assert_eq!(named(&provider), 0);
        // A conversation that is never given one has no way named either.
        let (provider, proxy) = pair(Settings::default(), &sections("")).await;
        cell.had(&proxy, &cell.asked("auto")).await;
        assert_eq!(named(&provider), 2, "its definition, and the pointer");
    }
    let (provider, proxy) = pair(Settings::default(), &sections("")).await;
    let small = with(&history("small", 2, 10), json!({"tools": Chat.fields(false)["tools"]}));
    post(proxy.proxy_addr, "k", &small).await;
    assert_eq!(named(&provider), 0, "nothing was removed");
}

/// A client that has its own history summarized wants an answer, no calls.
#[tokio::test]
async fn a_clients_own_compaction_gets_no_tools() {
    let asked = [
        "Your task is to create a detailed summary of the conversation so far.",
        "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary for another model.",
    ];
    for cell in cells().filter(|cell| !cell.stream) {
        let (provider, proxy) = pair(Settings::default(), &sections("inject = \"always\"\n")).await;
        let talk = |text: &str| {
            let mut items = vec![cell.dialect.user("Look.")];
            items.extend(cell.dialect.said("Done.", &[]));
            items.push(cell.dialect.user(text));
            cell.dialect.request(items, false)
        };
        for text in asked {
            cell.had(&proxy, &talk(text)).await;
            assert_eq!(named(&provider), 0, "{cell:?} {text}");
        }
        cell.had(&proxy, &talk("Go on.")).await;
        assert_eq!(named(&provider), 1, "{cell:?}");
    }
}

#[tokio::test]
async fn a_name_that_the_client_uses_is_not_taken() {
    for cell in cells().filter(|cell| !cell.stream) {
        let (provider, proxy) = pair(Settings::default(), &sections("")).await;
        let mut body = cell.asked("named");
        let own = &mut body["tools"][0];
        let name = if own["function"].is_object() { &mut own["function"]["name"] } else { &mut own["name"] };
        *name = json!("read_evicted");
        cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        let tool = attempts(&provider).pop().unwrap().json()["tools"][1].clone();
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
        assert_eq!(name, Some("compactproxy_read_evicted"), "{cell:?}");
    }
}

/// The client's tools by these names, beside its own.
fn declaring(cell: Cell, body: &Value, names: &[&str]) -> Value {
    let mut body = body.clone();
    let tool = body["tools"][0].clone();
    for name in names {
        let mut more = tool.clone();
        let of_function = more["function"].is_object();
        *(if of_function { &mut more["function"]["name"] } else { &mut more["name"] }) = json!(name);
        body["tools"].as_array_mut().unwrap().push(more);
    }
    assert!(body["tools"].as_array().unwrap().len() == 1 + names.len(), "{cell:?}");
    body
}

/// Names of the tools in the last request, behind the client's `own`.
fn offered(provider: &Provider, own: usize) -> Vec<String> {
    let sent = attempts(provider).pop().unwrap().json();
    let tools = sent["tools"].as_array().unwrap().iter().skip(own);
    tools.map(|tool| tool["function"]["name"].as_str().or(tool["name"].as_str()).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn where_both_names_are_taken_the_tool_has_a_longer_one_and_the_others_come_all_the_same() {
    let taken = ["session_list", "compactproxy_session_list"];
    let longer = "compactproxy_compactproxy_session_list";
    for cell in cells() {
        let inject = "inject = \"always\"\n[sessions]\n";
        let calling = step(move |_| says("", vec![named_call(longer, 1)]));
        let (provider, proxy) = staged(vec![calling], inject).await;
        let body = declaring(cell, &cell.dialect.request(vec![cell.dialect.user("Go.")], cell.stream), &taken);
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert!(answer.text().contains("Done.") && !answer.text().contains(longer), "{cell:?} {}", answer.text());
        let names = ["read_evicted", longer, "session_history", "session_search"];
        assert_eq!(offered(&provider, 3), names, "{cell:?}");
        let sent = String::from_utf8(attempts(&provider).pop().unwrap().body.to_vec()).unwrap();
        assert!(sent.contains("1 session") || sent.contains("no sessions"), "{cell:?} {sent}");
        assert_unhurt(&provider);
        // One with every name taken is left out.
        let all: Vec<String> = (0..4).map(|n| "compactproxy_".repeat(n) + "session_list").collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let body = declaring(cell, &cell.dialect.request(vec![cell.dialect.user("All.")], cell.stream), &all);
        cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!(offered(&provider, 5), ["read_evicted", "session_history", "session_search"], "{cell:?}");
    }
}

fn named_call(name: &str, number: usize) -> ToolCall {
    ToolCall { id: format!("own_{number}"), name: name.to_owned(), arguments: "{}".to_owned() }
}

/// Some models write `functions.` before a tool's name.
#[tokio::test]
async fn a_call_in_the_namespace_of_functions_is_the_proxys_unless_the_client_has_a_tool_of_that_name() {
    for cell in cells() {
        // Alone, and among the client's own.
        let calling = step(|request| says("Look. ", vec![spaced(own(request, 1))]));
        let among = step(|request| {
            assert!(told(request));
            says("And ", vec![clients(7), spaced(own(request, 2))])
        });
        let (provider, proxy) = staged(vec![calling, among, found()], "").await;
        let body = cell.asked("spaced");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.calls.len()), ("Look. And ", 1), "{cell:?}");
        goes_on(cell, &proxy, &provider, (&body, &had)).await;
        // No provider takes a dot in a name.
        let before = body[cell.dialect.array()].as_array().unwrap().len();
        for exchange in attempts(&provider).iter().skip(2) {
            let called = cell.dialect.called(&exchange.json(), before);
            assert_eq!(called, ["read_evicted", "execute", "read_evicted"], "{cell:?}");
        }

        let calling = step(|_| says("", vec![named_call("functions.read_evicted", 1)]));
        let lenient = Settings { names: Names::Any, ..scripted(vec![calling]) };
        let (provider, proxy) = pair(lenient, &sections("")).await;
        let body = declaring(cell, &cell.asked("clients"), &["functions.read_evicted"]);
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!(attempts(&provider).len(), 1, "{cell:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains("functions.read_evicted"), "{cell:?}");
    }
}

#[tokio::test]
async fn a_provider_that_takes_no_more_tools_gets_none() {
    for cell in cells() {
        let refusal = || {
            step(|request: &ModelRequest| match request.tools().len() {
                1 => says("Fine.", vec![]),
                _ => error(400, "unknown tool", "invalid_request_error", "x"),
            })
        };
        let (provider, proxy) = staged((0..6).map(|_| refusal()).collect(), "").await;
        let body = cell.asked("refused");
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Fine.", 2));
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        assert_eq!(attempts(&provider).len(), 3, "not tried again in this conversation");
        assert_unhurt(&provider);
    }
}

/// Recovery's own request removes something as well: the tool comes with it, and stays.
#[tokio::test]
async fn the_tool_comes_with_what_recovery_removes() {
    for cell in cells() {
        let dialect = cell.dialect;
        let steps = vec![
            step(move |_| dialect.too_long()),
            step(|request| says("", vec![own(request, 1)])),
            step(|_| says("Read.", vec![])),
        ];
        let (provider, proxy) = pair(scripted(steps), "[compaction]\nkeep_tokens = 2000\n[tools]\n").await;
        let mut items = vec![dialect.user("Begin.")];
        for turn in 0..12_u64 {
            items.extend(dialect.said(&format!("Step {turn}."), &[]));
            items.push(dialect.user(&words(turn, 750)));
        }
        let body = dialect.request(items, cell.stream);
        let answer = dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert!(answer.actions().contains(&"recovered"), "{cell:?} {:?}", answer.actions());
        let had = dialect.read(&answer);
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Read.", 3), "{cell:?}");
        cell.had(&proxy, &dialect.went_on(&body, &had)).await;
        // The client's next turn may be compacted anew.
        assert_one_grows_from_the_other(&cell.sent(&provider)[1..3]);
        let tools: Vec<Value> = attempts(&provider).iter().map(|exchange| exchange.json()["tools"].clone()).collect();
        assert!(tools[0] != tools[1] && tools[1..].iter().all(|offered| *offered == tools[1]), "frozen");
        assert_unhurt(&provider);
    }
}
