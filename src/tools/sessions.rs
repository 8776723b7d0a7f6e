//! The tools for the session log: what was said before anything was removed, in the conversations that the caller may
//! see. What is outside of that is answered as what does not exist.

use std::sync::Arc;

use super::execution::{Answer, Toolbox};
use super::page::room;
use crate::config::ToolScope;
use crate::memory::day::stamp;
use crate::proxy::reading::Room;
use crate::store::ReadError;
use crate::store::log::{Cursor, HistoryPage, Hits, Logged, Scope, Search, SessionId, SessionInfo, Tip};
use crate::wire::{Digest, Role};

/// Which conversations a caller may see, and which one is its own.
#[derive(Debug, Clone)]
pub struct View {
    pub scope: Scope,
    /// The current conversation's session, where it is known.
    pub current: Option<SessionId>,
    /// The current conversation's messages: they tell its branch from others of its session.
    pub chain: Option<Arc<[Digest]>>,
}

/// Which part of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub session: Option<[u8; 16]>,
    pub last: usize,
    pub before: Option<u64>,
    /// The branch that holds this message.
    pub branch: Option<Cursor>,
    /// Characters of the latest message to skip; the others are then left out.
    pub char: usize,
}

/// Bytes of JSON that one character takes at most.
const BYTES_PER_CHAR: usize = 12;

/// What a caller may do without a view: nothing, since nobody knows which conversation is its own.
const NO_VIEW: &str = "it is not known which conversation this is, and the operator allows no other one. Over MCP, send the \
                       header x-compactproxy-session with the same value as on the requests to the model.";

impl View {
    /// The view that a configuration allows. `None`: only the current session, and which that is, is not known.
    /// `chain`: only its messages with these digests, where nothing but its content names the session.
    pub fn of(rule: ToolScope, agent: &str, current: Option<SessionId>, chain: Option<&[Digest]>) -> Option<Self> {
        let chain: Option<Arc<[Digest]>> = chain.map(Into::into);
        let scope = match rule {
            ToolScope::Tenant => Scope::Tenant,
            ToolScope::Agent => Scope::Agent(agent.into()),
            ToolScope::Session => Scope::Conversation { session: current?, chain: chain.clone() },
        };
        Some(Self { scope, current, chain })
    }

    /// The same, from the branch of the current session that has these messages.
    #[must_use]
    pub fn along(self, chain: &[Digest]) -> Self {
        Self { chain: Some(chain.into()), ..self }
    }

    /// The scope of one agent's sessions; `None` where it has none in sight. In one conversation agents are told apart
    /// by their branches.
    fn of_agent(&self, agent: Option<&str>) -> Option<Scope> {
        match (&self.scope, agent) {
            (scope, None) | (scope @ Scope::Conversation { .. }, _) => Some(scope.clone()),
            (Scope::Tenant, Some(agent)) => Some(Scope::Agent(agent.into())),
            (Scope::Agent(own), Some(agent)) => (**own == *agent).then(|| self.scope.clone()),
        }
    }
}

impl Toolbox {
    pub(super) async fn session_list(&self, agent: Option<&str>) -> Answer {
        let view = self.view()?;
        let Some(tenant) = self.caller.home else { return Ok("[no sessions]".to_owned()) };
        self.admitted()?;
        let mut sessions = match view.of_agent(agent) {
            Some(scope) => self.reading.store.sessions(&tenant, &scope).await.map_err(said)?,
            None => Vec::new(),
        };
        sessions.retain(|session| agent.is_none_or(|agent| session.agents.iter().any(|wrote| **wrote == *agent)));
        let (mut shown, mut chars, mut fit) = (String::new(), 0, 0);
        for session in &sessions {
            let line = listed(session, view.current);
            chars += line.chars().count();
            if chars > room(self.page_chars) {
                break;
            }
            shown += &line;
            fit += 1;
        }
        let total = sessions.len();
        Ok(match total {
            0 => "[no sessions]".to_owned(),
            _ if fit < total => format!("[the latest {fit} of {total} sessions; session_search finds others]\n{shown}"),
            _ => format!("[{total} session{}, the latest first]\n{shown}", if total == 1 { "" } else { "s" }),
        })
    }

    pub(super) async fn session_history(&self, agent: Option<&str>, part: Part) -> Answer {
        let view = self.view()?;
        let Some(session) = part.session.map(SessionId).or(view.current) else {
            return Err(
                "sessionId is missing: it is not known which conversation this is. Take one from session_list."
                    .to_owned(),
            );
        };
        let unknown = || NO_SESSION.to_owned();
        let Some((tenant, scope)) = self.caller.home.zip(view.of_agent(agent)) else { return Err(unknown()) };
        self.admitted()?;
        // Without a branch's name a page from another branch than the last one could follow.
        let own = view.chain.as_ref().filter(|_| Some(session) == view.current && agent.is_none());
        let (tip, named) = match (part.branch, own) {
            (Some(branch), _) => (Some(Tip::Through(branch)), true),
            // What was said last may not be written yet. What is asked for is looked for from its end.
            (None, Some(chain)) => {
                let before = part.before.and_then(|before| usize::try_from(before).ok());
                let asked = before.and_then(|before| chain.get(..before.checked_sub(1)?));
                let sought = asked.unwrap_or(chain);
                let last = self.reading.store.last_logged(&tenant, session, sought).await.map_err(said)?;
                let last = last.or_else(|| asked.and_then(|asked| asked.last().copied()));
                (last.map(Tip::At), false)
            }
            (None, None) => (None, true),
        };
        let page = HistoryPage {
            last: if part.char > 0 { 1 } else { part.last },
            before: part.before.map(|before| u32::try_from(before).unwrap_or(u32::MAX)),
            tip,
            agent: agent.map(Into::into),
        };
        let held = self.reading.room();
        let within = Box::new(within(held.clone(), self.page_chars));
        let messages = self.reading.store.history_within(&tenant, &scope, (Some(session), page), within).await;
        let messages = messages.map_err(said)?.ok_or_else(unknown)?;
        let pages = if named { Pages::ByMessage } else { Pages::Own };
        let read = Read { session, pages, room: room(self.page_chars) };
        let work = move || read.history(&messages, part.char);
        self.reading.work_in(held, work).await.map_err(|why| format!("{why}."))?
    }

    pub(super) async fn session_search(
        &self,
        query: String,
        agent: Option<&str>,
        session: Option<[u8; 16]>,
        max: usize,
    ) -> Answer {
        let view = self.view()?;
        let nothing = || Ok("[nothing matches in the sessions that you may read]".to_owned());
        let Some((tenant, scope)) = self.caller.home.zip(view.of_agent(agent)) else { return nothing() };
        self.admitted()?;
        let search = Search { query, session: session.map(SessionId), agent: agent.map(Into::into), max };
        let found = self.reading.store.search_log(&tenant, &scope, &search).await;
        let Hits { best: hits, cut_short } = found.map_err(|error| match error {
            ReadError::Late => {
                "the search took too long: use rarer words, or name a session with sessionId.".to_owned()
            }
            error => said(error),
        })?;
        let (mut shown, mut chars, mut fit) = (String::new(), 0, 0);
        for hit in &hits {
            let (role, time) = (name_of(hit.role), stamp(hit.time));
            let (session, number, branch) = (hit.session, hit.number, Cursor::of(&hit.digest));
            let entry =
                format!("session {session} #{number} {role} {time} branch={branch}\n{}\n\n", hit.snippet.trim());
            chars += entry.chars().count();
            if chars > room(self.page_chars) {
                break;
            }
            shown += &entry;
            fit += 1;
        }
        let late =
            if cut_short { "; the search took too long and was cut short: narrow it to find others" } else { "" };
        match fit {
            0 if cut_short => Err("the search took too long: use rarer words.".to_owned()),
            0 => nothing(),
            _ => Ok(format!(
                "[{fit} of {} hits, the best first{late}; to read on at #N use session_history with that sessionId, that branch and before=N+1]\n\
                 {shown}",
                hits.len()
            )),
        }
    }

    fn view(&self) -> Result<&View, String> {
        self.caller.view.as_ref().ok_or_else(|| NO_VIEW.to_owned())
    }

    fn admitted(&self) -> Result<(), String> {
        self.reading.admit(self.caller.who).map_err(|why| format!("{why}."))
    }
}

/// Without the id: what was asked for is not to look like one that was shown.
const NO_SESSION: &str = "there is no session of this id that you may read; session_list names those.";

fn said(error: ReadError) -> String {
    format!("{error}.")
}

/// The latest message always, however long, and others as long as a page may have room for them: while the buffers
/// have. A message is held as JSON and as text.
fn within(held: Room, page_chars: usize) -> impl FnMut(usize) -> bool + Send {
    let (most, mut had) = (page_chars.saturating_mul(BYTES_PER_CHAR), 0_usize);
    move |bytes| {
        let goes_on = had <= most && held.take(bytes.saturating_mul(2));
        had = had.saturating_add(bytes);
        goes_on
    }
}

fn listed(session: &SessionInfo, current: Option<SessionId>) -> String {
    let SessionInfo { id, agents, title, first, last, messages, tokens, .. } = session;
    let this = if Some(*id) == current { ", this conversation" } else { "" };
    let (first, last) = (stamp(*first), stamp(*last));
    let agents = match agents.as_slice() {
        [one] => format!("agent {one}"),
        agents => format!("agents {}", agents.join(", ")),
    };
    // Where nothing was due nobody counted.
    let tokens = if *tokens > 0 { format!(", {tokens} tokens") } else { String::new() };
    format!("{id}{this}: {agents}, {first} to {last}, {messages} messages{tokens}: {title}\n")
}

fn name_of(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        _ => "other",
    }
}

/// What a page of history is of.
struct Read {
    session: SessionId,
    pages: Pages,
    /// Characters.
    room: usize,
}

/// How other pages of the same branch are asked for.
#[derive(Clone, Copy)]
enum Pages {
    /// By one of its messages: the nearer that is to the page, the less is read.
    ByMessage,
    /// It is the conversation's own.
    Own,
}

impl Read {
    /// Messages (oldest first) as a page: the latest ones that fit, complete, or a part of the latest.
    fn history(&self, messages: &[Logged], char: usize) -> Answer {
        let session = self.session;
        let Some((latest, _)) = messages.split_last() else {
            return Ok(format!("[session {session}: no messages there]"));
        };
        let (mut entries, mut chars) = (Vec::new(), 0);
        for message in messages.iter().rev().filter(|_| char == 0) {
            let entry = format!("{}\n{}\n\n", heading(message), message.text());
            chars += entry.chars().count();
            if chars > self.room {
                break;
            }
            entries.push((message, entry));
        }
        let Some((first, _)) = entries.last() else { return self.part(latest, char) };
        let (oldest, branch) = (first.number, self.branch(first));
        let earlier =
            if oldest > 1 { format!("; for earlier ones use before={oldest}{branch}") } else { String::new() };
        let head = format!("[session {session}: messages #{oldest} to #{}{earlier}]\n", latest.number);
        Ok(entries.iter().rev().fold(head, |page, (_, entry)| page + entry))
    }

    /// Part of a message that is longer than a page.
    fn part(&self, message: &Logged, char: usize) -> Answer {
        let (session, branch) = (self.session, self.branch(message));
        let text = message.text();
        let total = text.chars().count();
        if char > 0 && char >= total {
            return Err(format!("char_offset {char} is behind the end: that message has {total} characters."));
        }
        let body: String = text.chars().skip(char).take(self.room).collect();
        let (number, end) = (message.number, char + body.chars().count());
        let again = format!("before={}{branch}, lastN=1 and char_offset={end}", u64::from(number) + 1);
        let more = if end < total { format!("; for more use {again}") } else { String::new() };
        let earlier =
            if number > 1 { format!("; for earlier messages use before={number}{branch}") } else { String::new() };
        let heading = heading(message);
        let first = char + 1;
        Ok(format!("[session {session}: {heading}, characters {first} to {end} of {total}{more}{earlier}]\n{body}\n"))
    }

    fn branch(&self, message: &Logged) -> String {
        match self.pages {
            Pages::ByMessage => format!(", branch={}", Cursor::of(&message.digest)),
            Pages::Own => String::new(),
        }
    }
}

fn heading(message: &Logged) -> String {
    format!("#{} {} {}", message.number, name_of(message.role), stamp(message.time))
}

#[cfg(test)]
#[path = "tests/sessions.rs"]
mod tests;
