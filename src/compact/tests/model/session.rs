//! Two agents' sessions under observation.

use std::collections::HashSet;

use super::history::{Agent, Kind, Message};
use super::judge::{self, Judge};
use super::setup::{Setup, strategies};
use super::steps::Step;
use super::store::Store;
use super::turn::Turn;
use super::world::World;
use super::{invariants, laws};
use crate::config::Strategies;
use crate::demo::messages::Binding;
use crate::wire::Digest;

/// A session under observation.
pub struct Session {
    pub world: World,
    judge: Judge,
    agents: [Agent; 2],
    pub last: [Option<Turn>; 2],
    pub at_work: usize,
    whole: HashSet<Digest>,
    clock: usize,
}

impl Session {
    pub fn new(setup: &Setup) -> Self {
        let agents = [0, 1].map(|name| Agent::new(name, setup.kinds[name], setup.manner));
        let judge = Judge::new(Binding::Conversation);
        let (last, whole) = ([None, None], HashSet::new());
        Self { world: setup.world(), judge, agents, last, at_work: 0, whole, clock: 0 }
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Switch => self.at_work = 1 - self.at_work,
            Step::Configure(choice) => {
                let signed_thinking = self.world.strategies.signed_thinking;
                self.world.strategies = Strategies { signed_thinking, ..strategies(*choice) };
            }
            Step::Restart => self.world.restart(),
            Step::Forget => self.lose(|world| world.store.forget()),
            Step::DeleteStore => self.lose(|world| world.store = Store::default()),
            Step::LoseWrites(count) => self.world.store.lost = *count,
            Step::Aside(which) => self.aside(*which),
            _ => self.send(step),
        }
    }

    /// Losing what went whole, or the rows, costs one cache break; thinking that was bound to the rows is lost.
    fn lose(&mut self, what: impl FnOnce(&mut World)) {
        what(&mut self.world);
        self.judge.forgets();
        self.whole.clear();
        self.last = [None, None];
    }

    fn send(&mut self, step: &Step) {
        if matches!(step, Step::Compacted) {
            // The rows of what a compaction stands for no longer apply.
            self.judge.forgets();
        }
        let agent = &mut self.agents[self.at_work];
        let messages = agent.step(step);
        let messages = agent.marked(messages);
        self.clock += 1;
        let raw = agent.body(&messages, self.clock);
        let turn = self.hold(raw, &messages);
        laws::remembered(&turn, &messages);
        laws::frozen(&self.world, self.last[self.at_work].as_ref(), &turn);
        // Also of an old request: where thinking is bound, the client goes on from there.
        self.agents[self.at_work].heard = Some(turn.sent.clone());
        self.last[self.at_work] = Some(turn);
    }

    /// A request beside the others: part of its history is out of sight, or the provider is to compact it.
    fn aside(&mut self, which: usize) {
        let agent = &self.agents[self.at_work];
        let all = agent.marked(agent.messages.clone());
        self.clock += 1;
        let (members, messages) = match (agent.kind, which) {
            (Kind::Items, 0) if !agent.increment().1.is_empty() => {
                let (held, new) = agent.increment();
                let id = self.judge.holds(held);
                (format!(r#""previous_response_id":"{id}","#), new.to_vec())
            }
            (Kind::Items, 1) => (format!(r#""conversation":"{}","#, self.judge.conversation), all),
            (Kind::Items, 2) => {
                let reference = Message::plain(format!(r#"{{"type":"item_reference","id":"{}"}}"#, judge::HELD));
                (String::new(), [vec![reference], all].concat())
            }
            (Kind::Items, 3) => {
                let trigger = Message::plain(r#"{"type":"compaction_trigger"}"#.to_owned());
                (String::new(), [all, vec![trigger]].concat())
            }
            (Kind::Items, 4) => {
                (r#""context_management":[{"type":"compaction","compact_threshold":1000}],"#.to_owned(), all)
            }
            (Kind::Blocks, _) => (r#""context_management":{"edits":[{"type":"compact_20260112"}]},"#.to_owned(), all),
            _ => (String::new(), all),
        };
        let raw = match agent.kind {
            Kind::Items => agent.body_of_items(&messages, self.clock * 2, &members),
            Kind::Blocks => agent.body_of_blocks(&messages, self.clock, &members),
            Kind::Tools | Kind::Text => agent.body(&messages, self.clock),
        };
        let turn = self.hold(raw, &messages);
        invariants::out_of_sight(&turn);
        laws::frozen(&self.world, None, &turn);
        if self.agents[self.at_work].kind == Kind::Blocks {
            // The same history: the next answer is as well one to this.
            self.agents[self.at_work].heard = Some(turn.sent);
        }
    }

    /// Sends a body and asserts what must hold of each request for itself.
    fn hold(&mut self, raw: Vec<u8>, messages: &[Message]) -> Turn {
        let turn = self.world.turn(raw);
        if !turn.stored || turn.original {
            self.judge.forgets();
        }
        self.judge.accepts(&self.agents[self.at_work], &turn);
        laws::recoverable(&self.world, &turn, messages);
        laws::stays_whole(&mut self.whole, &turn);
        laws::only_what_is_on(&self.world, &turn);
        laws::recovered(&self.world, &turn);
        laws::begun_with_memory(&self.judge, &turn);
        invariants::all(&self.world, &turn);
        turn
    }
}
