//! What the proxy adds to conversations: tools that it offers, and what clients never saw of answers. Kept under
//! the chain digest of the client's own history; the first writer wins.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use sqlx::{QueryBuilder, Row as _, Sqlite};

use crate::wire::Digest;

use super::Tenant;
use super::cache::ByteCache;
use super::marks::{Completeness, Marks, mark};
use super::memory::Key;
use super::texts::unpack_row;

/// Most asides under one digest: answers to the same history, tried again and again. Beyond it those go that were not
/// in use for longest.
const MOST_VARIANTS: usize = 16;
/// Asides of which it is remembered that their use was noted.
const MOST_NOTED: usize = 4_096;
/// Bytes of a variant's name.
const VARIANT: usize = 8;
/// Digests in one query.
const DIGESTS_PER_QUERY: usize = 500;
/// Estimated bytes of an entry in memory beside its body.
const ENTRY_BYTES: usize = 128;

/// What is added to a conversation at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Of the client's history up to there.
    pub digest: Digest,
    pub kind: OverlayKind,
    /// JSON.
    pub body: Arc<str>,
    /// Fewest bytes of a body that has this history.
    pub least: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverlayKind {
    /// Tools offered from there on. One a digest: the first stays.
    Offer,
    /// What the client never saw of an answer that follows. Each answer has its own.
    Aside,
    /// Where the provider has an answer that the client knows by another id, under a digest of that. One a digest: the
    /// first stays.
    Alias,
    /// What memory said when the conversation began. One a digest: the first stays.
    Memory,
}

impl OverlayKind {
    fn code(self) -> i64 {
        match self {
            Self::Offer => 0,
            Self::Aside => 1,
            Self::Alias => 2,
            Self::Memory => 3,
        }
    }

    fn from_code(code: i64) -> Option<Self> {
        [Self::Offer, Self::Aside, Self::Alias, Self::Memory].into_iter().find(|kind| kind.code() == code)
    }
}

impl Overlay {
    /// Tells it from others of its kind under the same digest.
    pub(super) fn variant(&self) -> Vec<u8> {
        match self.kind {
            OverlayKind::Offer | OverlayKind::Alias | OverlayKind::Memory => Vec::new(),
            OverlayKind::Aside => {
                blake3::hash(self.body.as_bytes()).as_bytes().get(..VARIANT).unwrap_or_default().to_vec()
            }
        }
    }
}

/// What the store could say of the overlays under some digests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundOverlays {
    /// In the order in which they were written.
    pub rows: Vec<Overlay>,
    /// There may be more, which could not be read in time. Nothing new may be begun on what is here (L4).
    pub incomplete: bool,
}

/// By digest, in the order in which they were written.
pub(super) type Found = HashMap<Digest, Vec<Overlay>>;

/// What the process remembers of overlays, so that conversations without any cost nothing.
pub(super) struct Overlays {
    marks: Marks,
    rows: ByteCache<Key, Vec<Overlay>>,
    empty: bool,
    noted: HashSet<(Key, Vec<u8>)>,
}

impl Overlays {
    pub(super) fn new((marks, bytes): (usize, usize), complete: Completeness) -> Self {
        Self { marks: Marks::new(marks, complete), rows: ByteCache::new(bytes), empty: true, noted: HashSet::new() }
    }

    pub(super) fn add_mark(&mut self, mark: u64) {
        self.marks.insert(mark);
        self.empty = false;
    }

    pub(super) fn set(&mut self, complete: Completeness) {
        self.marks.set(complete);
        if complete == Completeness::Partial {
            // What was found absent may be there now.
            self.rows.retain(|_, overlays| !overlays.is_empty());
        }
    }

    /// Whether there may be any.
    pub(super) fn may_have(&self) -> bool {
        !self.empty || !self.marks.is_complete()
    }

    /// What is known under these digests, and of which the database must be asked.
    pub(super) fn find(&mut self, tenant: &Tenant, chain: &[Digest]) -> (Vec<Overlay>, Vec<Digest>) {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        if !self.may_have() {
            return (found, missing);
        }
        for digest in chain {
            if !self.marks.holds(mark(tenant, digest)) && self.marks.is_complete() {
                continue;
            }
            match self.rows.get(&(*tenant, *digest)) {
                Some(overlays) => found.extend(overlays.iter().cloned()),
                None => missing.push(*digest),
            }
        }
        (found, missing)
    }

    /// What the database has under these digests.
    pub(super) fn adopt(&mut self, tenant: &Tenant, digests: &[Digest], found: &Found) {
        for digest in digests {
            let overlays = found.get(digest).cloned().unwrap_or_default();
            if !overlays.is_empty() {
                self.add_mark(mark(tenant, digest));
            }
            self.keep(tenant, digest, overlays);
        }
    }

    /// What only this process has.
    pub(super) fn hold(&mut self, tenant: &Tenant, overlay: &Overlay) {
        self.add_mark(mark(tenant, &overlay.digest));
        let mut overlays = self.rows.get(&(*tenant, overlay.digest)).cloned().unwrap_or_default();
        let known = |other: &Overlay| other.kind == overlay.kind && other.variant() == overlay.variant();
        if !overlays.iter().any(known) {
            overlays.push(overlay.clone());
        }
        if overlays.len() > MOST_VARIANTS {
            overlays.remove(0);
        }
        self.keep(tenant, &overlay.digest, overlays);
    }

    /// Whether the use of an aside is to be noted: where there are several, and once in a process.
    pub(super) fn note_use(&mut self, tenant: &Tenant, overlay: &Overlay) -> bool {
        let place = (*tenant, overlay.digest);
        if self.rows.get(&place).is_none_or(|rows| rows.len() < 2) {
            return false;
        }
        if self.noted.len() >= MOST_NOTED {
            self.noted.clear();
        }
        self.noted.insert((place, overlay.variant()))
    }

    fn keep(&mut self, tenant: &Tenant, digest: &Digest, overlays: Vec<Overlay>) {
        let bytes = ENTRY_BYTES + overlays.iter().map(|overlay| overlay.body.len() + ENTRY_BYTES).sum::<usize>();
        self.rows.insert((*tenant, *digest), overlays, bytes);
    }
}

/// All overlays of a chain: those that were remembered, and those that the database had of the others. What was read may
/// be more than is remembered.
pub(super) fn together(chain: &[Digest], remembered: Vec<Overlay>, mut found: Found) -> Vec<Overlay> {
    for overlay in remembered {
        found.entry(overlay.digest).or_default().push(overlay);
    }
    chain.iter().filter_map(|digest| found.remove(digest)).flatten().collect()
}

/// The overlays under these digests.
pub(super) async fn read(db: &mut SqliteConnection, tenant: &Tenant, digests: &[Digest]) -> Result<Found, sqlx::Error> {
    let mut found = Found::new();
    for some in digests.chunks(DIGESTS_PER_QUERY) {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT digest, kind, body FROM overlays WHERE tenant = ");
        query.push_bind(tenant.0.to_vec()).push(" AND digest IN (");
        let mut list = query.separated(", ");
        for digest in some {
            list.push_bind(digest.to_vec());
        }
        query.push(") ORDER BY rowid");
        for row in query.build().persistent(false).fetch_all(&mut *db).await? {
            let digest: Option<Digest> = row.try_get::<&[u8], _>(0)?.try_into().ok();
            let (kind, body) = (OverlayKind::from_code(row.try_get(1)?), unpack_row::<String>(row.try_get(2)?));
            if let (Some(digest), Some(kind), Ok(body)) = (digest, kind, body) {
                found.entry(digest).or_default().push(Overlay { digest, kind, body: body.into(), least: 0 });
            }
        }
    }
    Ok(found)
}

/// Writes one that is not there yet. True: the row is new.
pub(super) async fn put(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    session: i64,
    (overlay, body): (&Overlay, &[u8]),
) -> Result<bool, sqlx::Error> {
    if overlay.kind == OverlayKind::Aside {
        make_room(&mut *db, tenant, overlay).await?;
    }
    let query = "INSERT OR IGNORE INTO overlays (tenant, digest, kind, variant, session, body, used) VALUES (?, ?, ?, ?, ?, ?, 0)";
    let query = sqlx::query(query).bind(tenant.0.as_slice()).bind(overlay.digest.as_slice());
    let query = query.bind(overlay.kind.code()).bind(overlay.variant()).bind(session).bind(body);
    Ok(query.execute(db).await?.rows_affected() > 0)
}

/// Lets go of asides beside `overlay`, those first that were not in use for longest.
async fn make_room(db: &mut SqliteConnection, tenant: &Tenant, overlay: &Overlay) -> Result<(), sqlx::Error> {
    let query = "DELETE FROM overlays WHERE rowid IN (SELECT rowid FROM overlays \
                 WHERE tenant = ? AND digest = ? AND kind = ? AND variant <> ? \
                 ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?)";
    let query = sqlx::query(query).bind(tenant.0.as_slice()).bind(overlay.digest.as_slice());
    let others = i64::try_from(MOST_VARIANTS - 1).unwrap_or(i64::MAX);
    let gone = query.bind(overlay.kind.code()).bind(overlay.variant()).bind(others).execute(db).await?;
    if gone.rows_affected() > 0 {
        tracing::info!(
            dropped = gone.rows_affected(),
            "hidden calls of an older answer to the same history are forgotten"
        );
    }
    Ok(())
}

/// Notes that an aside is in use.
pub(super) async fn put_use(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    (digest, variant): (&Digest, &[u8]),
    now: i64,
) -> Result<(), sqlx::Error> {
    let query = "UPDATE overlays SET used = max(used, ?) WHERE tenant = ? AND digest = ? AND kind = ? AND variant = ?";
    let query = sqlx::query(query).bind(now).bind(tenant.0.as_slice()).bind(digest.as_slice());
    query.bind(OverlayKind::Aside.code()).bind(variant).execute(db).await?;
    Ok(())
}

/// Takes back what [`put`] has written.
pub(super) async fn take_back(
    db: &mut SqliteConnection,
    tenant: &Tenant,
    overlay: &Overlay,
) -> Result<(), sqlx::Error> {
    let query = "DELETE FROM overlays WHERE tenant = ? AND digest = ? AND kind = ? AND variant = ?";
    let query = sqlx::query(query).bind(tenant.0.as_slice()).bind(overlay.digest.as_slice());
    query.bind(overlay.kind.code()).bind(overlay.variant()).execute(db).await?;
    Ok(())
}
