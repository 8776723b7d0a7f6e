//! What several model calls of one answer came to, for the operator.

use crate::support::chat::{attempts, get, words};
use crate::support::dialects::Messages;
use crate::support::wire::patiently;

use super::*;

/// The counters of answers of several calls: calls, input, cached input and output tokens.
async fn counted(proxy: &Served, dialect: &str, calls: u64) -> [u64; 4] {
    let of = |page: &str, name: &str| {
        let start = format!("compactproxy_round_{name}{{dialect=\"{dialect}\",upstream=\"up\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or_default()
    };
    patiently("the account", async {
        loop {
            let page = get(proxy.admin_addr, "/metrics").await.text().to_owned();
            let names = ["calls_total", "input_tokens_total", "input_tokens_cached_total", "output_tokens_total"];
            let counts = names.map(|name| of(&page, name));
            if counts[0] == calls {
                return counts;
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_the_rounds_of_answers_cost_is_counted() {
    for cell in cells() {
        let name = cell.dialect.path().rsplit('/').next().unwrap();
        let name = if name == "completions" { "chat" } else { name };
        let steps = vec![
            step(|request| says("Look. ", vec![own(request, 1)])),
            step(|request| says("", vec![own(request, 2)])),
            found(),
            step(|_| says("One call alone.", vec![])),
            step(|request| says("", vec![own(request, 3)])),
            found(),
        ];
        let (provider, proxy) = staged(steps, "").await;
        let mut body = cell.asked("accounts");
        // Long enough for a provider's cache.
        body[cell.dialect.array()][0] = cell.dialect.user(&words(9, 2_000));
        let mut made: Vec<usize> = Vec::new();
        for _ in 0..3 {
            let before = attempts(&provider).len();
            let had = cell.had(&proxy, &body).await;
            made.push(attempts(&provider).len() - before);
            body = cell.dialect.went_on(&body, &had);
        }
        assert_eq!(made, [3, 1, 2], "{cell:?}");
        let counts = counted(&proxy, name, 5).await;
        let usages: Vec<Usage> = attempts(&provider).iter().map(|exchange| exchange.usage).collect();
        // The second answer was made of one call: its client was told all.
        let of = |count: fn(&Usage) -> u64| [0, 1, 2, 4, 5].map(|at| count(&usages[at])).iter().sum::<u64>();
        let expected = [5, of(|usage| usage.prompt), of(|usage| usage.cached), of(|usage| usage.completion)];
        assert_eq!(counts, expected, "{cell:?}");
        // In Messages only what is marked is cached.
        assert!(expected[2] > 0 || cell.dialect.path() == Messages.path(), "{cell:?} {expected:?}");
    }
}
