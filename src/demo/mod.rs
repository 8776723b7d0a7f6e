//! The demo, and what it is made of: a provider that is strict about every rule of the wire format,
//! has a real context limit and accounts for its prompt cache; a scripted agent; a coding session.
//! No key, no network but loopback. The tests of the proxy use the same provider.

pub mod account;
pub mod agent;
pub mod answer;
pub mod cache;
pub mod chart;
pub mod claims;
pub mod client;
pub mod completion;
pub mod content;
pub mod encoding;
mod judge;
pub mod messages;
pub mod names;
pub mod profiles;
pub mod provider;
pub mod reader;
pub mod recalled;
mod render;
mod reply;
pub mod report;
pub mod request;
pub mod responses;
pub mod rules;
pub mod script;
mod serve;
pub mod session;
mod socket;
pub mod surfaces;
pub mod trace;
pub mod window;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use self::account::Account;
use self::agent::{Agent, Outcome, Run};
use self::chart::Screen;
use self::claims::{Evidence, ReadBack};
use self::client::Part;
use self::provider::{Exchange, Origin, Provider, Settings, Verdict};
use self::request::Api;
use self::session::{RULE, Session, coding_session};
use self::window::Limit;

/// The window that the provider announces and has at first, tokens.
pub const WINDOW: u64 = 65_536;
/// The model of the demo; no built-in table knows it.
pub const MODEL: &str = "demo-coder";
/// From this call on (counted from one) the provider looks for an occasion to get smaller.
const SHRINK_FROM: usize = 24;
/// Prompts that are such an occasion, tokens: well below any trigger, and growing.
const SHRINK_AT: Range<u64> = 20_000..36_000;

/// Whether everything that the demo printed was so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    AllHeld,
    SomeBroken,
}

/// Why there was no demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("cannot listen on the loopback interface, or cannot write: {0}")]
    Io(#[from] io::Error),
    #[error("the proxy did not start: {0}")]
    Proxy(String),
}

/// Plays the session in `api` without a proxy and with one, and writes to `out` what came of it.
/// `start_proxy` is given the provider's address (its API is under `/v1`) and returns the proxy's,
/// with whatever must stay alive for it to run.
pub async fn run<G>(
    out: &mut impl Write,
    screen: Screen,
    api: Api,
    start_proxy: impl AsyncFnOnce(SocketAddr) -> Result<(SocketAddr, G), String>,
) -> Result<Ending, DemoError> {
    let began = Instant::now();
    let session = Arc::new(coding_session());
    report::introduce(out, api, &session)?;

    let small = provider(&session, limit(api, WINDOW)).await?;
    let direct = agent(&small.base_url(), api, &session).run(|_| {}).await;
    let refused = small.completions().last().map_or(0, |last| last.usage.prompt);
    report::without(out, screen, &direct.outcome, refused)?;

    let endless = provider(&session, Limit::default()).await?;
    let whole = agent(&endless.base_url(), api, &session).run(|_| {}).await;

    let real = provider(&session, limit(api, WINDOW)).await?;
    let (addr, guard) = start_proxy(real.addr()).await.map_err(DemoError::Proxy)?;
    let proxied = agent(&format!("http://{addr}/v1"), api, &session);
    let mut shrunk = None;
    let run = proxied.run(|turn| shrink(&real, api, turn, &mut shrunk)).await;
    let exchanges = real.completions();
    let read_back = read_back(&proxied, addr, &exchanges).await;
    let text = async |id: &str| {
        let answer = proxied.fetch(&format!("http://{addr}/_compactproxy/evicted/{id}")).await.ok();
        let (_, text) = answer.filter(|(status, _)| status.is_success())?;
        String::from_utf8(text.into()).ok()
    };
    let recalled = recalled::recalled(&proxied, &run, &exchanges, text).await;
    drop(guard);

    let client = client::of(api);
    let said = |run: &Run| client::said(client, &run.history);
    let evidence = Evidence {
        api,
        direct: direct.outcome,
        raw: endless.completions().iter().map(|exchange| exchange.usage.prompt).collect(),
        baseline: Account::of(&endless.completions()),
        same_history: said(&run) == said(&whole) && whole.outcome == Outcome::Finished,
        passages: trace::passages(client, &run, &exchanges),
        proxied: Account::of(&exchanges),
        side: Account::of(exchanges.iter().filter(|exchange| exchange.origin == Origin::SideCall)),
        refused: exchanges.iter().filter(|exchange| exchange.verdict == Verdict::Overflow).count(),
        violations: real.violations(),
        without_rule: without_rule(&exchanges),
        read_back,
        recalled,
        shrunk,
        elapsed: began.elapsed(),
        run,
    };
    report::with(out, screen, &evidence)?;
    Ok(if claims::claims(&evidence).iter().all(|claim| claim.held) { Ending::AllHeld } else { Ending::SomeBroken })
}

async fn provider(session: &Session, limit: Limit) -> io::Result<Provider> {
    let models = vec![(MODEL.to_owned(), Some(WINDOW))];
    Provider::start(Settings { limit, models, behaviour: session.behaviour(), ..Settings::default() }).await
}

fn agent(base_url: &str, api: Api, session: &Arc<Session>) -> Agent {
    let mut agent = Agent::new(base_url.to_owned(), session.clone());
    agent.api = api;
    agent
}

/// A window of so many tokens. The newest models of Messages take any `max_tokens`, and answer as far as there is
/// room.
fn limit(api: Api, window: u64) -> Limit {
    match api {
        Api::Chat | Api::Responses => Limit::of(window),
        Api::Messages => Limit { input: Some(window), total: None },
    }
}

/// Providers move models to other machines without telling: late in the session the window becomes
/// smaller than what was announced, at a moment when the next prompts will not fit. No trigger can
/// foresee that, only recovery helps.
fn shrink(provider: &Provider, api: Api, turn: usize, shrunk: &mut Option<(usize, u64)>) {
    if turn < SHRINK_FROM || shrunk.is_some() {
        return;
    }
    let exchanges = provider.completions();
    let last = exchanges.iter().rev().find(|exchange| exchange.origin == Origin::Agent);
    let last = last.map_or(0, |exchange| exchange.usage.prompt);
    if SHRINK_AT.contains(&last) {
        let window = (last + 1).next_multiple_of(1_024);
        provider.set_limit(limit(api, window));
        *shrunk = Some((turn, window));
    }
}

/// How many of the agent's requests arrived without the user's rule, word for word.
fn without_rule(exchanges: &[Exchange]) -> usize {
    let accepted = exchanges.iter().filter(|exchange| exchange.verdict == Verdict::Accepted);
    let asked = accepted.filter(|exchange| exchange.origin == Origin::Agent);
    asked.filter(|exchange| memchr::memmem::find(&exchange.body, RULE.as_bytes()).is_none()).count()
}

/// Reads the long log back by the pointer that was sent in its place.
async fn read_back(agent: &Agent, proxy: SocketAddr, exchanges: &[Exchange]) -> ReadBack {
    let Some(original) = agent.session.long_log() else { return ReadBack::NoPointer };
    let Some(pointer) = exchanges.iter().find_map(|exchange| pointer(agent.api, &exchange.body, original)) else {
        return ReadBack::NoPointer;
    };
    match agent.fetch(&format!("http://{proxy}{pointer}")).await {
        Ok((http::StatusCode::OK, text)) => {
            ReadBack::Text { pointer, same: text == original.as_bytes(), bytes: text.len() }
        }
        Ok((status, _)) => ReadBack::Failed(format!("status {status}")),
        Err(error) => ReadBack::Failed(error),
    }
}

/// The path behind which a text is kept, from the first result that begins as it does but is shorter.
fn pointer(api: Api, body: &[u8], original: &str) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let start: String = original.chars().take(200).collect();
    let client = client::of(api);
    let mut parts = request::list(&body, client.list()).iter().flat_map(|item| client.parts(item));
    parts.find_map(|part| {
        let Part::Result { text, .. } = part else { return None };
        let replaced = text.len() < original.len() && text.contains(&start);
        let path = "/_compactproxy/evicted/";
        let (_, id) = text.split_once(path).filter(|_| replaced)?;
        let id: String = id.chars().take_while(char::is_ascii_hexdigit).collect();
        Some(format!("{path}{id}"))
    })
}

/// A run that came to its end.
impl Run {
    pub fn finished(&self) -> bool {
        self.outcome == Outcome::Finished
    }
}

#[cfg(test)]
#[path = "tests/corpus.rs"]
mod corpus;
