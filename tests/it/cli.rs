//! The program as a process: exit statuses, and what goes to stdout and stderr.

#![expect(clippy::expect_used, reason = "what the tests share may fail a test as well")]

use std::path::Path;
use std::process::{Command, Output};

use crate::support::program::run;

/// Runs the program in `dir`, with this variable set for it.
fn compactproxy(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compactproxy"));
    command.current_dir(dir).args(args).env("CP_TEST_KEY", "hush-hush").env_remove("CP_TEST_UNSET");
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn check_prints_the_resolved_configuration_and_accepts_its_own_output() {
    let dir = tempfile::tempdir().expect("dir");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/proxy.toml");
    let first = compactproxy(dir.path(), &["check", "--config", file]);
    assert_eq!((first.status.code(), text(&first.stderr)), (Some(0), ""));
    assert!(text(&first.stdout).contains("\ntrigger_tokens = \"auto\"\n"));

    std::fs::write(dir.path().join("again.toml"), &first.stdout).expect("written");
    let second = compactproxy(dir.path(), &["--config", "again.toml", "check"]);
    assert_eq!(second.status.code(), Some(0));
    assert_eq!(text(&second.stdout), text(&first.stdout));
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1, "check creates no state");
}

#[test]
fn check_reads_the_environment_and_masks_secrets() {
    let dir = tempfile::tempdir().expect("dir");
    let upstream = "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\napi_key = \"${CP_TEST_KEY}\"\n";
    std::fs::write(dir.path().join("proxy.toml"), upstream).expect("written");
    let checked = compactproxy(dir.path(), &["check", "--config", "proxy.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("api_key = \"***\"") && !text(&checked.stdout).contains("hush"));
}

#[test]
fn all_problems_go_to_stderr_with_key_and_line_and_status_2() {
    let dir = tempfile::tempdir().expect("dir");
    let file = "[server]\nadmin_token = \"${CP_TEST_UNSET}\"\n[compaction]\nkeep_token = 5\ntrigger_tokens = 9\n\
                keep_tokens = 9\n";
    std::fs::write(dir.path().join("bad.toml"), file).expect("written");
    let expected = "bad.toml:2: server.admin_token: the environment variable CP_TEST_UNSET is not set\n\
                    bad.toml:4: compaction.keep_token: is not known; did you mean `keep_tokens`?\n\
                    bad.toml:6: compaction.keep_tokens: must be smaller than trigger_tokens (9 >= 9)\n";
    for args in [&["check", "--config", "bad.toml"][..], &["--config", "bad.toml"], &["demo", "--config", "bad.toml"]] {
        let refused = compactproxy(dir.path(), args);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""), "{args:?}");
        assert_eq!(text(&refused.stderr), expected, "{args:?}");
    }
}

#[test]
fn usage_errors_have_status_2_and_help_has_0() {
    let dir = tempfile::tempdir().expect("dir");
    for args in [&[][..], &["check"], &["compact"], &["evicted", "xyz"], &["nonsense"], &["--config", "gone.toml"]] {
        let refused = compactproxy(dir.path(), args);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""), "{args:?}");
        assert!(!refused.stderr.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["compact", "--help"], &["--version"]] {
        let answered = compactproxy(dir.path(), args);
        assert_eq!((answered.status.code(), text(&answered.stderr)), (Some(0), ""), "{args:?}");
        assert!(text(&answered.stdout).contains("compactproxy"), "{args:?}");
    }
}

#[test]
fn in_the_wrong_folder_a_command_that_looks_makes_no_state() {
    let dir = tempfile::tempdir().expect("dir");
    let id = "00112233445566778899aabbccddeeff";
    std::fs::create_dir(dir.path().join("files")).expect("made");
    std::fs::write(dir.path().join("files/MEMORY.md"), "- a fact\n").expect("written");
    let import = ["memory", "import", "files", "--tenant", id, "--agent", "a"];
    for args in [
        &["sessions", "list"][..],
        &["sessions", "search", "word"],
        &["sessions", "export", id],
        &["memory", "show"],
        &["memory", "export"],
        &import,
        &["evicted", id],
    ] {
        let refused = compactproxy(dir.path(), args);
        assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(1), ""), "{args:?}");
        let file = dir.path().canonicalize().expect("dir").join("compactproxy.db").display().to_string();
        assert!(text(&refused.stderr).contains(&format!("there is no state file {file}")), "{}", text(&refused.stderr));
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1, "{args:?}");
    }
}

#[test]
fn compact_says_why_a_body_comes_out_as_it_is() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("proxy.toml"), "[tool_result_eviction]\n").expect("written");
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let token = "--header=authorization: Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJpIiwic3ViIjoicyJ9.c2ln";
    for (more, body, why) in [
        (&[][..], &b"{\"messages\": ["[..], "it cannot be read"),
        (&[token], b"{\"messages\": [", "it cannot be read"),
        (&[], body, "nothing is due"),
        (&[token], body, "its token is proved only by"),
    ] {
        let args: Vec<&str> = ["compact", "--api", "chat"].iter().chain(more).copied().collect();
        let shown = run(dir.path(), &args, body);
        assert_eq!((shown.status.code(), shown.stdout.as_slice()), (Some(0), body), "{args:?}");
        let report: serde_json::Value = serde_json::from_slice(&shown.stderr).expect("a line of report");
        assert!(report["note"].as_str().is_some_and(|note| note.starts_with(why)), "{args:?}: {report}");
    }
}

#[test]
fn check_says_what_serving_would_refuse_of_the_environment() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("proxy.toml"), "").expect("file");
    let check = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compactproxy"));
        for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command.env(name, value).args(["check", "--config", "proxy.toml"]).current_dir(dir.path());
        command.output().expect("run")
    };
    let socks = check("HTTPS_PROXY", "socks5h://127.0.0.1:1");
    assert_eq!((socks.status.code(), text(&socks.stdout)), (Some(2), ""));
    assert!(text(&socks.stderr).contains("HTTPS_PROXY must be an http:// address"), "{}", text(&socks.stderr));
    for (name, value) in [("ALL_PROXY", "socks5h://127.0.0.1:1"), ("https_proxy", "http://127.0.0.1:1")] {
        assert_eq!(check(name, value).status.code(), Some(0), "{name}");
    }
}

#[test]
fn health_is_about_the_running_instance() {
    let dir = tempfile::tempdir().expect("dir");
    let held = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("socket");
    held.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("bound, not listening");
    let address = held.local_addr().expect("address").as_socket().expect("IPv4").to_string();
    let asked = compactproxy(dir.path(), &["health", "--admin", &address]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(text(&asked.stderr).contains(&address));
}
