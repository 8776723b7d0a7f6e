//! The store's own thread: a small runtime that holds the writer and the readers.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::log::{LogReader, Scribe};
use super::reader::Reader;
use super::secret::InstallationSecret;
use super::shared::Shared;
use super::sqlite::{OpenError, Probe};
use super::writer::Writer;
use super::{Limits, Store};

/// Questions to a reader that may wait; more count as unanswered.
const MAX_QUEUED_QUERIES: usize = 256;
/// Batches that may wait to be logged, whatever their size.
const MAX_QUEUED_BATCHES: usize = 1_024;

/// What a first opening that fails means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    OpenOrFail,
    OpenOrRetry,
    /// What is opened is only read.
    ReadOrFail,
}

/// Starts the thread and waits for the first opening.
pub(super) async fn start(path: Option<PathBuf>, limits: Limits, start: Start) -> Result<Arc<Store>, OpenError> {
    let secret = InstallationSecret::random().ok_or(OpenError::System)?;
    let shared = Shared::new(path, limits, secret);
    let shared = Arc::new(if start == Start::ReadOrFail { shared.rehearsing() } else { shared });
    let (jobs, jobs_in) = mpsc::channel(limits.max_queued_commits.max(1));
    let (notes, notes_in) = mpsc::channel(limits.max_queued_notes.max(1));
    let (lookups, lookups_in) = mpsc::channel(MAX_QUEUED_QUERIES);
    let (texts, texts_in) = mpsc::channel(MAX_QUEUED_QUERIES);
    let (log_in, given) = mpsc::channel(MAX_QUEUED_BATCHES);
    let (log_pages, pages_in) = mpsc::channel(MAX_QUEUED_QUERIES);
    let (log_stored, stored_in) = mpsc::channel(MAX_QUEUED_QUERIES);
    let (log_searches, searches_in) = mpsc::channel(MAX_QUEUED_QUERIES);
    let (written, to_write) = mpsc::channel(1);
    // Nobody waits for a search but who asked for it: it has a connection of its own, and so has the scribe.
    let log_reader = || LogReader(Reader::new(Arc::clone(&shared)));
    let log_readers = [(log_reader(), pages_in), (log_reader(), searches_in), (log_reader(), stored_in)];
    let scribe = Scribe { shared: Arc::clone(&shared), reader: log_stored, writer: written };
    let (opened, first) = oneshot::channel();
    let mut opened = Some(opened);
    let mut writer = Writer::new(Arc::clone(&shared), texts.downgrade());
    writer.first = opened.take_if(|_| start == Start::OpenOrRetry);
    let readers = [(Reader::new(Arc::clone(&shared)), lookups_in), (Reader::new(Arc::clone(&shared)), texts_in)];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|_| OpenError::System)?;
    // The future is made on the thread that runs it: it need not be able to move.
    let work = async move || {
        let result = writer.open(Probe::None).await;
        let opened = opened.or(writer.first.take());
        match result {
            Err(error) if start != Start::OpenOrRetry => {
                let _ = opened.map(|opened| opened.send(Err(error)));
                return;
            }
            Err(error) => writer.start_degraded(&error),
            Ok(()) => {}
        }
        let _ = opened.map(|opened| opened.send(Ok(())));
        for (reader, queries) in readers {
            // They end with the runtime, or when the store is gone.
            drop(tokio::spawn(reader.run(queries)));
        }
        for (reader, queries) in log_readers {
            drop(tokio::spawn(reader.run(queries)));
        }
        drop(tokio::spawn(scribe.run(given)));
        writer.run(jobs_in, notes_in, to_write).await;
    };
    let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || runtime.block_on(work()));
    thread.map_err(|_| OpenError::System)?;
    first.await.map_err(|_| OpenError::System)??;
    Ok(Arc::new(Store { shared, jobs, notes, lookups, texts, log_in, log_pages, log_searches }))
}
