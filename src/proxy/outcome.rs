//! What became of a request: one exhaustive list, which is the log field, the metric label and
//! the status of the proxy's own errors.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;

use super::Shard;
use super::work::Work;
use crate::compact::plan::Actions;
use crate::telemetry::RequestEnd;
use crate::telemetry::metrics::{OpenStream, Rounds, Stage, StageTimes};
use crate::wire::Dialect;

/// How one request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The upstream's answer reached its end, or its client closed after the stream's last event.
    Relayed,
    /// The client went away before the end.
    ClientGone,
    /// The upstream broke off in the middle of its answer.
    BrokenMidway,
    /// The upstream fell silent in the middle of its answer.
    IdleMidway,
    /// The connection became a tunnel.
    Upgraded,
    /// Answered under the reserved prefix.
    Local,
    /// Contradictory or malformed message framing.
    BadFraming,
    /// A target that is no path (CONNECT).
    BadTarget,
    /// The request's body was malformed, broke off or stopped coming.
    BadBody,
    /// No connection to the upstream.
    ConnectFailed,
    /// No connection to the upstream in time.
    ConnectTimeout,
    /// No trust or no agreement in the TLS handshake with the upstream.
    TlsFailed,
    /// The upstream closed the connection or answered what is no HTTP.
    AnswerBroken,
    /// No response head in time.
    ResponseTimeout,
}

/// Who has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    Client,
    Upstream,
}

impl Outcome {
    /// Every outcome, in the order of the metric's handles.
    pub const ALL: [Self; 14] = [
        Self::Relayed,
        Self::ClientGone,
        Self::BrokenMidway,
        Self::IdleMidway,
        Self::Upgraded,
        Self::Local,
        Self::BadFraming,
        Self::BadTarget,
        Self::BadBody,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::TlsFailed,
        Self::AnswerBroken,
        Self::ResponseTimeout,
    ];

    /// The log field, metric label and `code` of an error body.
    pub fn label(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::ClientGone => "client_gone",
            Self::BrokenMidway => "upstream_broke_off",
            Self::IdleMidway => "upstream_idle",
            Self::Upgraded => "upgraded",
            Self::Local => "local",
            Self::BadFraming => "bad_framing",
            Self::BadTarget => "bad_target",
            Self::BadBody => "bad_body",
            Self::ConnectFailed => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::TlsFailed => "upstream_tls_failed",
            Self::AnswerBroken => "upstream_answer_broken",
            Self::ResponseTimeout => "upstream_response_timeout",
        }
    }

    /// The status of the proxy's own answer; `None` where there is another answer or none.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Relayed | Self::ClientGone | Self::BrokenMidway | Self::IdleMidway | Self::Upgraded | Self::Local => {
                None
            }
            Self::BadFraming | Self::BadBody => Some(StatusCode::BAD_REQUEST),
            Self::BadTarget => Some(StatusCode::METHOD_NOT_ALLOWED),
            Self::ConnectFailed | Self::TlsFailed | Self::AnswerBroken => Some(StatusCode::BAD_GATEWAY),
            Self::ConnectTimeout | Self::ResponseTimeout => Some(StatusCode::GATEWAY_TIMEOUT),
        }
    }

    /// Whose fault it is; `None` where nothing failed.
    pub fn culprit(self) -> Option<Culprit> {
        match self {
            Self::Relayed | Self::Upgraded | Self::Local => None,
            Self::ClientGone | Self::BadFraming | Self::BadTarget | Self::BadBody => Some(Culprit::Client),
            Self::BrokenMidway
            | Self::IdleMidway
            | Self::ConnectFailed
            | Self::ConnectTimeout
            | Self::TlsFailed
            | Self::AnswerBroken
            | Self::ResponseTimeout => Some(Culprit::Upstream),
        }
    }
}

impl Culprit {
    pub fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
        }
    }
}

/// The account of one request. It is closed exactly once; dropped open, the client went away.
pub struct Record {
    shard: Arc<Shard>,
    started: Instant,
    /// Status that the upstream answered; 0 before it did.
    pub status: u16,
    closed: bool,
    dialect: Option<Dialect>,
    /// Index of the upstream.
    upstream: Option<usize>,
    /// What only requests that were looked at have.
    detail: Option<Box<Detail>>,
    _open: OpenStream,
}

struct Detail {
    stages: StageTimes,
    since: Instant,
    actions: Actions,
    tokens: Option<(u64, u64)>,
    /// Model calls of one answer.
    rounds: Option<Rounds>,
}

impl Record {
    pub fn open(shard: Arc<Shard>) -> Self {
        let (started, open) = (Instant::now(), shard.proxy.metrics.open_stream());
        Self { shard, started, status: 0, closed: false, dialect: None, upstream: None, detail: None, _open: open }
    }

    /// What was asked for, of which upstream.
    pub fn asked(&mut self, dialect: Option<Dialect>, upstream: usize) {
        self.dialect = dialect;
        self.upstream = Some(upstream);
    }

    /// The dialect that was asked for, once that is known.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// A stage has ended.
    pub fn stage(&mut self, stage: Stage) {
        let started = self.started;
        let detail = self.detail.get_or_insert_with(|| Box::new(Detail::since(started)));
        let now = Instant::now();
        if let Some(took) = detail.stages.get_mut(stage as usize) {
            *took = Some(now.duration_since(detail.since));
        }
        detail.since = now;
    }

    /// What compaction did.
    pub fn compacted(&mut self, work: &Work) {
        let started = self.started;
        let detail = self.detail.get_or_insert_with(|| Box::new(Detail::since(started)));
        detail.actions = work.actions;
        detail.tokens = work.tokens.map(|tokens| (tokens.before, tokens.after));
    }

    /// The answer was made of several model calls.
    pub fn made_of(&mut self, rounds: Rounds) {
        let started = self.started;
        self.detail.get_or_insert_with(|| Box::new(Detail::since(started))).rounds = Some(rounds);
    }

    /// Closes the account; later calls do nothing.
    pub fn close(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let total = self.started.elapsed();
        let (proxy, detail) = (&self.shard.proxy, self.detail.as_deref());
        let upstream = self.upstream.and_then(|index| proxy.config.upstreams.get(index));
        let upstream = upstream.map_or("", |upstream| &*upstream.name);
        let actions: Vec<&'static str> = detail.map_or_else(Vec::new, |detail| detail.actions.names().collect());
        proxy.metrics.request_ended(&RequestEnd {
            dialect: self.dialect,
            upstream,
            outcome: outcome.label(),
            total,
            stages: detail.map(|detail| detail.stages).unwrap_or_default(),
            tokens: detail.and_then(|detail| detail.tokens),
            actions: &actions,
            // Of one call alone the client is told all.
            rounds: detail.and_then(|detail| detail.rounds).filter(|rounds| rounds.calls > 1),
        });
        let (status, label) = (self.status, outcome.label());
        let elapsed_ms = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        // Joined only where the event is wanted.
        let actions = || actions.join(",");
        let tokens = detail.and_then(|detail| detail.tokens);
        let (before, after) = tokens.unwrap_or_default();
        let Rounds { calls: rounds, input: prompt, output: completion, .. } =
            detail.and_then(|detail| detail.rounds).unwrap_or_default();
        match outcome.culprit() {
            Some(Culprit::Upstream) => {
                tracing::warn!(
                    outcome = label,
                    status,
                    upstream,
                    elapsed_ms,
                    actions = actions(),
                    before,
                    after,
                    rounds,
                    prompt,
                    completion,
                    "request ended"
                );
            }
            Some(Culprit::Client) | None => {
                tracing::debug!(
                    outcome = label,
                    status,
                    upstream,
                    elapsed_ms,
                    actions = actions(),
                    before,
                    after,
                    rounds,
                    prompt,
                    completion,
                    "request ended"
                );
            }
        }
    }
}

impl Detail {
    fn since(since: Instant) -> Self {
        Self { stages: StageTimes::default(), since, actions: Actions::default(), tokens: None, rounds: None }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.close(Outcome::ClientGone);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_outcome_is_listed_at_its_own_index_under_its_own_label() {
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        assert_eq!(Outcome::ALL.map(Outcome::label).into_iter().collect::<HashSet<_>>().len(), Outcome::ALL.len());
    }

    #[test]
    fn what_has_a_status_has_a_culprit() {
        for outcome in Outcome::ALL {
            assert!(outcome.status().is_none() || outcome.culprit().is_some(), "{outcome:?}");
        }
    }
}
