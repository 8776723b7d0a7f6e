//! A bounded map that forgets what was not used for longest: of two generations the older one goes.

use std::collections::HashMap;
use std::hash::Hash;

/// Holds at most as many entries as it was made for; the last half as many that were used are all there.
pub struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    /// At most `most` entries (at least two).
    pub fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (most / 2).max(1) }
    }

    /// Whether there is an entry; being asked for is a use.
    pub fn contains(&mut self, key: K) -> bool {
        if self.young.contains_key(&key) {
            return true;
        }
        let Some(value) = self.old.remove(&key) else { return false };
        self.insert(key, value);
        true
    }

    /// Sets an entry.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// The entry, made anew where there is none.
    pub fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let old = self.old.remove(&key);
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).or_insert_with(|| old.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut recent = Recent::<u32, u32>::new(10);
        *recent.entry(0) = 7;
        for key in 1..1_000 {
            recent.insert(key, key);
            assert_eq!(*recent.entry(0), 7, "used all the time");
            assert!(recent.contains(key), "the last one");
            assert!(recent.young.len() + recent.old.len() <= 10);
        }
        assert!(!recent.contains(1));
        assert!((996..1_000).all(|key| recent.contains(key)));
    }
}
