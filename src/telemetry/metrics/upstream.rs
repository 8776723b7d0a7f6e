//! What is counted of each upstream by itself.

use dashmap::DashMap;
use metrics::{Counter, Histogram, Label};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    REQUEST_SECONDS, REQUESTS, ROUND_CACHED, ROUND_CALLS, ROUND_INPUT, ROUND_OUTPUT, RequestEnd, Rounds, counter,
    histogram,
};
use crate::wire::Dialect;

/// Handles of one upstream, made at their first use.
pub(super) struct Upstream {
    name: String,
    /// By dialect and outcome.
    requests: DashMap<(Option<Dialect>, &'static str), (Counter, Histogram)>,
    /// By dialect: calls, input, cached input and output tokens.
    rounds: DashMap<Option<Dialect>, [Counter; 4]>,
}

impl Upstream {
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), requests: DashMap::new(), rounds: DashMap::new() }
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// Records a request under its labels.
    pub(super) fn ended(&self, end: &RequestEnd<'_>, recorder: &PrometheusRecorder) {
        if let Some(rounds) = end.rounds {
            self.made_of(end.dialect, rounds, recorder);
        }
        let key = (end.dialect, end.outcome);
        let record = |(requests, seconds): &(Counter, Histogram)| {
            requests.increment(1);
            seconds.record(end.total);
        };
        if let Some(known) = self.requests.get(&key) {
            return record(&known);
        }
        let labels = self.labels(end.dialect);
        let outcome = [Label::new("outcome", end.outcome)];
        let requests = counter(recorder, REQUESTS, labels.iter().cloned().chain(outcome).collect());
        let seconds = histogram(recorder, REQUEST_SECONDS, labels);
        let made = (requests, seconds);
        record(&made);
        self.requests.insert(key, made);
    }

    /// Records the model calls of one answer.
    fn made_of(&self, dialect: Option<Dialect>, rounds: Rounds, recorder: &PrometheusRecorder) {
        let Rounds { calls, input, cached, output } = rounds;
        let counters = self.rounds.entry(dialect).or_insert_with(|| {
            let names = [ROUND_CALLS, ROUND_INPUT, ROUND_CACHED, ROUND_OUTPUT];
            names.map(|name| counter(recorder, name, self.labels(dialect)))
        });
        for (counter, count) in counters.iter().zip([calls, input, cached, output]) {
            counter.increment(count);
        }
    }

    fn labels(&self, dialect: Option<Dialect>) -> Vec<Label> {
        vec![Label::new("dialect", dialect_name(dialect)), Label::new("upstream", self.name.clone())]
    }
}

fn dialect_name(dialect: Option<Dialect>) -> &'static str {
    match dialect {
        Some(Dialect::Chat) => "chat",
        Some(Dialect::Responses) => "responses",
        Some(Dialect::Messages) => "messages",
        None => "none",
    }
}
