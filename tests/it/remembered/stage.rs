//! A provider, and a proxy before it whose memory can be written and whose requests can be seen.

use std::sync::Arc;
use std::time::Duration;

use compactproxy::demo::provider::{Provider, Settings};
use compactproxy::demo::request::Api;
use compactproxy::memory::MemoryPath;
use compactproxy::store::{Rewrite, Store, Tenant};
use serde_json::Value;
use tempfile::TempDir;

use super::conversation::path;
use crate::support::chat::{Answered, attempts, over, parsed, send_to, whole};
use crate::support::proxy::{Served, open};

pub struct Stage {
    pub provider: Provider,
    pub folder: TempDir,
    pub sections: String,
    pub store: Arc<Store>,
    pub proxy: Served,
}

impl Stage {
    pub async fn new(sections: &str) -> Self {
        Self::with(Settings::default(), sections).await
    }

    pub async fn with(settings: Settings, sections: &str) -> Self {
        let provider = Provider::start(settings).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (store, proxy) = served(&provider, &folder, sections);
        Self { provider, folder, sections: sections.to_owned(), store, proxy }
    }

    /// The same again after the process has ended, with this configuration.
    pub async fn restarted(self, sections: &str) -> Self {
        self.store.close().await;
        let (store, proxy) = served(&self.provider, &self.folder, sections);
        Self { store, proxy, sections: sections.to_owned(), ..self }
    }

    /// Puts `text` in MEMORY.md of the agent `one` of who has the key `k`.
    pub async fn write(&self, text: &str) {
        self.write_of(("k", "one"), text).await;
    }

    pub async fn write_of(&self, (key, agent): (&str, &str), text: &str) {
        let tenant = self.tenant(key);
        let file = self.store.memory_file(&tenant, agent, MemoryPath::Curated).await.unwrap();
        let expected = file.map_or(0, |file| file.version);
        let rewrite = Rewrite { content: text.to_owned(), expected, merged: Vec::new() };
        self.store.replace_memory(&tenant, agent, MemoryPath::Curated, rewrite).await.unwrap();
    }

    pub fn tenant(&self, key: &str) -> Tenant {
        let bearer = format!("Bearer {key}");
        self.store.tenant(&[b"credential", b"up", b"", b"authorization", bearer.as_bytes()])
    }

    pub async fn post_as(&self, (key, agent): (&str, &str), path: &str, body: &Value) -> Answered {
        let url = format!("http://{}/v1/{path}", self.proxy.proxy_addr);
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("user-agent", agent)];
        whole(send_to(&url, &headers, body.to_string().into()).await.unwrap()).await
    }

    /// What the provider got for a body.
    pub async fn sent(&self, api: Api, body: &Value) -> String {
        self.sent_as(("k", "One/1.0"), api, body).await
    }

    pub async fn sent_as(&self, who: (&str, &str), api: Api, body: &Value) -> String {
        let answer = self.post_as(who, path(api), body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let last = attempts(&self.provider).pop().unwrap();
        String::from_utf8(last.body.to_vec()).unwrap()
    }
}

pub fn served(provider: &Provider, folder: &TempDir, sections: &str) -> (Arc<Store>, Served) {
    let mut config = parsed(&provider.base_url(), sections);
    config.state.url = format!("sqlite://{}", folder.path().join("state.db").display());
    let store = open(&config.state.url);
    let proxy = over(config, Arc::clone(&store), |proxy| {
        proxy.compactor.as_mut().unwrap().memories.retry = Duration::ZERO;
    });
    (store, proxy)
}
