//! The ways on which texts leave a request.

use compactproxy::demo::window::Limit;

use super::history::{Dice, Sizes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Eviction,
    Truncation,
    Pruning,
    Summary,
    Recovery,
    /// Three compactions, one after the other.
    Chain = 6,
    /// All of them in one conversation.
    Everything = 8,
}

const WINDOW: u64 = 8_000;

impl Way {
    /// The sections of the file, with texts written into `folder` as well.
    pub fn sections(self, folder: &str, page_chars: usize) -> String {
        let evicting = |most: usize| {
            format!(
                "[tool_result_eviction]\nmax_result_chars = {most}\npreview_chars = 150\nworkspace_dir = \"{folder}\"\n\
                 [tools]\npage_chars = {page_chars}\nmax_rounds = 20\n"
            )
        };
        let (small, never) = (evicting(2_000), evicting(100_000));
        let truncating =
            "[truncate_args]\ntrigger_messages = 6\nkeep_messages = 2\nmax_arg_length = 400\nmin_gain_tokens = 1\n";
        let pruning = "[prune]\nprotect_tokens = 1\nmin_gain_tokens = 1\nmax_output_chars = 400\n";
        let window = format!("[compaction]\n[[window]]\nmodel = \"*\"\ninput = {WINDOW}\n");
        match self {
            Self::Eviction => small,
            Self::Truncation => format!("{never}{truncating}"),
            Self::Pruning => format!("{never}{pruning}"),
            Self::Summary | Self::Chain => format!("{never}{window}"),
            Self::Everything => format!("{small}{truncating}{pruning}{window}"),
            Self::Recovery => format!("{never}[compaction]\n"),
        }
    }

    /// Characters of a page: where the window is small, few.
    pub fn page_chars(self, dice: &mut Dice) -> usize {
        match self {
            Self::Eviction | Self::Truncation | Self::Pruning => dice.from(2_000, 8_000),
            _ => dice.from(1_500, 2_500),
        }
    }

    /// Conversations of each dialect.
    pub fn cases(self) -> u64 {
        match self {
            Self::Chain | Self::Everything => 1,
            _ => 2,
        }
    }

    /// What is done to its requests, beside summaries.
    pub fn actions(self) -> &'static [&'static str] {
        match self {
            Self::Everything => &["evicted", "truncated", "pruned", "recovered"],
            _ => &[],
        }
    }

    /// Compactions at least.
    pub fn compactions(self) -> usize {
        match self {
            Self::Chain => 3,
            // Beside recovery's.
            Self::Everything => 4,
            _ => 0,
        }
    }

    /// What the provider takes, where it does not take everything.
    pub fn limit(self) -> Limit {
        match self {
            Self::Recovery => Limit::of(WINDOW),
            _ => Limit::default(),
        }
    }

    pub fn sizes(self) -> Sizes {
        let messages = !matches!(self, Self::Eviction | Self::Truncation | Self::Pruning);
        match self {
            Self::Chain => Sizes { steps: 12, long: (2_200, 3_500), messages },
            // Some results are too long to stay, some are not.
            Self::Everything => Sizes { steps: 16, long: (1_000, 3_500), messages },
            _ => Sizes { steps: 5, long: (2_200, 4_000), messages },
        }
    }
}
