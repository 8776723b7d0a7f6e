//! A shard's pooled clients, one pair for each upstream, and what a failed call means.
//! Of the interim answers (1xx) only `100 Continue` has an effect; early hints are dropped: hyper's client can tell of
//! them, but its server has no way to send one.

use std::error::Error as StdError;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::body::{Expected, Gate, SendBody};
use super::dial::{self, ConnectTimeout, Connector, Dialing, Offer};
use super::outcome::Outcome;
use super::reply::Fault;
use super::route::Route;

/// Largest read and write buffer of one connection.
pub const CONNECTION_BUFFER: usize = 128 * 1024;
/// Most header fields of a message; the HTTP library's own limit is 100.
pub const MAX_HEADERS: usize = 256;
/// Kept-alive connections to one upstream in one shard.
const IDLE_CONNECTIONS: usize = 512;
/// A kept-alive connection that nobody needed for this long is closed.
const IDLE_CONNECTION_AGE: std::time::Duration = std::time::Duration::from_secs(90);

/// The clients of one upstream.
pub struct Clients {
    calls: Client<Connector, SendBody>,
    upgrades: Client<Connector, SendBody>,
}

impl Clients {
    pub fn new(dialing: &Dialing) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION_AGE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_preserve_header_case(true)
            .http1_max_buf_size(CONNECTION_BUFFER)
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(CONNECTION_BUFFER as u32);
        let calls = builder.build(dialing.connector(Offer::Http1And2));
        let upgrades = builder.pool_max_idle_per_host(0).build(dialing.connector(Offer::Http1));
        Self { calls, upgrades }
    }

    /// The upstream's response head, or why there is none. Retries nothing itself; the pool sends a request
    /// again that a dead kept-alive connection did not take.
    pub fn send(
        &self,
        route: &Route,
        request: Request<SendBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, Fault>> {
        let answer = within(route, self.calls.request(request));
        async move { answer.await.and_then(|answer| unswitched(route, answer)) }
    }

    /// As [`send`](Self::send), over a connection that can be upgraded.
    pub async fn send_upgrade(&self, route: &Route, request: Request<SendBody>) -> Result<Response<Incoming>, Fault> {
        within(route, self.upgrades.request(request)).await
    }
}

/// Makes the body of a request that has `Expect: 100-continue` wait for the upstream's word, which the
/// client's `100 Continue` then depends on.
pub fn expect_continue(request: Request<Incoming>) -> Request<SendBody> {
    let gate = Arc::new(Gate::default());
    let opener = Arc::clone(&gate);
    let mut request = request.map(|body| SendBody::Expected(Box::new(Expected::new(body, gate))));
    hyper::ext::on_informational(&mut request, move |response| {
        if response.status() == http::StatusCode::CONTINUE {
            opener.open();
        }
    });
    request
}

/// An answer, but for another protocol: the request asked for none (RFC 9110, 7.8), and who sent it would wait for the
/// answer on a connection that is a tunnel.
fn unswitched(route: &Route, answer: Response<Incoming>) -> Result<Response<Incoming>, Fault> {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer);
    }
    let detail = format!("upstream \"{}\" switched to another protocol that nobody asked for", route.upstream.name);
    Err(Fault::new(Outcome::AnswerBroken, detail))
}

async fn within(route: &Route, answer: legacy::ResponseFuture) -> Result<Response<Incoming>, Fault> {
    let upstream = &*route.upstream;
    match tokio::time::timeout(upstream.response_timeout, answer).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(fault(&upstream.name, &error)),
        Err(_) => {
            let limit = upstream.response_timeout;
            let detail = format!("upstream \"{}\" sent no response within {limit:?}", upstream.name);
            Err(Fault::new(Outcome::ResponseTimeout, detail))
        }
    }
}

fn fault(name: &str, error: &legacy::Error) -> Fault {
    if dial::caused_by::<ConnectTimeout>(error) {
        return Fault::new(Outcome::ConnectTimeout, format!("upstream \"{name}\" took no connection in time"));
    }
    let cause = root_cause(error);
    if dial::caused_by::<rustls::Error>(error) {
        return Fault::new(Outcome::TlsFailed, format!("no TLS connection to upstream \"{name}\": {cause}"));
    }
    if error.is_connect() {
        return Fault::new(Outcome::ConnectFailed, format!("no connection to upstream \"{name}\": {cause}"));
    }
    let http = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    if http.is_some_and(hyper::Error::is_user) {
        return Fault::new(Outcome::BadBody, format!("the request's body is broken: {cause}"));
    }
    Fault::new(Outcome::AnswerBroken, format!("upstream \"{name}\" gave no valid response: {cause}"))
}

fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
