//! The embedded provider as a program of its own, for tests with real clients: strict Chat Completions, Responses
//! and Messages on a free loopback port with a real context limit. Its model is scripted: it calls the tool `run`,
//! or the Codex CLI's shell, `--steps` times, now and then stops to ask the user, and ends with [`FINAL`].
//!
//! Prints `listening ADDR`, serves until SIGTERM or SIGINT, then prints its record: one JSON line for each
//! completion asked for, with the body as received, and a last line that sums up.

use std::io::{self, Write};

use clap::Parser;
use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::content::source;
use compactproxy::demo::provider::{Exchange, Origin, Provider, Settings, Verdict};
use compactproxy::demo::request::{ModelRequest, text};
use compactproxy::demo::rules::Violation;
use compactproxy::demo::script::{Behaviour, Reply};
use compactproxy::demo::window::Limit;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// The model's last answer.
const FINAL: &str = "SCENARIO-COMPLETE 4711";
/// Every so many steps the model asks the user instead of calling a tool.
const ASKS_EVERY: usize = 8;
/// Every so many steps the call carries a long argument.
const LONG_EVERY: usize = 4;
/// Every so many steps there are two calls at once.
const PAIR_EVERY: usize = 5;
/// Lines that a shell command prints, about 50 bytes each.
const PRINTED_LINES: usize = 150;
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
    /// Makes the window one of the prompt alone, with so many tokens more for prompt and output together.
    #[arg(long)]
    output_budget: Option<u64>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> io::Result<()> {
    let args = Args::parse();
    let limit = match args.output_budget {
        None => Limit::of(args.window),
        Some(budget) => Limit { input: Some(args.window), total: Some(args.window.saturating_add(budget)) },
    };
    let steps = args.steps;
    let behaviour = Behaviour::new(move |request| Reply::Say(answer(request, steps))).with_summaries();
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let provider = Provider::start(Settings { limit, behaviour, ..Settings::default() }).await?;
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
    let step = request.step().unwrap_or_else(|| next_step(&request.body.to_string()));
    if step >= steps {
        return Answer::text(FINAL);
    }
    let hand = Hand::of(request);
    if step % ASKS_EVERY == ASKS_EVERY - 1 && hand == Hand::Run {
        return Answer::text(format!("Done up to {}. Shall I go on?", tag(step, 0)));
    }
    let calls = if step % PAIR_EVERY == PAIR_EVERY - 1 { 2 } else { 1 };
    let calls = (0..calls).map(|nth| hand.call(step, nth));
    Answer { text: Some(format!("Step {step} of {steps}.")), calls: calls.collect(), ..Answer::default() }
}

/// The tool that the model works with, as the client offers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// The suite's own clients'.
    Run,
    /// The Codex CLI's shell. Its user is asked nothing: `codex exec` would take that for the end.
    ExecCommand,
}

impl Hand {
    fn of(request: &ModelRequest) -> Self {
        let shell = request.tools().iter().any(|tool| text(tool, "name") == "exec_command");
        if shell { Self::ExecCommand } else { Self::Run }
    }

    fn call(self, step: usize, nth: usize) -> ToolCall {
        let script = (step % LONG_EVERY == 1).then(|| source(&tag(step, nth), LONG_FUNCTIONS));
        let (name, arguments) = match self {
            Self::Run => ("run", run(step, nth, script)),
            Self::ExecCommand => ("exec_command", json!({"cmd": command(step, nth, script)})),
        };
        ToolCall { id: tag(step, nth), name: name.to_owned(), arguments: arguments.to_string() }
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
        "verdict": verdict,
        "origin": origin,
        // Made-up keys of a test on loopback.
        "authorization": key,
        "prompt_tokens": exchange.usage.prompt,
        "cached_tokens": exchange.usage.cached,
        "body": String::from_utf8_lossy(&exchange.body),
    })
}

fn violation(violation: &Violation) -> Value {
    json!({"rule": violation.rule, "status": violation.status, "body": violation.body})
}
