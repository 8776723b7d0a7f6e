//! Memory's files and their commands.

use compactproxy::memory::MemoryPath;
use tempfile::TempDir;

use super::url;
use crate::support::program::{configure, run};
use crate::support::proxy::open;

/// What a command prints, and that it succeeds.
fn command(folder: &TempDir, args: &[&str]) -> String {
    let output = run(folder.path(), args, b"");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn files_are_shown_exported_and_imported() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "http://127.0.0.1:1", "[memory]\n");
    let store = open(&url(&folder));
    let (tenant, day) = (store.tenant(&[b"a"]), "memory/2026-11-30.md".parse().unwrap());
    store.append_memory(&tenant, "codex", MemoryPath::Curated, "- tabs\n").await.unwrap();
    store.append_memory(&tenant, "codex", day, "- one\n").await.unwrap();
    let listed = command(&folder, &["memory", "show"]);
    assert!(listed.contains(" codex MEMORY.md 7 bytes 20") && listed.lines().count() == 2, "{listed}");
    assert_eq!(command(&folder, &["memory", "show", "MEMORY.md"]), "- tabs\n");
    let json = command(&folder, &["memory", "export"]);
    command(&folder, &["memory", "export", "--to", "out"]);
    assert_eq!(std::fs::read_to_string(folder.path().join("out/memory/2026-11-30.md")).unwrap(), "- one\n");

    // A folder becomes another agent's memory, JSON goes back to where it was.
    std::fs::write(folder.path().join("out/notes.md"), "not a memory file").unwrap();
    let id = listed.split(' ').next().unwrap();
    assert_eq!(command(&folder, &["memory", "import", "out", "--tenant", id, "--agent", "other"]), "2 files\n");
    assert_eq!(command(&folder, &["memory", "show", "--agent", "other", "MEMORY.md"]), "- tabs\n");
    store.append_memory(&tenant, "codex", day, "- two\n").await.unwrap();
    std::fs::write(folder.path().join("all.json"), &json).unwrap();
    assert_eq!(command(&folder, &["memory", "import", "all.json"]), "2 files\n");
    assert_eq!(store.memory_file(&tenant, "codex", day).await.unwrap().unwrap().content, "- one\n");
    let previous = ["memory", "show", "--agent", "codex", "memory/2026-11-30.md", "--previous"];
    assert_eq!(command(&folder, &previous), "- one\n- two\n");
    let other = ["memory", "show", "--agent", "other", "MEMORY.md", "--previous"];
    assert_eq!(run(folder.path(), &other, b"").status.code(), Some(1), "it is as it was made");

    for (name, content) in [
        ("path.json", json.replace("memory/2026-11-30.md", "../2026-11-30.md")),
        ("long.json", json.replace("- tabs", &"x".repeat(300_000))),
        ("other.json", "{}".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
        let refused = run(folder.path(), &["memory", "import", name], b"");
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{name}");
    }
    assert_eq!(run(folder.path(), &["memory", "show", "MEMORY.md"], b"").status.code(), Some(1), "two agents have one");
    assert_eq!(command(&folder, &["memory", "show", "--agent", "codex", "MEMORY.md"]), "- tabs\n");
}
