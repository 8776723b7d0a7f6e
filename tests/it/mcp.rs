//! The tools over MCP, message by message: who may call them, what they return, and what is refused.

mod apart;
mod errors;

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use compactproxy::config::TenantRule;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::proxy::identity::Names;
use compactproxy::proxy::tenant::{Asker, Verified, identify};
use compactproxy::store::Store;
use compactproxy::store::log::{Kind, LogBatch, Message, Unfound};
use compactproxy::wire::{Dialect, Role};
use serde_json::{Value, json};

use crate::support::chat::{
    Answered, attempts, call, file, get, history, ids, pair, parsed, post, result, send_to, whole,
};
use crate::support::chat::{over, words};
use crate::support::proxy::open;
use crate::support::wire::patiently;

const SECTIONS: &str =
    "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n[tools]\npage_chars = 1_000\n";
const KEY: (&str, &str) = ("authorization", "Bearer k");

/// Sends a message as clients of the protocol do, with these headers as well.
pub async fn message(addr: SocketAddr, headers: &[(&str, &str)], message: impl Into<Bytes>) -> Answered {
    let accept = [("accept", "application/json, text/event-stream")];
    let headers: Vec<_> = accept.into_iter().chain(headers.iter().copied()).collect();
    whole(send_to(&format!("http://{addr}/_compactproxy/mcp"), &headers, message.into()).await.unwrap()).await
}

async fn asked(addr: SocketAddr, headers: &[(&str, &str)], method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = message(addr, headers, body.to_string()).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{}", answer.text());
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)));
    answer
}

/// Calls a tool: its text, and whether it failed.
pub async fn called(addr: SocketAddr, headers: &[(&str, &str)], name: &str, arguments: Value) -> (String, bool) {
    let answer = asked(addr, headers, "tools/call", json!({"name": name, "arguments": arguments})).await;
    let result = &answer["result"];
    (result["content"][0]["text"].as_str().unwrap().to_owned(), result["isError"].as_bool().unwrap())
}

async fn read(addr: SocketAddr, headers: &[(&str, &str)], id: &str) -> (String, bool) {
    called(addr, headers, "read_evicted", json!({"id": id})).await
}

/// A conversation with one result that is evicted: its body and the result.
fn evicted(name: &str) -> (Value, String) {
    let text = words(1, 700);
    let mut body = history(name, 0, 0);
    body["messages"].as_array_mut().unwrap().extend([call(0), result(0, &text)]);
    (body, text)
}

#[tokio::test]
async fn a_client_lists_the_tools_and_reads_a_removed_text_page_by_page() {
    let (provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let (body, text) = evicted("a");
    post(addr, "k", &body).await;
    let id = &ids(&attempts(&provider)[0].body)[0];

    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = asked(addr, &[KEY], "initialize", hello).await;
    assert_eq!(hello["result"]["serverInfo"]["name"], "compactproxy");
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let noted = message(addr, &[KEY], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!((noted.status, noted.header("mcp-session-id")), (202, ""), "there are no sessions");
    let list = asked(addr, &[KEY], "tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), ["read_evicted"]);
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["id"]));
    assert_eq!(tools[0]["annotations"]["readOnlyHint"], true);

    let (mut whole, mut arguments) = (String::new(), json!({"id": id}));
    loop {
        let (page, failed) = called(addr, &[KEY], "read_evicted", arguments.clone()).await;
        assert!(!failed && page.chars().count() <= 1_000, "{page}");
        let (said, page) = page.split_once("]\n").unwrap();
        whole += page;
        let Some((_, offset)) = said.split_once("offset=") else { break };
        arguments["offset"] = offset.into();
    }
    assert_eq!(whole, text);
    let (found, _) = called(addr, &[KEY], "read_evicted", json!({"id": id, "pattern": "river", "limit": 1})).await;
    assert!(found.starts_with("[1 match; there are more"), "{found}");
    let (wrong, failed) = called(addr, &[KEY], "read_evicted", json!({"id": 5})).await;
    assert!(failed && wrong.contains("Example: "), "{wrong}");
    assert_eq!(provider.requests().len(), 1, "nothing of it went upstream");
}

#[tokio::test]
async fn who_has_another_credential_reads_nothing() {
    let (provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let (body, _) = evicted("a");
    post(addr, "one", &body).await;
    post(addr, "two", &body).await;
    let [one, two] = [0, 1].map(|n| ids(&attempts(&provider)[n].body)[0].clone());
    let (first, second) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    assert!(!read(addr, &[first], &one).await.1 && !read(addr, &[second], &two).await.1);
    let guessed = "0".repeat(32);
    let nothing = read(addr, &[first], &guessed).await.0.replace(&guessed, "*");
    for (headers, id) in [
        (&[first][..], &two),
        (&[second], &one),
        (&[("x-api-key", "one")], &one),
        (&[("authorization", "one")], &one),
        (&[first, ("x-api-key", "two")], &one),
    ] {
        let (said, failed) = read(addr, headers, id).await;
        assert!(failed, "{headers:?}");
        assert_eq!(said.replace(id, "*"), nothing, "as if it did not exist");
    }
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let nobody = message(addr, &[], list).await;
    let error: Value = serde_json::from_slice(&nobody.body).unwrap();
    assert_eq!((nobody.status, &error["error"]["code"], &error["id"]), (401, &json!(-32_001), &Value::Null));
    assert!(nobody.header("www-authenticate").starts_with("Bearer"));
}

#[tokio::test]
async fn a_token_is_nobodys_until_an_upstream_accepted_it() {
    let (provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = |exp: u32| {
        let payload = json!({"iss": "i", "sub": "s", "exp": exp});
        format!("{}.{}.sig", part(json!({"alg": "RS256"})), part(payload))
    };
    let (body, _) = evicted("a");
    post(addr, &token(1), &body).await;
    assert_eq!(attempts(&provider)[0].body, body.to_string(), "nothing is planned for a claim");
    let (body, _) = evicted("b");
    post(addr, &token(1), &body).await;
    let id = &ids(&attempts(&provider)[1].body)[0];
    let header = |exp: u32| format!("Bearer {}", token(exp));
    assert!(!read(addr, &[("authorization", &header(1))], id).await.1);
    // Whoever can write the same claim into another token has nothing of it, but may ask what there is.
    assert!(read(addr, &[("authorization", &header(2))], id).await.1);
    let list = asked(addr, &[("authorization", &header(2))], "tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn every_upstream_is_asked_and_a_restart_changes_nothing() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let url = provider.base_url();
    let more = format!("[[upstream]]\nname = \"second\"\nbase_url = \"{url}\"\nprefix = \"/second\"\n{SECTIONS}");
    let folder = tempfile::tempdir().unwrap();
    let state = format!("sqlite://{}", folder.path().join("state.db").display());
    let start = || {
        let mut config = parsed(&url, &more);
        config.state.url = state.clone();
        over(config, open(&state), |_| {})
    };
    let proxy = start();
    let (body, text) = evicted("a");
    let target = format!("http://{}/second/v1/chat/completions", proxy.proxy_addr);
    whole(send_to(&target, &[KEY], body.to_string().into()).await.unwrap()).await;
    let id = ids(&attempts(&provider)[0].body)[0].clone();
    let (before, failed) = read(proxy.proxy_addr, &[KEY], &id).await;
    assert!(!failed && before.contains(text.lines().next().unwrap()), "{before}");
    drop(proxy);
    let proxy = start();
    assert_eq!(read(proxy.proxy_addr, &[KEY], &id).await, (before, false), "without another handshake");
}

#[tokio::test]
async fn where_the_proxy_holds_the_key_its_clients_need_none() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let file = file(&provider.base_url(), SECTIONS).replace("name = \"up\"", "name = \"up\"\napi_key = \"held\"");
    let proxy = crate::support::proxy::start(compactproxy::config::Config::parse(&file, &|_| None).unwrap());
    let (body, _) = evicted("a");
    let target = format!("http://{}/v1/chat/completions", proxy.proxy_addr);
    whole(send_to(&target, &[], body.to_string().into()).await.unwrap()).await;
    let id = &ids(&attempts(&provider)[0].body)[0];
    assert!(!read(proxy.proxy_addr, &[], id).await.1);
}

#[tokio::test]
async fn web_pages_foreign_hosts_and_nonsense_are_refused() {
    let (provider, proxy) = pair(Settings::default(), SECTIONS).await;
    let addr = proxy.proxy_addr;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let status = async |headers: &[(&str, &str)], body: &str| message(addr, headers, body.to_owned()).await.status;
    assert_eq!(status(&[KEY, ("host", "attacker.example")], list).await, 403, "a name that was bound to this machine");
    assert_eq!(status(&[KEY, ("origin", "http://attacker.example")], list).await, 403);
    assert_eq!(status(&[KEY, ("origin", "null")], list).await, 403);
    assert_eq!(status(&[KEY, ("host", "localhost:1")], list).await, 200);
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": "x".repeat(1 << 20)}});
    assert_eq!(status(&[KEY], &long.to_string()).await, 413);
    assert_eq!(status(&[KEY, ("content-type", "text/plain")], list).await, 415);
    assert_eq!(get(addr, "/_compactproxy/mcp").await.status, 401);
    assert_eq!(get(addr, "/_compactproxy/mcp?key=k").await.status, 405, "there is no stream to open");
    assert_eq!(get(addr, "/_compactproxy/mcp/").await.status, 404);
    assert_eq!(provider.requests().len(), 0);
}

#[tokio::test]
async fn where_it_is_off_there_is_nothing() {
    for sections in [SECTIONS.replace("[tools]", "[tools]\nmcp = false"), "[prune]\n".to_owned(), String::new()] {
        let (provider, proxy) = pair(Settings::default(), &sections).await;
        let answer = message(proxy.proxy_addr, &[KEY], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
        assert_eq!((answer.status, provider.requests().len()), (404, 0));
    }
}

#[tokio::test]
async fn policies_by_header_count_and_those_by_model_do_not() {
    let policies = "[[policy]]\nmatch = { header = { name = \"x-team\", value = \"a\" } }\nmemory = {}\n\
                    [[policy]]\nmatch = { model = \"*m*\" }\nsessions = {}\n";
    let (_provider, proxy) = pair(Settings::default(), &format!("{SECTIONS}{policies}")).await;
    for (headers, count) in [(&[KEY][..], 1), (&[KEY, ("x-team", "a")][..], 4)] {
        let listed = asked(proxy.proxy_addr, headers, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        assert_eq!(tools.len(), count, "{listed}");
    }
}

#[tokio::test]
async fn a_full_house_is_said_and_nothing_is_kept() {
    let file_of = |url: &str| {
        file(url, SECTIONS).replace("[server]", "[server]\nmax_body_bytes = 1000\nmax_buffered_bytes = 1000")
    };
    let provider = Provider::start(Settings::default()).await.unwrap();
    let config = compactproxy::config::Config::parse(&file_of(&provider.base_url()), &|_| None).unwrap();
    let proxy = crate::support::proxy::start(config);
    let answer = message(proxy.proxy_addr, &[KEY], r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).await;
    let error: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &error["error"]["code"]), (503, &json!(-32_002)));
}

#[tokio::test]
async fn memory_is_written_and_read_by_who_was_seen_and_no_other() {
    let (_provider, proxy) = pair(Settings::default(), &format!("{SECTIONS}[memory]\n")).await;
    let addr = proxy.proxy_addr;
    let (one, two) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    let list = asked(addr, &[one], "tools/list", json!({})).await;
    let names: Vec<_> = list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["read_evicted", "memory_search", "memory_get", "memory_save"]);

    let (said, failed) = called(addr, &[one], "memory_save", json!({"content": "- likes tea"})).await;
    assert!(failed && said.contains("make a model call"), "{said}");
    for key in ["one", "two"] {
        post(addr, key, &evicted("a").0).await;
    }
    let (saved, failed) =
        called(addr, &[one], "memory_save", json!({"content": "- likes tea\n- builds with cargo"})).await;
    let path = saved.strip_prefix("[saved to ").and_then(|rest| rest.strip_suffix(']')).unwrap().to_owned();
    assert!(!failed && path.starts_with("memory/"), "{saved}");
    let (found, _) = called(addr, &[one], "memory_search", json!({"query": "tea"})).await;
    assert!(found.contains(&format!("{path}:3: - likes tea")), "{found}");
    let (got, failed) = called(addr, &[one], "memory_get", json!({"path": path, "startLine": "3", "endLine": 4})).await;
    assert!(!failed && got.ends_with("]\n- likes tea\n- builds with cargo\n"), "{got}");

    // Another credential, another agent: nothing of it.
    for headers in [&[two][..], &[one, ("x-compactproxy-agent", "other")], &[("authorization", "Bearer three")]] {
        let (found, failed) = called(addr, headers, "memory_search", json!({"query": "tea"})).await;
        assert_eq!((found.as_str(), failed), ("[nothing matches in 0 memory files]", false));
        let (got, failed) = called(addr, headers, "memory_get", json!({"path": path})).await;
        assert!(failed && got.contains("nothing has been saved yet"), "{got}");
    }
    for path in [
        "../MEMORY.md",
        "/etc/passwd",
        "memory/..%2f..%2fx.md",
        "memory/2026-11-30.md\u{0}",
        "MEMORY.md/.",
        "mеmory/2026-11-30.md",
    ] {
        let (got, failed) = called(addr, &[one], "memory_get", json!({"path": path})).await;
        assert!(failed && got.contains("no memory file can have this path"), "{path}: {got}");
    }
    let (got, failed) = called(addr, &[one], "memory_get", json!({"path": "MEMORY.md"})).await;
    assert!(failed && got.contains(&format!("The latest files are {path}.")), "{got}");
}

#[tokio::test]
async fn what_is_saved_is_in_the_workspace_soon() {
    let workspace = tempfile::tempdir().unwrap();
    let folder = format!("[tool_result_eviction]\nworkspace_dir = \"{}\"\n", workspace.path().display());
    let sections = format!("{}[memory]\n", SECTIONS.replace("[tool_result_eviction]\n", &folder));
    let (_provider, proxy) = pair(Settings::default(), &sections).await;
    let addr = proxy.proxy_addr;
    let agent = ("x-compactproxy-agent", "mine");
    post(addr, "k", &evicted("a").0).await;
    for note in ["- likes tea", "- builds with cargo"] {
        let (saved, failed) = called(addr, &[KEY, agent], "memory_save", json!({"content": note})).await;
        assert!(!failed, "{saved}");
        let path = saved.strip_prefix("[saved to ").and_then(|rest| rest.strip_suffix(']')).unwrap();
        patiently("the note in the workspace", async {
            let written = || {
                let tenant = std::fs::read_dir(workspace.path()).ok()?.next()?.ok()?;
                std::fs::read_to_string(tenant.path().join("agents/mine").join(path)).ok()
            };
            while !written().is_some_and(|text| text.contains(note)) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// Logs what a client with these headers said, as the proxy does.
async fn logged(store: &Store, headers: &[(&'static str, &'static str)], texts: &[&str]) {
    let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let asker = Asker { upstream: "up", headers: &headers, uri: &"/v1/chat/completions".parse().unwrap() };
    let tenant = identify(store, &TenantRule::Credential, &Verified::default(), &asker).tenant;
    let session = Names::of_headers(&headers).session(store, &tenant, &[1; 32]);
    let messages = (1..).zip(texts).map(|(number, text)| {
        let json = json!({"role": "user", "content": text}).to_string().into();
        let digest = |number: u32| [u8::try_from(number).unwrap(); 32];
        let parent = (number > 1).then(|| digest(number - 1));
        Message {
            digest: digest(number),
            parent,
            number,
            role: Role::User,
            tokens: None,
            json,
            unfound: Unfound::Nothing,
        }
    });
    let (dialect, messages) = (Dialect::Chat, messages.collect());
    store.log(&tenant, LogBatch { session: session.id, agent: session.agent, dialect, kind: Kind::Sent, messages });
    store.flush_log().await;
}

#[tokio::test]
async fn a_conversation_is_found_by_its_name_and_only_by_who_has_its_credential() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
    let sections = format!("{SECTIONS}[sessions]\n");
    let proxy = over(parsed(&provider.base_url(), &sections), Arc::clone(&store), |_| {});
    let addr = proxy.proxy_addr;
    let (one, two) = (("authorization", "Bearer one"), ("authorization", "Bearer two"));
    let (named, other) = (("x-compactproxy-session", "mine"), ("x-compactproxy-session", "other"));
    for (headers, secret) in [([one, named], "FIRST"), ([two, named], "FOREIGN"), ([one, other], "FOREIGN")] {
        logged(&store, &headers, &["begin", &format!("The word is {secret}.")]).await;
    }
    let list = asked(addr, &[one], "tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 4);
    let (said, failed) = called(addr, &[one], "session_search", json!({"query": "word"})).await;
    assert!(failed && said.contains("x-compactproxy-session"), "{said}");
    let (found, failed) = called(addr, &[one, named], "session_search", json!({"query": "word"})).await;
    assert!(!failed && found.contains("FIRST") && !found.contains("FOREIGN"), "{found}");
    let (page, failed) = called(addr, &[one, named], "session_history", json!({"lastN": 1})).await;
    assert!(!failed && page.contains("The word is FIRST.") && page.contains("before=2"), "{page}");
    let (sessions, _) = called(addr, &[one, named], "session_list", json!({})).await;
    assert!(sessions.starts_with("[1 session,") && sessions.contains("this conversation"), "{sessions}");
    let third = ("authorization", "Bearer three");
    assert_eq!(called(addr, &[third, named], "session_list", json!({})).await.0, "[no sessions]");
}
