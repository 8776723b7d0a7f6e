//! The proxy's tools as they are offered in a conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::compact::exclusions::OWN_PREFIX;
use crate::tools::definitions::Tool;
use crate::wire::Conversation;
use crate::wire::rounds::Offer;
use crate::wire::splice::Edit;

/// How often the proxy's prefix may stand before a name: providers take names of 64 characters.
const MOST_PREFIXES: usize = 3;
/// Tools as they are offered in a conversation: frozen when the first request had them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    pub tools: Vec<OfferedTool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedTool {
    /// The tool's own name; the offer may have another.
    pub tool: String,
    pub offer: Offer,
}

impl Offered {
    /// Each under its own name, or where the client has a tool of that name under the first prefixed one that is free; one
    /// without any is left out. `None` where nothing is left.
    pub(super) fn of(tools: impl Iterator<Item = Tool>, declared: &[String]) -> Option<Self> {
        let offered = |tool: Tool| {
            let names = (0..=MOST_PREFIXES).map(|prefixes| OWN_PREFIX.repeat(prefixes) + tool.name());
            let name = names.into_iter().find(|name| !declared.contains(name))?;
            Some(OfferedTool { tool: tool.name().to_owned(), offer: tool.offer(name) })
        };
        let tools: Vec<OfferedTool> = tools.filter_map(offered).collect();
        (!tools.is_empty()).then_some(Self { tools })
    }

    /// The names that the model knows.
    pub fn names(&self) -> Arc<[String]> {
        self.tools.iter().map(|tool| tool.offer.name.clone()).collect()
    }

    /// The own name of the tool that was offered under this one.
    pub fn tool(&self, name: &str) -> Option<&str> {
        self.tools.iter().find(|tool| tool.offer.name == name).map(|tool| tool.tool.as_str())
    }

    /// The name under which removed texts are read.
    pub(super) fn reader(&self) -> Option<Arc<str>> {
        let reader = self.tools.iter().find(|tool| tool.tool == Tool::ReadEvicted.name());
        reader.map(|tool| tool.offer.name.as_str().into())
    }

    /// The edit that places them in a body.
    pub fn edit(&self, conversation: &Conversation<'_>) -> Option<Edit> {
        let offers: Vec<Offer> = self.tools.iter().map(|tool| tool.offer.clone()).collect();
        conversation.offer(&offers)
    }
}
