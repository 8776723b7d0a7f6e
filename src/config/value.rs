//! Single values of the file: what is accepted, and how it is written back.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::expand::escape;
use super::problems::{Entry, Problems};
use super::sizes::{ByteSize, parse_duration, parse_size, show_duration, show_size};
use super::{Api, Auto, Inject, Secret, SignedThinking, ToolScope};

/// A type that a key may have. Messages never repeat a value: it may have come from the environment.
pub trait Value: Sized {
    /// Reads the value; what is wrong with it goes to `problems`.
    fn read(entry: Entry<'_>, problems: &mut Problems) -> Option<Self>;

    /// The value as the file would have it.
    fn show(&self) -> toml::Value;
}

/// A value that was set, with the byte offset where; `None` for one that is a default.
#[derive(Debug, Clone)]
pub struct Set<T> {
    pub value: T,
    pub at: Option<usize>,
}

/// A prompt, read together with the configuration. It contains `{messages}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptFile {
    pub path: PathBuf,
    pub text: Arc<str>,
}

/// Whether a policy's requests are rewritten or only reported on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Active,
    Observe,
}

const APIS: [(&str, Api); 6] = [
    ("chat", Api::Chat),
    ("responses", Api::Responses),
    ("messages", Api::Messages),
    ("openai", Api::Openai),
    ("anthropic", Api::Anthropic),
    ("auto", Api::Auto),
];

const PREFIX_MISMATCHES: [(&str, SignedThinking); 2] =
    [("keep", SignedThinking::Kept), ("drop_block", SignedThinking::Dropped)];

const INJECTIONS: [(&str, Inject); 3] = [("auto", Inject::Auto), ("always", Inject::Always), ("never", Inject::Never)];

const SCOPES: [(&str, ToolScope); 3] =
    [("session", ToolScope::Session), ("agent", ToolScope::Agent), ("tenant", ToolScope::Tenant)];

const MODES: [(&str, Mode); 2] = [("active", Mode::Active), ("observe", Mode::Observe)];

/// What `check` prints in place of a secret.
const MASK: &str = "***";

impl<T> Set<T> {
    /// A value that stands nowhere in a file.
    pub fn default_of(value: T) -> Option<Self> {
        Some(Self { value, at: None })
    }
}

/// Where a value was written does not make it another value.
impl<T: PartialEq> PartialEq for Set<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// `value` if it is a string.
pub fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(format!("expected a string, found {}", kind(other))),
    }
}

/// What `value` is, in words.
pub fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A string value; a dollar sign is doubled so that it reads back as it is.
pub fn shown(text: &str) -> toml::Value {
    toml::Value::String(escape(text))
}

fn whole(value: &DeValue<'_>) -> Result<u64, String> {
    let DeValue::Integer(number) = value else {
        return Err(format!("expected a whole number, found {}", kind(value)));
    };
    // The file format's own integers are signed: larger ones could not be written back.
    match i64::from_str_radix(number.as_str(), number.radix()) {
        Ok(signed) => u64::try_from(signed).map_err(|_| "must not be negative".into()),
        Err(_) => Err("is out of range".into()),
    }
}

fn not_zero(value: &DeValue<'_>) -> Result<NonZeroU64, String> {
    NonZeroU64::new(whole(value)?).ok_or_else(|| "must be at least 1".into())
}

fn one_of<T: Copy>(value: &DeValue<'_>, choices: &[(&str, T)]) -> Result<T, String> {
    let given = text(value)?;
    let found = choices.iter().find(|(name, _)| *name == given).map(|(_, choice)| *choice);
    let names = || choices.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("expected one of {}", names()))
}

fn name_of<T: PartialEq>(choice: &T, choices: &[(&str, T)]) -> toml::Value {
    shown(choices.iter().find(|(_, known)| known == choice).map_or("", |(name, _)| name))
}

fn number(value: u64) -> toml::Value {
    toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

pub(super) fn path(value: &DeValue<'_>) -> Result<PathBuf, String> {
    match text(value)? {
        "" => Err("is empty".into()),
        path => Ok(PathBuf::from(path)),
    }
}

fn prompt(value: &DeValue<'_>) -> Result<PromptFile, String> {
    let path = path(value)?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.contains("{messages}") {
        true => Ok(PromptFile { path, text: text.into() }),
        false => Err("the prompt does not contain {messages}".into()),
    }
}

/// A secret is sent as a header's value, so it has to be one.
fn secret(value: &DeValue<'_>) -> Result<Secret, String> {
    match text(value)? {
        "" => Err("is empty".into()),
        text if http::HeaderValue::from_str(text).is_err() => Err("holds characters that no header can carry".into()),
        text => Ok(Secret::new(text.into())),
    }
}

/// Implements [`Value`] by a function that reads a value and one that shows it.
macro_rules! values {
    ($($type:ty: $read:expr, $show:expr;)*) => {$(
        impl Value for $type {
            fn read(entry: Entry<'_>, problems: &mut Problems) -> Option<Self> {
                let read: fn(&DeValue<'_>) -> Result<Self, String> = $read;
                problems.keep(entry, read(entry.value.get_ref()))
            }

            fn show(&self) -> toml::Value {
                let show: fn(&Self) -> toml::Value = $show;
                show(self)
            }
        }
    )*};
}
pub(super) use values;

values! {
    bool: |value| match value {
        DeValue::Boolean(flag) => Ok(*flag),
        other => Err(format!("expected true or false, found {}", kind(other))),
    }, |flag| toml::Value::Boolean(*flag);
    String: |value| text(value).map(str::to_owned), |text| shown(text);
    u64: whole, |value| number(*value);
    NonZeroU64: not_zero, |value| number(value.get());
    usize: |value| usize::try_from(whole(value)?).map_err(|_| "is out of range".into()), |value| number(*value as u64);
    NonZeroUsize: |value| NonZeroUsize::try_from(not_zero(value)?).map_err(|_| "is out of range".into()),
        |value| number(value.get() as u64);
    Auto: |value| match value {
        DeValue::String(text) if text == "auto" => Ok(Auto::Auto),
        DeValue::String(_) => Err("expected \"auto\" or a whole number".into()),
        other => whole(other).map(Auto::Fixed),
    }, |auto| match auto {
        Auto::Auto => shown("auto"),
        Auto::Fixed(value) => number(*value),
    };
    ByteSize: |value| match value {
        DeValue::String(text) => parse_size(text).and_then(not_empty),
        other => whole(other).map(ByteSize).and_then(not_empty),
    }, |size| shown(&show_size(*size));
    Duration: |value| parse_duration(text(value).map_err(|_| "expected a duration such as \"30s\"")?),
        |duration| shown(&show_duration(*duration));
    PathBuf: path, |path| shown(&path.to_string_lossy());
    PromptFile: prompt, |prompt| prompt.path.show();
    Secret: secret, |_| shown(MASK);
    Api: |value| one_of(value, &APIS), |api| name_of(api, &APIS);
    Mode: |value| one_of(value, &MODES), |mode| name_of(mode, &MODES);
    SignedThinking: |value| one_of(value, &PREFIX_MISMATCHES), |what| name_of(what, &PREFIX_MISMATCHES);
    Inject: |value| one_of(value, &INJECTIONS), |inject| name_of(inject, &INJECTIONS);
    ToolScope: |value| one_of(value, &SCOPES), |scope| name_of(scope, &SCOPES);
}

fn not_empty(size: ByteSize) -> Result<ByteSize, String> {
    if size.0 == 0 { Err("must be at least 1".into()) } else { Ok(size) }
}

impl Value for Vec<String> {
    fn read(entry: Entry<'_>, problems: &mut Problems) -> Option<Self> {
        let DeValue::Array(values) = entry.value.get_ref() else {
            let found = kind(entry.value.get_ref());
            problems.add(Some(entry.at()), entry.key, format!("expected a list of strings, found {found}"));
            return None;
        };
        let read = |value| String::read(Entry { value, ..entry }, problems);
        let strings: Vec<Option<String>> = values.iter().map(read).collect();
        strings.into_iter().collect()
    }

    fn show(&self) -> toml::Value {
        toml::Value::Array(self.iter().map(|text| shown(text)).collect())
    }
}
