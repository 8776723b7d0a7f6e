//! Rounds: where the model calls the proxy's own tools, they are run, and the same turn goes on with another model
//! call, until there is an answer for the client. Each call is one for itself: planned, mended, learned from.

mod head;
mod sink;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRAILER};
use http::request::Parts;
use http::{HeaderMap, Response, Version};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::head::without_body_headers;
use self::sink::Sink;
use super::body::Framing;
use super::budget::Permit;
use super::encoding::{Decoder, Encoding};
use super::headers::{self, BodyHeaders};
use super::hold::ERROR_BYTES;
use super::holding::Held;
use super::identity::Names;
use super::intake::Intake;
use super::observe::{DECODED_BYTES, Ending, Tail, Watch};
use super::origin::Tools;
use super::outcome::{Outcome, Record};
use super::overlay::Offered;
use super::reading::{Reading, Who};
use super::relay::RelayError;
use super::reply::{self, Fault, ReplyBody};
use super::spliced::{Spliced, Tally, WAITING};
use super::work::Work;
use super::{Additions, Exchange, Shard, learning};
use crate::config::Strategies;
use crate::store::Tenant;
use crate::tools::definitions::Enabled;
use crate::tools::execution::{Caller, Toolbox};
use crate::tools::sessions::View;
use crate::wire::rounds::{Answer, Ending as RoundEnding, Form, OwnResult, Round};
use crate::wire::splice::splice;
use crate::wire::usage;
use crate::wire::{Dialect, Digest};

/// An answer in the making.
pub(super) struct Rounds {
    shard: Arc<Shard>,
    index: usize,
    dialect: Dialect,
    form: Form,
    /// The client's request.
    parts: Parts,
    intake: Intake,
    /// The client's body, decoded; and what the rounds add behind it.
    client: Bytes,
    added: Vec<u8>,
    offered: Arc<Offered>,
    toolbox: Toolbox,
    most_rounds: usize,
    /// Whose conversation it is, where the answer follows, and how long the body is at least.
    owner: (Tenant, Digest),
    place: (Digest, usize),
    answer: Answer,
    results: Vec<Vec<OwnResult>>,
    /// What was hidden is no part of what the client has.
    forgotten: bool,
    calls: usize,
    tally: Arc<Tally>,
}

/// One model call's answer.
pub(super) struct Call {
    held: Held,
    watch: Option<Box<Watch>>,
}

/// How the making of an answer ended.
enum End {
    Complete,
    /// The client has gone.
    Gone,
    /// The upstream broke off.
    Broken(RelayError),
    /// What is to be relayed as it is.
    Relay(Box<Call>),
    Fault(Fault),
}

impl Exchange<'_> {
    /// Takes over an answer in which the model may call the proxy's tools. `None`: it cannot.
    pub(super) fn rounds(&self, parts: Parts, intake: Intake, work: &Work, held: &Held) -> Option<Rounds> {
        let offered = work.offered()?;
        let overlaid = work.overlaid.as_ref()?;
        if !held.answer.status().is_success() {
            return None;
        }
        let settings = work.origin.strategies.tools.as_ref()?;
        let form = form(held.answer.headers())?;
        // In a coding that cannot be read nothing can be hidden: no tools for this conversation any more.
        if Encoding::of(held.answer.headers()).is_none() {
            let compactor = self.shard.proxy.compactor.as_ref()?;
            compactor.give_up_overlay(work);
            return None;
        }
        let reading = self.shard.proxy.reading.as_ref()?;
        let (tenant, root) = (work.origin.tenant, work.origin.root);
        let (caller, enabled) = (caller(work, reading)?, enabled(&work.origin.strategies));
        let toolbox = Toolbox::new(Arc::clone(reading), caller, enabled, settings.page_chars);
        Some(Rounds {
            shard: Arc::clone(self.shard),
            index: self.index,
            dialect: work.origin.dialect,
            form,
            parts,
            intake,
            client: overlaid.client.clone(),
            added: Vec::new(),
            offered: Arc::clone(offered),
            toolbox,
            most_rounds: settings.max_rounds,
            owner: (tenant, root),
            place: (overlaid.tip, overlaid.least),
            answer: Answer::new(work.origin.dialect, form, offered.names()),
            results: Vec::new(),
            forgotten: false,
            calls: 1,
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
        if rounds.form == Form::Stream {
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
        }
        let mut response = Response::new(ReplyBody::Spliced(Box::new(Spliced::new(pieces, tally, record))));
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_11;
        *response.headers_mut() = head;
        Ok(response)
    }
}

/// Who calls: this conversation, as far as it may see (L7).
fn caller(work: &Work, reading: &Reading) -> Option<Caller> {
    let origin = &work.origin;
    let conversation = origin.read().ok()?;
    let names = Names::of_headers(&origin.headers).with_body(&conversation);
    let session = names.session(&reading.store, &origin.tenant, &origin.root);
    let chain: Vec<Digest> = conversation.chain().copied().collect();
    let scope = origin.strategies.tools.as_ref()?.scope;
    let view = View::of(scope, &names.agent, Some(session.id), Some(&*chain).filter(|_| !session.named));
    let view = view.zip(chain.last()).map(|(view, tip)| view.at(*tip));
    let (tenants, home, who) = (vec![origin.tenant], Some(origin.tenant), Who::Seen(origin.tenant));
    Some(Caller { tenants, home, who, agent: names.agent, view })
}

/// The tools that there are for a request.
pub(super) fn enabled(strategies: &Strategies) -> Enabled {
    Enabled { sessions: strategies.log, memory: strategies.memory.is_some() }
}

/// An encoded answer that is broken, or too long to be put together.
fn undecodable() -> End {
    End::Fault(Fault::new(Outcome::AnswerBroken, "the upstream's encoded answer cannot be read to its end"))
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

impl Rounds {
    /// Writes a stream, until its end or until the client has gone.
    async fn stream(mut self, first: Call, pieces: mpsc::Sender<Result<Bytes, RelayError>>) {
        let gone = pieces.clone();
        let mut sink = Sink::Stream { pieces, shown: false, dialect: self.dialect };
        let end = tokio::select! {
            biased;
            () = gone.closed() => End::Gone,
            end = self.drive(first, &mut sink) => end,
        };
        match end {
            End::Complete | End::Gone => {}
            End::Broken(error) => drop(gone.send(Err(error)).await),
            End::Relay(call) => {
                let error = call.error(self.idle()).await;
                for piece in self.answer.fail(&error) {
                    sink.give(piece).await;
                }
            }
            End::Fault(fault) => {
                for piece in self.answer.fail(&reply::error_body(Some(self.dialect), &fault)) {
                    sink.give(piece).await;
                }
            }
        }
    }

    /// The whole of a JSON answer, or what is relayed in its place.
    async fn whole(mut self, first: Call) -> Result<Bytes, End> {
        let mut sink = Sink::Whole { pieces: Vec::new(), bytes: 0 };
        match (self.drive(first, &mut sink).await, sink) {
            (End::Complete, Sink::Whole { pieces, .. }) => Ok(pieces.concat().into()),
            (end, _) => Err(end),
        }
    }

    /// How long the upstream may be silent.
    fn idle(&self) -> Duration {
        self.shard.upstream(self.index).map(|(route, _)| route.upstream.idle_timeout).unwrap_or_default()
    }

    /// Round after round.
    async fn drive(&mut self, first: Call, sink: &mut Sink) -> End {
        let mut call = first;
        loop {
            match self.pump(call, sink).await {
                Ok(()) => {}
                Err(end) => return end,
            }
            let round = match self.answer.end() {
                RoundEnding::Answered => return self.finish(sink).await,
                RoundEnding::Handed(round) => {
                    self.run(&round).await;
                    self.count("handed");
                    return self.finish(sink).await;
                }
                RoundEnding::Again(_) if self.calls >= self.most_rounds => {
                    self.count("limit");
                    return self.finish(sink).await;
                }
                RoundEnding::Again(round) => round,
            };
            self.count("again");
            let said = self.run(&round).await;
            self.added.extend_from_slice(b",");
            self.added.extend_from_slice(&round.turn);
            self.added.extend_from_slice(b",");
            self.added.extend_from_slice(&said);
            call = match self.go_on(sink).await {
                Ok(call) => call,
                Err(end) => return end,
            };
        }
    }

    /// The next model call's answer. Where it fails and nothing was shown yet, the client's own request takes its place.
    async fn go_on(&mut self, sink: &Sink) -> Result<Call, End> {
        let next = Call::judged(self.next().await);
        if next.is_ok() {
            self.answer.next_round();
            return next;
        }
        self.count("failed");
        if sink.is_shown() { next } else { Call::judged(self.anew().await) }
    }

    fn count(&self, result: &'static str) {
        self.shard.proxy.metrics.round_ended(result);
    }

    /// Runs a round's calls, and gives their results as items.
    async fn run(&mut self, round: &Round) -> Bytes {
        let mut results = Vec::with_capacity(round.calls.len());
        for call in &round.calls {
            let name = self.offered.tool(&call.name).unwrap_or(&call.name);
            results.push(self.toolbox.call(name, &call.arguments).await);
        }
        let items = self.dialect.results(round, &results);
        self.results.push(results);
        items
    }

    /// Ends the answer, once what the client did not see of it is kept.
    async fn finish(&mut self, sink: &mut Sink) -> End {
        let aside = self.answer.aside(&self.results).filter(|_| !self.forgotten);
        if let (Some(aside), Some(compactor)) = (aside, &self.shard.proxy.compactor) {
            compactor.keep_aside(self.owner, self.place, &aside).await;
        }
        for piece in self.answer.finish() {
            if !sink.give(piece).await {
                return End::Gone;
            }
        }
        End::Complete
    }

    /// Hands on what the client is to see of one model call's answer.
    async fn pump(&mut self, call: Call, sink: &mut Sink) -> Result<(), End> {
        let Call { held, mut watch } = call;
        let Held { mut answer, mut pieces, failure, .. } = held;
        let idle = self.idle();
        let encoding = Encoding::of(answer.headers());
        let mut decoder = encoding.and_then(|encoding| Decoder::new(encoding, DECODED_BYTES));
        let mut tail = Tail::default();
        let mut failure = failure.map(RelayError::Upstream);
        loop {
            let data = match pieces.pop_front() {
                Some(piece) => piece,
                None if failure.is_some() => break,
                None => match timeout(idle, answer.body_mut().frame()).await {
                    Ok(None) => break,
                    Ok(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => data,
                        Err(_) => continue,
                    },
                    Ok(Some(Err(error))) => {
                        failure = Some(RelayError::Upstream(error));
                        break;
                    }
                    Err(_) => {
                        failure = Some(RelayError::Idle);
                        break;
                    }
                },
            };
            if let Some(watch) = &mut watch {
                watch.see(&data);
            }
            let data = match &mut decoder {
                None => data,
                Some(decoder) => {
                    let mut decoded = Vec::new();
                    decoder.feed(data, |piece| decoded.extend_from_slice(piece));
                    if decoder.failed().is_some() {
                        return Err(undecodable());
                    }
                    decoded.into()
                }
            };
            tail.push(&data);
            for piece in self.answer.push(&data) {
                if !sink.give(piece).await {
                    return Err(End::Gone);
                }
            }
            // An answer that long has no end that is worth waiting for.
            if sink.is_full() {
                return Err(match decoder {
                    None => sink.rest(answer, pieces, watch),
                    Some(_) => undecodable(),
                });
            }
        }
        if let Some(decoder) = decoder.filter(|_| failure.is_none()) {
            let mut rest = Vec::new();
            decoder.finish(|piece| rest.extend_from_slice(piece)).map_err(|_| undecodable())?;
            tail.push(&rest);
            for piece in self.answer.push(&rest.into()) {
                if !sink.give(piece).await {
                    return Err(End::Gone);
                }
            }
        }
        let bytes = tail.bytes();
        let observed = match self.form {
            Form::Json if tail.is_whole() => usage::from_body(&bytes),
            Form::Json | Form::Stream => usage::from_stream_tail(&bytes, tail.shown()),
        };
        self.tally.round(observed.usage);
        let ending = if failure.is_some() { Ending::Failed } else { Ending::Complete };
        watch.into_iter().for_each(|watch| watch.end(ending));
        failure.map_or(Ok(()), |failure| Err(End::Broken(failure)))
    }

    /// The next model call: the client's body with the rounds behind it.
    async fn next(&mut self) -> Result<Call, End> {
        self.calls += 1;
        let full = || End::Fault(Fault::new(Outcome::AnswerBroken, "the proxy has no room for the rest of this turn"));
        let compactor = self.shard.proxy.compactor.as_ref().ok_or_else(full)?;
        let conversation = compactor.read(self.dialect, &self.client, self.owner.0).await.ok_or_else(full)?;
        let edit = conversation.appended(self.added.get(1..).unwrap_or_default()).ok_or_else(full)?;
        let body: Bytes = splice(&self.client, vec![edit]).map_err(|_| full())?.concat().into();
        let mut permit = Permit::empty(&self.shard.proxy.budget);
        if !permit.grow(body.len()) {
            return Err(full());
        }
        let mut parts = self.parts.clone();
        for name in [CONTENT_ENCODING, TRAILER] {
            parts.headers.remove(name);
        }
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let intake = Intake { body, framing: Framing::Length, trailers: None, permit: Arc::new(permit) };
        self.ask(&parts, &intake, Tools::Offered).await
    }

    /// The client's own body once more, without tools: nothing of the rounds so far was shown.
    async fn anew(&mut self) -> Result<Call, End> {
        self.calls = self.most_rounds;
        self.forgotten = true;
        match self.form {
            // The client has the opening already.
            Form::Stream => self.answer.next_round(),
            Form::Json => self.answer = Answer::new(self.dialect, self.form, self.offered.names()),
        }
        self.ask(&self.parts, &self.intake, Tools::Without).await
    }

    /// One model call.
    async fn ask(&self, parts: &Parts, intake: &Intake, tools: Tools) -> Result<Call, End> {
        let fault = || End::Fault(Fault::new(Outcome::ConnectFailed, "there is no upstream for this request"));
        let (route, clients) = self.shard.upstream(self.index).ok_or_else(fault)?;
        let dialect = Some(self.dialect);
        let exchange = Exchange { shard: &self.shard, index: self.index, route, clients, dialect };
        let Some(mut work) = exchange.work_again(parts, intake, tools).await else {
            let request = http::Request::from_parts(parts.clone(), intake.original());
            let answer = exchange.attempt(request, BodyHeaders::TakenIn).await.map_err(End::Fault)?;
            return Ok(Call { held: Held::untouched(answer), watch: None });
        };
        let held = exchange.attempts(parts, intake, &mut work).await.map_err(End::Fault)?;
        let watch = learning::of_call(&self.shard, &mut work, (held.answer.status(), held.answer.headers()));
        Ok(Call { held, watch })
    }
}

impl Call {
    /// An answer that is an error ends the rounds.
    fn judged(call: Result<Self, End>) -> Result<Self, End> {
        let call = call?;
        if call.held.answer.status().is_success() { Ok(call) } else { Err(End::Relay(Box::new(call))) }
    }

    /// The body of an error, as far as it is worth showing and comes within `idle` from piece to piece.
    async fn error(self, idle: Duration) -> Vec<u8> {
        let Held { mut answer, pieces, .. } = self.held;
        let mut error: Vec<u8> = pieces.into_iter().flatten().collect();
        while let Ok(Some(Ok(frame))) = timeout(idle, answer.body_mut().frame()).await {
            if let Ok(data) = frame.into_data() {
                error.extend_from_slice(&data);
            }
            if error.len() > ERROR_BYTES {
                break;
            }
        }
        error
    }
}
