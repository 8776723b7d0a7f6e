use proptest::prelude::*;

use super::*;

/// All pages of a text, one after the other.
fn pages(text: &str, limit: Option<usize>, room: usize) -> Vec<Page<'_>> {
    let (mut all, mut next) = (Vec::new(), Some(Place::default()));
    while let Some(place) = next {
        let page = page(text, place, limit, room).unwrap();
        next = page.next;
        all.push(page);
        assert!(all.len() <= text.len() + 1, "it goes on for ever");
    }
    all
}

/// Lines of all lengths, with what unicode has to offer.
fn texts() -> impl Strategy<Value = String> {
    let line = prop_oneof!["[a-z]{0,30}", "[äe\u{301}\u{200d}👩🏽字\r]{0,30}", "[x]{0,300}"];
    (proptest::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, ended)| {
        let mut text = lines.join("\n");
        if ended {
            text.push('\n');
        }
        text
    })
}

proptest! {
    #[test]
    fn pages_add_up_to_the_text(text in texts(), limit in proptest::option::of(1_usize..4), room in 1_usize..80) {
        let all = pages(&text, limit, room);
        prop_assert_eq!(all.iter().map(|page| page.body).collect::<String>(), &*text);
        for page in &all {
            prop_assert!(page.body.chars().count() <= room);
            prop_assert!(limit.is_none_or(|limit| lines(page.body) <= limit));
            prop_assert_eq!(page.size, Size::of(&text));
        }
    }

    #[test]
    fn a_page_as_the_model_gets_it_is_bounded(text in texts(), page_chars in 1_000_usize..1_300) {
        for page in pages(&text.repeat(4), None, room(page_chars)) {
            prop_assert!(page.text().chars().count() <= page_chars);
        }
    }

    #[test]
    fn lines_stay_whole_where_they_fit(text in texts()) {
        for page in pages(&text, None, 301) {
            prop_assert_eq!((page.start.char, page.next.map_or(0, |next| next.char)), (0, 0));
        }
    }
}

#[test]
fn a_page_says_how_long_the_text_is_and_how_to_go_on() {
    let text: String = (1..=9).map(|n| format!("line {n}\n")).collect();
    let said = |line, limit| page(&text, Place { line, char: 0 }, limit, 1_000).unwrap().text();
    assert_eq!(
        said(2, Some(2)),
        "[whole text: 9 lines, 63 characters; this page: lines 3 to 4; for more use offset=4]\nline 3\nline 4\n"
    );
    assert_eq!(said(8, None), "[whole text: 9 lines, 63 characters; this page: line 9; this is the end]\nline 9\n");
    assert_eq!(page("", Place::default(), None, 10).unwrap().text(), "[the text is empty]");
}

#[test]
fn a_giant_of_one_line_pages_by_characters() {
    let text = "0123456789".repeat(10);
    let first = page(&text, Place::default(), Some(1), 30).unwrap();
    assert_eq!(
        first.text().lines().next(),
        Some(
            "[whole text: 1 line, 100 characters; this page: line 1, characters 1 to 30 of it; for more use offset=0 and \
             char_offset=30]"
        )
    );
    let last = page(&text, Place { line: 0, char: 95 }, None, 30).unwrap();
    assert_eq!(
        last.text().lines().next(),
        Some("[whole text: 1 line, 100 characters; this page: line 1, characters 96 to 100 of it; this is the end]")
    );
}

#[test]
fn places_that_are_not_there_are_named() {
    let error = |line, char| page("ab\ncd", Place { line, char }, None, 10).unwrap_err().to_string();
    assert_eq!(error(2, 0), "offset 2 is behind the end: the text has 2 lines, so the last offset is 1.");
    assert_eq!(error(usize::MAX, 0).split(':').next(), Some("offset 18446744073709551615 is behind the end"));
    assert_eq!(error(1, 2), "char_offset 2 is behind the end of the line at that offset, which has 2 characters.");
    assert!(page("ab\n", Place { line: 1, char: 0 }, None, 10).is_err(), "a line feed at the end begins no line");
}
