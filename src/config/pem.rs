//! Certificate and key files: read with the configuration, so that `check` says what serving would refuse.

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use toml::de::DeValue;

use super::problems::{Entry, Problems};
use super::value::{Value, path, values};

/// A PEM file with at least one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFile(pub PathBuf);

/// A PEM file with a private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile(pub PathBuf);

values! {
    CertificateFile: |value| readable(path(value)?, certificate).map(Self), |file| file.0.show();
    KeyFile: |value| readable(path(value)?, key).map(Self), |file| file.0.show();
}

fn readable(path: PathBuf, read: fn(&Path) -> Result<(), Error>) -> Result<PathBuf, String> {
    match read(&path) {
        Ok(()) => Ok(path),
        Err(Error::Io(error)) => Err(format!("cannot be read: {error}")),
        Err(error) => Err(format!("is no such PEM file: {error}")),
    }
}

fn certificate(path: &Path) -> Result<(), Error> {
    let mut certificates = CertificateDer::pem_file_iter(path)?.peekable();
    if certificates.peek().is_none() {
        return Err(Error::NoItemsFound);
    }
    certificates.try_for_each(|certificate| certificate.map(drop))
}

fn key(path: &Path) -> Result<(), Error> {
    PrivateKeyDer::from_pem_file(path).map(drop)
}
