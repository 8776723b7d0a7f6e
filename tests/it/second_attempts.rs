//! Of two attempts: which body goes out second, and whose answer the client sees.

use bytes::Bytes;
use compactproxy::demo::answer::Answer;
use compactproxy::demo::encoding::{Encoding, encode};
use compactproxy::demo::provider::{Settings, Verdict};
use compactproxy::demo::script::{Behaviour, Reply, error};
use compactproxy::demo::window::Limit;

use crate::recovery::{COMPACTION, scripted};
use crate::support::chat::{attempts, history, next_turn, pair, parsed, post, post_with, too_long, words};
use crate::support::wire::Listener;

/// A chat template's refusal, as local servers give it: with the status of a failure.
const TEMPLATE: &str =
    "Jinja Exception: After the optional system message, conversation roles must alternate user/assistant/user/...";

fn raw(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Reply {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Reply::Raw { status, headers, body: Bytes::copy_from_slice(body) }
}

/// Overflow, then the second attempt fails as well.
#[tokio::test]
async fn of_two_failures_the_telling_one_is_relayed() {
    let first = || {
        let Reply::Raw { body, .. } = too_long(400) else { unreachable!() };
        raw(400, &[("content-type", "application/json"), ("x-attempt", "first")], &body)
    };
    let second =
        |status| raw(status, &[("x-attempt", "second"), ("retry-after", "7")], b"{\"error\":{\"message\":\"no\"}}");
    let cases = [
        (second(429), 429, "second"),
        (second(503), 503, "second"),
        (second(500), 500, "second"),
        (second(400), 400, "first"),
        (second(401), 400, "first"),
        (error(500, TEMPLATE, "server_error", "x"), 400, "first"),
        (too_long(400), 400, "first"),
        (Reply::HangUp, 400, "first"),
    ];
    for (reply, status, whose) in cases {
        let (provider, proxy) = pair(scripted([first(), reply]), COMPACTION).await;
        let answer = post(proxy.proxy_addr, "k", &history("a", 12, 1_000)).await;
        assert_eq!((answer.status, answer.header("x-attempt")), (status, whose));
        assert_eq!(answer.actions().contains(&"recovered"), whose == "second");
        if whose == "first" {
            let Reply::Raw { body, .. } = first() else { unreachable!() };
            assert_eq!(answer.body, body);
        } else {
            assert_eq!(answer.header("retry-after"), "7");
        }
        assert!(attempts(&provider).len() <= 2);
    }
}

#[tokio::test]
async fn the_first_error_keeps_its_encoding() {
    let Reply::Raw { body, .. } = too_long(400) else { unreachable!() };
    let coded = Bytes::from(encode(Encoding::Gzip, &[body]).await.unwrap().concat());
    let first = raw(400, &[("content-type", "application/json"), ("content-encoding", "gzip")], &coded);
    let (provider, proxy) = pair(scripted([first, error(400, "no", "x", "y")]), COMPACTION).await;
    let answer = post(proxy.proxy_addr, "k", &history("a", 12, 1_000)).await;
    assert_eq!((answer.status, answer.header("content-encoding")), (400, "gzip"));
    assert_eq!(answer.body, coded);
    assert_eq!(attempts(&provider).len(), 2);
}

/// A rewritten body is refused: the original goes out, and only its success condemns the checkpoint, in whose place the
/// next turn has another.
#[tokio::test]
async fn a_refused_rewrite_is_followed_by_the_original() {
    let shape = "messages: unexpected shape";
    for (status, text, reply, seen, quarantined) in [
        (400, shape, None, 200, true),
        (422, shape, None, 200, true),
        (500, TEMPLATE, None, 200, true),
        (400, shape, Some(error(400, "still bad", "x", "own")), 400, false),
        (400, shape, Some(error(429, "slow down", "x", "own")), 429, false),
        (500, TEMPLATE, Some(error(500, TEMPLATE, "x", "own")), 500, false),
        (400, shape, Some(too_long(400)), 400, false),
    ] {
        let bad = error(status, text, "invalid_request_error", "rewritten");
        let done = || Reply::Say(Answer::text("Done."));
        let replies = [too_long(400), done(), bad, reply.clone().unwrap_or_else(done)];
        let (provider, proxy) = pair(scripted(replies), COMPACTION).await;
        let body = history("a", 12, 1_000);
        assert_eq!(post(proxy.proxy_addr, "k", &body).await.status, 200);
        let next = next_turn(&body, "Go on.");
        let answer = post(proxy.proxy_addr, "k", &next).await;
        assert_eq!(answer.status, seen, "{reply:?}");
        assert_eq!(answer.actions(), Vec::<&str>::new(), "what went out is the client's own");
        if seen != 200 && reply.is_some() {
            assert!(!answer.text().contains("rewritten"), "the own body's error: {}", answer.text());
        }
        let sent = attempts(&provider);
        assert_eq!(sent.len(), 4);
        assert!(sent[2].body.len() < sent[3].body.len());
        assert_eq!(sent[3].body, next.to_string());

        let last = post(proxy.proxy_addr, "k", &next_turn(&next, "And on.")).await;
        let expected = if quarantined { vec!["summarized"] } else { vec!["checkpoint"] };
        assert_eq!((last.status, last.actions()), (200, expected), "{reply:?}");
    }
}

#[tokio::test]
async fn a_rewritten_body_that_overflows_is_compacted_deeper() {
    let done = || Reply::Say(Answer::text("Done."));
    for (fourth, status) in [(done(), 200), (error(400, "no", "x", "second"), 400)] {
        let (provider, proxy) = pair(scripted([too_long(400), done(), too_long(400), fourth]), COMPACTION).await;
        let body = history("a", 12, 1_000);
        post(proxy.proxy_addr, "k", &body).await;
        let answer = post(proxy.proxy_addr, "k", &next_turn(&body, &words(5, 2_000))).await;
        let sent = attempts(&provider);
        assert_eq!((answer.status, sent.len()), (status, 4), "{}", answer.text());
        assert!(sent[3].body.len() < sent[2].body.len());
        assert_eq!(answer.text().contains("context_length_exceeded"), status == 400, "the first error");
        assert_eq!(provider.violations(), []);
    }
}

/// A rewritten body that overflows is a refused rewrite where recovery is off: the client's own error.
#[tokio::test]
async fn with_recovery_off_a_rewritten_overflow_is_the_originals() {
    let sections = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n[compaction]\n[overflow_recovery]\nenabled = false\n";
    let (provider, proxy) = pair(scripted([too_long(400), error(400, "own", "x", "own")]), sections).await;
    let answer = post(proxy.proxy_addr, "k", &history("a", 12, 1_000)).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("own") && answer.actions().is_empty());
    assert_eq!(attempts(&provider).len(), 2);
}

/// An edge refuses a body by its length before it has read it.
#[tokio::test]
async fn an_early_refusal_is_mended() {
    let listener = Listener::bind().await;
    let proxy = crate::support::proxy::start(parsed(&listener.url(), COMPACTION));
    let body = history("a", 12, 10_000).to_string();
    let (addr, asked) = (proxy.proxy_addr, body.clone());
    let client = tokio::spawn(async move { post_with(addr, &[], asked.into()).await });
    let mut edge = listener.accept().await;
    edge.head().await;
    edge.send("HTTP/1.1 413 Request Entity Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    edge.exactly(body.len()).await;
    drop(edge);
    // The summary is asked for as well; it is refused.
    let answer = loop {
        let mut server = listener.accept().await;
        let head = server.head().await.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let sent = server.exactly(length.trim().parse().unwrap()).await;
        let done = String::from_utf8_lossy(&sent).contains("You are a careful engineer.");
        let answer = if done { "200 OK" } else { "500 No" };
        server.send(format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}")).await;
        if done {
            assert!(sent.len() < body.len() / 2);
            break client.await.unwrap();
        }
    };
    assert_eq!((answer.status, answer.text()), (200, "{}"));
    assert!(answer.actions().contains(&"recovered"));
}

/// Several requests with one history overflow at once: the first checkpoint is everybody's.
#[tokio::test]
async fn who_overflows_together_is_compacted_alike() {
    for sections in [COMPACTION, "[compaction]\nmodel = \"other\"\n"] {
        let settings = Settings { limit: Limit::of(6_000), ..Settings::default() };
        let (provider, proxy) = pair(settings, sections).await;
        let (addr, body) = (proxy.proxy_addr, history("a", 12, 1_000));
        let asking: Vec<_> = (0..5)
            .map(|_| {
                let body = body.clone();
                tokio::spawn(async move { post(addr, "k", &body).await })
            })
            .collect();
        for task in asking {
            let answer = task.await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let accepted: Vec<_> =
            attempts(&provider).into_iter().filter(|sent| sent.verdict == Verdict::Accepted).collect();
        assert_eq!(accepted.len(), 5);
        assert!(accepted.iter().all(|sent| sent.body == accepted[0].body));
        let next = post(addr, "k", &next_turn(&body, "Go on.")).await;
        assert_eq!((next.status, next.actions()), (200, vec!["checkpoint"]));
        assert_eq!(provider.violations(), []);
    }
}

/// Evictions that the provider will not have are given up: no session pays twice for every turn.
#[tokio::test]
async fn refused_evictions_are_given_up() {
    let behaviour = Behaviour::new(|request| match request.all_text().contains("/_compactproxy/evicted/") {
        true => error(400, "content was filtered", "invalid_request_error", "filtered"),
        false => Reply::Say(Answer::text("Done.")),
    });
    let sections = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 100\n[compaction]\n";
    let (provider, proxy) = pair(Settings { behaviour, ..Settings::default() }, sections).await;
    let mut body = history("a", 2, 1_000);
    for attempted in [2, 2, 1, 1] {
        let before = attempts(&provider).len();
        let answer = post(proxy.proxy_addr, "k", &body).await;
        assert_eq!((answer.status, answer.actions().len()), (200, 0));
        assert_eq!(attempts(&provider).len(), before + attempted);
        assert_eq!(attempts(&provider).pop().unwrap().body, body.to_string());
        body = next_turn(&body, "Go on.");
    }
}
