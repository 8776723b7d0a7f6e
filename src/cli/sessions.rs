//! `sessions`: the session log, for the operator.

use std::fmt::Write;
use std::sync::Arc;

use clap::Subcommand;
use serde_json::json;
use serde_json::value::RawValue;

use super::Failure;
use super::state::{existing, file};
use crate::compact::excerpt::{excerpt, one_line};
use crate::config::Config;
use crate::memory::day::stamp;
use crate::memory::words::runs;
use crate::store::Store;
use crate::store::log::{Cursor, HistoryPage, Hit, Logged, MAX_HITS, MAX_PAGE, Search, SessionId, SessionInfo, Tip};
use crate::wire::{Dialect, Role};

/// Characters of an agent's name in a list.
const AGENT: usize = 20;

/// `sessions`: what of the log.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// List sessions, those used last first.
    List {
        /// Only this agent's.
        #[arg(long, value_name = "NAME", value_parser = super::agent)]
        agent: Option<String>,
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Show a session's latest messages.
    Show {
        /// 32 lower-case hex digits, as `list` shows them.
        session: SessionId,
        /// At most this many messages.
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
        /// Only messages with smaller numbers.
        #[arg(long, value_name = "NUMBER")]
        before: Option<u32>,
        /// The branch that `search` shows beside a hit; else the one written to last.
        #[arg(long)]
        branch: Option<Cursor>,
        /// The branch that this agent wrote to last.
        #[arg(long, value_name = "NAME", value_parser = super::agent, conflicts_with = "branch")]
        agent: Option<String>,
        /// At most this many characters of each message.
        #[arg(long, value_name = "N", default_value_t = 2_000)]
        chars: usize,
    },
    /// Find messages by words and identifiers.
    Search {
        /// Words and identifiers; the messages that hold most of them, closest together, come first.
        #[arg(value_parser = words)]
        query: String,
        /// Only in this session.
        #[arg(long)]
        session: Option<SessionId>,
        /// At most this many hits.
        #[arg(long, value_name = "N", default_value_t = 10)]
        max: usize,
    },
    /// Write a session's messages, complete, one JSON object a line.
    Export {
        /// 32 lower-case hex digits, as `list` shows them.
        session: SessionId,
    },
}

fn words(query: &str) -> Result<String, &'static str> {
    let mut any = false;
    runs(query, |_, _| any = true);
    if any { Ok(query.to_owned()) } else { Err("there is no word in it to look for") }
}

/// Prints what is asked for.
pub fn run(config: Config, command: &SessionsCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    runtime.block_on(async {
        let store = existing(&config).await?;
        let answered = answer(&store, command, &file(&config)).await;
        store.close().await;
        answered
    })
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::Runtime(error.to_string())
}

/// `file`: where the log is, for who is told that something is not in it.
async fn answer(store: &Arc<Store>, command: &SessionsCommand, file: &str) -> Result<(), Failure> {
    match command {
        SessionsCommand::List { agent, limit } => {
            let sessions = match agent {
                Some(agent) => store.sessions_of(agent).await,
                None => store.all_sessions().await,
            };
            let mut sessions = sessions.map_err(failure)?;
            if sessions.is_empty() {
                super::tell(&format!("no sessions{} are logged in {file}", of_agent(agent)));
                return Ok(());
            }
            sessions.truncate(*limit);
            super::print(list(&sessions).as_bytes())
        }
        SessionsCommand::Show { session, last, before, branch, agent, chars } => {
            let (last, tip) = ((*last).min(MAX_PAGE), branch.map(Tip::Through));
            let page = HistoryPage { last, before: *before, tip, agent: agent.as_deref().map(Arc::from) };
            let messages = store.any_history(*session, page).await.map_err(failure)?;
            let messages = messages.ok_or_else(|| unknown(session, file))?;
            if messages.is_empty() {
                let branch = branch.map_or_else(String::new, |branch| format!(" on a branch {branch}"));
                let before = before.map_or_else(String::new, |number| format!(" before number {number}"));
                let which = format!("{}{branch}{before}", of_agent(agent));
                return Err(Failure::Runtime(format!("session {session} has no messages{which}")));
            }
            super::print(messages.iter().map(|message| shown(message, *chars)).collect::<String>().as_bytes())
        }
        SessionsCommand::Search { query, session, max } => {
            let search = Search { query: query.clone(), session: *session, agent: None, max: (*max).min(MAX_HITS) };
            let hits = store.search_all(&search).await.map_err(failure)?;
            if hits.cut_short {
                super::tell("it took too long, there may be more: name a session or rarer words");
            }
            if hits.best.is_empty() {
                let place = place(store, session.as_ref(), file).await?;
                super::tell(&format!("nothing is found for {query:?} in {place}"));
            }
            super::print(hits.best.iter().map(found).collect::<String>().as_bytes())
        }
        SessionsCommand::Export { session } => export(store, session, file).await,
    }
}

fn of_agent(agent: &Option<String>) -> String {
    agent.as_ref().map_or_else(String::new, |agent| format!(" of agent {agent}"))
}

/// Where a search looked: a session that is logged, or all.
async fn place(store: &Arc<Store>, session: Option<&SessionId>, file: &str) -> Result<String, Failure> {
    let Some(session) = session else { return Ok(file.to_owned()) };
    let page = HistoryPage { last: 1, before: None, tip: None, agent: None };
    let known = store.any_history(*session, page).await.map_err(failure)?;
    known.map(|_| format!("session {session}")).ok_or_else(|| unknown(session, file))
}

fn unknown(session: &SessionId, file: &str) -> Failure {
    let hint = "`compactproxy sessions list` shows those that are";
    Failure::Runtime(format!("no session {session} is logged in {file}; {hint}"))
}

async fn export(store: &Arc<Store>, session: &SessionId, file: &str) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        let (messages, last) = store.written(*session, after).await.map_err(failure)?;
        if messages.is_empty() {
            return if after == 0 { Err(unknown(session, file)) } else { Ok(()) };
        }
        for message in &messages {
            super::print(line(session, message)?.as_bytes())?;
        }
        after = last;
    }
}

/// One message as a line of JSON; the client's own bytes in it stay as they are.
fn line(session: &SessionId, message: &Logged) -> Result<String, Failure> {
    let item: &RawValue = serde_json::from_str(&message.json).map_err(failure)?;
    let hex = |digest: &[u8; 32]| blake3::Hash::from_bytes(*digest).to_hex().to_string();
    let head = json!({
        "session": session.to_string(),
        "agent": &*message.agent,
        "number": message.number,
        "digest": hex(&message.digest),
        "parent": message.parent.as_ref().map(hex),
        "role": role(message.role),
        "time": stamp(message.time),
        "tokens": message.tokens,
        "api": api(message.dialect),
        "answered": message.answered,
    });
    let head = head.to_string();
    // Items may be spelt over several lines; a line break within a string is escaped.
    let item = item.get().replace(['\n', '\r'], " ");
    Ok(format!("{},\"message\":{item}}}\n", head.strip_suffix('}').unwrap_or(&head)))
}

fn list(sessions: &[SessionInfo]) -> String {
    let (session, agent, last) = ("SESSION", "AGENT", "LAST USED");
    let (messages, bytes) = ("MESSAGES", "BYTES");
    let mut table = format!("{session:<32}  {agent:<AGENT$}  {last:<16}  {messages:>8}  {bytes:>9}  FIRST LINE\n");
    for info in sessions {
        let SessionInfo { id, messages, bytes, .. } = info;
        let (agent, last) = (one_line(&info.agents.join(" "), AGENT), minute(info.last));
        let title = printable(&one_line(&info.title, 80));
        let _ = writeln!(table, "{id}  {agent:<AGENT$}  {last:<16}  {messages:>8}  {bytes:>9}  {title}");
    }
    table
}

fn shown(message: &Logged, chars: usize) -> String {
    let answered = if message.answered { " (not sent back yet)" } else { "" };
    let head = format!("#{} {} {}{answered}", message.number, role(message.role), minute(message.time));
    let clipped = "[… clipped: `sessions export` has it whole …]";
    let text = excerpt(&message.text(), chars - chars / 4, chars / 4, clipped);
    format!("── {head}\n{}\n\n", printable(&text))
}

fn found(hit: &Hit) -> String {
    let Hit { session, agent, number, .. } = hit;
    let branch = Cursor::of(&hit.digest);
    let head = format!("{session} #{number} {} {agent} {} branch {branch}", role(hit.role), minute(hit.time));
    format!("{head}\n    {}\n", printable(&one_line(&hit.snippet, 400)))
}

/// Without what would steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

/// A moment to the minute, in UTC.
fn minute(moment: i64) -> String {
    stamp(moment).replace('T', " ").chars().take(16).collect()
}

fn role(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Unknown => "other",
    }
}

fn api(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "chat",
        Dialect::Responses => "responses",
        Dialect::Messages => "messages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(json: &str) -> Logged {
        Logged {
            digest: [1; 32],
            parent: None,
            number: 3,
            role: Role::User,
            agent: "codex".into(),
            time: 1_796_000_000,
            tokens: None,
            dialect: Dialect::Chat,
            answered: false,
            json: json.to_owned(),
        }
    }

    #[test]
    fn an_exported_line_is_json_with_the_message_as_it_was() {
        let raw = "{\"role\": \"user\",\n \"content\":\"a\\nb\", \"n\": 1.50}";
        let line = line(&SessionId([7; 16]), &message(raw)).unwrap();
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("\"n\": 1.50}"), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value.pointer("/message/content"), Some(&"a\nb".into()));
        assert_eq!((value["number"].as_u64(), value["api"].as_str()), (Some(3), Some("chat")));
    }

    #[test]
    fn what_is_shown_is_bounded_and_steers_no_terminal() {
        let raw = json!({"role": "user", "content": format!("\u{1b}[31m{}", "x".repeat(5_000))}).to_string();
        let shown = shown(&message(&raw), 100);
        assert!(shown.len() < 300 && !shown.contains('\u{1b}') && shown.starts_with("── #3 user 2026-"), "{shown}");
    }
}
