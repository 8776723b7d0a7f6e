use super::*;

use proptest::prelude::*;

fn read(limit: usize, chunks: &[&[u8]]) -> (Vec<Event>, bool) {
    let mut reader = Reader::with_limit(limit);
    let mut events = Vec::new();
    for chunk in chunks {
        reader.push(chunk);
        events.extend(std::iter::from_fn(|| reader.next_event()));
    }
    reader.finish();
    events.extend(std::iter::from_fn(|| reader.next_event()));
    (events, reader.has_given_up())
}

fn event(name: Option<&str>, data: &str, end: u64) -> Event {
    Event { name: name.map(str::to_owned), data: data.to_owned(), end }
}

#[test]
fn fields_comments_and_line_ends() {
    let stream =
        b"\xef\xbb\xbfdata: a\n\n: ping\n\nevent: x\r\ndata:b\r\ndata:  c\r\n\r\nid: 7\rdata\r\rretry: 1\n\ndata: last";
    let (events, given_up) = read(1024, &[stream]);
    let expected = [
        event(None, "a", 12),
        event(Some("x"), "b\n c", 49),
        event(None, "", 62),
        event(None, "last", stream.len() as u64),
    ];
    assert_eq!(events, expected);
    assert!(!given_up);
}

#[test]
fn an_error_line_is_an_error_event() {
    let (events, _) = read(1024, &[b"error: {\"code\":400}\n\n"]);
    assert_eq!(events, [event(Some("error"), "{\"code\":400}", 21)]);
}

#[test]
fn an_event_over_the_limit_ends_the_reading() {
    let line = format!("data: {}\n\ndata: b\n\n", "x".repeat(94));
    assert_eq!(read(100, &[line.as_bytes()]).0.len(), 2);
    let (events, given_up) = read(99, &[line.as_bytes()]);
    assert!(events.is_empty() && given_up);
    let two_lines = format!("data: {}\ndata: {}\n\n", "x".repeat(44), "x".repeat(44));
    assert!(!read(100, &[two_lines.as_bytes()]).1);
    assert!(read(99, &[two_lines.as_bytes()]).1);
}

#[test]
fn knows_when_nothing_is_in_progress() {
    let mut reader = Reader::new();
    for (chunk, between) in
        [(&b"data"[..], false), (b": a\n", false), (b"\n", true), (b": c\n", true), (b"event: e\n", false)]
    {
        reader.push(chunk);
        assert_eq!(reader.is_between_events(), between, "{chunk:?}");
    }
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        Just("data: {\"a\":1}".to_owned()),
        Just("data:".to_owned()),
        Just("event: error".to_owned()),
        Just(": comment".to_owned()),
        Just("error: x".to_owned()),
        Just("junk".to_owned()),
        "data: \\PC{0,12}",
        Just(String::new()),
        Just(String::new()),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n"), Just("\r")];
    proptest::collection::vec((line, end), 0..24)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect::<String>().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Wherever a stream is cut, its events and their ends are the same.
    #[test]
    fn chunking_does_not_matter(stream in stream(), cuts in proptest::collection::vec(0usize..400, 0..12), limit in 4usize..200) {
        let whole = read(limit, &[&stream]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.sort_unstable();
        cuts.push(stream.len());
        let mut from = 0;
        let chunks: Vec<&[u8]> = cuts.into_iter().map(|to| &stream[std::mem::replace(&mut from, to)..to]).collect();
        prop_assert_eq!(&read(limit, &chunks), &whole);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(&read(limit, &bytes), &whole);
    }
}
