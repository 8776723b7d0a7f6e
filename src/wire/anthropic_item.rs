//! One message of Anthropic Messages: what is known of it from its bytes alone.

use std::ops::Range;
use std::sync::OnceLock;

use super::anthropic;
use super::canonical::{self, Spelling};
use super::conversation::{Call, Facts, Media, Role, Slot, SlotKind, Standing};
use super::media;
use super::members::{MAX_PARTS, members, text_of};
use super::scan::{Cursor, Member, Unreadable, elements, kind, string};

/// How Claude Code's billing block begins; it says something else in every request.
const BILLING: &str = "x-anthropic-billing-header:";

/// Blocks that change which tools and instructions are in force from there on (A21).
const CHANGES: [&str; 3] = ["mid_conv_system", "tool_addition", "tool_removal"];

const MESSAGE: Spelling = Spelling { texts: &["content"], within: &[("content", &BLOCK)], ..Spelling::STRICT };
const BLOCK: Spelling = Spelling {
    texts: &["content"],
    off: &["is_error"],
    within: &[("input", &Spelling::DATA)],
    ignored: is_billing,
    ..Spelling::STRICT
};

/// Whether an element of the content is Claude Code's billing block.
fn is_billing(block: &[u8]) -> bool {
    let says = |members: &[Member<'_>], key| text_of(block, members, key).ok().flatten().unwrap_or_default();
    let is = |members: Vec<Member<'_>>| says(&members, "type") == "text" && is_header(&says(&members, "text"));
    memchr::memmem::find(block, BILLING.as_bytes()).is_some() && members(block, 0).is_ok_and(is)
}

/// Whether a text is that header and nothing else: one line of `k=v;` pairs.
fn is_header(text: &str) -> bool {
    let pairs = text.strip_prefix(BILLING).and_then(|rest| rest.trim().strip_suffix(';'));
    pairs.is_some_and(|pairs| !pairs.contains('\n') && pairs.split(';').all(|pair| pair.contains('=')))
}

/// The type of a content block, if it changes tools or instructions.
pub(super) fn is_change(form: &str) -> bool {
    CHANGES.contains(&form)
}

/// Reads a message. Unreadable are values that are no object, have no role, a key twice or deep nesting.
pub(super) fn facts(raw: &[u8]) -> Result<Facts, Unreadable> {
    let canonical = canonical::spelt(raw, &MESSAGE)?;
    let members = members(raw, 0)?;
    let said = role_in(raw, &members)?;
    let mut reading = Reading { raw, ..Reading::default() };
    for (key, span) in &members {
        reading.member(key, span)?;
    }
    reading.leave_open();
    let Reading { slots, calls, results, media, signed, standing, .. } = reading;
    // A message of results alone speaks for the tools.
    let typed = results.is_empty() || slots.iter().any(|slot| slot.kind == SlotKind::Text);
    let role = if said == Role::User && !typed { Role::Tool } else { said };
    let media_bytes: usize = media.iter().map(|part| part.span.len()).sum();
    let (text_bytes, lasting) = (raw.len() - media_bytes, anthropic::may_outlast(raw));
    let tokens = OnceLock::new();
    Ok(Facts { role, slots, calls, results, media, standing, signed, lasting, text_bytes, canonical, tokens })
}

/// The role of a message, if it has a readable one.
pub(super) fn role(raw: &[u8]) -> Result<Role, Unreadable> {
    role_in(raw, &members(raw, 0)?)
}

fn role_in(raw: &[u8], members: &[Member<'_>]) -> Result<Role, Unreadable> {
    let role = text_of(raw, members, "role")?.ok_or(Cursor::new(raw, 0).fail("a message has no role"))?;
    Ok(match role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::Unknown,
    })
}

struct Reading<'r> {
    raw: &'r [u8],
    slots: Vec<Slot>,
    calls: Vec<Call>,
    results: Vec<String>,
    media: Vec<Media>,
    signed: Vec<Range<usize>>,
    standing: Standing,
    /// What servers were asked, and the ids of what they answered.
    served: (Vec<Call>, Vec<String>),
}

impl Default for Reading<'_> {
    fn default() -> Self {
        let (slots, calls, results) = (Vec::new(), Vec::new(), Vec::new());
        let (media, signed, standing) = (Vec::new(), Vec::new(), Standing::Plain);
        let served = (Vec::new(), Vec::new());
        Self { raw: &[], slots, calls, results, media, signed, standing, served }
    }
}

impl Reading<'_> {
    /// A member of the message.
    fn member(&mut self, key: &str, span: &Range<usize>) -> Result<(), Unreadable> {
        match (key, kind(self.raw, span)) {
            ("role" | "cache_control", _) | (_, b'n') => {}
            ("content", b'"') => self.slot(span, SlotKind::Text),
            ("content", b'[') => {
                for block in self.blocks(span)? {
                    self.block(&block)?;
                }
            }
            _ => self.slot(span, SlotKind::Other),
        }
        Ok(())
    }

    fn blocks(&self, span: &Range<usize>) -> Result<Vec<Range<usize>>, Unreadable> {
        let blocks = elements(self.raw, span.start)?;
        match blocks.len() <= MAX_PARTS {
            true => Ok(blocks),
            false => Err(Cursor::new(self.raw, span.start).fail("a message has too many blocks")),
        }
    }

    /// A block of the message's content. Unknown ones are opaque: they cost tokens and stay as they are.
    fn block(&mut self, span: &Range<usize>) -> Result<(), Unreadable> {
        let raw = self.raw.get(span.clone()).unwrap_or_default();
        if kind(self.raw, span) != b'{' {
            self.slot(span, SlotKind::Other);
            return Ok(());
        }
        if is_billing(raw) {
            return Ok(());
        }
        let members = members(self.raw, span.start)?;
        let form = text_of(self.raw, &members, "type")?.unwrap_or_default();
        match form.as_str() {
            "thinking" | "redacted_thinking" => self.thinking(&form, &members, span)?,
            "tool_use" => self.tool_use(&members)?,
            "tool_result" => self.tool_result(&members)?,
            "server_tool_use" | "mcp_tool_use" => {
                let id = text_of(self.raw, &members, "id")?.unwrap_or_default();
                let name = text_of(self.raw, &members, "name")?.unwrap_or_default();
                self.served.0.push(Call { id, name });
                self.slot(span, SlotKind::Given);
            }
            form if form.ends_with("_tool_result") => {
                self.served.1.extend(text_of(self.raw, &members, "tool_use_id")?);
                self.slot(span, SlotKind::Other);
            }
            "compaction" => {
                // Without content it stands for nothing (A19).
                if members.iter().any(|(key, span)| key == "content" && kind(self.raw, span) != b'n') {
                    self.standing = Standing::Compaction;
                }
                self.slot(span, SlotKind::Other);
            }
            // It goes along with what stands for the message.
            form if is_change(form) => self.slot(span, SlotKind::Other),
            form => self.part(form, (span, &members), SlotKind::Text),
        }
        Ok(())
    }

    /// What a server did within the message is of no concern. Where only the call or only the answer stands in it
    /// (`pause_turn`, calls that code makes), the other must stay with it (A4).
    fn leave_open(&mut self) {
        let (calls, results) = std::mem::take(&mut self.served);
        let is_open = |id: &String| !calls.iter().any(|call| call.id == *id);
        self.results.extend(results.iter().filter(|id| is_open(id)).cloned());
        self.calls.extend(calls.into_iter().filter(|call| !results.contains(&call.id)));
    }

    /// Text or a medium, in the message itself or in a result.
    fn part(&mut self, form: &str, (span, members): (&Range<usize>, &[Member<'_>]), text: SlotKind) {
        let raw = self.raw.get(span.clone()).unwrap_or_default();
        match (form, media::tokens(form, raw).filter(|_| !self.is_plain_document(members))) {
            ("text", _) => {
                for (key, span) in members {
                    match (key.as_ref(), kind(self.raw, span)) {
                        ("type" | "cache_control", _) | (_, b'n') => {}
                        ("text", b'"') => self.slot(span, text),
                        _ => self.slot(span, SlotKind::Other),
                    }
                }
            }
            (_, Some(tokens)) => {
                self.media.push(Media { span: span.clone(), tokens });
                self.slot(span, SlotKind::Media);
            }
            (_, None) => {
                // A document that is given as blocks may hold pictures.
                let mut start = span.start;
                let pictures = if form == "document" { self.pictures(members) } else { Vec::new() };
                for (picture, tokens) in pictures {
                    self.slot(&(start..picture.start), SlotKind::Other);
                    self.slot(&picture, SlotKind::Media);
                    start = picture.end;
                    self.media.push(Media { span: picture, tokens });
                }
                self.slot(&(start..span.end), SlotKind::Other);
            }
        }
    }

    /// The pictures among the blocks of a document, with their tokens.
    fn pictures(&self, members: &[Member<'_>]) -> Vec<(Range<usize>, u32)> {
        let of = |at: usize, key: &str| {
            let found = self::members(self.raw, at).ok()?.into_iter().find(|(name, _)| name == key);
            found.map(|(_, span)| span)
        };
        let source = members.iter().find(|(key, span)| key == "source" && kind(self.raw, span) == b'{');
        let content = source.and_then(|(_, span)| of(span.start, "content"));
        let blocks = content.and_then(|span| elements(self.raw, span.start).ok()).unwrap_or_default();
        let picture = |block: Range<usize>| {
            let form = string(self.raw, &of(block.start, "type")?)?;
            media::tokens(&form, self.raw.get(block.clone())?).map(|tokens| (block, tokens))
        };
        blocks.into_iter().filter_map(picture).collect()
    }

    /// A document that is given as text costs what its text costs.
    fn is_plain_document(&self, members: &[Member<'_>]) -> bool {
        let source = members.iter().find(|(key, _)| key == "source").map(|(_, span)| self.raw.get(span.clone()));
        let form = |source: &[u8]| {
            let members = super::scan::members(source, 0).ok()?;
            let (_, span) = members.into_iter().find(|(key, _)| key == "type")?;
            string(source, &span).map(|form| matches!(form.as_ref(), "text" | "content"))
        };
        source.flatten().and_then(form).unwrap_or(false)
    }

    /// Reasoning, which may not be changed; signed, it may not even have anything changed before it.
    fn thinking(&mut self, form: &str, members: &[Member<'_>], span: &Range<usize>) -> Result<(), Unreadable> {
        let signature = text_of(self.raw, members, "signature")?;
        if form == "redacted_thinking" || signature.is_some_and(|signature| !signature.is_empty()) {
            self.signed.push(span.clone());
        }
        for (key, span) in members {
            match (key.as_ref(), kind(self.raw, span)) {
                ("type" | "signature" | "cache_control", _) | (_, b'n') => {}
                ("thinking", b'"') => self.slot(span, SlotKind::Reasoning),
                _ => self.slot(span, SlotKind::Other),
            }
        }
        Ok(())
    }

    fn tool_use(&mut self, members: &[Member<'_>]) -> Result<(), Unreadable> {
        let id = text_of(self.raw, members, "id")?.unwrap_or_default();
        let name = text_of(self.raw, members, "name")?.unwrap_or_default();
        let index = self.calls.len();
        for (key, span) in members {
            match (key.as_ref(), kind(self.raw, span)) {
                ("id" | "type" | "name" | "cache_control", _) | (_, b'n') => {}
                ("input", b'{') => self.slot(span, SlotKind::Arguments(index)),
                ("input", _) => self.slot(span, SlotKind::Given),
                _ => self.slot(span, SlotKind::Other),
            }
        }
        self.calls.push(Call { id, name });
        Ok(())
    }

    fn tool_result(&mut self, members: &[Member<'_>]) -> Result<(), Unreadable> {
        let index = self.results.len();
        self.results.push(text_of(self.raw, members, "tool_use_id")?.unwrap_or_default());
        for (key, span) in members {
            match (key.as_ref(), kind(self.raw, span)) {
                ("type" | "tool_use_id" | "is_error" | "cache_control", _) | (_, b'n') => {}
                ("content", b'"') => self.slot(span, SlotKind::Result(index)),
                ("content", b'[') => {
                    for part in self.blocks(span)? {
                        self.result_part(&part, index)?;
                    }
                }
                _ => self.slot(span, SlotKind::Other),
            }
        }
        Ok(())
    }

    fn result_part(&mut self, span: &Range<usize>, index: usize) -> Result<(), Unreadable> {
        if kind(self.raw, span) != b'{' {
            self.slot(span, SlotKind::Other);
            return Ok(());
        }
        let members = members(self.raw, span.start)?;
        let form = text_of(self.raw, &members, "type")?.unwrap_or_default();
        self.part(&form, (span, &members), SlotKind::Result(index));
        Ok(())
    }

    fn slot(&mut self, span: &Range<usize>, kind: SlotKind) {
        self.slots.push(Slot { span: span.clone(), kind });
    }
}
