//! Where an answer goes, piece by piece.

use std::collections::VecDeque;

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::super::holding::Held;
use super::super::observe::Watch;
use super::super::relay::RelayError;
use super::{Call, End};
use crate::wire::Dialect;
use crate::wire::rounds::MOST_HELD;

/// Where the answer goes.
pub(super) enum Sink {
    /// `shown`: something beyond the answer's opening has gone out.
    Stream {
        pieces: mpsc::Sender<Result<Bytes, RelayError>>,
        shown: bool,
        dialect: Dialect,
    },
    Whole {
        pieces: Vec<Bytes>,
        bytes: usize,
    },
}

impl Sink {
    /// Hands a piece on. False: nobody wants it any more.
    pub(super) async fn give(&mut self, piece: Bytes) -> bool {
        match self {
            Self::Stream { pieces, shown, dialect } => {
                *shown |= !dialect.opens(&piece);
                piece.is_empty() || pieces.send(Ok(piece)).await.is_ok()
            }
            Self::Whole { pieces, bytes } => {
                *bytes += piece.len();
                pieces.push(piece);
                true
            }
        }
    }

    /// Whether the client has seen something.
    pub(super) fn is_shown(&self) -> bool {
        matches!(self, Self::Stream { shown: true, .. })
    }

    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Whole { bytes, .. } if *bytes > MOST_HELD)
    }

    /// An answer of which the beginning is here, to be relayed as it comes.
    pub(super) fn rest(&mut self, answer: Response<Incoming>, more: VecDeque<Bytes>, watch: Option<Box<Watch>>) -> End {
        let mut held = Held::untouched(answer);
        if let Self::Whole { pieces, .. } = self {
            held.pieces = std::mem::take(pieces).into();
        }
        held.pieces.extend(more);
        End::Relay(Box::new(Call { held, watch }))
    }
}
