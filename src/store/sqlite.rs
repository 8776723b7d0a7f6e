//! The database file: how it is opened, recognised and diagnosed.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Decode, Row as _, Sqlite, Type};

use super::migrations::{migrate, newest};
use super::secret::InstallationSecret;

/// How long a statement waits for another process's lock; below the commit's bound.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Page cache of one connection, in KiB.
const PAGE_CACHE_KIB: u32 = 1_024;
/// The write-ahead log is cut back to this once it was copied.
const MAX_IDLE_WAL_BYTES: u32 = 4 << 20;
/// What must fit before a store that failed is taken for recovered.
const PROBE_BYTES: i64 = 64 << 10;
/// Only the owner may read what agents said.
const FILE_MODE: u32 = 0o600;

/// Why a state file cannot be used, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("state.url {0:?} is not usable: write sqlite://FILE, for example sqlite://compactproxy.db")]
    Url(String),
    #[error("the folder of the state file {0:?} does not exist: create it or change state.url")]
    NoFolder(PathBuf),
    #[error("cannot create or read the state file {path:?}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "the state file {path:?} was written by a newer compactproxy (schema version {version}): use that version, or another file"
    )]
    Newer { path: PathBuf, version: i64 },
    #[error(
        "the state file {path:?} was written by an older compactproxy (schema version {version}): serve with it once first"
    )]
    Older { path: PathBuf, version: i64 },
    #[error("the state file {path:?} cannot be used: {source}")]
    Database { path: PathBuf, source: sqlx::Error },
    #[error("the state file {path:?} cannot be brought to this version's schema: {source}")]
    Schema { path: PathBuf, source: MigrateError },
    #[error("the state file {0:?} did not open in time: is it on a slow disk or locked?")]
    Slow(PathBuf),
    #[error("the state file {0:?} is being brought to this version's schema, which takes a while")]
    Migrating(PathBuf),
    #[error("the operating system gave no random bytes or no thread")]
    System,
}

impl OpenError {
    /// Whether another process has the file to itself: nothing is wrong with it.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Database { source, .. } | Self::Schema { source: MigrateError::Execute(source), .. } => {
                is_busy(source)
            }
            _ => false,
        }
    }
}

/// Which file an open database is, and which its log, whatever their paths name later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Files {
    database: Identity,
    log: Option<Identity>,
}

impl Files {
    /// Whether both are one database, whatever became of its log.
    pub(super) fn is_same_database(self, other: Self) -> bool {
        self.database == other.database
    }

    /// Whether the database is the file with this number on this device.
    pub(super) fn is_database(self, device: u64, number: u64) -> bool {
        self.database == Identity(device, number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

/// Whether an opening must prove that there is room to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Probe {
    None,
    Room,
}

/// A database that is open, of whatever version.
pub(super) struct Connected {
    pub(super) db: SqliteConnection,
    found: Identity,
}

/// A database ready for writing.
pub(super) struct Opened {
    pub(super) db: SqliteConnection,
    pub(super) files: Files,
    pub(super) secret: InstallationSecret,
}

/// The path in `sqlite://PATH`.
pub(super) fn path_of(url: &str) -> Result<PathBuf, OpenError> {
    let path = url.strip_prefix("sqlite://").filter(|path| !path.is_empty() && !path.contains('?'));
    path.map(PathBuf::from).ok_or_else(|| OpenError::Url(url.to_owned()))
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| Identity(file.dev(), file.ino()))
}

/// What lies at a path now. While a database is open its log is there as well.
pub(super) fn files(path: &Path) -> Option<Files> {
    let [log, _] = logs(path);
    Some(Files { database: identity(path)?, log: identity(Path::new(&log)) })
}

fn gone(path: &Path) -> OpenError {
    OpenError::File { path: path.into(), source: io::ErrorKind::NotFound.into() }
}

/// Opens for writing, and creates the file (mode 0600). No other connection of this process may be open.
pub(super) async fn connect(path: &Path) -> Result<Connected, OpenError> {
    secure(path)?;
    let found = identity(path).ok_or_else(|| gone(path))?;
    let database = |source| OpenError::Database { path: path.into(), source };
    let options = options(path).pragma("wal_autocheckpoint", "0").thread_name(|_| "store-writer".to_owned());
    let db = options.connect().await.map_err(|source| unreadable(path).unwrap_or_else(|| database(source)))?;
    Ok(Connected { db, found })
}

/// Brings the schema up to date.
pub(super) async fn bring_up(path: &Path, db: &mut SqliteConnection) -> Result<(), OpenError> {
    migrate(db).await.map_err(|source| match source {
        MigrateError::VersionMissing(version) => OpenError::Newer { path: path.into(), version },
        source => OpenError::Schema { path: path.into(), source },
    })
}

/// Makes a database of this version's schema ready, and reads its secret, which is `secret` where it has none yet.
///
/// The file may be deleted or replaced meanwhile: what is open is then not what lies at its path, and that is an error.
pub(super) async fn make_ready(
    path: &Path,
    connected: Connected,
    secret: &InstallationSecret,
    probe: Probe,
) -> Result<Opened, OpenError> {
    let Connected { mut db, found } = connected;
    let database = |source| OpenError::Database { path: path.into(), source };
    if probe == Probe::Room {
        prove_room(&mut db).await.map_err(database)?;
    }
    let secret = read_secret(&mut db, secret).await.map_err(database)?;
    // The log's files take the mode of the database when they are made; older ones may not have it.
    restrict_logs(path);
    let files = files(path).filter(|files| files.database == found).ok_or_else(|| gone(path))?;
    Ok(Opened { db, files, secret })
}

/// Opens for reading alone what this version has written.
pub(super) async fn look_into(path: &Path) -> Result<Opened, OpenError> {
    let found = identity(path).ok_or_else(|| gone(path))?;
    let database = |source| OpenError::Database { path: path.into(), source };
    let options = options(path).pragma("query_only", "1").pragma("wal_autocheckpoint", "0");
    let mut db = options.thread_name(|_| "store-writer".to_owned()).connect().await.map_err(database)?;
    let version: i64 = scalar(&mut db, "SELECT max(version) FROM _sqlx_migrations").await.map_err(database)?;
    match version.cmp(&newest()) {
        Ordering::Less => return Err(OpenError::Older { path: path.into(), version }),
        Ordering::Greater => return Err(OpenError::Newer { path: path.into(), version }),
        Ordering::Equal => {}
    }
    let secret: Vec<u8> = scalar(&mut db, "SELECT value FROM meta WHERE key = 'secret'").await.map_err(database)?;
    let secret = InstallationSecret::from_bytes(&secret).ok_or(database(sqlx::Error::RowNotFound))?;
    let files = files(path).filter(|files| files.database == found).ok_or_else(|| gone(path))?;
    Ok(Opened { db, files, secret })
}

async fn scalar<T>(db: &mut SqliteConnection, query: &'static str) -> Result<T, sqlx::Error>
where
    T: for<'r> Decode<'r, Sqlite> + Type<Sqlite>,
{
    sqlx::query(query).fetch_one(db).await?.try_get(0)
}

/// Whether there is a file.
///
/// # Errors
/// Where it is not known, and where none can be.
pub(super) fn is_there(path: &Path) -> Result<bool, OpenError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => has_folder(path).map(|()| false),
        Err(source) => Err(OpenError::File { path: path.into(), source }),
    }
}

/// What the system says of a file that the database could not open.
fn unreadable(path: &Path) -> Option<OpenError> {
    let source = fs::OpenOptions::new().read(true).write(true).open(path).err()?;
    Some(OpenError::File { path: path.into(), source })
}

/// Opens a file that the writer has opened before.
pub(super) async fn open_reader(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    options(path).thread_name(|_| "store-reader".to_owned()).connect().await
}

/// Asks a connection in one transaction, so that all it reads is of one moment: between two statements the writer may
/// take away or replace what the first one found.
pub(super) async fn at_one_moment<T, E: From<sqlx::Error>>(
    db: &mut SqliteConnection,
    query: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, E>,
) -> Result<T, E> {
    let mut moment = db.begin().await?;
    let answer = query(&mut moment).await;
    match moment.rollback().await {
        Ok(()) => answer,
        Err(error) => answer.and(Err(error.into())),
    }
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{PAGE_CACHE_KIB}"))
        .pragma("journal_size_limit", MAX_IDLE_WAL_BYTES.to_string())
        .disable_statement_logging()
}

fn secure(path: &Path) -> Result<(), OpenError> {
    has_folder(path)?;
    let created = fs::OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    let secured = match created {
        Ok(_) => {
            remove_logs(path);
            Ok(())
        }
        // By name: were the file opened here, closing it would give up the locks that this process has on it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => restrict(path),
        Err(error) => Err(error),
    };
    secured.map_err(|source| OpenError::File { path: path.into(), source })
}

fn has_folder(path: &Path) -> Result<(), OpenError> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(OpenError::NoFolder(folder.into())),
        _ => Ok(()),
    }
}

fn restrict(path: &Path) -> io::Result<()> {
    let file = fs::metadata(path)?;
    if file.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if file.permissions().mode() & 0o777 == FILE_MODE {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(FILE_MODE))
}

/// Logs beside a file that is new are those of one that was deleted. Their frames and index would be taken for the new
/// file's.
fn remove_logs(path: &Path) {
    for log in logs(path) {
        if let Err(error) = fs::remove_file(&log)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, file = ?log, "the log of a deleted state file stays");
        }
    }
}

fn logs(path: &Path) -> [std::ffi::OsString; 2] {
    ["-wal", "-shm"].map(|suffix| {
        let mut log = path.as_os_str().to_owned();
        log.push(suffix);
        log
    })
}

fn restrict_logs(path: &Path) {
    for log in logs(path) {
        // They may not be there, and the folder may be somebody else's: the database itself is closed.
        if let Err(error) = restrict(Path::new(&log)) {
            tracing::debug!(%error, file = ?log, "mode not set");
        }
    }
}

async fn read_secret(db: &mut SqliteConnection, ours: &InstallationSecret) -> Result<InstallationSecret, sqlx::Error> {
    sqlx::query("INSERT OR IGNORE INTO meta (key, value) VALUES ('secret', ?)")
        .bind(ours.as_bytes())
        .execute(&mut *db)
        .await?;
    let row = sqlx::query("SELECT value FROM meta WHERE key = 'secret'").fetch_one(db).await?;
    InstallationSecret::from_bytes(row.try_get(0)?).ok_or(sqlx::Error::RowNotFound)
}

async fn prove_room(db: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("REPLACE INTO meta (key, value) VALUES ('probe', zeroblob(?))")
        .bind(PROBE_BYTES)
        .execute(&mut *db)
        .await?;
    sqlx::query("DELETE FROM meta WHERE key = 'probe'").execute(db).await?;
    Ok(())
}

/// Whether another process holds the lock: nothing is wrong with the file.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    // SQLITE_BUSY and SQLITE_LOCKED.
    matches!(code(error), Some(5 | 6))
}

/// Whether a query was broken off because its time was up (SQLITE_INTERRUPT).
pub(super) fn is_interrupted(error: &sqlx::Error) -> bool {
    code(error) == Some(9)
}

/// The database's code, without what an extended one says of the place.
fn code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}

/// Length of the write-ahead log in bytes.
pub(super) fn wal_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).map_or(0, |file| file.len())
}
