//! What clients do to a conversation beside going on with it.

use bytes::Bytes;

use compactproxy::config::SHIPPED;
use compactproxy::demo::window::Limit;

use super::bytes::{Split, not_spliced_as};
use super::document::Document;
use super::form::Form;
use super::stage::{Answered, Loss, Stage};
use super::walk::{output_limits, window};
use super::written::{RULE, plain};
use crate::support::chat::ids;

/// The fixture that most tests go by.
fn session() -> Document {
    Document::fixture("reasoning")
}

/// One in each form, and what the user typed first in it.
fn sessions() -> [(Document, &'static str); 3] {
    [(session(), "No new dependencies"), (plain(Form::Responses), RULE), (plain(Form::Messages), RULE)]
}

async fn staged(document: &Document) -> Stage {
    Stage::new(window(document)).await.speaking(document.form)
}

/// Sends these turns; the last answer. Every one must go well, and every body must be spliced.
async fn play(stage: &Stage, document: &Document, turns: &[usize]) -> Option<Answered> {
    let mut last = None;
    for count in turns {
        last = Some(well(stage, &document.body(*count)).await);
    }
    last
}

async fn well(stage: &Stage, body: &Bytes) -> Answered {
    let answered = stage.send(body).await;
    assert!(answered.is_well(), "{answered:?}");
    assert_eq!(not_spliced_as(stage.form, body, answered.sent()), Ok(()));
    answered
}

fn user(text: &str) -> String {
    serde_json::json!({"role": "user", "content": text}).to_string()
}

fn assistant(text: &str) -> String {
    serde_json::json!({"role": "assistant", "content": text}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_turn_sent_again_has_the_same_bytes_each_time() {
    for (document, _) in sessions() {
        let stage = staged(&document).await;
        let turns = document.turns();
        play(&stage, &document, &turns).await;
        for count in [turns[0], turns[turns.len() / 3], turns[turns.len() / 2], turns[turns.len() - 1]] {
            let body = document.body(count);
            let settled = stage.settled(&body).await;
            let again = well(&stage, &body).await;
            assert!(!again.activated() && again.sent() == settled.sent(), "{count} messages");
        }
        // What no checkpoint covers is what it was.
        let first = document.body(turns[0]);
        assert_eq!(well(&stage, &first).await.sent(), &first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forks_and_rewinds_go_on_from_what_they_share() {
    for (document, _) in sessions() {
        let stage = staged(&document).await;
        let turns = document.turns();
        let middle = turns[turns.len() / 2];
        play(&stage, &document, &turns).await;
        let shared = stage.settled(&document.body(middle)).await;
        let shared = Split::as_form(document.form, shared.sent());
        for branch in ["another way", "a third way"] {
            let mut other = Document { messages: document.messages[..middle].to_vec(), ..document.clone() };
            for k in 0..4 {
                other.messages.extend([assistant(&format!("{branch}, answer {k}")), user(&format!("{branch}, {k}"))]);
                let answered = well(&stage, &other.body(other.messages.len())).await;
                let sent = Split::as_form(document.form, answered.sent());
                if !answered.activated() {
                    assert_eq!(sent.messages[..shared.messages.len()], shared.messages, "{branch} {k}");
                }
            }
        }
        // The first branch is as it was.
        let again = stage.settled(&document.body(middle)).await;
        assert_eq!(Split::as_form(document.form, again.sent()), shared);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edited_message_makes_another_history() {
    for (document, typed) in sessions() {
        let stage = staged(&document).await;
        let turns = document.turns();
        play(&stage, &document, &turns).await;
        let mut edited = document.clone();
        let asked = edited.leading();
        edited.messages[asked] = user("Make the cache bounded, by bytes.");
        // Nothing that was made of the other history applies.
        let early = edited.body(turns[2]);
        assert_eq!(well(&stage, &early).await.sent(), &early);
        let last = play(&stage, &edited, &turns[3..]).await.unwrap();
        let sent = String::from_utf8_lossy(last.sent()).into_owned();
        assert!(sent.contains("bounded, by bytes.") && !sent.contains(typed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_in_the_system_prompt_disturbs_nothing() {
    let document = session();
    let stage = staged(&document).await;
    let (mut earlier, mut replays) = (None::<Split>, 0);
    for (minute, count) in document.turns().into_iter().enumerate() {
        let mut messages = document.messages[..count].to_vec();
        messages[0] = serde_json::json!({"role": "system", "content": format!("It is 10:{minute:02}.")}).to_string();
        let answered = well(&stage, &document.body_of(&messages)).await;
        let sent = Split::of(answered.sent());
        assert_eq!(sent.messages[0], messages[0]);
        if let Some(earlier) = earlier.filter(|_| !answered.activated()) {
            assert_eq!(sent.messages[1..earlier.messages.len()], earlier.messages[1..]);
            replays += usize::from(answered.did("checkpoint"));
        }
        earlier = Some(sent);
    }
    assert!(replays > 5, "{replays} replays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subagents_that_take_turns_stay_apart() {
    // The same system prompt, credential and model; one pair begins even with the same words.
    let one = session();
    let mut two = session();
    let asked = two.leading();
    two.messages[asked] = user("You are the reviewer. Read every file, change nothing.");
    let mut three = session();
    three.messages[asked + 1] = assistant("I begin at the other end.");
    three.messages.remove(asked + 2);
    let agents = [one, two, three];
    let stage = staged(&agents[0]).await;
    let mut earlier: [Option<Split>; 3] = Default::default();
    for turn in 0..agents[2].turns().len() {
        for (agent, earlier) in agents.iter().zip(&mut earlier) {
            let answered = well(&stage, &agent.body(agent.turns()[turn])).await;
            let sent = Split::of(answered.sent());
            if let Some(earlier) = earlier.as_ref().filter(|_| !answered.activated()) {
                assert_eq!(sent.messages[..earlier.messages.len()], earlier.messages);
            }
            *earlier = Some(sent);
        }
    }
    let texts = earlier.map(|sent| sent.unwrap().messages.concat());
    let reviewer = texts.map(|text| text.contains("You are the reviewer."));
    assert_eq!(reviewer, [false, true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_with_the_same_conversation_share_no_row() {
    let document = Document::fixture("reused-ids");
    let stage = staged(&document).await;
    let turns = document.turns();
    let mut known = Vec::new();
    for count in &turns {
        known.extend(ids(stage.send_as("Bearer sk-one", &document.body(*count)).await.sent()));
    }
    assert!(!known.is_empty());
    for count in turns.iter().step_by(2) {
        let body = document.body(*count);
        let answered = stage.send_as("Bearer sk-two", &body).await;
        assert!(answered.is_well(), "{answered:?}");
        if *count <= turns[3] {
            assert_eq!(answered.sent(), &body, "the other tenant's rows reached this one");
        }
        let shared: Vec<String> = ids(answered.sent()).into_iter().filter(|id| known.contains(id)).collect();
        assert_eq!(shared, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losing_the_state_costs_no_message() {
    for when in [Loss::WhileRunning, Loss::BetweenRuns] {
        let document = session();
        let mut stage = staged(&document).await;
        let turns = document.turns();
        let (before, after) = turns.split_at(turns.len() * 2 / 3);
        let mut pointers = 0;
        play(&stage, &document, before).await;
        stage.lose_state(when).await;
        for (k, count) in after.iter().enumerate() {
            let answered = well(&stage, &document.body(*count)).await;
            let sent = String::from_utf8_lossy(answered.sent()).into_owned();
            assert!(sent.contains(&document.rules[0]), "{when:?} {k}");
            for id in ids(answered.sent()) {
                assert!(stage.keeps(&id).await, "{when:?} {k}: {id} points to nothing");
                pointers += 1;
            }
            // Whatever stands behind the head is whole: the newest messages are there word for word.
            assert_eq!(Split::of(answered.sent()).messages.last(), document.messages[..*count].last());
        }
        assert!(pointers > 0, "{when:?}");
    }
}

/// The limit is lowered and the history compacted in one body, whichever of them comes first in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_limit_before_the_messages_is_lowered_beside_a_checkpoint() {
    let document = session();
    // Nobody tells the window but the provider's error.
    let stage = Stage::with(12_000, Limit::of(12_000), SHIPPED).await;
    let (mut refused, mut both) = (0, 0);
    for count in document.turns() {
        let body = document.body_with(r#""max_completion_tokens":8000"#, count);
        let answered = stage.send(&body).await;
        assert!(answered.is_well(), "{count}: {answered:?}");
        for attempt in &answered.attempts {
            assert_eq!(output_limits(&body, &attempt.body), Ok(()), "{count}");
        }
        refused += answered.attempts.len() - 1;
        if answered.did("output-lowered") && answered.did("checkpoint") {
            both += 1;
            assert!(Split::of(answered.sent()).head().is_some(), "{count}: {:?}", answered.actions);
        }
    }
    assert!(both > 0 && refused > 0, "{both} with both, {refused} refused");
}
