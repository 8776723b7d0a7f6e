//! The tools for long-term memory: finding, reading and adding to the files of the caller's agent.

use std::time::{SystemTime, UNIX_EPOCH};

use super::execution::{Answer, Toolbox};
use super::page::room;
use crate::memory::page::page;
use crate::memory::save::{Author, section};
use crate::memory::search::search;
use crate::memory::{Day, MemoryFile, MemoryPath};
use crate::store::MemoryError;

/// Files that are named to a model that asks for one that is not there.
const NAMED: usize = 20;

impl Toolbox {
    pub(super) async fn memory_search(&self, query: String, most: usize) -> Answer {
        let files = self.memory_files().await?;
        let (count, room) = (files.len(), room(self.page_chars));
        let bytes = files.iter().map(|file| file.content.len()).sum();
        let work = move || search(&files, &query, most);
        let hits = self.reading.work(bytes, work).await.map_err(|why| format!("{why}."))?;
        if hits.is_empty() {
            return Ok(format!("[nothing matches in {count} memory file{}]", if count == 1 { "" } else { "s" }));
        }
        let (mut shown, mut chars, mut fit) = (String::new(), 0, 0);
        for hit in &hits {
            let line = format!("{}:{}: {}\n", hit.path, hit.line, hit.text);
            chars += line.chars().count();
            if chars > room {
                break;
            }
            shown += &line;
            fit += 1;
        }
        let s = if fit == 1 { "" } else { "s" };
        Ok(format!(
            "[{fit} of {} hit{s}, the best first, as FILE:LINE: TEXT; memory_get reads around a line]\n{shown}",
            hits.len()
        ))
    }

    pub(super) async fn memory_get(&self, path: &str, start: Option<usize>, end: Option<usize>) -> Answer {
        let named: MemoryPath = path.trim().parse().map_err(|error| format!("{error}."))?;
        let files = self.memory_files().await?;
        let Some(file) = files.iter().find(|file| file.path == named) else { return Err(no_file(named, &files)) };
        let page = page(&file.content, start, end, room(self.page_chars)).map_err(|error| format!("{error}."))?;
        let lines = match page.last {
            last if last < page.first => "it is empty".to_owned(),
            last => format!("lines {} to {last} of {}", page.first, page.total),
        };
        let more = if page.cut { format!("; for more use startLine={}", page.last + 1) } else { String::new() };
        Ok(format!("[{named}: {lines}{more}]\n{}", page.text))
    }

    pub(super) async fn memory_save(&self, content: &str) -> Answer {
        let Some(tenant) = self.caller.home else {
            return Err(
                "nothing of this credential has passed the proxy yet: make a model call with it first.".to_owned()
            );
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        let (path, section) = section(Author::Saved, now, content).map_err(|error| format!("{error}."))?;
        self.reading.admit(self.caller.who).map_err(|why| format!("{why}."))?;
        match self.reading.store.append_memory(&tenant, &self.caller.agent, path, &section).await {
            Ok(_) => Ok(format!("[saved to {path}]")),
            Err(MemoryError::FileFull | MemoryError::TenantFull) => {
                Err("the memory is full: nothing was saved. Tell the user.".to_owned())
            }
            Err(error) => Err(format!("{error}.")),
        }
    }

    /// The agent's files; none of a caller who is nobody so far.
    async fn memory_files(&self) -> Result<Vec<MemoryFile>, String> {
        let Some(tenant) = self.caller.home else { return Ok(Vec::new()) };
        self.reading.admit(self.caller.who).map_err(|why| format!("{why}."))?;
        let files = self.reading.store.memory_files(&tenant, &self.caller.agent).await;
        files.map_err(|error| format!("{error}."))
    }
}

/// What there is in place of a file that is not.
fn no_file(named: MemoryPath, files: &[MemoryFile]) -> String {
    let mut there: Vec<(Option<Day>, String)> = files.iter().map(|f| (f.path.day(), f.path.to_string())).collect();
    if there.is_empty() {
        return format!("there is no {named}: nothing has been saved yet.");
    }
    // MEMORY.md, then the latest days.
    there.sort_by(|(a, _), (b, _)| (a.is_some(), b).cmp(&(b.is_some(), a)));
    let names: Vec<String> = there.into_iter().take(NAMED).map(|(_, name)| name).collect();
    format!("there is no {named}. The latest files are {}.", names.join(", "))
}
