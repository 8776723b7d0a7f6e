//! With scope `"session"` the model reads the removed texts of which it was told, and no others: two end users under one
//! key, and ids that the model of one has from nowhere.

use serde_json::json;

use crate::support::chat::{attempts, ids, words};

use super::scope::Stand;
use super::*;

/// One end user: how it names its session, and what only it knows.
struct User {
    headers: Vec<(&'static str, &'static str)>,
    secret: String,
    items: Vec<Value>,
}

impl User {
    fn new(named: Option<&'static str>, secret: &str) -> Self {
        let headers = named.map(|name| ("x-compactproxy-session", name)).into_iter().collect();
        Self { headers, secret: secret.to_owned(), items: Vec::new() }
    }

    /// Has its tool say a long text with the secret in its middle.
    async fn works(&mut self, stand: &Stand, seed: u64) {
        let dialect = stand.dialect;
        let call = ToolCall { id: "call_0".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
        let text = format!("{}\n{}\n{}", words(seed, 500), self.secret, words(seed + 1, 500));
        let mut items = vec![dialect.user("Look around.")];
        items.extend(dialect.said("", &[call]));
        items.extend(dialect.results(&[("call_0", &[text])]));
        items.extend(dialect.said("I have seen it.", &[]));
        self.items = stand.say(("k", &self.headers), &items, "What is there?").await;
    }

    /// What the model is told that makes these calls in this conversation.
    async fn asks(&self, stand: &Stand, calls: &[Value]) -> Vec<String> {
        let calls: Vec<(&'static str, Value)> =
            calls.iter().map(|arguments| ("read_evicted", arguments.clone())).collect();
        stand.ask(("k", &self.headers), &self.items, &calls).await
    }
}

/// The id of the one text that left the last request.
fn removed(stand: &Stand) -> String {
    let body = attempts(&stand.provider).pop().unwrap().body;
    let mut ids = ids(&body);
    ids.dedup();
    assert_eq!(ids.len(), 1, "{}", String::from_utf8_lossy(&body));
    ids.remove(0)
}

/// Ways to ask for a text.
fn forms(id: &str) -> Vec<Value> {
    vec![
        json!({"id": id}),
        json!({"id": id.to_uppercase()}),
        json!({"id": format!("/_compactproxy/evicted/{id}")}),
        json!({"id": format!(" {id} "), "pattern": "the secret"}),
    ]
}

#[tokio::test]
async fn two_end_users_of_one_key_read_their_own_texts_alone() {
    let names = [(None, None), (Some("one"), Some("two")), (None, Some("two"))];
    for dialect in ALL {
        for (seed, (first, second)) in (1..).zip(names) {
            let stand = Stand::new(dialect, "session").await;
            let mut one = User::new(first, &format!("the secret of one is {seed}"));
            let mut two = User::new(second, &format!("the secret of two is {seed}"));
            one.works(&stand, 10 * seed).await;
            let others = removed(&stand);
            two.works(&stand, 10 * seed + 5).await;
            let mine = removed(&stand);
            assert_ne!(others, mine);
            for turn in 0..2 {
                let told = two.asks(&stand, &forms(&others)).await;
                assert!(told.iter().all(|told| !told.contains(&one.secret)), "{dialect:?} {seed} {turn}: {told:?}");
                assert!(told.iter().all(|told| told.contains("no text is kept under this id")), "{told:?}");
                // One that nobody has looks the same.
                let none = two.asks(&stand, &[json!({"id": "0".repeat(32)})]).await;
                assert!(none[0].contains("no text is kept under this id"), "{none:?}");
                let told = two.asks(&stand, &forms(&mine)[1..]).await;
                assert!(told[2].contains(&two.secret), "{dialect:?} {seed} {turn}: {told:?}");
                assert!(told.iter().all(|told| !told.contains("no text is kept")), "{told:?}");
                // What was asked for stands in the history now, with what came of it.
                two.items = stand.say(("k", &two.headers), &two.items, "Go on.").await;
            }
            let told = one.asks(&stand, &forms(&others)[3..]).await;
            assert!(told[0].contains(&one.secret), "{told:?}");
            assert_eq!(stand.provider.violations(), []);
        }
    }
}

/// So the test above can fail: where the operator allows it, the same ids are read.
#[tokio::test]
async fn a_wider_scope_reads_what_others_had_removed() {
    for (dialect, scope) in ALL.into_iter().zip(["tenant", "agent", "tenant"]) {
        let stand = Stand::new(dialect, scope).await;
        let mut one = User::new(None, "the secret of one");
        let mut two = User::new(None, "the secret of two");
        one.works(&stand, 1).await;
        let others = removed(&stand);
        two.works(&stand, 5).await;
        let told = two.asks(&stand, &forms(&others)[3..]).await;
        assert!(told[0].contains(&one.secret), "{dialect:?} {told:?}");
    }
}

/// An id that stands anywhere in what the model was sent is one that it may have: a client's own summary of an earlier
/// conversation, or what one agent tells another.
#[tokio::test]
async fn an_id_that_a_client_hands_on_is_read() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let mut one = User::new(Some("one"), "the secret of one");
        one.works(&stand, 1).await;
        let id = removed(&stand);
        let summary = stand.dialect.user(&format!("Summary of what was: the listing is kept under id {id}."));
        let two = User { items: vec![summary], ..User::new(Some("two"), "") };
        let told = two.asks(&stand, &forms(&id)[3..]).await;
        assert!(told[0].contains(&one.secret), "{dialect:?} {told:?}");
    }
}

/// Whatever a call of the model's is given, nothing was shown by that: not in the same turn, and not in later ones.
#[tokio::test]
async fn no_call_shows_what_it_asks_for() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let mut one = User::new(Some("one"), "the secret of one");
        let mut two = User::new(Some("two"), "the secret of two");
        one.works(&stand, 1).await;
        let id = removed(&stand);
        two.works(&stand, 5).await;
        let mine = removed(&stand);
        let reads = |arguments: Value| ("read_evicted", arguments);
        let tries = vec![
            reads(json!({"id": [id]})),
            reads(json!({"id": {"a": [id]}})),
            reads(json!({"id": "x", "other": json!({"id": id}).to_string()})),
            reads(json!({&*id: 1})),
            reads(json!({"id": mine, "pattern": format!("({id}")})),
            ("session_history", json!({"sessionId": id})),
            ("session_history", json!({"branch": id, "agentId": id})),
            ("session_search", json!({"query": id, "sessionId": id})),
            ("memory_get", json!({"path": id})),
        ];
        for _ in 0..2 {
            // The last of them asks in the turn in which the others did.
            for tries in tries.chunks(3) {
                let tries = [tries, &[reads(json!({"id": id}))]].concat();
                let told = stand.ask(("k", &two.headers), &two.items, &tries).await;
                assert!(told.iter().all(|told| !told.contains(&one.secret)), "{dialect:?} {told:?}");
                assert!(told[3].contains("no text is kept under this id"), "{told:?}");
            }
            two.items = stand.say(("k", &two.headers), &two.items, "Go on.").await;
        }
        assert_eq!(stand.provider.violations(), []);
    }
}

/// What a tool of the client's says is shown, also where it says so in JSON.
#[tokio::test]
async fn an_id_in_a_tools_result_is_read_whatever_it_looks_like() {
    for dialect in ALL {
        let stand = Stand::new(dialect, "session").await;
        let mut one = User::new(Some("one"), "the secret of one");
        one.works(&stand, 1).await;
        let id = removed(&stand);
        for result in [json!({"id": id, "why": "removed"}), json!([{"id": [id]}]), json!({"input": {"id": id}})] {
            let call = ToolCall { id: "call_0".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
            let mut items = vec![dialect.user("Ask the other agent.")];
            items.extend(dialect.said("", &[call]));
            items.extend(dialect.results(&[("call_0", &[result.to_string()])]));
            items.extend(dialect.said("It has told me.", &[]));
            let two = User { items, ..User::new(Some("two"), "") };
            let told = two.asks(&stand, &forms(&id)[3..]).await;
            assert!(told[0].contains(&one.secret), "{dialect:?} {result} {told:?}");
        }
    }
}
