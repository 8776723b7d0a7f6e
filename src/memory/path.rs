//! Names of memory files. Nothing else can be named.

use std::fmt;
use std::str::FromStr;

use super::day::Day;

const CURATED: &str = "MEMORY.md";
const DAYS: &str = "memory/";
const ARCHIVE: &str = "memory/archive/";
const ENDING: &str = ".md";

/// A memory file's path: `MEMORY.md`, `memory/YYYY-MM-DD.md` or `memory/archive/YYYY-MM-DD.md`. There is one
/// spelling of each, so that no other name leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryPath {
    /// What is kept in mind, rewritten from time to time.
    Curated,
    /// What was noted on a day; only appended to.
    Day(Day),
    /// The same, of a day long past.
    Archived(Day),
}

/// Not the path of a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory file can have this path: it is MEMORY.md, memory/YYYY-MM-DD.md or memory/archive/YYYY-MM-DD.md")]
pub struct NoMemoryPath;

impl MemoryPath {
    /// The day of a file that has one.
    pub fn day(self) -> Option<Day> {
        match self {
            Self::Curated => None,
            Self::Day(day) | Self::Archived(day) => Some(day),
        }
    }
}

impl fmt::Display for MemoryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Curated => f.write_str(CURATED),
            Self::Day(day) => write!(f, "{DAYS}{day}{ENDING}"),
            Self::Archived(day) => write!(f, "{ARCHIVE}{day}{ENDING}"),
        }
    }
}

impl FromStr for MemoryPath {
    type Err = NoMemoryPath;

    fn from_str(text: &str) -> Result<Self, NoMemoryPath> {
        let day = |text: &str| text.strip_suffix(ENDING)?.parse().ok();
        if text == CURATED {
            return Ok(Self::Curated);
        }
        let archived = text.strip_prefix(ARCHIVE).and_then(day).map(Self::Archived);
        let path = archived.or_else(|| text.strip_prefix(DAYS).and_then(day).map(Self::Day));
        path.ok_or(NoMemoryPath)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: [&str; 3] = ["MEMORY.md", "memory/2026-11-30.md", "memory/archive/2026-02-28.md"];

    #[test]
    fn the_three_forms_are_paths() {
        for text in GOOD {
            assert_eq!(text.parse::<MemoryPath>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn hostile_paths_are_none() {
        for text in [
            "",
            ".",
            "/",
            "memory.md",
            "Memory.md",
            "MEMORY.MD",
            "MEMORY.md ",
            " MEMORY.md",
            "MEMORY.md\0",
            "MEMORY.md\n",
            "./MEMORY.md",
            "/MEMORY.md",
            "MEMORY.md/",
            "../MEMORY.md",
            "memory/../MEMORY.md",
            "memory/../../etc/passwd",
            "memory/2026-11-30.md/../../x",
            "memory//2026-11-30.md",
            "memory\\2026-11-30.md",
            "memory/./2026-11-30.md",
            "memory/archive/../2026-11-30.md",
            "memory/archive/archive/2026-11-30.md",
            "MEMORY/2026-11-30.md",
            "memory/2026-11-30.MD",
            "memory/2026-11-30",
            "memory/2026-11-31.md",
            "memory/2026-11-30.md\0.md",
            "memory/%2e%2e/2026-11-30.md",
            "memory/2026-11-30.md%00",
            "memory∕2026-11-30.md",
            "memory／2026-11-30.md",
            "ＭＥＭＯＲＹ.md",
            "MEМORY.md",
            "memory/２０２６-11-30.md",
            "memory/2026\u{2010}11\u{2010}30.md",
            "memory/2026-11-30\u{200b}.md",
            "\u{202e}MEMORY.md",
            "C:\\MEMORY.md",
            "file://MEMORY.md",
        ] {
            assert_eq!(text.parse::<MemoryPath>(), Err(NoMemoryPath), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_path_has_one_spelling(start in prop::sample::select(GOOD.to_vec()), at in 0_usize..28, with in any::<char>()) {
            let mut changed: Vec<char> = start.chars().collect();
            changed.insert(at.min(changed.len()), with);
            let inserted: String = changed.iter().collect();
            changed.remove(at.min(changed.len() - 1));
            if let Some(place) = changed.get_mut(at) {
                *place = with;
            }
            let replaced: String = changed.into_iter().collect();
            for text in [inserted, replaced] {
                if let Ok(path) = text.parse::<MemoryPath>() {
                    prop_assert_eq!(path.to_string(), text);
                }
            }
        }

        #[test]
        fn no_path_leads_anywhere_else(text in r"(memory|MEMORY|\.\.|/|\\|archive|\.md|2026-11-30|\x00|[ -~]){0,6}") {
            if let Ok(path) = text.parse::<MemoryPath>() {
                prop_assert_eq!(path.to_string(), text.clone());
                prop_assert!(!text.contains("..") && !text.starts_with('/') && text.is_ascii());
            }
        }
    }
}
