//! What the state survives: SIGKILL at any moment, a full disk, no disk at all; and the commands that use it.

use std::path::Path;

use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::window::Limit;
use serde_json::{Value, json};

use crate::support::chat::{attempts, call, get, history, ids, next_turn, post, result, send, with, words};
use crate::support::program::{Program, configure, run};
use crate::support::wire::patiently;

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
const TRIM: &str =
    "[truncate_args]\ntrigger_messages = 6\nkeep_messages = 2\nmax_arg_length = 400\nmin_gain_tokens = 50\n";

/// Numbers that differ from run to run only with the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Text that does not compress.
    fn noise(&mut self, chars: usize) -> String {
        (0..chars).map(|_| char::from(b'!' + self.below(90) as u8)).collect()
    }
}

fn grown(body: &mut Value, turn: usize, seed: u64) {
    let mut calling = call(turn);
    let arguments = json!({"path": "src/a.rs", "content": words(seed + 1, 300)}).to_string();
    calling["tool_calls"][0]["function"] = json!({"name": "write_file", "arguments": arguments});
    let messages = body["messages"].as_array_mut().unwrap();
    messages.extend([calling, result(turn, "written"), call(turn + 100), result(turn + 100, &words(seed, 800))]);
}

#[tokio::test]
async fn after_a_kill_the_same_history_has_the_same_bytes_and_every_text_is_there() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), &format!("{EVICTION}{TRIM}"));
    let mut random = Random(0x5eed_cafe);
    let mut pointers = 0;
    for round in 0..6 {
        let mut program = Program::serve(folder.path());
        let mut body = history(&format!("round {round}"), 0, 0);
        let turns = 1 + random.below(3) as usize;
        for turn in 0..turns {
            grown(&mut body, turn, random.below(1 << 40));
            assert_eq!(post(program.proxy, "k", &body).await.status, 200);
        }
        grown(&mut body, turns, random.below(1 << 40));
        let (before, addr, asked) = (attempts(&provider).len(), program.proxy, body.to_string());
        let asking = tokio::spawn(async move {
            if let Ok(answer) = send(addr, &[("authorization", "Bearer k")], asked.into()).await {
                use http_body_util::BodyExt;
                drop(answer.into_body().collect().await);
            }
        });
        for _ in 0..random.below(3_000) {
            tokio::task::yield_now().await;
        }
        program.kill();
        asking.await.unwrap();
        let seen = attempts(&provider).get(before).map(|exchange| exchange.body.clone());

        let again = async |program: Program| {
            assert_eq!(post(program.proxy, "k", &body).await.status, 200);
            let sent = attempts(&provider).pop().unwrap().body;
            for id in ids(&sent) {
                let text = get(program.proxy, &format!("/_compactproxy/evicted/{id}")).await;
                assert_eq!(text.status, 200, "{id}");
                let whole = serde_json::to_string(text.text()).unwrap();
                assert!(body.to_string().contains(whole.trim_matches('"')), "the text as it was removed");
            }
            sent
        };
        let first = again(Program::serve(folder.path())).await;
        assert!(seen.is_none_or(|seen| seen == first), "what went out before the kill");
        assert_eq!(again(Program::serve(folder.path())).await, first);
        pointers += ids(&first).len();
    }
    assert!(pointers > 6);
    assert_eq!(provider.violations(), []);
}

/// What recovery found is stored before it is sent.
#[tokio::test]
async fn a_recovered_history_stays_so_after_a_kill() {
    let provider = Provider::start(Settings { limit: Limit::of(6_000), ..Settings::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), "[compaction]\n");
    let body = history("a", 12, 900);
    let mut program = Program::serve(folder.path());
    assert!(post(program.proxy, "k", &body).await.actions().contains(&"recovered"));
    program.kill();
    let program = Program::serve(folder.path());
    assert_eq!(post(program.proxy, "k", &body).await.actions(), ["checkpoint"]);
    let sent = attempts(&provider);
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[2].body, sent[1].body);
    for id in ids(&sent[2].body) {
        assert_eq!(get(program.proxy, &format!("/_compactproxy/evicted/{id}")).await.status, 200);
    }
}

async fn readiness(program: &Program) -> (u16, bool) {
    let answer = get(program.admin, "/readyz").await;
    (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap()["degraded"] == true)
}

#[tokio::test]
async fn on_a_full_disk_known_rewrites_go_on_and_recovery_runs() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), &format!("{EVICTION}[compaction]\n"));
    let program = Program::with_full_disk(folder.path(), 2_048);
    let mut random = Random(7);
    let mut conversation = |n: usize| {
        let mut body = history(&format!("full {n}"), 0, 0);
        body["messages"].as_array_mut().unwrap().extend([call(0), result(0, &random.noise(60_000))]);
        body
    };
    let first = conversation(0);
    assert_eq!(post(program.proxy, "k", &first).await.actions(), ["evicted"]);
    assert_eq!(readiness(&program).await, (200, false));
    let known = attempts(&provider).pop().unwrap().body;
    let mut full = false;
    for n in 1..60 {
        let body = conversation(n);
        let answer = post(program.proxy, "k", &body).await;
        assert_eq!(answer.status, 200);
        full = answer.actions().is_empty();
        if full {
            assert_eq!(attempts(&provider).pop().unwrap().body, body.to_string(), "it goes whole");
            break;
        }
    }
    assert!(full, "the disk never fills");
    patiently("the report", async {
        while readiness(&program).await != (200, true) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(post(program.proxy, "k", &first).await.actions(), ["evicted"]);
    assert_eq!(attempts(&provider).pop().unwrap().body, known);

    provider.set_limit(Limit::of(6_000));
    let long = history("long", 12, 900);
    let answer = post(program.proxy, "other", &long).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.actions().contains(&"recovered"), "{:?}", answer.actions());
    let answer = post(program.proxy, "other", &next_turn(&long, "Go on.")).await;
    assert_eq!((answer.status, answer.actions()), (200, vec!["checkpoint"]));
    assert_eq!(provider.violations(), []);
}

#[tokio::test]
async fn without_a_usable_file_it_serves_and_says_so() {
    let provider = Provider::start(Settings { limit: Limit::of(6_000), ..Settings::default() }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("blocked"), "").unwrap();
    let sections = format!("[state]\nurl = \"sqlite://blocked/state.db\"\n{EVICTION}[compaction]\n");
    std::fs::write(folder.path().join("proxy.toml"), crate::support::chat::file(&provider.base_url(), &sections))
        .unwrap();
    let program = Program::serve(folder.path());
    assert_eq!(readiness(&program).await, (200, true));
    let small = history("a", 2, 1_000);
    assert_eq!(post(program.proxy, "k", &small).await.actions(), Vec::<&str>::new());
    assert_eq!(attempts(&provider)[0].body, small.to_string());
    let answer = post(program.proxy, "k", &history("long", 12, 1_000)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.actions().contains(&"recovered"));
}

fn report(output: &std::process::Output) -> Value {
    let lines: Vec<_> = std::str::from_utf8(&output.stderr).unwrap().lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(0), 1), "{lines:?}");
    serde_json::from_str(lines[0]).unwrap()
}

fn compact(dir: &Path, body: &[u8]) -> (Vec<u8>, Value) {
    compact_of("chat", dir, body)
}

fn compact_of(api: &str, dir: &Path, body: &[u8]) -> (Vec<u8>, Value) {
    let output = run(dir, &["compact", "--api", api], body);
    let report = report(&output);
    (output.stdout, report)
}

#[test]
fn compact_writes_what_serving_would_send() {
    let folder = tempfile::tempdir().unwrap();
    let sections = format!("{EVICTION}[compaction]\ntrigger_messages = 10\nkeep_messages = 4\n");
    configure(folder.path(), "http://127.0.0.1:9", &sections);
    for body in
        [&b""[..], b"not JSON\n", b"[1, 2]", b"{\"messages\": \"no\"}", b"{\"messages\":[]} trailing", b"\xff\xfe"]
    {
        assert_eq!(compact(folder.path(), body).0, body);
    }
    let small = history("a", 2, 20).to_string();
    assert_eq!(compact(folder.path(), small.as_bytes()).0, small.as_bytes());

    let big = history("a", 2, 1_000);
    let (sent, report) = compact(folder.path(), big.to_string().as_bytes());
    assert_eq!(report["actions"], json!(["evicted"]));
    let found = ids(&sent);
    assert_eq!(found.len(), 2);
    assert!(!folder.path().join("state.db").exists(), "there is no state, and none is made");

    let workspace = folder.path().join("texts");
    let with_workspace = sections.replacen('\n', &format!("\nworkspace_dir = \"{}\"\n", workspace.display()), 1);
    configure(folder.path(), "http://127.0.0.1:9", &with_workspace);
    let (sent, _) = compact(folder.path(), history("w", 1, 1_000).to_string().as_bytes());
    assert!(String::from_utf8_lossy(&sent).contains(workspace.to_str().unwrap()), "the pointer names the file");
    assert!(!workspace.exists(), "it is not written");
    configure(folder.path(), "http://127.0.0.1:9", &sections);

    let long = history("b", 8, 40).to_string();
    let (sent, report) = compact(folder.path(), long.as_bytes());
    assert_eq!(report["actions"], json!(["summarized"]), "{report}");
    let json: Value = serde_json::from_slice(&sent).unwrap();
    assert!(json["messages"].as_array().unwrap().len() < 10);
    assert!(String::from_utf8_lossy(&sent).contains("Rule 1: never touch the folder vendor."));
    assert_eq!(compact(folder.path(), long.as_bytes()).1["actions"], json!(["summarized"]), "as before");
}

/// What `compact` takes out of a body is kept nowhere, however often it is asked.
#[test]
fn compact_leaves_the_state_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    configure(
        folder.path(),
        "http://127.0.0.1:9",
        &format!("{EVICTION}[compaction]\ntrigger_messages = 10\nkeep_messages = 4\n"),
    );
    // The ids in what is written are made with the file's secret.
    drop(crate::support::proxy::open(&format!("sqlite://{}", folder.path().join("state.db").display())));
    let big = history("a", 2, 1_000).to_string();
    let first = compact(folder.path(), big.as_bytes());
    assert_eq!((&first.1["actions"], ids(&first.0).len()), (&json!(["evicted"]), 2));
    assert_eq!(compact(folder.path(), big.as_bytes()), first);
    let printed = run(folder.path(), &["evicted", &ids(&first.0)[0]], b"");
    assert_eq!((printed.status.code(), printed.stdout.len()), (Some(1), 0));
    let long = history("b", 8, 40).to_string();
    let first = compact(folder.path(), long.as_bytes());
    assert_eq!(first.1["actions"], json!(["summarized"]));
    assert_eq!(compact(folder.path(), long.as_bytes()), first, "nothing is in force from then on");
}

#[test]
fn compact_speaks_responses() {
    let folder = tempfile::tempdir().unwrap();
    let sections = format!("{EVICTION}[compaction]\ntrigger_messages = 10\nkeep_messages = 4\n");
    configure(folder.path(), "http://127.0.0.1:9", &sections);
    let compact = |body: &Value| compact_of("responses", folder.path(), body.to_string().as_bytes());
    let big = crate::support::responses::history("a", 2, 1_000);
    let (sent, report) = compact(&big);
    assert_eq!((&report["actions"], ids(&sent).len()), (&json!(["evicted"]), 2));
    let long = crate::support::responses::history("b", 8, 40);
    let (sent, report) = compact(&long);
    assert_eq!(report["actions"], json!(["summarized"]), "{report}");
    let input = serde_json::from_slice::<Value>(&sent).unwrap()["input"].clone();
    let input = input.as_array().unwrap();
    assert!(input.len() < 14 && input[2]["type"] == "reasoning", "{input:?}");
}

#[test]
fn compact_speaks_messages() {
    let folder = tempfile::tempdir().unwrap();
    let sections = format!("{EVICTION}[compaction]\ntrigger_messages = 10\nkeep_messages = 4\n");
    configure(folder.path(), "http://127.0.0.1:9", &sections);
    let compact = |body: &Value| compact_of("messages", folder.path(), body.to_string().as_bytes());
    let history = |turns: usize, tokens: usize| {
        let mut messages = vec![json!({ "role": "user", "content": "Rule 1: never touch the folder vendor." })];
        for n in 0..turns {
            let call = json!({ "type": "tool_use", "id": format!("t{n}"), "name": "shell", "input": {} });
            let said = words(n as u64, tokens);
            let result = json!({ "type": "tool_result", "tool_use_id": format!("t{n}"), "content": said });
            messages.push(json!({ "role": "assistant", "content": [call] }));
            messages.push(json!({ "role": "user", "content": [result] }));
        }
        json!({ "model": "claude-x", "max_tokens": 500, "messages": messages })
    };
    let (sent, report) = compact(&history(2, 1_000));
    assert_eq!((&report["actions"], ids(&sent).len()), (&json!(["evicted"]), 2));
    let long = history(8, 120);
    let (sent, report) = compact(&long);
    assert_eq!(report["actions"], json!(["summarized"]), "{report}");
    let rewritten: Value = serde_json::from_slice(&sent).unwrap();
    let messages = rewritten["messages"].as_array().unwrap();
    assert!(messages.len() < 10 && messages[0]["role"] == "user" && messages[1]["role"] == "assistant");
    assert!(messages[0].to_string().contains("Rule 1: never touch the folder vendor."));
    let continued = with(&long, json!({ "thread": { "type": "continue", "previous_message_id": "msg_1" } }));
    assert!(compact(&continued).0 == continued.to_string().as_bytes(), "the provider holds what goes before");
}

#[tokio::test]
async fn the_command_prints_what_the_reader_answers() {
    let provider = Provider::start(Settings::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), &provider.base_url(), EVICTION);
    let program = Program::serve(folder.path());
    assert_eq!(post(program.proxy, "k", &history("a", 1, 1_000)).await.actions(), ["evicted"]);
    let id = ids(&attempts(&provider)[0].body).remove(0);
    for (query, args) in [
        ("", &[][..]),
        ("?offset=2&limit=3", &["--offset", "2", "--limit", "3"]),
        ("?pattern=river", &["--pattern", "river"]),
        ("?unit=chars&offset=5&limit=7", &["--unit", "chars", "--offset", "5", "--limit", "7"]),
    ] {
        let read = get(program.proxy, &format!("/_compactproxy/evicted/{id}{query}")).await;
        let printed = run(folder.path(), &[&["evicted", &id], args].concat(), b"");
        assert_eq!((read.status, printed.stdout), (200, read.body.to_vec()), "{query}");
    }
}
