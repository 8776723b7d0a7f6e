//! The embedded provider as a program of its own, for tests with real clients: Chat Completions, Responses
//! (over WebSocket, too) and Messages, all strict, on a free loopback port with a real context limit. Its
//! model is scripted: it calls a tool `--steps` times, now and then stops to ask the user, and ends with
//! [`FINAL`]. The tool is `run`, or the client's own shell where it has one.
//!
//! Some steps' results hold a code word in their middle. The model says it some steps later, and where it is out of sight
//! and there is a tool to read it back, by that: alone in its turn, after a text, or beside a call of the client's tool.
//!
//! With `--script FILE` it follows that in the conversations that the file names (see `script.rs`).
//!
//! Prints `listening ADDR`, serves until SIGTERM or SIGINT, then prints its record: one JSON line for each
//! answer asked for, with the body as received, and a last line that sums up.

mod script;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::content::source;
use compactproxy::demo::messages::{self, Binding};
use compactproxy::demo::provider::{Exchange, Origin, Provider, Settings, Verdict};
use compactproxy::demo::reader::{self, Memory, Sight};
use compactproxy::demo::request::{ModelRequest, kind};
use compactproxy::demo::responses::{self, Socket};
use compactproxy::demo::rules::Violation;
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::demo::window::Limit;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::script::Script;

/// The model's last answer.
const FINAL: &str = "SCENARIO-COMPLETE 4711";
/// What Codex asks for when its history gets long.
const CODEX_COMPACTS: &str = "CONTEXT CHECKPOINT COMPACTION";
/// Every so many steps the model asks the user instead of calling a tool.
const ASKS_EVERY: usize = 8;
/// Every so many steps the call carries a long argument.
const LONG_EVERY: usize = 4;
/// Every so many steps there are two calls at once.
const PAIR_EVERY: usize = 5;
/// Lines that a shell command prints, about 50 bytes each.
const PRINTED_LINES: usize = 150;
/// Every so many steps a result is large and holds a code word, from this step on; so many steps later the model says it.
const LARGE: (usize, usize, usize) = (6, 2, 3);
/// Lines of about 50 bytes that a shell command prints before the code word, and behind it: Codex itself cuts what has more
/// than 10,000 bytes.
const LARGE_LINES: usize = 85;
/// Functions in a long argument, about 400 bytes each.
const LONG_FUNCTIONS: usize = 16;

/// A strict provider with a scripted model.
#[derive(Parser)]
struct Args {
    /// The context limit of prompt and output together, tokens.
    #[arg(long)]
    window: u64,
    /// Answers before the last one.
    #[arg(long)]
    steps: usize,
    /// What the model does in conversations of its own: JSON.
    #[arg(long)]
    script: Option<PathBuf>,
    /// Makes the window one of the prompt alone, with so many tokens more for prompt and output together.
    #[arg(long)]
    output_budget: Option<u64>,
    /// How Responses says that a request is too long: open-ai, error-event, failed-event, …
    #[arg(long, default_value = "open-ai", value_parser = responses_surface)]
    responses_surface: responses::surfaces::Surface,
    /// How Messages says it: anthropic, error-event, too-large, …
    #[arg(long, default_value = "anthropic", value_parser = messages_surface)]
    messages_surface: messages::surfaces::Surface,
    /// Refuses WebSocket with this status.
    #[arg(long)]
    socket_status: Option<u16>,
    /// Signs thinking blocks alone, not what stands before them.
    #[arg(long)]
    unbound: bool,
}

fn responses_surface(name: &str) -> Result<responses::surfaces::Surface, String> {
    named(name, &responses::surfaces::Surface::ALL)
}

fn messages_surface(name: &str) -> Result<messages::surfaces::Surface, String> {
    named(name, &messages::surfaces::Surface::ALL)
}

/// The one of `all` whose name this is.
fn named<T: Copy + std::fmt::Debug>(name: &str, all: &[T]) -> Result<T, String> {
    let plain = name.replace('-', "");
    let found = all.iter().find(|surface| format!("{surface:?}").eq_ignore_ascii_case(&plain));
    found.copied().ok_or_else(|| format!("one of {all:?}"))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let limit = match args.output_budget {
        None => Limit::of(args.window),
        Some(budget) => Limit { input: Some(args.window), total: Some(args.window.saturating_add(budget)) },
    };
    let steps = args.steps;
    let script = args.script.as_deref().map_or_else(|| Ok(Script::default()), Script::read)?;
    let reply =
        move |request: &ModelRequest| script.reply(request).unwrap_or_else(|| Reply::Say(answer(request, steps)));
    let settings = Settings {
        limit,
        behaviour: Behaviour::new(reply).with_summaries(),
        responses: responses::Settings {
            surface: args.responses_surface,
            socket: args.socket_status.map_or(Socket::Open, Socket::Refused),
            ..responses::Settings::default()
        },
        messages: messages::Settings {
            surface: args.messages_surface,
            binding: if args.unbound { Binding::Block } else { Binding::Conversation },
            ..messages::Settings::default()
        },
        ..Settings::default()
    };
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let provider = Provider::start(settings).await?;
    let mut out = io::stdout();
    writeln!(out, "listening {}", provider.addr())?;
    out.flush()?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    print_record(&mut out, &provider)
}

/// The scripted answer to a request.
fn answer(request: &ModelRequest, steps: usize) -> Answer {
    // What the provider holds of a Responses conversation is in no body.
    let step = request.step().unwrap_or_else(|| next_step(&format!("{}{:?}", request.body, request.input)));
    if wants_summary(request) {
        return Answer::text(tag(step.saturating_sub(1), 0));
    }
    let hand = Hand::of(request);
    let last = step >= steps;
    let mut said = if last { FINAL.to_owned() } else { format!("Step {step} of {steps}.") };
    match recalls(request, step) {
        Some((_, Sight::Seen(word))) => said = format!("{said} The {word}."),
        Some((Way::Alone, Sight::Away(call))) => return Answer { calls: vec![call], ..Answer::default() },
        Some((Way::AfterText, Sight::Away(call))) => {
            return Answer { calls: vec![call], ..Answer::text("I look it up. ") };
        }
        Some((Way::Beside, Sight::Away(call))) if !last => {
            return Answer { calls: vec![call, hand.call(step, 0)], ..Answer::text(said) };
        }
        Some((_, Sight::Away(_) | Sight::Gone)) | None => {}
    }
    if last {
        return Answer::text(said);
    }
    if step % ASKS_EVERY == ASKS_EVERY - 1 && hand == Hand::Run {
        return Answer::text(format!("Done up to {}. Shall I go on? {said}", tag(step, 0)));
    }
    let calls = if step % PAIR_EVERY == PAIR_EVERY - 1 { 2 } else { 1 };
    let calls = (0..calls).map(|nth| hand.call(step, nth));
    Answer { calls: calls.collect(), ..Answer::text(said) }
}

/// How the model reads back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    AfterText,
    /// In one turn with a call of the client's: it has the page one step later.
    Beside,
}

/// The code word that is to be said at a step, and where it is.
fn recalls(request: &ModelRequest, step: usize) -> Option<(Way, Sight)> {
    let (every, first, later) = LARGE;
    let large = step.checked_sub(later)?;
    let way = |nth: usize| [Way::Alone, Way::AfterText, Way::Beside].get(nth % 3).copied();
    let (large, way) = match large % every {
        rest if rest == first => (large, way(large / every)?),
        rest if rest == first + 1 && way(large / every)? == Way::Beside => (large - 1, Way::Alone),
        _ => return None,
    };
    let (title, word) = (tag(large, 0), code_word(large));
    Some((way, Memory { begins: &word, below: &title }.look(request)))
}

/// How the line begins that tells a step's code word.
fn code_word(step: usize) -> String {
    format!("code word of {}: ", tag(step, 0))
}

/// Whether the client itself compacts: its history goes, so that the answer must say how far the model is.
fn wants_summary(request: &ModelRequest) -> bool {
    request.messages().last().is_some_and(|item| kind(item) == "compaction_trigger")
        || request.last_user_text().is_some_and(|text| text.contains(CODEX_COMPACTS))
}

/// The tool that the model works with, as the client offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// The suite's own clients'.
    Run,
    /// The Codex CLI's shell. Its user is asked nothing: `codex exec` would take that for the end.
    ExecCommand,
    /// The same behind the code that newer models write.
    Exec,
    /// A plain shell, under its usual name.
    Shell,
}

impl Hand {
    fn of(request: &ModelRequest) -> Self {
        let names = request.tool_names();
        let known = [("exec_command", Self::ExecCommand), ("exec", Self::Exec), ("shell", Self::Shell)];
        known.iter().find(|(name, _)| names.contains(name)).map_or(Self::Run, |(_, hand)| *hand)
    }

    fn call(self, step: usize, nth: usize) -> ToolCall {
        let script = (step % LONG_EVERY == 1).then(|| source(&tag(step, nth), LONG_FUNCTIONS));
        let (name, arguments) = match self {
            Self::Run => ("run", run(step, nth, script).to_string()),
            Self::ExecCommand => ("exec_command", json!({"cmd": command(step, nth, script)}).to_string()),
            Self::Shell => ("shell", json!({"command": command(step, nth, script)}).to_string()),
            Self::Exec => {
                let command = json!({"cmd": command(step, nth, script)});
                ("exec", format!("const r = await tools.exec_command({command});\ntext(r.output);"))
            }
        };
        ToolCall { id: tag(step, nth), name: name.to_owned(), arguments }
    }
}

fn run(step: usize, nth: usize, script: Option<String>) -> Value {
    let mut arguments = json!({"step": step, "part": nth});
    if let (Some(script), Some(members)) = (script, arguments.as_object_mut()) {
        members.insert("script".to_owned(), script.into());
    }
    arguments
}

/// A shell command that writes the script, or prints a log.
fn command(step: usize, nth: usize, script: Option<String>) -> String {
    match script {
        Some(script) => format!("cat > step{step}.rs <<'END'\n{script}END\nwc step{step}.rs"),
        None if step % LARGE.0 == LARGE.1 => {
            let log = format!("seq -f '{}, line %g of the long log: nothing of note' {LARGE_LINES}", tag(step, nth));
            // Made by the shell: the word stands in no request but as a result.
            format!("{log}; echo \"{}$(echo {step} | md5sum | cut -c -8)\"; {log}", code_word(step))
        }
        None => format!("seq -f 'step {step}.{nth}, line %g of the log: nothing of note' {PRINTED_LINES}"),
    }
}

/// What marks a step wherever it is spoken of. Also a call's id: nine letters and digits, as the strictest
/// servers demand.
fn tag(step: usize, nth: usize) -> String {
    format!("st{step:03}c{nth:03}")
}

/// The step after the highest that the request speaks of. Older steps may be gone from it, and the latest
/// may be quoted in any role, so its whole text counts.
fn next_step(body: &str) -> usize {
    let steps = body.split("st").filter_map(|after| {
        let (number, rest) = after.split_at_checked(3)?;
        let marked = rest.strip_prefix('c')?.chars().take(3).filter(char::is_ascii_digit).count() == 3;
        marked.then(|| number.parse::<usize>().ok()).flatten()
    });
    steps.max().map_or(0, |last| last + 1)
}

fn print_record(out: &mut impl Write, provider: &Provider) -> io::Result<()> {
    let exchanges = provider.completions();
    for (index, exchange) in exchanges.iter().enumerate() {
        writeln!(out, "{}", line(index, exchange))?;
    }
    let count = |verdict: Verdict| exchanges.iter().filter(|exchange| exchange.verdict == verdict).count();
    let side_calls = exchanges.iter().filter(|exchange| exchange.origin == Origin::SideCall).count();
    let violations: Vec<Value> = provider.violations().iter().map(violation).collect();
    let sum = json!({
        "requests": exchanges.len(),
        "accepted": count(Verdict::Accepted),
        "overflows": count(Verdict::Overflow),
        "budget": count(Verdict::Budget),
        "side_calls": side_calls,
        "violations": violations,
    });
    writeln!(out, "{sum}")?;
    out.flush()
}

fn line(index: usize, exchange: &Exchange) -> Value {
    let verdict = match exchange.verdict {
        Verdict::Accepted => "accepted",
        Verdict::Violated(rule) => rule,
        Verdict::Overflow => "overflow",
        Verdict::Budget => "budget",
        Verdict::Unsupported => "unsupported",
        Verdict::Counted => "counted",
        Verdict::Other => "other",
    };
    let origin = match exchange.origin {
        Origin::Agent => "agent",
        Origin::SideCall => "side-call",
    };
    let key = exchange.headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    json!({
        "index": index,
        "target": exchange.target,
        "api": exchange.api.map(|api| format!("{api:?}").to_lowercase()),
        "method": exchange.method.as_str(),
        "verdict": verdict,
        "origin": origin,
        // Whether the model goes on in a turn of its own, after nothing but reading back.
        "round": exchange.request().is_some_and(|request| {
            reader::goes_on(&request).is_some() || reader::brings_what_was_read(&request)
        }),
        // Made-up keys of a test on loopback.
        "authorization": key,
        "prompt_tokens": exchange.usage.prompt,
        "cached_tokens": exchange.usage.cached,
        "completion_tokens": exchange.usage.completion,
        "dropped_blocks": exchange.dropped,
        "body": String::from_utf8_lossy(&exchange.body),
    })
}

fn violation(violation: &Violation) -> Value {
    json!({"rule": violation.rule, "status": violation.status, "body": violation.body})
}
