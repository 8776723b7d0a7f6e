//! One request and its answer at an upstream: taken in, rewritten, attempted, relayed.

use std::sync::Arc;

use http::header::{EXPECT, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Request, Response, Version};
use http_body::Body;
use hyper::body::Incoming;

use super::body::SendBody;
use super::chains::Beginning;
use super::headers::{self, BodyHeaders};
use super::holding::Held;
use super::intake::{self, Intake, Look, Taken};
use super::look::{Looked, Seen};
use super::observe::Watch;
use super::origin::{self, Tools};
use super::outcome::Record;
use super::relay::Relay;
use super::reply::{Fault, ReplyBody};
use super::rounds::Rounds;
use super::route::Route;
use super::upstream::{self, Clients};
use super::work::Work;
use super::{Shard, learning};
use crate::telemetry::metrics::Stage;
use crate::wire::Dialect;

/// One request and its answer at a chosen upstream.
pub(super) struct Exchange<'s> {
    pub(super) shard: &'s Arc<Shard>,
    /// Index of the upstream.
    pub(super) index: usize,
    pub(super) route: &'s Route,
    pub(super) clients: &'s Clients,
    pub(super) dialect: Option<Dialect>,
}

/// What is added to an answer.
#[derive(Default)]
pub(super) struct Additions {
    pub(super) notes: Vec<(HeaderName, HeaderValue)>,
    pub(super) watch: Option<Box<Watch>>,
    /// Where the model may call the proxy's own tools.
    pub(super) rounds: Option<Box<Rounds>>,
}

impl Exchange<'_> {
    /// The body passes as it comes.
    pub(super) async fn stream(
        &self,
        request: Request<Incoming>,
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        record.asked(self.dialect, self.index);
        let models = learning::asks_for_models(request.uri().path()) && request.method() == Method::GET;
        let asked = models.then(|| (request.uri().clone(), request.headers().clone()));
        let expects = request.headers().contains_key(EXPECT);
        let request = if expects { upstream::expect_continue(request) } else { request.map(SendBody::Stream) };
        match self.attempt(request, BodyHeaders::Kept).await {
            Ok(answer) => {
                let watch = asked.and_then(|(uri, headers)| {
                    learning::of_models(self.shard, self.index, (&uri, &headers), answer.headers())
                });
                Ok(self.relay(Held::untouched(answer), Additions { watch, ..Additions::default() }, record))
            }
            Err(fault) => Err((fault, record)),
        }
    }

    /// The body is taken in and perhaps another goes out.
    pub(super) async fn look(
        &self,
        request: Request<Incoming>,
        look: Look,
        mut record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        record.asked(self.dialect, self.index);
        match self.rewrite(request, look, &mut record).await {
            Ok((held, additions)) => self.reply(held, additions, record).await,
            Err(fault) => Err((fault, record)),
        }
    }

    /// The answer as it comes, or as it is put together from several.
    pub(super) async fn reply(
        &self,
        held: Held,
        mut additions: Additions,
        record: Record,
    ) -> Result<Response<ReplyBody>, (Fault, Record)> {
        match additions.rounds.take() {
            None => Ok(self.relay(held, additions, record)),
            Some(rounds) => Box::pin(self.answer(*rounds, (held, additions), record)).await,
        }
    }

    /// Take in → compaction → send → classify → perhaps a second attempt.
    pub(super) async fn rewrite(
        &self,
        request: Request<Incoming>,
        look: Look,
        record: &mut Record,
    ) -> Result<(Held, Additions), Fault> {
        let (parts, body) = request.into_parts();
        let taken = intake::take(&self.shard.proxy, body, self.route.upstream.idle_timeout).await?;
        self.taken(parts, taken, look, record).await
    }

    /// What follows once the body was taken in, or could not be.
    pub(super) async fn taken(
        &self,
        parts: Parts,
        taken: Taken,
        look: Look,
        record: &mut Record,
    ) -> Result<(Held, Additions), Fault> {
        let intake = match taken {
            Taken::Whole(intake) => intake,
            Taken::Passing(body) => return self.untouched(parts, (body, BodyHeaders::TakenIn)).await,
        };
        record.stage(Stage::Intake);
        let mut work = match self.work(&parts, &intake, look).await {
            Looked::Read(work) => work,
            Looked::Unread(seen) if look == Look::Rewrite => {
                return self.unread(&parts, &intake, (seen, record)).await;
            }
            // It is not sent again: what it holds of the buffers is given back as it goes out.
            Looked::Unread(_) => {
                let body = intake.original();
                drop(intake);
                return self.untouched(parts, (body, BodyHeaders::TakenIn)).await;
            }
            Looked::Continued(body, _permit) => {
                let headers = BodyHeaders::Rewritten(body.len() as u64);
                return self.untouched(parts, (intake.rewritten(vec![body]), headers)).await;
            }
        };
        record.stage(Stage::Plan);
        let held = Box::pin(self.attempts(&parts, &intake, &mut work)).await?;
        let held = Box::pin(self.readable((&parts, &intake), &mut work, held)).await;
        record.stage(Stage::Upstream);
        record.compacted(&work);
        let head = (held.answer.status(), held.answer.headers());
        let (notes, rounds) = (work.notes(), self.rounds(parts, intake, &work, &held).map(Box::new));
        let watch = learning::of_last_call(self.shard, work, head);
        Ok((held, Additions { notes, watch, rounds }))
    }

    /// One attempt, whose answer passes as it comes.
    async fn untouched(
        &self,
        parts: Parts,
        (body, headers): (SendBody, BodyHeaders),
    ) -> Result<(Held, Additions), Fault> {
        let answer = self.attempt(Request::from_parts(parts, body), headers).await?;
        Ok((Held::untouched(answer), Additions::default()))
    }

    /// One more model call of the same answer.
    pub(super) async fn work_again(&self, parts: &Parts, intake: &Intake, tools: Tools) -> Option<Box<Work>> {
        let compactor = self.shard.proxy.compactor.as_ref()?;
        match compactor.look(origin::Incoming { tools, ..self.incoming(parts, intake)? }).await {
            Looked::Read(work) => Some(work),
            Looked::Unread(_) | Looked::Continued(..) => None,
        }
    }

    pub(super) async fn work(&self, parts: &Parts, intake: &Intake, look: Look) -> Looked {
        let compactor = self.shard.proxy.compactor.as_ref();
        if let Some((compactor, incoming)) = compactor.zip(self.incoming(parts, intake)) {
            match look {
                Look::Rewrite => return compactor.look(incoming).await,
                Look::Remember => {
                    if let Some((body, permit)) = Box::pin(compactor.pass(incoming)).await {
                        return Looked::Continued(body, permit);
                    }
                }
                Look::Away => {}
            }
        }
        Looked::Unread(Seen::default())
    }

    /// A body that was taken in, as compaction takes it. `None`: it is in no dialect.
    pub(super) fn incoming<'r>(&'r self, parts: &'r Parts, intake: &Intake) -> Option<origin::Incoming<'r>> {
        let (shard, index, dialect) = (self.shard, self.index, self.dialect?);
        let permit = vec![Arc::clone(&intake.permit)];
        let (chains, body) = (Beginning::New, intake.body.clone());
        let (overlaid, tools, reached) = (false, Tools::Offered, None);
        Some(origin::Incoming { shard, index, parts, dialect, chains, body, permit, overlaid, tools, reached })
    }

    /// Headers → upstream. One upstream attempt. Not `async` as a whole, whose future would carry the request.
    pub(super) fn attempt(
        &self,
        mut request: Request<SendBody>,
        body: BodyHeaders,
    ) -> impl Future<Output = Result<Response<Incoming>, Fault>> {
        let headers = std::mem::take(request.headers_mut());
        *request.headers_mut() = headers::to_upstream(headers, self.route, self.dialect, body);
        announce_chunks(&mut request);
        self.clients.send(self.route, request)
    }

    pub(super) fn relay(&self, held: Held, additions: Additions, mut record: Record) -> Response<ReplyBody> {
        let Held { answer, pieces, trailers, failure } = held;
        let (mut parts, body) = answer.into_parts();
        record.status = parts.status.as_u16();
        parts.version = Version::HTTP_11;
        parts.headers = headers::to_client(parts.headers);
        parts.headers.extend(additions.notes);
        let relay = Relay::new(body, self.route.upstream.idle_timeout, record);
        let relay = relay.after(pieces, trailers, failure).watched_by(additions.watch);
        Response::from_parts(parts, ReplyBody::Relay(relay))
    }
}

/// Says that a body of unknown length follows where the client library would take its absence for granted.
fn announce_chunks(request: &mut Request<SendBody>) {
    let bodiless = matches!(*request.method(), Method::GET | Method::HEAD);
    if bodiless && !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}
