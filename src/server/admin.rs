//! The operators' port: `/healthz`, `/readyz`, `/metrics`.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::config::Secret;
use crate::store::Health;

/// How long an operator's client may take for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Operators' connections at the same time; more wait.
const CONNECTIONS: usize = 64;

/// What other parts have to say to operators.
pub struct Reports {
    /// The metrics in Prometheus' text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    pub store: Box<dyn Fn() -> Health + Send + Sync>,
}

/// The admin port's state.
pub struct Admin {
    pub reports: Reports,
    /// Asked for everywhere but at the probes.
    pub token: Option<Secret>,
    /// From listening until the drain begins.
    pub ready: AtomicBool,
}

impl Default for Reports {
    fn default() -> Self {
        Self { metrics: Box::new(String::new), store: Box::new(|| Health::Off) }
    }
}

/// Serves the admin port; ends only with its runtime.
pub async fn serve(admin: Arc<Admin>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let admin = Arc::clone(&admin);
                tokio::spawn(async move {
                    connection(admin, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(admin: Arc<Admin>, stream: TcpStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = admin.answer(request.method(), request.uri().path(), request.headers());
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = pin!(connection).await {
        tracing::debug!(%error, "an admin connection ended");
    }
}

impl Admin {
    fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match path {
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.readiness(),
            _ if !self.admits(headers) => {
                let mut refused = text(StatusCode::UNAUTHORIZED, "the admin token is missing or wrong\n");
                refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                refused
            }
            "/metrics" => of_type("text/plain; version=0.0.4; charset=utf-8", StatusCode::OK, (self.reports.metrics)()),
            _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
        }
    }

    /// A failed store degrades the proxy, it does not stop it: still ready.
    fn readiness(&self) -> Response<Full<Bytes>> {
        let ready = self.ready.load(Ordering::Acquire);
        let degraded = (self.reports.store)() == Health::Degraded;
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        of_type("application/json", status, serde_json::json!({"ready": ready, "degraded": degraded}).to_string())
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        // Hashes compare in constant time.
        given.is_some_and(|given| blake3::hash(given) == blake3::hash(token.expose().as_bytes()))
    }
}

fn text(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    of_type("text/plain; charset=utf-8", status, body)
}

fn of_type(kind: &'static str, status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(admin: &Admin, path: &str, token: Option<&str>) -> StatusCode {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        admin.answer(&Method::GET, path, &headers).status()
    }

    #[test]
    fn the_token_guards_all_but_the_probes() {
        let token = Some(Secret::new("s3cret".into()));
        let admin = Admin { reports: Reports::default(), token, ready: AtomicBool::new(true) };
        assert_eq!(status(&admin, "/healthz", None), StatusCode::OK);
        assert_eq!(status(&admin, "/readyz", None), StatusCode::OK);
        assert_eq!(status(&admin, "/metrics", None), StatusCode::UNAUTHORIZED);
        assert_eq!(status(&admin, "/metrics", Some("s3cre")), StatusCode::UNAUTHORIZED);
        assert_eq!(status(&admin, "/metrics", Some("s3cret")), StatusCode::OK);
        assert_eq!(status(&admin, "/none", Some("s3cret")), StatusCode::NOT_FOUND);
        assert_eq!(admin.answer(&Method::POST, "/healthz", &HeaderMap::new()).status(), 405);
    }

    #[test]
    fn a_failed_store_is_ready_and_degraded_and_a_drain_is_neither() {
        let reports = Reports { store: Box::new(|| Health::Degraded), ..Reports::default() };
        let admin = Admin { reports, token: None, ready: AtomicBool::new(true) };
        assert_eq!(status(&admin, "/readyz", None), StatusCode::OK);
        admin.ready.store(false, Ordering::Release);
        assert_eq!(status(&admin, "/readyz", None), StatusCode::SERVICE_UNAVAILABLE);
    }
}
