//! A byte-capped cache of two generations: what was not used since the last change of generations
//! goes at the next one.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::conversation::Dialect;

/// Who may share what is remembered: a tenant's salt, and the wire API the bytes were read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Space {
    pub salt: [u8; 16],
    pub dialect: Dialect,
}

/// A hash of bytes within a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub space: Space,
    pub hash: u128,
}

/// What an entry costs beside the weight of its value: key, weight and the table's own room.
const ENTRY_BYTES: usize = 128;

/// A map from [`Key`] to `V` of bounded weight, shared by threads.
#[derive(Debug)]
pub(super) struct Generations<V> {
    shards: Vec<Mutex<Shard<V>>>,
}

#[derive(Debug)]
struct Shard<V> {
    young: HashMap<Key, (V, usize)>,
    old: HashMap<Key, (V, usize)>,
    /// Weight of `young`; that of `old` was below the same cap when it was young.
    weight: usize,
    cap: usize,
}

impl<V: Clone> Generations<V> {
    /// At most `max_bytes` of weight, over `shards` locks. An entry of more than half a shard's share is
    /// not kept.
    pub fn new(max_bytes: usize, shards: usize) -> Self {
        let shards = shards.max(1);
        let cap = max_bytes / shards / 2;
        Self { shards: (0..shards).map(|_| Mutex::new(Shard::new(cap))).collect() }
    }

    pub fn get(&self, key: &Key) -> Option<V> {
        let mut shard = self.shard(key)?;
        if let Some((value, _)) = shard.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = shard.old.remove(key)?;
        shard.insert(*key, value.clone(), weight);
        Some(value)
    }

    /// Keeps `value`, of `weight` bytes, in place of an earlier one.
    pub fn insert(&self, key: Key, value: V, weight: usize) {
        if let Some(mut shard) = self.shard(&key) {
            shard.insert(key, value, weight + ENTRY_BYTES);
        }
    }

    /// Replaces the value under `key`, or its absence, by what `change` makes of it: value and weight.
    pub fn update(&self, key: Key, change: impl FnOnce(Option<V>) -> (V, usize)) {
        let Some(mut shard) = self.shard(&key) else { return };
        let Shard { young, old, .. } = &*shard;
        let (value, weight) = change(young.get(&key).or_else(|| old.get(&key)).map(|(value, _)| value.clone()));
        shard.insert(key, value, weight + ENTRY_BYTES);
    }

    fn shard(&self, key: &Key) -> Option<MutexGuard<'_, Shard<V>>> {
        // The remainder is below the number of shards, which is a usize.
        let index = (key.hash % self.shards.len() as u128) as usize;
        // A panic elsewhere leaves at worst a wrong weight behind.
        self.shards.get(index).map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<V> Shard<V> {
    fn new(cap: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), weight: 0, cap }
    }

    fn insert(&mut self, key: Key, value: V, weight: usize) {
        self.old.remove(&key);
        if let Some((_, before)) = self.young.remove(&key) {
            self.weight -= before;
        }
        if weight > self.cap {
            return;
        }
        if self.weight + weight > self.cap {
            self.old = mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, (value, weight));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash: u128) -> Key {
        Key { space: Space { salt: [0; 16], dialect: Dialect::Chat }, hash }
    }

    /// The weight of everything that is held.
    fn held(cache: &Generations<u32>) -> usize {
        let shards = cache.shards.iter().map(|shard| shard.lock().unwrap());
        shards.map(|s| s.young.values().chain(s.old.values()).map(|(_, weight)| weight).sum::<usize>()).sum()
    }

    #[test]
    fn what_is_used_stays_and_the_cap_holds() {
        let cap = 20 * (100 + ENTRY_BYTES);
        let cache = Generations::new(cap, 1);
        cache.insert(key(0), 7, 100);
        for n in 1..200 {
            cache.insert(key(n), 1, 100);
            assert_eq!(cache.get(&key(0)), Some(7));
            assert!(held(&cache) <= cap);
        }
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.get(&key(199)), Some(1));
    }

    #[test]
    fn an_entry_of_half_the_cap_fits_and_one_more_byte_does_not() {
        let cache = Generations::new(2 * (100 + ENTRY_BYTES), 1);
        cache.insert(key(1), 1, 100);
        cache.insert(key(2), 2, 101);
        assert_eq!((cache.get(&key(1)), cache.get(&key(2))), (Some(1), None));
    }

    #[test]
    fn a_key_is_found_in_its_own_space_only() {
        let cache = Generations::new(1 << 20, 4);
        cache.insert(key(1), 1, 0);
        let other_tenant = Key { space: Space { salt: [1; 16], dialect: Dialect::Chat }, hash: 1 };
        let other_api = Key { space: Space { salt: [0; 16], dialect: Dialect::Messages }, hash: 1 };
        assert_eq!((cache.get(&other_tenant), cache.get(&other_api)), (None, None));
    }

    #[test]
    fn update_sees_what_was_there() {
        let cache = Generations::new(1 << 20, 4);
        cache.update(key(1), |before| (before.map_or(1, |n| n + 1), 0));
        cache.update(key(1), |before| (before.map_or(1, |n| n + 1), 0));
        assert_eq!(cache.get(&key(1)), Some(2));
    }
}
