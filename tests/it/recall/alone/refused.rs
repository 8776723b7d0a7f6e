//! Models and servers that take no tools.

use std::sync::Arc;

use compactproxy::demo::script::error;

use super::*;
use crate::support::chat::{parsed, send_to, whole};
use crate::support::proxy::{open, serve};

/// Refusals as servers word them.
fn refusals() -> [Reply; 4] {
    [
        error(400, "registry.ollama.ai/library/gemma:2b does not support tools", "api_error", "x"),
        error(
            400,
            "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set",
            "BadRequestError",
            "x",
        ),
        error(404, "No endpoints found that support tool use.", "not_found", "x"),
        error(500, "tools param requires --jinja flag", "server_error", "x"),
    ]
}

/// A provider that refuses tools like this.
fn without(refusal: &Reply) -> compactproxy::demo::provider::Settings {
    let refusal = refusal.clone();
    let refuse = move || {
        let refusal = refusal.clone();
        step(
            move |request: &ModelRequest| {
                if request.tools().is_empty() { says("Fine.", vec![]) } else { refusal.clone() }
            },
        )
    };
    scripted((0..20).map(|_| refuse()).collect())
}

#[tokio::test]
async fn a_model_that_takes_no_tools_gets_the_same_body_without_them_and_none_again() {
    for (plain, refusal) in chats().flat_map(|plain| refusals().map(|refusal| (plain, refusal))) {
        let provider = Provider::start(without(&refusal)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("state.db").display());
        let start = |store| serve(parsed(&provider.base_url(), &plain.sections("")), Some(store), None);
        let store = open(&url);
        let proxy = start(Arc::clone(&store));
        let body = plain.asked("refused");
        let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert!(answer.actions().contains(&"summarized"), "{plain:?} {:?}", answer.actions());
        let had = plain.cell.dialect.read(&answer);
        assert_eq!(had.text, "Fine.", "{plain:?}");
        let sent = attempts(&provider);
        let tools: Vec<usize> = sent.iter().map(|exchange| offered(exchange).len()).collect();
        assert_eq!(tools, [1, 0], "{plain:?}");
        assert_eq!(plain.cell.dialect.sent(&sent[0].body), plain.cell.dialect.sent(&sent[1].body), "but for the tools");
        assert!(sent[1].body.len() * 2 < body.to_string().len(), "it stays summarized");
        // Nor in the next turn, in another conversation, or behind a restart.
        let next = plain.cell.dialect.went_on(&body, &had);
        plain.cell.had(&proxy, &next).await;
        plain.cell.had(&proxy, &plain.asked("another")).await;
        proxy.stop();
        tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
        store.close().await;
        let proxy = start(open(&url));
        plain.cell.had(&proxy, &plain.asked("a third")).await;
        assert_eq!(
            attempts(&provider).iter().map(|exchange| offered(exchange).len()).collect::<Vec<_>>(),
            [1, 0, 0, 0, 0]
        );
        // What another tenant is told is its own matter.
        plain.cell.dialect.had(proxy.proxy_addr, "other", &plain.asked("others")).await;
        assert_eq!(
            attempts(&provider).iter().skip(5).map(|exchange| offered(exchange).len()).collect::<Vec<_>>(),
            [1, 0]
        );
        assert_eq!(provider.violations(), []);
    }
}

/// Where the body without tools is refused as well, the next request of the conversation goes out as its client wrote it.
#[tokio::test]
async fn where_tools_were_not_all_that_was_wrong_the_next_request_is_mended() {
    for plain in chats() {
        let whole = plain.asked("wrong").to_string().len();
        let steps = (0..9).map(|_| {
            step(move |request: &ModelRequest| match request.body.to_string().len() >= whole {
                true => says("Fine.", vec![]),
                false if request.tools().is_empty() => error(400, "what is this", "invalid_request_error", "x"),
                false => error(400, "this model does not support tools", "invalid_request_error", "x"),
            })
        });
        let (provider, proxy) = pair(scripted(steps.collect()), &plain.sections("")).await;
        let body = plain.asked("wrong");
        let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert_eq!((answer.status, attempts(&provider).len()), (400, 2), "{plain:?}");
        assert!(answer.text().contains("what is this"), "{plain:?}");
        let had = plain.cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Fine.", 4), "{plain:?}");
    }
}

/// A refusal in words that nobody knows costs the compaction of one request, as that of any other rewritten body.
#[tokio::test]
async fn an_unknown_refusal_is_followed_by_the_original() {
    for plain in chats() {
        let (provider, proxy) =
            pair(without(&error(400, "no", "invalid_request_error", "x")), &plain.sections("")).await;
        let body = plain.asked("unknown");
        let had = plain.cell.had(&proxy, &body).await;
        let sent = attempts(&provider);
        assert_eq!((had.text.as_str(), sent.len()), ("Fine.", 2));
        assert_eq!(sent[1].body, plain.cell.dialect.bytes(&body), "{plain:?}");
        plain.cell.had(&proxy, &plain.cell.dialect.went_on(&body, &had)).await;
        let sent = attempts(&provider);
        assert!(sent.len() == 3 && offered(&sent[2]).is_empty() && sent[2].body.len() * 2 < sent[1].body.len());
        assert_eq!(provider.violations(), []);
    }
}

/// A second attempt has no third behind it: it brings tools only to a model that has been seen to take some.
#[tokio::test]
async fn recovery_brings_tools_only_where_they_are_known_to_be_taken() {
    for (plain, known) in chats().flat_map(|plain| [(plain, false), (plain, true)]) {
        let dialect = plain.cell.dialect;
        let before = known.then(|| step(|_| says("With tools.", vec![]))).into_iter();
        let steps = before.chain([step(move |_| dialect.too_long()), step(|_| says("Recovered.", vec![]))]);
        let team =
            "[[policy]]\nmatch = { header = { name = \"x-team\", value = \"a\" } }\ntools = { inject = \"always\" }\n";
        let sections = format!("[compaction]\nkeep_tokens = 2000\n[tools]\npage_chars = 1_900\n{team}");
        let (provider, proxy) = pair(scripted(steps.collect()), &sections).await;
        if known {
            let (name, value) = dialect.credential("k");
            let url = format!("http://{}{}", proxy.proxy_addr, dialect.path());
            let body = dialect.bytes(&plain.small("Hello."));
            let answer = whole(send_to(&url, &[(name, &value), ("x-team", "a")], body).await.unwrap()).await;
            assert_eq!(dialect.read(&answer).text, "With tools.");
        }
        let had = plain.cell.had(&proxy, &plain.asked("recovery")).await;
        assert_eq!(had.text, "Recovered.");
        let tools: Vec<usize> = attempts(&provider).iter().map(|exchange| offered(exchange).len()).collect();
        assert_eq!(tools, if known { vec![1, 0, 1] } else { vec![0, 0] }, "{plain:?}");
        assert_eq!(provider.violations(), []);
    }
}
