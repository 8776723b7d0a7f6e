//! Search over real conversations: whatever words are asked for out of old messages, the right session and message
//! are among the first ten. Runs where the corpus is there.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use compactproxy::store::log::{Kind, LogBatch, Message, Scope, Search, SessionId, Unfound};
use compactproxy::store::{Limits, Store};
use compactproxy::wire::memo::Memo;
use compactproxy::wire::plain::plain;
use compactproxy::wire::{self, Dialect};
use serde_json::{Value, json};

/// Queries, and how many of the first hits are looked at.
const QUERIES: usize = 200;
const FIRST: usize = 10;
/// Bytes of conversations that are indexed: what a debug build does in a few seconds.
const MAX_BYTES: usize = 1_200_000;
const MAX_FILE: usize = 350_000;
/// Messages at a conversation's end that no compaction would have removed.
const RECENT: usize = 4;

/// A message that was logged.
struct Old {
    session: SessionId,
    number: u32,
    text: String,
    flat: String,
}

/// Always the same numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end.max(1)
    }
}

/// The corpus's Chat conversations as request bodies, with their names.
fn conversations(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let mut total = 0;
    let mut bodies = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "json")) {
        let whole: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let body = json!({"model": "m", "messages": whole["messages"]}).to_string().into_bytes();
        if body.len() <= MAX_FILE && total + body.len() <= MAX_BYTES {
            total += body.len();
            bodies.push((path.file_name().unwrap().to_string_lossy().into_owned(), body));
        }
    }
    bodies
}

/// Logs a conversation; gives its old messages.
fn log(store: &Store, name: &str, body: &[u8]) -> Vec<Old> {
    let tenant = store.tenant(&[b"corpus"]);
    let conversation = wire::read(Dialect::Chat, body, &Memo::new(0), [0; 16]).unwrap();
    let session = store.session_id(&tenant, Some(name.as_bytes()), None);
    let message = |(i, item): (usize, &wire::Item)| Message {
        digest: item.chain,
        parent: i.checked_sub(1).map(|before| conversation.items[before].chain),
        number: i as u32 + 1,
        role: item.facts.role,
        tokens: None,
        json: body[item.span.clone()].to_vec().into(),
        unfound: Unfound::Nothing,
    };
    let messages: Vec<Message> = conversation.items.iter().enumerate().map(message).collect();
    let old = messages.iter().map(|message| {
        let text = plain(Dialect::Chat, &message.json).text;
        Old { session, number: message.number, flat: flat(&text), text }
    });
    let old = old.collect();
    let batch = LogBatch { session, agent: "corpus".into(), dialect: Dialect::Chat, kind: Kind::Sent, messages };
    store.log(&tenant, batch);
    old
}

/// In one case, and with single blanks.
fn flat(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_han(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// Two to four words as they follow one another in a text, or a word of two Chinese characters.
fn words(text: &str, chinese: bool, dice: &mut Dice) -> Option<String> {
    if chinese {
        let chars: Vec<char> = text.chars().collect();
        let at = dice.below(chars.len());
        let pair = chars.get(at..at + 2)?;
        return pair.iter().all(|c| is_han(*c)).then(|| pair.iter().collect());
    }
    let all: Vec<&str> = text.split_whitespace().collect();
    let (at, count) = (dice.below(all.len()), 2 + dice.below(3));
    let some = all.get(at..at + count)?;
    let says = |word: &&str| word.chars().filter(|c| c.is_alphanumeric()).count() >= 3 && word.len() <= 60;
    some.iter().all(says).then(|| some.join(" "))
}

/// Queries with the message that each was taken from. What stands in more messages than are looked at names none.
fn queries(old: &[Old], recent: &HashSet<(SessionId, u32)>) -> Vec<(String, usize)> {
    let mut dice = Dice(7);
    let mut queries = Vec::new();
    while queries.len() < QUERIES {
        let (at, chinese) = (dice.below(old.len()), queries.len() % 5 == 0);
        let message = &old[at];
        if recent.contains(&(message.session, message.number)) || message.text.len() < 200 {
            continue;
        }
        let Some(query) = words(&message.text, chinese, &mut dice) else { continue };
        let asked = flat(&query);
        if old.iter().filter(|other| other.flat.contains(&asked)).take(FIRST + 1).count() <= FIRST {
            queries.push((query, at));
        }
    }
    queries
}

#[tokio::test]
async fn words_out_of_old_messages_find_them() {
    let bodies = conversations(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/chat")));
    if bodies.is_empty() {
        println!("no corpus: nothing searched");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("state.db").display());
    let store: Arc<Store> = Store::open(&url, Limits::default()).await.unwrap();
    let (mut old, mut recent) = (Vec::new(), HashSet::new());
    for (name, body) in &bodies {
        let messages = log(&store, name, body);
        recent.extend(messages.iter().rev().take(RECENT).map(|message| (message.session, message.number)));
        old.extend(messages);
        store.flush_log().await;
    }
    assert_eq!(store.dropped_messages(), 0);
    let tenant = store.tenant(&[b"corpus"]);
    let mut missed = Vec::new();
    for (query, at) in queries(&old, &recent) {
        let search = Search { query: query.clone(), session: None, agent: None, max: FIRST };
        let hits = store.search_log(&tenant, &Scope::Tenant, &search).await.unwrap().best;
        let wanted = &old[at];
        let place = hits.iter().position(|hit| (hit.session, hit.number) == (wanted.session, wanted.number));
        let shown = place.is_some_and(|place| !hits[place].snippet.is_empty());
        if !shown {
            missed.push((query, wanted.number, hits.len()));
        }
    }
    println!("found {} of {QUERIES} in {} conversations", QUERIES - missed.len(), bodies.len());
    assert!(missed.is_empty(), "{missed:#?}");
}
