//! What was said, cut into portions that are read one after another: between messages where that is possible. Where a
//! message is cut, its speaker is named again above what follows.

pub const USER: &str = "### user";
pub const MODEL: &str = "### model";
const GOES_ON: &str = " (goes on)";
/// Where a message ends and the next begins.
const BETWEEN: &str = "\n\n### ";

/// The beginning of `text` up to a good place to cut: at most `most` bytes, not much less than it has to be, and at least
/// one character.
pub fn first(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let least = text.chars().next().map_or(0, char::len_utf8);
    let most = (least..=most.max(least)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(least);
    let head = text.get(..most).unwrap_or(text);
    let behind = |found: Option<usize>| found.map(|at| at + 1);
    let places = [head.rfind(BETWEEN), behind(head.rfind('\n')), behind(head.rfind(' '))];
    let good = places.into_iter().flatten().find(|at| *at >= (most / 4).max(1));
    good.and_then(|at| text.get(..at)).unwrap_or(head)
}

/// What follows the first `read` bytes of `text`, to be read on in portions of 100 bytes at least: a shorter one might
/// be the speaker's name alone.
pub fn rest(text: &str, read: usize) -> String {
    let (before, rest) = text.split_at_checked(read).unwrap_or((text, ""));
    let rest = rest.trim_start();
    heading(before, rest) + rest
}

/// `text` in portions of at most `most` bytes.
pub fn portions(text: &str, most: usize) -> Vec<String> {
    let (mut portions, mut rest, mut above) = (Vec::new(), text.trim(), String::new());
    while !rest.is_empty() {
        let portion = first(rest, most.saturating_sub(above.len()));
        rest = rest.get(portion.len()..).unwrap_or_default().trim_start();
        let portion = above + portion.trim_end();
        above = heading(&portion, rest);
        portions.push(portion);
    }
    portions
}

/// The line that `rest` needs above it, where `before` ends within a message.
fn heading(before: &str, rest: &str) -> String {
    let within = rest.lines().next().is_some_and(|line| speaker(line).is_none());
    let speaker = before.lines().rev().find_map(speaker).filter(|_| within);
    speaker.map_or_else(String::new, |speaker| format!("{speaker}{GOES_ON}\n"))
}

fn speaker(line: &str) -> Option<&'static str> {
    let names = |speaker: &&str| line.strip_prefix(*speaker).is_some_and(|rest| rest.is_empty() || rest == GOES_ON);
    [USER, MODEL].into_iter().find(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_stay_whole_where_they_can_and_a_cut_one_has_its_speaker_again() {
        let text = "### user\nI like tea.\n\n### model\nNoted.\n\n### user\nOne two three four five six seven.";
        assert_eq!(
            portions(text, 45),
            ["### user\nI like tea.\n\n### model\nNoted.", "### user\nOne two three four five six seven."]
        );
        assert_eq!(portions(text, 40)[2..], ["### user\nOne two three four five six", "### user (goes on)\nseven."]);
        assert_eq!(rest(text, 20), "### model\nNoted.\n\n### user\nOne two three four five six seven.");
        assert_eq!(rest("### model\nab\ncd", 12), "### model (goes on)\ncd");
        assert_eq!((rest("### user\nab", 11), rest("ab", 9)), (String::new(), String::new()));
    }

    #[test]
    fn a_short_message_before_a_long_one_is_no_portion_by_itself() {
        let text = format!("### user\nHi.\n\n### user\n{}", "部".repeat(1_000));
        let portions = portions(&text, 300);
        assert!(portions.iter().all(|portion| portion.len() <= 300 && portion.len() > 20), "{portions:?}");
    }

    proptest! {
        #[test]
        fn portions_lose_nothing(text in "(### user\n[a-z部 ]{1,30}(\n\n)?){0,9}", most in 30_usize..90) {
            let portions = portions(&text, most);
            prop_assert!(portions.iter().all(|portion| portion.len() <= most && !portion.is_empty()));
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            let read: Vec<String> = portions.iter().map(|portion| portion.replace("### user (goes on)\n", "")).collect();
            prop_assert_eq!(bare(&read.concat()), bare(&text));
        }

        #[test]
        fn reading_on_comes_to_an_end_and_loses_nothing(text in "(### model\n[a-z部 ]{1,30}(\n\n)?){0,9}", most in 100_usize..200) {
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            let (mut read, mut left) = (String::new(), text.clone());
            while !left.is_empty() {
                let portion = first(&left, most).to_owned();
                read += &portion.replace("### model (goes on)\n", "");
                let length = left.len();
                left = rest(&left, portion.len());
                prop_assert!(left.len() < length);
            }
            prop_assert_eq!(bare(&read), bare(&text));
        }
    }
}
