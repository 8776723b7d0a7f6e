//! Which calls of an answer are the proxy's to run.

use std::sync::Arc;

/// What some models put before the name of a tool when they call it, as if that were its module.
pub const NAMESPACE: &str = "functions.";

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

/// The name under which a tool was offered that is called by this one.
pub fn offered_name(called: &str) -> &str {
    called.strip_prefix(NAMESPACE).unwrap_or(called)
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
        assert_eq!(offered_name("functions.read_evicted"), offered_name("read_evicted"));
    }
}
