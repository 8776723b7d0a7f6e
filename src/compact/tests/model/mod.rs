//! The whole of planning against a world that loses things: one driver for all three dialects, a generator for each
//! ([`chat`], [`items`], [`blocks`]). Random histories, restarts, lost writes, forks, other configurations, other
//! providers; and what must hold of every turn.
//!
//! What must hold of every body that is sent, and where it is asserted:
//!
//! 1. call ids and result ids: [`invariants::paired`], and the pairing rules of [`judge`] (C1, C2, R1, R2, A1, A2, A4);
//! 2. Chat's order of roles: [`invariants::in_order`], and the profiles of [`judge`] (D1–D12); the last message:
//!    [`laws::only_what_is_on`];
//! 3. Messages: [`judge`] (A1–A27, with bound signatures), the turn that goes on: [`invariants::turn_is_whole`];
//! 4. Responses: [`judge`] (R1–R20); what is out of sight: [`invariants::out_of_sight`]; what a compaction stands for:
//!    [`laws::recoverable`], by which no byte before the first item that may be touched differs;
//! 5. arguments that parsed still parse: [`laws::recoverable`];
//! 6. byte identity of all that is not replaced: [`laws::recoverable`], [`invariants::spliced`];
//! 7. smaller, or the error: [`laws::recovered`], [`invariants::smaller`];
//! 8. frozen between activations: [`laws::frozen`], [`laws::stays_whole`];
//! 9. unknown types survive: [`invariants::novel_survives`];
//! 10. output limits: [`invariants::output_only_lowered`]; through the whole proxy: `tests/it/conversations/walk.rs`.

mod blocks;
mod chat;
mod examples;
mod history;
mod invariants;
mod items;
mod judge;
mod laws;
mod states;
mod steps;
mod store;
pub mod world;

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use self::history::{Agent, Kind, Manner, Marks, Message, Signed};
use self::judge::Judge;
use self::steps::{Step, anything, growth};
use self::world::{DropBlock, Provider, Tells, Terms, Turn, World};
use super::budget::Window;
use super::plan::Need;
use crate::config::{
    Auto, CompactionSettings, EvictionSettings, Keep, PruneSettings, SignedThinking, Strategies, TruncateSettings,
};
use crate::demo::messages::Binding;
use crate::wire::overflow::Scope;

/// The circumstances of a session.
#[derive(Clone, Debug)]
struct Setup {
    strategies: usize,
    window: u64,
    /// Whether the proxy knows the window.
    knows: Knows,
    provider: (f64, Tells),
    terms: Terms,
    delay: usize,
    kinds: [Kind; 2],
    manner: Manner,
    signed_thinking: SignedThinking,
}

#[derive(Clone, Copy, Debug)]
enum Knows {
    Window,
    TooMuch,
    Nothing,
}

/// One of many configurations: bits 0 to 3 switch sections off, the others choose limits.
pub fn strategies(choice: usize) -> Strategies {
    let off = |bit: usize| choice >> bit & 1 == 1;
    let tight = off(4);
    let compaction = CompactionSettings {
        trigger_messages: if off(5) { 30 } else { 0 },
        trigger_tokens: Auto::Auto,
        reserved_tokens: 2_000,
        keep: if off(5) { Keep::Messages(10) } else { Keep::Tokens(Auto::Auto) },
        model: None,
        upstream: None,
        summary_prompt: None,
        offload_before_compact: !tight,
        flush_before_compact: true,
    };
    Strategies {
        eviction: (!off(0)).then(|| EvictionSettings {
            max_result_chars: if tight { 1_500 } else { 5_000 },
            max_result_tokens: None,
            preview_chars: 200,
            excluded_tools: vec!["read_file".to_owned(), "todo_write".to_owned()],
            excluded_limit_factor: 4,
            workspace_dir: None,
        }),
        truncate: (!off(1)).then(|| TruncateSettings {
            trigger_messages: 10,
            trigger_tokens: Auto::Auto,
            keep_messages: 5,
            max_arg_length: 300,
            truncation_text: "... [truncated: {n} characters of this past call are hidden, id {id}; do not copy] ..."
                .to_owned(),
            min_gain_tokens: if tight { Auto::Fixed(300) } else { Auto::Auto },
        }),
        prune: (!off(2)).then_some(PruneSettings {
            protect_tokens: if tight { Auto::Fixed(0) } else { Auto::Auto },
            min_gain_tokens: Auto::Auto,
            max_output_chars: 600,
        }),
        recovery: !off(3),
        compaction: (!off(3)).then_some(compaction),
        observe: false,
        signed_thinking: SignedThinking::Kept,
        tools: None,
        memory: None,
        log: false,
    }
}

impl Setup {
    fn world(&self) -> World {
        let window = |input: u64| Window::new(Some(input), None);
        let window = match self.knows {
            Knows::Window => window(self.window),
            Knows::TooMuch => window(self.window * 2),
            Knows::Nothing => None,
        };
        let (factor, tells) = self.provider;
        let strategies = Strategies { signed_thinking: self.signed_thinking, ..strategies(self.strategies) };
        let mut world = World::new(strategies, window, Provider { limit: self.window, factor, tells });
        (world.delay, world.terms) = (self.delay, self.terms);
        world
    }
}

fn setup() -> impl Strategy<Value = Setup> {
    (calm(), terms(), manner(), any::<bool>()).prop_map(|(calm, terms, manner, drops)| Setup {
        terms,
        manner,
        signed_thinking: if drops { SignedThinking::Dropped } else { SignedThinking::Kept },
        ..calm
    })
}

/// Signatures that are bound to the history have a property of their own (`tests/binding.rs`); here they are met in the
/// sessions that come through every way.
fn unbound(setup: Setup) -> Setup {
    Setup { manner: Manner { signed: Signed::Alone, ..setup.manner }, ..setup }
}

/// Circumstances in which nothing but the length of the prompt counts.
fn calm() -> impl Strategy<Value = Setup> {
    let choice = prop_oneof![2 => Just(0_usize), 1 => Just(16), 1 => Just(32), 2 => 0_usize..64];
    let knows = prop_oneof![4 => Just(Knows::Window), 1 => Just(Knows::TooMuch), 1 => Just(Knows::Nothing)];
    let tells = prop_oneof![2 => Just(Tells::Numbers), 1 => Just(Tells::Nothing)];
    let factor = prop_oneof![3 => Just(1.0), 1 => Just(0.8), 1 => Just(1.4)];
    let kind =
        || prop_oneof![5 => Just(Kind::Tools), 1 => Just(Kind::Text), 5 => Just(Kind::Items), 5 => Just(Kind::Blocks)];
    (choice, 5_000_u64..12_000, knows, (factor, tells), 0_usize..3, (kind(), kind())).prop_map(
        |(strategies, window, knows, provider, delay, kinds)| Setup {
            strategies,
            window,
            knows,
            provider,
            terms: Terms::default(),
            delay,
            kinds: [kinds.0, kinds.1],
            manner: Manner::default(),
            signed_thinking: SignedThinking::Kept,
        },
    )
}

fn terms() -> impl Strategy<Value = Terms> {
    let bytes = prop_oneof![3 => Just(None), 1 => (30_000_usize..90_000).prop_map(Some)];
    let scope = prop_oneof![Just(Scope::Input), Just(Scope::Total)];
    let option = prop_oneof![2 => Just(DropBlock::Known), 1 => Just(DropBlock::Unknown)];
    (bytes, scope, option).prop_map(|(bytes, scope, option)| Terms { bytes, scope, option })
}

fn manner() -> impl Strategy<Value = Manner> {
    let output = prop_oneof![3 => Just(None), 1 => Just(Some(1_500)), 2 => Just(Some(4_000))];
    let marks = prop_oneof![Just(Marks::Short), Just(Marks::Long), Just(Marks::Mixed)];
    let signed = prop_oneof![1 => Just(Signed::Alone), 2 => Just(Signed::Bound)];
    (output, marks, signed).prop_map(|(output, marks, signed)| Manner { output, marks, signed })
}

/// A session under observation.
struct Session {
    world: World,
    judge: Judge,
    agents: [Agent; 2],
    last: [Option<Turn>; 2],
    at_work: usize,
    whole: HashSet<crate::wire::Digest>,
    clock: usize,
}

impl Session {
    fn new(setup: &Setup) -> Self {
        let agents = [0, 1].map(|name| Agent::new(name, setup.kinds[name], setup.manner));
        let judge = Judge::new(Binding::Conversation);
        let (last, whole) = ([None, None], HashSet::new());
        Self { world: setup.world(), judge, agents, last, at_work: 0, whole, clock: 0 }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Switch => self.at_work = 1 - self.at_work,
            Step::Configure(choice) => {
                let signed_thinking = self.world.strategies.signed_thinking;
                self.world.strategies = Strategies { signed_thinking, ..strategies(*choice) };
            }
            Step::Restart => self.world.restart(),
            Step::Forget => self.lose(|world| world.store.forget()),
            Step::DeleteStore => self.lose(|world| world.store = store::Store::default()),
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
        if !matches!(step, Step::Peek(_)) {
            self.agents[self.at_work].heard = Some(turn.sent.clone());
        }
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// For all histories and mishaps: every turn is valid, recoverable and frozen, and no rule is forgotten.
    #[test]
    fn the_laws_hold_for_all_sessions(setup in setup().prop_map(unbound), steps in prop::collection::vec(anything(), 1..40)) {
        let mut session = Session::new(&setup);
        steps.iter().for_each(|step| session.step(step));
    }

    /// For all sessions that only grow: compaction is deep and therefore rare, and nothing overflows twice.
    #[test]
    fn compaction_is_deep_and_rare(setup in calm(), steps in prop::collection::vec(growth(), 15..45)) {
        let mut session = Session::new(&setup);
        rare(&mut session, &steps);
    }
}

/// The sessions reach what they are to test: nothing above holds only because it never happens.
#[test]
fn sessions_come_through_every_way() {
    let mut runner = TestRunner::deterministic();
    let sessions = (setup(), prop::collection::vec(anything(), 30..40));
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..24 {
        let (setup, steps) = sessions.new_tree(&mut runner).unwrap().current();
        let mut session = Session::new(&setup);
        for step in &steps {
            session.step(step);
            let Some(turn) = session.last[session.at_work].as_ref().filter(|_| step.sends()) else { continue };
            turn.ways().into_iter().for_each(|way| *ways.entry(way).or_default() += 1);
        }
    }
    let wanted = [
        "bytes",
        "checkpoint",
        "evicted",
        "folded",
        "late",
        "lost",
        "lowered or with the option",
        "now",
        "original",
        "output",
        "prepared",
        "pruned",
        "recovered",
        "refused",
        "shortened",
        "summarized",
        "truncated",
        "untouched",
    ];
    let missing: Vec<_> = wanted.iter().filter(|way| !ways.contains_key(**way)).collect();
    assert!(missing.is_empty(), "{missing:?} never happened: {ways:?}");
}

fn rare(session: &mut Session, steps: &[Step]) {
    let (mut activations, mut recovered_before, mut raw_before) = (0_u64, false, 0);
    for step in steps {
        session.step(step);
        let Some(turn) = &session.last[0] else { continue };
        let raw = session.world.count(&turn.raw);
        // What comes at once may be too much by itself.
        let little = raw - raw_before < session.world.provider.limit / 4;
        raw_before = raw;
        activations += u64::from(turn.known.active != turn.before.active);
        let Some(trigger) = turn.budget.trigger else { continue };
        deep(turn, trigger);
        if let Some(recovery) = &turn.recovery {
            let known = turn.budget.window.is_some_and(|window| window.input == session.world.provider.limit);
            let sizes = [&turn.raw, &recovery.first, &turn.out].map(|body| session.world.count(body));
            let again = recovered_before && known && little && recovery.rung.is_some();
            assert!(!again, "it overflowed again: {sizes:?}, {:?}, {:?}", turn.load, recovery.goal);
        }
        recovered_before = turn
            .recovery
            .as_ref()
            .is_some_and(|recovery| recovery.rung.as_ref().is_some_and(|rung| recovery.reaches(rung.tokens)));
        // Where the window is thought to be larger than it is, the provider's refusal is what fires.
        let fires = trigger.min(session.world.provider.limit);
        let most = 2 * raw.div_ceil(fires - fires / 2) + 1;
        assert!(activations <= most, "{activations} activations for {raw} tokens at a trigger of {fires}");
    }
}

/// A summary that was activated by plan brings the estimate down to its target.
fn deep(turn: &Turn, trigger: u64) {
    let summarized = turn.proposal.actions.summarized || matches!(turn.proposal.summary, Need::Now { .. });
    // What would not make the body smaller is not laid over it.
    let activated = turn.known.active != turn.before.active;
    if !summarized || !activated || !turn.stored || turn.recovery.is_some() {
        return;
    }
    let raw = laws::read(&turn.raw);
    let summarized = turn.known.active.as_deref().map_or(0, super::Checkpoint::summarized);
    let smallest = super::cuts::boundaries(&raw).into_iter().rfind(|cut| *cut < raw.items.len()) <= Some(summarized);
    assert!(smallest || turn.load.tokens <= trigger / 2, "{:?}, {trigger}, {:?}", turn.load, turn.proposal);
}
