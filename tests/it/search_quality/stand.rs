//! The proxy that removes and logs, and its tool over MCP.

use std::sync::Arc;

use bytes::Bytes;
use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::rules::{Empty, Rules};
use compactproxy::proxy::Proxy;
use compactproxy::proxy::reading::{Reading, Shares};
use compactproxy::store::Store;
use compactproxy::store::log::{HistoryPage, MAX_PAGE};
use serde_json::{Value, json};

use super::queries::{FIRST, Old, flat};
use crate::conversations::document::Document;
use crate::conversations::form::Form;
use crate::mcp::called;
use crate::support::chat::{attempts, parsed, send_to, whole};
use crate::support::dialects::Dialect;
use crate::support::proxy::{Served, open};

/// What is very long is evicted, old arguments and results are clipped, and what is over the window is summarized. A page
/// has room for all of the first hits.
const SECTIONS: &str = "[tool_result_eviction]\nmax_result_chars = 16_000\npreview_chars = 200\nexcluded_tools = []\n\
                        [truncate_args]\nkeep_messages = 4\nmin_gain_tokens = 500\n\
                        [prune]\nprotect_tokens = 1_000\nmin_gain_tokens = 500\n\
                        [compaction]\n[sessions]\n[tools]\nscope = \"tenant\"\n\
                        [[window]]\nmodel = \"*\"\ntotal = 12_000\n";
const KEY: (&str, &str) = ("authorization", "Bearer k");
/// Bytes of recorded conversations of a dialect, and of one: what a debug build does in some seconds.
const MAX_BYTES: usize = 400_000;
const MAX_BODY: usize = 250_000;

pub struct Stand {
    _folder: tempfile::TempDir,
    provider: Provider,
    store: Arc<Store>,
    proxy: Arc<Proxy>,
    running: Served,
    /// Messages that were logged.
    pub old: Vec<Old>,
}

impl Stand {
    pub async fn new() -> Self {
        let rules = Rules { empty: Empty::Anything, ..Rules::default() };
        let provider = Provider::start(Settings { rules, ..Settings::default() }).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = open(&format!("sqlite://{}", folder.path().join("state.db").display()));
        let mut proxy = Proxy::new(parsed(&provider.base_url(), SECTIONS), Some(Arc::clone(&store))).unwrap();
        // This asks more in a second than anybody's share.
        let served = Arc::get_mut(&mut proxy).unwrap();
        let shares = Shares { each: u32::MAX, all: u32::MAX };
        served.reading = Some(Arc::new(Reading::with(Arc::clone(&store), Arc::clone(&served.budget), shares)));
        let running = Served::of(Arc::clone(&proxy));
        Self { _folder: folder, provider, store, proxy, running, old: Vec::new() }
    }

    /// Sends a request, and takes down what was logged of it and what of that went out no more. False: the provider
    /// did not take it.
    pub async fn say(&mut self, dialect: &dyn Dialect, body: Bytes) -> bool {
        let url = format!("http://{}{}", self.running.proxy_addr, dialect.path());
        let headers = [KEY, ("anthropic-version", "2023-06-01")];
        let status = whole(send_to(&url, &headers, body).await.unwrap()).await.status;
        self.proxy.compactor.as_ref().unwrap().journal.as_ref().unwrap().flush().await;
        self.store.flush_log().await;
        assert_eq!(self.store.dropped_messages(), 0);
        let taken = status == 200;
        let sent = attempts(&self.provider).pop().unwrap();
        let mut texts = String::new();
        said(&sent.json(), &mut texts);
        let seen = flat(&texts);
        let session = self.store.all_sessions().await.unwrap().remove(0).id;
        let page = HistoryPage { last: MAX_PAGE, before: None, tip: None, agent: None };
        let messages = self.store.any_history(session, page).await.unwrap().unwrap();
        for message in &messages {
            let mut old = Old::new(session.to_string(), message.number, message.text(), &seen);
            // An answer is found like any other message, but was not removed; and so is what the provider did not take.
            old.gone.retain(|_| taken && !message.answered);
            self.old.push(old);
        }
        taken
    }

    /// Sessions and numbers of the tool's first hits.
    pub async fn search(&self, query: &str) -> Vec<(String, u32)> {
        let arguments = json!({"query": query, "maxResults": FIRST});
        let (page, failed) = called(self.running.proxy_addr, &[KEY], "session_search", arguments).await;
        assert!(!failed, "{query:?}: {page}");
        let heads = page.lines().filter(|line| line.starts_with("session ") && line.contains(" branch="));
        let of = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let session = words.next().unwrap().to_owned();
            (session, words.next().unwrap().strip_prefix('#').unwrap().parse().unwrap())
        };
        heads.map(of).collect()
    }
}

/// All strings in a value.
fn said(value: &Value, texts: &mut String) {
    match value {
        Value::String(text) => {
            // Arguments are JSON within a string.
            match serde_json::from_str(text) {
                Ok(inner @ Value::Object(_)) => said(&inner, texts),
                _ => *texts += text,
            }
            texts.push('\n');
        }
        Value::Array(list) => list.iter().for_each(|value| said(value, texts)),
        Value::Object(members) => members.values().for_each(|value| said(value, texts)),
        _ => {}
    }
}

/// The last requests of recorded conversations, where there are some.
pub fn recorded(form: Form) -> Option<Vec<Bytes>> {
    let mut total = 0;
    let bodies = Document::recorded(form)?.into_iter().map(|document| {
        let last = document.turns().pop().unwrap_or(document.messages.len());
        document.body(last)
    });
    let fits = |body: &Bytes| {
        let fits = body.len() <= MAX_BODY && total + body.len() <= MAX_BYTES;
        total += if fits { body.len() } else { 0 };
        fits
    };
    Some(bodies.filter(fits).collect())
}
