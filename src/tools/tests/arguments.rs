use proptest::prelude::*;

use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef";

fn reading(arguments: &str) -> Reading {
    match read(Tool::ReadEvicted, arguments) {
        Ok(Request::ReadEvicted(reading)) => reading,
        other => panic!("{other:?} of {arguments}"),
    }
}

fn wrong(tool: Tool, arguments: &str) -> String {
    read(tool, arguments).expect_err(arguments).to_string()
}

#[test]
fn numbers_come_in_many_forms() {
    for offset in ["7", "\"7\"", "\" 7 \"", "7.0"] {
        let asked = reading(&format!(r#"{{"id": "{ID}", "offset": {offset}, "limit": null}}"#));
        assert_eq!((asked.start, asked.limit), (Place { line: 7, char: 0 }, None), "{offset}");
    }
    let asked = reading(&format!(r#"{{"id":"{ID}","offset":1,"char_offset":"20","limit":3,"pattern":"a|b"}}"#));
    let pattern = Some("a|b".to_owned());
    assert_eq!(asked, Reading { id: ID.parse().unwrap(), start: Place { line: 1, char: 20 }, limit: Some(3), pattern });
}

#[test]
fn an_id_is_found_where_a_model_may_write_it() {
    for id in [ID, &ID.to_uppercase(), &format!(" {ID}\n"), &format!("/_compactproxy/evicted/{ID}")] {
        assert_eq!(reading(&serde_json::json!({"id": id}).to_string()).id.to_string(), ID, "{id}");
    }
    for id in [
        "",
        "latest",
        ID.trim_start_matches('0'),
        &format!("{ID}0"),
        "０123456789abcdef0123456789abcde",
        "../../etc/passwd",
    ] {
        let error = wrong(Tool::ReadEvicted, &serde_json::json!({"id": id}).to_string());
        assert!(error.contains("32 hexadecimal digits") || error.starts_with("id is missing"), "{id}: {error}");
    }
}

#[test]
fn nonsense_says_what_is_wrong_and_what_is_allowed() {
    let cases: &[(Tool, &str, &str)] = &[
        (Tool::ReadEvicted, "", "id is missing or empty."),
        (Tool::ReadEvicted, "null", "id is missing or empty."),
        (Tool::ReadEvicted, "[1]", "The arguments must be a JSON object."),
        (Tool::ReadEvicted, "{\"id\": ", "The arguments are no valid JSON (line 1, column 7)."),
        (Tool::ReadEvicted, r#"{"id": 5}"#, "id must be a text."),
        (Tool::ReadEvicted, r#"{"offset": -1}"#, "offset must be a whole number, at least 0."),
        (Tool::ReadEvicted, r#"{"offset": 1.5}"#, "offset must be a whole number, at least 0."),
        (Tool::ReadEvicted, r#"{"offset": "many"}"#, "offset must be a whole number, at least 0."),
        (Tool::ReadEvicted, r#"{"offset": true}"#, "offset must be a whole number, at least 0."),
        (Tool::ReadEvicted, r#"{"offset": 1e300}"#, "offset must be a whole number, at least 0."),
        (Tool::ReadEvicted, r#"{"limit": 0}"#, "limit must be a whole number, at least 1."),
        (Tool::ReadEvicted, r#"{"line": 3}"#, "There is no parameter \"line\"."),
        (
            Tool::SessionHistory,
            r#"{"sessionId": "../x"}"#,
            "sessionId must be the 32 hexadecimal digits of an id from session_list.",
        ),
        (Tool::SessionSearch, r#"{"query": "  "}"#, "query is missing or empty."),
        (Tool::MemoryGet, r#"{"path": "MEMORY.md", "startLine": 5, "endLine": 4}"#, "startLine is behind endLine."),
        (Tool::MemoryGet, r#"{"path": "MEMORY.md", "startLine": 0}"#, "startLine must be a whole number, at least 1."),
        (Tool::MemorySave, "{}", "content is missing or empty."),
    ];
    for (tool, arguments, expected) in cases {
        let error = wrong(*tool, arguments);
        assert!(error.starts_with(expected), "{arguments}: {error}");
        let definition = tool.definition();
        assert!(error.ends_with(definition.example), "{error}");
        assert!(definition.parameters.iter().all(|parameter| error.contains(parameter.name)), "{error}");
    }
    assert!(wrong(Tool::MemorySave, &" ".repeat(MAX_ARGUMENTS + 1)).starts_with("The arguments are longer than"));
}

#[test]
fn what_is_not_asked_for_has_its_default() {
    assert_eq!(read(Tool::SessionList, ""), Ok(Request::SessionList { agent: None }));
    let part = Part { session: None, last: 20, before: None, branch: None, char: 0 };
    let history = Request::SessionHistory { agent: None, part };
    assert_eq!(read(Tool::SessionHistory, "{}"), Ok(history));
    let search = |most| Request::SessionSearch { query: "q".to_owned(), agent: None, session: None, most };
    assert_eq!(read(Tool::SessionSearch, r#"{"query":"q"}"#), Ok(search(10)));
    assert_eq!(read(Tool::SessionSearch, r#"{"query":"q","maxResults":9999999}"#), Ok(search(MOST_ENTRIES)));
    let memory = Request::MemorySearch { query: "q".to_owned(), most: 30 };
    assert_eq!(read(Tool::MemorySearch, r#"{"query":"q"}"#), Ok(memory));
}

#[test]
fn every_example_is_one() {
    for tool in Tool::ALL {
        read(tool, tool.definition().example).unwrap();
    }
}

proptest! {
    #[test]
    fn no_arguments_are_too_much(arguments in "(?s).{0,60}", name in "[a-zI]{1,12}", value in "(?s).{0,20}", tool in 0_usize..7) {
        let tool = Tool::ALL[tool];
        let made = serde_json::json!({ name: value }).to_string();
        for arguments in [arguments, made] {
            if let Err(error) = read(tool, &arguments) {
                prop_assert!(error.to_string().len() < 1_000);
            }
        }
    }
}
