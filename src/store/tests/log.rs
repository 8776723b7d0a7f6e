//! The session log over real files.

use serde_json::json;

use super::super::log::{HistoryPage, Hit, Kind, LogBatch, Logged, Message, Scope, Search, SessionId, Tip, Unfound};
use super::*;
use crate::wire::{Dialect, Role};

/// The session of an agent `codex` that `name` names.
pub(super) fn session(f: &Fixture, name: &str) -> SessionId {
    f.store.session_id(&f.tenant, Some(name.as_bytes()), None)
}

/// Chat messages of these texts as a conversation `name` has them: user and assistant in turn.
pub(super) fn batch(session: SessionId, chain: &[Digest], texts: &[&str]) -> LogBatch {
    let messages = texts.iter().enumerate().map(|(i, text)| {
        let (role, name) = if i % 2 == 0 { (Role::User, "user") } else { (Role::Assistant, "assistant") };
        let json = json!({"role": name, "content": text}).to_string().into();
        let parent = i.checked_sub(1).map(|before| chain[before]);
        Message {
            digest: chain[i],
            parent,
            number: i as u32 + 1,
            role,
            tokens: Some(7),
            json,
            unfound: Unfound::Nothing,
        }
    });
    LogBatch { session, agent: "codex".into(), dialect: Dialect::Chat, kind: Kind::Sent, messages: messages.collect() }
}

/// The answer `text` to the message with this digest.
fn answered(session: SessionId, to: Digest, text: &str) -> LogBatch {
    let json = json!({"role": "assistant", "content": text}).to_string().into();
    let message = Message {
        digest: to,
        parent: Some(to),
        number: 2,
        role: Role::Assistant,
        tokens: None,
        json,
        unfound: Unfound::Nothing,
    };
    LogBatch { kind: Kind::Answered, messages: vec![message], ..batch(session, &[], &[]) }
}

pub(super) async fn log(f: &Fixture, session: SessionId, name: &str, texts: &[&str]) {
    f.store.log(&f.tenant, batch(session, &chain(name, texts.len()), texts));
    f.store.flush_log().await;
}

pub(super) fn own(session: SessionId) -> Scope {
    Scope::Conversation { session, chain: None }
}

fn within(session: SessionId, chain: &[Digest]) -> Scope {
    Scope::Conversation { session, chain: Some(chain.into()) }
}

pub(super) async fn find(f: &Fixture, scope: &Scope, query: &str) -> Vec<Hit> {
    let search = Search { query: query.to_owned(), session: None, agent: None, max: 10 };
    f.store.search_log(&f.tenant, scope, &search).await.unwrap().best
}

pub(super) async fn page(
    f: &Fixture,
    scope: &Scope,
    session: Option<SessionId>,
    page: HistoryPage,
) -> Option<Vec<Logged>> {
    f.store.history(&f.tenant, scope, session, page).await.unwrap()
}

pub(super) const ALL: HistoryPage = HistoryPage { last: 100, before: None, tip: None, agent: None };

pub(super) fn texts(messages: &[Logged]) -> Vec<String> {
    messages.iter().map(Logged::text).collect()
}

#[tokio::test]
async fn what_was_said_is_listed_shown_and_found() {
    let f = Fixture::new().await;
    let id = session(&f, "one");
    let said = ["<env>x</env>\nPlease fix getUserName", "Reading src/store/log.rs", "明天北京的天气预报怎么样", "晴"];
    log(&f, id, "one", &said).await;
    log(&f, id, "one", &said).await;
    let sessions = f.store.sessions(&f.tenant, &own(id)).await.unwrap();
    let [only] = sessions.as_slice() else { panic!("{sessions:?}") };
    assert_eq!((only.id, &*only.agents[0], only.title.as_str()), (id, "codex", "Please fix getUserName"));
    assert_eq!((only.messages, only.tokens), (4, 28), "each once");
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert_eq!(texts(&all), said);
    assert_eq!(all[0].json, json!({"role": "user", "content": said[0]}).to_string());
    let some =
        page(&f, &own(id), None, HistoryPage { last: 2, before: Some(4), tip: None, agent: None }).await.unwrap();
    assert_eq!(some.iter().map(|message| message.number).collect::<Vec<_>>(), [2, 3]);
    for (query, number) in [
        ("get_user_name", 1),
        ("getusername", 1),
        ("user name", 1),
        ("log.rs", 2),
        ("src/store/log.rs", 2),
        ("READING", 2),
        ("天气", 3),
        ("预报", 3),
        ("晴", 4),
        ("nowhere Reading", 2),
    ] {
        let hits = find(&f, &own(id), query).await;
        assert_eq!(hits.first().map(|hit| hit.number), Some(number), "{query}: {hits:?}");
    }
    assert!(find(&f, &own(id), "阴天").await.is_empty() && find(&f, &own(id), "  \" ) AND (").await.is_empty());
    let store = f.another().await;
    assert_eq!(store.history(&f.tenant, &own(id), None, ALL).await.unwrap().unwrap(), all, "after a restart");
}

#[tokio::test]
async fn an_answer_counts_until_its_client_sends_it_back() {
    let f = Fixture::new().await;
    let id = session(&f, "answers");
    let turns = chain("answers", 2);
    log(&f, id, "answers", &["question"]).await;
    f.store.log(&f.tenant, answered(id, turns[0], "the first try"));
    f.store.log(&f.tenant, answered(id, turns[0], "the answer"));
    f.store.flush_log().await;
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert_eq!((texts(&all), all[1].answered), (vec!["question".to_owned(), "the answer".to_owned()], true));
    assert!(find(&f, &own(id), "try").await.is_empty() && find(&f, &own(id), "answer").await.len() == 1);
    assert!(find(&f, &within(id, &turns[..1]), "answer").await.is_empty(), "it may be another user's");
    log(&f, id, "answers", &["question", "the answer"]).await;
    let all = page(&f, &own(id), None, ALL).await.unwrap();
    assert_eq!((all.len(), all[1].answered), (2, false));
    assert_eq!(find(&f, &own(id), "answer").await.len(), 1);
    assert_eq!(f.store.sessions(&f.tenant, &own(id)).await.unwrap()[0].messages, 2);
}

/// A page is looked up in several steps, while what clients send back comes in place of answers.
#[tokio::test]
async fn a_page_is_of_one_moment() {
    let f = Fixture::new().await;
    for n in 0..100 {
        let name = n.to_string();
        let id = session(&f, &name);
        log(&f, id, &name, &["question"]).await;
        f.store.log(&f.tenant, answered(id, chain(&name, 1)[0], "answer"));
        f.store.flush_log().await;
        let sent_back = log(&f, id, &name, &["question", "answer"]);
        let read = async {
            for _ in 0..5 {
                assert_eq!(texts(&page(&f, &own(id), None, ALL).await.unwrap()), ["question", "answer"], "{n}");
            }
        };
        tokio::join!(sent_back, read);
    }
}

#[tokio::test]
async fn scopes_reach_no_further_than_they_say() {
    let f = Fixture::new().await;
    let (one, two) = (session(&f, "one"), session(&f, "two"));
    log(&f, one, "one", &["alpha secret"]).await;
    let other = LogBatch { agent: "claude".into(), ..batch(two, &chain("two", 1), &["beta secret"]) };
    f.store.log(&f.tenant, other);
    f.store.flush_log().await;
    let numbers = async |scope: &Scope| {
        (find(&f, scope, "secret").await.len(), f.store.sessions(&f.tenant, scope).await.unwrap().len())
    };
    assert_eq!(numbers(&own(one)).await, (1, 1));
    assert_eq!(f.store.sessions_of("claude").await.unwrap().len(), 1);
    assert_eq!(numbers(&Scope::Agent("claude".into())).await, (1, 1));
    assert_eq!(numbers(&Scope::Agent("nobody".into())).await, (0, 0));
    assert_eq!(numbers(&Scope::Tenant).await, (2, 2));
    assert_eq!(numbers(&within(one, &[])).await, (0, 0));
    for scope in [own(one), Scope::Agent("codex".into())] {
        assert_eq!(page(&f, &scope, Some(two), ALL).await, None, "as if it did not exist");
        assert_eq!(page(&f, &scope, Some(SessionId([0; 16])), ALL).await, None);
        let search = Search { query: "secret".to_owned(), session: Some(two), agent: None, max: 10 };
        assert!(f.store.search_log(&f.tenant, &scope, &search).await.unwrap().best.is_empty());
    }
    assert_eq!(page(&f, &Scope::Tenant, Some(two), ALL).await.map(|all| all.len()), Some(1));
    let foreign = f.store.tenant(&[b"openai", b"another"]);
    assert_eq!(f.store.history(&foreign, &Scope::Tenant, Some(one), ALL).await, Ok(None));
    let search = Search { query: "secret alpha".to_owned(), session: None, agent: None, max: 10 };
    assert!(f.store.search_log(&foreign, &Scope::Tenant, &search).await.unwrap().best.is_empty());
}

#[tokio::test]
async fn an_identifier_is_found_before_what_has_its_parts() {
    let f = Fixture::new().await;
    let id = session(&f, "parts");
    let parts = "a late token: resolve it, late or not. ".repeat(8);
    let mut texts = vec![parts.as_str(); 15];
    let long = format!("{} resolve_late_token {}", "other words ".repeat(80), "more of them ".repeat(80));
    texts.insert(3, &long);
    log(&f, id, "parts", &texts).await;
    for query in ["resolve_late_token", "resolveLateToken", "RESOLVE-LATE-TOKEN"] {
        let hits = find(&f, &own(id), query).await;
        assert_eq!((hits[0].number, hits.len()), (4, 10), "{query}: {hits:?}");
    }
}

/// A long message has it as it was asked for, in another passage than the one with most that is spelt otherwise.
#[tokio::test]
async fn what_stands_letter_by_letter_is_found_in_whichever_passage() {
    let f = Fixture::new().await;
    let id = session(&f, "passages");
    let otherwise = "resolveLateToken ".repeat(20);
    let mut texts = vec![otherwise.as_str(); 14];
    let long = format!("{otherwise}{0} resolve_late_token {0}", "other words ".repeat(800));
    texts.insert(3, &long);
    log(&f, id, "passages", &texts).await;
    let hits = find(&f, &own(id), "resolve_late_token").await;
    assert!(hits[0].number == 4 && hits[0].snippet.contains("resolve_late_token"), "{hits:?}");
}

/// A megabyte of lines of which none is like another.
fn noise() -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut text = String::new();
    while text.len() < 1024 * 1024 {
        // Nearly the six bits of a byte that such letters can hold.
        text.extend((0..76).map(|_| char::from(b'0' + (next() % 75) as u8)).map(|c| if c == '\\' { '-' } else { c }));
        text.push('\n');
    }
    text
}

#[tokio::test]
async fn a_message_of_megabytes_is_kept_and_found_at_its_end() {
    let repeated = "some words of no matter\n".repeat(5 * 1024 * 1024 / 24);
    for (name, text, least) in [("noise", noise(), 17), ("long", repeated, 80)] {
        let f = Fixture::new().await;
        let id = session(&f, name);
        let text = format!("{text} theNeedle stands here");
        log(&f, id, name, &[&text]).await;
        assert_eq!(page(&f, &own(id), None, ALL).await.unwrap()[0].text(), text);
        let hits = find(&f, &own(id), "the_needle").await;
        assert!(hits.len() == 1 && hits[0].snippet.contains("theNeedle stands"), "{hits:?}");
        let longest = "SELECT max(length(body)), count(*) FROM log_bodies";
        let (longest, rows): (i64, i64) = sqlx::query_as(longest).fetch_one(&mut f.outsider().await).await.unwrap();
        assert!(longest <= 64 * 1024, "{name}: {longest} bytes in one row");
        assert!(rows >= least, "{name}: {rows} rows");
    }
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_and_a_later_request_heals_it() {
    let f = Fixture::with(Limits { max_queued_log_bytes: 1_000, ..Limits::default() }).await;
    let id = session(&f, "full");
    let (turns, long) = (chain("full", 2), "x ".repeat(2_000));
    f.store.log(&f.tenant, batch(id, &turns[..1], &[&long]));
    f.store.log(&f.tenant, batch(id, &turns, &[&long, "lost"]));
    assert_eq!(f.store.dropped_messages(), 2);
    assert_eq!(f.store.health(), Health::Up);
    assert_eq!(f.store.logged(&f.tenant, &id, &turns), 1);
    f.store.flush_log().await;
    f.store.log(&f.tenant, batch(id, &turns, &[&long, "lost"]));
    f.store.flush_log().await;
    assert_eq!(f.store.logged(&f.tenant, &id, &turns), 2);
    assert_eq!(page(&f, &own(id), None, ALL).await.unwrap().len(), 2);
}

#[tokio::test]
async fn without_a_file_all_is_dropped_and_a_deleted_one_begins_anew() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let tenant = store.tenant(&[b"t"]);
    store.log(&tenant, batch(SessionId([1; 16]), &chain("a", 1), &["text"]));
    assert_eq!(store.dropped_messages(), 1);
    let f = Fixture::new().await;
    let id = session(&f, "gone");
    log(&f, id, "gone", &["before"]).await;
    std::fs::remove_file(file(f.folder.path())).unwrap();
    log(&f, id, "other", &["after"]).await;
    assert_eq!(f.store.logged(&f.tenant, &id, &chain("gone", 1)), 0, "it is given anew");
    log(&f, id, "gone", &["before"]).await;
    assert_eq!(find(&f, &own(id), "before").await.len(), 1);
}

#[tokio::test]
async fn the_log_expires_with_its_session_and_counts_for_the_size() {
    let f = Fixture::with(Limits { max_size: 1_500_000, ..Limits::default() }).await;
    let words = |seed: u64| -> String {
        let word = |i: u64| blake3::hash(&(i + seed).to_le_bytes()).to_hex().chars().take(7).collect::<String>();
        (0..20_000_u64).map(|i| word(i) + " ").collect()
    };
    for n in 0..6_u64 {
        let name = n.to_string();
        log(&f, session(&f, &name), &name, &[&words(n * 1_000_000)]).await;
        let back = sqlx::query("UPDATE logs SET last_used = last_used - 1");
        back.execute(&mut f.outsider().await).await.unwrap();
        f.store.sweep_at(0).await;
    }
    let kept = f.store.sessions(&f.tenant, &Scope::Tenant).await.unwrap();
    assert!((1..6).contains(&kept.len()), "the oldest are gone, not all: {}", kept.len());
    assert_eq!(kept[0].id, session(&f, "5"));
    f.store.sweep_at(shared::now() + 40 * 24 * 3_600).await;
    assert!(f.store.sessions(&f.tenant, &Scope::Tenant).await.unwrap().is_empty());
    let left = "SELECT (SELECT count(*) FROM log_bodies) + (SELECT count(*) FROM log_messages) \
                + (SELECT count(*) FROM log_agents)";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut f.outsider().await).await.unwrap();
    assert_eq!(left, 0);
}

mod foreign {
    use proptest::prelude::*;

    use super::*;

    /// Words that both users say, and such as would break out of the index's language.
    const WORDS: [&str; 8] =
        ["alpha", "beta", "天气", "scope : s1", "\" OR words", "s1", "NEAR(a b)", "log_index MATCH"];

    fn said() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(0..WORDS.len(), 1..5)
    }

    /// What one user says behind the words that both begin with, marked as theirs.
    fn texts_of(who: &str, said: &[usize]) -> Vec<String> {
        let own = said.iter().map(|word| format!("{} of {who}", WORDS[*word]));
        std::iter::once("the same beginning".to_owned()).chain(own).collect()
    }

    /// A chain over these texts: equal as far as they are equal.
    fn chain_of(texts: &[String]) -> Vec<Digest> {
        let mut hasher = blake3::Hasher::new();
        let digest = |text: &String| *hasher.update(text.as_bytes()).update(&[0]).finalize().as_bytes();
        texts.iter().map(digest).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// Two tenants, and two users of one credential without names, with conversations that begin alike: whatever one
        /// asks for, in whatever words and with whatever ids, nothing that only the other said comes back.
        #[test]
        fn nothing_of_anybody_elses_is_found(mine in said(), theirs in said(), asked in 0..WORDS.len(), id: [u8; 16]) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let f = Fixture::new().await;
                let stranger = f.store.tenant(&[b"openai", b"stranger"]);
                let mut chains = Vec::new();
                for (tenant, who, said) in [(f.tenant, "me", &mine), (f.tenant, "them", &theirs), (stranger, "stranger", &theirs)] {
                    let texts = texts_of(who, said);
                    let chain = chain_of(&texts);
                    let session = f.store.session_id(&tenant, None, Some(&chain[0]));
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    f.store.log(&tenant, batch(session, &chain, &texts));
                    chains.push((session, chain));
                }
                f.store.flush_log().await;
                let (session, chain) = &chains[0];
                prop_assert_eq!(session, &chains[1].0, "one session, by its content");
                let scope = within(*session, chain);
                let query = format!("{} of them stranger me", WORDS[asked]);
                for named in [None, Some(*session), Some(chains[2].0), Some(SessionId(id))] {
                    let search = Search { query: query.clone(), session: named, agent: None, max: 100 };
                    let hits = f.store.search_log(&f.tenant, &scope, &search).await.unwrap().best;
                    prop_assert!(hits.iter().all(|hit| chain.contains(&hit.digest)), "{:?}", hits);
                    prop_assert_eq!(hits.is_empty(), named.is_some() && named != Some(*session));
                    let shown = f.store.history(&f.tenant, &scope, named, ALL).await.unwrap();
                    let shown = shown.unwrap_or_default();
                    prop_assert!(shown.iter().all(|message| chain.contains(&message.digest)));
                    prop_assert_eq!(shown.is_empty(), named.is_some() && named != Some(*session));
                }
                let tip = HistoryPage { tip: chains[1].1.last().copied().map(Tip::At), ..ALL };
                let shown = f.store.history(&f.tenant, &scope, None, tip).await.unwrap().unwrap();
                prop_assert!(shown.iter().all(|message| chain.contains(&message.digest)));
                let listed = f.store.sessions(&f.tenant, &scope).await.unwrap();
                prop_assert_eq!(listed.iter().map(|info| info.messages).sum::<u64>(), chain.len() as u64);
                for (tenant, theirs) in [(f.tenant, "stranger"), (stranger, "me")] {
                    let search = Search { query: format!("{theirs} {query}"), session: None, agent: None, max: 100 };
                    let hits = f.store.search_log(&tenant, &Scope::Tenant, &search).await.unwrap().best;
                    let mark = format!("of {theirs}");
                    let own = hits.iter().all(|hit| hit.tenant == tenant && !hit.snippet.ends_with(&mark));
                    prop_assert!(own);
                }
                Ok(())
            })?;
        }
    }
}
