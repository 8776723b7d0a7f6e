use std::collections::HashSet;

use super::*;
use crate::store::Limits;
use crate::wire::memo::Memo;
use crate::wire::{self, Dialect};

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>()
}

fn names(lines: &[(&'static str, &str)]) -> Names {
    Names::of_headers(&headers(lines))
}

fn with_body(dialect: Dialect, body: &str) -> Option<String> {
    let memo = Memo::new(0);
    let conversation = wire::read(dialect, body.as_bytes(), &memo, [0; 16]).unwrap();
    let names = names(&[]).with_body(&conversation);
    names.client.or(names.cache_key).map(String::from)
}

#[tokio::test]
async fn a_session_is_its_tenant_its_name_and_its_root() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let tenants = [store.tenant(&[b"a"]), store.tenant(&[b"b"])];
    let asked: [&[(&'static str, &str)]; 6] = [
        &[],
        &[("x-compactproxy-session", "s")],
        &[("session_id", "s")],
        &[("session-id", "own:s")],
        &[("x-session-id", "t")],
        &[("x-compactproxy-session", "t"), ("session_id", "s")],
    ];
    let mut ids = HashSet::new();
    for tenant in &tenants {
        for lines in asked {
            for root in [[1; 32], [2; 32]] {
                let session = names(lines).session(&store, tenant, &root);
                assert_eq!(session.named, !lines.is_empty());
                ids.insert(session.id);
            }
        }
    }
    // Of the six the two named for the proxy are the same whatever the conversation begins with.
    assert_eq!(ids.len(), 2 * (4 * 2 + 2));
    let renamed = names(&[("x-claude-code-session-id", "s")]).session(&store, &tenants[0], &[1; 32]);
    assert!(ids.contains(&renamed.id), "whatever header has it");
    assert_eq!(names(&[("session-id", "s")]).own_session(&store, &tenants[0]), None);
}

#[test]
fn claude_codes_user_id_and_the_prompt_cache_key_name_sessions_and_a_plain_user_id_none() {
    let messages = |user: &str| {
        let user = serde_json::Value::from(user);
        format!(r#"{{"model":"m","metadata":{{"user_id":{user}}},"messages":[{{"role":"user","content":"x"}}]}}"#)
    };
    let of = |user: &str| with_body(Dialect::Messages, &messages(user));
    assert_eq!(of(r#"{"device_id":"d","session_id":"abc"}"#).as_deref(), Some("abc"));
    assert_eq!(of("user-17"), None);
    assert_eq!(of(r#"{"session_id":""}"#), None);
    let responses = r#"{"model":"m","prompt_cache_key":"k","input":"x"}"#;
    assert_eq!(with_body(Dialect::Responses, responses).as_deref(), Some("k"));
    assert_eq!(with_body(Dialect::Responses, r#"{"model":"m","prompt_cache_key":7,"input":"x"}"#), None);
}

/// An application has one key for all of its users, who begin with the same words.
#[tokio::test]
async fn a_shared_cache_key_shows_no_more_than_the_conversation_itself() {
    let store = Store::in_memory_only(Limits::default()).await.unwrap();
    let (tenant, memo) = (store.tenant(&[b"a"]), Memo::new(0));
    let body = br#"{"model":"m","prompt_cache_key":"k","input":"Hi"}"#;
    let conversation = wire::read(Dialect::Responses, body, &memo, [0; 16]).unwrap();
    let session = names(&[]).with_body(&conversation).session(&store, &tenant, &[1; 32]);
    assert!(!session.named);
    assert!(matches!(session.scope(&[[1; 32]]), Scope::Conversation { chain: Some(_), .. }));
}

#[test]
fn names_are_bounded() {
    assert_eq!(names(&[("session_id", &"a".repeat(MAX_NAME))]).client.map(|name| name.len()), Some(MAX_NAME));
    assert_eq!(names(&[("session_id", &"a".repeat(MAX_NAME + 1))]).client, None);
    assert_eq!(names(&[("session_id", "  ")]).client, None);
    assert_eq!(&*names(&[("user-agent", "claude-cli/2.1.0 (external, cli)")]).agent, "claude-cli");
}
