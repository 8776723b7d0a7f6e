//! For all calls: who asks over MCP, or at the address in a notice, never has another tenant's text, nor the session or
//! the memory of another user under the same key, whatever ids, paths and words are asked for.

use compactproxy::proxy::reading::{Reading, Shares};
use compactproxy::store::log::Cursor;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;

use super::*;
use crate::support::chat::post_with;
use crate::support::proxy::Served;

const SECTIONS: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n\
                        [tools]\n[sessions]\n[memory]\n";
/// Keys; and users of each key, with their agents. The names are the same under both keys.
const KEYS: [&str; 2] = ["one", "two"];
const USERS: [(&str, &str); 2] = [("ana", "helper"), ("bo", "other")];

/// Somebody, and what is theirs alone.
struct Owner {
    key: String,
    session: &'static str,
    agent: &'static str,
    tenant: usize,
    /// Ids of what was removed for them, of their session, and of its branches.
    evicted: String,
    logged: String,
    branches: Vec<String>,
}

impl Owner {
    fn secret(&self, of: &str) -> String {
        format!("{of}-of-{}-{}", KEYS[self.tenant], self.session)
    }

    fn headers(&self) -> [(&str, &str); 3] {
        [("authorization", &self.key), ("x-compactproxy-session", self.session), ("x-compactproxy-agent", self.agent)]
    }
}

struct Stage {
    _folder: tempfile::TempDir,
    proxy: Served,
    owners: Vec<Owner>,
    paths: Vec<String>,
}

/// What is the same for all, but for the secrets.
fn said(owner: &Owner) -> Value {
    let mut body = history("a", 0, 0);
    let text = format!("{}\n{}\n{}", words(1, 500), owner.secret("text"), words(2, 500));
    let told = json!({"role": "user", "content": format!("The word is {}.", owner.secret("word"))});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([call(0), result(0, &text), json!({"role": "assistant", "content": "Done."}), told]);
    body
}

async fn staged() -> Stage {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let mut proxy = compactproxy::proxy::Proxy::new(parsed(&provider.base_url(), SECTIONS), Some(Arc::clone(&store)));
    let served = Arc::get_mut(proxy.as_mut().unwrap()).unwrap();
    let shares = Shares { each: u32::MAX, all: u32::MAX };
    served.reading = Some(Arc::new(Reading::with(Arc::clone(&store), Arc::clone(&served.budget), shares)));
    let proxy = proxy.unwrap();
    let running = Served::of(Arc::clone(&proxy));
    let mut owners = Vec::new();
    for (tenant, key) in KEYS.iter().enumerate() {
        for (session, agent) in USERS {
            let (evicted, logged, branches) = Default::default();
            let key = format!("Bearer {key}");
            let mut owner = Owner { key, session, agent, tenant, evicted, logged, branches };
            let headers = owner.headers();
            let answer = post_with(running.proxy_addr, &headers, said(&owner).to_string().into()).await;
            assert_eq!(answer.actions(), ["evicted"], "{answer:?}");
            let evicted = ids(&attempts(&provider).pop().unwrap().body).remove(0);
            proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
            store.flush_log().await;
            let id = store.all_sessions().await.unwrap().into_iter().map(|info| info.id);
            let id = id.into_iter().find(|id| owners.iter().all(|other: &Owner| other.logged != id.to_string()));
            let (messages, _) = store.written(id.unwrap(), 0).await.unwrap();
            let branches = messages.iter().map(|message| Cursor::of(&message.digest).to_string()).collect();
            let note = json!({"content": format!("- The note is {}.", owner.secret("note"))});
            assert!(!called(running.proxy_addr, &headers, "memory_save", note).await.1);
            (owner.evicted, owner.logged, owner.branches) = (evicted, id.unwrap().to_string(), branches);
            owners.push(owner);
        }
    }
    let entries = store.memory_entries().await.unwrap();
    assert_eq!(entries.len(), owners.len());
    let paths = entries.iter().map(|entry| entry.path.to_string()).collect();
    // The provider is asked nothing more.
    Stage { _folder: folder, proxy: running, owners, paths }
}

/// Another spelling of an id or a path, or none of it.
fn spelt(id: &str, how: usize, garbage: &str) -> String {
    match how % 12 {
        0 | 1 => id.to_owned(),
        2 => id.to_uppercase(),
        3 => format!("{id} "),
        4 => format!("../{id}"),
        5 => format!("{id}/../{id}"),
        6 => id.chars().take(id.len() / 2).collect(),
        7 => format!("{}%", id.chars().take(4).collect::<String>()),
        8 => id
            .chars()
            .map(|c| if c.is_ascii_digit() { char::from_u32(c as u32 + 0xfee0).unwrap() } else { c })
            .collect(),
        9 => format!("{id}\0{garbage}"),
        10 => format!("' OR '1'='1{id}"),
        _ => garbage.to_owned(),
    }
}

/// What one case asks for.
#[derive(Debug, Clone)]
struct Asked {
    who: usize,
    whose: usize,
    how: usize,
    number: usize,
    agent: String,
    garbage: String,
}

fn calls(stage: &Stage, asked: &Asked) -> Vec<(&'static str, Value)> {
    let Asked { whose, how, number, agent, garbage, .. } = asked;
    let owner = &stage.owners[*whose];
    let of = |id: &str| spelt(id, *how, garbage);
    let branch = of(&owner.branches[number % owner.branches.len()]);
    let path = of(&stage.paths[number % stage.paths.len()]);
    let (evicted, session) = (of(&owner.evicted), of(&owner.logged));
    vec![
        ("read_evicted", json!({"id": evicted, "offset": number, "limit": 5})),
        ("read_evicted", json!({"id": evicted, "pattern": "-of-"})),
        ("read_evicted", json!({"id": session, "char_offset": number})),
        ("session_list", json!({"agentId": agent})),
        ("session_list", json!({})),
        ("session_history", json!({"sessionId": session, "lastN": number + 1})),
        ("session_history", json!({"sessionId": session, "branch": branch})),
        ("session_history", json!({"branch": branch, "before": number + 1, "char_offset": 0})),
        ("session_history", json!({"agentId": agent})),
        ("session_search", json!({"query": "word of one two ana bo", "sessionId": session})),
        ("session_search", json!({"query": format!("word text {garbage}"), "agentId": agent, "maxResults": 100})),
        ("memory_search", json!({"query": format!("note of {garbage}"), "agentId": agent})),
        ("memory_get", json!({"path": path})),
        ("memory_get", json!({"path": format!("{agent}/{path}"), "startLine": 1, "endLine": 50})),
        ("memory_save", json!({"content": format!("- saved {agent}"), "path": path, "agentId": agent})),
    ]
}

/// Secrets in an answer that are not the asker's to have. A removed text belongs to who has its id, within the tenant.
fn foreign(stage: &Stage, asked: &Asked, id: &str, answer: &str) -> Vec<String> {
    let me = &stage.owners[asked.who];
    let others = stage.owners.iter().filter(|owner| (owner.tenant, owner.session) != (me.tenant, me.session));
    let theirs = others.flat_map(|owner| {
        let named = owner.tenant == me.tenant && id.to_lowercase().contains(&owner.evicted);
        let secrets: &[&str] = if named { &["word", "note"] } else { &["word", "note", "text"] };
        secrets.iter().map(|of| owner.secret(of))
    });
    theirs.filter(|secret| answer.contains(secret.as_str())).collect()
}

async fn asks(stage: &Stage, asked: &Asked) -> Result<(), TestCaseError> {
    let (me, whose, addr) = (&stage.owners[asked.who], &stage.owners[asked.whose], stage.proxy.proxy_addr);
    for (name, arguments) in calls(stage, asked) {
        let (answer, _) = called(addr, &me.headers(), name, arguments.clone()).await;
        let id = if name == "read_evicted" { arguments["id"].as_str().unwrap() } else { "" };
        let foreign = foreign(stage, asked, id, &answer);
        prop_assert!(foreign.is_empty(), "{} {}: {:?} in {}", name, arguments, foreign, answer);
    }
    // The address needs no credential: the id alone is what opens it.
    let (spelt, logged) = (spelt(&whose.evicted, asked.how, &asked.garbage), &whose.logged);
    let coded: String = spelt.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let plain = if spelt.chars().all(|c| c.is_ascii_alphanumeric()) { spelt.clone() } else { coded.clone() };
    for target in [&plain, &coded, &format!("{plain}?pattern=-of-"), logged] {
        let answer = get(addr, &format!("/_compactproxy/evicted/{target}")).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        for owner in &stage.owners {
            let opened = spelt.to_lowercase() == owner.evicted;
            prop_assert!(opened || !text.contains(&owner.secret("text")), "{}: {}", target, text);
            prop_assert!(!text.contains(&owner.secret("word")) && !text.contains(&owner.secret("note")));
        }
    }
    Ok(())
}

#[test]
fn nobody_has_what_is_anothers_whatever_is_asked_for() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stage = runtime.block_on(staged());
    let agent = select(vec!["helper", "other", "OTHER", "helper/../other", "*", "%", "", "helper\0other"]);
    let numbers = (0..stage.owners.len(), 0..stage.owners.len(), 0..12_usize, 0..8_usize);
    let case = (numbers, agent, "(?s).{0,12}").prop_map(|((who, whose, how, number), agent, garbage)| Asked {
        who,
        whose,
        how,
        number,
        agent: agent.to_owned(),
        garbage,
    });
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) });
    let result = runner.run(&case, |asked| runtime.block_on(asks(&stage, &asked)));
    if let Err(error) = result {
        panic!("{error}");
    }
    // And everybody has their own: the same calls find it.
    for owner in &stage.owners {
        runtime.block_on(async {
            for (name, arguments, of) in [
                ("session_search", json!({"query": "word"}), "word"),
                ("session_history", json!({"lastN": 9}), "word"),
                ("memory_search", json!({"query": "note"}), "note"),
                ("read_evicted", json!({"id": owner.evicted, "pattern": "-of-"}), "text"),
            ] {
                let (answer, failed) = called(stage.proxy.proxy_addr, &owner.headers(), name, arguments).await;
                assert!(!failed && answer.contains(&owner.secret(of)), "{name}: {answer}");
            }
            let answer = get(stage.proxy.proxy_addr, &format!("/_compactproxy/evicted/{}", owner.evicted)).await;
            assert!(answer.text().contains(&owner.secret("text")));
        });
    }
}
