//! Which calls of an answer are the proxy's to run.

use std::sync::Arc;

use bytes::Bytes;

use super::object::{Object, edited};
use crate::wire::writing::quoted;

/// What some models put before the name of a tool when they call it, as if that were its module.
pub const NAMESPACE: &str = "functions.";
/// Longest name of a tool that every provider takes, of letters, digits, `_` and `-` (A22; OpenAI: 64).
const MOST_NAME: usize = 64;
/// How a call without a name stands in a history.
const UNNAMED: &str = "unnamed";

/// The names under which tools of the proxy's were offered, and whose the others are.
#[derive(Debug, Clone, Default)]
pub struct Own {
    names: Arc<[String]>,
    /// The same in [`NAMESPACE`], but for those that are tools of the client's.
    spaced: Arc<[String]>,
    others: Others,
}

/// Whose calls of other names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Others {
    #[default]
    Clients,
    /// The client has no tools: nothing that is called is for it.
    Nobodys,
}

impl Own {
    /// In a request whose client has no tools of its own: a call by any other name is a mistake of the model's, and not the
    /// client's to see.
    pub fn alone(names: Arc<[String]>) -> Self {
        Self { names, spaced: Arc::default(), others: Others::Nobodys }
    }

    /// Beside tools of the client's, of which these are named as if they were in [`NAMESPACE`].
    pub fn beside(names: Arc<[String]>, clients: &[String]) -> Self {
        let spaced = names.iter().map(|name| format!("{NAMESPACE}{name}"));
        let spaced = spaced.filter(|name| !clients.contains(name)).collect();
        Self { names, spaced, others: Others::Clients }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(self.spaced.iter())
    }

    /// Whether a call of this name is the proxy's.
    pub(super) fn has(&self, name: &str) -> bool {
        self.others == Others::Nobodys || self.all().any(|own| own == name)
    }

    /// Whether a name that begins like this may yet become one of the proxy's.
    pub(super) fn may_become(&self, beginning: &str) -> bool {
        self.others == Others::Nobodys || self.all().any(|own| own.starts_with(beginning))
    }

    /// The name by which a call of the proxy's stands in the history: that of the offer. One that nobody offered stands
    /// there as every provider takes it, since it comes again with every later request.
    pub(super) fn kept(&self, called: &str) -> String {
        let offered = |name: &&str| self.names().any(|own| own == *name);
        let bare = called.strip_prefix(NAMESPACE).unwrap_or(called);
        if let Some(name) = [called, bare].iter().find(|name| offered(name)) {
            return (*name).to_owned();
        }
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let name: String = called.chars().take(MOST_NAME).map(|c| if plain(c) { c } else { '_' }).collect();
        if name.is_empty() { UNNAMED.to_owned() } else { name }
    }

    /// A call, as JSON, by its [`kept`](Self::kept) name.
    pub(super) fn renamed(&self, raw: &Bytes) -> Bytes {
        let Some(call) = Object::read(raw, 0) else { return raw.clone() };
        let (called, kept) = (call.string("name"), self.kept(&call.string("name")));
        let edit = call.set("name", quoted(&kept)).filter(|_| called != kept);
        if edit.is_some() { edited(raw, Vec::from_iter(edit)) } else { raw.clone() }
    }

    /// Whether no tool of the proxy's was offered.
    pub(super) fn is_none(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

impl From<Arc<[String]>> for Own {
    /// Beside tools of the client's whose names are like no others.
    fn from(names: Arc<[String]>) -> Self {
        Self::beside(names, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_in_the_namespace_of_functions_is_the_same_tools_unless_the_client_has_one_of_that_name() {
        let names: Arc<[String]> = Arc::from(["read_evicted".to_owned(), "session_list".to_owned()]);
        let clients = ["functions.session_list".to_owned()];
        let own = Own::beside(Arc::clone(&names), &clients);
        for (name, is_own) in [
            ("read_evicted", true),
            ("session_list", true),
            ("functions.read_evicted", true),
            ("functions.session_list", false),
            ("functions.execute", false),
            ("functions.functions.read_evicted", false),
            ("function.read_evicted", false),
            ("functions.", false),
        ] {
            assert_eq!(own.has(name), is_own, "{name}");
            let begins = |end| name.get(..end).is_some_and(|begin| own.may_become(begin));
            assert!(!is_own || (0..name.len()).all(begins), "{name}");
        }
        assert!(!own.may_become("functions.e") && own.may_become("func"));
        assert!(Own::from(names).has("functions.session_list"));
    }

    #[test]
    fn a_call_is_kept_by_the_name_of_the_offer_or_by_one_that_every_provider_takes() {
        let names: Arc<[String]> = Arc::from(["read_evicted".to_owned()]);
        let [cut, long] = [MOST_NAME, MOST_NAME + 1].map(|length| "x".repeat(length));
        for own in [Own::alone(Arc::clone(&names)), Own::beside(names, &[])] {
            for (called, kept) in [
                ("read_evicted", "read_evicted"),
                ("functions.read_evicted", "read_evicted"),
                ("execute", "execute"),
                ("functions.execute", "functions_execute"),
                ("查询 it", "___it"),
                (&long, &cut),
                ("", UNNAMED),
            ] {
                assert_eq!(own.kept(called), kept);
                let raw = |name: &str| Bytes::from(format!(r#"{{"a":1, "name" : "{name}","b":[ ]}}"#));
                assert_eq!(own.renamed(&raw(called)), raw(kept));
                assert_eq!(own.kept(kept), kept);
            }
        }
    }
}
