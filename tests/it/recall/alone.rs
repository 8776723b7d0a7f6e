//! Clients without tools of their own: what left their conversations is read back all the same, and they see no call.

mod failing;
mod refused;

use http_body_util::BodyExt;
use serde_json::json;

use crate::support::chat::{attempts, words};
use crate::support::dialects::{Chat, Messages, Responses};

use super::*;

/// A window in which the conversation is summarized.
const SUMMARY: &str = "[compaction]\nkeep_tokens = 1000\n[[window]]\nmodel = \"*\"\ninput = 6000\n";

/// How a client says that it has no tools.
#[derive(Debug, Clone, Copy)]
enum Says {
    Nothing,
    Null,
    NoneOfThem,
}

/// What is removed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Removed {
    Summarized,
    /// A tool's result. In Messages a history with one needs tools (P11).
    Evicted,
}

#[derive(Debug, Clone, Copy)]
struct Plain {
    cell: Cell,
    says: Says,
    removed: Removed,
}

fn plain() -> impl Iterator<Item = Plain> {
    let all = cells().flat_map(|cell| {
        [Says::Nothing, Says::Null, Says::NoneOfThem]
            .into_iter()
            .flat_map(move |says| [Removed::Summarized, Removed::Evicted].map(|removed| Plain { cell, says, removed }))
    });
    all.filter(|plain| plain.removed == Removed::Summarized || plain.cell.dialect.path() != Messages.path())
}

/// One of each dialect and form.
fn chats() -> impl Iterator<Item = Plain> {
    cells().map(|cell| Plain { cell, says: Says::Nothing, removed: Removed::Summarized })
}

impl Plain {
    fn sections(self, tools: &str) -> String {
        let compaction = if self.removed == Removed::Summarized { SUMMARY } else { "" };
        format!("{}{compaction}", sections(tools))
    }

    fn without_tools(self, body: &Value) -> Value {
        let mut body = body.clone();
        let members = body.as_object_mut().unwrap();
        match self.says {
            Says::Nothing => drop(members.remove("tools")),
            Says::Null => members["tools"] = Value::Null,
            Says::NoneOfThem => members["tools"] = json!([]),
        }
        body
    }

    /// A conversation that is due, and too long for its client's memory alone.
    fn asked(self, name: &str) -> Value {
        let dialect = self.cell.dialect;
        if self.removed == Removed::Evicted {
            return self.without_tools(&self.cell.asked(name));
        }
        let mut items = vec![dialect.user(&format!("Talk of {name}."))];
        for turn in 0..10_u64 {
            let needle = if turn == 1 { NEEDLE } else { "nothing" };
            items.extend(dialect.said(&format!("{}\n{needle}", words(turn, 600)), &[]));
            items.push(dialect.user(&format!("And {turn}?")));
        }
        self.without_tools(&dialect.request(items, self.cell.stream))
    }

    /// One in which nothing is due.
    fn small(self, name: &str) -> Value {
        let dialect = self.cell.dialect;
        self.without_tools(&dialect.request(vec![dialect.user(name)], self.cell.stream))
    }
}

/// The names of the tools in a request.
fn offered(exchange: &Exchange) -> Vec<String> {
    let tools = exchange.json()["tools"].as_array().cloned().unwrap_or_default();
    let name = |tool: &Value| tool["function"]["name"].as_str().or(tool["name"].as_str()).unwrap().to_owned();
    tools.iter().map(name).collect()
}

async fn played(plain: Plain, says_first: &'static str) {
    let steps = vec![step(move |request| says(says_first, vec![own(request, 1)])), found()];
    let (provider, proxy) = pair(scripted(steps), &plain.sections("")).await;
    let body = plain.asked("herons");
    let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
    let done = if plain.removed == Removed::Summarized { "summarized" } else { "evicted" };
    assert!(answer.actions().contains(&done), "{plain:?} {:?}", answer.actions());
    let had = plain.cell.dialect.read(&answer);
    assert_eq!((had.text, had.calls.len(), had.waits), (format!("{says_first}It is 4711."), 0, false), "{plain:?}");
    let sent = attempts(&provider);
    assert_eq!(sent.iter().map(offered).collect::<Vec<_>>(), [["read_evicted"], ["read_evicted"]], "{plain:?}");
    let had = plain.cell.dialect.read(&answer);
    goes_on(plain.cell, &proxy, &provider, (&body, &had)).await;
    let last = attempts(&provider).pop().unwrap();
    let text = String::from_utf8_lossy(&last.body).into_owned();
    assert!(text.contains(NEEDLE) && text.contains("own_1"), "{plain:?}: put back");
}

#[tokio::test]
async fn a_client_without_tools_has_what_was_removed_read_back() {
    for plain in plain() {
        played(plain, "").await;
    }
    for plain in chats() {
        played(plain, "Let me look. ").await;
    }
}

/// The list of tools comes before all else; every other byte is the client's.
#[tokio::test]
async fn always_is_from_the_first_request_and_changes_no_other_byte() {
    for plain in plain().filter(|plain| plain.removed == Removed::Summarized) {
        let (provider, proxy) = pair(scripted(Vec::new()), &sections("inject = \"always\"\n")).await;
        let body = plain.small("Hello.");
        let had = plain.cell.had(&proxy, &body).await;
        let next = plain.cell.dialect.went_on(&body, &had);
        plain.cell.had(&proxy, &next).await;
        for (exchange, body) in attempts(&provider).iter().zip([body, next]) {
            let (sent, body) = (String::from_utf8(exchange.body.to_vec()).unwrap(), plain.cell.dialect.bytes(&body));
            let tools = exchange.raw_tools();
            assert_eq!(offered(exchange), ["read_evicted"], "{plain:?}");
            let left = match plain.says {
                Says::Nothing => sent.replacen(&format!("{{\"tools\":{tools},"), "{", 1),
                Says::Null => sent.replacen(&tools, "null", 1),
                Says::NoneOfThem => sent.replacen(&tools, "[]", 1),
            };
            assert_eq!(left, String::from_utf8(body.to_vec()).unwrap(), "{plain:?}");
        }
        assert_unhurt(&provider);
    }
}

trait RawTools {
    /// The list of tools as it was sent.
    fn raw_tools(&self) -> String;
}

impl RawTools for Exchange {
    fn raw_tools(&self) -> String {
        let text = String::from_utf8(self.body.to_vec()).unwrap();
        let list = &text[text.find("\"tools\":").unwrap() + 8..];
        let mut parsed = serde_json::Deserializer::from_str(list).into_iter::<Value>();
        parsed.next().unwrap().unwrap();
        list[..parsed.byte_offset()].to_owned()
    }
}

/// A model that calls what nobody offered: no client that has no tools is told of it.
#[tokio::test]
async fn a_call_of_a_tool_that_nobody_has_is_not_the_clients() {
    let names = ["web_search", "functions.web_search", "web.search", "\u{67e5}\u{8be2}", &"x".repeat(65)];
    for (plain, name) in chats().flat_map(|plain| names.map(|name| (plain, name.to_owned()))) {
        let made_up = move || ToolCall { id: "own_1".into(), name: name.clone(), arguments: "{}".into() };
        let steps = vec![step(move |_| says("", vec![made_up()])), step(|_| says("So be it.", vec![]))];
        let (provider, proxy) = pair(scripted(steps), &plain.sections("")).await;
        let body = plain.asked("made up");
        let had = plain.cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("So be it.", 0, false), "{plain:?}");
        assert!(String::from_utf8_lossy(&attempts(&provider)[1].body).contains("there is no such tool"));
        goes_on(plain.cell, &proxy, &provider, (&body, &had)).await;
    }
}

#[tokio::test]
async fn rounds_that_end_or_fail_show_no_call() {
    for plain in chats() {
        let calls = |said: &'static str| step(move |request| says(said, vec![own(request, 1)]));
        let (provider, proxy) =
            pair(scripted((0..9).map(|_| calls("")).collect()), &plain.sections("max_rounds = 2\n")).await;
        let had = plain.cell.had(&proxy, &plain.asked("limit")).await;
        assert!(had.text.starts_with("(No answer yet: ") && had.calls.is_empty() && !had.waits, "{plain:?} {had:?}");
        assert_eq!(provider.violations(), []);

        let steps = vec![
            calls(""),
            step(move |_| plain.cell.dialect.broken("out of order")),
            step(|_| says("Without.", vec![])),
        ];
        let (provider, proxy) = pair(scripted(steps), &plain.sections("")).await;
        let had = plain.cell.had(&proxy, &plain.asked("fails")).await;
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("Without.", 0, false), "{plain:?}");
        let last = attempts(&provider).pop().unwrap();
        assert!(offered(&last).is_empty() && !String::from_utf8_lossy(&last.body).contains("own_1"));
        assert_eq!(provider.violations(), []);

        // The upstream breaks off, in the first round with the call, or in the second.
        let off = |after: usize| {
            move |request: &ModelRequest| Reply::CutOff {
                answer: Answer { calls: vec![own(request, 1)], ..Answer::text("Look. ") },
                after,
            }
        };
        for steps in [vec![step(off(4))], vec![calls("Look. "), step(off(5))]] {
            let (_provider, proxy) = pair(scripted(steps), &plain.sections("")).await;
            let text = seen(plain.cell, &proxy, &plain.asked("breaks")).await;
            assert!(!text.contains("read_evicted") && !text.contains("own_1"), "{plain:?}: {text}");
        }
    }
}

/// What came of an answer that breaks off, whatever its status.
async fn seen(cell: Cell, proxy: &Served, body: &Value) -> String {
    let mut answer = cell.dialect.send(proxy.proxy_addr, "k", body).await.into_body();
    let mut seen = Vec::new();
    while let Some(Ok(frame)) = answer.frame().await {
        seen.extend(frame.into_data().unwrap_or_default());
    }
    String::from_utf8(seen).unwrap()
}

/// An answer of a fixed format.
fn fixed(dialect: &dyn Dialect) -> Value {
    let schema = json!({"type": "object"});
    match dialect.path() {
        path if path == Chat.path() => {
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}})
        }
        path if path == Responses.path() => {
            json!({"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}})
        }
        _ => json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
    }
}

#[tokio::test]
async fn an_answer_of_a_fixed_format_gets_no_tools_and_no_history_that_would_need_some() {
    for plain in chats() {
        let (provider, proxy) = pair(scripted(Vec::new()), &plain.sections("")).await;
        plain.cell.dialect.ask(proxy.proxy_addr, "k", &with(&plain.asked("fixed"), fixed(plain.cell.dialect))).await;
        assert!(offered(&attempts(&provider)[0]).is_empty(), "{plain:?}");
        assert!(!String::from_utf8_lossy(&attempts(&provider)[0].body).contains("read_evicted"));

        let steps = vec![step(|request| says("", vec![own(request, 1)])), found()];
        let (provider, proxy) = pair(scripted(steps), &plain.sections("")).await;
        let body = plain.asked("for one turn");
        let had = plain.cell.had(&proxy, &body).await;
        let next = plain.cell.dialect.went_on(&body, &had);
        plain.cell.dialect.ask(proxy.proxy_addr, "k", &with(&next, fixed(plain.cell.dialect))).await;
        let sent = attempts(&provider).pop().unwrap();
        assert!(offered(&sent).is_empty() && !String::from_utf8_lossy(&sent.body).contains("own_1"), "{plain:?}");
        plain.cell.had(&proxy, &next).await;
        let sent = attempts(&provider).pop().unwrap();
        assert!(!offered(&sent).is_empty() && String::from_utf8_lossy(&sent.body).contains("own_1"), "{plain:?}");
        assert_eq!(provider.violations(), []);
    }
}
