//! Search for what was removed: whatever words are asked for out of texts that no request shows any more, the tool names
//! the right session and message among its first ten hits. In all dialects, over self-written conversations, and over
//! recorded ones where they are.

mod queries;
mod stand;
mod written;

use self::queries::{FIRST, Query, queries};
use self::stand::Stand;
use crate::conversations::form::Form;
use crate::support::dialects::ALL;

/// Queries of each dialect: more than two hundred in all.
const QUERIES: usize = 70;

/// What was not found, and what was asked.
async fn missed(stand: &Stand, asked: &[Query]) -> Vec<String> {
    let mut missed = Vec::new();
    for Query { kind, text, at } in asked {
        let hits = stand.search(text).await;
        assert!(hits.len() <= FIRST);
        let wanted = &stand.old[*at];
        if !hits.contains(&(wanted.session.clone(), wanted.number)) {
            missed.push(format!("{kind:?} {text:?}: #{} of {}, {} hits", wanted.number, wanted.session, hits.len()));
        }
    }
    missed
}

/// Asks for what was removed, and says how much of it is found: all.
async fn all_found(what: &str, stand: &Stand) {
    let asked = queries(&stand.old, QUERIES);
    let missed = missed(stand, &asked).await;
    let kinds = queries::KINDS.map(|kind| (kind, asked.iter().filter(|query| query.kind == kind).count()));
    println!(
        "{what}: {} of {} found; {kinds:?}; {} messages, {} with removed text, {} bytes",
        asked.len() - missed.len(),
        asked.len(),
        stand.old.len(),
        stand.old.iter().filter(|old| !old.gone.is_empty()).count(),
        stand.old.iter().map(|old| old.text.len()).sum::<usize>(),
    );
    assert_eq!(asked.len(), QUERIES, "{what}: too little was removed");
    assert!(missed.is_empty(), "{what}: {} of {} not found:\n{}", missed.len(), asked.len(), missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_removed_of_written_conversations_is_found_by_its_words() {
    for dialect in ALL {
        let mut stand = Stand::new().await;
        for body in written::conversations(dialect) {
            assert!(stand.say(dialect, dialect.bytes(&body)).await, "{dialect:?}");
        }
        all_found(&format!("written {dialect:?}"), &stand).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_removed_of_recorded_conversations_is_found_by_its_words() {
    for (form, dialect) in [Form::Chat, Form::Responses, Form::Messages].into_iter().zip(ALL) {
        let Some(bodies) = stand::recorded(form) else {
            println!("no corpus: only the written conversations are searched");
            return;
        };
        let mut stand = Stand::new().await;
        let mut refused = 0;
        for body in bodies {
            refused += usize::from(!stand.say(dialect, body).await);
        }
        all_found(&format!("recorded {dialect:?} ({refused} refused)"), &stand).await;
    }
}
