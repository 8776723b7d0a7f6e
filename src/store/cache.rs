//! A map with a byte cap: what was not asked for since the hand last passed goes first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A byte-capped map (second chance: cheap reads, no order kept). An entry larger than the whole cap
/// is not kept at all.
pub(super) struct ByteCache<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The hand's way. Holds each key at least once; keys that are gone are skipped.
    queue: VecDeque<K>,
    bytes: usize,
    cap: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    asked: bool,
}

impl<K: Hash + Eq + Clone, V> ByteCache<K, V> {
    pub(super) fn new(cap: usize) -> Self {
        Self { entries: HashMap::new(), queue: VecDeque::new(), bytes: 0, cap }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let entry = self.entries.get_mut(key)?;
        entry.asked = true;
        Some(&mut entry.value)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// Sets `key` to `value`, which costs `bytes`, and drops others down to the cap.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: usize) {
        if let Some(old) = self.entries.get_mut(&key) {
            self.bytes = self.bytes + bytes - old.bytes;
            *old = Entry { value, bytes, asked: false };
            self.shrink(0);
        } else if bytes <= self.cap {
            // Room is made first: else the newest would go in place of all that were asked for.
            self.shrink(bytes);
            self.bytes += bytes;
            self.queue.push_back(key.clone());
            self.entries.insert(key, Entry { value, bytes, asked: false });
        }
    }

    /// Changes the value of `key` (made first if there is none); `change` says what it costs then.
    pub(super) fn update(&mut self, key: K, make: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> usize) {
        if !self.entries.contains_key(&key) {
            self.insert(key.clone(), make(), 0);
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            let bytes = change(&mut entry.value);
            self.bytes = self.bytes + bytes - entry.bytes;
            entry.bytes = bytes;
        }
        self.shrink(0);
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.entries.retain(|key, entry| keep(key, &entry.value));
        self.queue.retain(|key| self.entries.contains_key(key));
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }

    fn shrink(&mut self, room: usize) {
        while self.bytes + room > self.cap {
            let Some(key) = self.queue.pop_front() else { return };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            // An entry that alone is over the cap would send the hand round for ever.
            if entry.asked && entry.bytes <= self.cap {
                entry.asked = false;
                self.queue.push_back(key);
                continue;
            }
            self.bytes -= entry.bytes;
            self.entries.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_holds_to_the_byte() {
        let mut cache = ByteCache::new(10);
        cache.insert('a', 1, 5);
        cache.insert('b', 2, 5);
        assert!(cache.contains(&'a') && cache.contains(&'b'), "exactly the cap fits");
        cache.insert('c', 3, 1);
        assert!(!cache.contains(&'a') && cache.contains(&'b') && cache.contains(&'c'), "one byte more does not");
        cache.insert('d', 4, 11);
        assert!(!cache.contains(&'d'), "larger than the cap");
        assert!(cache.contains(&'b'), "and takes no place from others");
        cache.insert('e', 5, 10);
        assert!(cache.contains(&'e') && cache.entries.len() == 1);
    }

    #[test]
    fn what_is_asked_for_stays_longer() {
        let mut cache = ByteCache::new(3);
        for key in ['a', 'b', 'c'] {
            cache.insert(key, (), 1);
        }
        assert!(cache.get(&'a').is_some());
        cache.insert('d', (), 1);
        assert!(cache.contains(&'a') && !cache.contains(&'b'));
    }

    #[test]
    fn replacing_changing_and_dropping_keep_the_sum() {
        let mut cache = ByteCache::new(10);
        cache.insert('a', 1, 4);
        cache.insert('a', 2, 6);
        assert_eq!((cache.bytes, cache.queue.len()), (6, 1));
        cache.update('b', || 7, |value| *value - 3);
        assert_eq!((cache.bytes, cache.queue.len()), (10, 2));
        cache.update('b', || 0, |value| *value - 2);
        assert!(!cache.contains(&'a') && cache.bytes == 5, "growth is held to the cap as well");
        cache.insert('c', 1, 4);
        cache.retain(|key, _| *key == 'c');
        assert_eq!((cache.bytes, cache.queue.len()), (4, 1));
    }
}
