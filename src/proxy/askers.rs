//! Who asks for what the proxy itself has: a request that names no model, and so no upstream.

use std::borrow::Cow;

use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

use super::Proxy;
use super::reading::{Reading, Who};
use super::tenant::{self, Asker, Proof};
use crate::config::TenantRule;
use crate::store::Tenant;

/// Who sends a request: one tenant at each upstream, for the client does not say which one its model is at.
pub struct Askers {
    /// Each tenant once, with the first upstream at which it is one. A token that no upstream has accepted yet is
    /// nobody so far.
    pub at: Vec<(Tenant, String)>,
    /// Whether it shows a credential of its own.
    pub shown: bool,
}

impl Askers {
    /// `None` without a credential where one is needed.
    pub fn of(proxy: &Proxy, headers: &HeaderMap, uri: &Uri) -> Option<Self> {
        let compactor = proxy.compactor.as_ref()?;
        let shown = tenant::shows_credential(headers, uri);
        let needless = shown || compactor.tenant_rule == TenantRule::Single;
        // Where the proxy holds the key its clients have none.
        let named = upstream_named(uri);
        let known = proxy.config.upstreams.iter().filter(|upstream| needless || upstream.api_key.is_some());
        let known = known.filter(|upstream| named.as_ref().is_none_or(|named| **named == upstream.name));
        let (mut at, mut any): (Vec<(Tenant, String)>, bool) = (Vec::new(), false);
        for upstream in known {
            any = true;
            let asker = Asker { upstream: &upstream.name, headers, uri };
            let identity = tenant::identify(&compactor.store, &compactor.tenant_rule, &compactor.verified, &asker);
            if identity.proof == Proof::Known && !at.iter().any(|(tenant, _)| *tenant == identity.tenant) {
                at.push((identity.tenant, upstream.name.clone()));
            }
        }
        any.then_some(Self { at, shown })
    }

    pub fn tenants(&self) -> Vec<Tenant> {
        self.at.iter().map(|(tenant, _)| *tenant).collect()
    }

    /// Whose sessions and memory: the first tenant of which something was seen. Whoever only shows some credential
    /// writes nothing.
    pub async fn home(&self, reading: &Reading) -> Option<Tenant> {
        reading.first_seen(&self.tenants()).await
    }

    /// Whose share of the reads is used. Without a credential anybody may be asking, whoever it counts as.
    pub fn who(&self, home: Option<Tenant>) -> Who {
        home.filter(|_| self.shown).map_or(Who::Anyone, Who::Seen)
    }

    /// The upstream that a tenant is at; of nobody the first that was asked.
    pub fn upstream(&self, tenant: Option<Tenant>) -> &str {
        let at = self.at.iter().find(|(known, _)| tenant == Some(*known));
        at.or(self.at.first()).map_or("", |(_, upstream)| upstream)
    }
}

/// `?upstream=NAME`: a client whose credential is good for several says which one it means.
fn upstream_named(uri: &Uri) -> Option<Cow<'_, str>> {
    let named = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("upstream="))?;
    Some(percent_decode_str(named).decode_utf8_lossy())
}
