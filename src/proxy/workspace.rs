//! Removed texts as files, for agents that share a volume with the proxy.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use crate::compact::Removed;
use crate::memory::{MemoryFile, MemoryPath};
use crate::store::COMMIT_BOUND;

/// How long memory files may take: nobody waits for them.
const MIRROR_BOUND: Duration = Duration::from_secs(10);

/// Texts that are not all in the workspace.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("a file in the workspace cannot be written: {0}")]
    Failed(#[from] io::Error),
    #[error("the workspace does not take files within the bound of a commit")]
    Slow,
}

/// Writes each text to `<folder>/<id>` (mode 0600, atomically), within the bound of a commit; what exists is
/// the same text already.
///
/// # Errors
/// The first file that cannot be written, or not in time. What is written after that stays: it may be wanted
/// again.
pub async fn write(folder: &str, texts: &[Removed]) -> Result<(), WriteError> {
    let (folder, texts) = (folder.to_owned(), texts.to_vec());
    let writing = tokio::task::spawn_blocking(move || {
        let folder = Path::new(&folder);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        texts.iter().try_for_each(|removed| write_one(folder, removed))
    });
    let writing = async { writing.await.unwrap_or_else(|_| Err(io::Error::other("the writing thread failed"))) };
    within(COMMIT_BOUND, writing).await
}

/// Writes an agent's memory files to `<folder>/agents/<agent>/` (mode 0600, atomically), and removes those of days that
/// are there no more. A link in place of a folder is not followed.
///
/// # Errors
/// The first file that cannot be written, or not in time.
pub async fn mirror(folder: &str, agent: &str, files: Vec<MemoryFile>) -> Result<(), WriteError> {
    let (folder, agent) = (PathBuf::from(folder), agent.to_owned());
    let writing = tokio::task::spawn_blocking(move || mirror_all(&folder, &agent, &files));
    let writing = async { writing.await.unwrap_or_else(|_| Err(io::Error::other("the writing thread failed"))) };
    within(MIRROR_BOUND, writing).await
}

fn mirror_all(folder: &Path, agent: &str, files: &[MemoryFile]) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let agents = subfolder(folder, "agents")?;
    let own = subfolder(&agents, agent)?;
    let days = subfolder(&own, "memory")?;
    subfolder(&days, "archive")?;
    for file in files {
        let path = own.join(file.path.to_string());
        if std::fs::read(&path).is_ok_and(|there| there == file.content.as_bytes()) {
            continue;
        }
        // Nobody can have put anything under a name that does not exist yet.
        let unfinished = own.join(format!(".{}.{:?}", file.version, std::thread::current().id()));
        let _left_over = std::fs::remove_file(&unfinished);
        write_new(&unfinished, file.content.as_bytes()).and_then(|()| std::fs::rename(&unfinished, &path))?;
    }
    for entry in std::fs::read_dir(&days)? {
        let name = entry?.file_name();
        let named = name.to_str().and_then(|name| format!("memory/{name}").parse::<MemoryPath>().ok());
        if named.is_some_and(|path| files.iter().all(|file| file.path != path)) {
            std::fs::remove_file(days.join(name))?;
        }
    }
    Ok(())
}

/// A folder that is one, not a link to one.
fn subfolder(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = parent.join(name);
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match std::fs::symlink_metadata(&folder)?.is_dir() {
        true => Ok(folder),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

async fn within(bound: Duration, writing: impl Future<Output = io::Result<()>>) -> Result<(), WriteError> {
    Ok(timeout(bound, writing).await.map_err(|_| WriteError::Slow)??)
}

fn write_one(folder: &Path, removed: &Removed) -> io::Result<()> {
    let path = folder.join(removed.id.to_string());
    if path.is_file() {
        return Ok(());
    }
    let unfinished = folder.join(format!(".{}.{:?}", removed.id, std::thread::current().id()));
    let written = write_file(&unfinished, removed.text.as_bytes()).and_then(|()| std::fs::rename(&unfinished, &path));
    if written.is_err() {
        // Half a text is of no use, and its name is not found again.
        let _best_effort = std::fs::remove_file(&unfinished);
    }
    written
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::compact::TextKey;

    #[test]
    fn texts_are_written_once_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a/b");
        let removed = TextKey([1; 32]).removed("gone".to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for _ in 0..2 {
            runtime.block_on(write(folder.to_str().unwrap(), std::slice::from_ref(&removed))).unwrap();
        }
        let path = folder.join(removed.id.to_string());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "gone");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::write(dir.path().join("file"), "").unwrap();
        let blocked = dir.path().join("file/x");
        assert!(runtime.block_on(write(blocked.to_str().unwrap(), &[removed])).is_err());
    }

    #[tokio::test]
    async fn memory_files_are_mirrored_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, elsewhere) = (dir.path().join("tenant"), dir.path().join("elsewhere"));
        let file = |path: &str, content: &str| MemoryFile {
            path: path.parse().unwrap(),
            content: content.to_owned(),
            version: 1,
            merged: 0,
            updated: 0,
        };
        let files = vec![file("MEMORY.md", "- one"), file("memory/2026-08-01.md", "- two")];
        mirror(folder.to_str().unwrap(), "codex", files).await.unwrap();
        let own = folder.join("agents/codex");
        assert_eq!(std::fs::metadata(own.join("MEMORY.md")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(own.join("memory/2026-08-01.md")).unwrap(), "- two");
        let files = vec![file("MEMORY.md", "- new"), file("memory/archive/2026-08-01.md", "- two")];
        mirror(folder.to_str().unwrap(), "codex", files.clone()).await.unwrap();
        assert_eq!(std::fs::read_to_string(own.join("MEMORY.md")).unwrap(), "- new");
        assert!(!own.join("memory/2026-08-01.md").exists() && own.join("memory/archive/2026-08-01.md").exists());
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 2, "nothing unfinished");

        std::fs::create_dir(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.join("agents/other")).unwrap();
        assert!(mirror(folder.to_str().unwrap(), "other", files).await.is_err());
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_failure_leaves_no_file_behind_and_takes_no_longer_than_a_commit() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_str().unwrap();
        let removed = TextKey([1; 32]).removed("gone".to_owned());
        std::fs::create_dir(dir.path().join(removed.id.to_string())).unwrap();
        let failed = write(folder, std::slice::from_ref(&removed)).await;
        assert!(matches!(failed, Err(WriteError::Failed(_))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "only what was in the way");
        let late = within(Duration::ZERO, std::future::pending()).await;
        assert!(matches!(late, Err(WriteError::Slow)));
    }
}
