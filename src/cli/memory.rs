//! `memory`: the files of long-term memory, shown, taken out and put in.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::Failure;
use super::state::{existing, file};
use crate::config::{Config, TenantRule};
use crate::memory::day::stamp;
use crate::memory::save::tidy;
use crate::memory::{MemoryFile, MemoryPath};
use crate::store::{MAX_FILE_BYTES, MemoryEntry, Rewrite, Store, Tenant};

/// `memory`: what to do.
#[derive(Debug, Clone, Subcommand)]
pub enum MemoryCommand {
    /// List the memory files, or print one.
    Show(ShowArgs),
    /// Write an agent's memory files into a folder, or all that are selected as JSON to stdout.
    Export(ExportArgs),
    /// Put memory files in place: from a folder of such files, or from JSON as `export` writes it.
    Import(ImportArgs),
}

/// Whose files.
#[derive(Debug, Clone, Default, Args)]
pub struct Owner {
    /// The tenant, as `memory show` lists it [default: the only one there is].
    #[arg(long, value_name = "ID", value_parser = tenant)]
    pub tenant: Option<Tenant>,
    /// The agent [default: the only one there is].
    #[arg(long, value_name = "NAME", value_parser = super::agent)]
    pub agent: Option<String>,
}

/// `memory show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub owner: Owner,
    /// Print this file, such as MEMORY.md.
    #[arg(value_name = "PATH")]
    pub path: Option<MemoryPath>,
    /// As it was before its last change.
    #[arg(long, requires = "path")]
    pub previous: bool,
}

/// `memory export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    #[command(flatten)]
    pub owner: Owner,
    /// A folder, which is made if it is not there.
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
}

/// `memory import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    pub owner: Owner,
    /// A folder with MEMORY.md and memory/, or a JSON file.
    #[arg(value_name = "FOLDER|FILE")]
    pub from: PathBuf,
}

/// One file in JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exported {
    tenant: String,
    agent: String,
    path: String,
    /// Bytes that MEMORY.md has taken in.
    merged: usize,
    content: String,
}

/// A file to be put in place.
struct Incoming {
    tenant: Tenant,
    agent: String,
    path: MemoryPath,
    merged: usize,
    content: String,
}

fn tenant(hex: &str) -> Result<Tenant, String> {
    // Tenants are shown as ids of texts are.
    hex.parse::<crate::compact::TextId>().map(|id| Tenant(id.0)).map_err(|error| error.to_string())
}

fn hex(tenant: &Tenant) -> String {
    tenant.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn failure(error: &dyn std::fmt::Display) -> Failure {
    Failure::Runtime(error.to_string())
}

/// Works on the configured state file, also while an instance serves from it. None is made: in the wrong folder, what is
/// imported would be found by nobody.
pub fn run(config: Config, command: &MemoryCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| failure(&e))?;
    runtime.block_on(async {
        let store = existing(&config).await?;
        let desk = Desk { store: Arc::clone(&store), config };
        let done = match command {
            MemoryCommand::Show(args) => desk.show(args).await,
            MemoryCommand::Export(args) => desk.export(args).await,
            MemoryCommand::Import(args) => desk.import(args).await,
        };
        store.close().await;
        done
    })
}

struct Desk {
    store: Arc<Store>,
    config: Config,
}

impl Desk {
    /// What there is of the owner, or of all.
    async fn entries(&self, owner: &Owner) -> Result<Vec<MemoryEntry>, Failure> {
        let mut entries = self.store.memory_entries().await.map_err(|e| failure(&e))?;
        entries.retain(|entry| {
            owner.tenant.is_none_or(|tenant| tenant == entry.tenant)
                && owner.agent.as_ref().is_none_or(|agent| *agent == entry.agent)
        });
        Ok(entries)
    }

    async fn file(&self, entry: &MemoryEntry) -> Result<MemoryFile, Failure> {
        let file = self.store.memory_file(&entry.tenant, &entry.agent, entry.path).await.map_err(|e| failure(&e))?;
        file.ok_or_else(|| Failure::Runtime(format!("{} is not there any more", entry.path)))
    }

    async fn previous(&self, entry: &MemoryEntry) -> Result<String, Failure> {
        let MemoryEntry { tenant, agent, path, .. } = entry;
        let previous = self.store.previous_memory(tenant, agent, *path).await.map_err(|e| failure(&e))?;
        previous.ok_or_else(|| Failure::Runtime(format!("{path} has not been changed since it was made")))
    }

    async fn show(&self, args: &ShowArgs) -> Result<(), Failure> {
        let mut entries = self.entries(&args.owner).await?;
        let Some(path) = args.path else {
            let line = |entry: &MemoryEntry| {
                let MemoryEntry { tenant, agent, path, bytes, updated } = entry;
                format!("{} {agent} {path} {bytes} bytes {}\n", hex(tenant), stamp(*updated))
            };
            if entries.is_empty() {
                super::tell(&self.nothing("no memory", &args.owner));
            }
            return super::print(entries.iter().map(line).collect::<String>().as_bytes());
        };
        entries.retain(|entry| entry.path == path);
        match entries.as_slice() {
            [] => Err(Failure::Runtime(self.nothing(&format!("no {path}"), &args.owner))),
            [entry] if args.previous => super::print(self.previous(entry).await?.as_bytes()),
            [entry] => super::print(self.file(entry).await?.content.as_bytes()),
            _ => Err(Failure::Runtime(format!("several agents have a {path}: name one with --tenant and --agent"))),
        }
    }

    async fn export(&self, args: &ExportArgs) -> Result<(), Failure> {
        let entries = self.entries(&args.owner).await?;
        let Some(folder) = &args.to else {
            let mut all = Vec::new();
            for entry in &entries {
                let MemoryFile { path, content, merged, .. } = self.file(entry).await?;
                let (tenant, agent) = (hex(&entry.tenant), entry.agent.clone());
                all.push(Exported { tenant, agent, path: path.to_string(), merged, content });
            }
            let json = serde_json::to_string_pretty(&all).map_err(|e| failure(&e))?;
            return super::print(format!("{json}\n").as_bytes());
        };
        let owners = entries.iter().map(|entry| (entry.tenant, &entry.agent));
        only(
            owners,
            &self.nothing("no memory", &args.owner),
            "agents have a memory: name one with --tenant and --agent",
        )?;
        for entry in &entries {
            let path = folder.join(entry.path.to_string());
            let content = self.file(entry).await?.content;
            let mut folders = std::fs::DirBuilder::new();
            let there = folders.recursive(true).mode(0o700).create(path.parent().unwrap_or(folder));
            let mut file = std::fs::OpenOptions::new();
            let file = file.write(true).create(true).truncate(true).mode(0o600);
            let written = there.and_then(|()| file.open(&path)?.write_all(content.as_bytes()));
            written.map_err(|error| Failure::Runtime(format!("cannot write {}: {error}", path.display())))?;
        }
        Ok(())
    }

    /// All files are looked at before the first is written.
    async fn import(&self, args: &ImportArgs) -> Result<(), Failure> {
        let files = if args.from.is_dir() { self.of_folder(args).await? } else { of_json(args)? };
        for file in &files {
            let Incoming { tenant, agent, path, merged, content } = file;
            let there = self.store.memory_file(tenant, agent, *path).await.map_err(|e| failure(&e))?;
            let expected = there.map_or(0, |file| file.version);
            let rewrite = Rewrite { content: content.clone(), expected, merged: vec![(*path, *merged)] };
            let written = self.store.replace_memory(tenant, agent, *path, rewrite).await;
            written.map_err(|error| Failure::Runtime(format!("{path} of {agent}: {error}")))?;
        }
        super::print(format!("{} files\n", files.len()).as_bytes())
    }

    async fn of_folder(&self, args: &ImportArgs) -> Result<Vec<Incoming>, Failure> {
        let (tenant, agent) = self.owner(&args.owner).await?;
        let mut files = Vec::new();
        for name in names(&args.from).map_err(|error| unreadable(&args.from, &error))? {
            let path = args.from.join(&name);
            let content = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
            files.push(checked((tenant, agent.clone()), &name, &content, 0)?);
        }
        if files.is_empty() {
            return Err(Failure::Runtime(format!("{} holds no memory files", args.from.display())));
        }
        Ok(files)
    }

    /// Whose files those of a folder become.
    async fn owner(&self, owner: &Owner) -> Result<(Tenant, String), Failure> {
        let tenant = match owner.tenant {
            Some(tenant) => tenant,
            None => self.only_tenant(owner).await?,
        };
        if let Some(agent) = &owner.agent {
            return Ok((tenant, agent.clone()));
        }
        let there = self.entries(&Owner { tenant: Some(tenant), agent: None }).await?;
        let none = format!("tenant {} has no memory yet: name the agent with --agent", hex(&tenant));
        let agent = only(there.iter().map(|entry| &entry.agent), &none, "agents have a memory: name one with --agent")?;
        Ok((tenant, agent.clone()))
    }

    /// The only tenant that the agent has a memory with; where it has none, the only one with a memory; where nobody has
    /// one, the only one with a session.
    async fn only_tenant(&self, owner: &Owner) -> Result<Tenant, Failure> {
        if self.config.state.tenant == TenantRule::Single {
            return Ok(self.store.tenant(&[b"single"]));
        }
        let mut tenants = Vec::new();
        for owner in [owner, &Owner::default()] {
            if tenants.is_empty() {
                tenants = self.entries(owner).await?.iter().map(|entry| entry.tenant).collect();
            }
        }
        if tenants.is_empty() {
            tenants = self.store.all_sessions().await.map_err(|e| failure(&e))?.iter().map(|one| one.tenant).collect();
        }
        let none = format!("{} knows of no tenant yet: name one with --tenant", file(&self.config));
        only(tenants.into_iter(), &none, "tenants are there: name one with --tenant")
    }

    /// That something of an owner's is not there.
    fn nothing(&self, what: &str, owner: &Owner) -> String {
        let agent = owner.agent.as_ref().map(|agent| format!(" of agent {agent}"));
        let tenant = owner.tenant.as_ref().map(|tenant| format!(" of tenant {}", hex(tenant)));
        let whose: String = [agent, tenant].into_iter().flatten().collect();
        format!("there is {what}{whose} in {}", file(&self.config))
    }
}

/// What all are. `none` is said where there is nothing, and that several `what` where they differ.
fn only<T: PartialEq>(mut all: impl Iterator<Item = T>, none: &str, what: &str) -> Result<T, Failure> {
    let Some(first) = all.next() else { return Err(Failure::Runtime(none.to_owned())) };
    match all.all(|other| other == first) {
        true => Ok(first),
        false => Err(Failure::Runtime(format!("several {what}"))),
    }
}

/// Names of the memory files in a folder; what has another name is not looked at.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for below in ["", "memory/", "memory/archive/"] {
        let folder = folder.join(below);
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(folder)? {
            let name = format!("{below}{}", entry?.file_name().to_string_lossy());
            if name.parse::<MemoryPath>().is_ok() {
                names.push(name);
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn of_json(args: &ImportArgs) -> Result<Vec<Incoming>, Failure> {
    let bytes = std::fs::read(&args.from).map_err(|error| unreadable(&args.from, &error))?;
    let all: Vec<Exported> = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::Runtime(format!("{} is no export: {error}", args.from.display())))?;
    let file = |file: &Exported| {
        let named = tenant(&file.tenant).map_err(Failure::Runtime);
        let tenant = args.owner.tenant.map_or(named, Ok)?;
        let agent = args.owner.agent.clone().unwrap_or_else(|| file.agent.to_ascii_lowercase());
        checked((tenant, agent), &file.path, &file.content, file.merged)
    };
    all.iter().map(file).collect()
}

fn checked((tenant, agent): (Tenant, String), path: &str, content: &str, merged: usize) -> Result<Incoming, Failure> {
    let at = path.parse().map_err(|error| Failure::Runtime(format!("{path:?}: {error}")))?;
    let content = tidy(content);
    if content.len() > MAX_FILE_BYTES {
        return Err(Failure::Runtime(format!("{path} has more than {MAX_FILE_BYTES} bytes")));
    }
    let merged = if content.is_char_boundary(merged) { merged } else { 0 };
    Ok(Incoming { tenant, agent, path: at, merged, content })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Runtime(format!("cannot read {}: {error}", path.display()))
}
