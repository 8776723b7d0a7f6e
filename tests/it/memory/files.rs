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

#[tokio::test]
async fn whose_files_are_meant_is_said_or_clear() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), "http://127.0.0.1:1", "[memory]\n");
    let store = open(&url(&folder));
    let told = |args: &[&str]| {
        let output = run(folder.path(), args, b"");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, empty) = told(&["memory", "show"]);
    assert!(status == Some(0) && empty.starts_with("there is no memory in /"), "{empty}");

    let one = store.tenant(&[b"a"]);
    store.append_memory(&one, "codex", MemoryPath::Curated, "- tabs\n").await.unwrap();
    command(&folder, &["memory", "export", "--to", "out"]);
    // Names count as they are kept, and one tenant is as clear as one agent.
    assert_eq!(command(&folder, &["memory", "show", "MEMORY.md", "--agent", "Codex"]), "- tabs\n");
    assert_eq!(command(&folder, &["memory", "import", "out", "--agent", "Codex_CLI"]), "1 files\n");
    let there = store.memory_file(&one, "codex_cli", MemoryPath::Curated).await.unwrap();
    assert_eq!(there.unwrap().content, "- tabs\n");

    let day = ["memory", "show", "memory/2026-11-30.md", "--agent", "OpenAI"];
    let (status, none) = told(&day);
    assert!(status == Some(1) && none.contains("there is no memory/2026-11-30.md of agent openai in /"), "{none}");
    let (status, none) = told(&["memory", "export", "--to", "none", "--agent", "openai"]);
    assert!(status == Some(1) && none.contains("there is no memory of agent openai in /"), "{none}");
    let (status, several) = told(&["memory", "import", "out"]);
    assert!(status == Some(1) && several.contains("several agents have a memory: name one with --agent"), "{several}");

    let two = store.tenant(&[b"b"]);
    store.append_memory(&two, "only", MemoryPath::Curated, "- blanks\n").await.unwrap();
    assert_eq!(command(&folder, &["memory", "import", "out", "--agent", "only"]), "1 files\n");
    assert_eq!(store.memory_file(&two, "only", MemoryPath::Curated).await.unwrap().unwrap().content, "- tabs\n");
    let (status, several) = told(&["memory", "import", "out", "--agent", "third"]);
    assert!(status == Some(1) && several.contains("several tenants are there: name one with --tenant"), "{several}");
}
