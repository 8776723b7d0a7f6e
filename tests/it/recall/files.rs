//! The client's own reader of files, as notices name it: where removed texts are files as well, and there is one.

use serde_json::json;

use crate::support::chat::{attempts, ids, parsed};
use crate::support::proxy::{open, serve};
use crate::support::recall::EVICTION;

use super::*;

/// Tools that agents declare for files, and which of them reads one.
const AGENTS: [(&str, &[&str], Option<&str>); 16] = [
    ("Claude Code", &["Bash", "Glob", "Read", "NotebookRead", "Edit"], Some("Read")),
    ("Gemini CLI", &["read_many_files", "list_directory", "read_file"], Some("read_file")),
    ("opencode", &["bash", "read", "edit"], Some("read")),
    ("Crush", &["bash", "view", "edit"], Some("view")),
    ("an older Claude Code", &["Bash", "View"], Some("View")),
    ("Cline", &["read_file", "write_to_file"], Some("read_file")),
    ("Kimi CLI", &["Shell", "ReadFile", "WriteFile"], Some("ReadFile")),
    ("an editor's agent", &["readFile", "run"], Some("readFile")),
    ("Windsurf", &["view_file", "run_command"], Some("view_file")),
    ("several at once", &["read_files", "read_many_files"], Some("read_files")),
    ("OpenHands", &["execute_bash", "str_replace_editor"], Some("str_replace_editor")),
    ("its successor", &["terminal", "file_editor"], Some("file_editor")),
    ("Anthropic's editor", &["str_replace_based_edit_tool"], Some("str_replace_based_edit_tool")),
    ("an editor beside a reader", &["str_replace_editor", "read_file"], Some("read_file")),
    ("Codex", &["shell", "apply_patch"], None),
    ("names that only look like one", &["READ", "read_file_tree", "reader", "mcp__fs__read_file"], None),
];

/// A request whose client has these tools, a call of the last of which gave something long.
fn asked(dialect: &dyn Dialect, name: &str, tools: &[&str]) -> Value {
    let call = ToolCall { id: "call_0".to_owned(), name: "execute".to_owned(), arguments: "{}".to_owned() };
    let mut items = vec![dialect.user(&format!("Work on {name}."))];
    items.extend(dialect.said("", &[call]));
    items.extend(dialect.results(&[("call_0", &[long()])]));
    declaring(&dialect.request(items, false), tools)
}

/// The same with these tools beside the one that there is.
fn declaring(body: &Value, tools: &[&str]) -> Value {
    let mut body = body.clone();
    let first = body["tools"][0].clone();
    let named = |name: &&str| {
        let mut tool = first.clone();
        let place = if tool["function"].is_object() { &mut tool["function"]["name"] } else { &mut tool["name"] };
        *place = json!(name);
        tool
    };
    let all: Vec<Value> = std::iter::once(first.clone()).chain(tools.iter().map(named)).collect();
    body["tools"] = all.into();
    body
}

fn texts(provider: &Provider) -> Vec<String> {
    attempts(provider).iter().map(|sent| String::from_utf8(sent.body.to_vec()).unwrap()).collect()
}

/// What a notice says of files, from the file's name on.
fn told(body: &str, folder: &str) -> String {
    let id = &ids(body.as_bytes())[0];
    let (before, after) =
        body.split_once(&format!("/{id}, which")).or_else(|| body.split_once(&format!("/{id}."))).unwrap();
    assert!(before.rsplit(' ').next().unwrap().starts_with(folder), "{body}");
    after.split('.').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_notice_names_the_clients_own_reader_of_files() {
    for dialect in ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let sections = format!("{EVICTION}workspace_dir = \"{path}\"\n");
        let (provider, proxy) = pair(scripted(Vec::new()), &sections).await;
        for (agent, tools, reader) in AGENTS {
            let answer = dialect.ask(proxy.proxy_addr, "k", &asked(dialect, agent, tools)).await;
            assert_eq!(answer.actions(), ["evicted"], "{dialect:?} {agent}: {}", answer.text());
            let said = told(texts(&provider).last().unwrap(), path);
            let expected = reader.map(|reader| format!(" the tool {reader} reads")).unwrap_or_default();
            assert!(said.starts_with(&expected), "{dialect:?} {agent}: {said}");
            assert_eq!(said.contains("the tool "), reader.is_some(), "{dialect:?} {agent}: {said}");
        }
        assert_eq!(provider.violations(), []);
        // Where texts are no files a reader of files is of no use.
        let (provider, proxy) = pair(scripted(Vec::new()), EVICTION).await;
        dialect.ask(proxy.proxy_addr, "k", &asked(dialect, "no folder", &["Read"])).await;
        let sent = texts(&provider).pop().unwrap();
        assert!(sent.contains("/_compactproxy/evicted/") && !sent.contains("the tool "), "{dialect:?} {sent}");
    }
}

/// A notice stands for good, whatever tools the client has by then; a new one names the reader that there is now.
#[tokio::test]
async fn the_reader_that_was_named_stays_in_the_conversation() {
    for dialect in ALL {
        let (state, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let url = format!("sqlite://{}", state.path().join("state.db").display());
        let sections = format!("{EVICTION}workspace_dir = \"{}\"\n", folder.path().display());
        let provider = Provider::start(scripted(Vec::new())).await.unwrap();
        let start = || serve(parsed(&provider.base_url(), &sections), Some(open(&url)), None);
        let mut body = asked(dialect, "a long one", &["Read"]);
        let mut proxy = start();
        let turns: [(&[&str], &str); 4] =
            [(&["Read"], "Read"), (&[], ""), (&["view"], "view"), (&["read_file"], "read_file")];
        for (n, (tools, _)) in turns.iter().enumerate() {
            body = declaring(&body, tools);
            dialect.ask(proxy.proxy_addr, "k", &body).await;
            let id = format!("call_{}", n + 1);
            let call = ToolCall { id: id.clone(), name: "execute".to_owned(), arguments: "{}".to_owned() };
            let items = body[dialect.array()].as_array_mut().unwrap();
            items.extend(dialect.said("", &[call]));
            items.extend(dialect.results(&[(id.as_str(), &[format!("{n} {}", long())])]));
            if n == 2 {
                proxy.stop();
                tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
                proxy = start();
            }
        }
        let sent: Vec<String> = attempts(&provider).iter().map(|sent| dialect.sent(&sent.body)).collect();
        assert_one_grows_from_the_other(&sent);
        let last = sent.last().unwrap();
        let named: Vec<&str> =
            last.match_indices(", which the tool ").map(|(at, _)| last[at + 17..].split(' ').next().unwrap()).collect();
        let readers: Vec<&str> = turns.iter().map(|(_, reader)| *reader).filter(|reader| !reader.is_empty()).collect();
        assert_eq!((named, last.matches("It is also in the file").count()), (readers, turns.len()), "{dialect:?}");
        assert_eq!(provider.violations(), []);
    }
}
