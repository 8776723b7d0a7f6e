//! Made-up files, logs and listings: large, varied, the same in every run.

use std::fmt::Write;

/// The line in the middle of the long test log that says what is wrong.
pub const NEEDLE: &str =
    "thread 'settle::late_retry' panicked at src/settle.rs:214:9: order 40417 was posted twice (batch 7719)";

/// As much of it as one remembers.
pub const NEEDLE_BEGINS: &str = "thread 'settle::late_retry' panicked at src/settle.rs:214:9: order ";
/// The title of that log.
pub const LONG_LOG: &str = "unittests src/lib.rs";

const NOUNS: [&str; 16] = [
    "order", "batch", "ledger", "entry", "refund", "retry", "cursor", "tenant", "invoice", "window", "quota", "lease",
    "payload", "account", "receipt", "journal",
];
const VERBS: [&str; 12] = [
    "load", "post", "reserve", "commit", "merge", "verify", "release", "lookup", "append", "settle", "expire", "index",
];

/// A sequence of numbers that depends on nothing but its seed.
struct Sequence(u64);

impl Sequence {
    fn of(seed: &str) -> Self {
        Self(
            seed.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
        )
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }

    fn word(&mut self, words: &[&'static str]) -> &'static str {
        let index = self.next(words.len() as u64) as usize;
        words.get(index).copied().unwrap_or_default()
    }

    fn noun(&mut self) -> &'static str {
        self.word(&NOUNS)
    }

    fn verb(&mut self) -> &'static str {
        self.word(&VERBS)
    }
}

/// A source file of `functions` functions, about 400 bytes each.
pub fn source(path: &str, functions: usize) -> String {
    let mut numbers = Sequence::of(path);
    let mut text = format!("//! {path}\n\nuse crate::error::Error;\nuse crate::store::Store;\n");
    for index in 0..functions {
        let (verb, noun, other) = (numbers.verb(), numbers.noun(), numbers.noun());
        let (limit, field) = (numbers.next(9_000), numbers.noun());
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n/// Tries to {verb} the {noun} of a {other}; gives up after {limit} rows.\n\
             pub async fn {verb}_{noun}_{index}(store: &Store, {other}_id: u64) -> Result<u64, Error> {{\n\
             \x20   let {noun} = store.{verb}({other}_id, {limit}).await?;\n\
             \x20   if {noun}.{field}_count == 0 {{\n        return Err(Error::missing(\"{noun}\", {other}_id));\n    }}\n\
             \x20   tracing::debug!({other}_id, rows = {noun}.{field}_count, \"{verb} {noun}\");\n\
             \x20   Ok({noun}.{field}_count + {})\n}}\n",
            numbers.next(64)
        );
    }
    text
}

/// `hits` lines as a search prints them.
pub fn matches(pattern: &str, hits: usize) -> String {
    let mut numbers = Sequence::of(pattern);
    let lines = (0..hits).map(|_| {
        let (file, line, verb, noun) = (numbers.noun(), numbers.next(900), numbers.verb(), numbers.noun());
        format!(
            "src/{file}.rs:{line}:    let {noun} = self.{pattern}({verb}_{noun}, {}).await?;\n",
            numbers.next(4_000)
        )
    });
    lines.collect()
}

/// A test run's log of at least `bytes` bytes with one telling line in its middle.
pub fn test_log(title: &str, bytes: usize, needle: &str) -> String {
    let mut numbers = Sequence::of(title);
    let mut log = format!("   Compiling harbor v0.7.2 (/srv/harbor)\n     Running {title}\n");
    let mut told = false;
    let mut line = 0;
    while log.len() < bytes {
        line += 1;
        if !told && log.len() > bytes / 2 {
            let _ = writeln!(log, "{needle}");
            told = true;
        }
        let (verb, noun, other) = (numbers.verb(), numbers.noun(), numbers.noun());
        let _ = match line % 7 {
            0 => writeln!(log, "test {noun}::{verb}_{other}_{} ... ok", numbers.next(999)),
            _ => writeln!(
                log,
                "2026-03-14T09:{:02}:{:02}.{:03}Z DEBUG harbor::{noun}: {verb} {other} id={} attempt={}",
                line / 60 % 60,
                line % 60,
                numbers.next(1_000),
                numbers.next(90_000),
                numbers.next(4)
            ),
        };
    }
    log.push_str("failures:\n    settle::late_retry\ntest result: FAILED. 1311 passed; 1 failed; 0 ignored\n");
    log
}

/// A short test run in which all is well.
pub fn green(title: &str, tests: usize) -> String {
    let mut numbers = Sequence::of(title);
    let mut log = format!("     Running {title}\n");
    for _ in 0..tests {
        let _ = writeln!(log, "test {}::{}_{} ... ok", numbers.noun(), numbers.verb(), numbers.noun());
    }
    let _ = writeln!(log, "test result: ok. {tests} passed; 0 failed; 0 ignored");
    log
}
