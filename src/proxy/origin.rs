//! A request as compaction sees it: its body, whose it is, and what is in force for it. It outlives
//! the request where a summary is being made of it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;

use super::Shard;
use super::aliases::Reached;
use super::budget::Permit;
use super::chains::Beginning;
use super::compaction::Compactor;
use super::headers::ANTHROPIC_BETA;
use super::sessions::Payer;
use super::tenant::{Identity, Mark, Proof};
use crate::compact::budget::{Budget, Learned, Window};
use crate::compact::calibration::Calibration;
use crate::compact::evict::Ways;
use crate::compact::plan::Situation;
use crate::compact::tokens::Tokens;
use crate::compact::{Known, TextKey, windows};
use crate::config::{Config, SignedThinking, Strategies, Subject};
use crate::store::{LearnedWindow, Tenant, WindowKey};
use crate::wire::conversation::Fields;
use crate::wire::memo::Memo;
use crate::wire::scan::Unreadable;
use crate::wire::side::Envelope;
use crate::wire::{self, Conversation, Dialect, Digest, Errand, Sight};

/// Output tokens below which a lowered limit helps nobody (A26).
const LEAST_OUTPUT: u64 = 3_000;

/// New bytes from which on reading, counting and cutting go to another thread.
pub const INLINE_BYTES: usize = 64 * 1024;

/// What is fixed for a request.
#[derive(Clone)]
pub struct Origin {
    pub shard: Arc<Shard>,
    /// Index of the upstream.
    pub index: usize,
    pub upstream: Arc<str>,
    /// The client's headers.
    pub headers: HeaderMap,
    /// Target at the upstream.
    pub uri: http::Uri,
    pub dialect: Dialect,
    /// The decoded body.
    pub body: Bytes,
    /// Whether what the proxy adds to the conversation is in it: then it is not the client's own.
    pub overlaid: bool,
    /// The shares of the buffer cap that the body has (the last), and those that it was made of.
    pub permit: Vec<Arc<Permit>>,
    pub tenant: Tenant,
    pub proof: Proof,
    /// What an answer of 2xx makes known.
    pub mark: Option<Mark>,
    pub model: Arc<str>,
    pub stream: bool,
    /// Whether it carries pictures, sounds or files, whose tokens its bytes do not bound.
    pub media: bool,
    /// How much of the history its bytes show.
    pub sight: Sight,
    /// What side calls in its name say beside their prompt.
    pub envelope: Envelope,
    /// What is asked for.
    pub errand: Errand,
    /// Output tokens below which a lowered limit is of no use (A14, A26).
    pub least_output: u64,
    pub strategies: Arc<Strategies>,
    pub budget: Budget,
    /// The window is more than the table's guess: it is configured, was told, or is its vendor's own.
    pub confirmed: bool,
    /// Input and output together, as the upstream itself told.
    pub told_total: Option<u64>,
    pub calibration: f64,
    pub key: TextKey,
    pub tokens: Tokens,
    pub workspace: Option<String>,
    /// The client's own tool that reads files, and the proxy's for removed texts where it is offered.
    pub readers: Readers,
    /// Digest of the first item: the session's tree.
    pub root: Digest,
    /// Tools of calls in the history that the provider holds.
    unseen: Arc<HashMap<String, String>>,
    /// Beta features as [`betas`] gives them.
    betas: Arc<str>,
    memo: Arc<Memo>,
}

/// Whether the proxy's tools may come into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    Offered,
    /// Those that were offered before stay, and none may be called.
    Uncalled,
    Without,
}

/// Names of tools that read removed texts.
#[derive(Debug, Clone, Default)]
pub struct Readers {
    /// The client's own, for files.
    pub file: Option<Arc<str>>,
    /// The proxy's, where it is offered.
    pub evicted: Option<Arc<str>>,
}

/// What comes with a request before its body is read.
#[derive(Clone)]
pub struct Incoming<'r> {
    pub shard: &'r Arc<Shard>,
    pub index: usize,
    pub parts: &'r Parts,
    pub dialect: Dialect,
    /// Which requests begin a chain of responses.
    pub chains: Beginning,
    pub body: Bytes,
    pub permit: Vec<Arc<Permit>>,
    /// `body` is not the client's own: what the proxy adds to the conversation is in it.
    pub overlaid: bool,
    /// Whether the proxy's tools may be offered.
    pub tools: Tools,
    /// What is known of the answer that it continues from the connection that both came on.
    pub reached: Option<&'r Reached>,
}

impl Origin {
    /// Who pays for summaries in its name.
    pub fn payer(&self) -> Payer {
        let Self { tenant, upstream, model, .. } = self;
        Payer { tenant: *tenant, upstream: Arc::clone(upstream), model: Arc::clone(model) }
    }

    /// Gathers what is in force for a request whose body reads as `conversation`.
    pub fn new(compactor: &Compactor, incoming: &Incoming, identity: Identity, conversation: &Conversation) -> Self {
        let Incoming { shard, index, parts, .. } = incoming;
        let config = &shard.proxy.config;
        let upstream = config.upstreams.get(*index).map_or("", |upstream| &upstream.name);
        let model: Arc<str> = model(&conversation.fields, parts.uri.path()).into();
        let subject = Subject { model: &model, upstream, path: parts.uri.path(), headers: &parts.headers };
        let strategies = config.strategies(&subject);
        let Identity { tenant, proof, mark } = identity;
        let mut origin = Self {
            shard: Arc::clone(shard),
            index: *index,
            upstream: Arc::from(upstream),
            headers: parts.headers.clone(),
            uri: parts.uri.clone(),
            dialect: conversation.dialect,
            body: incoming.body.clone(),
            overlaid: incoming.overlaid,
            permit: incoming.permit.clone(),
            tenant,
            proof,
            mark,
            stream: conversation.fields.stream,
            media: carries_media(conversation),
            sight: conversation.sight(),
            envelope: Envelope::of(conversation),
            errand: conversation.errand(parts.uri.path()),
            least_output: conversation.fields.least_output.max(LEAST_OUTPUT),
            budget: Budget::new(&strategies, None, None),
            confirmed: false,
            told_total: None,
            calibration: compactor
                .store
                .calibration(&tenant, upstream, &model)
                .map_or(1.0, |factor| Calibration::of(factor).factor()),
            key: compactor.store.text_key(&tenant),
            tokens: Tokens::for_model(Some(&model)),
            workspace: workspace(&strategies, tenant),
            readers: Readers::default(),
            root: conversation.items.first().map_or([0; 32], |item| item.chain),
            unseen: Arc::clone(&conversation.fields.unseen),
            betas: betas(&parts.headers, &conversation.fields).into(),
            memo: Arc::clone(&compactor.memo),
            model,
            strategies,
        };
        if compactor.bindings.has_refused(&origin) {
            let signed_thinking = SignedThinking::Refused;
            origin.strategies = Arc::new(Strategies { signed_thinking, ..Strategies::clone(&origin.strategies) });
        }
        let told = compactor.store.window(&origin.window_key());
        origin.told_total = told.and_then(|window| window.total);
        origin.budget = Budget::new(&origin.strategies, origin.window(compactor), conversation.max_output());
        origin.budget.told = told.is_some();
        origin.confirmed = told.is_some() || origin.is_configured_or_own();
        origin
    }

    /// The same request with another body, which reads as a whole conversation.
    pub fn with_body(&self, body: Bytes, permit: Permit) -> Option<Self> {
        let mut origin = self.clone();
        origin.body = body;
        origin.permit.push(Arc::new(permit));
        let conversation = origin.read().ok()?;
        let root = conversation.items.first()?.chain;
        let (media, sight) = (carries_media(&conversation), conversation.sight());
        (origin.root, origin.media, origin.sight) = (root, media, sight);
        Some(origin)
    }

    /// The same request with no more of the buffer cap than its body has: what that was made of is not kept.
    pub fn with_own_share(&self) -> Self {
        let mut origin = self.clone();
        origin.permit.drain(..origin.permit.len().saturating_sub(1));
        origin
    }

    /// The same request without its body: whose it is and where it goes.
    pub fn without_body(&self) -> Self {
        let mut origin = self.clone();
        origin.permit.clear();
        origin.body = Bytes::new();
        origin
    }

    /// Reads the body again; what was read before costs a hash.
    pub fn read(&self) -> Result<Conversation<'_>, Unreadable> {
        let mut conversation = wire::read(self.dialect, &self.body, &self.memo, self.tenant.0)?;
        conversation.fields.unseen = Arc::clone(&self.unseen);
        Ok(conversation)
    }

    /// The situation of `conversation`, which must be this body's.
    pub fn situation<'a>(&'a self, conversation: &'a Conversation<'a>, known: &'a Known) -> Situation<'a> {
        Situation {
            conversation,
            known,
            strategies: &self.strategies,
            budget: &self.budget,
            calibration: self.calibration,
            key: &self.key,
            tokens: &self.tokens,
            ways: self.ways(),
        }
    }

    fn ways(&self) -> Ways<'_> {
        let Readers { file, evicted } = &self.readers;
        let folder = self.workspace.as_deref();
        Ways { folder, reader: file.as_deref().filter(|_| folder.is_some()), tool: evicted.as_deref() }
    }

    /// Runs `work` on the situation on a thread where it delays nobody. `None` if the body does not
    /// read or the work did not end.
    pub async fn think<T, F>(self: &Arc<Self>, known: &Known, work: F) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&Situation) -> T + Send + 'static,
    {
        let (origin, known) = (Arc::clone(self), known.clone());
        let shard = Arc::clone(&self.shard);
        let workers = &shard.proxy.compactor.as_ref()?.workers;
        let thought = workers.run(move || {
            let conversation = origin.read().ok()?;
            Some(work(&origin.situation(&conversation, &known)))
        });
        thought.await?
    }

    /// Uncalibrated tokens that make `tokens` calibrated ones.
    pub fn uncalibrated(&self, tokens: u64) -> u64 {
        (tokens as f64 / self.calibration) as u64
    }

    /// The window of the request's model, as far as it is known.
    pub fn window(&self, compactor: &Compactor) -> Option<Window> {
        let key = self.window_key();
        window(&self.shard.proxy.config, &key, compactor.store.window(&key))
    }

    /// Whether the window is configured, or the table's for a model at its vendor's own host.
    fn is_configured_or_own(&self) -> bool {
        let config = &self.shard.proxy.config;
        let host = config.upstreams.get(self.index).and_then(|upstream| upstream.base_url.host());
        let own = host.is_some_and(|host| windows::is_own(host, &self.model));
        own || Window::resolve(config.window(&self.model, &self.upstream), ("", ""), None).is_some()
    }

    /// What a window learned from this request's answer belongs to.
    pub fn window_key(&self) -> WindowKey<'_> {
        let (path, betas) = (self.uri.path(), self.betas());
        WindowKey { tenant: &self.tenant, upstream: &self.upstream, path, model: &self.model, betas }
    }

    /// The beta features that the client asks for.
    pub fn betas(&self) -> &str {
        &self.betas
    }
}

fn carries_media(conversation: &Conversation) -> bool {
    conversation.items.iter().any(|item| !item.facts.media.is_empty())
}

/// The model that a request names, in its body or in its path (Bedrock, Vertex). Empty where it names none.
pub fn model<'r>(fields: &'r Fields, path: &'r str) -> &'r str {
    fields.model.as_deref().or_else(|| wire::model_of_path(path)).unwrap_or_default()
}

/// The beta features that a request asks for in its headers (all lines) and in its body (hosts that have no such
/// header), sorted, divided by commas; they may change a model's window (A24).
pub fn betas(headers: &HeaderMap, fields: &Fields) -> String {
    let lines = headers.get_all(ANTHROPIC_BETA).iter().filter_map(|value| value.to_str().ok());
    let all = lines.flat_map(|line| line.split(',')).chain(fields.betas.iter().map(|beta| &**beta));
    let all: BTreeSet<&str> = all.map(str::trim).filter(|beta| !beta.is_empty()).collect();
    all.into_iter().collect::<Vec<_>>().join(",")
}

/// The window of a model, as far as it is known. `told`: what the store has under `key`.
pub fn window(config: &Config, key: &WindowKey<'_>, told: Option<LearnedWindow>) -> Option<Window> {
    let learned = told.map(|LearnedWindow { input, total }| Learned { input, total });
    Window::resolve(config.window(key.model, key.upstream), (key.model, key.betas), learned)
}

/// `<workspace_dir>/<tenant>`, where removed texts are written as files too.
pub fn workspace(strategies: &Strategies, tenant: Tenant) -> Option<String> {
    let dir = strategies.eviction.as_ref()?.workspace_dir.as_ref()?;
    let name: String = tenant.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(dir.join(name).to_string_lossy().into_owned())
}
