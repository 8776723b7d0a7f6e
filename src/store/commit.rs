//! One batch, one transaction, and certainty about whether it counts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, QueryBuilder, Row as _};

use crate::compact::TextId;
use crate::wire::Digest;

use super::flushes::{self, Said};
use super::overlays::{self, Found, Overlay};
use super::row::{Row, State, level_code};
use super::texts::Packer;
use super::{Batch, Tenant, reads};

/// Settles between the writer and a caller with a time bound whether a batch counts. Whoever moves
/// first wins: a caller that gave up before the COMMIT is sure that nothing lands; one that gave up
/// during the COMMIT is sure that what landed is undone before any later job runs (if the process dies
/// in between, the rows stay and cost one cache break).
#[derive(Debug, Default)]
pub(super) struct Ticket(AtomicU8);

/// Texts that one statement writes.
const TEXTS_PER_STATEMENT: usize = 64;
/// Packed bytes of texts that one statement writes, unless one text alone has more.
const BYTES_PER_STATEMENT: usize = 1 << 20;
/// Packed bytes from which on a batch may miss its bound on a sound disk.
const LARGE: usize = 1 << 20;

const WAITING: u8 = 0;
const COMMITTING: u8 = 1;
const GIVEN_UP: u8 = 2;
const DONE: u8 = 3;

impl Ticket {
    /// The caller's time is up. False: the batch was committed before.
    pub(super) fn give_up(&self) -> bool {
        let change = |state| (state != DONE).then_some(GIVEN_UP);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.0.load(Ordering::Acquire) == GIVEN_UP
    }

    /// The writer is about to COMMIT. False: it must roll back.
    fn begin(&self) -> bool {
        self.step(WAITING, COMMITTING)
    }

    /// The COMMIT is through. False: it must be undone.
    fn finish(&self) -> bool {
        self.step(COMMITTING, DONE)
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// How a transaction ended that met no error.
pub(super) enum Applied {
    /// The rows under the batch's digests as they are now: the first writer's. With the number of
    /// this change.
    Committed(HashMap<Digest, Row>, Found, i64),
    GivenUp,
}

/// What it says of the store that a batch was not written in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Light,
    /// Nothing: there is much to write.
    Heavy,
}

/// A batch in its stored form.
pub(super) struct Packed {
    pub(super) root: Digest,
    texts: Vec<PackedText>,
    evictions: Vec<(Digest, Vec<u8>)>,
    checkpoint: Option<PackedCheckpoint>,
    overlays: Vec<(Overlay, Vec<u8>)>,
    said: Option<Arc<Said>>,
}

/// With its length before.
type PackedText = (TextId, usize, Vec<u8>);

struct PackedCheckpoint {
    digest: Digest,
    level: i64,
    state: State,
    body: Vec<u8>,
}

/// What a transaction changed, to take it back.
#[derive(Default)]
struct Undo {
    evictions: Vec<Digest>,
    /// The checkpoint's row before: state and body, or none.
    checkpoint: Option<Option<(i64, Vec<u8>)>>,
    overlays: Vec<Overlay>,
}

/// `None`: a value is over the store's limit.
pub(super) fn prepare(batch: &Batch) -> Option<Packed> {
    let mut packer = Packer::new()?;
    let texts = batch.texts.iter();
    let texts = texts.map(|removed| Some((removed.id, removed.text.len(), packer.pack(removed.text.as_bytes())?)));
    let texts = texts.collect::<Option<_>>()?;
    let evictions = batch.evictions.iter();
    let evictions = evictions.map(|(digest, eviction)| Some((*digest, packer.pack_row(eviction.as_ref())?)));
    let evictions = evictions.collect::<Option<_>>()?;
    let checkpoint = match &batch.checkpoint {
        None => None,
        Some((digest, checkpoint, stage)) => Some(PackedCheckpoint {
            digest: *digest,
            level: level_code(checkpoint.level),
            state: State::from(*stage),
            body: packer.pack_row(checkpoint.as_ref())?,
        }),
    };
    let overlays = batch.overlays.iter();
    let overlays = overlays.map(|overlay| Some((overlay.clone(), packer.pack_row(&&*overlay.body)?)));
    let overlays = overlays.collect::<Option<_>>()?;
    Some(Packed { root: batch.root, texts, evictions, checkpoint, overlays, said: batch.said.clone() })
}

impl Packed {
    pub(super) fn weight(&self) -> Weight {
        if self.bytes() >= LARGE { Weight::Heavy } else { Weight::Light }
    }

    /// The texts by statements: a statement costs more than a row, and between two of them the caller may give up.
    pub(super) fn statements(&self) -> impl Iterator<Item = &[PackedText]> {
        let mut bytes = 0;
        let together = move |one: &PackedText, next: &PackedText| {
            let before = if bytes == 0 { one.2.len() } else { bytes };
            let fits = before + next.2.len() <= BYTES_PER_STATEMENT;
            bytes = if fits { before + next.2.len() } else { 0 };
            fits
        };
        self.texts.chunk_by(together).flat_map(|some| some.chunks(TEXTS_PER_STATEMENT))
    }

    /// Bytes in memory: the stored values, their keys, and what was said.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.texts.iter().map(|(.., body)| body.len() + size_of::<PackedText>());
        let rows = self.evictions.iter().map(|(_, body)| body.len() + size_of::<(Digest, Vec<u8>)>());
        let overlays = self
            .overlays
            .iter()
            .map(|(overlay, body)| body.len() + overlay.body.len() + size_of::<(Overlay, Vec<u8>)>());
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.body.len());
        let said = self.said.iter().flat_map(|said| &said.messages);
        let said = said.map(|(_, text)| text.len() + size_of::<(Digest, String)>());
        size_of::<Self>() + texts.chain(rows).chain(overlays).chain(said).sum::<usize>() + checkpoint
    }

    /// A text's stored form, and its length in bytes.
    pub(super) fn text(&self, id: &TextId) -> Option<(Vec<u8>, usize)> {
        self.texts.iter().find(|(other, ..)| other == id).map(|(_, length, body)| (body.clone(), *length))
    }

    /// The digest of the checkpoint.
    pub(super) fn checkpoint(&self) -> Option<Digest> {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.digest)
    }

    fn digests(&self) -> Vec<Digest> {
        let checkpoint = self.checkpoint.iter().map(|checkpoint| checkpoint.digest);
        self.evictions.iter().map(|(digest, _)| *digest).chain(checkpoint).collect()
    }

    /// Digests with overlays.
    pub(super) fn overlaid(&self) -> Vec<Digest> {
        let digests: HashSet<Digest> = self.overlays.iter().map(|(overlay, _)| overlay.digest).collect();
        digests.into_iter().collect()
    }

    /// Fewest bytes of a body to which one of the overlays applies.
    pub(super) fn least_overlaid(&self) -> usize {
        self.overlays.iter().map(|(overlay, _)| overlay.least).min().unwrap_or(usize::MAX)
    }
}

/// Whose rows are written, and when.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) tenant: &'a Tenant,
    pub(super) root: &'a Digest,
    /// Unix seconds.
    pub(super) now: i64,
}

/// Writes a batch in one transaction.
pub(super) async fn apply(
    db: &mut SqliteConnection,
    owner: Owner<'_>,
    packed: &Packed,
    ticket: &Ticket,
) -> Result<Applied, sqlx::Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    let session = session(&mut transaction, owner).await?;
    for texts in packed.statements() {
        put_texts(&mut transaction, session, texts, owner.now).await?;
        if ticket.is_given_up() {
            transaction.rollback().await?;
            return Ok(Applied::GivenUp);
        }
    }
    let mut undo = Undo::default();
    for (digest, body) in &packed.evictions {
        if put_eviction(&mut transaction, (owner.tenant, digest), session, body).await? {
            undo.evictions.push(*digest);
        }
    }
    if let Some(checkpoint) = &packed.checkpoint {
        undo.checkpoint = put_checkpoint(&mut transaction, owner.tenant, session, checkpoint).await?;
    }
    for (overlay, body) in &packed.overlays {
        if overlays::put(&mut transaction, owner.tenant, session, (overlay, body)).await? {
            undo.overlays.push(overlay.clone());
        }
    }
    if let Some(said) = &packed.said {
        flushes::queue(&mut transaction, owner, session, said).await?;
    }
    let rows = reads::rows(&mut transaction, owner.tenant, &packed.digests()).await?;
    let found = overlays::read(&mut transaction, owner.tenant, &packed.overlaid()).await?;
    let least =
        rows.values().map(Row::least_bytes).chain(packed.overlays.iter().map(|(overlay, _)| overlay.least)).min();
    put_least_covered(&mut transaction, least).await?;
    let change = count_change(&mut transaction).await?;
    if !ticket.begin() {
        transaction.rollback().await?;
        return Ok(Applied::GivenUp);
    }
    transaction.commit().await?;
    if ticket.finish() {
        return Ok(Applied::Committed(rows, found, change));
    }
    take_back(db, owner.tenant, packed, undo).await?;
    Ok(Applied::GivenUp)
}

/// The session's number; it is in use now.
pub(super) async fn session(db: &mut SqliteConnection, owner: Owner<'_>) -> Result<i64, sqlx::Error> {
    let query = "INSERT INTO sessions (tenant, root, last_used) VALUES (?, ?, ?) \
                 ON CONFLICT (tenant, root) DO UPDATE SET last_used = max(last_used, excluded.last_used) RETURNING id";
    let query = sqlx::query(query).bind(owner.tenant.0.as_slice()).bind(owner.root.as_slice()).bind(owner.now);
    query.fetch_one(db).await?.try_get(0)
}

/// Numbers this transaction among all that added rows: a gap tells of another process.
pub(super) async fn count_change(db: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    let query = "UPDATE meta SET value = value + 1 WHERE key = 'changes' RETURNING value";
    sqlx::query(query).fetch_one(db).await?.try_get(0)
}

async fn put_texts(db: &mut SqliteConnection, session: i64, some: &[PackedText], now: i64) -> Result<(), sqlx::Error> {
    let mut texts = QueryBuilder::new("INSERT INTO texts (id, length, body, last_used) ");
    texts.push_values(some, |mut row, (id, length, body)| {
        let length = i64::try_from(*length).unwrap_or(i64::MAX);
        row.push_bind(id.0.as_slice()).push_bind(length).push_bind(body.as_slice()).push_bind(now);
    });
    texts.push(" ON CONFLICT (id) DO UPDATE SET last_used = max(last_used, excluded.last_used)");
    texts.build().persistent(false).execute(&mut *db).await?;
    let mut links = QueryBuilder::new("INSERT OR IGNORE INTO session_texts (session, text) ");
    links.push_values(some, |mut row, (id, ..)| {
        row.push_bind(session).push_bind(id.0.as_slice());
    });
    links.build().persistent(false).execute(&mut *db).await?;
    Ok(())
}

/// First writer wins; what is remembered as forwarded stays as it went. True: the row is new.
async fn put_eviction(
    db: &mut SqliteConnection,
    key: (&Tenant, &Digest),
    session: i64,
    body: &[u8],
) -> Result<bool, sqlx::Error> {
    let query = "INSERT OR IGNORE INTO evictions (tenant, digest, session, body) SELECT ?1, ?2, ?3, ?4 \
                 WHERE NOT EXISTS (SELECT 1 FROM forwarded WHERE tenant = ?1 AND digest = ?2)";
    let query = sqlx::query(query).bind(key.0.0.as_slice()).bind(key.1.as_slice()).bind(session).bind(body);
    Ok(query.execute(db).await?.rows_affected() > 0)
}

/// First writer wins within a level; an activation takes a prepared row's place. Gives the row as it
/// was before, if it changed.
async fn put_checkpoint(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    session: i64,
    new: &PackedCheckpoint,
) -> Result<Option<Option<(i64, Vec<u8>)>>, sqlx::Error> {
    let (tenant, digest) = (tenant.0.as_slice(), new.digest.as_slice());
    let before = sqlx::query("SELECT state, body FROM checkpoints WHERE tenant = ? AND digest = ? AND level = ?");
    let before = before.bind(tenant).bind(digest).bind(new.level).fetch_optional(&mut *db).await?;
    let before = match before {
        None => None,
        Some(row) => Some((row.try_get(0)?, row.try_get(1)?)),
    };
    let query = "INSERT INTO checkpoints (tenant, digest, level, session, state, body) VALUES (?, ?, ?, ?, ?, ?) \
                 ON CONFLICT (tenant, digest, level) DO UPDATE SET state = excluded.state, body = excluded.body \
                 WHERE checkpoints.state = 0 AND excluded.state = 1";
    let query = sqlx::query(query).bind(tenant).bind(digest).bind(new.level).bind(session);
    let changed = query.bind(new.state.code()).bind(new.body.as_slice()).execute(db).await?.rows_affected() > 0;
    Ok(changed.then_some(before))
}

/// Remembers of the rows how small a body they may apply to. It is not taken back: a smaller number is only careful.
async fn put_least_covered(db: &mut SqliteConnection, least: Option<usize>) -> Result<(), sqlx::Error> {
    let least = least.and_then(|bytes| i64::try_from(bytes).ok());
    let query = "UPDATE meta SET value = ?1 WHERE key = 'least_covered' AND value > ?1";
    sqlx::query(query).bind(least.unwrap_or(i64::MAX)).execute(db).await?;
    Ok(())
}

async fn take_back(db: &mut SqliteConnection, tenant: &Tenant, packed: &Packed, undo: Undo) -> Result<(), sqlx::Error> {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await?;
    for overlay in &undo.overlays {
        overlays::take_back(&mut transaction, tenant, overlay).await?;
    }
    let tenant = tenant.0.as_slice();
    for digest in &undo.evictions {
        let query = sqlx::query("DELETE FROM evictions WHERE tenant = ? AND digest = ?");
        query.bind(tenant).bind(digest.as_slice()).execute(&mut *transaction).await?;
    }
    if let (Some(new), Some(before)) = (&packed.checkpoint, undo.checkpoint) {
        // The key is bound first in both statements.
        let query = match &before {
            None => "DELETE FROM checkpoints WHERE tenant = ?1 AND digest = ?2 AND level = ?3",
            Some(_) => "UPDATE checkpoints SET state = ?4, body = ?5 WHERE tenant = ?1 AND digest = ?2 AND level = ?3",
        };
        let mut query = sqlx::query(query).bind(tenant).bind(new.digest.as_slice()).bind(new.level);
        if let Some((state, body)) = before {
            query = query.bind(state).bind(body);
        }
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}
