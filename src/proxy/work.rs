//! A request on its way through compaction: what goes upstream in its body's place, and what is told of it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::body::SendBody;
use super::chains::Recorder;
use super::headers::{self, BodyHeaders};
use super::hold::Sent;
use super::intake::Intake;
use super::journal::Ticket;
use super::look::UNKNOWN_WINDOW_BYTES;
use super::offered::Offered;
use super::origin::Origin;
use super::overlay::Overlaid;
use super::readers::readers;
use super::remembered::Recalled;
use super::second::Overflow;
use crate::compact::plan::Actions;
use crate::compact::{Change, Known, binding};
use crate::config::SignedThinking;
use crate::wire::splice::{Edit, splice, total_len};
use crate::wire::{Conversation, Digest, Errand};

/// The beta feature whose option says what becomes of thinking that no longer fits.
const BLOCK_BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// A request whose body was looked at, on its way.
pub struct Work {
    pub origin: Arc<Origin>,
    /// Rows in force, after this request's own.
    pub known: Known,
    /// What goes upstream; `None`: the client's own body.
    pub pieces: Option<Vec<Bytes>>,
    /// What stands for the client's own body, where that continues an answer of which the provider has another id.
    pub original: Option<Bytes>,
    pub actions: Actions,
    /// Calibrated tokens before and after; `None` where they were not counted.
    pub tokens: Option<Change>,
    /// The checkpoint that this request activated.
    pub activated: Option<Digest>,
    /// Records the response, where others may continue it.
    pub recorder: Option<Recorder>,
    /// For the response to be logged.
    pub ticket: Option<Ticket>,
    /// Whether the provider could find this request too long, by its bytes alone.
    pub may_overflow: bool,
    /// An error of this request's has taught its limit already.
    pub taught: bool,
    /// Whether the answer is the one to a second attempt: no other follows (L6).
    pub tried_twice: bool,
    /// Whether rows may be missing that signed thinking is bound to.
    pub lacks_rows: bool,
    /// Whether the body asks the provider to drop thinking that no longer fits.
    pub drops_blocks: bool,
    /// What the proxy adds to the conversation; `None`: nothing, ever.
    pub overlaid: Option<Overlaid>,
    /// Tools that are offered from this request on; not in the body yet.
    pub begun: Option<Arc<Offered>>,
}

impl Work {
    /// Takes in what is in force before the request is planned.
    pub(super) fn lay(&mut self, overlaid: Option<Overlaid>) {
        self.known.incomplete |= overlaid.as_ref().is_some_and(|overlaid| overlaid.incomplete);
        self.original = overlaid.as_ref().and_then(|overlaid| overlaid.original.clone());
        self.overlaid = overlaid;
    }

    /// Takes in what memory said when the conversation began.
    pub(super) fn remember(&mut self, recalled: Recalled) {
        self.known.incomplete |= recalled.incomplete;
        self.known.remembered = recalled.remembered;
    }

    /// The body to send. Can be made again for a second attempt.
    pub fn body(&self, intake: &Intake) -> SendBody {
        match &self.pieces {
            Some(pieces) => intake.rewritten(pieces.clone()),
            None => intake.original(),
        }
    }

    /// What the body needs of the request's headers.
    pub fn body_headers(&self) -> BodyHeaders {
        match &self.pieces {
            Some(pieces) => BodyHeaders::Rewritten(total_len(pieces) as u64),
            None => BodyHeaders::TakenIn,
        }
    }

    /// Response headers that tell of the rewrite.
    pub fn notes(&self) -> Vec<(HeaderName, HeaderValue)> {
        if !self.is_rewritten() || self.actions == Actions::default() {
            return Vec::new();
        }
        let mut notes = Vec::new();
        let actions = self.actions.names().collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::try_from(actions) {
            notes.push((HeaderName::from_static("x-compactproxy-action"), value));
        }
        if let Some(Change { before, after }) = self.tokens
            && let Ok(value) = HeaderValue::try_from(format!("before={before}, after={after}"))
        {
            notes.push((HeaderName::from_static("x-compactproxy-tokens"), value));
        }
        notes
    }

    /// Places `edits` in the body; without any, or if they do not fit, the original goes out.
    pub(super) fn set_pieces(&mut self, mut edits: Vec<Edit>) {
        self.drops_blocks = false;
        if !edits.is_empty()
            && self.origin.strategies.signed_thinking == SignedThinking::Dropped
            && let Ok(conversation) = self.origin.read()
            && let Some(option) = drop_option(&conversation, &self.known)
        {
            edits.push(option);
            self.drops_blocks = true;
        }
        if let Some(begun) = &self.begun
            && let Ok(conversation) = self.origin.read()
        {
            edits.extend(begun.edit(&conversation));
        }
        // An output limit stands before the messages or behind them.
        edits.sort_by_key(|edit| edit.span.start);
        self.pieces = match edits.is_empty() {
            true => self.origin.overlaid.then(|| vec![self.origin.body.clone()]),
            false => splice(&self.origin.body, edits).ok(),
        };
        if self.pieces.is_none() {
            self.actions = Actions::default();
        }
    }

    /// The tools that are offered in what goes upstream, and that the model may call in its answer.
    pub fn offered(&self) -> Option<&Arc<Offered>> {
        let before = self.overlaid.as_ref().and_then(|overlaid| overlaid.offered.as_ref());
        let answers = self.is_rewritten() && self.origin.errand == Errand::Generate;
        self.begun.as_ref().or(before).filter(|_| answers)
    }

    /// Notes which tools read what is removed from this request.
    pub(super) fn read_by(&mut self, conversation: &Conversation<'_>) {
        let names = self.overlaid.is_some() || self.origin.workspace.is_some();
        if names && let Some(origin) = Arc::get_mut(&mut self.origin) {
            origin.readers = readers(conversation, self.overlaid.as_ref(), &self.known);
        }
    }

    /// The request's head as the body to send needs it.
    pub(super) fn head(&self, parts: &Parts) -> Parts {
        let mut parts = parts.clone();
        if self.drops_blocks && self.pieces.is_some() {
            drop_beta(&mut parts.headers);
        }
        // An answer with the proxy's own calls in it has to be read.
        if self.offered().is_some() {
            parts.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        parts
    }

    /// Bytes that go upstream.
    pub fn sent_bytes(&self) -> usize {
        self.pieces.as_ref().map_or(self.origin.body.len(), |pieces| total_len(pieces))
    }

    /// Whether an overflow of this request is mended, or would be where it is only observed. What an upstream has
    /// counted it has also admitted, so a token's mere claim is enough.
    pub fn recovers(&self) -> bool {
        let repeatable = !matches!(self.origin.errand, Errand::Count | Errand::Warm);
        repeatable && self.origin.strategies.recovery
    }

    /// Whether an overflow of this request is mended. Where strategies only observe nothing of an answer waits.
    pub(super) fn mends(&self) -> bool {
        self.recovers() && !self.origin.strategies.observe
    }

    /// What becomes of an overflow of this request.
    pub(super) fn overflow(&self) -> Overflow {
        match self.origin.errand {
            Errand::Count => Overflow::Final,
            _ if self.mends() => Overflow::Mended,
            _ => Overflow::Left,
        }
    }

    /// Whether what goes upstream says more or less than the client's own body.
    pub(super) fn is_rewritten(&self) -> bool {
        match (self.pieces.as_deref(), &self.original) {
            (None, _) => false,
            (Some([only]), Some(original)) => only != original,
            (Some(_), _) => true,
        }
    }

    /// Where it is only observed: reports what would be done and takes it back, with the rows that are in force.
    pub(super) fn report(&mut self, known: Known) {
        let (actions, tokens) = (self.actions, self.tokens);
        if actions != Actions::default() {
            let Change { before, after } = tokens.unwrap_or_default();
            let would_be = actions.names().collect::<Vec<_>>().join(", ");
            tracing::info!(would_be, before, after, "observed");
        }
        (self.known, self.activated) = (known, None);
        self.send_original();
        // For the account of the request; no header tells of them.
        self.actions = actions;
    }

    /// What goes upstream, as its refusal is judged by.
    pub(super) fn sent(&self) -> Sent {
        match self.is_rewritten() {
            false => Sent::Original,
            true if self.offered().is_some() && !self.is_uncalled() => Sent::Offering,
            true => Sent::Rewritten,
        }
    }

    fn is_uncalled(&self) -> bool {
        self.overlaid.as_ref().is_some_and(|overlaid| overlaid.uncalled)
    }

    /// Whether the client has no tools of its own.
    pub(super) fn is_alone(&self) -> bool {
        self.overlaid.as_ref().is_some_and(|overlaid| overlaid.alone)
    }

    /// Takes the client's own body back into use.
    pub(super) fn send_original(&mut self) {
        self.pieces = self.original.clone().map(|body| vec![body]);
        self.actions = Actions::default();
        self.tokens = self.tokens.map(|tokens| Change { after: tokens.before, ..tokens });
        self.bound();
    }

    /// Notes whether the body to send could be too long, by its bytes alone.
    pub(super) fn bound(&mut self) {
        let origin = &self.origin;
        let bytes = self.sent_bytes();
        let bound = origin.budget.output.saturating_add(bytes as u64);
        let over = origin.budget.window.is_some_and(|window| bound >= window.input.min(window.total));
        // What only the table says of a window may be far from what this server was started with.
        let unsure = !origin.confirmed && bytes >= UNKNOWN_WINDOW_BYTES;
        self.may_overflow = self.mends() && (over || unsure || origin.media);
    }

    /// Whether the output that is asked for could be more than an upstream that told its limit leaves beside
    /// the input, by the bytes alone.
    pub(super) fn may_exceed_total(&self, conversation: &Conversation<'_>) -> bool {
        let told = self.origin.told_total.filter(|_| self.recovers());
        let asked = conversation.max_output();
        told.zip(asked).is_some_and(|(total, asked)| asked.saturating_add(self.origin.body.len() as u64) > total)
    }

    /// Lowers the client's output limit where the upstream has told that there is no room for it, so that
    /// it need not refuse again.
    pub(super) fn lowered_output(&mut self, conversation: &Conversation<'_>) -> Vec<Edit> {
        let origin = Arc::clone(&self.origin);
        let told = origin.told_total.zip(self.tokens).filter(|_| origin.strategies.recovery);
        let (Some((total, tokens)), Some(asked)) = (told, conversation.max_output()) else { return Vec::new() };
        let room = total.saturating_sub(tokens.after + tokens.after / 50 + 16);
        if asked <= room || room < origin.least_output {
            return Vec::new();
        }
        self.actions.output_lowered = true;
        conversation.lower_output(room)
    }
}

/// The provider's option, where signed thinking follows what is replaced. It needs [its beta feature](drop_beta).
pub(super) fn drop_option(conversation: &Conversation<'_>, known: &Known) -> Option<Edit> {
    let checkpoint = known.active.as_deref()?;
    binding::is_mismatched(conversation, checkpoint).then(|| conversation.drop_blocks())?
}

/// The beta feature of the provider's option for thinking that no longer fits.
pub(super) fn drop_beta(headers: &mut HeaderMap) {
    headers::add_beta(headers, BLOCK_BINDING_BETA);
}
