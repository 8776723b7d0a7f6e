//! Rounds: where the model calls the proxy's own tools, they are run, and the same turn goes on with another model
//! call, until there is an answer for the client. Each call is one for itself: planned, mended, learned from.

mod ask;
mod call;
mod draft;
mod drive;
mod head;
mod sink;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Response, Version};
use tokio::sync::mpsc;

use self::call::Call;
pub(super) use self::draft::{Draft, told};
use self::head::without_body_headers;
use super::budget::Permit;
use super::chains::Recorder;
use super::encoding::Encoding;
use super::headers;
use super::hold::Step;
use super::holding::Held;
use super::intake::Intake;
use super::origin::Tools;
use super::outcome::{Outcome, Record};
use super::relay::RelayError;
use super::reply::{Fault, ReplyBody};
use super::spliced::{Spliced, Tally, WAITING};
use super::work::Work;
use super::{Additions, Exchange, Shard};
use crate::config::Strategies;
use crate::tools::definitions::Enabled;
use crate::wire::rounds::Form;

/// An answer in the making.
pub(super) struct Rounds {
    shard: Arc<Shard>,
    index: usize,
    draft: Draft,
    /// The head of the client's request.
    parts: Parts,
    /// The client's request, as long as it may go out once more: until something of the answer is shown.
    intake: Option<Intake>,
    /// The client's body, decoded, as long as another round may follow; and what the rounds add behind it.
    client: Option<Client>,
    added: Vec<u8>,
    /// The share of the buffer cap that the rounds have, and what is held of their answers.
    share: Permit,
    /// Records the answer to the next model call, where others may continue it.
    recorder: Option<Recorder>,
    tally: Arc<Tally>,
}

/// A client's body, decoded, with its share of the buffer cap.
struct Client {
    body: Bytes,
    _permit: Vec<Arc<Permit>>,
}

/// How the making of an answer ended.
enum End {
    Complete,
    /// The client has gone.
    Gone,
    /// The upstream broke off.
    Broken(RelayError),
    /// The answer cannot be held, so that nobody can say what else it names.
    TooLong,
    /// What is to be relayed as it is.
    Relay(Box<Call>),
    /// A success that is no answer: what stands in its place.
    Nothing(Bytes),
    Fault(Fault),
}

impl Exchange<'_> {
    /// An answer in a coding or of a type that cannot be read, in which the model may call the proxy's tools: nothing can
    /// be hidden there. No tools for this conversation any more, and the same call once more without them, unless it was the second
    /// already (L6); should that come to nothing, the answer goes out as it is.
    pub(super) async fn readable(&self, (parts, intake): (&Parts, &Intake), work: &mut Box<Work>, held: Held) -> Held {
        let compactor = self.shard.proxy.compactor.as_ref();
        let may_call = work.offered().is_some() && held.answer.status().is_success();
        let head = held.answer.headers();
        let is_readable = Encoding::of(head).is_some() && form(head).is_some();
        let Some(compactor) = compactor.filter(|_| may_call && !is_readable) else { return held };
        compactor.give_up_overlay(work);
        if work.tried_twice {
            return held;
        }
        let Some(again) = self.work_again(parts, intake, Tools::Without).await else { return held };
        match self.try_once(parts, intake, &again).await {
            Ok((Step::Hold | Step::Release, answer)) if answer.answer.status().is_success() => {
                *work = again;
                answer
            }
            _ => held,
        }
    }

    /// Takes over an answer in which the model may call the proxy's tools. `None`: it cannot.
    pub(super) fn rounds(&self, parts: Parts, intake: Intake, work: &Work, held: &Held) -> Option<Rounds> {
        let overlaid = work.overlaid.as_ref()?;
        if !held.answer.status().is_success() {
            return None;
        }
        let form = form(held.answer.headers())?;
        Encoding::of(held.answer.headers())?;
        let draft = Draft::of(self.shard, work, form)?;
        Some(Rounds {
            shard: Arc::clone(self.shard),
            index: self.index,
            draft,
            parts,
            intake: Some(intake),
            client: Some(Client { body: overlaid.client.clone(), _permit: overlaid.permit.clone() }),
            added: Vec::new(),
            share: Permit::empty(&self.shard.proxy.budget),
            recorder: None,
            tally: Arc::default(),
        })
    }

    /// The answer for the client: at once where it is a stream, else when it is whole.
    pub(super) async fn answer(
        &self,
        rounds: Rounds,
        (held, additions): (Held, Additions),
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        let Additions { notes, watch, .. } = additions;
        let mut head = without_body_headers(&headers::to_client(held.answer.headers().clone()));
        head.extend(notes.clone());
        let status = held.answer.status();
        record.status = status.as_u16();
        let tally = Arc::clone(&rounds.tally);
        let (sender, pieces) = mpsc::channel(WAITING);
        let call = Call { held, watch };
        if rounds.draft.form == Form::Stream {
            let shard = Arc::clone(self.shard);
            shard.tasks.spawn(rounds.stream(call, sender));
        } else {
            let body = match rounds.whole(call).await {
                Ok(body) => body,
                Err(End::Relay(call)) => {
                    let additions = Additions { notes, watch: call.watch, ..Additions::default() };
                    return Ok(self.relay(call.held, additions, record));
                }
                Err(End::Fault(fault)) => return Err((fault, record)),
                Err(_) => {
                    return Err((Fault::new(Outcome::AnswerBroken, "the upstream broke off in its answer"), record));
                }
            };
            head.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
            let _ = sender.try_send(Ok(body));
            tally.finish();
        }
        let mut response = Response::new(ReplyBody::Spliced(Box::new(Spliced::new(pieces, tally, record))));
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_11;
        *response.headers_mut() = head;
        Ok(response)
    }
}

/// The tools that there are for a request.
pub(super) fn enabled(strategies: &Strategies) -> Enabled {
    Enabled { sessions: strategies.log, memory: strategies.memory.is_some() }
}

/// How an answer is written. `None`: in a way that is not read here.
fn form(headers: &HeaderMap) -> Option<Form> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    match () {
        () if kind.starts_with("text/event-stream") => Some(Form::Stream),
        () if kind.starts_with("application/json") => Some(Form::Json),
        () => None,
    }
}
