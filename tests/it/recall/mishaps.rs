//! Whatever becomes of a later round, and wherever it breaks off: its client gets one well-formed answer or one error, no
//! trace of the proxy's tools, and never two answers; its provider gets nothing but valid histories.

mod seen;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use compactproxy::demo::provider::Settings;
use compactproxy::demo::script::{Behaviour, error};

use self::seen::{Outcome, Seen};
use super::*;

/// Statuses of errors; 502 is a page.
const STATUSES: [u16; 10] = [400, 401, 404, 413, 422, 429, 500, 502, 503, 529];
/// What is shown before the round that fails, and in it; behind it of an answer that begins anew, or goes on.
const BEFORE: &str = "Look. ";
const HALF: &str = "Half said. ";
const ANEW: &str = "Begun anew.";
const ON: &str = "Gone on.";

/// What the provider answers, one after the other; what it says by itself tells whether the rounds are in its history.
type Script = Arc<Mutex<VecDeque<Reply>>>;

/// How a later round goes wrong.
#[derive(Clone)]
struct Mishap {
    name: String,
    reply: Reply,
    /// The provider itself left the answer without an end, and without an error.
    endless: bool,
    /// It had told its end before.
    ended: bool,
}

impl Mishap {
    fn new(name: String, reply: Reply) -> Self {
        Self { name, reply, endless: false, ended: false }
    }
}

fn raw(cell: Cell, body: String) -> Reply {
    let kind = if cell.stream { "text/event-stream" } else { "application/json" };
    Reply::Raw { status: 200, headers: vec![("content-type", kind.to_owned())], body: body.into() }
}

/// Answers that a later round may have begun to be.
fn answers() -> [Answer; 3] {
    let answer = |calls: Vec<ToolCall>| Answer { text: Some(HALF.to_owned()), calls, ..Answer::default() };
    let own = ToolCall { id: "own_9".to_owned(), name: "read_evicted".to_owned(), arguments: "{}".to_owned() };
    [answer(vec![]), answer(vec![own.clone(), clients(7)]), answer(vec![clients(7), own])]
}

/// An answer as the provider writes it.
async fn written(cell: Cell, answer: Answer) -> String {
    let provider = Provider::start(scripted(vec![step(move |_| Reply::Say(answer.clone()))])).await.unwrap();
    cell.dialect.ask(provider.addr(), "k", &cell.asked("written")).await.text().to_owned()
}

fn error_event(cell: Cell) -> &'static str {
    match cell.dialect.path() {
        "/v1/chat/completions" => "data: {\"error\":{\"message\":\"boom\",\"type\":\"server_error\"}}\n\n",
        _ => "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}\n\n",
    }
}

/// An event of a type that nobody knows, without the number that others have.
const UNKNOWN: &str = "event: tomorrow\ndata: {\"type\":\"tomorrow\",\"value\":[1]}\n\n";

/// Everything that may happen to an answer on its way.
fn of_answer(cell: Cell, answer: &Answer, whole: &str) -> Vec<Mishap> {
    let (mut all, mut ended) = (Vec::new(), false);
    let ends: Vec<usize> = match cell.stream {
        true => whole.match_indices("\n\n").map(|(at, _)| at + 2).collect(),
        false => vec![whole.len() / 3, whole.len() / 2, whole.len() - 1, whole.len()],
    };
    for (n, end) in ends.iter().enumerate() {
        let begun = ends[..n].last().copied().unwrap_or_default();
        let (before, rest) = whole.split_at(*end);
        for cut in [(begun + end) / 2, *end] {
            let reply = raw(cell, whole[..cut].to_owned());
            all.push(Mishap { endless: true, ..Mishap::new(format!("ends at byte {cut}"), reply) });
        }
        if cell.stream {
            let after = n + 1;
            ended |= ["_reason\":\"", "response.completed"].iter().any(|mark| whole[begun..*end].contains(mark));
            let reply = Reply::CutOff { answer: answer.clone(), after };
            all.push(Mishap { ended, ..Mishap::new(format!("breaks off behind event {after}"), reply) });
            let reply = raw(cell, format!("{before}{}", error_event(cell)));
            all.push(Mishap { ended, ..Mishap::new(format!("an error behind event {after}"), reply) });
            let reply = raw(cell, format!("{before}{UNKNOWN}{rest}"));
            all.push(Mishap::new(format!("an unknown event behind event {after}"), reply));
        } else {
            let reply = Reply::CutOff { answer: answer.clone(), after: *end };
            all.push(Mishap::new(format!("breaks off behind byte {end}"), reply));
        }
    }
    all
}

async fn mishaps(cell: Cell) -> Vec<Mishap> {
    let status = |status: u16| match status {
        502 => {
            Reply::Raw { status, headers: vec![("content-type", "text/html".to_owned())], body: "<p>502</p>".into() }
        }
        _ => error(status, "boom", "x", "x"),
    };
    let mut all: Vec<Mishap> = STATUSES.map(|code| Mishap::new(format!("status {code}"), status(code))).into();
    all.push(Mishap::new("hangs up".to_owned(), Reply::HangUp));
    for (n, answer) in answers().into_iter().enumerate() {
        let whole = written(cell, answer.clone()).await;
        let named = |mishap: Mishap| Mishap { name: format!("answer {n}: {}", mishap.name), ..mishap };
        all.extend(of_answer(cell, &answer, &whole).into_iter().map(named));
    }
    all
}

/// A provider that takes what is in the script, and says something of its own where that is empty.
fn provider(script: &Script) -> Settings {
    let script = Arc::clone(script);
    let behaviour = Behaviour::new(move |request| {
        let next = script.lock().unwrap().pop_front();
        let goes_on = request.body.to_string().contains("own_1");
        next.unwrap_or_else(|| says(if goes_on { ON } else { ANEW }, vec![]))
    });
    Settings { behaviour: behaviour.with_summaries(), ..Settings::default() }
}

/// The rounds before the one that fails: `said` is shown of the first.
fn rounds(count: usize, said: &str) -> Vec<Reply> {
    let call =
        |n: usize| ToolCall { id: format!("own_{n}"), name: "read_evicted".to_owned(), arguments: "{}".to_owned() };
    (1..=count).map(|n| says(if n == 1 { said } else { "" }, vec![call(n)])).collect()
}

#[tokio::test]
async fn whatever_becomes_of_a_later_round_its_client_has_one_answer_or_one_error() {
    for cell in cells() {
        let script = Script::default();
        let (provider, proxy) = pair(provider(&script), &sections("")).await;
        let ways = [(1, ""), (2, BEFORE), (1, BEFORE), (2, "")];
        for (n, mishap) in mishaps(cell).await.into_iter().enumerate() {
            let (count, said) = ways[n % ways.len()];
            let what = format!("{cell:?} {} in round {} behind {said:?}", mishap.name, count + 1);
            *script.lock().unwrap() = rounds(count, said).into_iter().chain([mishap.reply]).collect();
            let body = cell.asked(&format!("mishap {n}"));
            let seen = Seen::of(cell.dialect.send(proxy.proxy_addr, "k", &body).await).await;
            script.lock().unwrap().clear();
            let shown = |text: &str| seen.text.contains(text);
            assert!(!(shown(ANEW) && (shown(BEFORE) || shown(HALF))), "{what}: two answers: {}", seen.text);
            match seen.outcome(cell, &what) {
                Outcome::Answer(had) => {
                    cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
                }
                Outcome::Error => {}
                Outcome::Both => assert!(mishap.ended, "{what}: {}", seen.text),
                Outcome::Endless => assert!(mishap.endless, "{what}: {}", seen.text),
            }
            assert_eq!(provider.violations(), [], "{what}");
        }
    }
}
