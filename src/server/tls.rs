//! Inbound TLS: the certificate that is served with, and the one that takes its place when the files change.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// The files are looked at by a handshake, at most this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// As long as the same stays wrong with them, it is told once in this time.
const TELL_EVERY: Duration = Duration::from_secs(10 * 60);

/// A certificate or key that cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("server.tls.cert: {0}")]
    Certificate(pem::Error),
    #[error("server.tls.key: {0}")]
    Key(pem::Error),
    #[error("server.tls: {0}")]
    Pair(#[from] rustls::Error),
}

impl TlsError {
    /// Whether the system did not give a file: what is in it is not known.
    fn is_unread(&self) -> bool {
        matches!(self, Self::Certificate(pem::Error::Io(_)) | Self::Key(pem::Error::Io(_)))
    }
}

/// What connections are accepted with; all shards share it.
pub struct Certificate {
    files: Tls,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The files as they were before they were read; what could not be served with counts too, what was not given does
    /// not.
    read: Seen,
    looked: Instant,
    /// What was wrong with the files when that was last told, and when.
    told: Option<(String, Instant)>,
}

impl Current {
    /// Whether what is wrong is to be told at `now`; then it counts as told.
    fn is_news(&mut self, wrong: &str, now: Instant) -> bool {
        let recent = |at: Instant| now.saturating_duration_since(at) < TELL_EVERY;
        if self.told.as_ref().is_some_and(|(told, at)| told == wrong && recent(*at)) {
            return false;
        }
        self.told = Some((wrong.to_owned(), now));
        true
    }
}

/// Which two files lie there, and which version of them. `None`: they cannot be looked at.
type Seen = Option<[Version; 2]>;

/// Changes with the content, the name and the permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    file: (u64, u64),
    bytes: u64,
    changed: (i64, i64),
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(files: &Tls) -> Result<Self, TlsError> {
        let read = seen(files);
        let current = Current { acceptor: acceptor(files)?, read, looked: Instant::now(), told: None };
        Ok(Self { files: files.clone(), current: Mutex::new(current) })
    }

    /// For a handshake at `now`: with what lies in the files, if that can be served with, else as before.
    pub fn acceptor(&self, now: Instant) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(current.looked) >= LOOK_EVERY {
            current.looked = now;
            self.follow(&mut current, acceptor);
        }
        current.acceptor.clone()
    }

    fn follow(&self, current: &mut Current, read: impl FnOnce(&Tls) -> Result<TlsAcceptor, TlsError>) {
        let there = seen(&self.files);
        if there == current.read {
            return;
        }
        let read = read(&self.files);
        // Without another change of theirs, too, files that were not given now may be next time.
        current.read = there.filter(|_| !read.as_ref().is_err_and(TlsError::is_unread));
        match read {
            Ok(acceptor) => {
                (current.acceptor, current.told) = (acceptor, None);
                tracing::info!(cert = ?self.files.cert, "the certificate was renewed");
            }
            // One of two files may be there before the other.
            Err(error) => {
                if current.is_news(&error.to_string(), current.looked) {
                    tracing::warn!(%error, "the certificate has changed and cannot be used: the old one stays");
                }
            }
        }
    }
}

fn seen(files: &Tls) -> Seen {
    let version = |path: &Path| -> io::Result<Version> {
        let file = fs::metadata(path)?;
        let changed = (file.ctime(), file.ctime_nsec());
        Ok(Version { file: (file.dev(), file.ino()), bytes: file.len(), changed })
    };
    Some([version(&files.cert).ok()?, version(&files.key).ok()?])
}

/// The acceptor, offering HTTP/2 and HTTP/1.1.
fn acceptor(files: &Tls) -> Result<TlsAcceptor, TlsError> {
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(TlsError::Certificate)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};

    use super::*;

    type Pair = CertifiedKey<rcgen::KeyPair>;

    fn made() -> Pair {
        generate_simple_self_signed(["localhost".into()]).unwrap()
    }

    /// Each time with another length: clocks of files are coarse.
    fn write(files: &Tls, certificate: &Pair, key: &Pair) {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);
        let end = "\n".repeat(WRITTEN.fetch_add(1, Ordering::Relaxed));
        fs::write(&files.cert, certificate.cert.pem() + &end).unwrap();
        fs::write(&files.key, key.signing_key.serialize_pem() + &end).unwrap();
    }

    /// Whether a client that trusts nothing but `pair` gets through to whoever has `acceptor`.
    async fn trusts(pair: &Pair, acceptor: &TlsAcceptor) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(1 << 16);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from("localhost").unwrap();
        let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        client.is_ok() && server.is_ok()
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_served_with_and_an_unusable_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let [first, second, third] = [made(), made(), made()];
        write(&files, &first, &first);
        let certificate = Certificate::read(&files).unwrap();
        let start = Instant::now();
        let at = |seconds: u64| certificate.acceptor(start + LOOK_EVERY * 2 + Duration::from_secs(seconds));
        assert!(trusts(&first, &at(0)).await);

        write(&files, &second, &second);
        assert!(trusts(&first, &at(0)).await, "once a second is enough");
        assert!(trusts(&second, &at(1)).await && !trusts(&first, &at(1)).await);

        // The certificate is there, its key not yet.
        write(&files, &third, &second);
        assert!(trusts(&second, &at(2)).await);
        fs::write(&files.cert, "no certificate").unwrap();
        assert!(trusts(&second, &at(3)).await);
        fs::remove_file(&files.key).unwrap();
        assert!(trusts(&second, &at(4)).await);

        // Moved into place, as those who renew do.
        let other = Tls { cert: folder.path().join("new.cert"), key: folder.path().join("new.key") };
        write(&other, &third, &third);
        fs::rename(&other.cert, &files.cert).unwrap();
        fs::rename(&other.key, &files.key).unwrap();
        assert!(trusts(&third, &at(5)).await);
        assert!(trusts(&third, &at(500)).await);
    }

    #[test]
    fn what_stays_wrong_is_told_sparsely() {
        let folder = tempfile::tempdir().unwrap();
        let files = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let pair = made();
        write(&files, &pair, &pair);
        let certificate = Certificate::read(&files).unwrap();
        let told = |at: u64| {
            let mut current = certificate.current.lock().unwrap();
            current.looked = Instant::now() + Duration::from_secs(at);
            let error = if at < 3_000 { "gone" } else { "another" };
            certificate.follow(&mut current, |_| Err(TlsError::Key(pem::Error::Io(io::Error::other(error)))));
            current.told.clone().map(|(_, when)| when)
        };
        write(&files, &pair, &pair);
        let first = told(0);
        assert!(first.is_some());
        assert_eq!((1..600).map(told).find(|when| *when != first), None);
        let again = told(601);
        assert_ne!(again, first);
        assert_ne!(told(3_000), again, "something else is wrong");
        write(&files, &pair, &pair);
        certificate.follow(&mut certificate.current.lock().unwrap(), acceptor);
        assert_eq!(certificate.current.lock().unwrap().told, None, "nothing is any more");
    }

    #[tokio::test]
    async fn files_that_the_system_did_not_give_are_read_at_the_next_look() {
        let folder = tempfile::tempdir().unwrap();
        let files = Tls { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        let [first, second] = [made(), made()];
        write(&files, &first, &first);
        let certificate = Certificate::read(&files).unwrap();
        write(&files, &second, &second);
        // Too many files are open, say.
        let not_given = |_: &Tls| Err(TlsError::Key(pem::Error::Io(io::Error::other("too many files"))));
        certificate.follow(&mut certificate.current.lock().unwrap(), not_given);
        let looked = certificate.current.lock().unwrap().looked;
        assert!(trusts(&first, &certificate.acceptor(looked)).await, "as before");
        assert!(trusts(&second, &certificate.acceptor(looked + LOOK_EVERY)).await);
        certificate.follow(&mut certificate.current.lock().unwrap(), |_| panic!("what was read is not read again"));
    }
}
