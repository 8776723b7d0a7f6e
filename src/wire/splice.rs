//! Placing edits in a body: everything outside the edited spans keeps its original bytes.

use std::ops::Range;

use bytes::Bytes;

/// One replacement of a byte range of the body; an empty range is an insertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub span: Range<usize>,
    pub with: Bytes,
}

/// Edits that cannot all be placed. Nothing was: the original goes out (L2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    #[error("an edit of bytes {0:?} lies outside the body or runs backwards")]
    OutOfRange(Range<usize>),
    #[error("an edit of bytes {0:?} begins before the one ahead of it ends")]
    Overlap(Range<usize>),
}

/// The body with `edits` placed, as pieces of the original and of the replacements; nothing is copied
/// and no piece is empty. The edits must be in ascending order and must not overlap; where several
/// touch one place they stand in the order given.
pub fn splice(body: &Bytes, edits: Vec<Edit>) -> Result<Vec<Bytes>, SpliceError> {
    let mut pieces = Vec::with_capacity(edits.len() * 2 + 1);
    let mut at = 0;
    for Edit { span, with } in edits {
        if span.start > span.end || span.end > body.len() {
            return Err(SpliceError::OutOfRange(span));
        }
        if span.start < at {
            return Err(SpliceError::Overlap(span));
        }
        pieces.push(body.slice(at..span.start));
        pieces.push(with);
        at = span.end;
    }
    pieces.push(body.slice(at..));
    pieces.retain(|piece| !piece.is_empty());
    Ok(pieces)
}

/// Which bytes of `body` a piece is; `None`: it came in their place.
pub fn place(body: &[u8], piece: &[u8]) -> Option<Range<usize>> {
    let start = piece.as_ptr().addr().checked_sub(body.as_ptr().addr())?;
    let end = start.checked_add(piece.len())?;
    (end <= body.len()).then_some(start..end)
}

/// Bytes of all pieces together.
pub fn total_len(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(span: Range<usize>, with: &'static str) -> Edit {
        Edit { span, with: Bytes::from_static(with.as_bytes()) }
    }

    #[test]
    fn edits_are_placed_in_order_without_copying() {
        let body = Bytes::from_static(b"0123456789");
        let edits = vec![edit(0..1, "a"), edit(1..1, "b"), edit(1..1, "c"), edit(4..6, ""), edit(10..10, "z")];
        let pieces = splice(&body, edits).unwrap();
        assert_eq!(pieces, [&b"a"[..], b"b", b"c", b"123", b"6789", b"z"]);
        assert_eq!(total_len(&pieces), 11);
        let places: Vec<_> = pieces.iter().map(|piece| place(&body, piece)).collect();
        assert_eq!(places, [None, None, None, Some(1..4), Some(6..10), None], "nothing is copied");
        assert_eq!(splice(&body, Vec::new()).unwrap(), [body]);
    }

    #[test]
    fn edits_that_cannot_be_placed_are_refused() {
        let body = Bytes::from_static(b"0123456789");
        #[expect(clippy::reversed_empty_ranges, reason = "the case that is to be refused")]
        let backwards = 4..2;
        assert_eq!(splice(&body, vec![edit(9..11, "")]), Err(SpliceError::OutOfRange(9..11)));
        assert_eq!(splice(&body, vec![edit(backwards.clone(), "")]), Err(SpliceError::OutOfRange(backwards)));
        assert_eq!(splice(&body, vec![edit(1..4, ""), edit(3..5, "")]), Err(SpliceError::Overlap(3..5)));
        assert_eq!(splice(&body, vec![edit(5..6, ""), edit(1..2, "")]), Err(SpliceError::Overlap(1..2)));
    }

    proptest! {
        /// For all bodies and placeable edits: what is outside the edits is unchanged and in place.
        #[test]
        fn bytes_outside_edits_are_identical(
            kept in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..8),
            cut in prop::collection::vec((0_usize..20, prop::collection::vec(any::<u8>(), 0..20)), 7),
        ) {
            let (mut body, mut expected, mut edits) = (Vec::new(), Vec::new(), Vec::new());
            for (i, keep) in kept.iter().enumerate() {
                body.extend_from_slice(keep);
                expected.extend_from_slice(keep);
                if i + 1 < kept.len() {
                    let (len, with) = &cut[i];
                    edits.push(Edit { span: body.len()..body.len() + len, with: with.clone().into() });
                    body.extend(std::iter::repeat_n(b'-', *len));
                    expected.extend_from_slice(with);
                }
            }
            let pieces = splice(&body.into(), edits).unwrap();
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
            prop_assert_eq!(total_len(&pieces), expected.len());
            prop_assert_eq!(pieces.concat(), expected);
        }
    }
}
