//! The model reads removed texts back in the same turn: what the client sees of it, what the provider gets, and that
//! what was hidden is there again on every later request. One matrix for all dialects, streamed or not.

mod accounts;
mod alone;
mod apart;
mod bound;
mod bounds;
mod by_id;
mod by_id_ends;
mod by_id_keys;
mod by_id_whole;
mod choices;
mod codings;
mod continued;
mod ends;
mod failures;
mod files;
mod frozen;
mod histories;
mod mishaps;
mod offers;
mod overlong;
mod pace;
mod scope;
mod shown;
mod slow;
mod turns;
mod unended;
mod weighed;

use compactproxy::demo::answer::{Answer, ToolCall, Usage};
use compactproxy::demo::provider::{Exchange, Provider};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::Reply;
use serde_json::Value;

use crate::support::chat::{attempts, pair, with};
use crate::support::dialects::{ALL, Chat, Dialect, Had};
use crate::support::proxy::Served;
use crate::support::recall::{NEEDLE, Step, clients, long, own, says, scripted, sections, step};

/// A cell of the matrix: a dialect, streamed or not.
#[derive(Debug, Clone, Copy)]
struct Cell {
    dialect: &'static dyn Dialect,
    stream: bool,
}

fn cells() -> impl Iterator<Item = Cell> {
    ALL.into_iter().flat_map(|dialect| [true, false].map(|stream| Cell { dialect, stream }))
}

/// For what no dialect does in its own way.
const CHAT: &dyn Dialect = &Chat;

impl Cell {
    /// A conversation in which a long result with the needle in its middle has just come.
    fn asked(self, name: &str) -> Value {
        let call = ToolCall { id: "call_0".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
        let mut items = vec![self.dialect.user(&format!("Work on {name}."))];
        items.extend(self.dialect.said("", &[call]));
        items.extend(self.dialect.results(&[("call_0", &[long()])]));
        self.dialect.request(items, self.stream)
    }

    /// The same, and the model thinks.
    fn thinking(self, name: &str) -> Value {
        with(&self.asked(name), self.dialect.thinking())
    }

    async fn had(self, proxy: &Served, body: &Value) -> Had {
        self.dialect.had(proxy.proxy_addr, "k", body).await
    }

    /// The conversations that the provider got, one behind the other.
    fn sent(self, provider: &Provider) -> Vec<String> {
        attempts(provider).iter().map(|exchange| self.dialect.sent(&exchange.body)).collect()
    }
}

/// Every conversation goes on where the one before it ended, byte for byte.
fn assert_one_grows_from_the_other(sent: &[String]) {
    for (n, pair) in sent.windows(2).enumerate() {
        assert!(pair[1].starts_with(&pair[0]), "{n}: {}\n{}", pair[0], pair[1]);
    }
}

/// Only well-formed histories were sent. Where there are tools the answer was to come as it can be read, and no notice
/// names a tool that never came.
fn assert_unhurt(provider: &Provider) {
    assert_eq!(provider.violations(), []);
    let mut came = false;
    for exchange in attempts(provider) {
        let text = String::from_utf8_lossy(&exchange.body).into_owned();
        let offered = exchange.json()["tools"].to_string().contains("\"read_evicted\"");
        came |= offered;
        let socket = exchange.headers.contains_key("upgrade");
        assert!(!offered || socket || exchange.headers["accept-encoding"] == "identity");
        assert!(came || !text.contains("call the tool read_evicted"), "{text}");
    }
}

/// Prompt and cache of the last call, output of all.
fn assert_usage(had: &Had, exchanges: &[Exchange]) {
    let last = exchanges.last().unwrap().usage;
    let completion = exchanges.iter().map(|exchange| exchange.usage.completion).sum();
    assert_eq!(had.usage, Usage { completion, ..last });
}

/// Whether the model was told by the proxy's tool, last of all.
fn told(request: &ModelRequest) -> bool {
    request.messages().last().unwrap().to_string().contains(NEEDLE)
}

/// An answer with these thoughts as well.
fn thinks(thought: &str, text: &str, calls: Vec<ToolCall>) -> Reply {
    let text = Some(text.to_owned()).filter(|text| !text.is_empty());
    Reply::Say(Answer { reasoning: Some(thought.to_owned()), text, calls, ..Answer::default() })
}

/// A call as some models write it.
fn spaced(call: ToolCall) -> ToolCall {
    ToolCall { name: format!("functions.{}", call.name), ..call }
}

/// The answer to what the proxy's tool said.
fn found() -> Step {
    step(|request| says(if told(request) { "It is 4711." } else { "?" }, vec![]))
}

/// A client's next turns after an answer: nothing that was hidden is lost, and no byte before it changes.
async fn goes_on(cell: Cell, proxy: &Served, provider: &Provider, (body, had): (&Value, &Had)) {
    let calls = attempts(provider).len();
    let next = cell.dialect.went_on(body, had);
    let done = cell.had(proxy, &next).await;
    cell.had(proxy, &cell.dialect.went_on(&next, &done)).await;
    let sent = cell.sent(provider);
    assert_eq!(sent.len(), calls + 2);
    assert_one_grows_from_the_other(&sent);
    let tools: Vec<Value> = attempts(provider).iter().map(|exchange| exchange.json()["tools"].clone()).collect();
    assert!(tools.iter().all(|offered| *offered == tools[0]), "frozen");
    assert_unhurt(provider);
}

/// A provider that takes these steps, and the proxy in front of it.
async fn staged(steps: Vec<Step>, tools: &str) -> (Provider, Served) {
    pair(scripted(steps), &sections(tools)).await
}
