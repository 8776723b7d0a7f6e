//! The file's tables read into their shape: what is unknown or of the wrong type is a problem.

use toml::de::{DeTable, DeValue};

use super::super::problems::{Entry, Problems, did_you_mean};
use super::super::value::{Mode, Set, Value, kind};
use super::{Keys, OTHERS, RawConfig, RawPolicy, SECTIONS, WindowKeys};

impl RawConfig {
    /// Reads the file's tables; what is unknown or has the wrong type goes to `problems`.
    pub fn read(root: &DeTable<'_>, problems: &mut Problems) -> Self {
        let mut raw = Self::default();
        for (name, value) in root {
            let key: &str = name.get_ref();
            let entry = Entry { key, value };
            match key {
                "server" => raw.server = read_table(entry, problems).unwrap_or_default(),
                "state" => raw.state = read_table(entry, problems).unwrap_or_default(),
                "upstream" => raw.upstreams = read_list(entry, problems, read_table),
                "window" => raw.windows = read_list(entry, problems, read_window),
                "policy" => raw.policies = read_list(entry, problems, read_policy),
                section if SECTIONS.contains(&section) => raw.sections.read(section, entry, problems),
                unknown => {
                    let names: Vec<&str> = OTHERS.into_iter().chain(SECTIONS).collect();
                    let hint = did_you_mean(unknown, &names);
                    problems.add(Some(name.span().start), unknown, format!("is not known{hint}"));
                }
            }
        }
        raw
    }
}

/// The dotted key of `name` within `path`.
pub fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// The entry's table, or a problem.
fn table_of<'v>(entry: Entry<'v>, problems: &mut Problems) -> Option<&'v DeTable<'v>> {
    match entry.value.get_ref() {
        DeValue::Table(table) => Some(table),
        other => {
            problems.add(Some(entry.at()), entry.key, format!("expected a table, found {}", kind(other)));
            None
        }
    }
}

/// Reads a table's keys; an unknown one is a problem.
pub(super) fn read_table<K: Keys>(entry: Entry<'_>, problems: &mut Problems) -> Option<K> {
    let table = table_of(entry, problems)?;
    for required in K::REQUIRED.iter().filter(|required| !table.contains_key(**required)) {
        problems.add(Some(entry.at()), joined(entry.key, required), "is missing");
    }
    let mut keys = K::default();
    for (name, value) in table {
        let key = joined(entry.key, name.get_ref());
        if K::NAMES.contains(&name.get_ref().as_ref()) {
            keys.put(name.get_ref(), Entry { key: &key, value }, problems);
        } else {
            let hint = did_you_mean(name.get_ref(), K::NAMES);
            problems.add(Some(name.span().start), key, format!("is not known{hint}"));
        }
    }
    Some(keys)
}

/// Reads a list of tables (`[[name]]`).
fn read_list<T>(
    entry: Entry<'_>,
    problems: &mut Problems,
    read: impl Fn(Entry<'_>, &mut Problems) -> Option<T>,
) -> Vec<T> {
    let DeValue::Array(values) = entry.value.get_ref() else {
        problems.add(Some(entry.at()), entry.key, format!("is a list: write [[{}]]", entry.key));
        return Vec::new();
    };
    values.iter().filter_map(|value| read(Entry { key: entry.key, value }, problems)).collect()
}

/// A window that names no size says nothing of a model.
fn read_window(entry: Entry<'_>, problems: &mut Problems) -> Option<WindowKeys> {
    let table = table_of(entry, problems)?;
    if !table.contains_key("input") && !table.contains_key("total") {
        problems.add(Some(entry.at()), entry.key, "gives no size: set input, total or both");
    }
    read_table(entry, problems)
}

/// A policy's sections are tables like the file's own, or `false`.
fn read_policy(entry: Entry<'_>, problems: &mut Problems) -> Option<RawPolicy> {
    let mut policy = RawPolicy::default();
    for (name, value) in table_of(entry, problems)? {
        let key = joined(entry.key, name.get_ref());
        let inner = Entry { key: &key, value };
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("match", _) => policy.matches = read_table(inner, problems).unwrap_or_default(),
            ("mode", _) => {
                let at = Some(inner.at());
                policy.sections.mode = Mode::read(inner, problems).map(|value| Set { value, at });
            }
            (section, DeValue::Boolean(false)) if SECTIONS.contains(&section) => {
                policy.sections.switch_off(section, inner.at());
            }
            (section, DeValue::Table(_)) if SECTIONS.contains(&section) => {
                policy.sections.read(section, inner, problems);
            }
            (section, _) if SECTIONS.contains(&section) => {
                problems.add(Some(inner.at()), key, "expected a table of overrides, or false");
            }
            (unknown, _) => {
                let names: Vec<&str> = SECTIONS.into_iter().chain(["match", "mode"]).collect();
                let hint = did_you_mean(unknown, &names);
                problems.add(Some(name.span().start), key, format!("is not known{hint}"));
            }
        }
    }
    Some(policy)
}
