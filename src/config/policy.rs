//! Policies and window rules: whom they concern, and which strategies come of it.

use std::sync::Arc;

use http::HeaderName;

use super::raw::{RawPolicy, Sections};
use super::resolve::{given, strategies_of};
use super::{Config, Policy, Strategies, Subject, WindowLimits, WindowRule};

/// Combinations of matching policies that are remembered; beyond it each request resolves its own.
pub const MEMO_ENTRIES: usize = 1_024;

/// Whether `text` matches `pattern`, in which each `*` stands for any text, the empty one included.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the latest `*` does not fit: let that star take one byte more.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
            }
            Some(byte) if Some(byte) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after_star, taken)) = retry else { return false };
                p = after_star;
                t = taken + 1;
                retry = Some((after_star, taken + 1));
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// Whether some text matches both patterns.
pub fn globs_meet(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    // meets[j]: the rest of `left` from i and of `right` from j have a text in common; i runs backwards.
    let mut below = vec![false; right.len() + 1];
    for i in (0..=left.len()).rev() {
        let mut meets = vec![false; right.len() + 1];
        for j in (0..=right.len()).rev() {
            let at = |row: &[bool], j: usize| row.get(j).copied().unwrap_or(false);
            let met = match (left.get(i), right.get(j)) {
                (None, None) => true,
                (Some(b'*'), _) if at(&below, j) => true,
                (_, Some(b'*')) if at(&meets, j + 1) => true,
                (Some(b'*'), Some(_)) => at(&meets, j + 1),
                (Some(_), Some(b'*')) => at(&below, j),
                (Some(a), Some(b)) => a == b && at(&below, j + 1),
                _ => false,
            };
            if let Some(cell) = meets.get_mut(j) {
                *cell = met;
            }
        }
        below = meets;
    }
    below.first().copied().unwrap_or(false)
}

fn condition(pattern: Option<&str>, text: &str) -> bool {
    pattern.is_none_or(|pattern| glob(pattern, text))
}

impl Policy {
    /// The policy of a file's table.
    pub(super) fn of(raw: &RawPolicy) -> Self {
        let matches = &raw.matches;
        let header = matches.header.as_ref().and_then(|header| {
            let name = header.value.name.as_ref()?.value.clone();
            Some((name, header.value.value.as_ref().map_or_else(|| "*".to_owned(), |value| value.value.clone())))
        });
        Self {
            model: matches.model.as_ref().map(|model| model.value.clone()),
            upstream: matches.upstream.as_ref().map(|upstream| upstream.value.clone()),
            path: matches.path.as_ref().map(|path| path.value.clone()),
            header,
            sections: raw.sections.clone(),
        }
    }

    /// Whether it turns memory on.
    pub(super) fn remembers(&self) -> bool {
        self.sections.memory.is_on()
    }

    /// Whether every condition holds for `subject`.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        condition(self.model.as_deref(), subject.model)
            && condition(self.upstream.as_deref(), subject.upstream)
            && condition(self.path.as_deref(), subject.path)
            && self.header.as_ref().is_none_or(|(name, pattern)| has_header(subject, name, pattern))
    }

    /// Whether one request can match both. Errs towards yes.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let meet = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => globs_meet(a, b),
            _ => true,
        };
        // Headers repeat: two patterns for one name can both hold.
        meet(&self.model, &other.model) && meet(&self.upstream, &other.upstream) && meet(&self.path, &other.path)
    }
}

fn has_header(subject: &Subject<'_>, name: &HeaderName, pattern: &str) -> bool {
    let values = subject.headers.get_all(name).iter();
    values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok()).any(|value| glob(pattern, value))
}

/// `policies` laid over `base`: for each key the first policy that sets it.
pub(super) fn overlaid<'p>(policies: impl DoubleEndedIterator<Item = &'p Policy>, base: &Sections) -> Sections {
    policies.rev().fold(base.clone(), |sections, policy| policy.sections.over(&sections))
}

impl Config {
    /// Whether tools may be offered to any request.
    pub fn offers_tools(&self) -> bool {
        self.strategies.tools.is_some()
            || self.policies.iter().any(|policy| given(&policy.sections.tools.on) == Some(true))
    }

    /// Whether the tools are served as MCP to any client.
    pub fn serves_mcp(&self) -> bool {
        self.offers_tools() && given(&self.sections.tools.keys.mcp).unwrap_or(true)
    }

    /// The strategies in force for a request.
    pub fn strategies(&self, subject: &Subject<'_>) -> Arc<Strategies> {
        let matching: Vec<usize> =
            self.policies.iter().enumerate().filter(|(_, policy)| policy.matches(subject)).map(|(i, _)| i).collect();
        if matching.is_empty() {
            return Arc::clone(&self.strategies);
        }
        if let Some(known) = self.memo.get(&matching) {
            return Arc::clone(&known);
        }
        let policies = matching.iter().filter_map(|i| self.policies.get(*i));
        // Contradictions between policies were found when the file was read.
        let strategies = Arc::new(strategies_of(&overlaid(policies, &self.sections)));
        if self.memo.len() < MEMO_ENTRIES {
            self.memo.insert(matching, Arc::clone(&strategies));
        }
        strategies
    }

    /// What the configuration says of a model's window; for each key the first rule that matches and sets it.
    pub fn window(&self, model: &str, upstream: &str) -> WindowLimits {
        let matches = |rule: &&WindowRule| glob(&rule.model, model) && condition(rule.upstream.as_deref(), upstream);
        self.windows.iter().filter(matches).fold(WindowLimits::default(), |found, rule| WindowLimits {
            input: found.input.or(rule.input),
            total: found.total.or(rule.total),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in
            [("*", ""), ("gpt-4o*", "gpt-4o"), ("gpt-4o*", "gpt-4o-mini"), ("*b*c", "abbcc"), ("a**", "a"), ("", "")]
        {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("gpt-4o", "gpt-4o-mini"), ("*b", "abc"), ("a*a", "a"), ("A", "a"), ("a?", "ab")]
        {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_share_a_text() {
        for (a, b) in [("gpt-*", "*-mini"), ("a*", "ab*"), ("*", ""), ("a*c", "ab*"), ("abc", "a*")] {
            assert!(globs_meet(a, b) && globs_meet(b, a), "{a} {b}");
        }
        for (a, b) in [("gpt-*", "claude-*"), ("a", "b"), ("a*b", "a*c"), ("", "a*")] {
            assert!(!globs_meet(a, b) && !globs_meet(b, a), "{a} {b}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_matches_both_makes_them_meet(a in "[ab*]{0,6}", b in "[ab*]{0,6}", text in "[ab]{0,6}") {
            if glob(&a, &text) && glob(&b, &text) {
                prop_assert!(globs_meet(&a, &b));
            }
            prop_assert_eq!(globs_meet(&a, &text), glob(&a, &text));
        }
    }
}
