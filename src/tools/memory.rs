//! The tools of long-term memory: searching its files, reading their lines, adding to today's.

use std::fmt::Write;
use std::sync::Arc;

use super::execution::Toolbox;
use super::page::room;
use crate::memory::page::page;
use crate::memory::save::{Author, section};
use crate::memory::search::search;
use crate::memory::{MemoryFile, MemoryPath};
use crate::store::{MemoryError, ReadError, Tenant, now};

const NOTHING: &str = "nothing is in memory yet: it begins with the first memory_save.";

impl Toolbox {
    /// The same with the memory of `agent`.
    #[must_use]
    pub fn with_memory(mut self, agent: Arc<str>) -> Self {
        self.enabled.memory = true;
        self.agent = agent;
        self
    }

    /// The files of every tenant that the caller is, with whose they are.
    async fn files(&self) -> Result<Vec<(Tenant, Vec<MemoryFile>)>, String> {
        let mut all = Vec::new();
        for tenant in &self.tenants {
            let files = self.reading.store.memory_files(tenant, &self.agent).await;
            all.push((*tenant, files.map_err(|error| unread(&error))?));
        }
        Ok(all)
    }

    pub(super) async fn memory_search(&self, query: &str, most: usize) -> Result<String, String> {
        let files: Vec<MemoryFile> = self.files().await?.into_iter().flat_map(|(_, files)| files).collect();
        if files.is_empty() {
            return Err(NOTHING.to_owned());
        }
        let mut said = String::new();
        for hit in search(&files, query, most) {
            let _ = writeln!(said, "{}:{}: {}", hit.path, hit.line, hit.text);
        }
        if said.is_empty() {
            let names: Vec<String> = files.iter().map(|file| file.path.to_string()).collect();
            return Ok(format!("No line has any of these words. The files are {}.", names.join(", ")));
        }
        Ok(said)
    }

    pub(super) async fn memory_get(
        &self,
        path: &str,
        (start, end): (Option<usize>, Option<usize>),
    ) -> Result<String, String> {
        let path: MemoryPath = path.parse().map_err(|error| format!("{error}."))?;
        let mut names = Vec::new();
        for file in self.files().await?.into_iter().flat_map(|(_, files)| files) {
            if file.path == path {
                let lines =
                    page(&file.content, start, end, room(self.page_chars)).map_err(|error| format!("{error}."))?;
                let next = if lines.cut { format!("; go on with startLine {}", lines.last + 1) } else { String::new() };
                let (first, last, total) = (lines.first, lines.last, lines.total);
                return Ok(format!("[{path}: lines {first} to {last} of {total}{next}]\n{}", lines.text));
            }
            names.push(file.path.to_string());
        }
        if names.is_empty() {
            return Err(NOTHING.to_owned());
        }
        Err(format!("there is no {path}; the files are {}.", names.join(", ")))
    }

    /// Where the caller is several tenants, the first one that has a memory keeps it.
    pub(super) async fn memory_save(&self, content: &str) -> Result<String, String> {
        let (path, text) = section(Author::Saved, now(), content).map_err(|error| format!("{error}."))?;
        let files = self.files().await?;
        let owner = files.iter().find(|(_, files)| !files.is_empty()).or(files.first());
        let Some((tenant, _)) = owner else { return Err("nobody is known by this credential yet.".to_owned()) };
        match self.reading.store.append_memory(tenant, &self.agent, path, &text).await {
            Ok(_) => Ok(format!("Saved to {path}.")),
            Err(MemoryError::FileFull) => Err("today's file is full; it goes on tomorrow.".to_owned()),
            Err(error) => Err(format!("nothing was saved: {error}.")),
        }
    }
}

fn unread(error: &ReadError) -> String {
    format!("the memory cannot be read now: {error}.")
}
