//! The cases about CPU time and latency. Each takes one figure a target and round.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;

use crate::Error;
use crate::api::Api;
use crate::bodies::{Pieces, Shape, Writer};
use crate::field::{Field, Scale, Spot};
use crate::load::{Load, Measured, run};
use crate::proc::Cpu;
use crate::table::{Figures, Target, median, quantile};

/// Numbers that no two requests of a run share.
#[derive(Default)]
pub struct Serial(Cell<u64>);

impl Serial {
    pub fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

/// A conversation of which all but the last message is known after the first request.
struct Known {
    metric: &'static str,
    conversation: Bytes,
    requests: usize,
    /// Whether its size makes a rewrite due.
    rewritten: bool,
}

/// What the cases send.
pub struct Cases {
    pub api: Api,
    pub writer: Writer,
    pub serial: Serial,
    small: Bytes,
    /// Small as well, with answers that are recorded; none where the API keeps no answers.
    recorded: Option<Bytes>,
    known: Vec<Known>,
    scale: Scale,
}

impl Cases {
    pub fn new(api: Api, scale: Scale) -> Self {
        let writer = Writer::new(api);
        let known = |metric, model, shape, bytes, requests| Known {
            metric,
            conversation: writer.conversation(model, shape, bytes, bytes as u64),
            requests: scale.share(requests),
            rewritten: shape == Shape::Tools,
        };
        let known = vec![
            known("known_256k", "bench-1m", Shape::Talk, 256 << 10, 1_600),
            known("known_256k_checkpoint", "bench-48k", Shape::Tools, 256 << 10, 1_600),
            known("known_1m", "bench-1m", Shape::Talk, 1 << 20, 600),
            known("known_1m_checkpoint", "bench-128k", Shape::Tools, 1 << 20, 600),
        ];
        let small = |shape| writer.conversation("bench-128k", shape, 2_048, 1);
        let recorded = (api == Api::Responses).then(|| small(Shape::Recorded));
        Self { api, small: small(Shape::Talk), recorded, writer, serial: Serial::default(), known, scale }
    }

    /// Requests that differ in their last message only.
    pub fn continued(&self, conversation: &Bytes) -> Pieces {
        Pieces::with_last_message(self.api, conversation, self.serial.next())
    }

    fn load(&self, connections: usize, requests: usize) -> Load {
        Load { api: self.api, connections, requests, time: self.scale.time, pause: Duration::ZERO, answer: "json" }
    }

    /// 2 KB bodies: CPU under load, latency without.
    pub async fn small(&self, field: &Field, figures: &mut Figures) -> Result<(), Error> {
        let kinds =
            [("small_cpu", "small_p50", Some(&self.small)), ("recorded_cpu", "recorded_p50", self.recorded.as_ref())];
        for (under_load, without, body) in kinds {
            let Some(body) = body else { continue };
            let next = || Some(self.continued(body));
            for spot in &field.spots() {
                let busy = self.load(16, self.scale.share(12_000));
                cpu(spot, (under_load, busy), figures, &next).await?;
                let calm = run(spot.address, self.load(1, self.scale.share(2_000)), &next).await;
                record(without, spot, &calm, median(calm.total.clone()), figures);
            }
        }
        Ok(())
    }

    /// Streams whose events are all ready at once: CPU under load, first event without.
    pub async fn streams(&self, field: &Field, figures: &mut Figures) -> Result<(), Error> {
        let next = || Some(self.continued(&self.small));
        for spot in &field.spots() {
            let busy = Load { answer: "sse", ..self.load(16, self.scale.share(5_000)) };
            cpu(spot, ("stream_cpu", busy), figures, &next).await?;
            let calm = Load { answer: "sse", ..self.load(1, self.scale.share(1_500)) };
            let calm = run(spot.address, calm, &next).await;
            record("stream_first", spot, &calm, median(calm.first.clone()), figures);
        }
        Ok(())
    }

    /// Long conversations whose prefix is known.
    pub async fn known(&self, field: &Field, figures: &mut Figures) -> Result<(), Error> {
        for known in &self.known {
            let next = || Some(self.continued(&known.conversation));
            for spot in field.spots().iter().filter(|spot| spot.pid.is_some()) {
                // The first request may wait for a summary, the next ones meet what is due by then.
                run(spot.address, self.load(1, 20), &next).await;
                let load = self.load(8, known.requests);
                let measured = cpu(spot, (known.metric, load), figures, &next).await?;
                if spot.target == Target::Ours {
                    let share = 100 * measured.rewritten / measured.total.len().max(1);
                    figures.note(known.metric, format!("{share} % rewritten"));
                    if known.rewritten && share < 100 {
                        figures.fail(known.metric, spot.target, "no checkpoint in place".into());
                    }
                }
            }
        }
        Ok(())
    }

    /// Conversations of 1 MB that nobody has seen, and what small requests notice of them.
    pub async fn first_sight(&self, field: &Field, figures: &mut Figures) -> Result<(), Error> {
        let count = self.scale.share(8);
        for spot in &field.spots() {
            // The tokenizer is loaded by the first conversation, which is not measured.
            run(spot.address, self.load(1, 1), &self.strangers(1)).await;
            let alone = run(spot.address, self.load(1, count), &self.strangers(count)).await;
            record("first_sight", spot, &alone, median(alone.total.clone()).map(|us| us / 1e3), figures);
            let strangers = self.strangers(count);
            let busy = Cell::new(true);
            let sight = async {
                run(spot.address, self.load(1, count), &strangers).await;
                busy.set(false);
            };
            let ((), probes) = join(sight, self.probes(spot, &busy)).await;
            let p99 = quantile(probes.total.clone(), 0.99).map(|us| us / 1e3);
            record("first_sight_probe", spot, &probes, p99, figures);
        }
        Ok(())
    }

    /// Small requests with pauses while `busy`, on connections of their own, so that every shard gets some.
    async fn probes(&self, spot: &Spot, busy: &Cell<bool>) -> Measured {
        let load = Load { pause: Duration::from_millis(2), ..self.load(8, usize::MAX) };
        run(spot.address, load, &|| busy.get().then(|| self.continued(&self.small))).await
    }

    /// `count` conversations, made beforehand.
    fn strangers(&self, count: usize) -> impl Fn() -> Option<Pieces> + use<> {
        let bodies = (0..count).map(|_| self.stranger("bench-1m", 1 << 20)).collect();
        let bodies: std::cell::RefCell<Vec<Pieces>> = std::cell::RefCell::new(bodies);
        move || bodies.borrow_mut().pop()
    }

    fn stranger(&self, model: &str, bytes: usize) -> Pieces {
        let seed = self.serial.next();
        self.continued(&self.writer.conversation(model, Shape::Tools, bytes, seed))
    }
}

/// CPU microseconds that the target's process takes for each request; nothing for the upstream itself.
async fn cpu(
    spot: &Spot,
    (metric, load): (&'static str, Load),
    figures: &mut Figures,
    next: &dyn Fn() -> Option<Pieces>,
) -> Result<Measured, Error> {
    let Some(pid) = spot.pid else { return Ok(Measured::default()) };
    run(spot.address, Load { requests: load.requests / 10, ..load }, next).await;
    let before = Cpu::of(pid)?;
    let measured = run(spot.address, load, next).await;
    let spent = Cpu::of(pid)?.since(&before) as f64 / 1e3;
    let each = (!measured.total.is_empty()).then(|| spent / measured.total.len() as f64);
    record(metric, spot, &measured, each, figures);
    Ok(measured)
}

fn record(metric: &'static str, spot: &Spot, measured: &Measured, figure: Option<f64>, figures: &mut Figures) {
    if let Some(problem) = measured.failures.first() {
        figures.fail(metric, spot.target, format!("{} failures, the first: {problem}", measured.failures.len()));
    }
    // A round without a figure keeps its place, so that the others still pair up.
    figures.add(metric, spot.target, figure.unwrap_or(f64::NAN));
}
