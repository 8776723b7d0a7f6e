//! Every combination of the strategy sections, in each dialect: one that is off contributes nothing.

use compactproxy::demo::window::Limit;

use super::bytes::not_spliced_as;
use super::document::Document;
use super::form::Form;
use super::stage::Stage;
use super::walk::window;
use super::written;

/// Each section with the actions that are its alone, at limits that the conversations go beyond.
const SECTIONS: [(&str, &[&str]); 4] = [
    ("[tool_result_eviction]\nmax_result_chars = 5_000\nexcluded_tools = []\n", &["evicted"]),
    ("[truncate_args]\nkeep_messages = 4\nmin_gain_tokens = 500\n", &["truncated"]),
    ("[prune]\nprotect_tokens = 1_000\nmin_gain_tokens = 500\n", &["pruned"]),
    ("[compaction]\n[overflow_recovery]\n", &["summarized", "folded", "recovered"]),
];

const FORMS: [Form; 3] = [Form::Chat, Form::Responses, Form::Messages];

/// A conversation in which every section finds something to do, and how many of its turns are left out between two that
/// are sent.
fn busy(form: Form) -> (Document, usize) {
    match form {
        Form::Chat => (Document::fixture("reused-ids"), 5),
        Form::Responses | Form::Messages => (written::plain(form), 3),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_that_is_off_contributes_nothing() {
    for (form, on) in FORMS.into_iter().flat_map(|form| (0..16_usize).map(move |on| (form, on))) {
        let (document, step) = busy(form);
        let window = window(&document);
        let is_on = |section: usize| on >> section & 1 == 1;
        let sections = (0..4).filter(|section| is_on(*section)).map(|section| SECTIONS[section].0);
        let toml = format!("{}[[window]]\nmodel = \"*\"\ntotal = {window}\n", sections.collect::<String>());
        // Without compaction the window is not enforced: it is the trims' measure all the same.
        let limit = if is_on(3) { Limit::of(window) } else { Limit::default() };
        let stage = Stage::with(window, limit, &toml).await.speaking(form);
        let mut done = Vec::new();
        for count in document.turns().into_iter().step_by(step) {
            let body = document.body(count);
            let answered = stage.send(&body).await;
            assert!(answered.is_well(), "{form:?} {on:04b} {count}: {answered:?}");
            assert_eq!(not_spliced_as(form, &body, answered.sent()), Ok(()), "{form:?} {on:04b} {count}");
            assert_eq!(answered.actions.is_empty(), answered.sent() == &body, "{form:?} {on:04b} {count}");
            done.extend(answered.actions);
        }
        for (section, (_, actions)) in SECTIONS.iter().enumerate() {
            let acted = actions.iter().any(|action| done.iter().any(|done| done == action));
            assert_eq!(acted, is_on(section), "{form:?} {on:04b} {actions:?} {done:?}");
        }
    }
}

/// Recovery works with compaction alone and with everything: the window is smaller than anybody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_works_whatever_else_is_on() {
    for (form, on) in FORMS.into_iter().flat_map(|form| (0..8_usize).map(move |on| (form, on))) {
        let (document, step) = match form {
            Form::Chat => (Document::fixture("endless-loop"), 15),
            Form::Responses | Form::Messages => (written::plain(form), 4),
        };
        let sections = (0..3).filter(|section| on >> section & 1 == 1).map(|section| SECTIONS[section].0);
        let toml = format!("{}[compaction]\n", sections.collect::<String>());
        let stage = Stage::with(12_000, Limit::of(12_000), &toml).await.speaking(form);
        let (mut recovered, mut asked) = (0, 0);
        for count in document.turns().into_iter().step_by(step) {
            asked += 1;
            let body = document.body(count);
            let answered = stage.send(&body).await;
            assert!(answered.is_well(), "{form:?} {on:03b} {count}: {answered:?}");
            assert_eq!(not_spliced_as(form, &body, answered.sent()), Ok(()), "{form:?} {on:03b} {count}");
            assert_eq!(answered.overflows(), usize::from(answered.did("recovered")), "{form:?} {on:03b} {count}");
            recovered += answered.overflows();
        }
        // The first overflow teaches the window; triggers see to the rest. In Responses it tells no number.
        let most = if form == Form::Responses { asked - 1 } else { 2 };
        assert!((1..=most).contains(&recovered), "{form:?} {on:03b} {recovered} of {asked}");
    }
}
