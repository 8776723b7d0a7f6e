//! Sections to settings: defaults filled in, contradictions found.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::compact::exclusions::{READ_EVICTED, excluded};

use super::problems::Problems;
use super::raw::{CompactionKeys, EvictionKeys, MemoryKeys, PruneKeys, Section, Sections, ToolKeys, TruncateKeys};
use super::value::{Mode, Set};
use super::{
    Auto, CompactionSettings, EvictionSettings, Inject, Keep, MemorySettings, PruneSettings, SignedThinking,
    Strategies, ToolScope, ToolSettings, TruncateSettings, defaults,
};

/// Characters that stand in for `{n}` when the length of a truncation text is judged.
const DIGITS_OF_A_LENGTH: usize = 10;
/// Bytes of a character at most.
const CHAR_BYTES: usize = 4;
/// Fewest and most characters of a tool's page: less says little beside how to go on, more is what was removed.
const PAGE_CHARS: RangeInclusive<usize> = 1_000..=100_000;
/// Most rounds: each is a paid model call while the client waits.
const MOST_ROUNDS: usize = 20;
const ONE_DAY: Duration = Duration::from_secs(24 * 3600);
/// Characters of an id.
const DIGITS_OF_AN_ID: usize = 32;

/// A key's value, or its default.
pub fn or<T: Clone>(set: &Option<Set<T>>, default: T) -> T {
    set.as_ref().map_or(default, |set| set.value.clone())
}

/// A key's value, if it has one.
pub fn given<T: Clone>(set: &Option<Set<T>>) -> Option<T> {
    set.as_ref().map(|set| set.value.clone())
}

/// The strategies that `sections` describe. Total: contradictions are [`contradictions`]' business.
pub fn strategies_of(sections: &Sections) -> Strategies {
    let (eviction, compaction) = (of(&sections.eviction, eviction), of(&sections.compaction, compaction));
    Strategies {
        tools: of(&sections.tools, tools).map(|tools| fitting(tools, &sections.tools.keys, eviction.as_ref())),
        eviction,
        truncate: of(&sections.truncate, truncate),
        prune: of(&sections.prune, prune),
        // Compaction turns recovery on, unless the section or a policy turns it off.
        recovery: compaction.is_some() && or(&sections.recovery.on, true) && or(&sections.recovery.keys.enabled, true),
        compaction,
        memory: of(&sections.memory, memory),
        log: of(&sections.sessions, |keys| or(&keys.log, true)).unwrap_or_default(),
        observe: given(&sections.mode) == Some(Mode::Observe),
        signed_thinking: of(&sections.anthropic, |keys| or(&keys.prefix_mismatch, SignedThinking::Kept))
            .unwrap_or_default(),
    }
}

fn of<K: super::raw::Keys, S>(section: &Section<K>, settings: fn(&K) -> S) -> Option<S> {
    section.is_on().then(|| settings(&section.keys))
}

fn eviction(keys: &EvictionKeys) -> EvictionSettings {
    EvictionSettings {
        max_result_chars: given(&keys.max_result_chars).map_or(defaults::MAX_RESULT_CHARS, usize::from),
        max_result_tokens: given(&keys.max_result_tokens).map(usize::from),
        preview_chars: given(&keys.preview_chars).map_or(defaults::PREVIEW_CHARS, usize::from),
        excluded_tools: given(&keys.excluded_tools).unwrap_or_else(defaults::excluded_tools),
        excluded_limit_factor: or(&keys.excluded_limit_factor, defaults::EXCLUDED_LIMIT_FACTOR),
        workspace_dir: given(&keys.workspace_dir),
    }
}

fn truncate(keys: &TruncateKeys) -> TruncateSettings {
    TruncateSettings {
        trigger_messages: or(&keys.trigger_messages, defaults::TRUNCATE_TRIGGER_MESSAGES),
        trigger_tokens: or(&keys.trigger_tokens, Auto::Auto),
        keep_messages: or(&keys.keep_messages, defaults::TRUNCATE_KEEP_MESSAGES),
        max_arg_length: given(&keys.max_arg_length).map_or(defaults::MAX_ARG_LENGTH, usize::from),
        truncation_text: given(&keys.truncation_text).unwrap_or_else(|| defaults::TRUNCATION_TEXT.into()),
        min_gain_tokens: or(&keys.min_gain_tokens, Auto::Auto),
    }
}

fn prune(keys: &PruneKeys) -> PruneSettings {
    PruneSettings {
        protect_tokens: or(&keys.protect_tokens, Auto::Auto),
        min_gain_tokens: or(&keys.min_gain_tokens, Auto::Auto),
        max_output_chars: given(&keys.max_output_chars).map_or(defaults::MAX_OUTPUT_CHARS, usize::from),
    }
}

fn compaction(keys: &CompactionKeys) -> CompactionSettings {
    // A default that is written out (`keep_tokens = "auto"`) means what its absence means.
    let keep = match (or(&keys.keep_tokens, Auto::Auto), given(&keys.keep_messages)) {
        (Auto::Auto, Some(messages)) => Keep::Messages(messages.into()),
        (tokens, _) => Keep::Tokens(tokens),
    };
    CompactionSettings {
        trigger_messages: or(&keys.trigger_messages, 0),
        trigger_tokens: or(&keys.trigger_tokens, Auto::Auto),
        reserved_tokens: or(&keys.reserved_tokens, defaults::RESERVED_TOKENS),
        keep,
        model: given(&keys.model),
        upstream: given(&keys.upstream),
        summary_prompt: keys.summary_prompt_file.as_ref().map(|prompt| Arc::clone(&prompt.value.text)),
        offload_before_compact: or(&keys.offload_before_compact, true),
        flush_before_compact: or(&keys.flush_before_compact, true),
    }
}

fn memory(keys: &MemoryKeys) -> MemorySettings {
    MemorySettings {
        inject: or(&keys.inject, false),
        consolidate_gap: or(&keys.consolidate_gap, defaults::CONSOLIDATE_GAP),
        max_tokens: given(&keys.max_tokens).map_or(defaults::MEMORY_TOKENS, usize::from),
        archive_after: or(&keys.archive_after, defaults::ARCHIVE_AFTER),
    }
}

fn tools(keys: &ToolKeys) -> ToolSettings {
    ToolSettings {
        inject: or(&keys.inject, Inject::Auto),
        scope: or(&keys.scope, ToolScope::Session),
        max_rounds: given(&keys.max_rounds).map_or(defaults::MAX_ROUNDS, usize::from),
        page_chars: given(&keys.page_chars).map_or(defaults::PAGE_CHARS, usize::from),
        mcp: or(&keys.mcp, true),
    }
}

/// Pages of the default size become smaller where they would be evicted themselves.
fn fitting(mut tools: ToolSettings, keys: &ToolKeys, eviction: Option<&EvictionSettings>) -> ToolSettings {
    if keys.page_chars.is_none() {
        tools.page_chars = tools.page_chars.min(page_limit(eviction));
    }
    tools
}

/// The longest page that is not evicted in its turn; never less than the shortest that says something.
fn page_limit(eviction: Option<&EvictionSettings>) -> usize {
    let Some(eviction) = eviction else { return usize::MAX };
    let factor = match excluded(READ_EVICTED, &eviction.excluded_tools) {
        true if eviction.excluded_limit_factor == 0 => return usize::MAX,
        true => eviction.excluded_limit_factor,
        false => 1,
    };
    // No text has more tokens than bytes.
    let tokens = eviction.max_result_tokens.map_or(usize::MAX, |limit| limit.saturating_mul(factor) / CHAR_BYTES);
    eviction.max_result_chars.saturating_mul(factor).min(tokens).max(*PAGE_CHARS.start())
}

/// Where a contradiction is reported: the first of its keys that stands in the file.
struct Spot<'k> {
    section: &'k str,
    /// Where the section begins.
    begins: Option<usize>,
}

impl Spot<'_> {
    fn report(&self, keys: &[(&str, Option<usize>)], message: String, problems: &mut Problems) {
        let written = keys.iter().find(|(_, at)| at.is_some());
        let (name, at) = written.or(keys.first()).copied().unwrap_or_default();
        problems.add(at.or(self.begins), format!("{}.{name}", self.section), message);
    }
}

/// The byte offset of a key, if it stands in the file.
fn at<T>(set: &Option<Set<T>>) -> Option<usize> {
    set.as_ref().and_then(|set| set.at)
}

/// What cannot be meant together within the sections that are on. `path` comes before the sections' names.
pub fn contradictions(sections: &Sections, path: &str, problems: &mut Problems) {
    let resolved = strategies_of(sections);
    if let Some(settings) = &resolved.eviction {
        let name = format!("{path}tool_result_eviction");
        let spot = Spot { section: &name, begins: at(&sections.eviction.on) };
        check_eviction(settings, &sections.eviction.keys, &spot, problems);
    }
    if let Some(settings) = &resolved.truncate {
        let name = format!("{path}truncate_args");
        let spot = Spot { section: &name, begins: at(&sections.truncate.on) };
        check_truncate(settings, &sections.truncate.keys, &spot, problems);
    }
    if let Some(settings) = &resolved.compaction {
        let name = format!("{path}compaction");
        let spot = Spot { section: &name, begins: at(&sections.compaction.on) };
        check_compaction(settings, &sections.compaction.keys, &spot, problems);
    }
    if let Some(settings) = &resolved.tools {
        let name = format!("{path}tools");
        let spot = Spot { section: &name, begins: at(&sections.tools.on) };
        check_tools(settings, &sections.tools.keys, &spot, problems);
        let limit = page_limit(resolved.eviction.as_ref());
        if settings.page_chars > limit {
            let message = format!("a page of {} characters would be evicted itself: {limit} fit", settings.page_chars);
            spot.report(&[("page_chars", at(&sections.tools.keys.page_chars))], message, problems);
        }
    }
    if let Some(settings) = &resolved.memory {
        let name = format!("{path}memory");
        let spot = Spot { section: &name, begins: at(&sections.memory.on) };
        check_memory(settings, &sections.memory.keys, &spot, problems);
    }
}

fn check_memory(settings: &MemorySettings, keys: &MemoryKeys, spot: &Spot<'_>, problems: &mut Problems) {
    let most = defaults::MOST_MEMORY_TOKENS;
    if settings.max_tokens > most {
        spot.report(&[("max_tokens", at(&keys.max_tokens))], format!("must be at most {most}"), problems);
    }
    if settings.archive_after < ONE_DAY {
        let message = "must be at least 1d: a day's file is still written to".to_owned();
        spot.report(&[("archive_after", at(&keys.archive_after))], message, problems);
    }
    if settings.consolidate_gap < defaults::LEAST_CONSOLIDATE_GAP {
        let keys = [("consolidate_gap", at(&keys.consolidate_gap))];
        spot.report(&keys, "must be at least 30m: each time the whole memory is read by a model".into(), problems);
    }
}

/// Tokens of a pointer to a removed text, rounded up; a limit below them cannot be met.
const LEAST_RESULT_TOKENS: usize = 200;

fn check_eviction(settings: &EvictionSettings, keys: &EvictionKeys, spot: &Spot<'_>, problems: &mut Problems) {
    let (preview, limit) = (settings.preview_chars, settings.max_result_chars);
    if preview.saturating_mul(2) >= limit {
        let message =
            format!("head and tail of {preview} characters each leave nothing to remove of {limit} (max_result_chars)");
        let keys = [("preview_chars", at(&keys.preview_chars)), ("max_result_chars", at(&keys.max_result_chars))];
        spot.report(&keys, message, problems);
    }
    if settings.max_result_tokens.is_some_and(|limit| limit < LEAST_RESULT_TOKENS) {
        let message = format!("must be at least {LEAST_RESULT_TOKENS}: what takes a result's place has about as many");
        spot.report(&[("max_result_tokens", at(&keys.max_result_tokens))], message, problems);
    }
    if settings.excluded_tools.iter().any(String::is_empty) {
        spot.report(&[("excluded_tools", at(&keys.excluded_tools))], "holds an empty name".into(), problems);
    }
}

fn check_truncate(settings: &TruncateSettings, keys: &TruncateKeys, spot: &Spot<'_>, problems: &mut Problems) {
    let (keep, trigger) = (settings.keep_messages, settings.trigger_messages);
    if trigger > 0 && keep >= trigger {
        let message = format!("must be smaller than trigger_messages ({keep} >= {trigger})");
        let keys = [("keep_messages", at(&keys.keep_messages)), ("trigger_messages", at(&keys.trigger_messages))];
        spot.report(&keys, message, problems);
    }
    let text = &settings.truncation_text;
    let written = [("truncation_text", at(&keys.truncation_text)), ("max_arg_length", at(&keys.max_arg_length))];
    for placeholder in ["{n}", "{id}"] {
        if !text.contains(placeholder) {
            spot.report(&written, format!("does not contain {placeholder}"), problems);
        }
    }
    let filled = text.replace("{n}", &"0".repeat(DIGITS_OF_A_LENGTH)).replace("{id}", &"0".repeat(DIGITS_OF_AN_ID));
    let (length, limit) = (filled.chars().count(), settings.max_arg_length);
    if length >= limit {
        spot.report(&written, format!("its {length} characters do not fit into max_arg_length ({limit})"), problems);
    }
}

fn check_compaction(settings: &CompactionSettings, keys: &CompactionKeys, spot: &Spot<'_>, problems: &mut Problems) {
    let tokens = [("keep_tokens", at(&keys.keep_tokens)), ("trigger_tokens", at(&keys.trigger_tokens))];
    let messages = [("keep_messages", at(&keys.keep_messages)), ("trigger_messages", at(&keys.trigger_messages))];
    match (settings.keep, settings.trigger_tokens) {
        (Keep::Tokens(Auto::Fixed(0)), _) => spot.report(&tokens, "must be at least 1".into(), problems),
        (Keep::Tokens(Auto::Fixed(keep)), Auto::Fixed(trigger)) if trigger > 0 && keep >= trigger => {
            let message = format!("must be smaller than trigger_tokens ({keep} >= {trigger})");
            spot.report(&tokens, message, problems);
        }
        (Keep::Messages(keep), _) if settings.trigger_messages > 0 && keep > settings.trigger_messages / 2 => {
            let most = settings.trigger_messages / 2;
            let message =
                format!("must be at most {most}, half of trigger_messages: else the next summary is due soon");
            spot.report(&messages, message, problems);
        }
        _ => {}
    }
    for (name, key) in [("model", &keys.model), ("upstream", &keys.upstream)] {
        if given(key).is_some_and(|text| text.is_empty()) {
            spot.report(&[(name, at(key))], "is empty".into(), problems);
        }
    }
}

fn check_tools(settings: &ToolSettings, keys: &ToolKeys, spot: &Spot<'_>, problems: &mut Problems) {
    if !PAGE_CHARS.contains(&settings.page_chars) {
        let message = format!("must be from {} to {}", PAGE_CHARS.start(), PAGE_CHARS.end());
        spot.report(&[("page_chars", at(&keys.page_chars))], message, problems);
    }
    if settings.max_rounds > MOST_ROUNDS {
        let message = format!("must be at most {MOST_ROUNDS}: each round is a model call");
        spot.report(&[("max_rounds", at(&keys.max_rounds))], message, problems);
    }
}
