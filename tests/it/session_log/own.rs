//! The session tools within the proxy: whose messages they see, and that a search does not find itself.

use std::sync::{Arc, Mutex};

use compactproxy::demo::answer::ToolCall;
use compactproxy::demo::request::ModelRequest;

use super::*;
use crate::support::dialects::{ALL, Chat, Dialect};
use crate::support::recall::{Step, says, scripted, step};

const SECTIONS: &str = "[tools]\ninject = \"always\"\npage_chars = 1_900\n[sessions]\n";
const CHAT: &dyn Dialect = &Chat;

/// The model searches its sessions for these words, and then says that it is done; what it was told comes to `told`.
fn searches(words: &'static str, told: &Arc<Mutex<Vec<String>>>) -> [Step; 2] {
    let told = Arc::clone(told);
    let search = move |request: &ModelRequest| {
        assert!(request.body["tools"].to_string().contains("session_search"), "{}", request.body);
        let arguments = json!({"query": words}).to_string();
        let id = format!("own_{}", request.body.to_string().len());
        says("", vec![ToolCall { id, name: "session_search".to_owned(), arguments }])
    };
    let done = move |request: &ModelRequest| {
        told.lock().unwrap().push(request.messages().last().unwrap().to_string());
        says("I have looked.", vec![])
    };
    [step(search), step(done)]
}

#[tokio::test]
async fn a_search_finds_neither_itself_nor_what_was_searched_before() {
    for dialect in ALL {
        let told = Arc::default();
        let mut steps = vec![step(|_| says("Noted.", vec![]))];
        (0..3).for_each(|_| steps.extend(searches("launch code", &told)));
        let stand = Stand::with(scripted(steps), SECTIONS).await;
        // A client that has the tools from MCP, under its own names for them.
        let mcp = ToolCall {
            id: "mcp_1".to_owned(),
            name: "mcp__compactproxy__session_search".to_owned(),
            arguments: json!({"query": "launch code"}).to_string(),
        };
        let mut items = vec![dialect.user("The launch code is 4711.")];
        items.extend(dialect.said("", &[mcp]));
        items.extend(dialect.results(&[("mcp_1", &["a page with the launch code".to_owned()])]));
        let mut body = dialect.request(items, false);
        for _ in 0..4 {
            let had = dialect.had(stand.running.proxy_addr, "k", &body).await;
            stand.logged().await;
            body = dialect.went_on(&body, &had);
        }
        let told = told.lock().unwrap().clone();
        assert_eq!(told.len(), 3, "{dialect:?}");
        for page in &told {
            assert!(page.contains("[1 of 1 hits") && page.contains("The launch code is 4711."), "{dialect:?}: {page}");
        }
        let all = stand.logged().await;
        let kept = all.iter().flat_map(|(_, messages)| messages).map(Logged::text).collect::<String>();
        assert!(kept.contains("session_search(") && kept.contains("a page with") && kept.contains("[1 of 1 hits"));
        assert_eq!(stand.provider.violations(), []);
    }
}

#[tokio::test]
async fn within_the_proxy_two_users_who_began_alike_see_each_their_own() {
    let told = Arc::default();
    let mut steps = vec![step(|_| says("Noted.", vec![])), step(|_| says("Noted.", vec![]))];
    steps.extend(searches("secret", &told));
    let stand = Stand::with(scripted(steps), SECTIONS).await;
    let said = |secret: &str| {
        let mut items = vec![CHAT.user("Hello.")];
        items.extend(CHAT.said("Hello. What is it?", &[]));
        items.push(CHAT.user(&format!("The secret is {secret}.")));
        CHAT.request(items, false)
    };
    let addr = stand.running.proxy_addr;
    CHAT.had(addr, "k", &said("FOREIGN")).await;
    let mine = said("MINE");
    let had = CHAT.had(addr, "k", &mine).await;
    assert_eq!(stand.logged().await.len(), 1, "one session, by its beginning");
    CHAT.had(addr, "k", &CHAT.went_on(&mine, &had)).await;
    let told = told.lock().unwrap().clone();
    assert!(told[0].contains("MINE") && !told[0].contains("FOREIGN"), "{told:?}");
}
