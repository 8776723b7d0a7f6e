//! Inbound TLS.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// A certificate or key that cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("server.tls.cert: {0}")]
    Certificate(String),
    #[error("server.tls.key: {0}")]
    Key(String),
    #[error("server.tls: {0}")]
    Pair(#[from] rustls::Error),
}

/// The acceptor, offering HTTP/2 and HTTP/1.1.
pub fn acceptor(files: &Tls) -> Result<TlsAcceptor, TlsError> {
    let bad_certificate = |error: rustls::pki_types::pem::Error| TlsError::Certificate(error.to_string());
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(bad_certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(bad_certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| TlsError::Key(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
