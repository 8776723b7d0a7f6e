//! Calls of the proxy's tools that mean harm: over the model's answers and over MCP, in every dialect. Each meets with an
//! error that the model can act on or with nothing; none with a word of another tenant's, and none hurts its turn.

mod table;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::rules::{Arguments, Rules};
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::proxy::Proxy;
use compactproxy::proxy::reading::{Reading, Shares};
use compactproxy::store::Store;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use self::table::{Ids, Meets, Row, no_objects, rows};
use crate::mcp::{called, message};
use crate::support::chat::{attempts, ids, pair, parsed, words};
use crate::support::dialects::{ALL, Chat, Dialect};
use crate::support::proxy::{Served, open};
use crate::support::recall::{EVICTION, clients, result, says, scripted, sections, step};
use crate::support::wire::patiently;

const SECRET: &str = "the vault opens at seven";
const PAGE: usize = 1_000;
/// Calls of one answer: fewer than what a message may have (C8).
const BATCH: usize = 70;
/// A turn of so many calls that takes longer does not end.
const TURN: Duration = Duration::from_secs(600);

type Said = Arc<Mutex<Vec<(Row, String)>>>;

/// The model of an attacker: it calls all this, batch after batch, and notes what comes of it.
#[derive(Default)]
struct Attack {
    batches: VecDeque<Vec<Row>>,
    asked: Vec<Row>,
    number: usize,
    said: Said,
}

impl Attack {
    fn answer(&mut self, request: &ModelRequest) -> Reply {
        for (n, row) in std::mem::take(&mut self.asked).into_iter().enumerate() {
            let text = result(request, &called_as(self.number, n)).unwrap_or_else(|| panic!("no result: {row:?}"));
            self.said.lock().unwrap().push((row, text));
        }
        let Some(batch) = self.batches.pop_front() else { return Reply::Say(Answer::text("Done.")) };
        self.number += 1;
        let call = |(n, row): (usize, &Row)| ToolCall {
            id: called_as(self.number, n),
            name: row.tool.to_owned(),
            arguments: row.arguments.clone(),
        };
        let calls = batch.iter().enumerate().map(call).collect();
        self.asked = batch;
        Reply::Say(Answer { calls, ..Answer::default() })
    }
}

fn called_as(round: usize, n: usize) -> String {
    format!("own_{round}_{n}")
}

/// A conversation whose result, with `hidden` in it, is too long to stay.
fn conversation(dialect: &dyn Dialect, (name, hidden): (&str, &str), stream: bool) -> Value {
    let call = ToolCall { id: "call_0".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
    let mut items = vec![dialect.user(&format!("Work on {name}."))];
    items.extend(dialect.said("", &[call]));
    let long = format!("{}\n{hidden}\n{}", words(1, 500), words(2, 500));
    items.extend(dialect.results(&[("call_0", &[long])]));
    dialect.request(items, stream)
}

/// A proxy with a victim and an attacker, both with a credential of their own, and the attacker's model.
struct House {
    dialect: &'static dyn Dialect,
    provider: Provider,
    attack: Arc<Mutex<Attack>>,
    proxy: Arc<Proxy>,
    served: Served,
    store: Arc<Store>,
    _state: TempDir,
}

impl House {
    async fn new(dialect: &'static dyn Dialect, scope: &str) -> Self {
        let attack = Arc::new(Mutex::new(Attack::default()));
        let model = Arc::clone(&attack);
        let behaviour = Behaviour::new(move |request| model.lock().unwrap().answer(request));
        // As servers that read the arguments of every call in the history (C6).
        let rules = Rules { arguments: Arguments::Parsed, ..Rules::default() };
        let provider = Provider::start(Settings { behaviour, rules, ..Settings::default() }).await.unwrap();
        let state = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", state.path().join("state.db").display()));
        let sections = format!(
            "{EVICTION}[tools]\ninject = \"always\"\nscope = \"{scope}\"\npage_chars = {PAGE}\nmax_rounds = 20\n\
             [sessions]\n[memory]\n"
        );
        let mut proxy = Proxy::new(parsed(&provider.base_url(), &sections), Some(Arc::clone(&store))).unwrap();
        let opened = Arc::get_mut(&mut proxy).unwrap();
        // More reads in a second than anybody's share.
        let shares = Shares { each: u32::MAX, all: u32::MAX };
        opened.reading = Some(Arc::new(Reading::with(Arc::clone(&store), Arc::clone(&opened.budget), shares)));
        let served = Served::of(Arc::clone(&proxy));
        Self { dialect, provider, attack, proxy, served, store, _state: state }
    }

    /// As [`conversation`].
    fn body(&self, name: &str, hidden: &str, stream: bool) -> Value {
        conversation(self.dialect, (name, hidden), stream)
    }

    async fn mcp(&self, key: &str, tool: &str, arguments: Value) -> (String, bool) {
        let (name, value) = self.dialect.credential(key);
        called(self.served.proxy_addr, &[(name, &value)], tool, arguments).await
    }

    /// What the last request of the model points to.
    fn removed(&self) -> String {
        ids(&attempts(&self.provider).pop().unwrap().body)[0].clone()
    }

    /// The victim works, and has a secret in a removed text, in its session and in its memory.
    async fn victim(&self, key: &str) -> (String, String) {
        self.dialect.had(self.served.proxy_addr, key, &self.body("the vault", SECRET, false)).await;
        let foreign = self.removed();
        self.mcp(key, "memory_save", json!({"content": format!("- {SECRET}")})).await;
        self.proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
        self.store.flush_log().await;
        let sessions = self.store.all_sessions().await.unwrap();
        (foreign, sessions[0].id.to_string())
    }

    /// The model of who has this key makes these calls in one turn: what it is told.
    async fn attacked(&self, key: &str, body: &Value, rows: Vec<Row>) -> Vec<(Row, String)> {
        let said = Said::default();
        let batches = rows.chunks(BATCH).map(<[Row]>::to_vec).collect();
        *self.attack.lock().unwrap() = Attack { batches, said: Arc::clone(&said), ..Attack::default() };
        let had = timeout(TURN, self.dialect.had(self.served.proxy_addr, key, body)).await.expect("a turn ends");
        assert_eq!((had.text.as_str(), had.calls.len(), had.waits), ("Done.", 0, false));
        // What was hidden comes back with every later turn, and hurts none.
        let rounds = attempts(&self.provider).len();
        let next = self.dialect.went_on(body, &had);
        let more =
            timeout(TURN, self.dialect.had(self.served.proxy_addr, key, &next)).await.expect("the next turn ends");
        assert_eq!(more.text, "Done.");
        let sent = attempts(&self.provider);
        assert_eq!(sent.len(), rounds + 1);
        let [before, after] = [&sent[rounds - 1], &sent[rounds]].map(|exchange| self.dialect.sent(&exchange.body));
        assert!(after.starts_with(&before), "{:?}: what was hidden is not put back", self.dialect);
        assert_eq!(self.provider.violations(), []);
        let said = said.lock().unwrap();
        said.clone()
    }
}

/// Every answer is what its row may meet with.
fn judge(by: &str, row: &Row, text: &str, failed: bool) {
    let what = format!("{by} {} {:.200} {:?}: {text}", row.tool, row.arguments, row.meets);
    assert!(!text.contains(SECRET) && !text.contains("opens at seven"), "{what}");
    assert!(!text.trim().is_empty() && text.chars().count() <= PAGE, "{what}");
    if row.meets == Meets::Error {
        assert!(failed && text.starts_with("Error: ") && text.len() > 25, "{what}");
    }
}

#[tokio::test]
async fn hostile_arguments_of_a_model_meet_with_an_error_or_nothing() {
    let cells = ALL.into_iter().flat_map(|dialect| [true, false].map(|stream| (dialect, stream)));
    for (cell, (dialect, stream)) in cells.enumerate() {
        let house = House::new(dialect, "tenant").await;
        let (foreign, session) = house.victim("victim").await;
        let body = house.body("something else", "nothing to see", stream);
        house.dialect.had(house.served.proxy_addr, "attacker", &body).await;
        let ids = Ids { own: house.removed(), foreign, session };
        // How arguments are written is each dialect's own; what they say is not.
        let rows: Vec<Row> = rows(&ids).into_iter().skip(cell).step_by(6).chain(no_objects(&ids)).collect();
        let said = house.attacked("attacker", &body, rows.clone()).await;
        assert_eq!(said.len(), rows.len());
        for (row, text) in said {
            judge(&format!("{dialect:?} {stream}"), &row, &text, text.starts_with("Error: "));
        }
    }
}

/// A model that calls this beside a tool of the client's, and then no more.
fn calling_both(arguments: &str) -> Settings {
    let own = ToolCall { id: "own_1".to_owned(), name: "read_evicted".to_owned(), arguments: arguments.to_owned() };
    let steps = vec![step(move |_| says("", vec![own.clone(), clients(7)]))];
    let rules = Rules { arguments: Arguments::Parsed, ..Rules::default() };
    Settings { rules, ..scripted(steps) }
}

/// Beside a call of the client's, in a history that the client holds, they do no harm either.
#[tokio::test]
async fn hostile_arguments_beside_a_call_of_the_clients_hurt_no_later_turn() {
    let deep = format!("{{\"id\":{}{}}}", "[".repeat(90), "]".repeat(90));
    for dialect in ALL {
        for (stream, arguments) in
            [(true, "{"), (false, "{"), (true, r#"{"id":1,"id":2}"#), (true, "[]"), (true, &deep), (false, &deep)]
        {
            let (provider, proxy) = pair(calling_both(arguments), &sections("inject = \"always\"\n")).await;
            let body = conversation(dialect, ("both", "nothing to see"), stream);
            let had = dialect.had(proxy.proxy_addr, "k", &body).await;
            assert_eq!((had.calls.len(), had.waits), (1, true), "{dialect:?} {arguments}");
            let next = dialect.went_on(&body, &had);
            assert_eq!(dialect.had(proxy.proxy_addr, "k", &next).await.text, "Done.");
            let last = attempts(&provider).pop().unwrap();
            let calls = dialect.called(&last.json(), 1);
            assert_eq!(calls, ["execute", "read_evicted", "execute"], "{dialect:?} {arguments}");
            assert_eq!(provider.violations(), []);
        }
    }
}

/// Raw JSON as a member of a message, else a string.
fn member(arguments: &str) -> String {
    match serde_json::from_str::<&serde_json::value::RawValue>(arguments) {
        Ok(raw) => raw.get().to_owned(),
        Err(_) => json!(arguments).to_string(),
    }
}

#[tokio::test]
async fn hostile_arguments_over_mcp_meet_with_an_error_or_nothing() {
    // With either header for a credential; there are no dialects.
    for (half, dialect) in [ALL[0], ALL[2]].into_iter().enumerate() {
        let house = House::new(dialect, "tenant").await;
        let (foreign, session) = house.victim("victim").await;
        house.dialect.had(house.served.proxy_addr, "attacker", &house.body("else", "nothing to see", false)).await;
        let (name, value) = dialect.credential("attacker");
        let ids = Ids { own: house.removed(), foreign, session };
        for row in rows(&ids).into_iter().skip(half).step_by(2).chain(no_objects(&ids)) {
            let (tool, arguments) = (json!(row.tool), member(&row.arguments));
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":{tool},"arguments":{arguments}}}}}"#
            );
            let answer = patiently("an answer", message(house.served.proxy_addr, &[(name, &value)], call)).await;
            if answer.status != 200 {
                assert!((400..500).contains(&answer.status) && !answer.text().contains(SECRET), "{row:?} {answer:?}");
                continue;
            }
            let answer: Value = serde_json::from_slice(&answer.body).unwrap();
            let result = &answer["result"];
            match (result["content"][0]["text"].as_str(), answer["error"]["message"].as_str()) {
                (Some(text), None) => judge(&format!("{dialect:?} mcp"), &row, text, result["isError"] == true),
                (None, Some(_)) => assert!(!answer.to_string().contains(SECRET), "{row:?} {answer}"),
                _ => panic!("{row:?}: {answer}"),
            }
        }
        let (found, failed) = house.mcp("victim", "memory_search", json!({"query": "vault"})).await;
        assert!(!failed && found.contains(SECRET), "what is the victim's is there still: {found}");
        let (found, failed) = house.mcp("victim", "read_evicted", json!({"id": house.removed()})).await;
        assert!(failed, "nor has the victim what is the attacker's: {found}");
    }
}

/// Two end users under one key: an id from the one's conversation is no id in the other's.
#[tokio::test]
async fn a_guessed_session_of_another_user_under_the_same_key_is_unknown() {
    let house = House::new(&Chat, "session").await;
    let (_, session) = house.victim("k").await;
    let body = house.body("something else", "nothing to see", true);
    let rows: Vec<Row> = [
        ("session_history", json!({"sessionId": session})),
        ("session_search", json!({"query": "vault opens", "sessionId": session})),
        ("session_search", json!({"query": "vault opens", "agentId": "unknown"})),
        ("session_list", json!({})),
        ("session_history", json!({"lastN": 1_000_000_000})),
    ]
    .into_iter()
    .map(|(tool, arguments)| Row { tool, arguments: arguments.to_string(), meets: Meets::Anything })
    .collect();
    let said = house.attacked("k", &body, rows).await;
    for (row, text) in &said {
        judge("one key", row, text, false);
    }
    assert!(said[0].1.starts_with("Error: there is no session"), "{said:?}");
    assert!(!said[3].1.contains(&session), "{said:?}");
}
