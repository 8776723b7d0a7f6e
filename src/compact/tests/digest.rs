use proptest::prelude::*;

use super::*;
use crate::compact::cuts::tests::histories;
use crate::compact::talk::{Talk, count};

fn whole(talk: &Talk, budget: usize) -> String {
    let conversation = talk.conversation();
    digest(&conversation, 0..conversation.items.len(), budget, &count)
}

fn session(turns: usize) -> Talk {
    (0..turns).fold(Talk::new(), |talk, turn| {
        talk.user(&format!("task {turn}"))
            .tool("1", "read_file", &format!(r#"{{"path":"src/f{turn}.rs"}}"#), "text")
            .tool("2", "apply_patch", &format!("*** Begin Patch\n*** Update File: src/p{turn}.rs\n@@"), "ok")
            .assistant("Changed it.")
    })
}

#[test]
fn tells_turns_artifacts_and_next_steps() {
    let talk = session(2).tool(
        "3",
        "update_plan",
        r#"{"plan":[{"step":"build","status":"completed"},{"step":"ship","status":"pending"}]}"#,
        "ok",
    );
    insta::assert_snapshot!(whole(&talk, 1000), @r#"
    ## SESSION INTENT
    See the user's own messages above; they say what is wanted.

    ## SUMMARY
    - the user wrote "task 0"; the assistant used read_file, apply_patch on src/f0.rs, src/p0.rs; the assistant wrote "Changed it.".
    - the user wrote "task 1"; the assistant used read_file, apply_patch, update_plan on src/f1.rs, src/p1.rs; the assistant wrote "Changed it.".

    ## ARTIFACTS
    - src/p1.rs (apply_patch)
    - src/f1.rs (read_file)
    - src/p0.rs (apply_patch)
    - src/f0.rs (read_file)

    ## NEXT STEPS
    What is open of the latest plan or todo list:
    - [pending] ship
    "#);
}

#[test]
fn a_finished_plan_is_said_to_be_finished() {
    let talk = session(1).tool("3", "update_plan", r#"{"plan":[{"step":"build","status":"completed"}]}"#, "ok");
    assert!(
        whole(&talk, 1000)
            .ends_with("All of the latest plan is done; go on with what the user's latest messages ask for.")
    );
}

#[test]
fn only_its_range_is_told() {
    let conversation = session(2).conversation();
    let text = digest(&conversation, 0..6, 1000, &count);
    assert!(text.contains("f0.rs") && !text.contains("f1.rs"));
}

#[test]
fn a_long_loop_gets_a_line_for_a_dozen_calls() {
    let talk = (0..60).fold(Talk::new().user("go"), |talk, _| talk.tool("1", "bash", r#"{"command":"ls"}"#, "x"));
    let text = whole(&talk, 2000);
    assert_eq!(text.matches("bash (12 times)").count(), 5, "{text}");
}

#[test]
fn a_line_names_a_bounded_number_of_tools() {
    let talk = (0..300).fold(Talk::new().user("go"), |talk, i| talk.tool("1", &format!("tool{i}"), "{}", "x"));
    let text = whole(&talk, 600);
    assert!(text.contains("tool23 and others.") && !text.contains("tool24,"), "{text}");
}

#[test]
fn smaller_budgets_give_smaller_digests() {
    let talk = session(100);
    let sizes: Vec<usize> = [200, 400, 800, 1600, 3200].iter().map(|&budget| count(&whole(&talk, budget))).collect();
    assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    assert!(sizes[0] <= 200 && sizes[4] <= 3200, "{sizes:?}");
    assert!(whole(&talk, 800).contains("Earlier turns, in short: the assistant used read_file ("));
}

#[test]
fn finds_paths_where_tools_put_them() {
    let of = |name: &str, arguments: &str| {
        paths(&Exchange { item: 0, slot: None, name: name.into(), arguments: arguments.into(), result: None })
    };
    assert_eq!(of("Edit", r#"{"file_path":"/a","old_string":"path: b"}"#), ["/a"]);
    assert_eq!(of("read_files", r#"{"files":[{"path":"a"},{"path":"b"}]}"#), ["a", "b"]);
    assert_eq!(of("read_many_files", r#"{"paths":["a","b","a"]}"#), ["a", "b"]);
    assert_eq!(
        of("apply_patch", r#"{"input":"*** Begin Patch\n*** Add File: x.rs\n+1\n*** Delete File: y.rs"}"#),
        ["x.rs", "y.rs"]
    );
    assert!(of("bash", "not json").is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn never_exceeds_its_budget(talk in histories(), budget in 120..2000_usize) {
        prop_assert!(count(&whole(&talk, budget)) <= budget + 8);
    }
}
