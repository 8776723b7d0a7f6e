use super::*;
use crate::compact::talk::Talk;

const KEY: TextKey = TextKey([7; 32]);

/// The texts of the pins of one kind, everything being cut off.
fn of(talk: &Talk, kind: PinKind) -> Vec<String> {
    let conversation = talk.conversation();
    let pins = pins(&conversation, 20_000, &KEY);
    pins.pins.into_iter().filter(|pin| pin.kind == kind).map(|pin| pin.text).collect()
}

fn go() -> Talk {
    Talk::new().user("go")
}

#[test]
fn the_latest_list_of_every_todo_tool_is_pinned() {
    let families = [
        ("todo_write", r#"{"todos":[{"content":"ship","status":"in_progress","id":"1"}]}"#),
        ("TodoWrite", r#"{"todos":[{"content":"ship","status":"in_progress","activeForm":"Shipping"}]}"#),
        ("todowrite", r#"{"todos":[{"content":"ship","status":"in_progress","priority":"high"}]}"#),
        ("write_todos", r#"{"todos":[{"description":"ship","status":"in_progress"}]}"#),
        ("update_plan", r#"{"plan":[{"step":"ship","status":"in_progress"}]}"#),
        ("task_tracker", r#"{"command":"plan","task_list":[{"title":"ship","status":"in_progress"}]}"#),
        ("mcp__seed__todo_write", r#"{"todos":[{"content":"ship","status":"in_progress"}]}"#),
    ];
    for (tool, arguments) in families {
        let old = arguments.replace("ship", "old");
        let talk = go().tool("1", tool, &old, "ok").tool("2", tool, arguments, "ok").tool(
            "3",
            "task_tracker",
            r#"{"command":"view"}"#,
            "x",
        );
        assert_eq!(of(&talk, PinKind::Todo), ["- [in_progress] ship"], "{tool}");
        assert!(pinned_items(&talk.conversation()).contains(&(3, 0)), "{tool}");
        assert!(!pinned_items(&talk.conversation()).contains(&(1, 0)), "{tool}");
    }
}

#[test]
fn explanations_strings_and_empty_lists_are_states() {
    let plan = r#"{"explanation":"why","plan":[{"step":"a","status":"pending"}]}"#;
    assert_eq!(of(&go().tool("1", "update_plan", plan, "ok"), PinKind::Todo), ["why\n- [pending] a"]);
    let text = r#"{"todos":"- [x] a\n- [ ] b"}"#;
    assert_eq!(of(&go().tool("1", "update_todo_list", text, "ok"), PinKind::Todo), ["- [x] a\n- [ ] b"]);
    let empty = go().tool("1", "update_plan", plan, "ok").tool("2", "update_plan", r#"{"plan":[]}"#, "ok");
    assert_eq!(of(&empty, PinKind::Todo), ["(the list is empty)"]);
}

#[test]
fn creations_and_updates_fold_to_the_current_list() {
    let talk = go()
        .tool("1", "TaskCreate", r#"{"subject":"one","description":"d"}"#, "Task #1 created successfully: one")
        .tool("2", "TaskCreate", r#"{"subject":"two"}"#, "Task #2 created successfully: two")
        .tool("3", "TaskCreate", r#"{"subject":"three"}"#, "Task #3 created successfully: three")
        .tool("4", "TaskUpdate", r#"{"taskId":"1","status":"completed"}"#, "Updated task #1")
        .tool("5", "TaskUpdate", r#"{"taskId":"3","status":"deleted"}"#, "ok")
        .tool("6", "TaskUpdate", r#"{"taskId":"2","status":"in_progress","subject":"two again"}"#, "ok");
    assert_eq!(of(&talk, PinKind::Todo), ["- #1 [completed] one\n- #2 [in_progress] two again"]);
}

#[test]
fn plan_mode_is_known_with_its_plan() {
    let on = go().tool("1", "EnterPlanMode", "{}", "Entered plan mode.");
    assert_eq!(of(&on, PinKind::PlanMode), ["Plan mode is on."]);
    let plan = r##"{"plan":"# Plan\n1. do"}"##;
    let left = on.clone().tool(
        "2",
        "ExitPlanMode",
        plan,
        "User has approved your plan. Your plan has been saved to: /p/plan.md",
    );
    let text = of(&left, PinKind::PlanMode).remove(0);
    assert!(
        text.starts_with("Plan mode is off")
            && text.contains("# Plan\n1. do")
            && text.contains("Plan file: /p/plan.md"),
        "{text}"
    );
    let refused = on.tool("2", "exit_plan_mode", plan, "The user doesn't want to proceed with this tool use.");
    assert!(of(&refused, PinKind::PlanMode)[0].starts_with("Plan mode is on; the user refused"));
    let cline = go().tool("1", "plan_mode_respond", r#"{"response":"first a, then b"}"#, "ok");
    assert!(of(&cline, PinKind::PlanMode)[0].contains("first a, then b"));
    assert!(pinned_items(&cline.conversation()).contains(&(1, 0)));
}

#[test]
fn what_runs_in_the_background_is_pinned_until_it_ends() {
    let bash = go().tool(
        "1",
        "Bash",
        r#"{"command":"npm run dev","run_in_background":true}"#,
        "Command running in background with ID: bash_1",
    );
    assert!(of(&bash, PinKind::Background)[0].starts_with("- id bash_1 (Bash: npm run dev)"));
    let polled = bash.clone().tool(
        "2",
        "BashOutput",
        r#"{"bash_id":"bash_1"}"#,
        "<status>running</status>\n<stdout>\ntests failed\nready on 3000\n</stdout>",
    );
    assert!(of(&polled, PinKind::Background)[0].contains("last seen"));
    let ended = bash.clone().tool(
        "2",
        "BashOutput",
        r#"{"bash_id":"bash_1"}"#,
        "<status>completed</status>\n<exit_code>0</exit_code>",
    );
    assert!(of(&ended, PinKind::Background).is_empty());
    let killed = bash.tool("2", "KillShell", r#"{"shell_id":"bash_1"}"#, "Successfully killed shell: bash_1");
    assert!(of(&killed, PinKind::Background).is_empty());
}

#[test]
fn a_codex_session_runs_until_it_exits() {
    let started = go().tool(
        "1",
        "exec_command",
        r#"{"cmd":"cargo watch"}"#,
        "Chunk ID: a1\nWall time: 1 s\nProcess running with session ID 4711\nOutput:\nprocess exited with code 1?",
    );
    assert!(of(&started, PinKind::Background)[0].starts_with("- id 4711 (exec_command: cargo watch)"));
    let ended = started.tool(
        "2",
        "write_stdin",
        r#"{"session_id":4711,"chars":""}"#,
        "Wall time: 2 s\nProcess exited with code 0\nOutput:\n",
    );
    assert!(of(&ended, PinKind::Background).is_empty());
    let plain = go().tool(
        "1",
        "exec_command",
        r#"{"cmd":"ls"}"#,
        "Process exited with code 0\nOutput:\nProcess running with session ID 9",
    );
    assert!(of(&plain, PinKind::Background).is_empty());
    let listing = go().tool("1", "bash", r#"{"command":"loginctl"}"#, "session id: c1 running\nsession id: c2 running");
    assert!(of(&listing, PinKind::Background).is_empty());
}

#[test]
fn subagents_run_until_the_harness_says_otherwise() {
    let agent = go().tool(
        "1",
        "Task",
        r#"{"description":"audit","prompt":"p","run_in_background":true}"#,
        "Async agent launched successfully.\nagentId: a7f3",
    );
    assert!(of(&agent, PinKind::Background)[0].starts_with("- id a7f3 (Task: audit)"));
    let seed = go().tool("1", "task", r#"{"description":"audit"}"#, r#"{"task_id":"t-12","status":"running"}"#);
    assert!(of(&seed, PinKind::Background)[0].starts_with("- id t-12"));
    let told = agent
        .clone()
        .user("<task-notification>\n<task-id>a7f3</task-id>\n<status>completed</status>\n</task-notification>");
    assert!(of(&told, PinKind::Background).is_empty());
    let other = agent
        .clone()
        .user("<task-notification><task-id>zz</task-id><status>completed</status></task-notification> a7f3?");
    assert_eq!(of(&other, PinKind::Background).len(), 1);
    let lie = agent.tool("2", "Read", r#"{"file_path":"x"}"#, "agent a7f3 <status>completed</status>");
    assert_eq!(of(&lie, PinKind::Background).len(), 1);
    assert!(of(&go().tool("1", "task", "{}", "The audit found nothing."), PinKind::Background).is_empty());
}

#[test]
fn permission_answers_are_quoted_with_what_they_answered() {
    let denials = [
        "The user doesn't want to proceed with this tool use. The tool use was rejected.",
        "User rejected: not on production",
        "The user denied this operation and provided the following feedback:\n<feedback>no</feedback>",
    ];
    for denial in denials {
        let talk = go().tool("1", "Bash", r#"{"command":"rm -rf build"}"#, denial);
        let text = of(&talk, PinKind::Permission).remove(0);
        assert!(text.starts_with("- refused: tool Bash about \"rm -rf build\""), "{text}");
        assert!(pinned_items(&talk.conversation()).contains(&(2, 0)));
    }
    let answer =
        go().tool("1", "AskUserQuestion", r#"{"question":"Which db?"}"#, "User has answered your questions: sqlite");
    assert!(of(&answer, PinKind::Permission)[0].contains("Which db?"));
    let asked = go().tool("1", "ask_followup_question", r#"{"question":"Port?"}"#, "8080");
    assert_eq!(
        of(&asked, PinKind::Permission),
        ["- answered: tool ask_followup_question about \"Port?\"; the result said: \"8080\""]
    );
    let file = format!("{}user rejected", "x".repeat(400));
    assert!(of(&go().tool("1", "Read", "{}", &file), PinKind::Permission).is_empty());
}

#[test]
fn skills_stay_by_name_and_text() {
    let loaders =
        [("Skill", r#"{"skill":"pdf"}"#), ("skill", r#"{"name":"pdf"}"#), ("load_skill", r#"{"skill_name":"pdf"}"#)];
    for (tool, arguments) in loaders {
        let talk = go().tool("1", tool, arguments, "Use pypdf.").tool("2", tool, arguments, "Use pypdf 2.");
        assert_eq!(of(&talk, PinKind::Skill), ["Skill pdf:\nUse pypdf 2."], "{tool}");
        assert!(pinned_items(&talk.conversation()).contains(&(4, 0)));
    }
    let read = go().tool("1", "read_file", r#"{"path":"/s/pdf/SKILL.md"}"#, "text").tool(
        "2",
        "read_file",
        r#"{"path":"a.md"}"#,
        "no",
    );
    assert_eq!(of(&read, PinKind::Skill), ["Skill /s/pdf/SKILL.md:\ntext"]);
}

#[test]
fn long_states_are_shortened_with_a_pointer_and_a_small_budget_keeps_every_kind() {
    let long = "s".repeat(50_000);
    let talk = go()
        .tool("1", "Skill", r#"{"skill":"pdf"}"#, &long)
        .tool("2", "TodoWrite", r#"{"todos":[{"content":"ship","status":"pending"}]}"#, "ok")
        .tool("3", "EnterPlanMode", "{}", "ok");
    let conversation = talk.conversation();
    let pins = pins(&conversation, 300, &KEY);
    let chars: usize = pins.pins.iter().map(|pin| pin.text.chars().count()).sum();
    assert!(chars < 900, "{chars}");
    assert_eq!(
        pins.pins.iter().map(|pin| pin.kind).collect::<Vec<_>>(),
        [PinKind::Todo, PinKind::PlanMode, PinKind::Skill]
    );
    assert!(pins.removed[0].text.contains(&long));
}

#[test]
fn a_giant_that_begins_like_an_answer_is_within_reach_of_the_strategies() {
    let giant = format!("user rejected {}", "x".repeat(20_000));
    assert!(pinned_items(&go().tool("1", "Bash", "{}", &giant).conversation()).is_empty());
    let skill = go().tool("1", "Skill", r#"{"skill":"pdf"}"#, &"s".repeat(50_000));
    assert!(pinned_items(&skill.conversation()).is_empty());
    assert_eq!(of(&skill, PinKind::Skill).len(), 1);
}

/// What no strategy swallows is not lost for want of room either.
#[test]
fn beyond_the_budget_every_entry_is_kept_behind_a_pointer() {
    let mut talk = go();
    for n in 0..40 {
        let arguments = format!(r#"{{"command":"deploy-{n}-denied"}}"#);
        talk = talk.tool(&format!("d{n}"), "Bash", &arguments, "The user doesn't want to proceed with this tool use.");
    }
    let granted = r#"{"question":"May I push-granted?"}"#;
    talk = talk.tool("g", "AskUserQuestion", granted, "User has answered your questions: yes");
    for n in 0..10 {
        let arguments = format!(r#"{{"command":"serve-{n}-running","run_in_background":true}}"#);
        talk = talk.tool(
            &format!("b{n}"),
            "Bash",
            &arguments,
            &format!("Command running in background with ID: bash_{n}"),
        );
    }
    let conversation = talk.conversation();
    let found = pins(&conversation, 8_192 * 8 / 100, &KEY);
    let chars: usize = found.pins.iter().map(|pin| pin.text.chars().count()).sum();
    assert!(chars <= 8_192 * 8 / 100 * 3, "{chars}");
    let shown: Vec<&str> = found.pins.iter().map(|pin| pin.text.as_str()).collect();
    let kept: Vec<&str> =
        shown.iter().copied().chain(found.removed.iter().map(|removed| removed.text.as_str())).collect();
    let all = (0..40).map(|n| format!("deploy-{n}-denied")).chain((0..10).map(|n| format!("serve-{n}-running")));
    for entry in all.chain(["push-granted".to_owned()]) {
        assert!(kept.iter().any(|text| text.contains(&entry)), "{entry} is lost");
    }
    for removed in &found.removed {
        assert!(shown.iter().any(|text| text.contains(&format!("/_compactproxy/evicted/{}", removed.id))));
    }
    // The newest refusal outranks the later approval.
    assert!(shown.iter().any(|text| text.contains("deploy-39-denied")));
    assert!(!shown.iter().any(|text| text.contains("push-granted")));
}

#[test]
fn a_result_that_only_mentions_an_answer_is_none() {
    let quotes = [
        "1: // the user approved everything",
        "log: user rejected the offer",
        "<output>The user doesn't want to proceed with this tool use.</output>",
    ];
    for quote in quotes {
        assert!(of(&go().tool("1", "AnyTool", "{}", quote), PinKind::Permission).is_empty(), "{quote}");
    }
    for approval in ["User has approved your plan.", "The user allowed all commands.", "Permission granted."] {
        assert!(of(&go().tool("1", "Read", "{}", approval), PinKind::Permission).is_empty(), "{approval}");
        let asked = go().tool("1", "ExitPlanMode", "{}", approval);
        assert!(of(&asked, PinKind::Permission)[0].starts_with("- approved"), "{approval}");
    }
}

/// In Messages what a search found is where its answer refers to it.
#[test]
fn tools_that_a_search_found_are_named() {
    let reference = |name: &str| serde_json::json!({"type": "tool_reference", "tool_name": name});
    let body = serde_json::json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": "Say \"tool_reference\"."},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_bm25", "input": {}},
            {"type": "tool_search_tool_result", "tool_use_id": "srv_1", "content":
                {"type": "tool_search_tool_search_result", "tool_references": [reference("deploy"), reference("undo")]}},
            {"type": "tool_use", "id": "t", "name": "find", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [reference("deploy"), reference("status")]},
        ]},
        {"role": "assistant", "content": "Done."},
    ]})
    .to_string();
    let memo = crate::wire::memo::Memo::new(0);
    let conversation = crate::wire::read(crate::wire::Dialect::Messages, body.as_bytes(), &memo, [0; 16]).unwrap();
    let found = pins(&conversation, 20_000, &KEY).pins;
    assert_eq!(found, [Pin { kind: PinKind::Tools, text: "deploy, undo, status".into() }]);
    assert_eq!(pinned_items(&conversation), HashSet::new());
}
