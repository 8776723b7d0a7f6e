//! Requests that are looked at before they are sent.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;

use super::super::budget::Permit;
use super::super::origin::Tools;
use super::super::outcome::Record;
use super::Socket;
use super::turn::{Answering, Looking, Message, Turn};
use crate::wire::Dialect;

impl Socket {
    /// Begins to look at a request of the lane at this place.
    pub(super) fn look(&mut self, at: usize, raw: Vec<Bytes>, body: Bytes) {
        // Which lane an event belongs to has to be known before anything can be taken out of an answer.
        let known = self.lanes.are_told_apart();
        let Some(lane) = self.lanes.get_mut(at) else { return };
        let shard = &self.ends.shard;
        let mut permit = Permit::empty(&shard.proxy.budget);
        if !permit.grow(body.len()) {
            lane.turn = Turn::Answering(Answering::one(None));
            return self.ends.send_upstream(raw);
        }
        let mut record = Record::open(Arc::clone(shard));
        record.asked(Some(Dialect::Responses), self.ends.index);
        lane.record = Some(record);
        let permit = vec![Arc::new(permit)];
        let reached = Message::of(&body).previous().and_then(|id| self.ends.reached.get(id));
        let tools = if known { Tools::Offered } else { Tools::Without };
        let (asker, of_look) = (self.ends.asker(), reached.clone());
        let looking = tokio::spawn(async move { asker.look((body, permit), (tools, of_look)).await });
        let work = AbortOnDropHandle::new(looking);
        lane.turn = Turn::Looking(Looking { raw, behind: Vec::new(), reached, work });
    }
}
