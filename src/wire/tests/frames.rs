//! Frames are taken apart however they are cut, and every byte goes on in its order.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 300;

fn frame(opcode: OpCode, is_final: bool, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let header = FrameHeader { opcode, is_final, mask, ..FrameHeader::default() };
    let mut bytes = Vec::new();
    header.format(payload.len() as u64, &mut bytes).unwrap();
    let from = bytes.len();
    bytes.extend_from_slice(payload);
    if let Some(mask) = mask {
        masked(&mut bytes[from..], mask);
    }
    bytes
}

fn text(payload: &[u8]) -> Vec<u8> {
    frame(OpCode::Data(Data::Text), true, payload, Some([1, 2, 3, 4]))
}

/// Pieces of `bytes`, read in parts of `step`.
fn taken(bytes: &[u8], step: usize) -> Vec<Piece> {
    let mut frames = Frames::new(LIMIT);
    bytes.chunks(step.max(1)).for_each(|part| frames.push(part));
    frames.finish();
    std::iter::from_fn(|| frames.next_piece()).collect()
}

fn joined(pieces: &[Piece]) -> Vec<u8> {
    let raw = |piece: &Piece| match piece {
        Piece::Text { raw, .. } => raw.concat(),
        Piece::Control(raw) | Piece::Close(raw) | Piece::Opaque(raw) => raw.to_vec(),
    };
    pieces.iter().flat_map(raw).collect()
}

fn texts(pieces: &[Piece]) -> Vec<&[u8]> {
    let text = |piece: &'_ Piece| matches!(piece, Piece::Text { .. });
    pieces
        .iter()
        .filter(|piece| text(piece))
        .map(|piece| match piece {
            Piece::Text { text, .. } => text.as_slice(),
            _ => unreachable!(),
        })
        .collect()
}

#[test]
fn a_text_in_fragments_is_one_message_and_a_ping_between_them_goes_ahead() {
    let ping = frame(OpCode::Control(Control::Ping), true, b"p", Some([9; 4]));
    let first = frame(OpCode::Data(Data::Text), false, b"one ", Some([5, 6, 7, 8]));
    let last = frame(OpCode::Data(Data::Continue), true, b"two", None);
    let pieces = taken(&[first.clone(), ping.clone(), last.clone()].concat(), 3);
    assert_eq!(
        pieces,
        [Piece::Control(ping.into()), Piece::Text { raw: vec![first.into(), last.into()], text: b"one two".to_vec() }]
    );
}

#[test]
fn a_message_at_the_limit_is_read_and_one_byte_more_passes_as_it_is() {
    let head = text(&[0; 200]).len() - 200;
    let fits = text(&vec![b'a'; LIMIT - head]);
    assert_eq!(texts(&taken(&fits, 7)), [vec![b'a'; LIMIT - head].as_slice()]);
    let over = text(&vec![b'a'; LIMIT - head + 1]);
    let pieces = taken(&over, 7);
    assert!(texts(&pieces).is_empty());
    assert_eq!(joined(&pieces), over);
    // Also where only its fragments together are over it; what follows is read again.
    let fragments = [
        frame(OpCode::Data(Data::Text), false, &[b'b'; 200], None),
        frame(OpCode::Data(Data::Continue), false, &[b'b'; 200], None),
        frame(OpCode::Data(Data::Continue), true, b"b", None),
        text(b"next"),
    ];
    let pieces = taken(&fragments.concat(), 11);
    assert_eq!(texts(&pieces), [b"next"]);
    assert_eq!(joined(&pieces), fragments.concat());
}

#[test]
fn frames_without_content_do_not_come_for_nothing() {
    let first = frame(OpCode::Data(Data::Text), false, b"", None);
    let empty = frame(OpCode::Data(Data::Continue), false, b"", None);
    let mut frames = Frames::new(LIMIT);
    frames.push(&first);
    for _ in 0..10_000 {
        frames.push(&empty);
        assert!(frames.held() <= LIMIT + FRAME_COST);
        while frames.next_piece().is_some() {}
    }
}

#[test]
fn a_control_frame_of_125_bytes_is_one_and_of_126_is_no_websocket() {
    let ping = |len| frame(OpCode::Control(Control::Ping), true, &vec![b'p'; len], None);
    assert_eq!(taken(&ping(125), 9), [Piece::Control(ping(125).into())]);
    let long = [text(b"x"), ping(126), text(b"y")].concat();
    assert_eq!((texts(&taken(&long, 9)), joined(&taken(&long, 9))), (vec![b"x".as_slice()], long));
    // One that says it has two to the 62 bytes: nothing is waited for.
    let mut frames = Frames::new(LIMIT);
    frames.push(&[0x89, 127, 0x40, 0, 0, 0, 0, 0, 0, 0]);
    frames.push(b"more");
    assert_eq!(frames.held(), 0);
}

#[test]
fn what_is_given_up_passes_and_what_follows_is_read_again() {
    let parts = [
        frame(OpCode::Data(Data::Text), false, b"one", None),
        frame(OpCode::Data(Data::Continue), false, &[b'c'; 40], None),
        frame(OpCode::Data(Data::Continue), true, b"three", None),
        text(b"next"),
    ];
    let bytes = parts.concat();
    // Behind the first frame, within the second, and within a message of one frame.
    for (from, upto) in [(0, parts[0].len()), (0, parts[0].len() + 20), (bytes.len() - parts[3].len(), bytes.len() - 2)]
    {
        let mut frames = Frames::new(LIMIT);
        frames.push(&bytes[from..upto]);
        frames.give_up();
        assert_eq!(frames.held(), 0);
        frames.push(&bytes[upto..]);
        frames.push(&text(b"last"));
        let pieces: Vec<Piece> = std::iter::from_fn(|| frames.next_piece()).collect();
        assert_eq!(joined(&pieces), [&bytes[from..], &text(b"last")].concat());
        assert_eq!(texts(&pieces).last(), Some(&b"last".as_slice()), "{from}..{upto}");
        assert!(!texts(&pieces).contains(&b"three".as_slice()));
    }
}

#[test]
fn what_is_no_websocket_passes_from_there_on() {
    let noise = [text(b"x"), vec![0x83, 0xff, 0, 1, 2], text(b"y")].concat();
    let pieces = taken(&noise, 2);
    assert_eq!((texts(&pieces), joined(&pieces)), (vec![b"x".as_slice()], noise));
}

#[test]
fn compressed_and_binary_messages_are_opaque() {
    let mut compressed = text(b"squeezed");
    compressed[0] |= 0x40;
    let binary = frame(OpCode::Data(Data::Binary), true, b"{}", None);
    let pieces = taken(&[compressed, binary, text(b"plain")].concat(), 5);
    assert_eq!(texts(&pieces), [b"plain"]);
}

#[test]
fn an_own_frame_reads_as_what_it_says() {
    for mask in [None, Some([7, 0, 255, 3])] {
        let said = [Bytes::from_static(b"{\"type\":"), Bytes::from_static(b"1}")];
        assert_eq!(texts(&taken(&text_frame(&said, mask), 4)), [b"{\"type\":1}"]);
    }
}

proptest! {
    /// For all bytes and cuts: nothing is lost, added or moved.
    #[test]
    fn all_bytes_go_on_in_order(
        frames in prop::collection::vec((0_u8..6, any::<bool>(), 0_usize..400, any::<Option<[u8; 4]>>()), 0..12),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        step in 1_usize..90,
    ) {
        let opcodes = [
            OpCode::Data(Data::Text),
            OpCode::Data(Data::Continue),
            OpCode::Data(Data::Binary),
            OpCode::Control(Control::Ping),
            OpCode::Control(Control::Pong),
            OpCode::Control(Control::Close),
        ];
        let mut bytes = Vec::new();
        for (opcode, is_final, len, mask) in frames {
            let opcode = opcodes[usize::from(opcode)];
            let len = if matches!(opcode, OpCode::Control(_)) { len % 126 } else { len };
            bytes.extend(frame(opcode, is_final, &vec![b'x'; len], mask));
        }
        bytes.extend(noise);
        let pieces = taken(&bytes, step);
        // A control frame may overtake the fragments around it; all else keeps its place.
        let controls = |pieces: &[Piece]| pieces.iter().filter(|piece| matches!(piece, Piece::Control(_) | Piece::Close(_))).count();
        if controls(&pieces) == 0 {
            prop_assert_eq!(&joined(&pieces), &bytes);
        }
        let (mut got, mut sent) = (joined(&pieces), bytes);
        got.sort_unstable();
        sent.sort_unstable();
        prop_assert_eq!(got, sent);
    }
}
