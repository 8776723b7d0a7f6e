//! The circumstances of a session, at random: which strategies, which window, what the provider wants.

use proptest::prelude::*;

use super::history::{Kind, Manner, Marks, Signed};
use super::terms::{DropBlock, Provider, Tells, Terms};
use super::world::World;
use crate::compact::budget::Window;
use crate::config::{
    Auto, CompactionSettings, EvictionSettings, Keep, PruneSettings, SignedThinking, Strategies, TruncateSettings,
};
use crate::wire::overflow::Scope;

/// The circumstances of a session.
#[derive(Clone, Debug)]
pub struct Setup {
    pub strategies: usize,
    pub window: u64,
    /// Whether the proxy knows the window.
    pub knows: Knows,
    pub provider: (f64, Tells),
    pub terms: Terms,
    pub delay: usize,
    pub kinds: [Kind; 2],
    pub manner: Manner,
    pub signed_thinking: SignedThinking,
}

#[derive(Clone, Copy, Debug)]
pub enum Knows {
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
            max_result_tokens: tight.then_some(600),
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
    pub fn world(&self) -> World {
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

/// All that may be.
pub fn setup() -> impl Strategy<Value = Setup> {
    (calm(), terms(), manner(), any::<bool>()).prop_map(|(calm, terms, manner, drops)| Setup {
        terms,
        manner,
        signed_thinking: if drops { SignedThinking::Dropped } else { SignedThinking::Kept },
        ..calm
    })
}

/// Circumstances in which nothing but the length of the prompt counts.
pub fn calm() -> impl Strategy<Value = Setup> {
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
