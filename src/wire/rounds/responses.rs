//! Rounds of OpenAI Responses.

use std::sync::Arc;

use bytes::Bytes;

use super::{Aside, Conversation, Edit, Ending, Form, Offer, OwnCall, OwnResult};

/// Passes everything; no tools are offered in this dialect yet.
#[derive(Debug)]
pub struct Splicer;

impl Splicer {
    pub(super) fn new(_form: Form, _own: Arc<[String]>) -> Self {
        Self
    }

    pub(super) fn push(&mut self, piece: &Bytes) -> Vec<Bytes> {
        vec![piece.clone()]
    }

    pub(super) fn end(&mut self) -> Ending {
        Ending::Answered
    }

    pub(super) fn next_round(&mut self) {}

    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        Vec::new()
    }

    pub(super) fn fail(&mut self, _error: &[u8]) -> Vec<Bytes> {
        Vec::new()
    }

    pub(super) fn aside(&self, _results: &[Vec<OwnResult>]) -> Option<Aside> {
        None
    }

    pub(super) fn alias(&self) -> Option<(String, String)> {
        None
    }
}

pub(super) fn may_offer(_conversation: &Conversation<'_>, _count: usize) -> bool {
    false
}

pub(super) fn declared(_conversation: &Conversation<'_>) -> Vec<String> {
    Vec::new()
}

pub(super) fn offer(_conversation: &Conversation<'_>, _offers: &[Offer]) -> Option<Edit> {
    None
}

pub(super) fn appended(_conversation: &Conversation<'_>, _items: &[u8]) -> Option<Edit> {
    None
}

pub(super) fn put_back(_conversation: &Conversation<'_>, _tip: usize, _aside: &Aside) -> Option<Vec<Edit>> {
    None
}

pub(super) fn results(_calls: &[OwnCall], _results: &[OwnResult]) -> Bytes {
    Bytes::new()
}
