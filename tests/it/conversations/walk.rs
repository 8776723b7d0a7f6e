//! One conversation turn by turn, and what is to be said of it.

use bytes::Bytes;
use compactproxy::demo::request::{kind, role};
use memchr::memmem;
use serde_json::Value;

use super::bytes::{Split, not_spliced_as};
use super::document::Document;
use super::form::{Form, parsed};
use super::stage::{Answered, Stage};

/// What happened in one conversation.
#[derive(Debug, Default)]
pub struct Report {
    pub name: String,
    pub window: u64,
    /// Tokens of the whole history.
    pub raw: u64,
    pub turns: usize,
    /// Turns that were never valid; nothing is asked of them.
    pub unsound: usize,
    pub activations: usize,
    pub summaries: usize,
    pub recoveries: usize,
    /// Requests that the provider found too long.
    pub overflows: usize,
    pub most: usize,
    /// Whatever should not have happened.
    pub faults: Vec<String>,
}

impl Report {
    fn fault(&mut self, turn: usize, what: impl std::fmt::Display) {
        self.faults.push(format!("{} turn {turn}: {what}", self.name));
    }
}

/// A window that the history exceeds several times where that leaves room for what cannot go.
pub fn window(document: &Document) -> u64 {
    window_for(document, document.tokens(document.messages.len()))
}

fn window_for(document: &Document, whole: u64) -> u64 {
    let fixed = document.tokens(document.leading());
    (whole / 5).clamp(2_500, 16_384).max(fixed * 8 / 5 + 1_200) + document.form.output()
}

/// Sends every turn, restarts the proxy half-way, and checks what came to the provider.
pub async fn walk(document: &Document) -> Report {
    let raw = document.tokens(document.messages.len());
    let mut stage = Stage::new(window_for(document, raw)).await.speaking(document.form);
    let mut report = Report { name: document.name.clone(), window: stage.window, raw, ..Report::default() };
    let turns = document.turns();
    let mut earlier = None;
    for (turn, count) in turns.iter().enumerate() {
        if turn == turns.len() / 2 {
            stage.restart().await;
        }
        let body = document.body(*count);
        let answered = stage.send(&body).await;
        report.turns += 1;
        if !answered.is_well() && !stage.accepts(&body).await {
            report.unsound += 1;
            continue;
        }
        judge(&mut report, (document, turn), &body, &answered);
        let sent = Split::as_form(document.form, answered.sent());
        if answered.activated() {
            reached(&mut report, turn, &stage, (&answered, &sent));
        } else if let Some(earlier) = &earlier {
            goes_on(&mut report, turn, earlier, &sent);
        }
        // Tools that a recovery left out, since nobody knew whether the model takes any, join with the next turn.
        let joined = answered.did("recovered") && memmem::find(answered.sent(), b"\"read_evicted\"").is_none();
        earlier = Some((sent, joined));
    }
    bounded(&mut report, &stage);
    if let Some(last) = turns.last() {
        survives(&mut report, &mut stage, &document.body(*last)).await;
    }
    let fail_opens = stage.fail_opens().await;
    if !fail_opens.is_empty() {
        report.faults.push(format!("{}: {fail_opens:?}", report.name));
    }
    report
}

/// No error, no violation, no attempt but what an overflow is due, nothing re-serialised, what the user typed is there.
fn judge(report: &mut Report, (document, turn): (&Document, usize), body: &Bytes, answered: &Answered) {
    if !answered.is_well() {
        let verdicts: Vec<_> =
            answered.attempts.iter().map(|attempt| (attempt.verdict, attempt.usage.prompt)).collect();
        report.fault(turn, format!("status {}, {verdicts:?}, {:?}", answered.status, answered.actions));
    }
    if answered.is_well() && !answered.is_relayed(document.form) {
        report.fault(turn, "the answer is not the provider's");
    }
    if answered.attempts.len() > 1 + answered.overflows() || answered.overflows() > 1 {
        report.fault(turn, format!("{} attempts", answered.attempts.len()));
    }
    for sent in answered.attempts.iter().map(|attempt| &attempt.body) {
        if let Err(error) = output_limits(body, sent) {
            report.fault(turn, error);
        }
    }
    report.overflows += answered.overflows();
    report.recoveries += usize::from(answered.did("recovered"));
    report.activations += usize::from(answered.activated());
    report.summaries += usize::from(answered.did("summarized"));
    if let Err(error) = not_spliced_as(document.form, body, answered.sent()) {
        report.fault(turn, error);
    }
    let inner = |rule: &String| serde_json::to_string(rule).unwrap().trim_matches('"').to_owned();
    for rule in document.rules.iter().map(inner) {
        let stands = |body: &[u8]| memmem::find(body, rule.as_bytes()).is_some();
        if stands(body) && !stands(answered.sent()) {
            report.fault(turn, format!("without {rule:?}"));
        }
    }
}

/// Output limits are as they were or lower, none is added, and none is lower than the model needs for
/// what it thinks or than clients go on with (A26).
pub fn output_limits(body: &[u8], sent: &[u8]) -> Result<(), String> {
    let (body, sent): (Value, Value) = (serde_json::from_slice(body).unwrap(), serde_json::from_slice(sent).unwrap());
    let thought = body.pointer("/thinking/budget_tokens").and_then(Value::as_u64).map_or(0, |budget| budget + 1);
    for limit in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        let (before, after) = (body.get(limit).and_then(Value::as_u64), sent.get(limit).and_then(Value::as_u64));
        let lowered = before.zip(after).is_some_and(|(before, after)| after < before && after >= thought.max(3_000));
        if before != after && !lowered {
            return Err(format!("{limit}: {before:?} became {after:?}"));
        }
    }
    Ok(())
}

/// After a summary the estimate is at the target, or nothing but the smallest tail is left.
fn reached(report: &mut Report, turn: usize, stage: &Stage, (answered, sent): (&Answered, &Split)) {
    let trim_only = !["summarized", "folded", "recovered"].iter().any(|action| answered.did(action));
    let Some((before, after)) = answered.tokens else { return report.fault(turn, "activated without a count") };
    // Recovery goes by the window that the error tells, not by the trigger.
    let target = stage.budget().target().unwrap();
    let target = if answered.did("recovered") { target.max(stage.window / 2) } else { target };
    if after >= before {
        report.fault(turn, format!("{before} became {after}"));
    }
    if trim_only || after <= target {
        return;
    }
    let turns = turns(sent.form, &sent.messages[sent.head().map_or(0, |head| head + 1)..]);
    if turns > 1 {
        report.fault(turn, format!("{:?}: {after} is above {target} and {turns} turns are left", answered.actions));
    }
}

/// How many answers of the model stand in `items`; in Responses one has several items.
fn turns(form: Form, items: &[String]) -> usize {
    let by_model: Vec<bool> = items.iter().map(|item| form.by_model(&parsed(item))).collect();
    // What nobody knows stays with both its neighbours (P9): it parts no turns.
    let unknown = |k: usize| kind(&parsed(&items[k])).ends_with("_note");
    // A call behind an output may be of the same answer, up to other reasoning (R4).
    let called = |k: usize| {
        let item = parsed(&items[k]);
        by_model[k] && role(&item) != "assistant" && kind(&item) != "reasoning" || kind(&item).ends_with("_output")
    };
    let reasoned =
        |k: usize| (0..k).rev().find(|k| !called(*k)).is_some_and(|k| kind(&parsed(&items[k])) == "reasoning");
    let goes_on =
        |k: usize| form != Form::Chat && k > 0 && (by_model[k - 1] || unknown(k - 1) || called(k) && reasoned(k));
    (0..items.len()).filter(|k| by_model[*k] && !goes_on(*k)).count()
}

/// Between activations everything that was sent recurs at the same place; tools may join.
fn goes_on(report: &mut Report, turn: usize, (earlier, joined): &(Split, bool), sent: &Split) {
    let differs = earlier.messages.iter().zip(&sent.messages).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let (old, new) = (&earlier.messages[at], &sent.messages[at]);
        let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
        report.fault(turn, format!("message {at} changed at byte {same} ({} → {})", old.len(), new.len()));
    } else if sent.messages.len() < earlier.messages.len() || sent.before != earlier.before && !joined {
        report.fault(turn, "the prefix of the last turn is not there");
    }
}

fn bounded(report: &mut Report, stage: &Stage) {
    let budget = stage.budget();
    let (trigger, target) = (budget.trigger.unwrap(), budget.target().unwrap());
    report.most = 2 * report.raw.div_ceil(trigger - target) as usize + 1;
    if report.activations > report.most {
        report.faults.push(format!("{}: {} activations, at most {}", report.name, report.activations, report.most));
    }
    if report.raw > report.window && report.activations == 0 {
        report.faults.push(format!("{}: no activation", report.name));
    }
    if report.overflows > report.recoveries {
        report
            .faults
            .push(format!("{}: {} overflows, {} recoveries", report.name, report.overflows, report.recoveries));
    }
}

/// The same request has the same bytes when it is sent again and when another proxy has the store.
async fn survives(report: &mut Report, stage: &mut Stage, body: &Bytes) {
    let before = stage.settled(body).await;
    let again = stage.send(body).await;
    stage.restart().await;
    let after = stage.send(body).await;
    for (what, [earlier, other]) in [("a retry", [&before, &again]), ("a restart", [&again, &after])] {
        if !other.activated() && other.sent() != earlier.sent() {
            report.fault(report.turns, format!("{what} changed the bytes"));
        }
    }
}
