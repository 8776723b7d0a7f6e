//! The documents say what is so: every key is in their tables with its default, every test they name exists.

use std::collections::BTreeMap;
use std::path::Path;

use compactproxy::config::Config;

/// A file of the repository.
fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The keys of the shipped file with their defaults as written; `None` where the key is shown but not set.
fn shipped_keys() -> BTreeMap<String, Option<String>> {
    let mut keys = BTreeMap::new();
    let mut section = String::new();
    for line in read("proxy.toml").lines() {
        let (shown, line) = (line.starts_with("# "), line.trim_start_matches("# "));
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_start_matches('[').split(']').next().unwrap().to_owned();
            continue;
        }
        let Some((name, value)) = line.split_once(" = ") else { continue };
        if section.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            continue;
        }
        let value = without_comment(value);
        // Of several upstreams the first is the one that the tables show.
        keys.entry(format!("{section}.{name}")).or_insert((!shown && value != "[").then(|| value.to_owned()));
    }
    keys
}

fn without_comment(value: &str) -> &str {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.find('"')).map_or(0, |end| end + 2);
    let end = value[quoted..].find('#').map_or(value.len(), |at| quoted + at);
    value[..end].trim_end()
}

/// The cells of a document's table rows.
fn rows(path: &str) -> Vec<Vec<String>> {
    let document = read(path);
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.replace("\\|", "\u{1}").split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect()).collect()
}

/// What stands between backticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What stands in the tables for a key of an upstream: its value where only the required ones are set.
fn upstream_default(key: &str) -> String {
    let required = [("name", "a"), ("base_url", "http://h")];
    if required.iter().any(|(name, _)| *name == key) {
        let without = required.iter().filter(|(name, _)| *name != key);
        let file: String = without.map(|(name, value)| format!("{name} = \"{value}\"\n")).collect();
        assert!(Config::parse(&format!("[[upstream]]\n{file}"), &|_| None).is_err(), "{key}");
        return "required".to_owned();
    }
    let file = "[[upstream]]\nname = \"a\"\nbase_url = \"http://h\"\n";
    let shown = Config::parse(file, &|_| None).unwrap().to_string();
    let value = shown.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
    format!("`{}`", value.unwrap_or_else(|| panic!("{key} is not in\n{shown}")))
}

#[test]
fn every_key_is_in_both_tables_with_its_default() {
    let keys = shipped_keys();
    assert!(keys.len() > 50, "{keys:?}");
    for path in ["README.md", "docs/guarantees.md"] {
        let rows = rows(path);
        for (key, default) in &keys {
            let row = rows.iter().find(|row| row[0] == format!("`{key}`"));
            let row = row.unwrap_or_else(|| panic!("{path} has no row for {key}"));
            match default {
                // A pattern's key is shown in comments only, and a list is too long for a cell.
                None => assert!(row.len() == 3, "{path}: {key}"),
                // What the shipped file says of its first upstream is no default of another.
                Some(_) if key.starts_with("upstream.") => {
                    let expected = upstream_default(key.trim_start_matches("upstream."));
                    assert_eq!(row[1], expected, "{path}: {key}");
                }
                Some(default) => assert_eq!(row[1], format!("`{default}`"), "{path}: {key}"),
            }
        }
    }
}

#[test]
fn every_key_in_the_readme_is_one() {
    let keys = shipped_keys();
    let rows = rows("README.md");
    let named = rows.iter().filter_map(|row| row[0].strip_prefix('`')?.strip_suffix('`'));
    for key in named.filter(|key| key.contains('.') && !key.contains(' ')) {
        assert!(keys.contains_key(key), "the README describes {key}, which proxy.toml does not show");
    }
}

/// Whether `source` has a test of this name (for other languages: a function).
fn has_test(path: &str, name: &str) -> bool {
    let source = read(path);
    if !path.ends_with(".rs") {
        return source.contains(&format!("def {name}("));
    }
    let Some(at) = source.find(&format!("fn {name}(")) else { return false };
    let before: Vec<&str> = source[..at].lines().rev().take_while(|line| !line.contains('}')).collect();
    before.iter().any(|line| line.contains("#[test]") || line.contains("#[tokio::test"))
}

#[test]
fn every_test_in_the_guarantees_exists() {
    let mut named = 0;
    for row in rows("docs/guarantees.md") {
        let tests: Vec<_> = code(row.last().unwrap()).filter_map(|code| code.split_once("::")).collect();
        for (path, name) in &tests {
            assert!(has_test(path, name), "{path} has no test {name}");
        }
        named += tests.len();
    }
    assert!(named > 100, "{named}");
    assert!(!has_test("tests/it/docs.rs", "rows") && !has_test("tests/it/docs.rs", "no_such_test"));
}

#[test]
fn every_row_of_the_guarantees_names_a_test_or_admits_that_there_is_none() {
    for row in rows("docs/guarantees.md") {
        let last = row.last().unwrap();
        let heading = last.starts_with("---") || last == "test";
        assert!(heading || last == "—" || code(last).next().is_some_and(|code| code.contains("::")), "{row:?}");
    }
}
