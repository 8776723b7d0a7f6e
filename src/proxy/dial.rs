//! Connections to upstreams: direct or through `HTTPS_PROXY`, plain or TLS, within one time limit.

use std::error::Error as StdError;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tower_service::Service;

use super::route::Route;
use crate::config::Upstream;

type BoxError = Box<dyn StdError + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Silence after which the kernel probes whether an upstream is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What a shard needs to connect to one upstream. Made once, used by all shards.
#[derive(Clone)]
pub struct Dialing {
    tls: Arc<ClientConfig>,
    proxy: Option<hyper_util::client::proxy::matcher::Intercept>,
    limit: Duration,
}

/// Why an upstream cannot be dialled at all.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("upstream \"{name}\": cannot read ca_file: {reason}")]
    CaFile { name: String, reason: String },
    #[error("upstream \"{name}\": the system has no usable root certificates: {reason}")]
    NoRoots { name: String, reason: String },
    #[error("upstream \"{name}\": HTTPS_PROXY must be an http:// address")]
    Proxy { name: String },
    #[error("upstream \"{name}\": TLS cannot be set up: {reason}")]
    Tls { name: String, reason: String },
}

/// The protocols offered in the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Http1And2,
    /// An upgrade needs a connection of its own, so HTTP/1.1.
    Http1,
}

/// A connection was not there in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {0:?}")]
pub struct ConnectTimeout(Duration);

/// The system's root certificates, read at most once.
#[derive(Default)]
pub struct SystemRoots(Option<Arc<RootCertStore>>);

/// `HTTPS_PROXY` and `NO_PROXY` (or in small letters) as the environment has them now. `ALL_PROXY` is not read: it
/// often names a SOCKS proxy for other programs.
pub fn proxies() -> Matcher {
    matcher(|name| std::env::var(name).or_else(|_| std::env::var(name.to_lowercase())).unwrap_or_default())
}

fn matcher(variable: impl Fn(&str) -> String) -> Matcher {
    Matcher::builder().https(variable("HTTPS_PROXY")).no(variable("NO_PROXY")).build()
}

impl Dialing {
    pub fn new(route: &Route, matcher: &Matcher, system: &mut SystemRoots) -> Result<Self, DialError> {
        let upstream = &*route.upstream;
        let roots = if route.is_https() { roots(upstream, system)? } else { Arc::new(RootCertStore::empty()) };
        let proxy = if route.is_https() { matcher.intercept(&upstream.base_url) } else { None };
        if proxy.as_ref().is_some_and(|proxy| proxy.uri().scheme_str() != Some("http")) {
            return Err(DialError::Proxy { name: upstream.name.clone() });
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| DialError::Tls { name: upstream.name.clone(), reason: error.to_string() })?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(tls), proxy, limit: upstream.connect_timeout })
    }

    pub fn connector(&self, offer: Offer) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.enforce_http(false);
        let dialer = match &self.proxy {
            None => Dialer::Direct(tcp),
            Some(proxy) => {
                let tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                Dialer::Tunnel(Box::new(match proxy.basic_auth() {
                    Some(auth) => tunnel.with_auth(auth.clone()),
                    None => tunnel,
                }))
            }
        };
        let mut tls = (*self.tls).clone();
        tls.alpn_protocols = match offer {
            Offer::Http1And2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Offer::Http1 => vec![b"http/1.1".to_vec()],
        };
        Connector { https: HttpsConnector::from((dialer, tls)), limit: self.limit }
    }
}

fn roots(upstream: &Upstream, system: &mut SystemRoots) -> Result<Arc<RootCertStore>, DialError> {
    let Some(path) = &upstream.ca_file else { return system.get(&upstream.name) };
    let failed = |reason: String| DialError::CaFile { name: upstream.name.clone(), reason };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        store.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if store.is_empty() { Err(failed("it holds no certificate".into())) } else { Ok(Arc::new(store)) }
}

impl SystemRoots {
    fn get(&mut self, name: &str) -> Result<Arc<RootCertStore>, DialError> {
        if let Some(store) = &self.0 {
            return Ok(Arc::clone(store));
        }
        let loaded = rustls_native_certs::load_native_certs();
        let mut store = RootCertStore::empty();
        // System stores hold certificates that no TLS library accepts; one bad one is no reason to stop.
        let (added, _) = store.add_parsable_certificates(loaded.certs);
        if added == 0 {
            let reason = loaded.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
            return Err(DialError::NoRoots { name: name.to_owned(), reason });
        }
        Ok(Arc::clone(self.0.insert(Arc::new(store))))
    }
}

/// Connects to an upstream; the time limit covers name, TCP, proxy and TLS together.
#[derive(Clone)]
pub struct Connector {
    https: HttpsConnector<Dialer>,
    limit: Duration,
}

#[derive(Clone)]
enum Dialer {
    Direct(HttpConnector),
    /// In a box: the client copies its connector for each request.
    Tunnel(Box<Tunnel<HttpConnector>>),
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let (connecting, limit) = (self.https.call(target), self.limit);
        Box::pin(async move {
            tokio::time::timeout(limit, connecting).await.unwrap_or_else(|_| Err(ConnectTimeout(limit).into()))
        })
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(tcp) => tcp.poll_ready(cx).map_err(Into::into),
            Self::Tunnel(tunnel) => tunnel.poll_ready(cx).map_err(Into::into),
        }
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        match self {
            Self::Direct(tcp) => {
                let connecting = tcp.call(target);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
            Self::Tunnel(tunnel) => {
                let connecting = tunnel.call(target);
                Box::pin(async move { connecting.await.map_err(Into::into) })
            }
        }
    }
}

/// Whether an error, or what caused it, is a `T`. Looks into `io::Error`s, which hide what they wrap.
pub fn caused_by<T: StdError + 'static>(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<T>() {
            return true;
        }
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_a_proxy_and_who_is_reached_without_it() {
        let matcher = matcher(|name| match name {
            "HTTPS_PROXY" => "http://proxy:3128".to_owned(),
            "NO_PROXY" => "localhost,.internal,10.0.0.0/8".to_owned(),
            name => panic!("{name}"),
        });
        let proxied = |uri: &str| matcher.intercept(&uri.parse().unwrap()).is_some();
        assert!(proxied("https://api.openai.com/v1") && proxied("https://192.0.2.1/v1"));
        for uri in
            ["https://localhost/v1", "https://llm.internal/v1", "https://10.1.2.3/v1", "http://api.openai.com/v1"]
        {
            assert!(!proxied(uri), "{uri}");
        }
    }
}
