//! Running a call: from its arguments to a bounded text, for one caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arguments::{self, Request};
use super::definitions::{Enabled, Tool};
use super::matches::{Bounds, matches};
use super::page::{NoPlace, page, room};
use crate::compact::TextKey;
use crate::compact::page::{QueryError, compiled};
use crate::proxy::reading::{Reading, Unread};
use crate::store::Tenant;
use crate::wire::rounds::OwnResult;

/// A search in one text takes this long at most.
const SEARCH_TIME: Duration = Duration::from_secs(2);

/// The tools of one caller.
#[derive(Clone)]
pub struct Toolbox {
    reading: Arc<Reading>,
    /// Whose texts may be read; over MCP one credential may be the same caller at several upstreams.
    tenants: Vec<Tenant>,
    enabled: Enabled,
    /// Most Unicode characters of a result.
    page_chars: usize,
}

impl Toolbox {
    pub fn new(reading: Arc<Reading>, tenants: Vec<Tenant>, enabled: Enabled, page_chars: usize) -> Self {
        Self { reading, tenants, enabled, page_chars }
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

    async fn run(&self, tool: Tool, arguments: &str) -> Result<String, String> {
        match arguments::read(tool, arguments).map_err(|error| error.to_string())? {
            Request::ReadEvicted(reading) => self.read_evicted(reading).await,
            _ => Err(self.no_tool()),
        }
    }

    async fn read_evicted(&self, asked: arguments::Reading) -> Result<String, String> {
        let keys: Vec<TextKey> = self.tenants.iter().map(|tenant| self.reading.store.text_key(tenant)).collect();
        let (id, page_chars) = (asked.id, self.page_chars);
        let work = move |text: &str| {
            // The id of another tenant's text is no id here.
            keys.iter().any(|key| key.id(text) == asked.id).then(|| part(text, &asked, page_chars))
        };
        match self.reading.text(id, work).await {
            Ok(Some(part)) => part,
            Ok(None) | Err(Unread::Unknown) => Err(unknown(&id.to_string())),
            Err(why) => Err(format!("{why}.")),
        }
    }

    fn no_tool(&self) -> String {
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

fn unknown(id: &str) -> String {
    format!(
        "no text is kept under the id {id}. Copy the id exactly from a notice in this conversation; do not guess one."
    )
}

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

fn no_pattern(error: &QueryError) -> String {
    format!(
        "{error}. A pattern is a regular expression without look-around and back-references, such as error|warn(ing)?."
    )
}

#[cfg(test)]
#[path = "tests/execution.rs"]
mod tests;
