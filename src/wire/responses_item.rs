//! One item of OpenAI Responses: what is known of it from its bytes alone.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use super::canonical::{self, Spelling};
use super::conversation::{Call, Facts, Media, Role, Slot, SlotKind, Standing};
use super::media;
use super::members::{MAX_PARTS, members, text_of};
use super::scan::{Cursor, Member, Unreadable, elements, kind};

/// What a call is given.
const GIVEN: &[(&str, &Spelling)] = &[
    ("action", &Spelling::DATA),
    ("arguments", &Spelling::DATA),
    ("input", &Spelling::DATA),
    ("operation", &Spelling::DATA),
];

/// Reads an item. Unreadable are values that are no object, a key twice and deep nesting.
pub(super) fn facts(raw: &[u8]) -> Result<Facts, Unreadable> {
    let members = members(raw, 0)?;
    let form = Form::of(raw, &members)?;
    let canonical = canonical::spelt(raw, &form.spelling())?;
    let mut reading = Reading { raw, form, slots: Vec::new(), media: Vec::new() };
    let calls = Vec::from_iter(reading.call(&members)?);
    let results: Vec<_> = reading.result(&members)?.into_iter().chain(reading.approved(&members)?).collect();
    for (key, span) in &members {
        reading.member(key, span)?;
    }
    let Reading { form, slots, media, .. } = reading;
    let media_bytes: usize = media.iter().map(|part| part.span.len()).sum();
    let (role, standing) = (form.role, form.standing());
    let text_bytes = raw.len() - media_bytes;
    let signed = Vec::new();
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

/// What is known of an input that is one string: the same as of a user message that says it.
pub(super) fn facts_of_text(raw: &[u8]) -> Result<Facts, Unreadable> {
    let message = [br#"{"role":"user","content":"#, raw, b"}"].concat();
    let Facts { role, canonical, .. } = facts(&message)?;
    Ok(Facts {
        role,
        slots: vec![Slot { span: 0..raw.len(), kind: SlotKind::Text }],
        calls: Vec::new(),
        results: Vec::new(),
        media: Vec::new(),
        standing: Standing::Plain,
        signed: Vec::new(),
        lasting: false,
        text_bytes: raw.len(),
        canonical,
        tokens: OnceLock::new(),
    })
}

/// The role of an item, which is valid.
pub(super) fn role(raw: &[u8]) -> Result<Role, Unreadable> {
    role_of(raw, &Cursor::new(raw, 0).pass_members()?)
}

/// The role of the item that has these members in `text`.
pub(super) fn role_of(text: &[u8], members: &[Member<'_>]) -> Result<Role, Unreadable> {
    Form::of(text, members).map(|form| form.role)
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    /// A call, answered by an output of the same id (R1, R2), or, where it has none, of the same name.
    Call,
    /// The answer to a call.
    Output,
    /// A call that the provider answered within the item (R3).
    Answered,
    /// Its kind is of no concern, but that it may stand alone (R3).
    Alone,
    /// It sets what the model can do.
    Setting,
    Boundary,
    Reference,
    Trigger,
    /// Opaque: it stays with its neighbours (P9).
    Unknown,
}

impl Kind {
    fn of(kind: &str) -> Self {
        match kind {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "item_reference" => Self::Reference,
            "compaction" | "compaction_summary" | "context_compaction" => Self::Boundary,
            "compaction_trigger" => Self::Trigger,
            "additional_tools" | "configuration_update" | "mcp_list_tools" => Self::Setting,
            "mcp_call" => Self::Answered,
            "web_search_call" | "file_search_call" | "code_interpreter_call" | "image_generation_call" => Self::Alone,
            "mcp_approval_request" | "program" => Self::Call,
            "mcp_approval_response" => Self::Output,
            _ if kind.ends_with("_call") => Self::Call,
            _ if kind.ends_with("_output") => Self::Output,
            _ => Self::Unknown,
        }
    }

    fn standing(self) -> Standing {
        match self {
            Self::Setting => Standing::Kept,
            Self::Boundary => Standing::Compaction,
            Self::Reference => Standing::Reference,
            Self::Trigger => Standing::Trigger,
            _ => Standing::Plain,
        }
    }
}

/// What an item is, and for whom it speaks.
struct Form<'r> {
    kind: Kind,
    /// Its `type`; empty where it has none.
    name: Cow<'r, str>,
    role: Role,
}

impl Form<'_> {
    /// Easy messages have a role and no type, easy references an id alone (R17, R9).
    fn of(raw: &[u8], members: &[Member<'_>]) -> Result<Self, Unreadable> {
        let name = text_of(raw, members, "type")?;
        let speaker = text_of(raw, members, "role")?;
        let kind = match &name {
            Some(name) => Kind::of(name),
            None if speaker.is_some() => Kind::Message,
            None if text_of(raw, members, "id")?.is_some() => Kind::Reference,
            None => Kind::Unknown,
        };
        let role = match (kind, name.as_deref(), speaker.as_deref()) {
            (Kind::Message, _, Some("system" | "developer")) => Role::System,
            (Kind::Message, _, Some("user")) => Role::User,
            (Kind::Message, _, Some("assistant")) => Role::Assistant,
            (Kind::Setting, Some("mcp_list_tools"), _) => Role::Assistant,
            (Kind::Setting, ..) => Role::System,
            (Kind::Reasoning | Kind::Call | Kind::Answered | Kind::Alone, ..) => Role::Assistant,
            (Kind::Output, ..) => Role::Tool,
            (Kind::Message | Kind::Boundary | Kind::Reference | Kind::Trigger | Kind::Unknown, ..) => Role::Unknown,
        };
        Ok(Self { kind, name: name.unwrap_or_default().into(), role })
    }

    /// What a search found is defined nowhere else: without it the model's later calls would be of no tool at all.
    fn standing(&self) -> Standing {
        match self.name.as_ref() {
            "tool_search_call" | "tool_search_output" => Standing::Kept,
            _ => self.kind.standing(),
        }
    }

    /// A message's content may be a string, and its type may be left out.
    fn spelling(&self) -> Spelling {
        let part = if self.role == Role::Assistant { "output_text" } else { "input_text" };
        match self.kind {
            Kind::Message => {
                Spelling { texts: &["content"], part, implied: Some(("type", "message")), ..Spelling::STRICT }
            }
            Kind::Call => Spelling { part, within: GIVEN, ..Spelling::STRICT },
            _ => Spelling { part, ..Spelling::STRICT },
        }
    }

    /// What a call and its output have in common where neither has an id: `shell` of `shell_call`.
    fn family(&self) -> &str {
        let name = self.name.as_ref();
        let name = name.strip_suffix("_output").unwrap_or(name);
        name.strip_suffix("_call").unwrap_or(name)
    }
}

struct Reading<'r> {
    raw: &'r [u8],
    form: Form<'r>,
    slots: Vec<Slot>,
    media: Vec<Media>,
}

impl Reading<'_> {
    fn id(&self, members: &[Member<'_>], key: &str) -> Result<Option<String>, Unreadable> {
        Ok(text_of(self.raw, members, key)?.filter(|id| !id.is_empty()))
    }

    /// The call that the item makes.
    fn call(&self, members: &[Member<'_>]) -> Result<Option<Call>, Unreadable> {
        let by = match (self.form.kind, self.form.name.as_ref()) {
            (Kind::Answered, _) | (_, "mcp_approval_request") => "id",
            (Kind::Call, _) => "call_id",
            // Of whatever kind: items that share a `call_id` are one unit (R2).
            (Kind::Unknown, _) => match self.id(members, "call_id")? {
                Some(_) => "call_id",
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        let id = self.id(members, by)?.unwrap_or_default();
        let name = self.id(members, "name")?.unwrap_or_else(|| self.form.family().to_owned());
        Ok(Some(Call { id, name }))
    }

    /// What the item answers.
    fn result(&self, members: &[Member<'_>]) -> Result<Option<String>, Unreadable> {
        let keys: &[&str] = match (self.form.kind, self.form.name.as_ref()) {
            (Kind::Answered, _) => &["id"],
            // In the specification it has the call's id in `id`, in practice in `call_id`.
            (_, "local_shell_call_output") => &["call_id", "id"],
            (Kind::Output, _) => &["call_id", "approval_request_id"],
            _ => return Ok(None),
        };
        for key in keys {
            if let Some(id) = self.id(members, key)? {
                return Ok(Some(id));
            }
        }
        Ok(Some(self.form.family().to_owned()))
    }

    /// What else the item answers: a call of the provider's that had to be approved (R2).
    fn approved(&self, members: &[Member<'_>]) -> Result<Option<String>, Unreadable> {
        if self.form.kind == Kind::Answered { self.id(members, "approval_request_id") } else { Ok(None) }
    }

    /// A member of the item.
    fn member(&mut self, key: &str, span: &Range<usize>) -> Result<(), Unreadable> {
        let value = kind(self.raw, span);
        match (self.form.kind, key, value) {
            (_, _, b'n') => {}
            // Reasoning is known by its slots: it has one, whatever it holds.
            (Kind::Reasoning, "type" | "summary" | "content", _) => self.slot(span, SlotKind::Reasoning),
            (_, "type" | "role" | "id" | "call_id" | "approval_request_id" | "status" | "phase", _) => {}
            (Kind::Call | Kind::Answered, "name", _) => {}
            (Kind::Message, "content", b'"') => self.slot(span, SlotKind::Text),
            (Kind::Message, "content", b'[') => self.parts(span, SlotKind::Text)?,
            (Kind::Call, "arguments" | "input" | "action" | "operation", _) => self.given(key, span),
            (Kind::Answered, "arguments", b'"') => self.slot(span, SlotKind::Arguments(0)),
            (Kind::Output | Kind::Answered, "output", b'"') => self.slot(span, SlotKind::Result(0)),
            (Kind::Output, "result", b'"') => self.slot(span, SlotKind::Result(0)),
            (Kind::Output, "output", b'[') => self.parts(span, SlotKind::Result(0))?,
            (Kind::Output, "output", b'{') => self.part(span, SlotKind::Result(0))?,
            (Kind::Alone, "result", b'"') if self.form.name == "image_generation_call" => self.picture(span),
            (Kind::Alone, "result" | "results" | "outputs", _) => self.slot(span, SlotKind::Other),
            (Kind::Call | Kind::Alone, ..) | (Kind::Answered | Kind::Unknown, "arguments" | "input", _) => {
                self.slot(span, SlotKind::Given);
            }
            _ => self.slot(span, SlotKind::Other),
        }
        Ok(())
    }

    /// What a call is given. Only what the client or its tools made of it may be shortened: an approval covers
    /// the arguments that were asked about.
    fn given(&mut self, key: &str, span: &Range<usize>) {
        let kind = match (self.form.name.as_ref(), key, kind(self.raw, span)) {
            ("function_call", "arguments", b'"') => SlotKind::Arguments(0),
            ("custom_tool_call", "input", b'"') => SlotKind::Input(0),
            ("local_shell_call" | "shell_call" | "computer_call", "action", b'{') => SlotKind::Arguments(0),
            ("apply_patch_call", "operation", b'{') => SlotKind::Arguments(0),
            _ => SlotKind::Given,
        };
        self.slot(span, kind);
    }

    fn parts(&mut self, span: &Range<usize>, said: SlotKind) -> Result<(), Unreadable> {
        let parts = elements(self.raw, span.start)?;
        if parts.len() > MAX_PARTS {
            return Err(Cursor::new(self.raw, span.start).fail("an array has too many elements"));
        }
        parts.iter().try_for_each(|part| self.part(part, said))
    }

    /// A part of a content or an output, of which the texts are `said`.
    fn part(&mut self, span: &Range<usize>, said: SlotKind) -> Result<(), Unreadable> {
        if kind(self.raw, span) != b'{' {
            self.slot(span, SlotKind::Other);
            return Ok(());
        }
        let members = members(self.raw, span.start)?;
        let form = text_of(self.raw, &members, "type")?.unwrap_or_default();
        // A screenshot must stay one (R20).
        let form = if form == "computer_screenshot" { "input_image" } else { &form };
        if let Some(tokens) = media::tokens(form, self.raw.get(span.clone()).unwrap_or_default()) {
            self.media.push(Media { span: span.clone(), tokens });
            return Ok(());
        }
        if matches!(form, "reasoning_text" | "summary_text") {
            self.slot(span, SlotKind::Reasoning);
            return Ok(());
        }
        for (key, span) in &members {
            match (form, key.as_ref(), kind(self.raw, span)) {
                (_, "type", _) | (_, _, b'n') => {}
                ("input_text" | "output_text" | "text", "text", b'"') | ("refusal", "refusal", b'"') => {
                    self.slot(span, said);
                }
                // What a command of a `shell_call` printed.
                ("", "stdout" | "stderr", b'"') => self.slot(span, said),
                _ => self.slot(span, SlotKind::Other),
            }
        }
        Ok(())
    }

    /// A generated picture, in base64.
    fn picture(&mut self, span: &Range<usize>) {
        let tokens = media::tokens("image", &[]).unwrap_or_default();
        self.media.push(Media { span: span.clone(), tokens });
    }

    fn slot(&mut self, span: &Range<usize>, kind: SlotKind) {
        self.slots.push(Slot { span: span.clone(), kind });
    }
}
