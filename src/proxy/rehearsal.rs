//! What a body would become, without sending it: the command that shows it goes the way of a request, so that it cannot
//! say anything else.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};

use super::budget::Permit;
use super::chains::Beginning;
use super::encoding::Encoding;
use super::intake::{Look, permits};
use super::look::Looked;
use super::origin::{Incoming, Tools};
use super::tenant::{self, Asker, Proof};
use super::{Proxy, SetupError, Shard};
use crate::compact::Change;
use crate::compact::plan::Actions;
use crate::config::Config;
use crate::store::{Health, Store};
use crate::wire::Dialect;

/// A proxy that sends nothing. Where it would ask a model for a summary it takes the digest.
pub struct Rehearsal {
    shard: Arc<Shard>,
}

/// What would go out in a body's place.
#[derive(Debug, Default)]
pub struct Rehearsed {
    /// `None`: the body as it is.
    pub pieces: Option<Vec<Bytes>>,
    pub actions: Actions,
    /// Calibrated tokens before and after, where they were counted.
    pub tokens: Option<Change>,
    /// Why nothing is done, where that is not the body's own affair.
    pub note: &'static str,
}

impl Rehearsed {
    /// The body as it is.
    pub fn original(note: &'static str) -> Self {
        Self { note, ..Self::default() }
    }
}

impl Rehearsal {
    /// What is removed is kept in `store`, as in serving: for a rehearsal that changes nothing, one that
    /// [rehearses](Store::rehearse).
    ///
    /// # Errors
    /// If an upstream of the configuration cannot be served.
    pub fn new(config: Config, store: Arc<Store>) -> Result<Self, SetupError> {
        Ok(Self { shard: Shard::new(Proxy::rehearsing(config, store)?) })
    }

    /// What would become of `body`, sent with `headers` to the path of its API.
    pub async fn of(&self, dialect: Dialect, headers: HeaderMap, body: Bytes) -> Rehearsed {
        let proxy = &self.shard.proxy;
        let Some((index, parts)) = self.head(dialect, headers) else {
            return Rehearsed::original("no upstream takes it");
        };
        let most = proxy.config.server.max_body_bytes;
        let mut permit = Permit::empty(&proxy.budget);
        if body.len() > most || !permit.grow(body.len()) {
            return Rehearsed::original("it is over max_body_bytes or max_buffered_bytes");
        }
        if permits(&parts.headers, parts.uri.query(), most) != Look::Rewrite {
            return Rehearsed::original("its headers forbid to change it");
        }
        let Some(compactor) = &proxy.compactor else { return Rehearsed::original("no strategy is on") };
        let incoming = Incoming {
            shard: &self.shard,
            index,
            parts: &parts,
            dialect,
            chains: Beginning::New,
            body,
            permit: vec![Arc::new(permit)],
            overlaid: false,
            tools: Tools::Offered,
            reached: None,
        };
        let looked = Box::pin(compactor.look(incoming)).await;
        let note = match compactor.store.health() {
            Health::Up => "",
            Health::Off | Health::Degraded => "the store does not take what would be removed",
        };
        match looked {
            Looked::Unread(_) | Looked::Continued(..) => Rehearsed::original(note),
            Looked::Read(work) if work.origin.strategies.observe => {
                Rehearsed { pieces: work.pieces, ..Rehearsed::original("observed only") }
            }
            Looked::Read(work) => {
                Rehearsed { pieces: work.pieces.clone(), actions: work.actions, tokens: work.tokens, note }
            }
        }
    }

    /// Why a body goes out as it is that nothing else keeps from being changed; empty where that cannot be said.
    pub async fn why_unchanged(&self, dialect: Dialect, headers: HeaderMap, body: &Bytes) -> &'static str {
        let proxy = &self.shard.proxy;
        let (Some(compactor), Some((index, parts))) = (&proxy.compactor, self.head(dialect, headers)) else {
            return "";
        };
        let Some(upstream) = proxy.config.upstreams.get(index) else { return "" };
        let asker = Asker { upstream: &upstream.name, headers: &parts.headers, uri: &parts.uri };
        let identity = tenant::identify(&compactor.store, &compactor.tenant_rule, &compactor.verified, &asker);
        if Encoding::of(&parts.headers) != Some(Encoding::Identity) {
            return "";
        }
        if compactor.read(dialect, body, identity.tenant).await.is_none() {
            return "it cannot be read as a request of this API";
        }
        match identity.proof {
            Proof::Known => "nothing is due in it",
            Proof::Claimed => {
                "its token is proved only by an upstream's answer to a running proxy: no state applies to it"
            }
        }
    }

    /// The upstream that serving would choose, and the request's head there.
    fn head(&self, dialect: Dialect, headers: HeaderMap) -> Option<(usize, Parts)> {
        let asked = format!("/v1{}", dialect.path()).parse().ok()?;
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.headers = headers;
        parts.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        let target = self.shard.proxy.target(&parts.method, &asked, &parts.headers).ok()?;
        parts.uri = target.uri;
        Some((target.index, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Limits;

    #[tokio::test]
    async fn the_upstream_is_the_one_that_serving_would_choose() {
        let upstream =
            |name, api| format!("[[upstream]]\nname = \"{name}\"\nbase_url = \"http://h/api\"\napi = \"{api}\"\n");
        let file = upstream("claude", "anthropic") + &upstream("gpt", "openai") + &upstream("other", "chat");
        let config = Config::parse(&file, &|_| None).unwrap();
        let store = Store::in_memory_only(Limits::default()).await.unwrap();
        let rehearsal = Rehearsal::new(config, store).unwrap();
        let (index, parts) = rehearsal.head(Dialect::Chat, HeaderMap::new()).unwrap();
        assert_eq!((index, parts.uri.path()), (1, "/api/v1/chat/completions"));
    }
}
