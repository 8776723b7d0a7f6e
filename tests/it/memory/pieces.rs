//! What is read piece by piece: each beside what the pieces before it brought, none twice, and none while there is no room
//! for what would come of it.

use std::sync::atomic::{AtomicBool, Ordering};

use compactproxy::demo::answer::Answer;
use compactproxy::demo::script::{Fault, Gate, Reply};
use compactproxy::memory::MemoryPath;
use compactproxy::store::{Flush, MAX_FILE_BYTES, MAX_TENANT_BYTES, Rewrite, Store, Tenant, Waiting};
use serde_json::{Value, json};

use super::{MEMORY, Stage, memory, noted, noting, once, remembering, round};
use crate::support::chat::{history, words};
use crate::support::wire::patiently;

/// The agent of a client that names none.
const AGENT: &str = "unknown";

/// A conversation that is due for a summary, behind something that its user said.
fn long(said: &str) -> Value {
    let mut body = history("a", 0, 0);
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": "Yes?"}),
        json!({"role": "user", "content": said}),
        json!({"role": "assistant", "content": "Understood."}),
    ]);
    round(&mut body, 1);
    round(&mut body, 2);
    body
}

/// Goes on with a conversation until memory has `text`.
async fn go_on_until(stage: &Stage, body: &mut Value, text: &str) {
    patiently(text, async {
        while !memory(&stage.store).await.contains(text) {
            body["messages"].as_array_mut().unwrap().extend([
                json!({"role": "assistant", "content": "Done."}),
                json!({"role": "user", "content": "Go on."}),
            ]);
            stage.post(body).await;
        }
    })
    .await;
}

fn asked_about<'c>(calls: &'c [String], rule: &str) -> Vec<&'c String> {
    let said = format!("From now on {rule} holds");
    calls.iter().filter(|call| call.contains(&said)).collect()
}

#[tokio::test]
async fn a_long_message_is_read_whole_and_a_piece_that_fails_is_read_again_alone() {
    let fails = AtomicBool::new(true);
    let stage = Stage::new(
        remembering(move |request| {
            let hit = request.last_user_text().unwrap().contains("From now on rule-25 holds");
            if hit && fails.swap(false, Ordering::SeqCst) {
                return Fault::ServerError.reply(request);
            }
            Reply::Say(Answer::text(noted(request)))
        }),
        MEMORY,
    )
    .await;
    let rules: Vec<String> = (10..32).map(|n| format!("rule-{n}")).collect();
    let said: Vec<String> =
        (10..).zip(&rules).map(|(n, rule)| format!("From now on {rule} holds.\n{}", words(n, 60))).collect();
    let said = said.join("\n");
    assert!(said.chars().count() > 8_000);
    let mut body = long(&said);
    stage.post(&body).await;
    go_on_until(&stage, &mut body, "rule-31.").await;
    let (memory, calls) = (memory(&stage.store).await, stage.memory_calls());
    let failed: Vec<String> = asked_about(&calls, "rule-25").into_iter().cloned().collect();
    assert_eq!(failed.len(), 2);
    for rule in &rules {
        assert!(once(&memory, rule), "{rule}\n{memory}");
        let again = asked_about(&failed, rule).len();
        assert_eq!(asked_about(&calls, rule).len(), again.max(1), "{rule}");
    }
    // The last piece is shown what came of the first.
    let last = asked_about(&calls, "rule-31")[0];
    assert!(asked_about(&calls, "rule-10")[0] != last && last.contains("The user laid down rule-10."), "{last}");
    assert_eq!(stage.provider.violations(), []);
}

async fn fill(store: &Store, tenant: &Tenant) {
    let full = "x".repeat(MAX_FILE_BYTES);
    for n in 0..MAX_TENANT_BYTES / MAX_FILE_BYTES {
        store.append_memory(tenant, &format!("filler-{n}"), MemoryPath::Curated, &full).await.unwrap();
    }
}

async fn make_room(store: &Store, tenant: &Tenant) {
    let rewrite = Rewrite { content: String::new(), expected: 1, merged: Vec::new() };
    store.replace_memory(tenant, "filler-0", MemoryPath::Curated, rewrite).await.unwrap();
}

/// What waits, when something does that looks like this.
async fn waits(stage: &Stage, tenant: &Tenant, what: impl Fn(&Flush) -> bool) {
    patiently("something that waits", async {
        loop {
            match stage.store.waiting_flush(tenant, AGENT, i64::MAX).await.unwrap() {
                Waiting::Due(flush) if what(&flush) => break,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
}

/// A stage whose only tenant is given as well.
async fn single(settings: compactproxy::demo::provider::Settings) -> (Stage, Tenant) {
    let stage = Stage::new(settings, &format!("[state]\ntenant = \"single\"\n{MEMORY}")).await;
    let tenant = stage.store.tenant(&[b"single"]);
    (stage, tenant)
}

#[tokio::test]
async fn a_full_memory_costs_no_call_until_there_is_room() {
    let (stage, tenant) = single(noting()).await;
    fill(&stage.store, &tenant).await;
    let mut body = long("From now on rule-7 holds.");
    stage.post(&body).await;
    waits(&stage, &tenant, |flush| flush.facts.is_none()).await;
    for _ in 0..5 {
        body["messages"]
            .as_array_mut()
            .unwrap()
            .extend([json!({"role": "assistant", "content": "Done."}), json!({"role": "user", "content": "Go on."})]);
        stage.post(&body).await;
    }
    assert_eq!(stage.memory_calls(), Vec::<String>::new());
    make_room(&stage.store, &tenant).await;
    go_on_until(&stage, &mut body, "rule-7.").await;
    assert_eq!(asked_about(&stage.memory_calls(), "rule-7").len(), 1);
    assert!(once(&memory(&stage.store).await, "rule-7"));
}

#[tokio::test]
async fn facts_that_find_no_room_wait_and_are_not_asked_for_again() {
    let gate = Gate::new();
    let held = gate.clone();
    let (stage, tenant) =
        single(remembering(move |request| Reply::Late(held.clone(), Answer::text(noted(request))))).await;
    let mut body = long("From now on rule-7 holds.");
    stage.post(&body).await;
    patiently("a call about memory", async {
        while stage.memory_calls().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fill(&stage.store, &tenant).await;
    gate.open();
    waits(&stage, &tenant, |flush| flush.facts.as_ref().is_some_and(|facts| facts.contains("rule-7."))).await;
    make_room(&stage.store, &tenant).await;
    go_on_until(&stage, &mut body, "rule-7.").await;
    assert_eq!(asked_about(&stage.memory_calls(), "rule-7").len(), 1);
    assert!(once(&memory(&stage.store).await, "rule-7"));
}

/// A model that has no answer of use for one piece does not keep the others from being read; three such answers are not
/// yet enough.
#[tokio::test]
async fn after_four_answers_of_no_use_a_piece_is_given_up_and_what_follows_is_read() {
    for (earlier, given_up) in [(2, false), (3, true)] {
        let useless = AtomicBool::new(true);
        let (stage, tenant) = single(remembering(move |request| {
            let hit = request.last_user_text().unwrap().contains("From now on rule-10 holds");
            match hit && useless.swap(false, Ordering::SeqCst) {
                true => Fault::Refusal.reply(request),
                false => Reply::Say(Answer::text(noted(request))),
            }
        }))
        .await;
        fill(&stage.store, &tenant).await;
        let said: Vec<String> = (10..32).map(|n| format!("From now on rule-{n} holds.\n{}", words(n, 60))).collect();
        let mut body = long(&said.join("\n"));
        stage.post(&body).await;
        waits(&stage, &tenant, |flush| flush.facts.is_none()).await;
        let Waiting::Due(flush) = stage.store.waiting_flush(&tenant, AGENT, i64::MAX).await.unwrap() else { panic!() };
        for _ in 0..earlier {
            stage.store.delay_flush((&tenant, AGENT), flush.id, 0).await.unwrap();
        }
        make_room(&stage.store, &tenant).await;
        go_on_until(&stage, &mut body, "rule-31.").await;
        let (memory, calls) = (memory(&stage.store).await, stage.memory_calls());
        assert_eq!(once(&memory, "rule-10"), !given_up, "{earlier}");
        assert_eq!(asked_about(&calls, "rule-10").len(), if given_up { 1 } else { 2 }, "{earlier}");
        assert_eq!(stage.provider.violations(), []);
    }
}
