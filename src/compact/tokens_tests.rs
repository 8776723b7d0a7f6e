use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::compact::calibration::Calibration;
use crate::compact::fixture::{Chat, Message, call, result, says, user};
use crate::wire::{Dialect, Item, Role, Slot, Standing};

fn exact(text: &str) -> u64 {
    Vocabulary::O200k.core().unwrap().encode_ordinary(text).len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Cutting into pieces changes no count as long as no run is longer than a piece may be.
    #[test]
    fn pieces_add_up(text in "([a-zA-Z]{1,6}|[0-9]{1,5}|[ \t]{1,4}|[\r\n]{1,3}|[-'./(){};:\"]{1,3}|['](s|re|LL)|[é的ßЖ\u{301}\u{a0}²\u{3000}]|\\PC){0,40}") {
        prop_assert_eq!(Tokens::default().count_text(&text), exact(&text));
        let other = Tokens::for_model(Some("gpt-4"));
        let cl100k = Vocabulary::Cl100k.core().unwrap().encode_ordinary(&text).len() as u64;
        prop_assert_eq!(other.count_text(&text), cl100k);
    }

    /// No count exceeds the bound from bytes.
    #[test]
    fn bounded_by_bytes(texts in proptest::collection::vec("\\PC{0,60}", 1..8), picture in 0u32..2_000) {
        let mut messages = vec![Message::System(texts[0].clone()), Message::Picture(texts[0].clone(), picture)];
        for text in &texts {
            messages.extend([user(text), call("c", "read", text), result("c", text), says(text)]);
        }
        let chat = Chat::new(&messages);
        let conversation = chat.conversation();
        for model in ["gpt-4o", "gpt-4"] {
            let tokens = Tokens::for_model(Some(model));
            prop_assert!(tokens.total(&conversation) <= bound(&conversation));
            prop_assert!(tokens.total(&conversation) >= u64::from(picture));
        }
    }

    #[test]
    fn calibration_stays_bounded(pairs in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..30)) {
        let mut calibration = Calibration::default();
        for (estimated, reported) in pairs {
            calibration.observe(estimated, reported);
            prop_assert!((Calibration::MIN..=Calibration::MAX).contains(&calibration.factor()));
        }
    }
}

#[test]
fn known_counts() {
    let tokens = Tokens::default();
    assert_eq!(tokens.count_text(""), 0);
    assert_eq!(tokens.count_text("hello world"), 2);
    assert!(tokens.count_text("<|endoftext|>") > 1, "a special token in a text is ordinary text");
    assert_eq!(tokens.count_text("the same again"), tokens.count_text("the same again"));
}

/// Places where the patterns join what looks apart.
#[test]
fn tricky_seams() {
    for text in [
        ".\n/a",
        ";\r\n//x",
        "\n/",
        "a  1",
        "a \n 1",
        "x\n\n  y",
        "don't",
        "I'LL 's",
        "a'1",
        "((a",
        "é1",
        "²3",
        "\u{a0}1",
        "\u{3000} b",
        "a\u{b}b",
    ] {
        let o200k = Vocabulary::O200k.core().unwrap();
        let cl100k = Vocabulary::Cl100k.core().unwrap();
        assert_eq!(Tokens::default().count_text(text), o200k.encode_ordinary(text).len() as u64, "{text:?}");
        let older = Tokens::for_model(Some("gpt-4"));
        assert_eq!(older.count_text(text), cl100k.encode_ordinary(text).len() as u64, "{text:?}");
    }
}

#[test]
fn vocabulary_by_model() {
    for model in ["gpt-4", "gpt-4-turbo", "openai/gpt-4-0613", "gpt-3.5-turbo", "azure/gpt-35-turbo"] {
        assert_eq!(Tokens::for_model(Some(model)).vocabulary, Vocabulary::Cl100k, "{model}");
    }
    for model in ["gpt-4o", "openai/gpt-4.1-mini", "gpt-4.5-preview", "gpt-5", "claude-sonnet-4", "o3", ""] {
        assert_eq!(Tokens::for_model(Some(model)).vocabulary, Vocabulary::O200k, "{model}");
    }
    assert_eq!(Tokens::for_model(None), Tokens::default());
}

#[test]
fn an_item_is_its_texts_names_and_media() {
    let text = "some words to count";
    let chat = Chat::new(&[
        Message::System("be brief".into()),
        user(text),
        Message::Picture(text.into(), 765),
        call("c", "shell", "{}"),
    ]);
    let conversation = chat.conversation();
    let tokens = Tokens::default();
    assert_eq!(tokens.count_item(&conversation, 0), exact(text) + 4);
    assert_eq!(tokens.count_item(&conversation, 1), exact(text) + 765 + 4, "no base64 counted");
    assert_eq!(tokens.count_item(&conversation, 2), exact("{}") + exact("shell") + 4);
    assert_eq!(tokens.count_item(&conversation, 9), 0);
    assert_eq!(conversation.items[0].facts.tokens.get().copied(), Some(exact(text) as u32 + 4), "remembered");
    let tools = r#"[{"type":"function","function":{"name":"shell"}}]"#;
    assert_eq!(tokens.overhead(&conversation), exact("be brief") + 4 + exact(tools));
    let items: u64 = (0..3).map(|i| tokens.count_item(&conversation, i)).sum();
    assert_eq!(tokens.total(&conversation), items + tokens.overhead(&conversation) + 3);
    let older = Tokens::for_model(Some("gpt-4"));
    assert_eq!(older.count_item(&conversation, 1), older.count_item(&conversation, 1));
}

/// Unknown members count by bytes, reasoning as text, what cannot be decoded as it is spelt.
#[test]
fn other_slots() {
    let body = br#"{"role":"user","name":"abcdefgh","reasoning":"some words","content":"\ud800 hi"}"#;
    let at = |value: &str| {
        let start = memchr::memmem::find(body, value.as_bytes()).unwrap();
        start..start + value.len()
    };
    let kinds = [
        (r#""abcdefgh""#, SlotKind::Other),
        (r#""some words""#, SlotKind::Reasoning),
        (r#""\ud800 hi""#, SlotKind::Text),
    ];
    let slots = kinds.iter().map(|&(value, kind)| Slot { span: at(value), kind }).collect();
    let facts = Facts {
        role: Role::User,
        slots,
        calls: Vec::new(),
        results: Vec::new(),
        media: Vec::new(),
        standing: Standing::Plain,
        signed: Vec::new(),
        lasting: false,
        text_bytes: body.len(),
        canonical: [0; 32],
        tokens: OnceLock::new(),
    };
    let item = Item { span: 0..body.len(), facts: Arc::new(facts), chain: [0; 32] };
    let (fields, lead) = (Default::default(), Vec::new());
    let conversation = Conversation {
        dialect: Dialect::Chat,
        body,
        fields,
        lead,
        settled: Vec::new(),
        superseded: Vec::new(),
        items: vec![item],
    };
    let spelt = exact("some words") + exact(r"\ud800 hi");
    assert_eq!(Tokens::default().count_item(&conversation, 0), 3 + spelt + 4);
}

#[test]
fn a_lead_message_is_counted_decoded() {
    assert_eq!(lead_text(br#"{"role":"system","content":"a\nb"}"#).as_deref(), Some("a\nb"));
    assert_eq!(lead_text(br#"{"content":[{"type":"text","text":"a"},{"text":"b"}]}"#).as_deref(), Some("a\nb"));
    assert_eq!(lead_text(br#"{"content":7}"#), None);
}

/// Text that makes a plain tokenizer quadratic or panic. The limit is far above what is needed and
/// far below what a quadratic run costs (100 KB of one letter: minutes).
#[test]
fn pathological_texts_are_cheap() {
    let mut noise = String::new();
    let mut state = 1u64;
    while noise.len() < 5 << 20 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push(char::from(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state >> 58) as usize],
        ));
    }
    let tokens = Tokens::default();
    tokens.count_text("warm");
    for text in [
        "a".repeat(100_000),
        " ".repeat(100_000),
        "=".repeat(100_000),
        "的".repeat(40_000),
        "\n".repeat(100_000),
        noise,
    ] {
        let start = Instant::now();
        let count = tokens.count_text(&text);
        let took = start.elapsed();
        println!("{:>8} bytes {:>7} tokens {took:?}", text.len(), count);
        assert!(count > 0 && count <= text.len() as u64);
        assert!(took < Duration::from_secs(5), "{took:?} for {} bytes", text.len());
    }
}

/// A text counted by samples is counted nearly right, and never beyond its bytes.
#[test]
fn samples_stand_for_the_whole() {
    let lines: String = (0..30_000).map(|i| format!("    let value_{i} = read(input, {});\n", i * 7)).collect();
    let tokens = Tokens::default();
    let whole: u64 = lines.split_inclusive('\n').map(|line| tokens.count_text(line)).sum();
    let sampled = tokens.count_text(&lines);
    assert!(lines.len() > SAMPLE && sampled.abs_diff(whole) * 50 < whole, "{sampled} for {whole}");
    let signs = "é".repeat(SAMPLE);
    assert!(tokens.count_text(&signs) <= signs.len() as u64);
}

/// Forced cuts within a run change the count by little.
#[test]
fn forced_cuts_cost_little() {
    for text in ["a".repeat(20_000), "一二三四五六七八九十".repeat(500), "AbC".repeat(5_000)] {
        let (ours, exact) = (Tokens::default().count_text(&text) as f64, exact(&text) as f64);
        assert!((ours / exact - 1.0).abs() < 0.05, "{ours} for {exact}");
    }
}

#[test]
fn calibration_learns_and_survives_damage() {
    let mut calibration = Calibration::default();
    assert_eq!(calibration.factor(), 1.0);
    calibration.observe(100, 300);
    calibration.observe(1_000, 0);
    assert_eq!(calibration, Calibration::default(), "too small, or not reported");
    for _ in 0..40 {
        calibration.observe(1_000, 1_500);
    }
    assert!((calibration.factor() - 1.5).abs() < 0.01);
    let learned = calibration;
    for impossible in [1, 50, 499, 3_001, 60_000] {
        calibration.observe(1_000, impossible);
    }
    assert_eq!(calibration, learned, "what no tokenizer counts is no count of this text");
    let stored = serde_json::to_string(&calibration).unwrap();
    let read: Calibration = serde_json::from_str(&stored).unwrap();
    assert!((read.factor() - calibration.factor()).abs() < 1e-9);
    let damaged: Calibration = serde_json::from_str(r#"{"factor":1e300}"#).unwrap();
    assert_eq!(damaged.factor(), Calibration::MAX);
    assert_eq!(Calibration::of(f64::NAN).factor(), 1.0);
}
