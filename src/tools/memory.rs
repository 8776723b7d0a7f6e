//! The tools for long-term memory: finding, reading and adding to the files of the caller's agent.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::execution::{Answer, Toolbox};
use super::page::room;
use crate::memory::page::page;
use crate::memory::save::{Author, section};
use crate::memory::search::search;
use crate::memory::{Day, MemoryPath};
use crate::proxy::memory::mirror::Place;
use crate::proxy::reading::Unread;
use crate::store::{MemoryError, Tenant};

/// Files that are named to a model that asks for one that is not there.
const NAMED: usize = 20;

impl Toolbox {
    pub(super) async fn memory_search(&self, query: String, most: usize) -> Answer {
        let Some(tenant) = self.caller.home else { return Ok(none_of(0)) };
        let (store, space) = (&self.reading.store, self.reading.room());
        let sizes = self.memory_sizes(&tenant).await?;
        // Room is taken before anything is read. What is saved in between is no more than a note.
        if !space.take(sizes.iter().map(|(_, bytes)| bytes).sum()) {
            return Err(format!("{}.", Unread::Full));
        }
        let files = store.memory_files(&tenant, &self.caller.agent).await.map_err(|error| format!("{error}."))?;
        let (count, room) = (files.len(), room(self.page_chars));
        let work = move || search(&files, &query, most);
        let hits = self.reading.work_in(space, work).await.map_err(|why| format!("{why}."))?;
        if hits.is_empty() {
            return Ok(none_of(count));
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
        let Some(tenant) = self.caller.home else { return Err(no_file(named, &[])) };
        let (space, sizes) = (self.reading.room(), self.memory_sizes(&tenant).await?);
        let Some((_, bytes)) = sizes.iter().find(|(path, _)| *path == named) else {
            return Err(no_file(named, &sizes));
        };
        if !space.take(*bytes) {
            return Err(format!("{}.", Unread::Full));
        }
        let file = self.reading.store.memory_file(&tenant, &self.caller.agent, named).await;
        // It may have gone to the archive just now.
        let Some(file) = file.map_err(|error| format!("{error}."))? else { return Err(no_file(named, &sizes)) };
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
            Ok(_) => {
                if let Some(folder) = self.folder.clone() {
                    self.reading.mirrors.renew(Place { folder, tenant, agent: Arc::clone(&self.caller.agent) });
                }
                Ok(format!("[saved to {path}]"))
            }
            Err(MemoryError::FileFull | MemoryError::TenantFull) => {
                Err("the memory is full: nothing was saved. Tell the user.".to_owned())
            }
            Err(error) => Err(format!("{error}.")),
        }
    }

    async fn memory_sizes(&self, tenant: &Tenant) -> Result<Vec<(MemoryPath, usize)>, String> {
        self.reading.admit(self.caller.who).map_err(|why| format!("{why}."))?;
        let sizes = self.reading.store.memory_sizes(tenant, &self.caller.agent).await;
        sizes.map_err(|error| format!("{error}."))
    }
}

fn none_of(files: usize) -> String {
    format!("[nothing matches in {files} memory file{}]", if files == 1 { "" } else { "s" })
}

/// What there is in place of a file that is not.
fn no_file(named: MemoryPath, files: &[(MemoryPath, usize)]) -> String {
    let mut there: Vec<(Option<Day>, String)> = files.iter().map(|(path, _)| (path.day(), path.to_string())).collect();
    if there.is_empty() {
        return format!("there is no {named}: nothing has been saved yet.");
    }
    // MEMORY.md, then the latest days.
    there.sort_by(|(a, _), (b, _)| (a.is_some(), b).cmp(&(b.is_some(), a)));
    let names: Vec<String> = there.into_iter().take(NAMED).map(|(_, name)| name).collect();
    format!("there is no {named}. The latest files are {}.", names.join(", "))
}
