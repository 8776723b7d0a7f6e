//! `sessions list`, `show` and `export` on what was said: several sessions, tenants, agents and branches, long ones, and
//! texts that are hard to write on one line.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::support::chat::{post_with, words};
use crate::support::dialects::{ALL, Dialect};
use crate::support::program::{configure, run};

const SESSIONS: &str = "[sessions]\n";
/// Line ends of every kind, in and out of strings, quotes, what steers a terminal, and characters of two code units.
const HARD: &str = "one\ntwo\r\nthree\rfour\u{2028}five\u{85}six \"quoted\" \\n {\"json\": [1]} \u{1b}[31mred\u{7} 数据库 🐻\u{200d}❄ e\u{301}\t|";

async fn stand() -> Stand {
    let stand = Stand::new(SESSIONS).await;
    configure(stand.folder.path(), &stand.provider.base_url(), SESSIONS);
    stand
}

/// What a command prints.
fn printed(stand: &Stand, args: &[&str]) -> String {
    let output = run(stand.folder.path(), &[&["sessions"], args].concat(), b"");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of an export, each an object of its own.
fn exported(stand: &Stand, id: &str) -> Vec<Value> {
    let text = printed(stand, &["export", id]);
    assert!(text.ends_with('\n'));
    text.strip_suffix('\n').unwrap().split('\n').map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Numbers by text of an export, where each message is of the session and follows one that is there as well.
fn checked(lines: &[Value], id: &str) -> BTreeMap<u64, BTreeSet<String>> {
    let known: BTreeMap<&str, u64> =
        lines.iter().map(|line| (line["digest"].as_str().unwrap(), line["number"].as_u64().unwrap())).collect();
    assert_eq!(known.len(), lines.len(), "each message once");
    let mut numbered: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in lines {
        assert_eq!(line["session"], id);
        let number = line["number"].as_u64().unwrap();
        match line["parent"].as_str() {
            Some(parent) => assert_eq!(known.get(parent), Some(&(number - 1)), "{line}"),
            None => assert!(number <= 1, "{line}"),
        }
        numbered.entry(number).or_default().insert(line["message"].to_string());
    }
    numbered
}

/// Ids of the sessions in a list, in order.
fn ids(list: &str) -> Vec<String> {
    assert!(list.starts_with("SESSION "), "{list}");
    list.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Who asks: the key and the agent.
async fn say(stand: &Stand, (key, agent): (&str, &str), body: &str) {
    let headers = [("authorization", &*format!("Bearer {key}")), ("x-compactproxy-agent", agent)];
    let answer = post_with(stand.running.proxy_addr, &headers, body.to_owned().into()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    stand.logged().await;
}

fn said(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

#[tokio::test]
async fn sessions_of_all_tenants_and_agents_are_listed_and_each_is_shown_and_exported_alone() {
    let stand = stand().await;
    let trunk = [user("Begin with apples."), said("Apples it is.")];
    let of = |more: &[Value]| body(&[&trunk, more].concat()).to_string();
    say(&stand, ("one", "codex"), &of(&[user("Now the left branch."), said("Left."), user("More of it.")])).await;
    say(&stand, ("one", "helper"), &of(&[user("Now the right branch.")])).await;
    say(&stand, ("two", "codex"), &of(&[user("Now another tenant's.")])).await;
    say(&stand, ("one", "codex"), &body(&[user("Something else.")]).to_string()).await;
    let all = ids(&printed(&stand, &["list"]));
    let list = printed(&stand, &["list"]);
    let agents: Vec<Vec<&str>> = list.lines().skip(1).map(|line| line[34..54].split_whitespace().collect()).collect();
    assert_eq!(all.len(), 3, "two of one tenant's, one of the other's: {list}");
    assert!(agents.iter().any(|agents| *agents == ["codex", "helper"]), "{list}");
    assert_eq!(ids(&printed(&stand, &["list", "--agent", "Helper"])).len(), 1);
    assert_eq!(ids(&printed(&stand, &["list", "--agent", "codex"])).len(), 3);
    assert_eq!(ids(&printed(&stand, &["list", "--limit", "2"])), all[..2]);

    // One session, two branches, each message once.
    let forked = ids(&printed(&stand, &["list", "--agent", "helper"])).remove(0);
    let numbered = checked(&exported(&stand, &forked), &forked);
    let counts: Vec<(u64, usize)> = numbered.iter().map(|(number, texts)| (*number, texts.len())).collect();
    assert_eq!(counts, [(1, 1), (2, 1), (3, 2), (4, 2), (5, 1), (6, 1)], "{numbered:?}");
    assert!(!format!("{numbered:?}").contains("another tenant"));
    let shown = |args: &[&str]| printed(&stand, &[&["show", &forked], args].concat());
    let latest = shown(&[]);
    assert!(latest.contains("right branch") && !latest.contains("left branch"), "{latest}");
    let left = shown(&["--agent", "codex"]);
    assert!(left.contains("left branch") && !left.contains("right branch") && left.contains("── #6 assistant "));
    let hit = printed(&stand, &["search", "left branch", "--session", &forked]);
    let branch = hit.lines().next().unwrap().rsplit(' ').next().unwrap();
    let through = shown(&["--branch", branch]);
    assert!(through.contains("left branch") && !through.contains("right branch"), "{through}");
    let page = shown(&["--agent", "codex", "--last", "2", "--before", "4"]);
    let numbers: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("── #")?.split(' ').next()).collect();
    assert_eq!(numbers, ["2", "3"], "{page}");

    // The other tenant's, which began alike.
    let foreign = all.iter().find(|id| printed(&stand, &["show", id]).contains("another tenant")).unwrap();
    let foreign = format!("{:?}", checked(&exported(&stand, foreign), foreign));
    assert!(foreign.contains("apples") && !foreign.contains("branch"), "{foreign}");
}

/// More than a page that the store hands over at once.
#[tokio::test]
async fn an_export_is_complete_however_long_the_session_is() {
    let stand = stand().await;
    let count = 2 * compactproxy::store::log::MAX_PAGE + 300;
    let text = |n: usize| format!("{n}: {}", words(n as u64, 5));
    let messages: Vec<Value> = (1..count).map(|n| if n % 2 == 1 { user(&text(n)) } else { said(&text(n)) }).collect();
    say(&stand, ("k", "codex"), &body(&messages).to_string()).await;
    let id = ids(&printed(&stand, &["list"])).remove(0);
    let lines = exported(&stand, &id);
    let numbered = checked(&lines, &id);
    assert_eq!(numbered.keys().copied().collect::<Vec<u64>>(), (1..=count as u64).collect::<Vec<u64>>());
    for (n, message) in messages.iter().enumerate() {
        assert_eq!(numbered[&(n as u64 + 1)], BTreeSet::from([message.to_string()]));
    }
    let last = lines.last().unwrap();
    assert_eq!((&last["answered"], &last["role"]), (&json!(true), &json!("assistant")), "and the answer");
    let shown = printed(&stand, &["show", &id, "--last", "100000", "--chars", "40"]);
    assert_eq!(shown.matches("── #").count(), compactproxy::store::log::MAX_PAGE, "a page at most");
}

#[tokio::test]
async fn what_is_exported_is_what_was_said_in_every_dialect() {
    for dialect in ALL {
        let stand = stand().await;
        let call = compactproxy::demo::answer::ToolCall {
            id: "call_1".to_owned(),
            name: "execute".to_owned(),
            arguments: json!({"command": HARD, "n": 1.5}).to_string(),
        };
        let mut items = vec![dialect.user(HARD)];
        items.extend(dialect.said(HARD, &[call]));
        items.extend(dialect.results(&[("call_1", &[HARD.to_owned(), "and more".to_owned()])]));
        items.push(dialect.user("Go on."));
        let sent = dialect.request(items.clone(), false);
        // Spelt over many lines, as some clients do.
        let (name, value) = dialect.credential("k");
        let url = format!("http://{}{}", stand.running.proxy_addr, dialect.path());
        let bytes = serde_json::to_string_pretty(&sent).unwrap();
        let bytes = ordered(dialect, &bytes, &sent);
        let answer = crate::support::chat::send_to(&url, &[(name, value.as_str())], bytes.into()).await.unwrap();
        assert_eq!(crate::support::chat::whole(answer).await.status, 200, "{dialect:?}");
        stand.logged().await;
        let id = ids(&printed(&stand, &["list"])).remove(0);
        let lines = exported(&stand, &id);
        checked(&lines, &id);
        let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).take(items.len()).collect();
        assert_eq!(messages, items.iter().collect::<Vec<_>>(), "{dialect:?}");
        assert_eq!((lines.len(), &lines.last().unwrap()["answered"]), (items.len() + 1, &json!(true)), "{dialect:?}");
        let shown = printed(&stand, &["show", &id]);
        assert!(shown.contains("数据库 🐻") && !shown.contains(['\u{1b}', '\u{7}', '\u{85}', '\r']), "{dialect:?}");
        let list = printed(&stand, &["list"]);
        assert_eq!(list.lines().count(), 2, "{dialect:?}: {list}");
    }
}

/// Messages want the role first; what is pretty is not ordered.
fn ordered(dialect: &dyn Dialect, pretty: &str, body: &Value) -> String {
    match dialect.path() {
        "/v1/messages" => {
            String::from_utf8(dialect.bytes(body).to_vec()).unwrap().replace("{\"role\":", "{\n  \"role\":")
        }
        _ => pretty.to_owned(),
    }
}
