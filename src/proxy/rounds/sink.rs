//! Where an answer goes, piece by piece.

use bytes::Bytes;
use tokio::sync::mpsc;

use super::super::relay::RelayError;
use crate::wire::Dialect;

/// Where the answer goes.
pub(super) enum Sink {
    /// `shown`: something beyond the answer's opening has gone out.
    Stream {
        pieces: mpsc::Sender<Result<Bytes, RelayError>>,
        shown: bool,
        dialect: Dialect,
    },
    Whole(Vec<Bytes>),
}

impl Sink {
    /// Hands a piece on. False: nobody wants it any more.
    pub(super) async fn give(&mut self, piece: Bytes) -> bool {
        match self {
            Self::Stream { pieces, shown, dialect } => {
                *shown = *shown || !dialect.opens(&piece);
                piece.is_empty() || pieces.send(Ok(piece)).await.is_ok()
            }
            Self::Whole(pieces) => {
                pieces.push(piece);
                true
            }
        }
    }

    /// Hands on what says nothing but that somebody is there.
    pub(super) async fn pass(&mut self, pieces: Vec<Bytes>) -> bool {
        let Self::Stream { pieces: queue, .. } = self else { return true };
        for piece in pieces {
            if queue.send(Ok(piece)).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Hands pieces on, as [`give`](Self::give).
    pub(super) async fn give_all(&mut self, pieces: Vec<Bytes>) -> bool {
        for piece in pieces {
            if !self.give(piece).await {
                return false;
            }
        }
        true
    }

    /// Whether the client has seen something.
    pub(super) fn is_shown(&self) -> bool {
        matches!(self, Self::Stream { shown: true, .. })
    }

    /// What was gathered of a whole answer.
    pub(super) fn taken(&mut self) -> Vec<Bytes> {
        match self {
            Self::Stream { .. } => Vec::new(),
            Self::Whole(pieces) => std::mem::take(pieces),
        }
    }
}
