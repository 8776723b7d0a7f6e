//! Values that name a place: listeners, upstream URLs, path prefixes, headers, the state's URL.

use std::net::SocketAddr;

use http::HeaderName;
use toml::de::DeValue;

use super::TenantRule;
use super::problems::{Entry, Problems};
use super::value::{Value, shown, text, values};

/// `http` or `https`, without query, fragment, credentials and trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl(pub http::Uri);

/// A path prefix: starts with `/`, no trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPrefix(pub String);

/// A name that is fit for a metric's label and a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamName(pub String);

/// `sqlite://PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateUrl(pub String);

/// The proxy's own paths; no upstream may take them.
const RESERVED: &str = "/_compactproxy";

values! {
    SocketAddr: |value| text(value)?.parse().map_err(|_| "expected an address such as \"127.0.0.1:8787\"".into()),
        |address| shown(&address.to_string());
    BaseUrl: |value| base_url(text(value)?), |url| shown(url.0.to_string().trim_end_matches('/'));
    PathPrefix: |value| prefix(text(value)?), |prefix| shown(&prefix.0);
    UpstreamName: |value| upstream_name(text(value)?), |name| shown(&name.0);
    StateUrl: |value| state_url(text(value)?), |url| shown(&url.0);
    HeaderName: |value| header(text(value)?), |name| shown(name.as_str());
    TenantRule: |value| tenant(text(value)?), |rule| match rule {
        Self::Credential => shown("credential"),
        Self::Single => shown("single"),
        Self::Header(name) => shown(&format!("header:{name}")),
    };
}

fn base_url(text: &str) -> Result<BaseUrl, String> {
    let url: http::Uri =
        text.trim_end_matches('/').parse().map_err(|_| "expected a URL such as \"https://api.example.com/v1\"")?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("expected a URL that begins with http:// or https://".into());
    }
    let authority = url.authority().map_or("", |authority| authority.as_str());
    if authority.contains('@') {
        return Err("must not hold credentials; use api_key".into());
    }
    if url.host().is_none_or(str::is_empty) {
        return Err("names no host".into());
    }
    if authority.rsplit_once(']').map_or(authority, |(_, port)| port).contains(':') && url.port_u16().is_none() {
        return Err("has no valid port".into());
    }
    if url.query().is_some() || text.contains('#') {
        return Err("must have no query and no fragment".into());
    }
    Ok(BaseUrl(url))
}

fn prefix(text: &str) -> Result<PathPrefix, String> {
    let prefix = text.trim_end_matches('/');
    let path: Result<http::uri::PathAndQuery, _> = prefix.parse();
    if !prefix.starts_with('/') || path.is_err() || prefix.contains(['?', '#']) {
        return Err("expected a path such as \"/openai\"".into());
    }
    let inside =
        |path: &str, root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if inside(prefix, RESERVED) {
        return Err(format!("{RESERVED} is the proxy's own"));
    }
    Ok(PathPrefix(prefix.into()))
}

fn upstream_name(text: &str) -> Result<UpstreamName, String> {
    let valid = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match valid {
        true => Ok(UpstreamName(text.into())),
        false => Err("expected a name of letters, digits, `-`, `_` and `.`".into()),
    }
}

fn state_url(text: &str) -> Result<StateUrl, String> {
    let (scheme, rest) = text.split_once(':').unwrap_or_default();
    let path = rest.strip_prefix("//").unwrap_or_default();
    match scheme {
        "sqlite" if !path.is_empty() => Ok(StateUrl(text.into())),
        "postgres" | "postgresql" => {
            Err("a shared PostgreSQL store is not in this version; use \"sqlite://PATH\"".into())
        }
        _ => Err("expected \"sqlite://PATH\"".into()),
    }
}

fn header(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| "is no valid header name".into())
}

fn tenant(text: &str) -> Result<TenantRule, String> {
    match (text, text.strip_prefix("header:")) {
        ("credential", _) => Ok(TenantRule::Credential),
        ("single", _) => Ok(TenantRule::Single),
        (_, Some(name)) => header(name).map(TenantRule::Header),
        _ => Err("expected \"credential\", \"single\" or \"header:NAME\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls() {
        for (given, path) in [
            ("https://api.openai.com/v1", "/v1"),
            ("http://127.0.0.1:8080/", "/"),
            ("http://[::1]:80/a/b//", "/a/b"),
            ("https://h", "/"),
        ] {
            assert_eq!(base_url(given).expect(given).0.path(), path, "{given}");
        }
        for bad in [
            "",
            "api.openai.com",
            "/v1",
            "ftp://h/",
            "https://",
            "https://u:p@h/",
            "https://h/?a=b",
            "https://h/#f",
            "https://h:x/",
            "https://h:99999/",
            "http://[::1]:99999",
            "https://h h/",
        ] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn prefixes() {
        assert_eq!(prefix("/openai/"), Ok(PathPrefix("/openai".into())));
        for bad in ["", "/", "openai", "/a?b", "/a#b", "/_compactproxy", "/_compactproxy/x", "/a b"] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
        assert!(prefix("/_compactproxying").is_ok());
    }

    #[test]
    fn state_urls_and_tenants() {
        assert!(state_url("sqlite://compactproxy.db").is_ok());
        assert!(state_url("sqlite:///var/lib/compactproxy.db").is_ok());
        assert!(state_url("postgres://h/db").is_err_and(|message| message.contains("not in this version")));
        assert!(state_url("sqlite://").is_err() && state_url("compactproxy.db").is_err());
        assert_eq!(tenant("header:X-Team"), Ok(TenantRule::Header(HeaderName::from_static("x-team"))));
        assert!(tenant("header:").is_err() && tenant("header:a b").is_err() && tenant("none").is_err());
    }
}
