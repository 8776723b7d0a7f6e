//! What the demo prints.

use std::io::{self, Write};

use super::WINDOW;
use super::account::ASSUMED;
use super::agent::Outcome;
use super::chart::{Paint, Screen, chart};
use super::claims::{Counts, Evidence, ReadBack, claims};
use super::completion::error_message;
use super::recalled::{Kept, Recalled};
use super::request::Api;
use super::session::{RULE, Session};
use super::trace::Event;

/// Before anything runs.
pub fn introduce(out: &mut impl Write, api: Api, session: &Session) -> io::Result<()> {
    writeln!(out, "compactproxy demo: {}; no key, no network.", api.name())?;
    writeln!(out, "The provider's window is {} tokens.\n", grouped(WINDOW))?;
    writeln!(out, "The session: {} model calls in a repository. The user says at its start:", session.steps.len())?;
    writeln!(out, "  \"{RULE}\"")?;
    let turns = (2..).zip(&session.steps).filter(|(_, step)| step.then.is_some()).map(|(call, _)| call.to_string());
    writeln!(out, "and speaks again before calls {}.", turns.collect::<Vec<String>>().join(" and "))?;
    if api == Api::Messages {
        writeln!(out, "The thinking is signed together with all before it: what is planned waits")?;
        writeln!(out, "for the user to speak; what cannot wait puts all history behind a summary.")?;
    }
    writeln!(out)
}

/// After the run without the proxy; `refused`: tokens of the last request.
pub fn without(out: &mut impl Write, screen: Screen, outcome: &Outcome, refused: u64) -> io::Result<()> {
    writeln!(out, "1. Without compactproxy")?;
    match outcome {
        Outcome::Finished => writeln!(out, "   The session finished.\n"),
        Outcome::Died(death) => {
            let what = format!("dies at call {} with {} tokens:", death.turn, grouped(refused));
            writeln!(out, "   {}", screen.paint(Paint::Bad, &what))?;
            let room = screen.width.saturating_sub(6);
            writeln!(out, "{}\n", wrapped(&format!("{} {}", death.status, death.message), room, "      "))
        }
    }
}

/// After the run with the proxy.
pub fn with(out: &mut impl Write, screen: Screen, evidence: &Evidence) -> io::Result<()> {
    writeln!(out, "2. With compactproxy, the same agent and the shipped configuration")?;
    if let Outcome::Died(death) = &evidence.run.outcome {
        writeln!(out, "   {}", screen.paint(Paint::Bad, &format!("dies at call {}:", death.turn)))?;
        writeln!(
            out,
            "{}",
            wrapped(&format!("{} {}", death.status, death.message), screen.width.saturating_sub(6), "      ")
        )?;
    }
    events(out, evidence)?;
    let sent: Vec<u64> = evidence.passages.iter().map(|passage| passage.sent).collect();
    writeln!(out, "\n   Tokens per call: █ sent, · what the history had grown to, ┄ the window")?;
    write!(out, "{}", chart(screen, &evidence.raw, &sent, WINDOW))?;
    table(out, evidence)?;
    if let ReadBack::Text { pointer, bytes, .. } = &evidence.read_back {
        writeln!(out, "\n   Read back: GET {pointer} ({} bytes)", grouped(*bytes as u64))?;
    }
    if let ReadBack::Failed(why) = &evidence.read_back {
        writeln!(out, "\n   Reading back failed: {why}")?;
    }
    for violation in &evidence.violations {
        let text = format!("broken rule {}: {}", violation.rule, error_message(violation.body.to_string().as_bytes()));
        writeln!(out, "\n{}", wrapped(&text, screen.width.saturating_sub(3), "   "))?;
    }
    writeln!(out, "\n3. Checked")?;
    for claim in claims(evidence) {
        let mark = if claim.held { screen.paint(Paint::Good, "✓") } else { screen.paint(Paint::Bad, "✗ NOT SO:") };
        writeln!(out, "{}", wrapped(&format!("{mark} {}", claim.text), screen.width.saturating_sub(3), "   "))?;
    }
    writeln!(out, "\nAll this took {:.1} s.", evidence.elapsed.as_secs_f64())
}

fn events(out: &mut impl Write, evidence: &Evidence) -> io::Result<()> {
    for (turn, passage) in (1..).zip(&evidence.passages) {
        if let Some((_, window)) = evidence.shrunk.filter(|(at, _)| *at == turn) {
            writeln!(
                out,
                "   call {turn:>2}  the provider's window shrinks to {} tokens, unannounced",
                grouped(window)
            )?;
        }
        for event in &passage.events {
            writeln!(out, "   call {turn:>2}  {}", sentence(event))?;
        }
        if let Some(text) = evidence.recalled.as_ref().filter(|text| text.call == turn) {
            recalled(out, text)?;
        }
    }
    Ok(())
}

/// What the model did, and what the agent saw of it.
fn recalled(out: &mut impl Write, text: &Recalled) -> io::Result<()> {
    let Recalled { call, rounds, id, kept, bytes, page, .. } = text;
    let short: String = id.chars().take(8).collect();
    let hidden = rounds.saturating_sub(1);
    let plural = if hidden == 1 { "" } else { "s" };
    let what = match kept {
        Kept::Result => "the evicted result",
        Kept::Messages => "all messages behind a summary",
    };
    writeln!(
        out,
        "   call {call:>2}  read back   by the model itself: {} characters of text {short}…",
        thousands(*page)
    )?;
    writeln!(out, "                        ({what}, {} bytes),", thousands(*bytes))?;
    writeln!(out, "                        in {hidden} round{plural} that the agent did not see")
}

fn sentence(event: &Event) -> String {
    match event {
        Event::Evicted { tool, before, after } => {
            format!("evicted     a result of {tool}: {} → {} characters", thousands(*before), thousands(*after))
        }
        Event::Pruned { results, before, after } => {
            format!("pruned      {results} older results: {} → {} characters", thousands(*before), thousands(*after))
        }
        Event::Truncated { calls, before, after } => format!(
            "truncated   arguments of {calls} past calls: {} → {} characters",
            thousands(*before),
            thousands(*after)
        ),
        Event::Summarized { calls } => format!("summarized  {calls} more calls with their results"),
        Event::Recovered { refused, accepted } => format!(
            "recovered   {} tokens refused, {} accepted; the agent did not notice",
            grouped(*refused),
            grouped(*accepted)
        ),
    }
}

fn table(out: &mut impl Write, evidence: &Evidence) -> io::Result<()> {
    let counts = Counts::of(&evidence.passages);
    let (all, side, endless) = (&evidence.proxied, &evidence.side, &evidence.baseline);
    writeln!(out, "\n   {:<22}{:>16}{:>24}", "", "compactproxy", "window without end")?;
    let mut row = |name: &str, ours: String, theirs: String| writeln!(out, "   {name:<22}{ours:>16}{theirs:>24}");
    row("requests", format!("{}", all.requests), format!("{}", endless.requests))?;
    row("  of these, side calls", format!("{}", side.requests), "0".to_owned())?;
    row("tokens sent", grouped(all.input), grouped(endless.input))?;
    row(
        "largest request",
        grouped(largest(evidence)),
        grouped(evidence.raw.iter().copied().max().unwrap_or_default()),
    )?;
    row("from the prompt cache", format!("{} %", all.cached_share()), format!("{} %", endless.cached_share()))?;
    if endless.written > 0 {
        row("written to the cache", grouped(all.written), grouped(endless.written))?;
    }
    row("tokens generated", grouped(all.output), grouped(endless.output))?;
    row("cost", format!("${:.2}", all.cost(ASSUMED)), format!("${:.2}", endless.cost(ASSUMED)))?;
    let written = if endless.written > 0 { format!("to the cache ${:.2}, ", ASSUMED.written) } else { String::new() };
    writeln!(
        out,
        "   (assumed per million tokens: input ${}, cached ${}, {written}output ${})",
        ASSUMED.input, ASSUMED.cached, ASSUMED.output
    )?;
    writeln!(
        out,
        "   evicted {}, pruned {}, truncated {}, summaries {}, recovered {}",
        counts.evicted, counts.pruned, counts.truncated, counts.summarized, counts.recovered
    )
}

fn largest(evidence: &Evidence) -> u64 {
    evidence.passages.iter().map(|passage| passage.sent).max().unwrap_or_default()
}

fn thousands(number: usize) -> String {
    grouped(number as u64)
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `text` in lines of at most `room` characters, each behind `indent`.
fn wrapped(text: &str, room: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full =
            lines.last().is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n")
}
