//! `compact`: one body from stdin to stdout, as serving would send it.

use std::io::{Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::state::limits;
use super::{CompactArgs, Failure};
use crate::compact::budget::{Budget, Learned, Window};
use crate::compact::calibration::Calibration;
use crate::compact::client_compaction::asks_for_it;
use crate::compact::evict::Ways;
use crate::compact::plan::{Actions, Need, Proposal, Situation, plan};
use crate::compact::render::render;
use crate::compact::tokens::Tokens;
use crate::config::{Config, Subject};
use crate::proxy::laid::{known_with, lay};
use crate::proxy::route::{self, Route};
use crate::proxy::{origin, workspace};
use crate::store::{Batch, LearnedWindow, Stage, Store, Tenant, WindowKey};
use crate::wire::memo::Memo;
use crate::wire::splice::splice;
use crate::wire::{self, Conversation, Dialect, Digest};

/// What is reported of a body, and what goes out in its place.
struct Compacted {
    pieces: Option<Vec<Bytes>>,
    actions: Actions,
    tokens: Option<(u64, u64)>,
    note: &'static str,
}

impl Compacted {
    fn original(note: &'static str) -> Self {
        Self { pieces: None, actions: Actions::default(), tokens: None, note }
    }
}

/// Writes the body that would be sent, and one JSON line of report to stderr.
pub fn run(config: Config, args: CompactArgs) -> Result<(), Failure> {
    let failure = |error: std::io::Error| Failure::Runtime(error.to_string());
    let mut body = Vec::new();
    std::io::stdin().lock().read_to_end(&mut body).map_err(failure)?;
    let body = Bytes::from(body);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let compacted = runtime.block_on(compact(&config, args.dialect(), &body));
    let sent = compacted.pieces.map_or_else(|| body.to_vec(), |pieces| pieces.concat());
    let report = json!({
        "actions": compacted.actions.names().collect::<Vec<_>>(),
        "bytes_before": body.len(),
        "bytes_after": sent.len(),
        "tokens_before": compacted.tokens.map(|tokens| tokens.0),
        "tokens_after": compacted.tokens.map(|tokens| tokens.1),
        "note": compacted.note,
    });
    let _ = writeln!(std::io::stderr(), "{report}");
    super::print(&sent)
}

async fn compact(config: &Config, dialect: Dialect, body: &Bytes) -> Compacted {
    if !config.compacts() {
        return Compacted::original("no strategy is on");
    }
    let Ok(store) = Store::serve(&config.state.url, limits(config)).await else {
        return Compacted::original("the store cannot be opened");
    };
    let memo = Memo::new(0);
    let compacted = match wire::read(dialect, body, &memo, [0; 16]) {
        Ok(conversation) => with_store(config, &store, body, &conversation).await,
        Err(_) => Compacted::original("the body does not read as a request of this API"),
    };
    store.close().await;
    compacted
}

async fn with_store(config: &Config, store: &Arc<Store>, body: &Bytes, conversation: &Conversation<'_>) -> Compacted {
    let model = conversation.fields.model.clone().unwrap_or_else(|| "".into());
    let (upstream, path) = destination(config, conversation.dialect);
    let subject = Subject { model: &model, upstream, path: &path, headers: &HeaderMap::new() };
    let strategies = config.strategies(&subject);
    let tenant = store.tenant(&[b"single"]);
    let key = WindowKey { tenant: &tenant, upstream, path: &path, model: &model, betas: "" };
    let learned = store.window(&key).map(|LearnedWindow { input, total }| Learned { input, total });
    let window = Window::resolve(config.window(&model, upstream), &model, learned);
    let budget = Budget::new(&strategies, window, conversation.max_output());
    let chain: Vec<Digest> = conversation.chain().copied().collect();
    let known = store.known(&tenant, &chain).await;
    let folder = origin::workspace(&strategies, tenant);
    let situation = Situation {
        conversation,
        known: &known,
        strategies: &strategies,
        budget: &budget,
        calibration: store
            .calibration(&tenant, upstream, &model)
            .map_or(1.0, |factor| Calibration::of(factor).factor()),
        key: &store.text_key(&tenant),
        tokens: &Tokens::for_model(Some(&model)),
        ways: Ways { folder: folder.as_deref(), ..Ways::default() },
    };
    let mut proposal = match asks_for_it(conversation) {
        true => Proposal::default(),
        false => plan(&situation),
    };
    if let Need::Late { cut } | Need::Now { cut } = proposal.summary {
        // The digest where serving would ask a model.
        let known = known_with(&known, &proposal);
        if let Some(laid) = lay(&situation.with(&known), cut, None) {
            laid.over(&mut proposal);
        }
    }
    if strategies.observe {
        return Compacted { actions: proposal.actions, ..Compacted::original("observed only") };
    }
    let Proposal { evictions, checkpoint, texts, actions, tokens, .. } = proposal;
    let checkpoint = checkpoint.map(|(digest, checkpoint)| (digest, checkpoint, Stage::Activated));
    let activated = checkpoint.is_some();
    let root = chain.first().copied().unwrap_or_default();
    let new = activated || !evictions.is_empty();
    let batch = Batch { root, texts, evictions, checkpoint, ..Batch::default() };
    let refused = new && !keep(store, &tenant, folder.as_deref(), batch).await;
    // What is known already stands, whether or not the store takes more.
    let (actions, tokens, note) = match refused {
        true => (Actions::default(), None, "the store does not take what would be removed"),
        false => (actions, tokens, ""),
    };
    let rendering = render(conversation, &store.known(&tenant, &chain).await);
    let evicted = actions.evicted || rendering.evicted;
    let actions = Actions { evicted, checkpoint: rendering.checkpoint && (refused || !activated), ..actions };
    let pieces = Some(rendering.edits).filter(|edits| !edits.is_empty()).and_then(|edits| splice(body, edits).ok());
    Compacted { pieces, actions, tokens: tokens.map(|tokens| (tokens.before, tokens.after)), note }
}

/// The upstream that serving would choose for such a body, and the path there.
fn destination(config: &Config, dialect: Dialect) -> (&str, String) {
    let asked = format!("/v1{}", dialect.path());
    let routes = config.upstreams.iter().map(|upstream| Route::new(Arc::clone(upstream)));
    let routes = routes.collect::<Result<Vec<_>, _>>().unwrap_or_default();
    let index = route::choose(&routes, &asked, &HeaderMap::new());
    let upstream = config.upstreams.get(index).map_or("", |upstream| &*upstream.name);
    let target = routes.get(index).and_then(|route| route.target(&asked.parse().ok()?));
    (upstream, target.map_or_else(|| asked.clone(), |target| target.path().to_owned()))
}

/// Keeps what is removed as serving does: in the workspace too, where one is configured.
async fn keep(store: &Store, tenant: &Tenant, workspace: Option<&str>, batch: Batch) -> bool {
    if let Some(folder) = workspace
        && let Err(error) = workspace::write(folder, &batch.texts).await
    {
        tracing::warn!(%error, folder, "nothing is removed");
        return false;
    }
    store.commit(tenant, batch).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upstream_is_the_one_that_serving_would_choose() {
        let upstream =
            |name, api| format!("[[upstream]]\nname = \"{name}\"\nbase_url = \"http://h/api\"\napi = \"{api}\"\n");
        let file = upstream("claude", "anthropic") + &upstream("gpt", "openai") + &upstream("other", "chat");
        let config = Config::parse(&file, &|_| None).unwrap();
        assert_eq!(destination(&config, Dialect::Chat), ("gpt", "/api/v1/chat/completions".to_owned()));
    }
}
