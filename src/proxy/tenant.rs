//! Whose state a request may use: a keyed hash of its credential (L7).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use serde_json::Value;

use crate::config::TenantRule;
use crate::store::{Store, Tenant};

const API_KEYS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

/// A tenant, and how far it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub tenant: Tenant,
    pub proof: Proof,
}

/// How far a tenant is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Whoever knows the credential has it, or an upstream has accepted the token.
    Known,
    /// A token's own claim: until its upstream answers 2xx nothing is removed for it.
    Claimed,
}

/// Who sent a request to `upstream`.
pub fn identify(store: &Store, rule: &TenantRule, upstream: &str, headers: &HeaderMap) -> Identity {
    let known = |tenant| Identity { tenant, proof: Proof::Known };
    let credential = Credential::of(headers);
    let named = match rule {
        TenantRule::Single => return known(store.tenant(&[b"single"])),
        TenantRule::Credential => &b""[..],
        TenantRule::Header(name) => headers.get(name).map_or(&b""[..], http::HeaderValue::as_bytes),
    };
    match credential {
        Credential::Opaque(secret) => known(store.tenant(&[b"credential", upstream.as_bytes(), secret, named])),
        Credential::Token { issuer, subject } => {
            let parts = [b"token", upstream.as_bytes(), issuer.as_bytes(), subject.as_bytes(), named];
            let tenant = store.tenant(&parts);
            let proof = if store.is_verified(&tenant) { Proof::Known } else { Proof::Claimed };
            Identity { tenant, proof }
        }
    }
}

enum Credential<'h> {
    Opaque(&'h [u8]),
    /// A JWT: it changes every hour, who it speaks for does not.
    Token {
        issuer: String,
        subject: String,
    },
}

impl<'h> Credential<'h> {
    fn of(headers: &'h HeaderMap) -> Self {
        let names = API_KEYS.map(HeaderName::from_static);
        let value = headers.get(AUTHORIZATION).or_else(|| names.iter().find_map(|name| headers.get(name)));
        let value = value.map_or(&b""[..], http::HeaderValue::as_bytes);
        let token = std::str::from_utf8(value).ok().and_then(|text| claims(text.rsplit(' ').next()?));
        match token {
            Some((issuer, subject)) => Self::Token { issuer, subject },
            None => Self::Opaque(value),
        }
    }
}

/// Issuer and subject of a JWT; both must be there.
fn claims(token: &str) -> Option<(String, String)> {
    let mut parts = token.split('.');
    let (header, payload, _signature) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let read = |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
    read(header)?.get("alg")?;
    let payload = read(payload)?;
    Some((payload.get("iss")?.as_str()?.to_owned(), payload.get("sub")?.as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jwt_is_its_issuer_and_subject_and_anything_else_is_opaque() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let token = |exp: u32| {
            let payload = format!(r#"{{"iss":"i","sub":"s","exp":{exp}}}"#);
            format!("{}.{}.sig", part(r#"{"alg":"RS256"}"#), part(&payload))
        };
        assert_eq!(claims(&token(1)), Some(("i".to_owned(), "s".to_owned())));
        assert_eq!(claims(&token(1)), claims(&token(2)));
        assert_eq!(claims("sk-abc.def.ghi"), None);
        assert_eq!(claims(&format!("{}.{}.sig", part(r#"{"alg":"x"}"#), part(r#"{"sub":"s"}"#))), None);
        assert_eq!(claims("plain"), None);
    }
}
