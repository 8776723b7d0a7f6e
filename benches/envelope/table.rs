//! What was measured, held against the limits, as one table.

use std::collections::BTreeMap;

/// Where a figure was taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The upstream itself, without a proxy.
    Direct,
    Floor,
    Sharded,
    /// compactproxy.
    Ours,
}

pub const TARGETS: [Target; 4] = [Target::Direct, Target::Floor, Target::Sharded, Target::Ours];

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Floor => "floor",
            Self::Sharded => "sharded",
            Self::Ours => "compactproxy",
        }
    }
}

/// What a figure of compactproxy's may be at most.
#[derive(Clone, Copy)]
pub enum Limit {
    /// So many times the target's.
    Times(f64, Target),
    /// So much more than the target's.
    Over(f64, Target),
    /// This much.
    Most(f64),
}

/// A row of the table.
pub struct Row {
    pub metric: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub limit: Limit,
}

/// One figure a round for each metric and target; the rounds pair up by position.
#[derive(Default)]
pub struct Figures {
    rounds: BTreeMap<(&'static str, Target), Vec<f64>>,
    notes: BTreeMap<&'static str, String>,
    failures: BTreeMap<(&'static str, Target), String>,
}

impl Figures {
    pub fn add(&mut self, metric: &'static str, target: Target, figure: f64) {
        self.rounds.entry((metric, target)).or_default().push(figure);
    }

    /// Replaces the metric's remark.
    pub fn note(&mut self, metric: &'static str, note: String) {
        self.notes.insert(metric, note);
    }

    /// Something went wrong with this metric: its row does not pass.
    pub fn fail(&mut self, metric: &'static str, target: Target, problem: String) {
        self.failures.entry((metric, target)).or_insert(problem);
    }

    /// The median over the rounds.
    pub fn median(&self, metric: &'static str, target: Target) -> Option<f64> {
        median(self.rounds.get(&(metric, target))?.clone())
    }

    /// The median over the rounds of `relate(ours, other's)`: a noisy spell hits both figures of a round.
    fn paired(&self, metric: &'static str, other: Target, relate: fn(f64, f64) -> f64) -> Option<f64> {
        let ours = self.rounds.get(&(metric, Target::Ours))?;
        let others = self.rounds.get(&(metric, other))?;
        median(ours.iter().zip(others).map(|(ours, other)| relate(*ours, *other)).collect())
    }

    /// The verdict's figure and whether it keeps the limit.
    fn judge(&self, row: &Row) -> Option<(f64, bool)> {
        let (figure, most) = match row.limit {
            Limit::Times(most, other) => (self.paired(row.metric, other, |ours, other| ours / other)?, most),
            Limit::Over(most, other) => (self.paired(row.metric, other, |ours, other| ours - other)?, most),
            Limit::Most(most) => (self.median(row.metric, Target::Ours)?, most),
        };
        Some((figure, figure <= most))
    }

    /// Prints the rows that were measured. `true`: every one was judged and keeps its limit.
    #[expect(clippy::print_stdout, reason = "the table is what this program is for")]
    fn print(&self, api: &str, rows: &[Row]) -> bool {
        let mut all = true;
        for row in rows {
            let judged = self.judge(row);
            let failed = TARGETS.iter().any(|target| self.failures.contains_key(&(row.metric, *target)));
            if judged.is_none() && !TARGETS.iter().any(|target| self.median(row.metric, *target).is_some()) && !failed {
                continue;
            }
            let verdict = match judged {
                _ if failed => "FAILED",
                None => "not measured",
                Some((_, true)) => "ok",
                Some((_, false)) => "OVER",
            };
            all &= verdict == "ok";
            let [direct, floor, sharded, ours] = TARGETS.map(|target| cell(self.median(row.metric, target)));
            let note = self.notes.get(row.metric).map(|note| format!("  ({note})")).unwrap_or_default();
            println!(
                "{api:<11}{:<45}{:>5}{direct:>9}{floor:>9}{sharded:>9}{ours:>9}  {:<20}{:<16}{verdict}{note}",
                row.what,
                row.unit,
                relation(row.limit, judged.map(|(figure, _)| figure)),
                bound(row.limit),
            );
        }
        all
    }
}

/// Prints one table of what was measured in each API, then what failed. `true`: every row was judged and keeps its
/// limit.
#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
pub fn print(measured: &[(&str, Figures)], rows: &[Row]) -> bool {
    println!(
        "{:<11}{:<45}{:>5}{:>9}{:>9}{:>9}{:>9}  {:<20}{:<16}verdict",
        "", "", "", "direct", "floor", "sharded", "ours", "ours", "limit"
    );
    let mut all = true;
    for (api, figures) in measured {
        all &= figures.print(api, rows);
    }
    for (api, figures) in measured {
        for ((metric, target), problem) in &figures.failures {
            println!("{api}, {metric} through {}: {problem}", target.name());
        }
    }
    all
}

fn cell(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".into(), number)
}

fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

fn relation(limit: Limit, figure: Option<f64>) -> String {
    match (limit, figure) {
        (_, None) => "-".into(),
        (Limit::Times(_, other), Some(figure)) => format!("{figure:.2} x {}", other.name()),
        (Limit::Over(_, other), Some(figure)) => format!("{} + {}", other.name(), number(figure)),
        (Limit::Most(_), Some(figure)) => number(figure),
    }
}

fn bound(limit: Limit) -> String {
    match limit {
        Limit::Times(most, _) => format!("<= {most} x"),
        Limit::Over(most, _) => format!("<= + {most}"),
        Limit::Most(most) => format!("<= {most}"),
    }
}

/// `None` without a figure.
pub fn median(figures: Vec<f64>) -> Option<f64> {
    quantile(figures, 0.5)
}

/// The figure at `share` (0 to 1) of the sorted figures, those that are no number left out.
pub fn quantile(mut figures: Vec<f64>, share: f64) -> Option<f64> {
    figures.retain(|figure| !figure.is_nan());
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    figures.get((last as f64 * share).round() as usize).copied()
}
