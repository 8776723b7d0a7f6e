use proptest::prelude::*;

use super::*;
use crate::wire::sse::{Event, Reader};

/// A frame with headers that are texts.
fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    for (name, value) in headers {
        named.push(name.len() as u8);
        named.extend_from_slice(name.as_bytes());
        named.push(7);
        named.extend_from_slice(&(value.len() as u16).to_be_bytes());
        named.extend_from_slice(value.as_bytes());
    }
    sealed(&named, payload)
}

fn sealed(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = PRELUDE + headers.len() + payload.len() + CHECKSUM;
    let mut frame = [(length as u32).to_be_bytes(), (headers.len() as u32).to_be_bytes()].concat();
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame.extend_from_slice(headers);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
    frame
}

fn chunk(event: &Value) -> Vec<u8> {
    let payload = json!({ "bytes": STANDARD.encode(event.to_string()), "p": "abcdefgh" }).to_string();
    frame(&[(":event-type", "chunk"), (":message-type", "event")], payload.as_bytes())
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    frame(&headers, json!({ "message": message }).to_string().as_bytes())
}

/// The events of a stream that comes in pieces of `size` bytes, and whether it was given up.
fn events(stream: &[u8], size: usize) -> (Vec<Event>, bool) {
    let (mut frames, mut reader) = (EventStream::default(), Reader::new());
    for piece in stream.chunks(size) {
        frames.push(piece, |text| reader.push(text));
    }
    (std::iter::from_fn(|| reader.next_event()).map(|event| Event { end: 0, ..event }).collect(), frames.has_given_up())
}

fn data(events: &[Event]) -> Vec<Value> {
    events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
}

#[test]
fn chunks_are_the_models_own_events_in_order() {
    let told = [json!({ "type": "message_start" }), json!({ "type": "ping", "t": "天\n" })];
    let stream = told.iter().map(chunk).collect::<Vec<_>>().concat();
    for size in [1, 7, 100_000] {
        let (events, given_up) = events(&stream, size);
        assert_eq!((data(&events), given_up), (told.to_vec(), false));
        assert!(events.iter().all(|event| event.name.is_none()));
    }
}

#[test]
fn exceptions_and_errors_are_events_named_error_with_their_status() {
    let long = "The model returned the following errors: Input Tokens Exceeded";
    let error = [(":message-type", "error"), (":error-code", "internalFailure"), (":error-message", "no")];
    for (frame, status, text) in [
        (exception("validationException", long), json!(400), json!({ "message": long })),
        (exception("throttlingException", "Too many tokens"), json!(429), json!({ "message": "Too many tokens" })),
        (exception("ofTomorrow", "x"), json!(null), json!({ "message": "x" })),
        (self::frame(&error, b""), json!(500), json!("no")),
        (
            self::frame(&[(":message-type", "exception"), (":exception-type", "validationException")], b"no JSON"),
            json!(400),
            json!("no JSON"),
        ),
    ] {
        let (events, given_up) = events(&frame, 5);
        assert_eq!((events[0].name.as_deref(), given_up), (Some("error"), false));
        assert_eq!(data(&events), [json!({ "status": status, "error": text })]);
    }
}

#[test]
fn headers_of_every_form_are_stepped_over() {
    let mut headers = Vec::new();
    for (form, bytes) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (5, 8), (8, 8), (9, 16)] {
        headers.extend_from_slice(&[1, b'x', form]);
        headers.extend(std::iter::repeat_n(0, bytes));
    }
    headers.extend_from_slice(b"\x01x\x06\x00\x02ab");
    headers.extend_from_slice(b"\x0d:message-type\x07\x00\x09exception");
    assert_eq!(events(&sealed(&headers, b"{}"), 9).0[0].name.as_deref(), Some("error"));
    headers.extend_from_slice(b"\x01x\x0a");
    assert!(events(&sealed(&headers, b"{}"), 9).1, "a form that nobody knows");
}

#[test]
fn what_is_doubtful_is_given_up_behind_what_was_read() {
    let (first, second) = (chunk(&json!({ "a": 1 })), chunk(&json!({ "a": 2 })));
    for at in 0..second.len() {
        let mut broken = second.clone();
        broken[at] ^= 1;
        let (events, given_up) = events(&[first.clone(), broken, first.clone()].concat(), 64);
        assert_eq!((data(&events), given_up), (vec![json!({ "a": 1 })], true), "byte {at}");
    }
    let (events, given_up) = events(&[&first[..], &second[..second.len() - 1]].concat(), 64);
    assert_eq!((events.len(), given_up), (1, false), "it may still come");
}

#[test]
fn a_frame_of_the_greatest_length_is_read_and_no_longer_one() {
    let frame = |length: usize| sealed(&[], &vec![b'x'; length - PRELUDE - CHECKSUM]);
    for (length, read) in [(MAX_FRAME, 1), (MAX_FRAME + 1, 0)] {
        let mut found = 0;
        let mut frames = EventStream::default();
        frame(length).chunks(60_000).for_each(|piece| frames.push(piece, |_| found += 1));
        assert_eq!((found, frames.has_given_up()), (read, read == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_harms(bytes in proptest::collection::vec(any::<u8>(), 0..200), headers in proptest::collection::vec(any::<u8>(), 0..60)) {
        events(&bytes, 7);
        events(&sealed(&headers, &bytes), 11);
    }
}
