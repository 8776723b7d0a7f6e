//! The stage between taking a body in and sending it: what to send in its place.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use super::Proxy;
use super::body::SendBody;
use super::headers::BodyHeaders;
use super::intake::Intake;
use super::observe::Watch;

/// What goes upstream for a request whose body was looked at.
#[derive(Default)]
pub struct Prepared {
    /// The rewritten body, or `None`: the client's own.
    pub pieces: Option<Vec<Bytes>>,
    /// Response headers that tell of the rewrite.
    pub notes: Vec<(HeaderName, HeaderValue)>,
    /// Sees the answer pass. Dropped without its end being told where no answer came.
    pub watch: Option<Box<Watch>>,
}

impl Prepared {
    /// The body to send. Can be made again for a second attempt.
    pub fn body(&self, intake: &Intake) -> SendBody {
        match &self.pieces {
            Some(pieces) => intake.rewritten(pieces.clone()),
            None => intake.original(),
        }
    }

    /// What the body needs of the request's headers.
    pub fn headers(&self) -> BodyHeaders {
        match &self.pieces {
            Some(pieces) => BodyHeaders::Rewritten(pieces.iter().map(|piece| piece.len() as u64).sum()),
            None => BodyHeaders::TakenIn,
        }
    }
}

/// Decides what goes upstream. Forwards the original.
#[expect(clippy::unused_async, reason = "the decision asks the store and may wait for a summary")]
pub async fn prepare(_proxy: &Proxy, _parts: &Parts, _intake: &Intake) -> Prepared {
    Prepared::default()
}
