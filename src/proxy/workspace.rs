//! Removed texts as files, for agents that share a volume with the proxy.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use crate::compact::Removed;
use crate::store::COMMIT_BOUND;

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
