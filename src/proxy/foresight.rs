//! What recovery would do where strategies only observe: the answer passes as it comes, is judged as it would be if it
//! were held back, and what follows is worked out behind it.

use bytes::Bytes;
use http::StatusCode;

use super::hold::{Coding, Hold, Sent, Step};
use super::work::Work;
use crate::compact::plan::Actions;
use crate::wire::overflow::Verdict;

/// Sees the beginning of an answer pass.
pub struct Foresight {
    hold: Hold,
    work: Box<Work>,
}

impl Foresight {
    /// `None`: recovery would do nothing, or the answer says nothing of what it would do, since another body would have
    /// gone out.
    pub fn of(work: Box<Work>, status: StatusCode) -> Option<Self> {
        if !work.origin.strategies.observe || !work.recovers() || work.actions != Actions::default() {
            return None;
        }
        let mut hold = Hold::new(Sent::Original);
        (hold.on_head(status.as_u16(), Coding::Readable) == Step::Hold).then_some(Self { hold, work })
    }

    /// Takes in a piece of the decoded body; `None`: there is no more to see.
    pub fn see(mut self, decoded: &[u8]) -> Option<Self> {
        let step = self.hold.on_data(Bytes::copy_from_slice(decoded), decoded);
        self.after(step)
    }

    /// The answer is over.
    pub fn finish(mut self) {
        let step = self.hold.on_end();
        self.after(step);
    }

    fn after(self, step: Step) -> Option<Self> {
        match step {
            Step::Hold => return Some(self),
            Step::Recover(verdict) => foresee(self.work, verdict),
            Step::Release | Step::Rejected(_) => {}
        }
        None
    }
}

/// Works out, reports and counts what recovery would make of a request that was refused so.
fn foresee(mut work: Box<Work>, verdict: Verdict) {
    tokio::spawn(async move {
        let shard = std::sync::Arc::clone(&work.origin.shard);
        let Some(compactor) = &shard.proxy.compactor else { return };
        let known = work.known.clone();
        let helps = compactor.recover(&mut work, verdict).await;
        if helps {
            work.report(known);
            shard.proxy.metrics.acted(work.actions.names());
        }
        shard.proxy.metrics.recovery_ended(if helps { "observed" } else { "hopeless" });
    });
}

/// The same for an error that is an event of its own, on a socket.
pub fn told(work: Box<Work>, event: &[u8]) {
    if let Some(foresight) = Foresight::of(work, StatusCode::OK).and_then(|foresight| foresight.see(event)) {
        foresight.finish();
    }
}
