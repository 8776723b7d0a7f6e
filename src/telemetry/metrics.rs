//! Metrics for Prometheus: `compactproxy_<noun>_<unit>[_total]`. A value of its own, no global:
//! handles are looked up once per set of labels and kept, so that recording is a few atomic additions.

mod upstream;

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use metrics::{Counter, Gauge, Histogram, Key, Label, Metadata, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use self::upstream::Upstream;
use crate::store::Health;
use crate::wire::Dialect;

pub const REQUESTS: &str = "compactproxy_requests_total";
pub const REQUEST_SECONDS: &str = "compactproxy_request_duration_seconds";
pub const STAGE_SECONDS: &str = "compactproxy_stage_duration_seconds";
pub const ACTIONS: &str = "compactproxy_actions_total";
pub const TOKENS_BEFORE: &str = "compactproxy_input_tokens_before_total";
pub const TOKENS_AFTER: &str = "compactproxy_input_tokens_after_total";
pub const TOKENS_CACHED: &str = "compactproxy_input_tokens_cached_total";
pub const OPEN_STREAMS: &str = "compactproxy_open_streams";
pub const BUFFERED_BYTES: &str = "compactproxy_buffered_bytes";
pub const SIDE_CALLS: &str = "compactproxy_side_calls_total";
pub const RECOVERIES: &str = "compactproxy_recoveries_total";
pub const FAIL_OPENS: &str = "compactproxy_fail_opens_total";
pub const TOOL_ROUNDS: &str = "compactproxy_tool_rounds_total";
pub const ROUND_CALLS: &str = "compactproxy_round_calls_total";
pub const ROUND_INPUT: &str = "compactproxy_round_input_tokens_total";
pub const ROUND_CACHED: &str = "compactproxy_round_input_tokens_cached_total";
pub const ROUND_OUTPUT: &str = "compactproxy_round_output_tokens_total";
pub const STORE_UP: &str = "compactproxy_store_up";
pub const STORE_DEGRADED: &str = "compactproxy_store_degraded";
pub const STORE_QUEUE: &str = "compactproxy_store_queue_commits";
pub const LOG_DROPPED: &str = "compactproxy_log_dropped_messages_total";
pub const STORE_DROPPED: &str = "compactproxy_store_dropped_notes_total";

/// Histograms keep their samples until they are drained; this often they are.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Seconds: what the proxy itself does takes microseconds, what it waits for may take minutes.
const STAGE_BUCKETS: [f64; 13] =
    [0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0, 60.0];
/// Seconds: up to the response timeout.
const REQUEST_BUCKETS: [f64; 12] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 900.0];

/// A part of a request's way that is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Until the whole body was there.
    Intake,
    /// Reading the body, known rewrites, the plan.
    Plan,
    /// Committing what was removed.
    Commit,
    /// From sending to the response head.
    Upstream,
}

/// How long each stage took, in the order of their declaration; `None`: it was not gone through.
pub type StageTimes = [Option<Duration>; Stage::ALL.len()];

/// Why a request went out less rewritten than it was due (L2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailOpen {
    /// Known rewrites could not be read in time.
    Lookup,
    /// The plan did not end.
    Plan,
    /// What was to be removed could not be kept.
    Commit,
    /// The provider refused the rewritten body and took the client's own.
    Refused,
    /// The model takes no tools.
    Tools,
}

/// How one request ended. Labels come from enums (`&'static str`), so that their number is bounded.
#[derive(Debug, Clone, Copy)]
pub struct RequestEnd<'r> {
    /// `None`: no dialect that the proxy knows.
    pub dialect: Option<Dialect>,
    /// The upstream's name, as configured.
    pub upstream: &'r str,
    pub outcome: &'static str,
    /// From the first byte in to the last byte out.
    pub total: Duration,
    /// How long the stages took that the request went through.
    pub stages: StageTimes,
    /// Estimated input tokens before and after rewriting; `None` if they were not counted.
    pub tokens: Option<(u64, u64)>,
    /// The names of what was done, as the response header has them.
    pub actions: &'r [&'static str],
    /// What an answer came to that was made of several model calls.
    pub rounds: Option<Rounds>,
}

/// Model calls that became one answer: how many, and the tokens that the provider reported for all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounds {
    pub calls: u64,
    /// Cached ones included.
    pub input: u64,
    pub cached: u64,
    pub output: u64,
}

/// The process's metrics. Cheap to share; never fails.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    upstreams: Vec<Upstream>,
    stages: [Histogram; Stage::ALL.len()],
    tokens_before: Counter,
    tokens_after: Counter,
    tokens_cached: Counter,
    actions: Family,
    side_calls: Family,
    recoveries: Family,
    fail_opens: Family,
    rounds: Family,
    store_queue: Gauge,
    store_dropped: Counter,
    log_dropped: Counter,
    open_streams: Gauge,
    buffered_bytes: Gauge,
    store_up: Gauge,
    store_degraded: Gauge,
}

/// Counters of one name that differ in one label.
struct Family {
    name: &'static str,
    label: &'static str,
    counters: DashMap<&'static str, Counter>,
}

/// One open stream: counted from its making until it is dropped.
pub struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

/// The label of requests to an upstream that is not configured (there should be none).
const OTHER: &str = "other";

impl Metrics {
    /// Metrics for these upstreams, by name.
    pub fn new<'n>(upstreams: impl Iterator<Item = &'n str>) -> Arc<Self> {
        let recorder = with_buckets(PrometheusBuilder::new()).build_recorder();
        describe(&recorder);
        let names = upstreams.chain([OTHER]);
        let stage = |stage: Stage| histogram(&recorder, STAGE_SECONDS, vec![Label::new("stage", stage.name())]);
        Arc::new(Self {
            handle: recorder.handle(),
            upstreams: names.map(Upstream::named).collect(),
            stages: Stage::ALL.map(stage),
            tokens_before: counter(&recorder, TOKENS_BEFORE, Vec::new()),
            tokens_after: counter(&recorder, TOKENS_AFTER, Vec::new()),
            tokens_cached: counter(&recorder, TOKENS_CACHED, Vec::new()),
            actions: Family::new(ACTIONS, "action"),
            side_calls: Family::new(SIDE_CALLS, "result"),
            recoveries: Family::new(RECOVERIES, "result"),
            fail_opens: Family::new(FAIL_OPENS, "reason"),
            rounds: Family::new(TOOL_ROUNDS, "result"),
            store_queue: gauge(&recorder, STORE_QUEUE),
            store_dropped: counter(&recorder, STORE_DROPPED, Vec::new()),
            log_dropped: counter(&recorder, LOG_DROPPED, Vec::new()),
            open_streams: gauge(&recorder, OPEN_STREAMS),
            buffered_bytes: gauge(&recorder, BUFFERED_BYTES),
            store_up: gauge(&recorder, STORE_UP),
            store_degraded: gauge(&recorder, STORE_DEGRADED),
            recorder,
        })
    }

    /// Records how a request ended.
    pub fn request_ended(&self, end: &RequestEnd<'_>) {
        if let Some(upstream) =
            self.upstreams.iter().find(|known| known.is_named(end.upstream)).or(self.upstreams.last())
        {
            upstream.ended(end, &self.recorder);
        }
        for (seconds, took) in self.stages.iter().zip(end.stages) {
            took.into_iter().for_each(|took| seconds.record(took));
        }
        if let Some((before, after)) = end.tokens {
            self.tokens_before.increment(before);
            self.tokens_after.increment(after);
        }
        self.acted(end.actions.iter().copied());
    }

    /// Records what was done to a request, or would have been.
    pub fn acted(&self, actions: impl Iterator<Item = &'static str>) {
        actions.for_each(|action| self.actions.count(action, &self.recorder));
    }

    /// Records how a side call ended.
    pub fn side_call_ended(&self, result: &'static str) {
        self.side_calls.count(result, &self.recorder);
    }

    /// Records how an attempt to recover from an overflow ended.
    pub fn recovery_ended(&self, result: &'static str) {
        self.recoveries.count(result, &self.recorder);
    }

    /// Records that a request went out less rewritten than it was due.
    pub fn failed_open(&self, why: FailOpen) {
        let reason = match why {
            FailOpen::Lookup => "lookup",
            FailOpen::Plan => "plan",
            FailOpen::Commit => "commit",
            FailOpen::Refused => "refused",
            FailOpen::Tools => "tools",
        };
        self.fail_opens.count(reason, &self.recorder);
    }

    /// Records how a model call ended in which the model called the proxy's own tools.
    pub fn round_ended(&self, result: &'static str) {
        self.rounds.count(result, &self.recorder);
    }

    /// Records input tokens that a provider read from its prompt cache.
    pub fn cached(&self, tokens: u64) {
        self.tokens_cached.increment(tokens);
    }

    /// Records how long a commit took.
    pub fn committed(&self, took: Duration) {
        if let Some(seconds) = self.stages.get(Stage::Commit as usize) {
            seconds.record(took);
        }
    }

    /// Counts a stream as open for as long as the value lives.
    #[must_use]
    pub fn open_stream(&self) -> OpenStream {
        self.open_streams.increment(1.0);
        OpenStream(self.open_streams.clone())
    }

    /// Sets how many bytes of bodies are held for all requests together.
    pub fn buffered(&self, bytes: usize) {
        self.buffered_bytes.set(bytes as f64);
    }

    /// Sets the store's health, the commits that wait in it, and the notes that it dropped in all.
    pub fn store(&self, health: Health, queued: usize, dropped: u64) {
        self.store_queue.set(queued as f64);
        self.store_dropped.absolute(dropped);
        self.store_up.set(if health == Health::Up { 1.0 } else { 0.0 });
        self.store_degraded.set(if health == Health::Degraded { 1.0 } else { 0.0 });
    }

    /// Sets how many messages were not logged in all.
    pub fn log_dropped(&self, messages: u64) {
        self.log_dropped.absolute(messages);
    }

    /// Everything in Prometheus's text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }

    /// Drains the histograms' samples now and then, so that they do not pile up between scrapes. Never ends;
    /// the task that runs it is dropped with the server.
    pub async fn upkeep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(UPKEEP_EVERY);
        loop {
            ticks.tick().await;
            self.handle.run_upkeep();
        }
    }
}

impl Family {
    fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label, counters: DashMap::new() }
    }

    fn count(&self, value: &'static str, recorder: &PrometheusRecorder) {
        if let Some(known) = self.counters.get(value) {
            return known.increment(1);
        }
        let made = counter(recorder, self.name, vec![Label::new(self.label, value)]);
        made.increment(1);
        self.counters.insert(value, made);
    }
}

impl Stage {
    /// In the order of the declaration: a stage's number is its place.
    const ALL: [Self; 4] = [Self::Intake, Self::Plan, Self::Commit, Self::Upstream];

    fn name(self) -> &'static str {
        match self {
            Self::Intake => "intake",
            Self::Plan => "plan",
            Self::Commit => "commit",
            Self::Upstream => "upstream",
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new(module_path!(), metrics::Level::INFO, None);

fn counter(recorder: &PrometheusRecorder, name: &'static str, labels: Vec<Label>) -> Counter {
    recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
}

fn gauge(recorder: &PrometheusRecorder, name: &'static str) -> Gauge {
    recorder.register_gauge(&Key::from_name(name), &METADATA)
}

fn histogram(recorder: &PrometheusRecorder, name: &'static str, labels: Vec<Label>) -> Histogram {
    recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
}

/// Buckets are refused only if there are none; the exporter's own summaries would serve then.
fn with_buckets(builder: PrometheusBuilder) -> PrometheusBuilder {
    let stage = Matcher::Full(STAGE_SECONDS.into());
    let request = Matcher::Full(REQUEST_SECONDS.into());
    builder
        .set_buckets_for_metric(stage, &STAGE_BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(request, &REQUEST_BUCKETS))
        .unwrap_or_else(|_| PrometheusBuilder::new())
}

fn describe(recorder: &PrometheusRecorder) {
    let counters = [
        (REQUESTS, "Requests that ended, by dialect, upstream and outcome."),
        (
            ACTIONS,
            "What was done to requests, or would have been to those that are only observed, by action; one request may count under several.",
        ),
        (TOKENS_BEFORE, "Estimated input tokens of counted requests as their clients sent them."),
        (TOKENS_AFTER, "Estimated input tokens of the same requests as they were forwarded."),
        (
            TOKENS_CACHED,
            "Input tokens that providers say they read from their caches, for requests whose bodies were looked at.",
        ),
        (SIDE_CALLS, "The proxy's own model calls, by result."),
        (TOOL_ROUNDS, "Model calls in which the model called the proxy's own tools, by what followed."),
        (ROUND_CALLS, "Model calls of answers that were made of more than one, by dialect and upstream."),
        (
            ROUND_INPUT,
            "Input tokens of all those calls, as providers report them; clients are told those of the last one.",
        ),
        (ROUND_CACHED, "Of these, the tokens that were read from the provider's cache."),
        (ROUND_OUTPUT, "Output tokens of all those calls; clients are told the sum."),
        (RECOVERIES, "Attempts to recover from a context overflow, by result."),
        (FAIL_OPENS, "Requests that went out less rewritten than they were due, because of doubt, by reason."),
        (LOG_DROPPED, "Messages that are missing in the session log: its queue was full, or the store failed."),
        (
            STORE_DROPPED,
            "Notes to the store that were dropped because its queue was full: each may cost a cache break.",
        ),
    ];
    for (name, text) in counters {
        recorder.describe_counter(name.into(), None, text.into());
    }
    let gauges = [
        (OPEN_STREAMS, "Streams that are open now."),
        (BUFFERED_BYTES, "Bytes of bodies held now, of all requests together."),
        (STORE_UP, "1 while the store takes writes."),
        (STORE_QUEUE, "Commits that wait to be written."),
        (STORE_DEGRADED, "1 while the store fails: known rewrites go on, new planned ones do not."),
    ];
    for (name, text) in gauges {
        recorder.describe_gauge(name.into(), None, text.into());
    }
    recorder.describe_histogram(
        REQUEST_SECONDS.into(),
        None,
        "From a request's first byte in to its last byte out.".into(),
    );
    recorder.describe_histogram(STAGE_SECONDS.into(), None, "Stages of a request's way.".into());
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
