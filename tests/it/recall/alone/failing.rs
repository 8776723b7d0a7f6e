//! Servers that say in odd ways that they take no tools, or only fail at them; and at most one second attempt for all
//! that is wrong with a request.

use compactproxy::demo::script::error;

use super::*;

const ALWAYS: &str = "inject = \"always\"\n";
const NO_TOOLS: &str = "this model does not support tools";

/// A provider that answers requests with tools, and those without any, like this.
fn answering(with: Reply, without: Reply) -> compactproxy::demo::provider::Settings {
    let answer = move || {
        let (with, without) = (with.clone(), without.clone());
        step(move |request: &ModelRequest| if request.tools().is_empty() { without.clone() } else { with.clone() })
    };
    scripted((0..20).map(|_| answer()).collect())
}

fn fine() -> Reply {
    says("Fine.", vec![])
}

/// How many tools each request had.
fn tools(provider: &Provider) -> Vec<usize> {
    attempts(provider).iter().map(|exchange| offered(exchange).len()).collect()
}

#[tokio::test]
async fn a_refusal_of_tools_is_understood_whatever_its_status() {
    for plain in chats() {
        for status in [401, 402, 403, 405, 409, 415, 418, 501, 502] {
            let refusal = error(status, NO_TOOLS, "api_error", "x");
            let (provider, proxy) = pair(answering(refusal, fine()), &sections(ALWAYS)).await;
            let body = plain.small("Hello.");
            let had = plain.cell.had(&proxy, &body).await;
            plain.cell.had(&proxy, &plain.cell.dialect.went_on(&body, &had)).await;
            assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", vec![1, 0, 0]), "{plain:?} {status}");
            assert_eq!(attempts(&provider)[1].body, plain.cell.dialect.bytes(&body));
            assert_eq!(provider.violations(), []);
        }
    }
}

/// Also where it comes inside a success, in an error that names no status.
#[tokio::test]
async fn a_refusal_of_tools_is_understood_inside_a_success() {
    for plain in chats() {
        let told = json!({"error": {"message": NO_TOOLS}});
        let (kind, text) = match plain.cell.stream {
            true => ("text/event-stream", format!("data: {told}\n\n")),
            false => ("application/json", told.to_string()),
        };
        let refusal = Reply::Raw { status: 200, headers: vec![("content-type", kind.to_owned())], body: text.into() };
        let (provider, proxy) = pair(answering(refusal, fine()), &sections(ALWAYS)).await;
        let had = plain.cell.had(&proxy, &plain.small("Hello.")).await;
        assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", vec![1, 0]), "{plain:?}");
    }
}

#[tokio::test]
async fn an_error_of_a_known_kind_passes_and_nobody_is_asked_again() {
    for plain in chats() {
        for status in [401, 403, 404, 408, 429, 503, 504, 529] {
            let (provider, proxy) =
                pair(answering(error(status, "come back later", "x", "x"), fine()), &sections(ALWAYS)).await;
            let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &plain.small("Hello.")).await;
            assert_eq!((answer.status, tools(&provider)), (status, vec![1]), "{plain:?}");
            assert!(answer.text().contains("come back later"), "{answer:?}");
        }
        let headers = vec![("content-type", "application/json".to_owned()), ("retry-after", "7".to_owned())];
        let busy = Reply::Raw { status: 500, headers, body: "{\"error\":{\"message\":\"busy\"}}".into() };
        let (provider, proxy) = pair(answering(busy, fine()), &sections(ALWAYS)).await;
        let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &plain.small("Hello.")).await;
        assert_eq!((answer.status, tools(&provider)), (500, vec![1]), "{plain:?}");
    }
}

/// An error with a `retry-after`.
fn later(status: u16, text: &str) -> Reply {
    let headers = vec![("content-type", "application/json".to_owned()), ("retry-after", "7".to_owned())];
    Reply::Raw { status, headers, body: json!({"error": {"message": text}}).to_string().into() }
}

/// Who is busy, or out of order for a while, says nothing of what its model takes, whatever the words are.
#[tokio::test]
async fn an_error_of_the_moment_is_no_refusal_of_tools() {
    let busy = [408, 429, 503, 504, 529].map(|status| (status, error(status, NO_TOOLS, "x", "x")));
    let words = ["The function is currently unavailable", "Tools are not available, try again later."];
    let worded = words.map(|text| (403, error(403, text, "x", "x")));
    let errors = busy.into_iter().chain(worded).chain([403, 500].map(|status| (status, later(status, NO_TOOLS))));
    for (status, refusal) in errors {
        for plain in chats() {
            let (provider, proxy) = pair(answering(refusal.clone(), fine()), &sections(ALWAYS)).await;
            for (name, seen) in [("One.", vec![1]), ("Two.", vec![1, 1])] {
                let answer = plain.cell.dialect.ask(proxy.proxy_addr, "k", &plain.small(name)).await;
                assert_eq!((answer.status, tools(&provider)), (status, seen), "{plain:?} {}", answer.text());
            }
        }
    }
}

/// What comes of the second attempt may have nothing to do with tools: the next failure is tried without them again.
#[tokio::test]
async fn a_second_attempt_that_says_nothing_of_tools_leaves_the_question_open() {
    for plain in chats() {
        let others = [
            plain.cell.dialect.too_long(),
            error(400, "what is that", "invalid_request_error", "x"),
            error(429, "slow down", "requests", "x"),
            error(503, "no backend", "server_error", "x"),
            error(529, "overloaded", "overloaded_error", "x"),
            later(500, "restarting"),
        ];
        for other in others {
            let broken = || step(|_| error(500, "KeyError: 'tools'", "server_error", "x"));
            let steps = vec![broken(), step(move |_| other.clone()), broken(), step(|_| fine())];
            let (provider, proxy) = pair(scripted(steps), &sections(ALWAYS)).await;
            plain.cell.dialect.ask(proxy.proxy_addr, "k", &plain.small("One.")).await;
            assert_eq!(tools(&provider), [1, 0], "{plain:?}");
            let had = plain.cell.had(&proxy, &plain.small("Two.")).await;
            assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", vec![1, 0, 1, 0]), "{plain:?}");
        }
    }
}

/// Its words are not known: that the same request without tools is answered says enough, for a while.
#[tokio::test]
async fn a_server_that_only_fails_at_tools_is_asked_without_them() {
    for (plain, status) in chats().flat_map(|plain| [500, 501, 502].map(|status| (plain, status))) {
        let broken = error(status, "KeyError: 'tools'", "server_error", "x");
        let (provider, proxy) = pair(answering(broken, fine()), &sections(ALWAYS)).await;
        for (name, seen) in [("One.", vec![1, 0]), ("Two.", vec![1, 0, 0]), ("Three.", vec![1, 0, 0, 0])] {
            let had = plain.cell.had(&proxy, &plain.small(name)).await;
            assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", seen), "{plain:?} {status}");
        }
        assert_eq!(provider.violations(), []);
    }
}

/// Where it fails without them as well it is not asked twice for each request that it has no answer to; nor is one that
/// has been seen to take tools.
#[tokio::test]
async fn a_server_that_fails_anyway_is_not_suspected_again() {
    let broken = || error(500, "out of order", "server_error", "x");
    for plain in chats() {
        let ask = async |proxy: &Served, name: &str| {
            plain.cell.dialect.ask(proxy.proxy_addr, "k", &plain.small(name)).await.status
        };
        let (provider, proxy) = pair(answering(broken(), broken()), &sections(ALWAYS)).await;
        assert_eq!((ask(&proxy, "One.").await, tools(&provider)), (500, vec![1, 0]), "{plain:?}");
        assert_eq!((ask(&proxy, "Two.").await, tools(&provider)), (500, vec![1, 0, 1]), "{plain:?}");

        let steps = vec![step(|_| fine()), step(move |_| broken())];
        let (provider, proxy) = pair(scripted(steps), &sections(ALWAYS)).await;
        assert_eq!((ask(&proxy, "One.").await, ask(&proxy, "Two.").await), (200, 500), "{plain:?}");
        assert_eq!(tools(&provider), [1, 1]);
    }
}

/// A provider whose model has room for so many bytes of conversation, and takes no tools.
fn small(dialect: &'static dyn Dialect, most: usize) -> compactproxy::demo::provider::Settings {
    let answer = move || {
        step(move |request: &ModelRequest| match request.body["model"] == "other" {
            true => says("Other.", vec![]),
            false if request.body[dialect.array()].to_string().len() > most => dialect.too_long(),
            false if !request.tools().is_empty() => error(400, NO_TOOLS, "invalid_request_error", "x"),
            false => fine(),
        })
    };
    scripted((0..20).map(|_| answer()).collect())
}

const RECOVERY: &str = "[compaction]\nkeep_tokens = 2000\n";

#[tokio::test]
async fn one_second_attempt_mends_an_overflow_and_a_refusal_of_tools() {
    for plain in chats() {
        let dialect = plain.cell.dialect;
        let body = plain.asked("both");
        let most = body[dialect.array()].to_string().len() / 2;
        let (provider, proxy) = pair(small(dialect, most), &format!("{}{RECOVERY}", sections(ALWAYS))).await;
        let had = plain.cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", vec![1, 0]), "{plain:?}");
        // The next turn learns it, and no later one asks again.
        let next = dialect.went_on(&body, &had);
        let had = plain.cell.had(&proxy, &next).await;
        plain.cell.had(&proxy, &dialect.went_on(&next, &had)).await;
        assert_eq!(tools(&provider), [1, 0, 1, 0, 0], "{plain:?}");
        assert_eq!(provider.violations(), []);
    }
}

/// The conversation has tools since it was another model's.
#[tokio::test]
async fn a_conversation_that_goes_to_a_smaller_model_without_tools_is_mended_at_once() {
    for plain in chats() {
        let dialect = plain.cell.dialect;
        let body = plain.asked("switch");
        let most = body[dialect.array()].to_string().len() / 2;
        let (provider, proxy) = pair(small(dialect, most), &format!("{}{RECOVERY}", sections(ALWAYS))).await;
        let others = with(&body, json!({"model": "other"}));
        let had = plain.cell.had(&proxy, &others).await;
        assert_eq!(had.text, "Other.");
        let had = plain.cell.had(&proxy, &dialect.went_on(&body, &had)).await;
        assert_eq!((had.text.as_str(), tools(&provider)), ("Fine.", vec![1, 1, 0]), "{plain:?}");
        assert_eq!(provider.violations(), []);
    }
}

/// The first says that no tools are taken, and the body without them is too long: that is learned for the next turn.
#[tokio::test]
async fn an_overflow_behind_a_refusal_of_tools_is_the_clients_to_see_and_is_learned() {
    for plain in chats() {
        let dialect = plain.cell.dialect;
        let body = plain.asked("after");
        let most = body[dialect.array()].to_string().len() / 2;
        let steps = (0..9).map(|_| {
            step(move |request: &ModelRequest| match request.tools().is_empty() {
                false => error(400, NO_TOOLS, "invalid_request_error", "x"),
                true if request.body[dialect.array()].to_string().len() > most => dialect.too_long(),
                true => fine(),
            })
        });
        let (provider, proxy) = pair(scripted(steps.collect()), &format!("{}{RECOVERY}", sections(ALWAYS))).await;
        let answer = dialect.ask(proxy.proxy_addr, "k", &body).await;
        assert!(answer.status >= 400 && !answer.text().contains("tools"), "{plain:?} {answer:?}");
        assert_eq!(tools(&provider), [1, 0], "{plain:?}");
        let had = plain.cell.had(&proxy, &body).await;
        assert_eq!(had.text, "Fine.", "{plain:?}");
    }
}

/// A model may take tools in one dialect and not in another.
#[tokio::test]
async fn what_was_told_in_one_dialect_is_not_taken_for_another() {
    let steps = (0..9).map(|_| {
        step(|request: &ModelRequest| match request.body.get("messages").is_some() && !request.tools().is_empty() {
            true => error(400, NO_TOOLS, "invalid_request_error", "x"),
            false => fine(),
        })
    });
    let (provider, proxy) = pair(scripted(steps.collect()), &sections(ALWAYS)).await;
    for dialect in [CHAT, &Responses] {
        let plain = Plain { cell: Cell { dialect, stream: false }, says: Says::Nothing, removed: Removed::Summarized };
        let body = with(&plain.small("Hello."), json!({"model": "m"}));
        assert_eq!(plain.cell.had(&proxy, &body).await.text, "Fine.");
    }
    assert_eq!(tools(&provider), [1, 0, 1]);
}

/// The client has tools of its own: that none are taken is true of its own body, and what is wrong with what the proxy
/// made of it is not.
#[tokio::test]
async fn of_two_errors_the_one_about_the_clients_own_body_is_shown() {
    for cell in cells() {
        let steps = vec![
            step(|_| error(400, NO_TOOLS, "invalid_request_error", "x")),
            step(|_| error(400, "what is that", "invalid_request_error", "x")),
        ];
        let (provider, proxy) = pair(scripted(steps), &sections(ALWAYS)).await;
        let answer = cell.dialect.ask(proxy.proxy_addr, "k", &cell.asked("errors")).await;
        assert!(answer.status == 400 && answer.text().contains(NO_TOOLS), "{cell:?} {answer:?}");
        assert_eq!(attempts(&provider).len(), 2);
    }
    // An overflow, and a refusal of what comes with its recovery.
    for (cell, status) in cells().flat_map(|cell| [400, 403, 501].map(|status| (cell, status))) {
        let dialect = cell.dialect;
        let steps = vec![
            step(move |_| dialect.too_long()),
            step(move |_| error(status, NO_TOOLS, "invalid_request_error", "x")),
        ];
        let (provider, proxy) = pair(scripted(steps), &format!("{}{RECOVERY}", sections(""))).await;
        let answer = dialect.ask(proxy.proxy_addr, "k", &cell.overlong()).await;
        assert!(!answer.text().contains(NO_TOOLS), "{cell:?} {status} {answer:?}");
        let tools: Vec<usize> = attempts(&provider).iter().map(|exchange| offered(exchange).len()).collect();
        assert_eq!(tools, [2, 2], "{cell:?}");
    }
}
