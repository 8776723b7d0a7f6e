//! The processes of one round, and how much is asked of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::Error;
use crate::children::{Running, compactproxy, role};
use crate::table::Target;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Requests are divided by this.
    pub divisor: usize,
    pub rounds: usize,
    /// Fresh starts for the memory of idle streams.
    pub starts: usize,
    /// Idle streams at once.
    pub streams: usize,
    /// Requests of the run that watches memory.
    pub marathon: usize,
    /// The longest that one measurement goes on.
    pub time: Duration,
    /// After this no new round begins.
    pub budget: Duration,
}

impl Scale {
    pub const FULL: Self = Self {
        divisor: 1,
        rounds: 5,
        starts: 3,
        streams: 1_000,
        marathon: 10_000,
        time: Duration::from_secs(4),
        budget: Duration::from_secs(180),
    };
    pub const QUICK: Self = Self {
        divisor: 4,
        rounds: 3,
        starts: 1,
        streams: 1_000,
        marathon: 1_000,
        time: Duration::from_secs(1),
        budget: Duration::from_secs(25),
    };

    /// `requests` of a full run, scaled down.
    pub fn share(&self, requests: usize) -> usize {
        (requests / self.divisor).max(2)
    }
}

/// Where a proxy (or the upstream itself) answers.
pub struct Spot {
    pub target: Target,
    pub address: SocketAddr,
    /// Of the proxy; none for the upstream, whose cost is no proxy's.
    pub pid: Option<u32>,
}

/// How the processes are started.
pub struct Starter {
    /// compactproxy's.
    pub binary: PathBuf,
    /// For its configuration and state.
    pub folder: PathBuf,
    /// Sections of its configuration beside those of the strategies.
    pub sections: &'static str,
}

impl Starter {
    /// One proxy in front of `upstream`.
    pub fn proxy(&self, target: Target, upstream: SocketAddr) -> Result<Running, Error> {
        let upstream_text = upstream.to_string();
        match target {
            Target::Direct => Err("the upstream is no proxy".into()),
            Target::Floor => role(&["floor", &upstream_text]),
            Target::Sharded => role(&["sharded", &upstream_text]),
            Target::Ours => compactproxy(&self.binary, upstream, &self.folder, self.sections),
        }
    }
}

/// The upstream and all proxies that could be started.
pub struct Field {
    upstream: Running,
    proxies: Vec<(Target, Running)>,
    /// Why compactproxy is not among them.
    pub missing: Option<String>,
    turn: usize,
}

impl Field {
    pub fn start(starter: &Starter) -> Result<Self, Error> {
        let upstream = role(&["upstream"])?;
        let mut proxies = vec![
            (Target::Floor, starter.proxy(Target::Floor, upstream.address)?),
            (Target::Sharded, starter.proxy(Target::Sharded, upstream.address)?),
        ];
        let missing = match starter.proxy(Target::Ours, upstream.address) {
            Ok(running) => {
                proxies.push((Target::Ours, running));
                None
            }
            Err(problem) => Some(problem.to_string()),
        };
        Ok(Self { upstream, proxies, missing, turn: 0 })
    }

    /// Begins a round: another target goes first, so that none always follows the same one.
    pub fn next_round(&mut self) {
        self.turn += 1;
    }

    /// Where to measure, in this round's order.
    pub fn spots(&self) -> Vec<Spot> {
        let direct = Spot { target: Target::Direct, address: self.upstream.address, pid: None };
        let proxies = self.proxies.iter().map(|(target, running)| Spot {
            target: *target,
            address: running.address,
            pid: Some(running.pid()),
        });
        let mut spots: Vec<Spot> = std::iter::once(direct).chain(proxies).collect();
        let turn = self.turn % spots.len().max(1);
        spots.rotate_left(turn);
        spots
    }
}
