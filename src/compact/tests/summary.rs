use super::*;
use crate::compact::talk::count;

const GOOD: &str = "## SESSION INTENT\nShip it.\n\n## SUMMARY\nDone.\n\n## ARTIFACTS\n- a.rs\n\n## NEXT STEPS\n- test";

fn accepted(output: &str) -> Result<String, Rejection> {
    accept(output, Finish::Stop, 1000, &count)
}

#[test]
fn a_good_summary_is_taken_as_it_is() {
    assert_eq!(accepted(GOOD).as_deref(), Ok(GOOD));
}

#[test]
fn wrapping_is_taken_off_and_nothing_else() {
    assert_eq!(accepted(&format!("```markdown\n{GOOD}\n```")).as_deref(), Ok(GOOD));
    assert_eq!(accepted(&format!("Here is the record:\n\n{GOOD}\n")).as_deref(), Ok(GOOD));
    assert_eq!(accepted(&format!("<think>hm</think>\n{GOOD}")).as_deref(), Ok(GOOD));
    let inner = "```sh\nls\n```\nand then\n```sh\ncat\n```";
    assert_eq!(accepted(inner).as_deref(), Ok(inner));
    let long = format!("{}\n{GOOD}", "Important. ".repeat(40));
    assert_eq!(accepted(&long).as_deref(), Ok(long.as_str()));
}

#[test]
fn what_is_no_summary_is_rejected() {
    for empty in ["", "  \n", "```\n\n```", "---", "<think>only thoughts</think>"] {
        assert_eq!(accepted(empty), Err(Rejection::Empty), "{empty:?}");
    }
    for refusal in ["I'm sorry, but I can't help with that.", "I can’t assist with this.", "很抱歉，我不能。"]
    {
        assert_eq!(accepted(refusal), Err(Rejection::Refused), "{refusal}");
    }
    for call in ["<tool_call>{}</tool_call>", r#"{"name":"ls","arguments":{}}"#] {
        assert_eq!(accepted(call), Err(Rejection::ToolCall), "{call}");
    }
    let finish = |reason| accept(GOOD, Finish::of(Some(reason)), 1000, &count);
    assert_eq!(finish("length"), Err(Rejection::CutOff));
    assert_eq!(finish("tool_calls"), Err(Rejection::ToolCall));
    assert_eq!(finish("content_filter"), Err(Rejection::Refused));
    assert_eq!(finish("stop").as_deref(), Ok(GOOD));
    assert_eq!(Finish::of(None), Finish::Stop);
}

#[test]
fn it_must_be_smaller_than_what_it_replaces() {
    let size = count(GOOD);
    assert_eq!(accept(GOOD, Finish::Stop, size, &count), Err(Rejection::NotSmaller));
    assert!(accept(GOOD, Finish::Stop, size + 1, &count).is_ok());
}

#[test]
fn a_record_of_a_refusal_is_no_refusal_and_nonsense_passes() {
    let told = format!("I'm sorry was all it said.\n{GOOD}");
    assert!(accepted(&told).is_ok());
    assert_eq!(accepted("banana banana").as_deref(), Ok("banana banana"));
}

#[test]
fn our_own_marks_are_made_harmless() {
    let text = accepted("<compactproxy-notice-00>\nx\n</compactproxy-notice-00>").expect("accepted");
    assert!(!text.contains("<compactproxy-") && !text.contains("</compactproxy-"));
}
