//! Memory files: whose they are, what replaces what, and their limits.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::memory::{Day, MemoryPath};

fn path(text: &str) -> MemoryPath {
    text.parse().unwrap()
}

const DAY: &str = "memory/2026-11-30.md";

async fn read(f: &Fixture, agent: &str, text: &str) -> Option<String> {
    f.store.memory_file(&f.tenant, agent, path(text)).await.unwrap().map(|file| file.content)
}

#[tokio::test]
async fn a_file_grows_and_survives_a_restart() {
    let f = Fixture::new().await;
    assert_eq!(f.store.append_memory(&f.tenant, "codex", path(DAY), "one\n").await, Ok(1));
    assert_eq!(f.store.append_memory(&f.tenant, "codex", path(DAY), "two\n").await, Ok(2));
    f.store.close().await;
    let store = f.another().await;
    let files = store.memory_files(&f.tenant, "codex").await.unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].content.as_str(), files[0].version, files[0].merged), ("one\ntwo\n", 2, 0));
    let entries = store.memory_entries().await.unwrap();
    assert_eq!((entries[0].tenant, entries[0].agent.as_str(), entries[0].bytes), (f.tenant, "codex", 8));
}

#[tokio::test]
async fn a_replacement_expects_what_it_read_and_keeps_what_was() {
    let f = Fixture::new().await;
    f.store.append_memory(&f.tenant, "a", path(DAY), "- one\n").await.unwrap();
    let replace = |content: &'static str, expected| {
        let rewrite = Rewrite { content: content.to_owned(), expected, merged: vec![(path(DAY), 6)] };
        f.store.replace_memory(&f.tenant, "a", path("MEMORY.md"), rewrite)
    };
    assert_eq!(replace("x", 1).await, Err(MemoryError::Stale), "there is none yet");
    assert_eq!(f.store.memory_file(&f.tenant, "a", path(DAY)).await.unwrap().unwrap().merged, 0);
    assert_eq!(replace("first", 0).await, Ok(1));
    // An append in between is not overwritten, and not taken for merged.
    f.store.append_memory(&f.tenant, "a", path("MEMORY.md"), ", by hand").await.unwrap();
    f.store.append_memory(&f.tenant, "a", path(DAY), "- two\n").await.unwrap();
    assert_eq!(replace("second", 1).await, Err(MemoryError::Stale));
    assert_eq!(read(&f, "a", "MEMORY.md").await.as_deref(), Some("first, by hand"));
    assert_eq!(replace("second", 2).await, Ok(3));
    let day = f.store.memory_file(&f.tenant, "a", path(DAY)).await.unwrap().unwrap();
    assert_eq!((day.merged, day.content.len()), (6, 12));
    let previous = async |agent, file| f.store.previous_memory(&f.tenant, agent, path(file)).await.unwrap();
    assert_eq!(previous("a", "MEMORY.md").await.as_deref(), Some("first, by hand"));
    assert_eq!(previous("b", "MEMORY.md").await, None);
    f.store.append_memory(&f.tenant, "b", path("MEMORY.md"), "new").await.unwrap();
    assert_eq!(previous("b", "MEMORY.md").await, None);
}

#[tokio::test]
async fn room_and_sizes_are_known_without_reading() {
    let f = Fixture::new().await;
    let room = async |agent, file| f.store.memory_room(&f.tenant, agent, path(file)).await.unwrap();
    assert_eq!(room("a", DAY).await, MAX_FILE_BYTES);
    f.store.append_memory(&f.tenant, "a", path(DAY), "12345").await.unwrap();
    f.store.append_memory(&f.tenant, "a", path("MEMORY.md"), "123").await.unwrap();
    f.store.append_memory(&f.tenant, "b", path(DAY), "1").await.unwrap();
    assert_eq!((room("a", DAY).await, room("a", "MEMORY.md").await), (MAX_FILE_BYTES - 5, MAX_FILE_BYTES - 3));
    let sizes = f.store.memory_sizes(&f.tenant, "a").await.unwrap();
    assert_eq!(sizes, [(path("MEMORY.md"), 3), (path(DAY), 5)]);
    // What there is room for is taken, and not a byte more.
    let rest = "x".repeat(MAX_FILE_BYTES - 5);
    assert_eq!(
        f.store.append_memory(&f.tenant, "a", path(DAY), &(rest.clone() + "x")).await,
        Err(MemoryError::FileFull)
    );
    assert_eq!(f.store.append_memory(&f.tenant, "a", path(DAY), &rest).await, Ok(2));
    assert_eq!(room("a", DAY).await, 0);
    let full = "x".repeat(MAX_FILE_BYTES);
    for agent in 1..MAX_TENANT_BYTES / MAX_FILE_BYTES - 1 {
        f.store.append_memory(&f.tenant, &agent.to_string(), path(DAY), &full).await.unwrap();
    }
    let left = MAX_FILE_BYTES - 4;
    assert_eq!((room("c", DAY).await, room("b", DAY).await), (left, left));
    assert_eq!(
        f.store.append_memory(&f.tenant, "c", path(DAY), full.get(..left + 1).unwrap()).await,
        Err(MemoryError::TenantFull)
    );
    assert_eq!(f.store.append_memory(&f.tenant, "c", path(DAY), full.get(..left).unwrap()).await, Ok(1));
    assert_eq!((room("a", "MEMORY.md").await, room("d", DAY).await), (0, 0));
}

#[tokio::test]
async fn earlier_days_go_to_the_archive() {
    let f = Fixture::new().await;
    for file in ["MEMORY.md", "memory/2026-08-31.md", "memory/2026-09-01.md", DAY] {
        f.store.append_memory(&f.tenant, "a", path(file), file).await.unwrap();
    }
    f.store.append_memory(&f.tenant, "b", path("memory/2026-08-31.md"), "another agent's").await.unwrap();
    let before: Day = "2026-09-01".parse().unwrap();
    assert_eq!(f.store.archive_memory(&f.tenant, "a", before).await, Ok(1));
    assert_eq!(f.store.archive_memory(&f.tenant, "a", before).await, Ok(0));
    let names: Vec<String> =
        f.store.memory_files(&f.tenant, "a").await.unwrap().iter().map(|file| file.path.to_string()).collect();
    assert_eq!(names, ["MEMORY.md", "memory/2026-09-01.md", DAY, "memory/archive/2026-08-31.md"]);
    assert_eq!(read(&f, "a", "memory/archive/2026-08-31.md").await.as_deref(), Some("memory/2026-08-31.md"));
    assert!(read(&f, "b", "memory/2026-08-31.md").await.is_some());
}

#[tokio::test]
async fn files_tenants_and_names_are_bounded() {
    let f = Fixture::new().await;
    let full = "x".repeat(MAX_FILE_BYTES);
    f.store.append_memory(&f.tenant, "a", path(DAY), &full).await.unwrap();
    assert_eq!(f.store.append_memory(&f.tenant, "a", path(DAY), "x").await, Err(MemoryError::FileFull));
    for agent in 1..MAX_TENANT_BYTES / MAX_FILE_BYTES {
        f.store.append_memory(&f.tenant, &agent.to_string(), path(DAY), &full).await.unwrap();
    }
    assert_eq!(f.store.append_memory(&f.tenant, "b", path(DAY), "x").await, Err(MemoryError::TenantFull));
    let other = f.store.tenant(&[b"other"]);
    assert_eq!(f.store.append_memory(&other, "b", path(DAY), "x").await, Ok(1));
    assert_eq!(f.store.append_memory(&other, "", path(DAY), "x").await, Err(MemoryError::Agent));
    assert_eq!(f.store.append_memory(&other, &"é".repeat(65), path(DAY), "x").await, Err(MemoryError::Agent));
}

#[tokio::test]
async fn without_a_file_nothing_is_kept_and_nothing_is_claimed() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let tenant = store.tenant(&[b"a"]);
    assert_eq!(store.append_memory(&tenant, "a", path(DAY), "x").await, Err(MemoryError::Unavailable));
    assert_eq!(store.memory_files(&tenant, "a").await, Err(ReadError::Unavailable));
}

#[tokio::test]
async fn memory_outlives_its_sessions() {
    let f = Fixture::new().await;
    f.commit(evicting(&chain("a", 2), "x")).await.unwrap();
    f.store.append_memory(&f.tenant, "a", path(DAY), "kept").await.unwrap();
    f.store.sweep_at(i64::MAX / 2).await;
    assert_eq!(read(&f, "a", DAY).await.as_deref(), Some("kept"));
}

#[derive(Debug, Clone)]
enum Step {
    Append(String),
    Replace(String),
    Archive,
}

#[test]
fn agents_and_tenants_have_what_each_wrote() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let f = runtime.block_on(Fixture::new());
    let case = std::cell::Cell::new(0_u32);
    // Names that meet in a careless comparison.
    let agent = prop::sample::select(vec!["a", "A", "a/../b", "a%", "_", "' OR 1=1 --", "b"]);
    let file = prop::sample::select(vec!["MEMORY.md", DAY, "memory/2026-01-01.md"]);
    let step =
        prop_oneof!["[a-c部]{1,4}".prop_map(Step::Append), "[a-c部]{0,4}".prop_map(Step::Replace), Just(Step::Archive)];
    let steps = prop::collection::vec((any::<bool>(), agent, file, step), 1..14);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(40));
    let result = runner.run(&steps, |steps| {
        case.set(case.get() + 1);
        let name = case.get().to_le_bytes();
        let tenants = [f.store.tenant(&[b"a", &name]), f.store.tenant(&[b"b", &name])];
        let mut model: BTreeMap<(bool, &str), BTreeMap<MemoryPath, String>> = BTreeMap::new();
        runtime.block_on(async {
            for (second, agent, file, step) in &steps {
                let (tenant, file) = (tenants[usize::from(*second)], path(file));
                let files = model.entry((*second, agent)).or_default();
                match step {
                    Step::Append(text) => {
                        f.store.append_memory(&tenant, agent, file, text).await.unwrap();
                        files.entry(file).or_default().push_str(text);
                    }
                    Step::Replace(text) => {
                        let there = f.store.memory_file(&tenant, agent, file).await.unwrap();
                        prop_assert_eq!(there.as_ref().map(|file| &file.content), files.get(&file));
                        let version = there.map_or(0, |file| file.version);
                        let rewrite = Rewrite { content: text.clone(), expected: version, merged: Vec::new() };
                        f.store.replace_memory(&tenant, agent, file, rewrite).await.unwrap();
                        files.insert(file, text.clone());
                    }
                    Step::Archive => {
                        let before: Day = "2026-06-01".parse().unwrap();
                        f.store.archive_memory(&tenant, agent, before).await.unwrap();
                        for (day, text) in before_of(files, before) {
                            if files.get(&MemoryPath::Archived(day)).is_none() {
                                files.remove(&MemoryPath::Day(day));
                                files.insert(MemoryPath::Archived(day), text);
                            }
                        }
                    }
                }
            }
            for second in [false, true] {
                for agent in ["a", "A", "a/../b", "a%", "_", "' OR 1=1 --", "b", "c"] {
                    let there = f.store.memory_files(&tenants[usize::from(second)], agent).await.unwrap();
                    let there: BTreeMap<_, _> = there.into_iter().map(|file| (file.path, file.content)).collect();
                    prop_assert_eq!(there, model.get(&(second, agent)).cloned().unwrap_or_default());
                }
            }
            Ok(())
        })
    });
    result.unwrap();
}

fn before_of(files: &BTreeMap<MemoryPath, String>, before: Day) -> Vec<(Day, String)> {
    let old = files.iter().filter_map(|(path, text)| match path {
        MemoryPath::Day(day) if *day < before => Some((*day, text.clone())),
        _ => None,
    });
    old.collect()
}
