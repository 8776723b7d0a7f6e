use std::time::Duration;

use super::*;
use crate::config::Secret;

impl Route {
    pub(crate) fn for_tests(base_url: &str) -> Self {
        Self::new(Arc::new(upstream("a", base_url, None, Api::Openai))).unwrap()
    }
}

fn upstream(name: &str, base_url: &str, prefix: Option<&str>, api: Api) -> Upstream {
    Upstream {
        name: name.into(),
        base_url: base_url.parse().unwrap(),
        prefix: prefix.map(Into::into),
        api,
        api_key: None,
        ca_file: None,
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(1),
    }
}

fn target(base_url: &str, prefix: Option<&str>, asked: &str) -> String {
    let route = Route::new(Arc::new(upstream("a", base_url, prefix, Api::Auto))).unwrap();
    route.target(&asked.parse().unwrap()).unwrap().to_string()
}

#[test]
fn segments_that_end_the_base_and_begin_the_request_are_not_doubled() {
    for (base, asked, expected) in [
        ("http://h", "/v1/x?q=1&q=2", "http://h/v1/x?q=1&q=2"),
        ("http://h/v1", "/v1/x", "http://h/v1/x"),
        ("http://h/v1", "/x", "http://h/v1/x"),
        ("http://h/v1", "/v11/x", "http://h/v1/v11/x"),
        ("http://h/api/v1", "/v1/x?a", "http://h/api/v1/x?a"),
        ("http://h/api/v1", "/api/v1/x", "http://h/api/v1/x"),
        ("http://h/v1/v1", "/v1/v1/x", "http://h/v1/v1/x"),
        ("http://h/v1/v1", "/v1/x", "http://h/v1/v1/x"),
        ("http://h/v1", "/v1", "http://h/v1"),
        ("http://h/v1", "/", "http://h/v1"),
        ("http://h/v1", "/v1/", "http://h/v1/"),
        ("http://h/v1", "/a%2Fb//c/../d", "http://h/v1/a%2Fb//c/../d"),
        ("http://u:p@h:81", "/x", "http://h:81/x"),
    ] {
        assert_eq!(target(base, None, asked), expected, "{base} + {asked}");
    }
}

#[test]
fn a_prefix_is_stripped_before_joining() {
    assert_eq!(target("http://h/v1", Some("/openai"), "/openai/v1/x?q"), "http://h/v1/x?q");
    assert_eq!(target("http://h", Some("/openai"), "/openai?q"), "http://h/?q");
    assert_eq!(target("http://h", Some("/openai"), "/openaix/y"), "http://h/openaix/y");
}

#[test]
fn absolute_targets_count_only_by_their_path() {
    assert_eq!(target("http://h", None, "http://evil:99/v1/x"), "http://h/v1/x");
    assert!(Route::for_tests("http://h").target(&"evil:443".parse().unwrap()).is_none());
}

#[test]
fn upstreams_are_chosen_by_prefix_then_path_then_header_then_order() {
    let routes: Vec<_> = [
        upstream("auto", "http://h", None, Api::Auto),
        upstream("openai", "http://h", None, Api::Openai),
        upstream("anthropic", "http://h", None, Api::Anthropic),
        upstream("a", "http://h", Some("/a"), Api::Auto),
        upstream("ab", "http://h", Some("/a/b"), Api::Auto),
    ]
    .map(|one| Route::new(Arc::new(one)).unwrap())
    .into();
    let mut versioned = HeaderMap::new();
    versioned.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    for (path, with_version, name) in [
        ("/v1/chat/completions", true, "openai"),
        ("/v1/responses/resp_1/cancel", false, "openai"),
        ("/v1/messages", false, "anthropic"),
        ("/v1/messages/count_tokens", false, "anthropic"),
        ("/v1/threads/t/messages", false, "auto"),
        ("/v1/models", false, "auto"),
        ("/v1/models", true, "anthropic"),
        ("/a/v1/messages", false, "a"),
        ("/a/b/v1/messages", false, "ab"),
        ("/a/bc", false, "a"),
        ("/ab", false, "auto"),
    ] {
        let headers = if with_version { versioned.clone() } else { HeaderMap::new() };
        assert_eq!(routes[choose(&routes, path, &headers)].upstream.name, name, "{path}");
    }
}

#[test]
fn a_held_key_goes_where_the_api_wants_it() {
    let plain = HeaderMap::new();
    let mut config = upstream("a", "http://h", None, Api::Anthropic);
    config.api_key = Some(Secret::new("k".into()));
    let key = |api| Route::new(Arc::new(Upstream { api, ..config.clone() })).unwrap().key.unwrap();
    assert_eq!(key(Api::Anthropic).header(None, &plain).0, "x-api-key");
    assert_eq!(key(Api::Openai).header(None, &plain), (AUTHORIZATION, HeaderValue::from_static("Bearer k")));
    assert_eq!(key(Api::Auto).header(Some(Dialect::Messages), &plain).0, "x-api-key");
    assert_eq!(key(Api::Auto).header(Some(Dialect::Chat), &plain).0, AUTHORIZATION);
}

#[test]
fn only_posts_of_a_spoken_dialect_are_model_calls() {
    let call = |api, method, path| model_call(api, &method, path);
    assert_eq!(call(Api::Openai, Method::POST, "/v1/chat/completions"), Some(Dialect::Chat));
    assert_eq!(call(Api::Openai, Method::GET, "/v1/chat/completions"), None);
    assert_eq!(call(Api::Anthropic, Method::POST, "/v1/chat/completions"), None);
    assert_eq!(call(Api::Auto, Method::POST, "/v1/messages"), Some(Dialect::Messages));
    assert_eq!(call(Api::Auto, Method::POST, "/v1/embeddings"), None);
    for path in ["/v1/responses", "/openai/v1/responses", "/openai/responses", "/responses", "/v1/responses/compact"] {
        for api in [Api::Auto, Api::Openai, Api::Responses] {
            assert_eq!(call(api, Method::POST, path), Some(Dialect::Responses), "{path}");
        }
        assert_eq!(call(Api::Chat, Method::POST, path), None, "{path}");
    }
    for path in ["/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/responses/input_tokens"] {
        assert_eq!(call(Api::Auto, Method::POST, path), None, "{path}");
    }
}

#[test]
fn bodies_for_other_paths_may_be_in_what_the_upstream_speaks() {
    let (plain, mut versioned) = (HeaderMap::new(), HeaderMap::new());
    versioned.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    let spoken = |api, path, headers: &HeaderMap| unnamed(api, &Method::POST, path, headers).to_vec();
    assert_eq!(spoken(Api::Auto, "/llm", &plain).len(), 3);
    assert_eq!(spoken(Api::Auto, "/llm", &versioned), [Dialect::Messages]);
    assert_eq!(spoken(Api::Openai, "/llm", &plain), [Dialect::Chat, Dialect::Responses]);
    assert_eq!(spoken(Api::Chat, "/llm", &plain), [Dialect::Chat]);
    assert_eq!(spoken(Api::Responses, "/llm", &plain), [Dialect::Responses]);
    assert_eq!(spoken(Api::Anthropic, "/llm", &plain), [Dialect::Messages]);
    assert_eq!(spoken(Api::Openai, "/llm", &versioned), []);
    assert_eq!(unnamed(Api::Auto, &Method::GET, "/llm", &plain), []);
    for path in ["/v1/chat/completions", "/v1/responses/input_tokens", "/v1/messages/batches", "/v1/embeddings"] {
        assert_eq!(spoken(Api::Auto, path, &plain), [], "{path}");
    }
}
