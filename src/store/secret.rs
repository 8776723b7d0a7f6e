//! The installation's secret: tenants and text ids are keyed by it, so that neither can be made
//! from outside, and a copy of one database says nothing about another.

use std::fmt;

use crate::compact::TextKey;

use super::Tenant;
use crate::wire::Digest;

const TENANTS: &str = "compactproxy 2025 tenants";
const SESSIONS: &str = "compactproxy 2026 sessions";
const TEXTS: &str = "compactproxy 2025 text ids";

/// 32 random bytes, made at the first opening and kept in the database.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct InstallationSecret {
    bytes: [u8; 32],
    /// The keys that are derived from it, kept because every request needs one.
    tenants: [u8; 32],
    texts: [u8; 32],
    sessions: [u8; 32],
}

impl InstallationSecret {
    /// From the operating system; `None` if it has no randomness to give.
    pub(super) fn random() -> Option<Self> {
        let mut bytes = [0; 32];
        rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).ok()?;
        Some(Self::of(bytes))
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::of)
    }

    fn of(bytes: [u8; 32]) -> Self {
        let (tenants, texts) = (blake3::derive_key(TENANTS, &bytes), blake3::derive_key(TEXTS, &bytes));
        let sessions = blake3::derive_key(SESSIONS, &bytes);
        Self { bytes, tenants, texts, sessions }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A tenant from the parts that name it. The parts' boundaries count.
    pub(super) fn tenant(&self, parts: &[&[u8]]) -> Tenant {
        let mut named = Vec::with_capacity(256);
        for part in parts {
            named.extend_from_slice(&(part.len() as u64).to_le_bytes());
            named.extend_from_slice(part);
        }
        let mut id = [0; 16];
        blake3::Hasher::new_keyed(&self.tenants).update(&named).finalize_xof().fill(&mut id);
        Tenant(id)
    }

    /// A session's id from its tenant, its name and the digest of its first message.
    pub(super) fn session(&self, tenant: &Tenant, name: Option<&[u8]>, root: Option<&Digest>) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.sessions);
        hasher.update(&tenant.0);
        for part in [name, root.map(|root| root.as_slice())] {
            let (there, part) = (part.is_some(), part.unwrap_or_default());
            hasher.update(&[u8::from(there)]).update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        id
    }

    pub(super) fn text_key(&self, tenant: &Tenant) -> TextKey {
        TextKey(*blake3::keyed_hash(&self.texts, &tenant.0).as_bytes())
    }
}

impl fmt::Debug for InstallationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_depends_on_secret_and_part_boundaries() {
        let (one, two) = (InstallationSecret::random().unwrap(), InstallationSecret::random().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.tenant(&[b"openai", b"key"]), one.tenant(&[b"openai", b"key"]));
        assert_ne!(one.tenant(&[b"openai", b"key"]), one.tenant(&[b"opena", b"ikey"]));
        assert_ne!(one.tenant(&[b"openai", b"key"]), two.tenant(&[b"openai", b"key"]));
    }

    #[test]
    fn text_ids_differ_between_tenants() {
        let secret = InstallationSecret::random().unwrap();
        let (a, b) = (secret.tenant(&[b"a"]), secret.tenant(&[b"b"]));
        assert_eq!(secret.text_key(&a).id("text"), secret.text_key(&a).id("text"));
        assert_ne!(secret.text_key(&a).id("text"), secret.text_key(&b).id("text"));
    }

    #[test]
    fn it_never_shows() {
        assert_eq!(format!("{:?}", InstallationSecret::random().unwrap()), "[secret]");
    }
}
