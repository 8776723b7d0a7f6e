//! Which calls of an answer are the proxy's to run.

use std::sync::Arc;

/// The names under which tools of the proxy's were offered, and whose the others are.
#[derive(Debug, Clone, Default)]
pub struct Own {
    names: Arc<[String]>,
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
        Self { names, others: Others::Nobodys }
    }

    /// Whether a call of this name is the proxy's.
    pub(super) fn has(&self, name: &str) -> bool {
        self.others == Others::Nobodys || self.names.iter().any(|own| own == name)
    }

    /// Whether a name that begins like this may yet become one of the proxy's.
    pub(super) fn may_become(&self, beginning: &str) -> bool {
        self.others == Others::Nobodys || self.names.iter().any(|own| own.starts_with(beginning))
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
    fn from(names: Arc<[String]>) -> Self {
        Self { names, others: Others::Clients }
    }
}
