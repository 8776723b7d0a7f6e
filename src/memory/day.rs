//! Days and moments of the calendar, in UTC.

use std::fmt;
use std::str::FromStr;

const SECONDS: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;
/// Days of four hundred years.
const ERA: i64 = 146_097;

/// A day from 0000-01-01 to 9999-12-31 of the Gregorian calendar, shown as `YYYY-MM-DD`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

/// Not a day written as `YYYY-MM-DD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a day is written YYYY-MM-DD")]
pub struct NoDay;

impl Day {
    /// The day of a moment (unix seconds); what is outside the calendar is its first or last day.
    pub fn of(moment: i64) -> Self {
        // Years are counted from March on, so that a leap day is the last of its year.
        let days = moment.div_euclid(SECONDS).saturating_add(EPOCH);
        let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
        let years = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * years + years / 4 - years / 100);
        let months = (5 * of_year + 2) / 153;
        let day = of_year - (153 * months + 2) / 5 + 1;
        let month = if months < 10 { months + 3 } else { months - 9 };
        let year = era.saturating_mul(400).saturating_add(years) + i64::from(month <= 2);
        match (u16::try_from(year), u8::try_from(month), u8::try_from(day)) {
            (Ok(year @ ..=9_999), Ok(month), Ok(day)) => Self { year, month, day },
            _ if year < 0 => Self { year: 0, month: 1, day: 1 },
            _ => Self { year: 9_999, month: 12, day: 31 },
        }
    }

    /// Its first second; unix seconds.
    pub fn begins(self) -> i64 {
        let (year, month, day) = (i64::from(self.year), i64::from(self.month), i64::from(self.day));
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * month + 2) / 5 + day - 1;
        (era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH) * SECONDS
    }

    /// Its last second; unix seconds.
    pub fn ends(self) -> i64 {
        self.begins() + SECONDS - 1
    }

    fn length_of_month(year: u16, month: u8) -> u8 {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

/// A moment (unix seconds) as `YYYY-MM-DDThh:mm:ssZ`.
pub fn stamp(moment: i64) -> String {
    let second = moment.rem_euclid(SECONDS);
    format!("{}T{:02}:{:02}:{:02}Z", Day::of(moment), second / 3_600, second / 60 % 60, second % 60)
}

/// The moment that [`stamp`] has written.
pub fn stamped(text: &str) -> Option<i64> {
    let (day, time) = text.strip_suffix('Z')?.split_once('T')?;
    let two = |part: &str| part.parse::<u8>().ok().filter(|_| part.len() == 2).map(i64::from);
    let mut parts = time.split(':').map(two);
    let (Some(Some(hours)), Some(Some(minutes)), Some(Some(seconds)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let exists = hours < 24 && minutes < 60 && seconds < 60;
    let begins = day.parse().ok().filter(|_| exists).map(Day::begins)?;
    Some(begins + hours * 3_600 + minutes * 60 + seconds)
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Day {
    type Err = NoDay;

    fn from_str(text: &str) -> Result<Self, NoDay> {
        let mut parts = text.split('-');
        let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NoDay);
        };
        let digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit());
        if !(digits(year, 4) && digits(month, 2) && digits(day, 2)) {
            return Err(NoDay);
        }
        let (Ok(year), Ok(month), Ok(day)) = (year.parse(), month.parse(), day.parse()) else { return Err(NoDay) };
        let exists = (1..=12).contains(&month) && (1..=Self::length_of_month(year, month)).contains(&day);
        if exists { Ok(Self { year, month, day }) } else { Err(NoDay) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_have_their_day() {
        for (moment, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_796_000_000, "2026-11-30T00:53:20Z"),
        ] {
            assert_eq!(stamp(moment), shown);
        }
        assert_eq!(Day::of(i64::MAX).to_string(), "9999-12-31");
        assert_eq!(Day::of(i64::MIN).to_string(), "0000-01-01");
    }

    #[test]
    fn only_stamps_are_moments() {
        assert_eq!(stamped("2026-11-30T00:53:20Z"), Some(1_796_000_000));
        for text in ["2026-11-30T00:53:20", "2026-11-30T24:00:00Z", "2026-11-30T1:00:00Z", "2026-02-30T00:00:00Z", "Z"]
        {
            assert_eq!(stamped(text), None, "{text}");
        }
    }

    #[test]
    fn only_days_that_exist_are_days() {
        for text in ["2026-02-29", "2026-13-01", "2026-00-10", "2026-04-31", "2026-1-1", "2026-11-30 ", "+026-11-30"] {
            assert_eq!(text.parse::<Day>(), Err(NoDay), "{text}");
        }
        for text in ["２０２６-11-30", "2026–11–30", "2026-11-30-", "", "2026-11-3０"] {
            assert_eq!(text.parse::<Day>(), Err(NoDay), "{text}");
        }
        assert!("2024-02-29".parse::<Day>().is_ok() && "2000-02-29".parse::<Day>().is_ok());
        assert!("1900-02-29".parse::<Day>().is_err());
    }

    proptest! {
        #[test]
        fn a_day_reads_back_and_the_next_one_follows(moment in 0_i64..250_000_000_000) {
            let day = Day::of(moment);
            prop_assert_eq!(day.to_string().parse(), Ok(day));
            prop_assert!(Day::of(moment + SECONDS) > day);
            prop_assert!(day.begins() <= moment && moment <= day.ends());
            prop_assert_eq!(stamped(&stamp(moment)), Some(moment));
        }
    }
}
