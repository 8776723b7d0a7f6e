//! Where memory is off, not asked for, or only observed, nothing is put aside and no call is made, then or later.

use compactproxy::demo::answer::Answer;
use compactproxy::demo::script::Reply;
use compactproxy::store::Waiting;
use serde_json::Value;

use super::{KEY, MEMORY, Stage, memory, noted, remembered, remembering, round, rules, url};
use crate::support::chat::{attempts, history, over, parsed, post};

const WINDOW: &str = "[[window]]\nmodel = \"*\"\ninput = 6000\n";

/// A conversation that is due for summaries, round after round; its rules are those from `first` on.
fn grown(name: &str, first: usize, rounds: usize) -> Vec<Value> {
    let mut body = history(name, 0, 0);
    let grow = |n: usize| {
        round(&mut body, n);
        body.clone()
    };
    (first..first + rounds).map(grow).collect()
}

/// After the same store was served without memory, it is served with it: all that waits there for the agent is read, in
/// the order in which it came, before what this request leaves.
async fn reads_what_waits(stage: &Stage) {
    let mut config = parsed(&stage.provider.base_url(), MEMORY);
    config.state.url = url(&stage.folder);
    let proxy = over(config, std::sync::Arc::clone(&stage.store), |_| {});
    for body in grown("what is remembered", 50, 3) {
        assert_eq!(post(proxy.proxy_addr, KEY, &body).await.status, 200);
    }
    remembered(&stage.store, "rule-50.").await;
}

fn all_noting() -> compactproxy::demo::provider::Settings {
    remembering(|request| Reply::Say(Answer::text(noted(request))))
}

#[tokio::test]
async fn memory_off_or_not_asked_for_means_no_call() {
    for (sections, compacts) in [
        (format!("[compaction]\n{WINDOW}"), true),
        (format!("[compaction]\nflush_before_compact = false\n[memory]\n{WINDOW}"), true),
        (
            format!("[compaction]\n[memory]\n{WINDOW}[[policy]]\nmatch = {{ model = \"demo*\" }}\nmemory = false\n"),
            true,
        ),
        (format!("[tool_result_eviction]\n[memory]\n{WINDOW}"), false),
        // What is over the window is refused.
        (format!("{MEMORY}[[policy]]\nmode = \"observe\"\n"), false),
    ] {
        let stage = Stage::new(all_noting(), &sections).await;
        let mut summarized = false;
        for body in grown("what is forgotten", 1, 3) {
            let answer = post(stage.proxy.proxy_addr, KEY, &body).await;
            assert!(answer.status == 200 || !compacts, "{sections}");
            summarized |= answer.actions().contains(&"summarized");
        }
        assert_eq!(summarized, compacts, "{sections}");
        assert!(!attempts(&stage.provider).is_empty());
        let tenant = stage.store.tenant(&[b"credential", b"up", b"", b"authorization", b"Bearer k"]);
        let waiting = stage.store.waiting_flush(&tenant, "unknown", i64::MAX).await.unwrap();
        assert!(matches!(waiting, Waiting::Nothing), "{sections}");
        reads_what_waits(&stage).await;
        let calls = stage.memory_calls();
        assert!(!calls.is_empty());
        for call in &calls {
            let known = rules(call);
            assert!(known.iter().all(|rule| rule.starts_with("rule-5")), "{sections}: {known:?}");
        }
        let memory = memory(&stage.store).await;
        assert!(rules(&memory).iter().all(|rule| rule.starts_with("rule-5")), "{sections}: {memory}");
    }
}

/// Where a policy switches it off for some requests, these do none of the work that there is for their agent.
#[tokio::test]
async fn requests_without_memory_do_no_work_on_it() {
    let sections = format!("{MEMORY}[[policy]]\nmatch = {{ model = \"quiet*\" }}\nmemory = false\n");
    let stage = Stage::new(all_noting(), &sections).await;
    let tenant = stage.store.tenant(&[b"credential", b"up", b"", b"authorization", b"Bearer k"]);
    // So much that it is to be taken into MEMORY.md at once.
    let much: String = (0..1_200).map(|n| format!("- Fact number {n}.\n")).collect();
    let day = "memory/2020-01-01.md".parse().unwrap();
    stage.store.append_memory(&tenant, "unknown", day, &much).await.unwrap();
    let hello = |model: &str| serde_json::json!({"model": model, "messages": [{"role": "user", "content": "Hello."}]});
    for _ in 0..5 {
        post(stage.proxy.proxy_addr, KEY, &hello("quiet-model")).await;
    }
    // Whoever works on an agent's memory does so alone: had it been begun before, it would have asked in that name.
    stage.post(&hello("demo-model")).await;
    crate::support::wire::patiently("a call about memory", async {
        while stage.memory_calls().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let calls = stage.memory_calls();
    assert!(calls[0].contains("The new notes"), "{}", calls[0]);
    assert!(calls.iter().all(|call| !call.contains("quiet-model") && call.contains("demo-model")), "{calls:?}");
}
