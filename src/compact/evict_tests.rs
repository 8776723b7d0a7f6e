use proptest::prelude::*;

use super::*;
use crate::compact::Cut;
use crate::compact::exclusions::SHIPPED;
use crate::compact::fixture::{Chat, Message, call, exchange, result, user};

const KEY: TextKey = TextKey([7; 32]);

fn settings(max: usize, preview: usize) -> EvictionSettings {
    EvictionSettings {
        max_result_chars: max,
        max_result_tokens: None,
        preview_chars: preview,
        excluded_tools: SHIPPED.iter().map(|&name| name.to_owned()).collect(),
        excluded_limit_factor: 4,
        workspace_dir: None,
    }
}

fn evict(chat: &Chat, from: usize, settings: &EvictionSettings) -> Vec<(usize, Vec<Replacement>, Vec<Removed>)> {
    let tokens = Tokens::default();
    evictions(&chat.conversation(), from, &Evictor { settings, key: &KEY, tokens: &tokens, ways: Default::default() })
}

/// Head and tail of a stub, and its notice.
fn taken_apart(stub: &str) -> (&str, &str, &str) {
    let start = stub.find("[compactproxy notice: ").unwrap();
    let (head, rest) = stub.split_at(start);
    let (notice, tail) = rest.split_at(rest.find("goes on.]\n").unwrap() + "goes on.]\n".len());
    (head, notice, tail)
}

/// What a one-command shell session would send.
fn shell(text: &str) -> Chat {
    let [call, result] = exchange("c1", "bash", text);
    Chat::new(&[user("go"), call, result])
}

fn lines(count: usize) -> String {
    (0..count).map(|i| format!("line {i} of the output\n")).collect()
}

#[test]
fn the_limit_is_exact() {
    let settings = settings(4_000, 500);
    assert!(evict(&shell(&"é".repeat(4_000)), 0, &settings).is_empty());
    let found = evict(&shell(&"é".repeat(4_001)), 0, &settings);
    assert_eq!(found.len(), 1);
    let (item, eviction, removed) = &found[0];
    assert_eq!((*item, eviction[0].slot), (2, 0));
    assert_eq!(*removed, [KEY.removed("é".repeat(4_001))]);
}

/// What a client leaves that cuts a text within a character.
#[test]
fn a_lone_surrogate_is_no_shelter() {
    let chat = shell(&lines(1_000));
    let body = String::from_utf8(chat.conversation().body.to_vec()).unwrap();
    let cut = body.replace("line 999 of", r"line \ud83d of");
    let memo = crate::wire::memo::Memo::new(0);
    let conversation = crate::wire::read(crate::wire::Dialect::Chat, cut.as_bytes(), &memo, [1; 16]).unwrap();
    let (settings, tokens) = (settings(4_000, 500), Tokens::default());
    let evictor = Evictor { settings: &settings, key: &KEY, tokens: &tokens, ways: Default::default() };
    let found = evictions(&conversation, 0, &evictor);
    assert_eq!(found[0].2, [KEY.removed(lines(1_000).replace("line 999 of", r"line \ud83d of"))]);
    assert!(found[0].1[0].text.contains(r"line \ud83d of"));
}

#[test]
fn what_went_whole_stays_whole() {
    assert!(evict(&shell(&lines(1_000)), 3, &settings(4_000, 500)).is_empty());
    assert_eq!(evict(&shell(&lines(1_000)), 2, &settings(4_000, 500)).len(), 1);
}

#[test]
fn a_stub_says_where_the_rest_is() {
    let text = lines(1_000);
    let id = KEY.id(&text);
    let stub = stub(&text, id, &settings(4_000, 500), Ways { folder: Some("/srv/texts/t1"), ..Ways::default() });
    let (head, notice, tail) = taken_apart(&stub);
    assert!(head.ends_with('\n') && text.starts_with(head) && text.ends_with(tail) && tail.starts_with("line "));
    let hidden = text.get(head.len()..text.len() - tail.len()).unwrap();
    assert!(notice.contains(&format!("{} characters ({} lines)", hidden.len(), hidden.lines().count())));
    assert!(notice.contains(&format!("id {id}")) && notice.contains(&format!("/_compactproxy/evicted/{id}")));
    assert!(notice.contains(&format!("?offset={}&limit=", head.lines().count())));
    assert!(notice.contains(&format!("?unit=chars&offset={}&limit=2000", head.len())));
    assert!(notice.contains(&format!("/srv/texts/t1/{id}")));
}

#[test]
fn one_long_line_is_cut_at_characters() {
    let text = "0123456789".repeat(10_000);
    let stub = stub(&text, KEY.id(&text), &settings(4_000, 500), Ways::default());
    let (head, notice, tail) = taken_apart(&stub);
    assert_eq!((head.len(), tail.len()), (501, 500), "the head ends with a line end of its own");
    assert!(notice.contains("99000 characters (1 lines)") && notice.contains("?offset=0&limit"));
}

#[test]
fn combining_marks_stay_with_their_letter() {
    let text = "e\u{301}\u{302}".repeat(5_000);
    for preview in [499, 500, 501] {
        let stub = stub(&text, KEY.id(&text), &settings(4_000, preview), Ways::default());
        let (head, _, tail) = taken_apart(&stub);
        assert!(head.trim_end().ends_with('\u{302}') && tail.starts_with('e'), "{preview}");
    }
    let family = "👨\u{200d}👩\u{200d}👧\u{1f3fd}";
    assert_eq!(whole_character(family, "👨\u{200d}👩".len()), 0);
    assert_eq!(whole_character("ab\r\nc", 3), 2);
}

#[test]
fn excluded_tools_have_a_wider_limit() {
    let mut settings = settings(4_000, 500);
    let read = |chars: usize| {
        let [call, result] = exchange("c1", "mcp__fs__read_file", &"x".repeat(chars));
        Chat::new(&[user("go"), call, result])
    };
    assert!(evict(&read(16_000), 0, &settings).is_empty());
    assert_eq!(evict(&read(16_001), 0, &settings).len(), 1);
    settings.excluded_limit_factor = 0;
    assert!(evict(&read(1_000_000), 0, &settings).is_empty());
    settings.excluded_limit_factor = usize::MAX;
    assert!(evict(&read(1_000_000), 0, &settings).is_empty());
}

#[test]
fn tokens_may_be_the_limit() {
    let mut settings = settings(80_000, 500);
    settings.max_result_tokens = Some(1_000);
    assert_eq!(evict(&shell(&"的 ".repeat(1_500)), 0, &settings).len(), 1);
    assert!(evict(&shell(&"word ".repeat(900)), 0, &settings).is_empty());
}

#[test]
fn of_many_parts_the_largest_go() {
    let parts: Vec<String> = [3_000, 9_000, 100, 2_000].iter().map(|&n| "z".repeat(n)).collect();
    let chat = Chat::new(&[user("go"), call("c1", "bash", "{}"), Message::Result("c1".into(), parts)]);
    let found = evict(&chat, 0, &settings(7_000, 500));
    let slots: Vec<_> = found[0].1.iter().map(|replacement| replacement.slot).collect();
    assert_eq!(slots, [1], "3,000 + 100 + 2,000 and a stub are within the limit");
    let found = evict(&chat, 0, &settings(5_000, 200));
    let slots: Vec<_> = found[0].1.iter().map(|replacement| replacement.slot).collect();
    assert_eq!(slots, [0, 1]);
    let texts: usize = found[0].2.iter().map(|removed| removed.text.len()).sum();
    assert_eq!(texts, 12_000);
}

#[test]
fn only_results_are_evicted() {
    let long = lines(1_000);
    let chat = Chat::new(&[user(&long), call("c", "bash", &long), Message::Assistant(long.clone(), Vec::new())]);
    assert!(evict(&chat, 0, &settings(1_000, 100)).is_empty());
}

#[test]
fn nothing_grows() {
    assert!(evict(&shell(&"x".repeat(300)), 0, &settings(100, 100)).is_empty(), "the notice alone is longer");
    assert_eq!(evict(&shell(&"x".repeat(1_500)), 0, &settings(100, 100)).len(), 1, "a low limit still works");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Evicted or not: smaller, head and tail exact and within the preview, the original kept, the same every time.
    #[test]
    fn evicting_any_text(
        text in "([a-z ]{0,40}\n|[é的\u{301}👩\u{200d}\r\n\"\\\\]{0,20}|\\PC{0,30}){0,60}",
        max in 0usize..1_500,
        preview in 0usize..400,
    ) {
        let settings = settings(max, preview);
        let chat = shell(&text);
        let found = evict(&chat, 0, &settings);
        prop_assert_eq!(&found, &evict(&chat, 0, &settings));
        for (item, eviction, removed) in found {
            let id = KEY.id(&text);
            prop_assert_eq!(&removed, &vec![Removed { id, text: text.clone() }]);
            prop_assert!(text.chars().count() > max);
            let stub = &eviction[0].text;
            prop_assert!(stub.len() < text.len());
            let (head, _, tail) = taken_apart(stub);
            prop_assert!(text.starts_with(head) || text.starts_with(head.trim_end_matches('\n')));
            prop_assert!(text.ends_with(tail));
            prop_assert!(head.chars().count() <= preview + 1 && tail.chars().count() <= preview);
            let cuts = [Cut { item, replacement: eviction[0].clone(), removed }];
            let body = chat.rewritten(&cuts);
            prop_assert!(body.len() < chat.body.len());
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        }
    }
}

#[test]
fn a_page_below_the_limit_is_left_alone() {
    let settings = settings(4_000, 500);
    let text = lines(1_000);
    let page: String = text.chars().skip(500).take(2_000).collect();
    let chat = Chat::new(&[user("go"), call("c", "bash", "{}"), result("c", &page)]);
    assert!(evict(&chat, 0, &settings).is_empty());
}

#[test]
fn many_small_parts_are_evicted_together() {
    let parts: Vec<String> = (0..400).map(|n| format!("row {n} of many")).collect();
    let chat = Chat::new(&[user("go"), call("c1", "bash", "{}"), Message::Result("c1".into(), parts.clone())]);
    let settings = settings(2_000, 200);
    let found = evict(&chat, 0, &settings);
    let (_, replacements, removed) = &found[0];
    assert_eq!(*removed, [KEY.removed(parts.join("\n"))]);
    assert_eq!(replacements.len(), parts.len());
    assert!(replacements.iter().all(|new| !new.text.is_empty()));
    let chars: usize = replacements.iter().map(|new| new.text.chars().count()).sum();
    assert!(chars <= settings.max_result_chars, "{chars}");
    assert!(replacements.iter().any(|new| new.text.contains(&removed[0].id.to_string())));
}
