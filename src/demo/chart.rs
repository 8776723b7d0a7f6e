//! A small column chart for the terminal: what would have been sent, what was sent, the window.

use std::env;
use std::io::{self, IsTerminal};

/// Heights in eighths of a row.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Rows of the chart.
const ROWS: usize = 12;
/// Columns of the axis labels.
const AXIS: usize = 8;

/// What is known of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    pub style: Style,
}

/// Whether text may be coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Colour,
}

/// A colour of the chart and the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    Good,
    Bad,
    Dim,
}

impl Screen {
    /// The standard output: its width by `COLUMNS` (else 80), colours only on a terminal and unless
    /// `NO_COLOR` is set.
    pub fn of_stdout() -> Self {
        let width = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(80);
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || !io::stdout().is_terminal();
        Self { width: usize::clamp(width, 40, 200), style: if plain { Style::Plain } else { Style::Colour } }
    }

    pub fn paint(self, paint: Paint, text: &str) -> String {
        let code = match (self.style, paint) {
            (Style::Plain, _) => return text.to_owned(),
            (_, Paint::Good) => "32",
            (_, Paint::Bad) => "31",
            (_, Paint::Dim) => "2",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A column for each entry: `raw` in dots, `sent` solid in front of it, a line at `window`. What is
/// higher than one and a half windows ends in an arrow.
pub fn chart(screen: Screen, raw: &[u64], sent: &[u64], window: u64) -> String {
    let columns = raw.len().max(sent.len()).max(1);
    let wide = (screen.width.saturating_sub(AXIS) / columns).clamp(1, 2);
    let shown = columns.min(screen.width.saturating_sub(AXIS) / wide);
    let top = (window + window / 2).max(1);
    let unit = top.div_ceil((ROWS * 8) as u64).max(1);
    let line = (window / unit / 8) as usize;
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let label = if row == line { format!("{:>5}k ┤", window / 1_000) } else { " ".repeat(AXIS - 1) + "│" };
        text.push_str(&label);
        for column in (0..shown).map(|i| i * columns / shown) {
            let value = |series: &[u64]| series.get(column).copied().unwrap_or_default();
            let cell = cell(row, value(raw) / unit, value(sent) / unit, line);
            let painted = match cell {
                '·' | '┄' | '↑' => screen.paint(Paint::Dim, &cell.to_string().repeat(wide)),
                _ => cell.to_string().repeat(wide),
            };
            text.push_str(&painted);
        }
        text.push('\n');
    }
    text.push_str(&format!("{}└{}\n", " ".repeat(AXIS - 1), "─".repeat(shown * wide)));
    let last = format!("call {columns}");
    let gap = (shown * wide).saturating_sub(1 + last.len());
    text.push_str(&format!("{}1{}{last}\n", " ".repeat(AXIS), " ".repeat(gap)));
    text
}

/// One character; heights in eighths of a row.
fn cell(row: usize, raw: u64, sent: u64, line: usize) -> char {
    let floor = (row * 8) as u64;
    if sent > floor {
        return BLOCKS.get((sent - floor).min(8) as usize).copied().unwrap_or('█');
    }
    match raw > floor {
        true if row == ROWS - 1 => '↑',
        true => '·',
        false if row == line => '┄',
        false => ' ',
    }
}

#[cfg(test)]
#[path = "tests/chart.rs"]
mod tests;
