//! Which upstream a request goes to, and the target it has there.

use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri};

use super::headers::AZURE_KEY;
use crate::config::{Api, Upstream};
use crate::wire::{Dialect, shape};

/// An upstream, made ready for requests.
pub struct Route {
    pub upstream: Arc<Upstream>,
    scheme: Scheme,
    authority: Authority,
    /// The `Host` of requests to it.
    pub host: HeaderValue,
    base: String,
    /// Every run of whole segments that ends the base path, longest first.
    overlaps: Vec<String>,
    pub key: Option<Key>,
}

/// A credential that the proxy holds for an upstream.
pub struct Key {
    api: Api,
    /// The upstream is one of Azure's hosts.
    azure: bool,
    bearer: HeaderValue,
    plain: HeaderValue,
}

/// A base URL or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    #[error("upstream \"{0}\": base_url needs a scheme (http or https) and a host")]
    BaseUrl(String),
    #[error("upstream \"{0}\": api_key holds characters that no header can carry")]
    ApiKey(String),
}

impl Route {
    pub fn new(upstream: Arc<Upstream>) -> Result<Self, RouteError> {
        let bad = || RouteError::BaseUrl(upstream.name.clone());
        let scheme = upstream.base_url.scheme().cloned().ok_or_else(bad)?;
        let full = upstream.base_url.authority().ok_or_else(bad)?;
        let host = full.as_str().rsplit('@').next().unwrap_or_default();
        let authority = Authority::try_from(host).map_err(|_| bad())?;
        let host = HeaderValue::from_str(host).map_err(|_| bad())?;
        let base = upstream.base_url.path().trim_end_matches('/').to_owned();
        let overlaps = base.match_indices('/').filter_map(|(at, _)| base.get(at..).map(str::to_owned)).collect();
        let key = upstream.api_key.as_ref().map(|secret| Key::new(&upstream, secret.expose())).transpose();
        let key = key.map_err(|_| RouteError::ApiKey(upstream.name.clone()))?;
        Ok(Self { scheme, authority, host, base, overlaps, key, upstream })
    }

    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The absolute target of a request whose own target is `target`; `None` if it has no path.
    /// Authority and scheme of the request never count.
    pub fn target(&self, target: &Uri) -> Option<Uri> {
        let asked = target.path_and_query()?;
        let path = self.strip_prefix(asked.path());
        let joined = self.join(path);
        let path_and_query = match (joined, asked.query()) {
            (None, _) if path.len() == asked.path().len() => asked.clone(),
            (joined, query) => {
                let mut text = joined.unwrap_or_else(|| path.to_owned());
                if let Some(query) = query {
                    text.push('?');
                    text.push_str(query);
                }
                PathAndQuery::try_from(text).ok()?
            }
        };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path_and_query);
        Uri::from_parts(parts).ok()
    }

    fn strip_prefix<'p>(&self, path: &'p str) -> &'p str {
        match self.upstream.prefix.as_deref().and_then(|prefix| after_segments(path, prefix)) {
            Some("") => "/",
            Some(rest) => rest,
            None => path,
        }
    }

    /// The base path and `path`, what overlaps not doubled; `None` if that is `path` itself.
    fn join(&self, path: &str) -> Option<String> {
        if self.base.is_empty() || path == "*" {
            return None;
        }
        let overlap = self.overlaps.iter().find(|overlap| after_segments(path, overlap).is_some());
        match overlap {
            Some(overlap) if overlap.len() == self.base.len() => None,
            Some(overlap) => Some([self.base.as_str(), path.get(overlap.len()..).unwrap_or_default()].concat()),
            None if path == "/" => Some(self.base.clone()),
            None => Some([self.base.as_str(), path].concat()),
        }
    }

    /// How long the request's path shows that it is meant for this upstream; 0: not at all.
    fn prefix_length(&self, path: &str) -> usize {
        let prefix = self.upstream.prefix.as_deref().unwrap_or_default();
        if !prefix.is_empty() && after_segments(path, prefix).is_some() { prefix.len() } else { 0 }
    }
}

impl Key {
    fn new(upstream: &Upstream, secret: &str) -> Result<Self, http::header::InvalidHeaderValue> {
        let sensitive = |text: &str| {
            let mut value = HeaderValue::from_str(text)?;
            value.set_sensitive(true);
            Ok(value)
        };
        let azure = upstream.base_url.host().is_some_and(|host| host.ends_with(".azure.com"));
        Ok(Self {
            api: upstream.api,
            azure,
            bearer: sensitive(&format!("Bearer {secret}"))?,
            plain: sensitive(secret)?,
        })
    }

    /// The header that carries the key of a request with these `headers`: whoever sends a key as Azure's clients do,
    /// speaks to Azure, whatever its gateway's name is.
    pub fn header(&self, dialect: Option<Dialect>, headers: &HeaderMap) -> (HeaderName, HeaderValue) {
        let anthropic = match self.api {
            Api::Anthropic | Api::Messages => true,
            Api::Auto => dialect == Some(Dialect::Messages),
            Api::Chat | Api::Responses | Api::Openai => false,
        };
        if anthropic {
            (HeaderName::from_static("x-api-key"), self.plain.clone())
        } else if self.azure || headers.contains_key(AZURE_KEY) {
            (AZURE_KEY, self.plain.clone())
        } else {
            (AUTHORIZATION, self.bearer.clone())
        }
    }
}

/// The index of the upstream for a request: longest prefix; else the first whose `api` names the
/// path; else, with an `anthropic-version` header, the first that speaks Anthropic's; else the first.
pub fn choose(routes: &[Route], path: &str, headers: &HeaderMap) -> usize {
    if let [_] = routes {
        return 0;
    }
    let prefixed = routes.iter().enumerate().map(|(index, route)| (route.prefix_length(path), index));
    // On equal lengths the first in the file wins.
    let longest =
        prefixed.filter(|(length, _)| *length > 0).max_by_key(|&(length, index)| (length, usize::MAX - index));
    if let Some((_, index)) = longest {
        return index;
    }
    let named = || routes.iter().position(|route| names(route.upstream.api, path));
    let versioned = || {
        let anthropic = |route: &Route| matches!(route.upstream.api, Api::Anthropic | Api::Messages);
        headers.contains_key("anthropic-version").then(|| routes.iter().position(anthropic)).flatten()
    };
    named().or_else(versioned).unwrap_or(0)
}

/// Whether `api` names the path as its own.
fn names(api: Api, path: &str) -> bool {
    let chat = || path.ends_with("/chat/completions");
    let responses = || has_segment(path, "responses");
    // OpenAI lists the messages of threads and of stored completions under such paths as well.
    let messages =
        || has_segment(path, "messages") && !has_segment(path, "threads") && !has_segment(path, "completions");
    match api {
        Api::Chat => chat(),
        Api::Responses => responses(),
        Api::Openai => chat() || responses(),
        Api::Messages | Api::Anthropic => messages(),
        Api::Auto => false,
    }
}

/// The dialect whose error shape a path's callers expect.
pub fn error_dialect(path: &str) -> Option<Dialect> {
    if names(Api::Anthropic, path) { Some(Dialect::Messages) } else { Dialect::of_path(path) }
}

/// Whether a body for this path may be looked at: its dialect, if `api` speaks it and a model call is meant.
pub fn model_call(api: Api, method: &Method, path: &str) -> Option<Dialect> {
    let dialect = (method == Method::POST).then(|| Dialect::of_path(path)).flatten()?;
    let spoken = match api {
        Api::Auto => true,
        Api::Chat => dialect == Dialect::Chat,
        Api::Responses => dialect == Dialect::Responses,
        Api::Openai => dialect != Dialect::Messages,
        Api::Messages | Api::Anthropic => dialect == Dialect::Messages,
    };
    spoken.then_some(dialect)
}

/// The dialects in which a body may be for a path that names none, as far as `api` and headers tell.
pub fn unnamed(api: Api, method: &Method, path: &str, headers: &HeaderMap) -> &'static [Dialect] {
    let named = names(Api::Openai, path) || names(Api::Anthropic, path) || Dialect::of_path(path).is_some();
    if method != Method::POST || named || !shape::may_be_meant(path) {
        return &[];
    }
    match (api, headers.contains_key("anthropic-version")) {
        (Api::Messages | Api::Anthropic, _) | (Api::Auto, true) => &[Dialect::Messages],
        (_, true) => &[],
        (Api::Auto, false) => &[Dialect::Chat, Dialect::Responses, Dialect::Messages],
        (Api::Openai, false) => &[Dialect::Chat, Dialect::Responses],
        (Api::Chat, false) => &[Dialect::Chat],
        (Api::Responses, false) => &[Dialect::Responses],
    }
}

fn has_segment(path: &str, name: &str) -> bool {
    // By bytes: asked several times a request.
    path.as_bytes().split(|byte| *byte == b'/').any(|segment| segment == name.as_bytes())
}

/// What follows `segments` at the start of `path`, if they are whole segments there.
fn after_segments<'p>(path: &'p str, segments: &str) -> Option<&'p str> {
    path.strip_prefix(segments).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
