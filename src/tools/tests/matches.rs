use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::compact::page::compiled;

fn bounds(room: usize) -> Bounds {
    Bounds { limit: None, room, until: Instant::now() + Duration::from_secs(3_600) }
}

fn all(text: &str, pattern: &str, bounds: Bounds) -> Vec<Found> {
    let pattern = compiled(pattern).unwrap();
    let (mut all, mut next) = (Vec::new(), Some(Place::default()));
    while let Some(place) = next {
        let found = matches(text, &pattern, place, bounds).unwrap();
        next = found.next.map(|(next, _)| next);
        all.push(found);
        assert!(all.len() <= text.len() + 2, "it goes on for ever");
    }
    all
}

/// Numbers of the lines that a page shows as matches.
fn numbers(found: &Found) -> Vec<usize> {
    let label = |line: &str| {
        let (number, rest) = line.split_at(line.find(|c: char| !c.is_ascii_digit())?);
        (rest.starts_with(':') || rest.starts_with('@')).then(|| number.parse().unwrap())
    };
    found.shown.lines().filter_map(label).collect()
}

proptest! {
    #[test]
    fn pages_of_matches_show_each_matching_line(
        lines in proptest::collection::vec(prop_oneof!["[abc]{0,5}", "[abcß字]{0,700}"], 0..30),
        limit in proptest::option::of(1_usize..4),
    ) {
        let text = lines.join("\n");
        let pages = all(&text, "a.?b", Bounds { limit, ..bounds(600) });
        let shown: BTreeSet<usize> = pages.iter().flat_map(numbers).collect();
        let pattern = compiled("a.?b").unwrap();
        let matching = text.lines().enumerate().filter(|(_, line)| pattern.is_match(line)).map(|(at, _)| at + 1);
        prop_assert_eq!(shown, matching.collect::<BTreeSet<_>>());
        for page in &pages {
            prop_assert!(page.shown.chars().count() <= 600);
            prop_assert_eq!(numbers(page).len(), page.count);
            prop_assert!(page.text().chars().count() <= 1_000);
            prop_assert!(limit.is_none_or(|limit| page.count <= limit));
        }
    }

    #[test]
    fn every_match_in_a_giant_line_is_shown(gaps in proptest::collection::vec(0_usize..90_000, 1..12)) {
        let text: String = gaps.iter().enumerate().map(|(n, gap)| format!("{}<needle{n}>", "é".repeat(*gap))).collect();
        let shown: String = all(&text, "<needle[0-9]+>", bounds(600)).iter().map(|found| found.shown.clone()).collect();
        for n in 0..gaps.len() {
            prop_assert!(shown.contains(&format!("<needle{n}>")), "{}", n);
        }
    }
}

#[test]
fn matches_come_with_their_numbers_and_what_is_around_them() {
    let text: String = (1..=20).map(|n| format!("line {n}\n")).collect();
    let found = &all(&text, "line (3|5|17)$", bounds(1_000))[0];
    let expected = "1-line 1\n2-line 2\n3:line 3\n4-line 4\n5:line 5\n6-line 6\n7-line 7\n--\n15-line 15\n16-line 16\n\
                    17:line 17\n18-line 18\n19-line 19\n";
    assert_eq!(found.shown, expected);
    assert_eq!((found.count, found.next), (3, None));
    assert!(found.text().starts_with("[3 matches; whole text: 20 lines, 151 characters; LINE:text is a match"));
    let first = Bounds { limit: Some(1), ..bounds(1_000) };
    let found = matches(&text, &compiled("line 1").unwrap(), Place { line: 3, char: 0 }, first).unwrap();
    assert_eq!((numbers(&found), found.next), (vec![10], Some((Place { line: 10, char: 0 }, Stopped::Full))));
    assert!(found.text().starts_with("[1 match; there are more: go on with the same pattern and offset=10; "));
    let none = &all(&text, "nothing", bounds(1_000))[0];
    assert_eq!(none.text(), "[no line matches; whole text: 20 lines, 151 characters]\n");
}

#[test]
fn a_part_of_a_giant_line_can_be_read_where_the_search_says() {
    let text = format!("short\n{}needle{}", "字".repeat(70_000), "x".repeat(70_000));
    let found = &all(&text, "needle", bounds(600))[0];
    assert_eq!(found.count, 1);
    let label = found.shown.lines().find_map(|line| line.strip_prefix("2@")).unwrap();
    let char = label.split(':').next().unwrap().parse().unwrap();
    assert_eq!(char, 70_000 - BESIDE);
    let page = super::super::page::page(&text, Place { line: 1, char }, None, 200).unwrap();
    assert!(page.body.contains("needle"));
}

#[test]
fn a_search_that_is_late_goes_on_where_it_was() {
    let text = format!("{}needle", "x".repeat(3 * PIECE)) + "\n" + &"y\n".repeat(2 * PIECE) + "needle";
    let late = Bounds { until: Instant::now(), ..bounds(600) };
    let pages = all(&text, "needle", late);
    assert!(pages.len() > 3, "{}", pages.len());
    assert!(pages.iter().any(|page| matches!(page.next, Some((_, Stopped::Late)))));
    assert_eq!(pages.iter().map(|page| page.count).sum::<usize>(), 2);
}

#[test]
fn no_pattern_is_catastrophic() {
    // Each of these takes other engines for ever; here one piece is searched before the time is looked at.
    let text = "a".repeat(4 * PIECE);
    for pattern in ["(a*)*$b", "(a|a)*b", "(?:a?){300}a{300}b", "(.*)(.*)(.*)(.*)b", r"(\w+\s?)+b"] {
        let until = Instant::now();
        let found =
            matches(&text, &compiled(pattern).unwrap(), Place::default(), Bounds { until, ..bounds(600) }).unwrap();
        assert!(found.next.is_some(), "{pattern}");
    }
}

#[test]
fn many_small_matches_on_one_line_end_in_time_too() {
    let text = "ab".repeat(PIECE);
    let bounds = Bounds { room: usize::MAX, until: Instant::now(), ..bounds(600) };
    let found = matches(&text, &compiled("a").unwrap(), Place::default(), bounds).unwrap();
    let Some((next, Stopped::Late)) = found.next else { panic!("{:?}", found.next) };
    assert!(found.count == 1 && next.char > 0, "it gets on, but not far: {next:?}");
}
