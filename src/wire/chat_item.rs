//! One message of OpenAI Chat Completions: what is known of it from its bytes alone.

use std::ops::Range;
use std::sync::OnceLock;

use super::canonical;
use super::conversation::{Call, Facts, Media, Role, Slot, SlotKind, Standing};
use super::media;
use super::members::{MAX_PARTS, decoded, members, text_of};
use super::scan::{Cursor, Member, Unreadable, elements, kind};

/// Most calls of one message (C1 has 128).
pub(super) const MAX_CALLS: usize = 1_024;

/// Reads a message. Unreadable are values that are no object, have no role, a key twice or deep nesting.
pub(super) fn facts(raw: &[u8]) -> Result<Facts, Unreadable> {
    let canonical = canonical::item(raw, &["content"])?;
    let members = members(raw, 0)?;
    let (role, known_by) = role_in(raw, &members)?;
    let mut reading = Reading { raw, role, slots: Vec::new(), calls: Vec::new(), media: Vec::new() };
    for (key, span) in &members {
        reading.member(key, span)?;
    }
    let results = match role {
        Role::Tool => vec![answers(raw, &members, known_by)?],
        _ => Vec::new(),
    };
    let Reading { slots, calls, media, .. } = reading;
    let media_bytes: usize = media.iter().map(|part| part.span.len()).sum();
    let text_bytes = raw.len() - media_bytes;
    let (standing, signed) = (Standing::Plain, Vec::new());
    Ok(Facts {
        role,
        slots,
        calls,
        results,
        media,
        standing,
        signed,
        lasting: false,
        text_bytes,
        canonical,
        tokens: OnceLock::new(),
    })
}

/// The role of a message, if it has a readable one.
pub(super) fn role(raw: &[u8]) -> Result<Role, Unreadable> {
    role_in(raw, &members(raw, 0)?).map(|(role, _)| role)
}

/// What a result's call is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownBy {
    Id,
    /// The legacy `function` has nothing else.
    Name,
}

/// The role, and what a result of that role says of its call.
fn role_in(raw: &[u8], members: &[Member<'_>]) -> Result<(Role, KnownBy), Unreadable> {
    let role = text_of(raw, members, "role")?.ok_or(Cursor::new(raw, 0).fail("a message has no role"))?;
    Ok(match role.as_str() {
        "system" | "developer" => (Role::System, KnownBy::Id),
        "user" => (Role::User, KnownBy::Id),
        "assistant" => (Role::Assistant, KnownBy::Id),
        "tool" => (Role::Tool, KnownBy::Id),
        "function" => (Role::Tool, KnownBy::Name),
        _ => (Role::Unknown, KnownBy::Id),
    })
}

/// What a result says it answers: a call's id; for a legacy function, and where no id is given, a name.
fn answers(raw: &[u8], members: &[Member<'_>], known_by: KnownBy) -> Result<String, Unreadable> {
    let id = if known_by == KnownBy::Id { text_of(raw, members, "tool_call_id")? } else { None };
    let name = text_of(raw, members, "name")?;
    Ok(id.or(name).unwrap_or_default())
}

struct Reading<'r> {
    raw: &'r [u8],
    role: Role,
    slots: Vec<Slot>,
    calls: Vec<Call>,
    media: Vec<Media>,
}

impl Reading<'_> {
    /// A member of the message.
    fn member(&mut self, key: &str, span: &Range<usize>) -> Result<(), Unreadable> {
        match (key, kind(self.raw, span)) {
            ("role" | "tool_call_id", _) | (_, b'n') => {}
            ("content", b'"') => self.slot(span, self.text_kind()),
            ("content", b'[') => {
                for part in self.elements(span, MAX_PARTS)? {
                    self.part(&part)?;
                }
            }
            ("refusal", b'"') => self.slot(span, self.text_kind()),
            ("reasoning_content" | "reasoning" | "reasoning_details", _) => self.slot(span, SlotKind::Reasoning),
            ("tool_calls", b'[') => {
                for call in self.elements(span, MAX_CALLS)? {
                    self.tool_call(&call)?;
                }
            }
            ("function_call", b'{') => {
                let mut call = Call { id: String::new(), name: String::new() };
                self.callee("function", span, &mut call)?;
                self.calls.push(call);
            }
            _ => self.slot(span, SlotKind::Other),
        }
        Ok(())
    }

    /// The elements of the array at `span`, if there are at most `most`.
    fn elements(&self, span: &Range<usize>, most: usize) -> Result<Vec<Range<usize>>, Unreadable> {
        let elements = elements(self.raw, span.start)?;
        match elements.len() <= most {
            true => Ok(elements),
            false => Err(Cursor::new(self.raw, span.start).fail("an array has too many elements")),
        }
    }

    /// What plain text in the content is.
    fn text_kind(&self) -> SlotKind {
        match self.role {
            Role::Tool => SlotKind::Result(0),
            _ => SlotKind::Text,
        }
    }

    /// A part of the content.
    fn part(&mut self, span: &Range<usize>) -> Result<(), Unreadable> {
        if kind(self.raw, span) != b'{' {
            self.slot(span, SlotKind::Other);
            return Ok(());
        }
        let members = members(self.raw, span.start)?;
        let form = text_of(self.raw, &members, "type")?.unwrap_or_default();
        if let Some(tokens) = media::tokens(&form, self.raw.get(span.clone()).unwrap_or_default()) {
            self.media.push(Media { span: span.clone(), tokens });
            return Ok(());
        }
        if matches!(form.as_str(), "thinking" | "reasoning" | "redacted_thinking") {
            self.slot(span, SlotKind::Reasoning);
            return Ok(());
        }
        for (key, span) in &members {
            match (form.as_str(), key.as_ref(), kind(self.raw, span)) {
                (_, "type", _) | (_, _, b'n') => {}
                ("text", "text", b'"') | ("refusal", "refusal", b'"') => self.slot(span, self.text_kind()),
                _ => self.slot(span, SlotKind::Other),
            }
        }
        Ok(())
    }

    /// An element of `tool_calls`.
    fn tool_call(&mut self, span: &Range<usize>) -> Result<(), Unreadable> {
        let members = members(self.raw, span.start)?;
        let id = text_of(self.raw, &members, "id")?.unwrap_or_default();
        let mut call = Call { id, name: String::new() };
        for (key, span) in &members {
            match (key.as_ref(), kind(self.raw, span)) {
                ("id" | "type" | "index", _) | (_, b'n') => {}
                ("function" | "custom", b'{') => self.callee(key, span, &mut call)?,
                _ => self.slot(span, SlotKind::Other),
            }
        }
        self.calls.push(call);
        Ok(())
    }

    /// The object with the called tool's name and what it is given.
    fn callee(&mut self, form: &str, span: &Range<usize>, call: &mut Call) -> Result<(), Unreadable> {
        let index = self.calls.len();
        for (key, span) in members(self.raw, span.start)? {
            match (form, key.as_ref(), kind(self.raw, &span)) {
                (_, _, b'n') => {}
                (_, "name", b'"') => {
                    call.name = decoded(self.raw, &span)?.unwrap_or_default();
                    self.slot(&span, SlotKind::Other);
                }
                ("function", "arguments", b'"') => self.slot(&span, SlotKind::Arguments(index)),
                ("custom", "input", b'"') => self.slot(&span, SlotKind::Input(index)),
                (_, "arguments" | "input", _) => self.slot(&span, SlotKind::Given),
                _ => self.slot(&span, SlotKind::Other),
            }
        }
        Ok(())
    }

    fn slot(&mut self, span: &Range<usize>, kind: SlotKind) {
        self.slots.push(Slot { span: span.clone(), kind });
    }
}
