//! Numbers learned from answers: calibration of token estimates, windows.
//! Read from memory, written behind; they expire.

use std::sync::LazyLock;

use blake3::Hasher;

use super::cache::ByteCache;
use super::notes::Note;
use super::shared::now;
use super::{Store, Tenant};
use crate::wire::Dialect;

/// What was learned counts for 30 days from the last time it was learned, in seconds.
pub(super) const EXPIRY_SECONDS: i64 = 30 * 24 * 3_600;
/// An unchanged number is written anew once a day, so that it does not expire in use.
const REFRESH_SECONDS: i64 = 24 * 3_600;
/// A calibration factor that moved by less is not written.
const FACTOR_STEP: f64 = 0.01;
/// Entries in memory; tenants choose model names, so there must be an end.
pub(super) const MAX_ENTRIES: usize = 16_384;

/// What a learned window belongs to.
#[derive(Clone, Copy, Debug)]
pub struct WindowKey<'a> {
    pub tenant: &'a Tenant,
    pub upstream: &'a str,
    /// The request's path, without the query.
    pub path: &'a str,
    pub model: &'a str,
    /// The beta headers' value, as the caller normalises it; empty if there are none.
    pub betas: &'a str,
}

/// What takes tools, or does not.
#[derive(Clone, Copy, Debug)]
pub struct ToolUseKey<'a> {
    pub tenant: &'a Tenant,
    pub upstream: &'a str,
    /// Of one model's APIs one may take tools, and another not.
    pub dialect: Dialect,
    pub model: &'a str,
}

/// A window as an upstream told it, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedWindow {
    pub input: Option<u64>,
    pub total: Option<u64>,
}

impl LearnedWindow {
    /// This window where another was told as well: of each kind the smaller number, and none that is larger than
    /// the smaller one of the other kind.
    pub fn narrowed(self, other: Self) -> Self {
        let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let (input, total) = (smaller(self.input, other.input), smaller(self.total, other.total));
        Self { input: input.filter(|input| total.is_none_or(|total| *input <= total)), total }
    }
}

/// Hash of what a number was learned for.
pub(super) type LearnedId = [u8; 16];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Value {
    /// The calibration.
    pub(super) factor: Option<f64>,
    pub(super) window: LearnedWindow,
    pub(super) tools: Option<ToolUse>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// Unix seconds.
    pub(super) learned_at: i64,
}

pub(super) struct Learned {
    entries: ByteCache<LearnedId, Entry>,
    /// Whether there may be one of a window: few upstreams ever tell one, and every request asks.
    windows: bool,
}

/// Whether a model takes tools, as its upstream's answers told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolUse {
    Taken,
    Refused,
}

impl Store {
    /// Whether a model takes tools, if that was learned. A refusal is forgotten with its [expiry](EXPIRY_SECONDS): servers
    /// learn, too.
    pub fn tool_use(&self, key: &ToolUseKey<'_>) -> Option<ToolUse> {
        self.shared.learned().get(&tool_use_id(key), now())?.tools
    }

    pub fn learn_tool_use(&self, key: &ToolUseKey<'_>, told: ToolUse) {
        if self.tool_use(key) != Some(told) {
            self.learn(tool_use_id(key), Value { tools: Some(told), ..Value::default() });
        }
    }

    /// The factor by which estimates for a model are off, if it was learned.
    pub fn calibration(&self, tenant: &Tenant, upstream: &str, model: &str) -> Option<f64> {
        self.shared.learned().get(&calibration_id(tenant, upstream, model), now())?.factor
    }

    pub fn learn_calibration(&self, tenant: &Tenant, upstream: &str, model: &str, factor: f64) {
        if factor.is_finite() {
            self.learn(calibration_id(tenant, upstream, model), Value { factor: Some(factor), ..Value::default() });
        }
    }

    /// The window that an upstream told, if it did.
    pub fn window(&self, key: &WindowKey<'_>) -> Option<LearnedWindow> {
        let mut learned = self.shared.learned();
        if !learned.windows {
            return None;
        }
        Some(learned.get(&window_id(key), now())?.window)
    }

    /// What `window` does not say is kept as it is known.
    pub fn learn_window(&self, key: &WindowKey<'_>, window: LearnedWindow) {
        let known = self.window(key).unwrap_or_default();
        let (input, total) = (window.input, window.total);
        // No input is larger than input and output together.
        let known_input = known.input.filter(|known| total.is_none_or(|total| *known <= total));
        let known_total = known.total.filter(|known| input.is_none_or(|input| input <= *known));
        let window = LearnedWindow { input: input.or(known_input), total: total.or(known_total) };
        self.learn(window_id(key), Value { window, ..Value::default() });
    }

    /// Puts `window` in the place of all that is known.
    pub fn replace_window(&self, key: &WindowKey<'_>, window: LearnedWindow) {
        self.learn(window_id(key), Value { window, ..Value::default() });
    }

    fn learn(&self, id: LearnedId, value: Value) {
        let entry = self.shared.learned().set(id, value, now());
        if let Some(entry) = entry {
            self.note(Note::Learned(id, entry));
        }
    }
}

/// Every request asks for a window: what is hashed before its key is hashed once.
static CALIBRATION: LazyLock<Hasher> = LazyLock::new(|| Hasher::new_derive_key("compactproxy 2025 calibration"));
static TOOL_USE: LazyLock<Hasher> = LazyLock::new(|| Hasher::new_derive_key("compactproxy 2026 tool use"));
static WINDOW: LazyLock<Hasher> = LazyLock::new(|| Hasher::new_derive_key("compactproxy 2025 window"));

pub(super) fn calibration_id(tenant: &Tenant, upstream: &str, model: &str) -> LearnedId {
    id(&CALIBRATION, tenant, &[upstream, model])
}

fn tool_use_id(key: &ToolUseKey<'_>) -> LearnedId {
    id(&TOOL_USE, key.tenant, &[key.upstream, key.dialect.path(), key.model])
}

pub(super) fn window_id(key: &WindowKey<'_>) -> LearnedId {
    id(&WINDOW, key.tenant, &[key.upstream, key.path, key.model, key.betas])
}

fn id(kind: &Hasher, tenant: &Tenant, parts: &[&str]) -> LearnedId {
    let mut named = Vec::with_capacity(128);
    named.extend_from_slice(&tenant.0);
    for part in parts {
        named.extend_from_slice(&(part.len() as u64).to_le_bytes());
        named.extend_from_slice(part.as_bytes());
    }
    let mut id = [0; 16];
    kind.clone().update(&named).finalize_xof().fill(&mut id);
    id
}

impl Learned {
    pub(super) fn new() -> Self {
        Self { entries: ByteCache::new(MAX_ENTRIES), windows: false }
    }

    pub(super) fn get(&mut self, id: &LearnedId, now: i64) -> Option<Value> {
        let entry = self.entries.get(id)?;
        (now - entry.learned_at < EXPIRY_SECONDS).then_some(entry.value)
    }

    /// Remembers a number. Gives the entry if it is worth writing.
    pub(super) fn set(&mut self, id: LearnedId, value: Value, now: i64) -> Option<Entry> {
        if let Some(old) = self.entries.get(&id)
            && close(&old.value, &value)
            && now - old.learned_at < REFRESH_SECONDS
        {
            return None;
        }
        let entry = Entry { value, learned_at: now };
        self.insert(id, entry);
        Some(entry)
    }

    /// An entry read from the database; what was learned since stays.
    pub(super) fn restore(&mut self, id: LearnedId, entry: Entry) {
        if !self.entries.contains(&id) {
            self.insert(id, entry);
        }
    }

    fn insert(&mut self, id: LearnedId, entry: Entry) {
        self.windows |= entry.value.factor.is_none() && entry.value.tools.is_none();
        self.entries.insert(id, entry, 1);
    }
}

fn close(old: &Value, new: &Value) -> bool {
    let factors = match (old.factor, new.factor) {
        (Some(old), Some(new)) => (old - new).abs() < FACTOR_STEP * old.abs(),
        (old, new) => old.is_none() && new.is_none(),
    };
    factors && old.window == new.window && old.tools == new.tools
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Value = Value { factor: Some(1.25), window: LearnedWindow { input: None, total: None }, tools: None };

    #[test]
    fn it_expires_after_thirty_days_without_news() {
        let mut learned = Learned::new();
        assert!(learned.set([1; 16], VALUE, 0).is_some());
        assert_eq!(learned.get(&[1; 16], EXPIRY_SECONDS - 1), Some(VALUE));
        assert_eq!(learned.get(&[1; 16], EXPIRY_SECONDS), None);
    }

    #[test]
    fn only_news_is_written() {
        let mut learned = Learned::new();
        learned.set([1; 16], VALUE, 0);
        assert!(learned.set([1; 16], Value { factor: Some(1.255), ..VALUE }, 1).is_none(), "within one percent");
        assert!(learned.set([1; 16], Value { factor: Some(1.27), ..VALUE }, 1).is_some());
        assert!(learned.set([1; 16], Value { factor: Some(1.27), ..VALUE }, 1 + REFRESH_SECONDS).is_some(), "daily");
    }

    #[test]
    fn the_smaller_limit_wins() {
        let window = |input, total| LearnedWindow { input, total };
        let listed = window(None, Some(131_072));
        assert_eq!(window(None, Some(7_866)).narrowed(listed), window(None, Some(7_866)));
        assert_eq!(window(Some(7_866), None).narrowed(listed), window(Some(7_866), Some(131_072)));
        assert_eq!(window(Some(7_866), None).narrowed(window(None, Some(4_096))), window(None, Some(4_096)));
        assert_eq!(window(None, Some(200_000)).narrowed(listed), listed);
        assert_eq!(LearnedWindow::default().narrowed(listed), listed);
    }

    #[test]
    fn entries_are_bounded() {
        let mut learned = Learned::new();
        for i in 0..=MAX_ENTRIES as u128 {
            learned.set(i.to_le_bytes(), VALUE, 0);
        }
        assert_eq!(learned.get(&0_u128.to_le_bytes(), 1), None);
        assert_eq!(learned.get(&1_u128.to_le_bytes(), 1), Some(VALUE));
    }

    #[tokio::test]
    async fn whether_a_model_takes_tools_is_known_of_that_model_alone() {
        let store = Store::in_memory_only(crate::store::Limits::default()).await.unwrap();
        let (a, b) = (Tenant([1; 16]), Tenant([2; 16]));
        let key = ToolUseKey { tenant: &a, upstream: "u", dialect: Dialect::Chat, model: "m" };
        store.learn_tool_use(&key, ToolUse::Refused);
        assert_eq!(store.tool_use(&key), Some(ToolUse::Refused));
        for other in [
            ToolUseKey { tenant: &b, ..key },
            ToolUseKey { upstream: "v", ..key },
            ToolUseKey { dialect: Dialect::Responses, ..key },
            ToolUseKey { model: "n", ..key },
        ] {
            assert_eq!(store.tool_use(&other), None, "{other:?}");
        }
        assert_eq!(store.calibration(&a, "u", "m"), None);
        store.learn_tool_use(&key, ToolUse::Taken);
        assert_eq!(store.tool_use(&key), Some(ToolUse::Taken));
    }

    #[test]
    fn ids_differ_by_tenant_kind_and_part_boundaries() {
        let (a, b) = (Tenant([1; 16]), Tenant([2; 16]));
        assert_ne!(calibration_id(&a, "u", "m"), calibration_id(&b, "u", "m"));
        assert_ne!(calibration_id(&a, "um", ""), calibration_id(&a, "u", "m"));
        let key = WindowKey { tenant: &a, upstream: "u", path: "p", model: "m", betas: "" };
        assert_ne!(window_id(&key), window_id(&WindowKey { betas: "b", ..key }));
    }
}
