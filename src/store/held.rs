//! The state file's inode, kept in sight.

use std::path::Path;

use super::sqlite::Files;

/// A file that is referred to without being open: a process that closes a file which it has opened gives up all locks
/// that it has on it, those of its database connections too.
#[cfg(target_os = "linux")]
pub(super) struct Held(std::os::fd::OwnedFd);

/// Elsewhere a file cannot be held so: its path is looked at.
#[cfg(not(target_os = "linux"))]
pub(super) struct Held(std::path::PathBuf, Files);

#[cfg(target_os = "linux")]
impl Held {
    /// The database of `files`; `None` if another file lies at the path by now.
    pub(super) fn new(path: &Path, files: Files) -> Option<Self> {
        use rustix::fs::{Mode, OFlags, fstat, open};
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let found = fstat(&file).ok()?;
        files.is_database(found.st_dev, found.st_ino).then_some(Self(file))
    }

    /// Whether it was deleted, or another was moved to its place (one that was moved away or has other names is seen when
    /// housekeeping looks at the path). Asks no disk, however slow it is: what the kernel
    /// remembers counts.
    pub(super) fn is_gone(&self) -> bool {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        statx(&self.0, "", flags, StatxFlags::NLINK).is_ok_and(|file| file.stx_nlink == 0)
    }
}

#[cfg(not(target_os = "linux"))]
impl Held {
    pub(super) fn new(path: &Path, files: Files) -> Option<Self> {
        Some(Self(path.to_owned(), files))
    }

    pub(super) fn is_gone(&self) -> bool {
        !super::sqlite::files(&self.0).is_some_and(|there| there.is_same_database(self.1))
    }
}
