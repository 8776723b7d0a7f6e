use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::proxy::budget::Budget;
use crate::proxy::reading::{Reading, Who};
use crate::store::log::{Kind, LogBatch, Message, Unfound};
use crate::store::{Limits, Store, Tenant};
use crate::tools::definitions::Enabled;
use crate::tools::execution::Caller;
use crate::wire::Dialect;

const PAGE: usize = 1_000;

struct Desk {
    store: Arc<Store>,
    reading: Arc<Reading>,
    _folder: Arc<tempfile::TempDir>,
}

/// A log of one session: who, which agent's, and what was said.
struct Said<'s> {
    tenant: Tenant,
    session: SessionId,
    agent: &'s str,
    chain: &'s [Digest],
    texts: &'s [String],
}

impl Desk {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("log.db").display());
        let store = Store::open(&url, Limits::default()).await.unwrap();
        let reading = Arc::new(Reading::new(Arc::clone(&store), Budget::new(1 << 30)));
        Self { store, reading, _folder: Arc::new(folder) }
    }

    fn again(&self) -> Self {
        let (store, reading) = (Arc::clone(&self.store), Arc::clone(&self.reading));
        Self { store, reading, _folder: Arc::clone(&self._folder) }
    }

    fn session(&self, tenant: Tenant, name: &str) -> SessionId {
        self.store.session_id(&tenant, Some(name.as_bytes()), None)
    }

    async fn log(&self, said: Said<'_>) {
        let messages = said.texts.iter().enumerate().map(|(i, text)| {
            let role = if i % 2 == 0 { Role::User } else { Role::Assistant };
            let name = if i % 2 == 0 { "user" } else { "assistant" };
            Message {
                digest: said.chain[i],
                parent: i.checked_sub(1).map(|before| said.chain[before]),
                number: u32::try_from(i).unwrap() + 1,
                role,
                tokens: Some(3),
                json: json!({"role": name, "content": text}).to_string().into(),
                unfound: Unfound::Nothing,
            }
        });
        let batch = LogBatch {
            session: said.session,
            agent: said.agent.into(),
            dialect: Dialect::Chat,
            kind: Kind::Sent,
            messages: messages.collect(),
        };
        self.store.log(&said.tenant, batch);
        self.store.flush_log().await;
    }

    fn tools(&self, tenant: Tenant, view: Option<View>) -> Toolbox {
        let caller =
            Caller { tenants: vec![tenant], home: Some(tenant), who: Who::Seen(tenant), agent: "a".into(), view };
        Toolbox::new(Arc::clone(&self.reading), caller, Enabled { sessions: true, memory: false }, PAGE)
    }
}

fn view(scope: Scope, current: SessionId) -> Option<View> {
    Some(View { scope, current: Some(current), chain: None })
}

fn own(session: SessionId) -> Option<View> {
    view(Scope::Conversation { session, chain: None }, session)
}

fn chain(seed: u8, len: usize) -> Vec<Digest> {
    (0..len).map(|n| *blake3::hash(&[&[seed][..], &n.to_le_bytes()].concat()).as_bytes()).collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

async fn called(tools: &Toolbox, name: &str, arguments: serde_json::Value) -> String {
    let result = tools.call(name, &arguments.to_string()).await;
    assert!(result.text.chars().count() <= PAGE);
    assert_eq!(result.failed, result.text.starts_with("Error: "), "{}", result.text);
    result.text
}

#[tokio::test]
async fn a_page_has_room_before_it_is_loaded() {
    let desk = Desk::new().await;
    let tenant = desk.store.tenant(&[b"a"]);
    let session = desk.session(tenant, "one");
    let said: Vec<String> = (0..9).map(|n| format!("{n} {}", "word ".repeat(1_000))).collect();
    desk.log(Said { tenant, session, agent: "codex", chain: &chain(1, 9), texts: &said }).await;
    for (bytes, full) in [(10_000, true), (11_000, false)] {
        let budget = Budget::new(bytes);
        let desk =
            Desk { reading: Arc::new(Reading::new(Arc::clone(&desk.store), Arc::clone(&budget))), ..desk.again() };
        let page = called(&desk.tools(tenant, own(session)), "session_history", json!({})).await;
        assert_eq!(page.starts_with("Error: the proxy's buffers are full"), full, "{page}");
        assert!(full || page.contains("#9 user "), "the latest: {page}");
        assert_eq!(budget.used(), 0);
    }
    let mut within = within(desk.reading.room(), PAGE);
    assert_eq!([within(1 << 20), within(1)], [true, false], "a page has room for no more characters");
}

#[tokio::test]
async fn a_conversation_is_listed_read_and_searched() {
    let desk = Desk::new().await;
    let tenant = desk.store.tenant(&[b"a"]);
    let (one, other) = (desk.session(tenant, "one"), desk.session(tenant, "other"));
    let said = texts(&["Fix parse_config", "I read src/lib.rs", "Why?", "It holds the needle-4711"]);
    desk.log(Said { tenant, session: one, agent: "codex", chain: &chain(1, 4), texts: &said }).await;
    desk.log(Said { tenant, session: other, agent: "claude", chain: &chain(2, 1), texts: &texts(&["needle"]) }).await;

    let tools = desk.tools(tenant, own(one));
    let list = called(&tools, "session_list", json!({})).await;
    assert!(
        list.starts_with(&format!("[1 session, the latest first]\n{one}, this conversation: agent codex, ")),
        "{list}"
    );
    assert!(list.ends_with("4 messages, 12 tokens: Fix parse_config\n"), "{list}");
    let shown = |tokens| {
        let (agents, title) = (vec!["a".into()], "t".to_owned());
        let info = SessionInfo { tenant, id: one, agents, title, first: 0, last: 0, messages: 2, tokens, bytes: 9 };
        listed(&info, None)
    };
    assert!(shown(0).ends_with("Z, 2 messages: t\n"), "nobody counted: {}", shown(0));
    let page = called(&tools, "session_history", json!({"lastN": 2})).await;
    let branch = Cursor::of(&chain(1, 4)[2]);
    let head = format!("[session {one}: messages #3 to #4; for earlier ones use before=3, branch={branch}]\n#3 user ");
    assert!(page.starts_with(&head), "{page}");
    assert!(page.ends_with("Z\nIt holds the needle-4711\n\n"), "{page}");
    let page = called(&tools, "session_history", json!({"before": 3})).await;
    assert!(page.starts_with(&format!("[session {one}: messages #1 to #2]\n")), "{page}");
    let hits = called(&tools, "session_search", json!({"query": "needle"})).await;
    assert!(hits.starts_with("[1 of 1 hits") && hits.contains(&format!("session {one} #4 assistant ")), "{hits}");
    let none = called(&tools, "session_search", json!({"query": "haystack"})).await;
    assert_eq!(none, "[nothing matches in the sessions that you may read]");
    let none = called(&tools, "session_list", json!({"agentId": "claude"})).await;
    assert_eq!(none, "[no sessions]");
    let guessed = called(&tools, "session_history", json!({"sessionId": other.to_string()})).await;
    let invented = called(&tools, "session_history", json!({"sessionId": "0".repeat(32)})).await;
    assert_eq!(guessed.replace(&other.to_string(), "*"), invented.replace(&"0".repeat(32), "*"));

    let wide = desk.tools(tenant, view(Scope::Tenant, one));
    assert!(called(&wide, "session_list", json!({})).await.starts_with("[2 sessions"));
    assert!(called(&wide, "session_list", json!({"agentId": "claude"})).await.starts_with("[1 session,"));
    assert!(called(&wide, "session_history", json!({"sessionId": other.to_string()})).await.contains("needle"));
    let agent = desk.tools(tenant, view(Scope::Agent("codex".into()), one));
    assert!(called(&agent, "session_list", json!({})).await.starts_with("[1 session,"));
    assert_eq!(called(&agent, "session_list", json!({"agentId": "claude"})).await, "[no sessions]");
    assert!(
        called(&agent, "session_history", json!({"sessionId": other.to_string()}))
            .await
            .starts_with("Error: there is no")
    );
}

/// A session of two branches: another agent's from the second message on, written last.
async fn forked(desk: &Desk) -> (Tenant, SessionId, [Vec<Digest>; 2]) {
    let tenant = desk.store.tenant(&[b"a"]);
    let session = desk.session(tenant, "one");
    let trunk = chain(1, 3);
    let fork = [&trunk[..1], &chain(2, 2)].concat();
    let said = texts(&["begin", "left", "the needle is here"]);
    desk.log(Said { tenant, session, agent: "codex", chain: &trunk, texts: &said }).await;
    let said = texts(&["begin", "right", "nothing is there"]);
    desk.log(Said { tenant, session, agent: "sub", chain: &fork, texts: &said }).await;
    (tenant, session, [trunk, fork])
}

#[tokio::test]
async fn a_hit_on_another_branch_is_read_there() {
    let desk = Desk::new().await;
    let (tenant, session, [_, fork]) = forked(&desk).await;
    for view in [own(session).map(|view| view.along(&fork)), own(session), view(Scope::Tenant, session)] {
        let tools = desk.tools(tenant, view);
        let hits = called(&tools, "session_search", json!({"query": "needle"})).await;
        assert!(hits.contains("that branch and before=N+1"), "{hits}");
        let branch = hits.split_once(" branch=").unwrap().1.split('\n').next().unwrap();
        let arguments = json!({"sessionId": session.to_string(), "branch": branch, "before": 4});
        let page = called(&tools, "session_history", arguments).await;
        assert!(page.contains("left") && page.contains("the needle is here") && !page.contains("right"), "{page}");
        let arguments = json!({"branch": format!("branch={}", branch.to_uppercase()), "lastN": 1});
        let page = called(&tools, "session_history", arguments).await;
        assert!(page.contains("needle") && page.contains(&format!("before=3, branch={branch}]")), "{page}");
        let page = called(&tools, "session_history", json!({"before": 4})).await;
        assert!(page.contains("nothing is there"), "its own: {page}");
    }
    let tools = desk.tools(tenant, own(session));
    let none = called(&tools, "session_history", json!({"branch": "0".repeat(16)})).await;
    assert_eq!(none, format!("[session {session}: no messages there]"));
    let wrong = called(&tools, "session_history", json!({"branch": "x"})).await;
    assert!(wrong.starts_with("Error: branch must be the 16 hexadecimal digits"), "{wrong}");
}

#[tokio::test]
async fn an_agent_of_a_session_is_listed_read_and_searched() {
    let desk = Desk::new().await;
    let (tenant, session, [_, fork]) = forked(&desk).await;
    for view in [own(session).map(|view| view.along(&fork)), view(Scope::Tenant, session)] {
        let tools = desk.tools(tenant, view);
        let list = called(&tools, "session_list", json!({"agentId": "SUB"})).await;
        assert!(list.starts_with("[1 session,"), "{list}");
        let page = called(&tools, "session_history", json!({"agentId": "Codex"})).await;
        assert!(page.contains("the needle is here") && !page.contains("right"), "{page}");
        let hits = called(&tools, "session_search", json!({"query": "right left", "agentId": "Sub"})).await;
        assert!(hits.starts_with("[1 of 1 hits") && hits.contains("right"), "{hits}");
    }
    let list = called(&desk.tools(tenant, own(session)), "session_list", json!({})).await;
    assert!(list.contains(": agents codex, sub, "), "{list}");
}

#[tokio::test]
async fn history_goes_on_from_what_is_written() {
    let desk = Desk::new().await;
    let (tenant, session, [trunk, _]) = forked(&desk).await;
    let waiting = [trunk, chain(9, 2)].concat();
    let tools = desk.tools(tenant, own(session).map(|view| view.along(&waiting)));
    let page = called(&tools, "session_history", json!({})).await;
    assert!(page.starts_with(&format!("[session {session}: messages #1 to #3]\n")), "{page}");
    assert!(page.contains("the needle is here"), "the conversation's own branch: {page}");
}

#[tokio::test]
async fn a_message_that_is_longer_than_a_page_is_read_in_parts() {
    let desk = Desk::new().await;
    let tenant = desk.store.tenant(&[b"a"]);
    let session = desk.session(tenant, "one");
    let long: String = (0..700).map(|n| format!("wörd{n} ")).collect();
    let said = vec!["first".to_owned(), long.clone(), "last".to_owned()];
    desk.log(Said { tenant, session, agent: "a", chain: &chain(1, 3), texts: &said }).await;
    let tools = desk.tools(tenant, own(session));
    let page = called(&tools, "session_history", json!({})).await;
    assert!(
        page.starts_with(&format!("[session {session}: messages #3 to #3; for earlier ones use before=3, branch=")),
        "{page}"
    );
    let (mut whole, mut arguments) = (String::new(), json!({"before": 3}));
    loop {
        let page = called(&tools, "session_history", arguments.clone()).await;
        let (head, body) = page.split_once("]\n").unwrap();
        assert!(head.contains("for earlier messages use before=2"), "{head}");
        whole += body.strip_suffix('\n').unwrap();
        let Some((_, next)) = head.split_once("char_offset=") else { break };
        let next: usize = next.split(';').next().unwrap().parse().unwrap();
        arguments = json!({"before": 3, "lastN": 1, "char_offset": next});
    }
    assert_eq!(whole.trim_end(), long.trim_end());
    let behind = called(&tools, "session_history", json!({"char_offset": 4})).await;
    assert!(behind.starts_with("Error: char_offset 4 is behind the end"), "{behind}");
}

#[tokio::test]
async fn where_the_conversation_is_not_known_only_a_wider_scope_helps() {
    let desk = Desk::new().await;
    let tenant = desk.store.tenant(&[b"a"]);
    let session = desk.session(tenant, "one");
    desk.log(Said { tenant, session, agent: "a", chain: &chain(1, 1), texts: &texts(&["needle"]) }).await;
    let none = desk.tools(tenant, View::of(ToolScope::Session, "a", None, None));
    for (name, arguments) in
        [("session_list", json!({})), ("session_history", json!({})), ("session_search", json!({"query": "needle"}))]
    {
        let said = called(&none, name, arguments).await;
        assert!(said.contains("x-compactproxy-session") && !said.contains("needle"), "{said}");
    }
    let wide = desk.tools(tenant, View::of(ToolScope::Tenant, "a", None, None));
    assert!(called(&wide, "session_history", json!({})).await.contains("sessionId is missing"));
    assert!(called(&wide, "session_search", json!({"query": "needle"})).await.contains("needle"));
}

/// Tenants and sessions with the same texts and digests, but for a secret in each; what is asked for is adversarial.
fn asked(
    (ids, branches): (&[String], &[String]),
    agent: &str,
    garbage: &str,
    pick: (usize, usize),
) -> Vec<(&'static str, serde_json::Value)> {
    let id = &ids[pick.0 % ids.len()];
    vec![
        ("session_list", json!({"agentId": agent})),
        ("session_list", json!({})),
        ("session_history", json!({"sessionId": id, "lastN": pick.1 + 1})),
        ("session_history", json!({"sessionId": id.to_uppercase(), "before": pick.1 + 1})),
        ("session_history", json!({"sessionId": garbage})),
        ("session_history", json!({"branch": branches[pick.0 % branches.len()], "lastN": 9})),
        ("session_history", json!({"branch": branches[pick.1 % branches.len()], "before": pick.1 + 1})),
        ("session_history", json!({"agentId": agent, "char_offset": pick.1})),
        ("session_search", json!({"query": "secret shared words", "sessionId": id})),
        ("session_search", json!({"query": format!("secret {garbage}"), "maxResults": 100})),
        ("session_search", json!({"query": "secret", "agentId": agent})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn never_a_row_of_another_tenant_or_of_another_user_under_the_same_key(
        garbage in "(?s).{0,20}",
        agent in prop_oneof![Just("a".to_owned()), "[a-c*%\"']{1,4}"],
        picks in proptest::collection::vec((0_usize..6, 0_usize..6), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new().await;
            let (a, b) = (desk.store.tenant(&[b"a"]), desk.store.tenant(&[b"b"]));
            // Two users of tenant a whose conversations begin with the same words: one session, told apart by content.
            let (mine, theirs) = (chain(1, 3), [chain(1, 1), chain(3, 2)].concat());
            let root = desk.store.session_id(&a, None, Some(&mine[0]));
            let elsewhere = desk.store.session_id(&b, None, Some(&mine[0]));
            let named = desk.session(a, "named");
            let said = |secret: &str| texts(&["shared words", "shared answer", &format!("secret {secret}")]);
            for (tenant, session, chain, secret) in [
                (a, root, &mine, "MINE-1"), (a, root, &theirs, "FOREIGN-2"), (b, elsewhere, &mine, "FOREIGN-3"),
                (a, named, &chain(7, 3), "FOREIGN-4"),
            ] {
                desk.log(Said { tenant, session, agent: "a", chain, texts: &said(secret) }).await;
            }
            let ids = [root, elsewhere, named].map(|id| id.to_string()).to_vec();
            let branches = [&mine[..], &theirs, &chain(7, 3)].concat();
            let branches: Vec<String> = branches.iter().map(|digest| Cursor::of(digest).to_string()).collect();
            let tools = desk.tools(a, View::of(ToolScope::Session, "a", Some(root), Some(&mine)));
            for pick in picks {
                for (name, arguments) in asked((&ids, &branches), &agent, &garbage, pick) {
                    let result = tools.call(name, &arguments.to_string()).await;
                    prop_assert!(!result.text.contains("FOREIGN"), "{} {}: {}", name, arguments, result.text);
                    prop_assert!(result.text.chars().count() <= PAGE);
                }
            }
            let found = tools.call("session_search", r#"{"query":"secret"}"#).await.text;
            prop_assert!(found.contains("MINE-1"), "{}", found);
            Ok(())
        })?;
    }
}
