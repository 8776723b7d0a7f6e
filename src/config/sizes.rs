//! Sizes in bytes and durations as they are written in the file: `64MiB`, `30s`, `30d`.

use std::time::Duration;

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Largest first, so that a size is shown in the largest unit that divides it.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

/// Milliseconds, largest first.
const DURATIONS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A whole number with a unit (`B`, `KB`, `KiB`, … `TiB`), letter case aside.
pub fn parse_size(text: &str) -> Result<ByteSize, String> {
    parse(text, &SIZES).map(ByteSize).ok_or_else(|| "expected a size such as \"64MiB\"".into())
}

/// A whole number with a unit (`ms`, `s`, `m`, `h`, `d`).
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse(text, &DURATIONS).map(Duration::from_millis).ok_or_else(|| "expected a duration such as \"30s\"".into())
}

/// A size in the largest binary unit that divides it; reads back as the same size.
pub fn show_size(size: ByteSize) -> String {
    show(size.0, SIZES.iter().filter(|(unit, _)| unit.contains('i') || *unit == "B"))
}

/// A duration in the largest unit that divides it; reads back as the same duration.
pub fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), DURATIONS.iter())
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.find(|c: char| !c.is_ascii_digit())?)?;
    let (_, factor) = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show<'u>(amount: u64, mut units: impl Iterator<Item = &'u (&'u str, u64)>) -> String {
    let fits = units.find(|(_, factor)| amount.is_multiple_of(*factor) && (amount > 0 || *factor == 1));
    fits.map_or_else(String::new, |(unit, factor)| format!("{}{unit}", amount / factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_of_the_design() {
        assert_eq!(parse_size("64MiB"), Ok(ByteSize(64 << 20)));
        assert_eq!(parse_size("10 gib"), Ok(ByteSize(10 << 30)));
        assert_eq!(parse_size("1kb"), Ok(ByteSize(1000)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_duration("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_no_size() {
        for text in ["", "MiB", "64", "-1MiB", "1.5MiB", "64 Mib b", "99999999999TiB", "６MiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["", "s", "30", "30 seconds", "-3s", "1h30m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn shown_amounts_read_back(amount in prop_oneof![any::<u64>(), 0..10_000u64, (0..1_000u64).prop_map(|n| n << 20)]) {
            prop_assert_eq!(parse_size(&show_size(ByteSize(amount))), Ok(ByteSize(amount)));
            let duration = Duration::from_millis(amount);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
    }
}
