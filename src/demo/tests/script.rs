use serde_json::json;

use super::*;

fn request(last: &str) -> ModelRequest {
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "Fix src/a.rs, please."},
        {"role": "assistant", "content": "Yes, with tests/b.rs."},
        {"role": "user", "content": last},
    ]});
    ModelRequest::chat(body)
}

const ASK: &str = "Summarize under the headings SESSION INTENT, SUMMARY, ARTIFACTS and NEXT STEPS.";

fn said(reply: Reply) -> String {
    match reply {
        Reply::Say(answer) => answer.text.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_summary_is_written_only_when_asked_for() {
    let behaviour = Behaviour::new(|_| Reply::Say(Answer::text("Working."))).with_summaries();
    assert_eq!(said(behaviour.reply(&request("Go on."))), "Working.");
    let summary = said(behaviour.reply(&request(ASK)));
    for section in SECTIONS {
        assert!(summary.contains(&format!("## {section}\n")), "{summary}");
    }
    assert!(summary.contains("- src/a.rs\n- tests/b.rs"), "{summary}");
}

#[test]
fn the_queue_comes_first() {
    let behaviour = Behaviour::default().after([Reply::HangUp, Fault::RateLimited.reply(&request("x"))]);
    assert!(matches!(behaviour.reply(&request("x")), Reply::HangUp));
    assert!(matches!(behaviour.reply(&request("x")), Reply::Raw { status: 429, .. }));
    assert_eq!(said(behaviour.reply(&request("x"))), "Done.");
}

#[test]
fn failing_summaries_leave_the_rest_alone() {
    let behaviour = Behaviour::default().with_failing_summaries(Fault::ServerError);
    assert!(matches!(behaviour.reply(&request(ASK)), Reply::Raw { status: 500, .. }));
    assert_eq!(said(behaviour.reply(&request("x"))), "Done.");
}

#[test]
fn faults_are_what_they_are_called() {
    let request = request(ASK);
    assert!(said(Fault::Verbose.reply(&request)).len() > request.body_len);
    assert_eq!(said(Fault::Empty.reply(&request)), "");
    assert!(matches!(Fault::CutShort.reply(&request), Reply::Say(Answer { finish: Some("length"), .. })));
    assert!(matches!(Fault::Refusal.reply(&request), Reply::Say(Answer { text: None, refusal: Some(_), .. })));
    assert!(matches!(Fault::ToolCall.reply(&request), Reply::Say(Answer { calls, .. }) if calls.len() == 1));
    let Reply::Raw { body, status: 200, .. } = Fault::NotUtf8.reply(&request) else { panic!() };
    assert!(std::str::from_utf8(&body).is_err());
    assert!(matches!(Fault::MidStream.reply(&request), Reply::CutOff { .. }));
    assert!(matches!(Fault::Disconnect.reply(&request), Reply::HangUp));
    assert!(matches!(Fault::Timeout(Gate::new()).reply(&request), Reply::Late(..)));
}
