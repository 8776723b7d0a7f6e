//! Removed texts as files, for agents that share a volume with the proxy.

use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::compact::Removed;

/// Writes each text to `<folder>/<id>` (mode 0600, atomically); what exists is the same text already.
///
/// # Errors
/// The first file that cannot be written.
pub async fn write(folder: &str, texts: &[Removed]) -> io::Result<()> {
    let (folder, texts) = (folder.to_owned(), texts.to_vec());
    let written = tokio::task::spawn_blocking(move || {
        let folder = Path::new(&folder);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        texts.iter().try_for_each(|removed| write_one(folder, removed))
    });
    written.await.unwrap_or_else(|_| Err(io::Error::other("the writing thread failed")))
}

fn write_one(folder: &Path, removed: &Removed) -> io::Result<()> {
    let path = folder.join(removed.id.to_string());
    if path.exists() {
        return Ok(());
    }
    let unfinished = folder.join(format!(".{}.{:?}", removed.id, std::thread::current().id()));
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(removed.text.as_bytes())?;
    std::fs::rename(&unfinished, &path)
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
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
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
}
