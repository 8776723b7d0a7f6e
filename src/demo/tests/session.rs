use std::collections::HashSet;

use super::super::window::count;
use super::*;

#[test]
fn the_session_is_long_and_far_beyond_its_window() {
    let session = coding_session();
    assert!(session.steps.len() >= 30);
    let written: u64 = (0..session.steps.len()).map(|step| count(&session.answer(step).written())).sum();
    let results = session.steps.iter().flat_map(|step| &step.calls);
    let read: u64 = results.filter(|call| call.result.len() < 80_000).map(|call| count(&call.result)).sum();
    assert!(written + read > super::super::WINDOW, "{written} + {read}, without the two long logs");
}

#[test]
fn it_is_the_same_every_time() {
    assert_eq!(format!("{:?}", coding_session()), format!("{:?}", coding_session()));
}

#[test]
fn the_telling_line_stands_once_in_the_middle_of_the_long_log() {
    let session = coding_session();
    let log = session.long_log().unwrap();
    assert!(log.len() >= 300_000);
    assert_eq!(log.matches(NEEDLE).count(), 1);
    let at = log.find(NEEDLE).unwrap();
    assert!(at > log.len() / 3 && at < log.len() * 2 / 3);
}

#[test]
fn call_ids_are_unique_and_have_nine_letters_and_digits() {
    let session = coding_session();
    let mut seen = HashSet::new();
    for call in (0..session.steps.len()).flat_map(|step| session.answer(step).calls) {
        assert!(call.id.len() == 9 && call.id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert!(seen.insert(call.id));
    }
}

#[test]
fn tools_answer_what_was_planned_and_nothing_else() {
    let session = coding_session();
    for step in 0..session.steps.len() {
        for (call, planned) in session.answer(step).calls.iter().zip(&session.steps[step].calls) {
            assert_eq!(session.execute(step, call), planned.result);
            let clipped = ToolCall { arguments: "{}".to_owned(), ..call.clone() };
            assert!(session.execute(step, &clipped).starts_with("error"));
        }
    }
}
