//! The operator's commands, on what is there and what is not.

use std::process::Output;

use super::{Stand, body, user};
use crate::support::program::{configure, run};

fn command(stand: &Stand, args: &[&str]) -> Output {
    run(stand.folder.path(), args, b"")
}

/// Status, stdout and stderr.
fn said(stand: &Stand, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(stand, args);
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn what_is_not_found_is_said() {
    let stand = Stand::new("[sessions]\n").await;
    configure(stand.folder.path(), &stand.provider.base_url(), "[sessions]\n");
    let (status, out, told) = said(&stand, &["sessions", "list"]);
    assert!(status == Some(0) && out.is_empty() && told.starts_with("no sessions are logged in /"), "{told}");
    stand.say("k", &body(&[user("find getUserName")])).await;
    let id = stand.logged().await[0].0.id.to_string();

    let (_, out, told) = said(&stand, &["sessions", "search", "getUserName"]);
    assert!(out.starts_with(&id) && told.is_empty(), "{out}{told}");
    let unknown = "00112233445566778899aabbccddeeff";
    for (args, expected) in [
        (&["list", "--agent", "Nobody"][..], "no sessions of agent nobody are logged in /"),
        (&["search", "zzzz"], "nothing is found for \"zzzz\" in /"),
        (&["search", "zzzz", "--session", &id], &format!("nothing is found for \"zzzz\" in session {id}")),
    ] {
        let (status, out, told) = said(&stand, &[&["sessions"], args].concat());
        assert!(status == Some(0) && out.is_empty() && told.starts_with(expected), "{args:?}: {out}{told}");
    }
    for (args, expected) in [
        (&["search", "zzzz", "--session", unknown][..], format!("no session {unknown} is logged")),
        (&["show", unknown], format!("no session {unknown} is logged")),
        (&["show", &id, "--agent", "Nobody"], format!("session {id} has no messages of agent nobody")),
        (&["show", &id, "--branch", "0123456789abcdef"], "has no messages on a branch 0123456789abcdef".to_owned()),
        (&["show", &id, "--before", "1"], "has no messages before number 1".to_owned()),
    ] {
        let (status, out, told) = said(&stand, &[&["sessions"], args].concat());
        assert!(status == Some(1) && out.is_empty() && told.contains(&expected), "{args:?}: {out}{told}");
    }
    assert_eq!(said(&stand, &["sessions", "search", ""]).0, Some(2));
}

/// Where nobody has a memory yet, the log knows whose it can be.
#[tokio::test]
async fn the_only_tenant_of_the_log_gets_what_is_imported() {
    let stand = Stand::new("[sessions]\n").await;
    configure(stand.folder.path(), &stand.provider.base_url(), "[sessions]\n");
    let files = stand.folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("MEMORY.md"), "- tabs\n").unwrap();
    let import = ["memory", "import", "files", "--agent", "codex"];
    let (status, _, told) = said(&stand, &import);
    assert!(status == Some(1) && told.contains("knows of no tenant yet: name one with --tenant"), "{told}");

    stand.say("k", &body(&[user("hello")])).await;
    let tenant = stand.logged().await[0].0.tenant;
    assert_eq!(said(&stand, &import).1, "1 files\n");
    let entries = stand.store.memory_entries().await.unwrap();
    assert_eq!((entries[0].tenant, entries[0].agent.as_str()), (tenant, "codex"));

    // Who has a memory is meant, whoever is in the log besides.
    stand.say("another", &body(&[user("hello")])).await;
    assert_eq!(stand.logged().await.len(), 2);
    assert_eq!(said(&stand, &["memory", "import", "files", "--agent", "other"]).1, "1 files\n");
}
