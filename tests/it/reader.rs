//! Removed texts: who reads them, whole, in pages and as files.

use bytes::Bytes;
use compactproxy::demo::provider::Settings;
use compactproxy::demo::window::Limit;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::support::chat::{Answered, attempts, call, get, history, ids, pair, post, post_with, result, words};

const EVICTION: &str = "[tool_result_eviction]\nmax_result_chars = 2000\npreview_chars = 200\n";
const COMPACTION: &str = "[compaction]\n";

async fn request(addr: std::net::SocketAddr, method: Method, target: &str) -> Answered {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder().method(method).uri(format!("http://{addr}{target}"));
    let (head, body) = client.request(request.body(Full::default()).unwrap()).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answered { status: head.status.as_u16(), headers: head.headers, body }
}

#[tokio::test]
async fn rows_are_their_tenants_alone() {
    let settings = Settings { limit: Limit::of(6_000), ..Settings::default() };
    let (provider, proxy) = pair(settings, COMPACTION).await;
    let body = history("a", 12, 1_000);
    post(proxy.proxy_addr, "one", &body).await;
    post(proxy.proxy_addr, "two", &body).await;
    let sent = attempts(&provider);
    assert_eq!(sent.len(), 4, "the other tenant's window, checkpoint and texts are unknown");
    assert_eq!(sent[2].body, body.to_string());
    let (one, two) = (ids(&sent[1].body), ids(&sent[3].body));
    assert!(!one.is_empty() && one.iter().all(|id| !two.contains(id)), "the same text has other ids");
}

/// The same text has other ids where it is another tenant's.
#[tokio::test]
async fn the_configured_rule_says_what_keeps_tenants_apart() {
    let askers = [("a", "one"), ("a", "two"), ("b", "one"), ("a", "one")];
    for (rule, tenants) in [("credential", [0, 0, 2, 0]), ("single", [0; 4]), ("header:x-user", [0, 1, 2, 0])] {
        let (provider, proxy) = pair(Settings::default(), &format!("{EVICTION}[state]\ntenant = \"{rule}\"\n")).await;
        for (key, user) in askers {
            let headers = [("authorization", &*format!("Bearer {key}")), ("x-user", user)];
            post_with(proxy.proxy_addr, &headers, history("a", 1, 1_000).to_string().into()).await;
        }
        let ids: Vec<Vec<String>> = attempts(&provider).iter().map(|sent| ids(&sent.body)).collect();
        assert!(ids.len() == askers.len() && ids.iter().all(|ids| !ids.is_empty()), "{rule}");
        let first = |ids_of: &Vec<String>| ids.iter().position(|other| other == ids_of).unwrap();
        assert_eq!(ids.iter().map(first).collect::<Vec<_>>(), tenants, "{rule}");
    }
}

#[tokio::test]
async fn removed_texts_are_read_back_whole_and_in_pages() {
    let (provider, proxy) = pair(Settings::default(), EVICTION).await;
    let lines = words(1, 1_500);
    let giant = "ß".repeat(10_000);
    let mut body = history("a", 0, 0);
    body["messages"].as_array_mut().unwrap().extend([call(0), result(0, &lines), call(1), result(1, &giant)]);
    assert_eq!(post(proxy.proxy_addr, "k", &body).await.actions(), ["evicted"]);
    let found = ids(&attempts(&provider)[0].body);
    let [first, second] = &found[..] else { panic!("{found:?}") };
    let addr = proxy.proxy_addr;
    let read = async |id: &str, query: &str| get(addr, &format!("/_compactproxy/evicted/{id}{query}")).await;

    let whole = read(first, "").await;
    assert_eq!((whole.status, whole.text()), (200, lines.as_str()));
    assert_eq!(whole.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(whole.header("x-compactproxy-lines"), lines.lines().count().to_string());
    assert_eq!(whole.header("x-compactproxy-chars"), lines.chars().count().to_string());
    assert_eq!(read(second, "").await.text(), giant);

    let expected: String = lines.split_inclusive('\n').skip(3).take(2).collect();
    assert_eq!(read(first, "?offset=3&limit=2").await.text(), expected);
    assert_eq!(read(second, "?unit=chars&offset=9990&limit=100").await.text(), "ß".repeat(10));
    let matched = read(first, "?pattern=river&limit=4").await;
    assert!(matched.status == 200 && matched.text().contains("river"));

    for (query, status) in [("?limit=x", 400), ("?unit=words", 400), ("?pattern=(", 400), ("?nonsense=1", 400)] {
        assert_eq!(read(first, query).await.status, status, "{query}");
    }
    for id in ["00000000000000000000000000000000", "xyz", "", &format!("{first}0")] {
        assert_eq!(read(id, "").await.status, 404, "{id}");
    }
    assert_eq!(read(&first.to_uppercase(), "").await.text(), lines, "as the tool takes it");
    let target = format!("/_compactproxy/evicted/{first}");
    let head = request(addr, Method::HEAD, &target).await;
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, &*lines.len().to_string()));
    assert_eq!(request(addr, Method::POST, &target).await.status, 405);
    assert_eq!(get(addr, "/_compactproxy/").await.status, 404);
    assert_eq!(provider.requests().len(), 1, "nothing of it went upstream");

    let mut refused = false;
    for _ in 0..2_000 {
        let answer = read("00000000000000000000000000000000", "").await;
        refused = answer.status == 429;
        if refused {
            assert_eq!(answer.header("retry-after"), "1");
            break;
        }
    }
    assert!(refused, "reads are limited in rate");
}

#[tokio::test]
async fn removed_texts_are_files_in_the_workspace_too() {
    let folder = tempfile::tempdir().unwrap();
    let sections = format!("{EVICTION}workspace_dir = \"{}\"\n", folder.path().display());
    let (provider, proxy) = pair(Settings::default(), &sections).await;
    let body = history("a", 1, 1_500);
    assert_eq!(post(proxy.proxy_addr, "k", &body).await.actions(), ["evicted"]);
    let sent = attempts(&provider)[0].json();
    let pointer = sent["messages"][3]["content"].as_str().unwrap().to_owned();
    let tenants: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    let tenant = tenants[0].as_ref().unwrap().path();
    let file = std::fs::read_dir(&tenant).unwrap().next().unwrap().unwrap().path();
    assert!(pointer.contains(file.to_str().unwrap()), "{pointer}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), body["messages"][3]["content"].as_str().unwrap());

    // A folder that cannot be written: the result goes whole, the request succeeds.
    let blocked = folder.path().join("file");
    std::fs::write(&blocked, "").unwrap();
    let sections = format!("{EVICTION}workspace_dir = \"{}\"\n", blocked.display());
    let (provider, proxy) = pair(Settings::default(), &sections).await;
    let answer = post(proxy.proxy_addr, "k", &body).await;
    assert_eq!((answer.status, answer.actions().len()), (200, 0));
    assert_eq!(attempts(&provider)[0].body, body.to_string());
}
