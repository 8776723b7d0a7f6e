//! Running a call: from its arguments to a bounded text, for one caller.

use std::sync::Arc;
use std::time::Instant;

use super::arguments::{self, Request};
use super::definitions::{Enabled, Tool};
use super::matches::{Bounds, SEARCH_TIME, matches};
use super::page::{NoPlace, page, room};
use super::sessions::View;
use super::shown::Shown;
use crate::compact::TextKey;
use crate::compact::page::{QueryError, compiled};
use crate::proxy::reading::{Reading, Unread, Who};
use crate::store::Tenant;
use crate::wire::rounds::OwnResult;

/// Who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose removed texts may be read; over MCP one credential may be the same caller at several upstreams.
    pub tenants: Vec<Tenant>,
    /// Whose sessions and memory; `None`: nothing of the caller's has passed the proxy yet.
    pub home: Option<Tenant>,
    /// Whose share of the reads a call takes.
    pub who: Who,
    /// Whose memory.
    pub agent: Arc<str>,
    /// Which sessions; `None`: only the current one, and nobody knows which that is.
    pub view: Option<View>,
}

/// The tools of one caller.
#[derive(Clone)]
pub struct Toolbox {
    pub(super) reading: Arc<Reading>,
    pub(super) caller: Caller,
    enabled: Enabled,
    /// The tenant's folder in the workspace, to which memory files go as well.
    pub(super) folder: Option<String>,
    /// Most Unicode characters of a result.
    pub(super) page_chars: usize,
    /// The removed texts that may be read.
    shown: Shown,
}

/// What a call says to the model; `Err`: what is wrong.
pub(super) type Answer = Result<String, String>;

impl Toolbox {
    pub fn new(reading: Arc<Reading>, caller: Caller, enabled: Enabled, page_chars: usize) -> Self {
        Self { reading, caller, enabled, folder: None, page_chars, shown: Shown::Any }
    }

    /// The same, with copies of memory files in this folder of the tenant's.
    #[must_use]
    pub fn mirrored(self, folder: Option<String>) -> Self {
        Self { folder, ..self }
    }

    /// The same for a model that was shown no more than this: an id from elsewhere is answered as one that does not exist.
    #[must_use]
    pub fn to(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The model was shown more.
    pub fn show(&mut self, shown: Shown) {
        self.shown.and(shown);
    }

    pub fn enabled(&self) -> Enabled {
        self.enabled
    }

    /// Runs a tool by its own name (not the one under which it was offered). Never fails: what is wrong is said to the
    /// model. The text has at most `page_chars` characters.
    pub async fn call(&self, name: &str, arguments: &str) -> OwnResult {
        let answer = match Tool::named(name).filter(|tool| self.enabled.has(*tool)) {
            Some(tool) => self.run(tool, arguments).await,
            None => Err(self.no_tool()),
        };
        match answer {
            Ok(text) => OwnResult { text: self.bounded(text), failed: false },
            Err(wrong) => OwnResult { text: self.bounded(format!("Error: {wrong}")), failed: true },
        }
    }

    async fn run(&self, tool: Tool, arguments: &str) -> Answer {
        match arguments::read(tool, arguments).map_err(|error| error.to_string())? {
            Request::ReadEvicted(reading) => self.read_evicted(reading).await,
            Request::MemorySearch { query, most } => self.memory_search(query, most).await,
            Request::MemoryGet { path, start, end } => self.memory_get(&path, start, end).await,
            Request::MemorySave { content } => self.memory_save(&content).await,
            Request::SessionList { agent } => self.session_list(agent.as_deref()).await,
            Request::SessionHistory { agent, part } => self.session_history(agent.as_deref(), part).await,
            Request::SessionSearch { query, agent, session, most } => {
                self.session_search(query, agent.as_deref(), session, most).await
            }
        }
    }

    async fn read_evicted(&self, asked: arguments::Reading) -> Answer {
        let keys: Vec<TextKey> = self.caller.tenants.iter().map(|tenant| self.reading.store.text_key(tenant)).collect();
        let (id, page_chars) = (asked.id, self.page_chars);
        if !self.shown.has(&id) {
            return Err(UNKNOWN.to_owned());
        }
        let work = move |text: &str| {
            // The id of another tenant's text is no id here.
            keys.iter().any(|key| key.id(text) == asked.id).then(|| part(text, &asked, page_chars))
        };
        match self.reading.text(self.caller.who, id, work).await {
            Ok(Some(part)) => part,
            Ok(None) | Err(Unread::Unknown) => Err(UNKNOWN.to_owned()),
            Err(why) => Err(format!("{why}.")),
        }
    }

    /// That there is no such tool, and which there are.
    pub(super) fn no_tool(&self) -> String {
        let names: Vec<&str> = self.enabled.tools().map(Tool::name).collect();
        format!("there is no such tool; the tools are {}.", names.join(", "))
    }

    /// Nothing is longer than a page, whatever it says.
    fn bounded(&self, text: String) -> String {
        match text.char_indices().nth(self.page_chars) {
            None => text,
            Some((end, _)) => text.get(..end).unwrap_or_default().to_owned(),
        }
    }
}

/// Without the id: that it was asked for is no reason to know of it.
const UNKNOWN: &str =
    "no text is kept under this id. Copy the id exactly from a notice in this conversation; do not guess one.";

/// The part of a text that is asked for.
fn part(text: &str, asked: &arguments::Reading, page_chars: usize) -> Result<String, String> {
    let room = room(page_chars);
    let no_place = |error: NoPlace| error.to_string();
    let Some(pattern) = &asked.pattern else {
        return page(text, asked.start, asked.limit, room).map(|page| page.text()).map_err(no_place);
    };
    let pattern = compiled(pattern).map_err(|error| no_pattern(&error))?;
    let bounds = Bounds { limit: asked.limit, room, until: Instant::now() + SEARCH_TIME };
    matches(text, &pattern, asked.start, bounds).map(|found| found.text()).map_err(no_place)
}

/// What is wrong with a pattern, without the pattern: it may hold anything.
fn no_pattern(error: &QueryError) -> String {
    let why = match error {
        QueryError::Pattern(said) => said.rsplit("error: ").next().unwrap_or_default().trim().to_owned(),
        other => other.to_string(),
    };
    format!(
        "pattern: {why}. A pattern is a regular expression without look-around and back-references, such as error|warn(ing)?."
    )
}

#[cfg(test)]
#[path = "tests/execution.rs"]
mod tests;
