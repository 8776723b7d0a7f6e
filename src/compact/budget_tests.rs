use proptest::prelude::*;

use super::*;
use crate::compact::TextKey;
use crate::compact::evict::{Evictor, evictions};
use crate::compact::fixture::{Chat, Message, call, exchange, says, user};
use crate::compact::prune::{Pruner, gain, prune};
use crate::compact::tokens::Tokens;
use crate::compact::truncate::truncate;
use crate::config::{EvictionSettings, PruneSettings, SignedThinking, TruncateSettings};

const K128: Option<Window> = Some(Window { input: 128_000, total: 128_000 });

fn compaction() -> CompactionSettings {
    CompactionSettings {
        trigger_messages: 0,
        trigger_tokens: Auto::Auto,
        reserved_tokens: 20_000,
        keep: Keep::Tokens(Auto::Auto),
        model: None,
        upstream: None,
        summary_prompt: None,
        offload_before_compact: true,
        flush_before_compact: true,
    }
}

fn eviction() -> EvictionSettings {
    EvictionSettings {
        max_result_chars: 80_000,
        max_result_tokens: None,
        preview_chars: 2_000,
        excluded_tools: Vec::new(),
        excluded_limit_factor: 4,
        workspace_dir: None,
    }
}

fn truncation() -> TruncateSettings {
    TruncateSettings {
        trigger_messages: 25,
        trigger_tokens: Auto::Auto,
        keep_messages: 20,
        max_arg_length: 2_000,
        truncation_text: "[{n} {id}]".to_owned(),
        min_gain_tokens: Auto::Auto,
    }
}

fn pruning() -> PruneSettings {
    PruneSettings { protect_tokens: Auto::Auto, min_gain_tokens: Auto::Auto, max_output_chars: 2_000 }
}

fn all() -> Strategies {
    Strategies {
        eviction: Some(eviction()),
        truncate: Some(truncation()),
        prune: Some(pruning()),
        compaction: Some(compaction()),
        recovery: true,
        observe: false,
        signed_thinking: SignedThinking::Kept,
        tools: None,
        memory: None,
        log: false,
    }
}

#[test]
fn defaults_in_a_window_of_128_k() {
    let budget = Budget::new(&all(), K128, None);
    assert_eq!((budget.trigger, budget.prepare(), budget.target()), (Some(108_000), Some(91_800), Some(54_000)));
    assert_eq!((budget.keep, budget.protect), (KeepTail::Tokens(12_800), 32_000));
    assert_eq!((budget.trim, budget.trim_messages), (Some(40_000), Some(25)));
    assert_eq!((budget.truncate_gain, budget.prune_gain), (12_800, 12_800));
    assert_eq!(budget.trigger_messages, None, "0 is off");
}

#[test]
fn requested_output_lowers_the_trigger_to_half_of_input_at_most() {
    let trigger = |output| Budget::new(&all(), K128, Some(output)).trigger;
    assert_eq!(trigger(4_096), Some(108_000), "less than what is reserved");
    assert_eq!(trigger(32_000), Some(96_000));
    assert_eq!(trigger(u64::MAX), Some(64_000));
    let gpt5 = Some(Window { input: 272_000, total: 400_000 });
    assert_eq!(Budget::new(&all(), gpt5, Some(128_000)).trigger, Some(258_400), "95 % of input");
}

#[test]
fn small_windows() {
    let budget = Budget::new(&all(), Window::new(Some(8_192), None), None);
    assert_eq!(budget.trigger, Some(8_192 - 8_192 / 3));
    assert_eq!((budget.keep, budget.trim), (KeepTail::Tokens(2_000), Some(3_276)));
    assert_eq!((budget.protect, budget.prune_gain), (2_048, 819));
}

#[test]
fn unknown_window() {
    let budget = Budget::new(&all(), None, Some(5));
    assert_eq!((budget.trigger, budget.target(), budget.prepare()), (None, None, None));
    assert_eq!((budget.trim, budget.protect), (Some(40_000), 40_000));
    assert_eq!((budget.truncate_gain, budget.prune_gain, budget.keep), (20_000, 20_000, KeepTail::Tokens(32_000)));
    assert!(budget.fits(u64::MAX));
    let mut strategies = all();
    strategies.compaction = Some(CompactionSettings { trigger_messages: 30, ..compaction() });
    let budget = Budget::new(&strategies, None, None);
    assert!(budget.summary_due(0, 30) && !budget.summary_due(u64::MAX, 29));
}

#[test]
fn fixed_triggers() {
    let with = |tokens, window| {
        let settings = CompactionSettings { trigger_tokens: Auto::Fixed(tokens), ..compaction() };
        Budget::new(&Strategies { compaction: Some(settings), ..all() }, window, Some(100_000)).trigger
    };
    assert_eq!(with(60_000, K128), Some(60_000));
    assert_eq!(with(500_000, K128), Some(64_000), "what auto would be beside this output");
    assert_eq!(with(60_000, None), Some(60_000));
    assert_eq!(with(0, K128), None);
    let keep = CompactionSettings { keep: Keep::Messages(10), ..compaction() };
    let budget = Budget::new(&Strategies { compaction: Some(keep), ..all() }, K128, None);
    assert_eq!(budget.keep, KeepTail::Messages(10));
}

#[test]
fn sections_that_are_off_trigger_nothing() {
    let budget = Budget::new(&Strategies::default(), K128, None);
    assert!(!budget.summary_due(u64::MAX, usize::MAX) && !budget.trim_due(u64::MAX, usize::MAX));
    assert_eq!(floor_bytes(&Strategies::default(), K128), usize::MAX);
}

#[test]
fn fits_leaves_a_margin_and_room_for_the_output() {
    let budget = Budget::new(&all(), K128, Some(8_000));
    assert!(budget.fits(119_984) && !budget.fits(119_985) && !budget.fits(u64::MAX));
    assert!(Budget::new(&all(), K128, Some(u64::MAX)).fits(63_984));
}

#[test]
fn a_window_of_one_number() {
    assert_eq!(Window::new(None, None), None);
    assert_eq!(Window::new(Some(0), Some(0)), None);
    assert_eq!(Window::new(Some(5), None), Some(Window { input: 5, total: 5 }));
    assert_eq!(Window::new(None, Some(5)), Some(Window { input: 5, total: 5 }));
    assert_eq!(Window::new(Some(9), Some(5)), Some(Window { input: 5, total: 5 }));
}

#[test]
fn configuration_then_learned_then_table() {
    let window = |input, total| Some(Window { input, total });
    let learned = |input, total| Some(Learned { input, total });
    let set = |input, total| WindowLimits { input, total };
    let unset = WindowLimits::default();
    assert_eq!(Window::resolve(set(Some(10), Some(30)), ("gpt-4o", ""), learned(Some(5), None)), window(10, 30));
    assert_eq!(Window::resolve(set(None, Some(30)), ("gpt-4o", ""), None), window(30, 30));
    assert_eq!(Window::resolve(unset, ("gpt-4o", ""), learned(None, Some(50_000))), window(50_000, 50_000));
    assert_eq!(Window::resolve(unset, ("gpt-4o", ""), None), K128);
    assert_eq!(Window::resolve(unset, ("gpt-5", ""), learned(Some(272_000), None)), window(272_000, 400_000));
    assert_eq!(Window::resolve(unset, ("gpt-5", ""), learned(None, Some(400_000))), window(272_000, 400_000));
    assert_eq!(Window::resolve(unset, ("gpt-5", ""), learned(Some(32_000), None)), window(32_000, 32_000));
    assert_eq!(Window::resolve(unset, ("my-model", ""), learned(None, None)), None);
}

fn small_auto() -> impl Strategy<Value = Auto> {
    prop_oneof![Just(Auto::Auto), (0u64..3_000).prop_map(Auto::Fixed)]
}

prop_compose! {
    fn strategies()(
        chars in 0usize..3_000, result_tokens in proptest::option::of(0usize..1_000),
        arg in 60usize..1_000, truncate_gain in small_auto(), output in 0usize..1_000, prune_gain in small_auto(),
        protect in small_auto(), tokens in small_auto(), messages in 0usize..20,
        on in proptest::array::uniform4(any::<bool>()),
    ) -> Strategies {
        let eviction = EvictionSettings { max_result_chars: chars, max_result_tokens: result_tokens, preview_chars: 50, ..eviction() };
        let truncate = TruncateSettings { max_arg_length: arg, min_gain_tokens: truncate_gain, ..truncation() };
        let prune = PruneSettings { protect_tokens: protect, min_gain_tokens: prune_gain, max_output_chars: output };
        let compaction = CompactionSettings { trigger_tokens: tokens, trigger_messages: messages, ..compaction() };
        Strategies {
            eviction: on[0].then_some(eviction),
            truncate: on[1].then_some(truncate),
            prune: on[2].then_some(prune),
            compaction: on[3].then_some(compaction),
            recovery: false,
            observe: false,
            signed_thinking: SignedThinking::Kept,
            tools: None,
            memory: None,
            log: false,
        }
    }
}

/// What acts on a conversation whose estimates calibration has raised as far as it may.
fn acting(chat: &Chat, strategies: &Strategies, window: Option<Window>, output: u64) -> Vec<&'static str> {
    let (conversation, tokens, key) = (chat.conversation(), Tokens::default(), TextKey([1; 32]));
    let raised = |tokens: u64| (tokens as f64 * Calibration::MAX).ceil() as u64;
    let budget = Budget::new(strategies, window, Some(output));
    let all = 0..conversation.items.len();
    let mut acting = Vec::new();
    if let Some(settings) = &strategies.eviction {
        let evictor = Evictor { settings, key: &key, tokens: &tokens, ways: Default::default() };
        acting.extend((!evictions(&conversation, 0, &evictor).is_empty()).then_some("evict"));
    }
    let gained = |cuts: &[_]| raised(gain(&conversation, cuts, &tokens, &|_, _| None));
    if let Some(settings) = &strategies.truncate {
        let cuts = truncate(&conversation, all.clone(), settings, &key);
        acting.extend((!cuts.is_empty() && gained(&cuts) >= budget.truncate_gain).then_some("truncate"));
    }
    if let Some(settings) = &strategies.prune {
        let pruner = Pruner {
            settings,
            key: &key,
            tokens: &tokens,
            ways: Default::default(),
            protect: budget.protect,
            min_gain: 0,
        };
        let cuts = prune(&conversation, all, &pruner, &|_, _| None);
        acting.extend((!cuts.is_empty() && gained(&cuts) >= budget.prune_gain).then_some("prune"));
    }
    let due = budget.summary_due(raised(tokens.total(&conversation)), conversation.items.len());
    acting.extend(due.then_some("summary"));
    acting
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No strategy has anything to do in a body below the floor.
    #[test]
    fn the_floor_is_sound(
        strategies in strategies(),
        texts in proptest::collection::vec("[a-z]{0,3}|(\\PC|[a-z]{1,8} ){0,150}", 0..8),
        window in proptest::option::of(1_000u64..20_000),
        output in 0u64..20_000,
    ) {
        let mut messages = vec![Message::System("s".into())];
        for (i, text) in texts.iter().enumerate() {
            let arguments = serde_json::json!({ "a": text.repeat(1 + i % 3) }).to_string();
            messages.extend([user(text), says(text), call("c", "w", &arguments)]);
            messages.extend(exchange("d", "bash", &text.repeat(2)));
        }
        let chat = Chat::new(&messages);
        let window = window.and_then(|tokens| Window::new(Some(tokens), None));
        let acting = acting(&chat, &strategies, window, output);
        let floor = floor_bytes(&strategies, window);
        prop_assert!(acting.is_empty() || chat.body.len() >= floor, "{acting:?} in {} < {floor}", chat.body.len());
    }

    #[test]
    fn thresholds_are_in_order(
        input in 1u64..3_000_000, more in 0u64..500_000, output in 0u64..3_000_000, reserved in 0u64..3_000_000, keep in small_auto(),
    ) {
        let settings = CompactionSettings { reserved_tokens: reserved, keep: Keep::Tokens(keep), ..compaction() };
        let window = Window { input, total: input + more };
        let budget = Budget::new(&Strategies { compaction: Some(settings), ..all() }, Some(window), Some(output));
        let trigger = budget.trigger.unwrap();
        prop_assert!(trigger * 2 >= input && trigger <= input);
        prop_assert!(trigger <= input * 95 / 100 || trigger == input.div_ceil(2));
        prop_assert!(budget.prepare().unwrap() <= trigger && budget.target().unwrap() * 2 <= trigger);
        let KeepTail::Tokens(tail) = budget.keep else { unreachable!() };
        prop_assert!(tail <= budget.target().unwrap());
    }
}

/// Text of many tokens a byte.
fn noise(length: usize) -> String {
    let mut state = 7u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90).to_string().replace(['"', '\\'], "~")
    };
    (0..length).map(next).collect()
}

/// One strategy alone.
fn only(set: impl FnOnce(&mut Strategies)) -> Strategies {
    let mut strategies = Strategies::default();
    set(&mut strategies);
    strategies
}

/// The smallest bodies in which a strategy acts, one strategy at a time.
fn edges() -> Vec<(&'static str, Strategies, Vec<Message>)> {
    let truncated = format!(r#"{{"a":"{}"}}"#, noise(2_001));
    let exchanged = |text: &str| exchange("c", "b", text).to_vec();
    vec![
        (
            "summary",
            only(|all| all.compaction = Some(CompactionSettings { trigger_messages: 20, ..compaction() })),
            vec![user(""); 20],
        ),
        (
            "summary",
            only(|all| {
                all.compaction = Some(CompactionSettings { trigger_tokens: Auto::Fixed(9_000), ..compaction() })
            }),
            vec![user(&noise(4_400))],
        ),
        (
            "evict",
            only(|all| all.eviction = Some(EvictionSettings { max_result_chars: 2_000, ..eviction() })),
            exchanged(&noise(2_001)),
        ),
        (
            "evict",
            only(|all| {
                all.eviction =
                    Some(EvictionSettings { max_result_tokens: Some(1_400), preview_chars: 50, ..eviction() })
            }),
            exchanged(&noise(2_001)),
        ),
        (
            "truncate",
            only(|all| all.truncate = Some(TruncateSettings { min_gain_tokens: Auto::Fixed(1), ..truncation() })),
            vec![call("c", "w", &truncated)],
        ),
        (
            "truncate",
            only(|all| {
                let min_gain_tokens = Auto::Fixed(3_900);
                all.truncate = Some(TruncateSettings { min_gain_tokens, max_arg_length: 60, ..truncation() });
            }),
            vec![call("c", "w", &truncated)],
        ),
        (
            "prune",
            only(|all| {
                let (protect_tokens, min_gain_tokens) = (Auto::Fixed(0), Auto::Fixed(1));
                all.prune = Some(PruneSettings { protect_tokens, min_gain_tokens, ..pruning() });
            }),
            exchanged(&noise(2_400)),
        ),
        (
            "prune",
            only(|all| {
                let (protect_tokens, min_gain_tokens) = (Auto::Fixed(0), Auto::Fixed(3_900));
                all.prune = Some(PruneSettings { protect_tokens, min_gain_tokens, max_output_chars: 0 });
            }),
            exchanged(&noise(2_050)),
        ),
    ]
}

#[test]
fn the_floor_is_sound_at_the_edge() {
    for (name, strategies, messages) in edges() {
        let chat = Chat::new(&messages);
        let (floor, length) = (floor_bytes(&strategies, None), chat.body.len());
        assert_eq!(acting(&chat, &strategies, None, 0), [name], "{length} bytes should be just enough");
        assert!(floor <= length, "{name} acts at {length} bytes, the floor is {floor}");
    }
}

#[test]
fn the_floor_spares_small_bodies_from_being_read() {
    assert!(floor_bytes(&all(), K128) > 4_000);
    assert!(floor_bytes(&all(), None) > 6_000);
}
