//! Whose state a request may use: a keyed hash of its credential (L7).

use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Uri};
use serde_json::Value;

use super::headers::{API_KEY, AZURE_KEY};
use super::recent::Recent;
use crate::config::TenantRule;
use crate::store::{Store, Tenant};

/// Headers that hold a credential.
static CREDENTIALS: [HeaderName; 4] = [AUTHORIZATION, API_KEY, AZURE_KEY, HeaderName::from_static("x-goog-api-key")];
/// Query parameters that hold one.
const IN_QUERY: [&str; 2] = ["key", "api-key"];
/// Tokens remembered as accepted; a forgotten one is verified again by its next answer (L8).
const MAX_TOKENS: usize = 10_000;

/// A tenant, and how far it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub tenant: Tenant,
    pub proof: Proof,
    /// What an answer of 2xx makes known: the token, where there is one that is only claimed.
    pub mark: Option<Mark>,
}

/// A hash of a token and of the tenant that it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark([u8; 16]);

/// Tokens that an upstream has answered with 2xx. Kept by token, not by claim: whoever can write a claim has
/// not thereby a token that is accepted.
pub struct Verified {
    tokens: Mutex<Recent<Mark, ()>>,
}

impl Default for Verified {
    fn default() -> Self {
        Self { tokens: Mutex::new(Recent::new(MAX_TOKENS)) }
    }
}

impl Verified {
    /// The upstream has answered this token with 2xx.
    pub fn accept(&self, mark: Mark) {
        self.tokens().insert(mark, ());
    }

    fn has(&self, mark: Mark) -> bool {
        self.tokens().contains(mark)
    }

    fn tokens(&self) -> std::sync::MutexGuard<'_, Recent<Mark, ()>> {
        self.tokens.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How far a tenant is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Whoever knows the credential has it, or an upstream has accepted the token.
    Known,
    /// A token's own claim: until its upstream answers 2xx nothing is planned or written for it, and nothing read but
    /// what a refusal for bound thinking makes due, and where an answer is continued. The tenant is then the token's
    /// own, not the one that it claims.
    Claimed,
}

/// Who says so, and to which upstream.
pub struct Asker<'r> {
    pub upstream: &'r str,
    pub headers: &'r HeaderMap,
    pub uri: &'r Uri,
}

/// Who sent a request.
pub fn identify(store: &Store, rule: &TenantRule, verified: &Verified, asker: &Asker<'_>) -> Identity {
    let known = |tenant| Identity { tenant, proof: Proof::Known, mark: None };
    let named = match rule {
        TenantRule::Single => return known(store.tenant(&[b"single"])),
        TenantRule::Credential => &b""[..],
        TenantRule::Header(name) => asker.headers.get(name).map_or(&b""[..], http::HeaderValue::as_bytes),
    };
    let credential = Credential::of(asker.headers, asker.uri.query());
    let tenant = |kind: &[u8], who: &[&[u8]]| {
        let given = credential.opaque.iter().flat_map(|(name, value)| [name.as_bytes(), *value]);
        let start = [kind, asker.upstream.as_bytes(), named];
        store.tenant(&start.into_iter().chain(who.iter().copied()).chain(given).collect::<Vec<_>>())
    };
    let Some(token) = &credential.token else { return known(tenant(b"credential", &[])) };
    let claimed = tenant(b"token", &[token.issuer.as_bytes(), token.subject.as_bytes()]);
    let mark = Mark(store.tenant(&[b"accepted", &claimed.0, token.whole]).0);
    match verified.has(mark) {
        true => Identity { tenant: claimed, proof: Proof::Known, mark: Some(mark) },
        false => {
            let own = tenant(b"unverified", &[token.whole]);
            Identity { tenant: own, proof: Proof::Claimed, mark: Some(mark) }
        }
    }
}

/// Whether a request shows who it is.
pub fn shows_credential(headers: &HeaderMap, uri: &Uri) -> bool {
    let Credential { token, opaque } = Credential::of(headers, uri.query());
    token.is_some() || !opaque.is_empty()
}

/// All that a request shows of who it is.
struct Credential<'h> {
    /// A JWT: it changes every hour, who it speaks for does not.
    token: Option<Token<'h>>,
    /// All others, by where they stand. Which of them the upstream goes by is its own affair.
    opaque: Vec<(&'static str, &'h [u8])>,
}

struct Token<'h> {
    issuer: String,
    subject: String,
    whole: &'h [u8],
}

impl<'h> Credential<'h> {
    fn of(headers: &'h HeaderMap, query: Option<&'h str>) -> Self {
        let mut credential = Self { token: None, opaque: Vec::new() };
        for name in &CREDENTIALS {
            for value in headers.get_all(name) {
                let whole = value.as_bytes();
                let claims = std::str::from_utf8(whole).ok().and_then(|text| claims(text.rsplit(' ').next()?));
                match claims.filter(|_| credential.token.is_none()) {
                    Some((issuer, subject)) => credential.token = Some(Token { issuer, subject, whole }),
                    None => credential.opaque.push((name.as_str(), whole)),
                }
            }
        }
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let Some(name) = IN_QUERY.into_iter().find(|known| *known == name) {
                credential.opaque.push((name, value.as_bytes()));
            }
        }
        credential
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

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn token(exp: u32) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let payload = format!(r#"{{"iss":"i","sub":"s","exp":{exp}}}"#);
        format!("Bearer {}.{}.sig", part(r#"{"alg":"RS256"}"#), part(&payload))
    }

    #[tokio::test]
    async fn every_credential_of_a_request_tells_tenants_apart() {
        let store = Store::in_memory_only(crate::store::Limits::default()).await.unwrap();
        let verified = Verified::default();
        let of = |lines: &[(&'static str, &str)], target: &str| {
            let (headers, uri) = (headers(lines), target.parse().unwrap());
            let asker = Asker { upstream: "u", headers: &headers, uri: &uri };
            identify(&store, &TenantRule::Credential, &verified, &asker)
        };
        let token = token(1);
        let all = [
            of(&[], "/x"),
            of(&[("authorization", "a")], "/x"),
            of(&[("x-api-key", "a")], "/x"),
            of(&[("authorization", "a"), ("x-api-key", "b")], "/x"),
            of(&[("authorization", "a"), ("x-goog-api-key", "b")], "/x"),
            of(&[("authorization", "a"), ("api-key", "c")], "/x"),
            of(&[("authorization", "a"), ("authorization", "b")], "/x"),
            of(&[("authorization", "a")], "/x?key=1"),
            of(&[("authorization", "a")], "/x?z=1&api-key=1"),
            of(&[("authorization", &token)], "/x"),
            of(&[("authorization", &token), ("x-api-key", "b")], "/x"),
        ];
        let tenants: std::collections::HashSet<_> = all.iter().map(|identity| identity.tenant).collect();
        assert_eq!(tenants.len(), all.len());
        assert_eq!(of(&[("authorization", "a")], "/x?stream=1").tenant, all[1].tenant);
        assert!(all[..9].iter().all(|identity| identity.proof == Proof::Known && identity.mark.is_none()));
    }

    #[tokio::test]
    async fn a_header_tells_the_users_of_one_credential_apart_and_never_joins_two_credentials() {
        let store = Store::in_memory_only(crate::store::Limits::default()).await.unwrap();
        let (verified, rule) = (Verified::default(), TenantRule::Header("x-user".parse().unwrap()));
        let of = |lines: &[(&'static str, &str)]| {
            let (headers, uri) = (headers(lines), "/x".parse().unwrap());
            identify(&store, &rule, &verified, &Asker { upstream: "u", headers: &headers, uri: &uri }).tenant
        };
        let [a, b] = [("authorization", "a"), ("authorization", "b")];
        let all = [
            of(&[a]),
            of(&[a, ("x-user", "1")]),
            of(&[a, ("x-user", "2")]),
            of(&[b]),
            of(&[b, ("x-user", "1")]),
            of(&[("x-user", "1")]),
        ];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_eq!(of(&[("x-user", "1"), a]), all[1]);
    }

    #[tokio::test]
    async fn a_claim_is_worth_nothing_until_its_own_token_was_accepted() {
        let store = Store::in_memory_only(crate::store::Limits::default()).await.unwrap();
        let verified = Verified::default();
        let of = |token: &str| {
            let (headers, uri) = (headers(&[("authorization", token)]), "/x".parse().unwrap());
            let asker = Asker { upstream: "u", headers: &headers, uri: &uri };
            identify(&store, &TenantRule::Credential, &verified, &asker)
        };
        let (one, two) = (of(&token(1)), of(&token(2)));
        assert_eq!((one.proof, two.proof), (Proof::Claimed, Proof::Claimed));
        assert_ne!(one.tenant, two.tenant, "each token's own");
        verified.accept(one.mark.unwrap());
        let accepted = of(&token(1));
        assert_eq!(accepted.proof, Proof::Known);
        assert_ne!(accepted.tenant, one.tenant);
        assert_eq!(of(&token(2)), two, "the same claim in another token");
        verified.accept(two.mark.unwrap());
        assert_eq!(of(&token(2)).tenant, accepted.tenant);
    }

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
