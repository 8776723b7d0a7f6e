//! One conversation on one way: its turns, what is gone from the last of them, and whether it is found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use compactproxy::demo::provider::{Provider, Verdict};
use compactproxy::demo::window::Limit;
use compactproxy::proxy::reading::{self, Shares};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

use super::history::{Dice, History, Needle, Place};
use super::model::{Shared, provider};
use super::pages::{Reading, ids};
use super::readers::{Channel, Text, by_file};
use super::ways::Way;
use crate::support::chat::{attempts, over, parsed};
use crate::support::dialects::Dialect;
use crate::support::proxy::{Served, open};

/// What the tool says of a text of which the model was not told.
const UNKNOWN: &str = "no text is kept under this id";

/// What was not found, or not exactly.
pub struct Missed {
    dialect: String,
    way: Way,
    seed: u64,
    when: When,
    channel: Option<Channel>,
    place: Option<Place>,
    what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    AtOnce,
    AfterRestart,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialect, way, seed, when, channel, place, what } = self;
        write!(f, "{dialect:9} {way:?} seed {seed} {when:?} {channel:?} {place:?} {what}")
    }
}

#[derive(Default)]
pub struct Found {
    pub missed: Vec<Missed>,
    /// Needles that were no longer in the body.
    pub removed: usize,
    /// How many texts were read, when and how.
    pub read: BTreeMap<(When, Channel), usize>,
}

/// A provider with the scripted model, and the proxy in front of it.
pub struct Stand<'d> {
    pub dialect: &'d dyn Dialect,
    pub hunt: Shared,
    provider: Provider,
    proxy: Option<Served>,
    state: TempDir,
    files: TempDir,
    sections: String,
}

impl<'d> Stand<'d> {
    async fn new(dialect: &'d dyn Dialect, way: Way, dice: &mut Dice) -> Self {
        let hunt = Shared::default();
        let provider = Provider::start(provider(&hunt)).await.unwrap();
        provider.set_limit(way.limit());
        let (state, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let sections = way.sections(files.path().to_str().unwrap(), way.page_chars(dice));
        let mut stand = Self { dialect, hunt, provider, proxy: None, state, files, sections };
        stand.start();
        stand
    }

    pub fn proxy(&self) -> &Served {
        self.proxy.as_ref().unwrap()
    }

    pub fn folder(&self) -> &Path {
        self.files.path()
    }

    fn start(&mut self) {
        let store = open(&format!("sqlite://{}", self.state.path().join("state.db").display()));
        let config = parsed(&self.provider.base_url(), &self.sections);
        // This reads more in a second than anybody's share.
        let shares = Shares { each: u32::MAX, all: u32::MAX };
        self.proxy = Some(over(config, Arc::clone(&store), |proxy| {
            proxy.reading = Some(Arc::new(reading::Reading::with(store, Arc::clone(&proxy.budget), shares)));
        }));
    }

    async fn restart(&mut self) {
        let proxy = self.proxy.take().unwrap();
        proxy.stop();
        tokio::task::spawn_blocking(move || proxy.join()).await.unwrap();
        self.start();
    }

    /// A limit that the last prompt filled.
    fn just_taken(&self) -> Limit {
        let taken = attempts(&self.provider).into_iter().rfind(|exchange| exchange.verdict == Verdict::Accepted);
        Limit { input: Some(taken.unwrap().usage.prompt), total: None }
    }

    /// Sends a body: its actions, and what the provider took in its place.
    async fn turn(&self, body: &Value) -> (Vec<String>, String) {
        let answer = self.dialect.ask(self.proxy().proxy_addr, "k", body).await;
        self.dialect.read(&answer);
        let taken = attempts(&self.provider).into_iter().rfind(|exchange| exchange.verdict == Verdict::Accepted);
        let actions = answer.actions().into_iter().map(str::to_owned).collect();
        (actions, String::from_utf8(taken.unwrap().body.to_vec()).unwrap())
    }
}

/// Plays the conversation, then looks for every needle that is gone.
pub async fn run(dialect: &dyn Dialect, way: Way, seed: u64) -> Found {
    let mut dice = Dice::new(seed);
    let mut stand = Stand::new(dialect, way, &mut dice).await;
    let history = History::generated(dialect, seed, way.sizes());
    let stream = seed.is_multiple_of(2) || way == Way::Everything;
    let (mut compactions, mut all) = (0, BTreeSet::new());
    for count in &history.asked {
        // Once there is something to lose, the provider takes no longer what it took before.
        let squeezed = way == Way::Everything && compactions >= 2 && !all.contains("recovered");
        stand.provider.set_limit(if squeezed { stand.just_taken() } else { way.limit() });
        let (actions, _) = stand.turn(&history.body(dialect, *count, stream)).await;
        compactions += usize::from(actions.iter().any(|action| action == "summarized" || action == "folded"));
        all.extend(actions);
    }
    stand.provider.set_limit(way.limit());
    assert!(compactions >= way.compactions(), "{dialect:?} {seed}: {compactions} compactions");
    assert!(way.actions().iter().all(|action| all.contains(*action)), "{dialect:?} {seed}: {all:?}");
    let body = history.body(dialect, *history.asked.last().unwrap(), stream);
    let (_, before) = stand.turn(&body).await;
    let mut search = Search { way, seed, history: &history, body: &body, found: Found::default() };
    search.look(&stand, &before, When::AtOnce).await;
    // Longer histories were sent meanwhile, and what they activated may reach back into this one.
    stand.turn(&body).await;
    let (_, before) = stand.turn(&body).await;
    stand.restart().await;
    let (_, after) = stand.turn(&body).await;
    if after != before {
        search.miss((&stand, When::AfterRestart), None, None, format!("another body: {}", parting(&before, &after)));
    }
    search.look(&stand, &after, When::AfterRestart).await;
    assert_eq!(stand.provider.violations(), [], "{dialect:?} {way:?} {seed}");
    search.found
}

struct Search<'h> {
    way: Way,
    seed: u64,
    history: &'h History,
    body: &'h Value,
    found: Found,
}

impl Search<'_> {
    /// Reads every text that `seen` points to, on every channel.
    async fn look(&mut self, stand: &Stand<'_>, seen: &str, when: When) {
        let history = self.history;
        let gone: Vec<&Needle> = history.needles.iter().filter(|needle| !seen.contains(&needle.mark)).collect();
        if when == When::AtOnce {
            self.found.removed += gone.len();
        }
        let raw = raw_items(stand.dialect, self.body);
        let mut texts: Vec<(Channel, String)> = Vec::new();
        let (mut left, mut known) = (ids(seen), BTreeSet::new());
        while !left.is_empty() {
            let mut unseen = Vec::new();
            for (nth, id) in left.iter().enumerate() {
                let (whole, read) = self.read((stand, when), (nth, id), &gone).await;
                for (channel, text) in read {
                    if text.as_ref().is_err_and(|why| why.contains(UNKNOWN)) {
                        unseen.push((channel, id.clone()));
                        continue;
                    }
                    *self.found.read.entry((when, channel)).or_default() += 1;
                    self.judge((stand, when), (channel, id), &whole, &text);
                    texts.extend(text.ok().map(|text| (channel, text)));
                }
            }
            known.extend(left);
            left = self.pointed_to_since((stand, when), unseen).await;
            left.retain(|id| !known.contains(id));
        }
        for needle in gone {
            for channel in [Channel::Pattern, Channel::Mcp, Channel::File, Channel::Url] {
                let mut of = texts.iter().filter(|(by, _)| *by == channel).map(|(_, text)| text);
                if !of.any(|text| holds(text, needle, &raw)) {
                    self.miss((stand, when), Some(channel), Some(needle.place), needle.mark.clone());
                }
            }
        }
    }

    /// Reads one text on every channel: itself, and what each said.
    async fn read(
        &self,
        (stand, when): (&Stand<'_>, When),
        (nth, id): (usize, &str),
        gone: &[&Needle],
    ) -> (String, Vec<(Channel, Text)>) {
        let whole = stand.by_url(id).await;
        let known = whole.clone().unwrap_or_default();
        let mut read = vec![
            (Channel::Mcp, stand.by_mcp(id).await),
            (Channel::File, by_file(stand.folder(), id)),
            (Channel::Url, whole),
        ];
        // Every third text is read whole by the model itself, every third in pages of a few lines.
        if nth.is_multiple_of(3) {
            read.push((Channel::Tool, stand.by_tool(self.body, Reading::of(id)).await));
        }
        if nth % 3 == usize::from(when == When::AtOnce) {
            let reading = Reading::by_lines(id, known.lines().count() / 3 + 1);
            read.push((Channel::Lines, stand.by_tool(self.body, reading).await));
        }
        let marks = gone.iter().map(|needle| &needle.mark).filter(|mark| known.contains(*mark)).cloned();
        let marks: Vec<String> = marks.collect();
        match stand.by_pattern(self.body, id, &marks).await {
            Ok(_) if marks.is_empty() => {}
            Ok(missing) if missing.is_empty() => read.push((Channel::Pattern, Ok(known.clone()))),
            Ok(missing) => read.push((Channel::Pattern, Err(format!("not found by pattern: {missing:?}")))),
            Err(why) => read.push((Channel::Pattern, Err(why))),
        }
        (known, read)
    }

    /// Longer histories were sent meanwhile. What they activated may have taken notices out of the body, and the model
    /// reads only what it is told of: what it is told of now. A text of which it is still told must have been read.
    async fn pointed_to_since(
        &mut self,
        (stand, when): (&Stand<'_>, When),
        unseen: Vec<(Channel, String)>,
    ) -> Vec<String> {
        if unseen.is_empty() {
            return Vec::new();
        }
        let (_, now) = stand.turn(self.body).await;
        let shown = ids(&now);
        for (channel, id) in unseen.into_iter().filter(|(_, id)| shown.contains(id)) {
            self.miss((stand, when), Some(channel), None, format!("{id} is there and was not read"));
        }
        shown
    }

    /// A text must be there on each channel, and the same.
    fn judge(&mut self, (stand, when): (&Stand<'_>, When), (channel, id): (Channel, &str), known: &str, text: &Text) {
        match text {
            Err(why) => self.miss((stand, when), Some(channel), None, format!("{id}: {why}")),
            Ok(text) if text != known => {
                let what = format!("{id}: another text: {}", parting(known, text));
                self.miss((stand, when), Some(channel), None, what);
            }
            Ok(_) => {}
        }
    }

    fn miss(
        &mut self,
        (stand, when): (&Stand<'_>, When),
        channel: Option<Channel>,
        place: Option<Place>,
        what: String,
    ) {
        let (dialect, way, seed) = (format!("{:?}", stand.dialect), self.way, self.seed);
        self.found.missed.push(Missed { dialect, way, seed, when, channel, place, what });
    }
}

/// The items of a body as the client wrote them.
fn raw_items(dialect: &dyn Dialect, body: &Value) -> Vec<String> {
    let bytes = dialect.bytes(body);
    let fields: std::collections::BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&bytes).unwrap();
    let items: Vec<Box<RawValue>> = serde_json::from_str(fields[dialect.array()].get()).unwrap();
    items.into_iter().map(|item| item.get().to_owned()).collect()
}

/// Whether a text that was read back is the needle's own, whole, or has its message, whole.
fn holds(text: &str, needle: &Needle, raw: &[String]) -> bool {
    let own = needle.texts.iter().any(|own| own.contains(&needle.mark) && own == text);
    own || needle.texts.join("\n") == text || text.lines().any(|line| line == raw[needle.item])
}

/// Where two texts part.
fn parting(one: &str, other: &str) -> String {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let from = |text: &str| text.chars().skip(same.saturating_sub(40)).take(160).collect::<String>();
    format!(
        "of {} and {} characters {same} are the same: {:?} | {:?}",
        one.chars().count(),
        other.chars().count(),
        from(one),
        from(other)
    )
}
