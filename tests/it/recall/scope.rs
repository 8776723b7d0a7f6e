//! Whose conversations and memory the model reaches by the tools that the proxy runs for it (L7): with scope `"session"`
//! its own alone, whatever it asks for.

use std::sync::{Arc, Mutex};

use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::Behaviour;
use compactproxy::proxy::Proxy;
use compactproxy::store::Store;
use serde_json::json;

use crate::support::chat::{parsed, send_to, whole};
use crate::support::proxy::open;

use super::*;

/// Calls for the model to make, and what it was told.
#[derive(Clone, Default)]
pub(super) struct Model {
    asks: Arc<Mutex<Vec<(&'static str, Value)>>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Model {
    /// Makes the calls one after the other, then says so.
    fn settings(&self) -> Settings {
        let Self { asks, told } = self.clone();
        let behaviour = Behaviour::new(move |request| {
            let last = request.messages().last().unwrap().to_string();
            if last.contains("own_") {
                told.lock().unwrap().push(last);
            }
            let mut asks = asks.lock().unwrap();
            let Some((name, arguments)) = asks.pop() else { return says("Noted.", vec![]) };
            let id = format!("own_{}", asks.len());
            says("", vec![ToolCall { id, name: name.to_owned(), arguments: arguments.to_string() }])
        });
        Settings { behaviour, ..Settings::default() }
    }
}

pub(super) struct Stand {
    _folder: tempfile::TempDir,
    pub(super) provider: Provider,
    model: Model,
    store: Arc<Store>,
    proxy: Arc<Proxy>,
    running: Served,
    pub(super) dialect: &'static dyn Dialect,
}

impl Stand {
    pub(super) async fn new(dialect: &'static dyn Dialect, scope: &str) -> Self {
        let model = Model::default();
        let provider = Provider::start(model.settings()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
        let sections = sections(&format!("inject = \"always\"\nscope = \"{scope}\"\n[sessions]\n[memory]\n"));
        let proxy = Proxy::new(parsed(&provider.base_url(), &sections), Some(Arc::clone(&store))).unwrap();
        let running = Served::of(Arc::clone(&proxy));
        Self { _folder: folder, provider, model, store, proxy, running, dialect }
    }

    /// Says `text` at the end of `items`, and gives them with the answer.
    pub(super) async fn say(&self, who: (&str, &[(&str, &str)]), items: &[Value], text: &str) -> Vec<Value> {
        let (key, more) = who;
        let (name, value) = self.dialect.credential(key);
        let headers = [&[(name, value.as_str())], more].concat();
        let items = [items, &[self.dialect.user(text)]].concat();
        let body = self.dialect.request(items.clone(), false);
        let url = format!("http://{}{}", self.running.proxy_addr, self.dialect.path());
        let answer = whole(send_to(&url, &headers, self.dialect.bytes(&body)).await.unwrap()).await;
        let had = self.dialect.read(&answer);
        assert_eq!(had.text, "Noted.");
        self.logged().await;
        [items, had.items].concat()
    }

    /// The same where the model makes these calls; what they gave.
    pub(super) async fn ask(
        &self,
        who: (&str, &[(&str, &str)]),
        items: &[Value],
        calls: &[(&'static str, Value)],
    ) -> Vec<String> {
        self.model.told.lock().unwrap().clear();
        *self.model.asks.lock().unwrap() = calls.iter().rev().cloned().collect();
        self.say(who, items, "Look it up.").await;
        let told = self.model.told.lock().unwrap().clone();
        assert_eq!(told.len(), calls.len());
        told
    }

    async fn logged(&self) {
        self.proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
        self.store.flush_log().await;
    }
}

/// Search, list, and the history of a session with this id.
fn calls(session: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("session_search", json!({"query": "heron nests"})),
        ("session_search", json!({"query": "heron nests", "sessionId": session})),
        ("session_list", json!({})),
        ("session_history", json!({"sessionId": session})),
        ("session_history", json!({})),
    ]
}

#[tokio::test]
async fn sessions_that_clients_name_are_out_of_each_others_reach() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let named = |name: &'static str| [("x-compactproxy-session", name)];
        let (one, two) = (named("one"), named("two"));
        stand.say(("k", &one), &[], "The heron nests at 4711.").await;
        let others = stand.store.all_sessions().await.unwrap()[0].id.to_string();
        let mine = stand.say(("k", &two), &[], "The heron nests at 0815.").await;
        let told = stand.ask(("k", &two), &mine, &calls(&others)[..4]).await;
        assert!(told.iter().all(|told| !told.contains("at 4711")), "{dialect:?} {told:?}");
        assert!(told[0].contains("at 0815"), "{told:?}");
        assert!(told[2].contains("1 session,") && told[3].contains("no session"), "{told:?}");
        let told = stand.ask(("k", &two), &mine, &calls(&others)[4..]).await;
        assert!(told[0].contains("at 0815") && !told[0].contains("at 4711"), "{told:?}");
    }
}

/// So the tests here can fail: where the operator allows it, the same questions find the others' words.
#[tokio::test]
async fn a_wider_scope_finds_what_others_said() {
    let stand = Stand::new(CHAT, "tenant").await;
    let (one, two) = ([("x-compactproxy-session", "one")], [("x-compactproxy-session", "two")]);
    stand.say(("k", &one), &[], "The heron nests at 4711.").await;
    let others = stand.store.all_sessions().await.unwrap()[0].id.to_string();
    let told = stand.ask(("k", &two), &[], &calls(&others)[..4]).await;
    let found: Vec<bool> = told.iter().map(|told| told.contains("at 4711")).collect();
    assert_eq!(found, [true; 4], "{told:?}");
}

/// One key, no names, the same first words: two end users of one service.
#[tokio::test]
async fn conversations_that_begin_alike_are_out_of_each_others_reach() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let begun = stand.say(("k", &[]), &[], "Hello.").await;
        stand.say(("k", &[]), &begun, "The heron nests at 4711.").await;
        let session = stand.store.all_sessions().await.unwrap()[0].id.to_string();
        let mine = stand.say(("k", &[]), &begun, "The heron nests at 0815.").await;
        assert_eq!(stand.store.all_sessions().await.unwrap().len(), 1, "only their messages tell them apart");
        for calls in calls(&session).chunks(4) {
            let told = stand.ask(("k", &[]), &mine, calls).await;
            assert!(told.iter().all(|told| !told.contains("at 4711")), "{dialect:?} {told:?}");
            assert!(told[0].contains("at 0815"), "{told:?}");
        }
    }
}

#[tokio::test]
async fn memory_is_that_of_tenant_and_agent() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let agent = |name: &'static str| [("x-compactproxy-agent", name)];
        let (one, two) = (agent("one"), agent("two"));
        let note = ("memory_save", json!({"content": "The heron nests at 4711."}));
        let search = ("memory_search", json!({"query": "heron nests"}));
        stand.ask(("k", &one), &[], &[note]).await;
        for (key, headers, finds) in [("k", &one, true), ("k", &two, false), ("other", &one, false)] {
            let begun = stand.say((key, headers), &[], &format!("Another matter, {key}.")).await;
            let told = stand.ask((key, headers), &begun, std::slice::from_ref(&search)).await;
            assert_eq!(told[0].contains("at 4711"), finds, "{dialect:?} {key} {headers:?} {told:?}");
        }
    }
}
