//! The cases about memory. Each starts its proxies anew, since freed memory of an earlier case would hide growth.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;

use crate::Error;
use crate::bodies::Shape;
use crate::cases::Cases;
use crate::children::role;
use crate::field::{Scale, Starter};
use crate::load::{Load, idle_streams, run};
use crate::proc::rss_kib;
use crate::table::{Figures, Target, median};

/// Requests of one conversation in the long run; the first of them is new, the others continue it.
const TURNS: usize = 20;
/// Readings of the long run.
const READINGS: usize = 20;
/// How long a process may take until its memory is still.
const SETTLE: Duration = Duration::from_secs(2);

/// Memory at start, and what each of many idle streams adds.
pub async fn idle(cases: &Cases, starter: &Starter, scale: Scale, figures: &mut Figures) -> Result<(), Error> {
    let small = cases.writer.conversation("bench-128k", Shape::Talk, 2_048, 1);
    for _ in 0..scale.starts {
        for target in [Target::Floor, Target::Sharded, Target::Ours] {
            let upstream = role(&["upstream"])?;
            let Ok(proxy) = starter.proxy(target, upstream.address) else { continue };
            let before = settled(proxy.pid()).await?;
            figures.add("idle_rss", target, before / 1024.0);
            match idle_streams((proxy.address, cases.api), scale.streams, &|| cases.continued(&small)).await {
                Ok(streams) => {
                    let with_streams = settled(proxy.pid()).await?;
                    figures.add("idle_stream", target, (with_streams - before) / streams.len() as f64);
                }
                Err(problem) => figures.fail("idle_stream", target, problem.to_string()),
            }
        }
    }
    Ok(())
}

/// Resident KiB once two readings a little apart agree.
async fn settled(pid: u32) -> Result<f64, Error> {
    let step = Duration::from_millis(150);
    let mut last = rss_kib(pid)?;
    for _ in 0..SETTLE.as_millis() / step.as_millis() {
        tokio::time::sleep(step).await;
        let now = rss_kib(pid)?;
        if (now - last).abs() < 64.0 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// Many requests of 600 KB, every twentieth the first of a new conversation.
pub async fn marathon(cases: &Cases, starter: &Starter, scale: Scale, figures: &mut Figures) -> Result<(), Error> {
    for target in [Target::Floor, Target::Ours] {
        let upstream = role(&["upstream"])?;
        let Ok(proxy) = starter.proxy(target, upstream.address) else { continue };
        let count = Cell::new(0_usize);
        let current = std::cell::RefCell::new(Bytes::new());
        let next = || {
            if count.replace(count.get() + 1).is_multiple_of(TURNS) {
                let seed = cases.serial.next();
                *current.borrow_mut() = cases.writer.conversation("bench-1m", Shape::Tools, 600_000, seed);
            }
            Some(cases.continued(&current.borrow()))
        };
        let load = Load {
            api: cases.api,
            connections: 4,
            requests: scale.marathon / READINGS,
            time: scale.time * 4,
            pause: Duration::ZERO,
            answer: "json",
        };
        let (mut readings, mut served) = (Vec::new(), 0);
        for _ in 0..READINGS {
            let measured = run(proxy.address, load, &next).await;
            served += measured.total.len();
            if let Some(problem) = measured.failures.first() {
                figures.fail("marathon_rss", target, problem.clone());
            }
            readings.push(rss_kib(proxy.pid())? / 1024.0);
        }
        if target == Target::Ours {
            figures.note("marathon_rss", format!("{served} requests"));
        }
        figures.add("marathon_rss", target, readings.last().copied().unwrap_or(f64::NAN));
        figures.add("marathon_growth", target, growth(&readings).unwrap_or(f64::NAN));
    }
    Ok(())
}

/// The last quarter's median over the second quarter's: the first one fills caches.
fn growth(readings: &[f64]) -> Option<f64> {
    let quarter = readings.len() / 4;
    let early = readings.get(quarter..2 * quarter)?;
    let late = readings.get(3 * quarter..)?;
    Some(median(late.to_vec())? / median(early.to_vec())?)
}
