//! What holds for every body, however it is cut.

use proptest::prelude::*;

use super::*;

fn event() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(": keep-alive\n\n".to_owned()),
        Just("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\r\n\r\n".to_owned()),
        Just("event: response.created\ndata: {\"type\":\"response.created\"}\n\n".to_owned()),
        Just("data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n".to_owned()),
        Just(format!("data: {OVERFLOW}\n\n")),
        Just(format!("event: error\ndata: {QUOTA}\n\n")),
        Just("data: [DONE]\n\n".to_owned()),
        "\\PC{0,40}",
    ]
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let events = proptest::collection::vec(event(), 0..8).prop_map(|events| events.concat().into_bytes());
    let json = prop_oneof![Just(OVERFLOW), Just(QUOTA), Just("{\"id\":\"x\",\"choices\":[]}"), Just("  ")]
        .prop_map(|text| text.as_bytes().to_vec());
    let large = (60_000usize..70_000).prop_map(|length| vec![b':'; length]);
    let huge = (260_000usize..264_000).prop_map(|length| vec![b' '; length]);
    prop_oneof![8 => events, 4 => json, 1 => large, 1 => huge, 2 => proptest::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes in whatever pieces: one end, no byte lost or moved, and the same end for
    /// every chunking of a body within the bounds.
    #[test]
    fn no_byte_is_lost(
        body in body(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
        status in proptest::sample::select(vec![200u16, 200, 200, 400, 404, 422, 429, 500]),
        sent in proptest::sample::select(vec![Sent::Original, Sent::Rewritten, Sent::Offering]),
        ending in proptest::sample::select(vec![Ending::End, Ending::Fail, Ending::Deadline]),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        cuts.push(body.len());
        let mut from = 0;
        let chunks: Vec<&[u8]> = cuts.into_iter().map(|to| &body[std::mem::replace(&mut from, to)..to]).collect();
        let (step, relayed) = play(sent, status, &chunks, ending);
        prop_assert!(relayed == body);
        let rejected = matches!(step, Step::Rejected(_));
        prop_assert!(!rejected || (sent.is_rewritten() && matches!(status, 400 | 422)));
        if body.len() < STREAM_BYTES {
            prop_assert_eq!(step, play(sent, status, &[&body], ending).0);
        }
    }
}
