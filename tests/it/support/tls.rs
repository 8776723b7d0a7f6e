//! Certificates for the tests' own servers.

use std::path::PathBuf;
use std::sync::Arc;

use compactproxy::config::Tls;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A self-signed certificate for 127.0.0.1 and localhost, its own authority.
pub struct Authority {
    folder: tempfile::TempDir,
    made: CertifiedKey<rcgen::KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let made = generate_simple_self_signed(["127.0.0.1".into(), "localhost".into()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self { folder, made }
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub fn files(&self) -> Tls {
        Tls { cert: self.file(), key: self.folder.path().join("key.pem") }
    }

    pub fn server(&self, alpn: &[&str]) -> tokio_rustls::TlsAcceptor {
        let key = PrivateKeyDer::try_from(self.made.signing_key.serialize_der()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config).into()
    }

    pub fn client(&self, alpn: &[&str]) -> tokio_rustls::TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config).into()
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
