//! The tools that a response repeats from its request.

use bytes::Bytes;

use super::{Edit, Object, Splicer, edited};

impl Splicer {
    /// The edits that leave the proxy's tools out of those that a response repeats.
    pub(super) fn without_tools(&self, response: &Object<'_>) -> Vec<Edit> {
        let Some(span) = response.get("tools") else { return Vec::new() };
        let tools: Vec<Bytes> = response.elements("tools").into_iter().filter_map(|span| response.copy(span)).collect();
        let kept: Vec<Bytes> = tools.iter().filter_map(|tool| self.without_own(tool)).collect();
        if kept == tools {
            return Vec::new();
        }
        vec![Edit { span, with: [b"[", &*kept.join(&b","[..]), b"]"].concat().into() }]
    }

    /// A tool that a response repeats; of a namespace, the tools in it that are the client's. `None`: the proxy's.
    fn without_own(&self, raw: &Bytes) -> Option<Bytes> {
        let Some(tool) = Object::read(raw, 0) else { return Some(raw.clone()) };
        if tool.string("type") != "namespace" {
            return (!self.own.has(&tool.string("name"))).then(|| raw.clone());
        }
        let edits = self.without_tools(&tool);
        let emptied = edits.iter().any(|edit| edit.with.as_ref() == b"[]");
        (!emptied).then(|| edited(raw, edits))
    }
}
