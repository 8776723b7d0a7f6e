//! Driving the hold-back over a real response: reading it piece by piece until it is clear whether it
//! is relayed or followed by a second attempt.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::hold::{Coding, ERROR_BYTES, Hold, Sent, Step};
use super::legible::Legible;

/// A response of which the beginning was read. All of it can still be relayed.
pub struct Held {
    pub answer: Response<Incoming>,
    pub pieces: VecDeque<Bytes>,
    pub trailers: Option<HeaderMap>,
    /// The upstream broke off behind the pieces.
    pub failure: Option<hyper::Error>,
}

impl Held {
    /// A response of which nothing was read.
    pub fn untouched(answer: Response<Incoming>) -> Self {
        Self { answer, pieces: VecDeque::new(), trailers: None, failure: None }
    }
}

/// Holds `answer` back until it is decided what it is, at most for `patience`.
pub async fn hold(answer: Response<Incoming>, sent: Sent, patience: Duration) -> (Step, Held) {
    let mut hold = Hold::new(sent);
    // Twice the examined bytes: what is decoded of one piece may go beyond them.
    let mut legible = Legible::of(answer.headers(), 2 * ERROR_BYTES);
    let coding = if legible.is_some() { Coding::Readable } else { Coding::Unknown };
    let mut step = hold.on_head(answer.status().as_u16(), coding);
    let mut held = Held::untouched(answer);
    let mut deadline = pin!(tokio::time::sleep(patience));
    while step == Step::Hold {
        let frame = tokio::select! {
            biased;
            frame = held.answer.body_mut().frame() => frame,
            () = &mut deadline => {
                step = hold.on_deadline();
                break;
            }
        };
        step = match frame {
            None => hold.on_end(),
            Some(Err(error)) => {
                held.failure = Some(error);
                hold.on_failed()
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => feed(&mut hold, legible.as_mut(), data),
                Err(frame) => {
                    held.trailers = frame.into_trailers().ok();
                    Step::Hold
                }
            },
        };
    }
    held.pieces = hold.into_held().into();
    (step, held)
}

fn feed(hold: &mut Hold, legible: Option<&mut Legible>, data: Bytes) -> Step {
    let Some(legible) = legible.filter(|legible| !legible.is_plain()) else {
        let text = data.clone();
        return hold.on_data(data, &text);
    };
    let mut decoded = Vec::new();
    legible.feed(&data, |piece| decoded.extend_from_slice(piece));
    let step = hold.on_data(data, &decoded);
    if legible.has_given_up() { hold.on_deadline() } else { step }
}
