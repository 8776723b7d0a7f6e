//! Self-written conversations that are hard to tell apart: few words, put together anew in every text.

use compactproxy::demo::answer::ToolCall;
use serde_json::{Value, json};

use super::queries::Dice;
use crate::support::dialects::Dialect;

const VERBS: [&str; 12] =
    ["parse", "load", "merge", "retry", "flush", "bind", "encode", "verify", "split", "drain", "render", "resolve"];
const NOUNS: [&str; 14] = [
    "config", "window", "ledger", "cursor", "socket", "budget", "tenant", "invoice", "shard", "token", "branch",
    "digest", "session", "header",
];
const QUALITIES: [&str; 8] = ["stale", "empty", "late", "partial", "signed", "frozen", "nested", "remote"];
const PLAIN: [&str; 12] =
    ["before", "which", "fails", "under", "load", "because", "never", "after", "deploy", "returns", "without", "again"];
const HAN: [&str; 40] = [
    "订", "单", "支", "付", "缓", "存", "失", "效", "索", "引", "重", "建", "会", "话", "压", "缩", "窗", "口", "令",
    "牌", "库", "存", "退", "款", "发", "票", "日", "志", "权", "限", "队", "列", "超", "时", "分", "片", "快", "照",
    "回", "滚",
];

/// Requests, each with a conversation of its own.
pub fn conversations(dialect: &dyn Dialect) -> Vec<Value> {
    (0..4).map(|n| conversation(dialect, n)).collect()
}

fn conversation(dialect: &dyn Dialect, n: u64) -> Value {
    let mut dice = Dice(n * 1_000 + 3);
    let mut items = vec![dialect.user(&format!("Work on case {n}."))];
    for step in 0..9 {
        let id = format!("call_{step}");
        let arguments = json!({"command": format!("run {step}"), "content": text(&mut dice, 1_500)}).to_string();
        let call = ToolCall { id: id.clone(), name: "execute".to_owned(), arguments };
        items.extend(dialect.said(&text(&mut dice, 300), &[call]));
        items.extend(dialect.results(&[(id.as_str(), &[text(&mut dice, 3_200)])]));
        if step % 2 == 1 {
            items.extend(dialect.said(&text(&mut dice, 900), &[]));
            items.push(dialect.user(&text(&mut dice, 900)));
        }
    }
    dialect.request(items, false)
}

/// About so many bytes: sentences, code and Chinese.
fn text(dice: &mut Dice, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text += &match dice.below(4) {
            0 => format!("fn {}(x: &{}) -> {} {{ x.{}() }}\n", snake(dice), camel(dice), camel(dice), snake(dice)),
            1 => format!("{} {} the {} of {}.\n", dice.pick(&PLAIN), dice.pick(&VERBS), hump(dice), snake(dice)),
            2 => {
                let words: Vec<&str> =
                    (0..6).map(|n| *if n % 2 == 0 { dice.pick(&PLAIN) } else { dice.pick(&NOUNS) }).collect();
                format!("{}, {}.\n", words.join(" "), dice.below(9_000))
            }
            _ => format!("{}，{}。\n", han(dice), han(dice)),
        };
    }
    text
}

fn snake(dice: &mut Dice) -> String {
    format!("{}_{}_{}", dice.pick(&VERBS), dice.pick(&QUALITIES), dice.pick(&NOUNS))
}

fn camel(dice: &mut Dice) -> String {
    let words = [*dice.pick(&QUALITIES), *dice.pick(&NOUNS), *dice.pick(&VERBS)];
    words.map(capital).concat()
}

fn hump(dice: &mut Dice) -> String {
    let words = [*dice.pick(&QUALITIES), *dice.pick(&NOUNS)];
    format!("{}{}", dice.pick(&VERBS), words.map(capital).concat())
}

fn capital(word: &str) -> String {
    format!("{}{}", word[..1].to_uppercase(), &word[1..])
}

fn han(dice: &mut Dice) -> String {
    (0..6).map(|_| *dice.pick(&HAN)).collect()
}
