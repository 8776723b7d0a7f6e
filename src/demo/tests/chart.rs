use super::*;

fn plain(width: usize) -> Screen {
    Screen { width, style: Style::Plain }
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let raw: Vec<u64> = (0..200).map(|i| i * 1_000).collect();
    let sent: Vec<u64> = (0..200).map(|i| i * 300).collect();
    for width in [40, 80, 160] {
        let text = chart(plain(width), &raw, &sent, 65_536);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= width, "{text}");
    }
}

#[test]
fn heights_follow_the_numbers() {
    let text = chart(plain(80), &[65_536, 200_000], &[32_768, 65_536], 65_536);
    let column =
        |i: usize| -> String { text.lines().take(ROWS).map(|line| line.chars().nth(AXIS + i * 2).unwrap()).collect() };
    assert_eq!(column(0).matches('█').count(), 4);
    assert_eq!(column(1).matches('█').count(), 8);
    assert_eq!(column(0).matches('·').count(), 4);
    assert_eq!(column(1).chars().next(), Some('↑'));
}

#[test]
fn colours_only_where_allowed() {
    let text = chart(plain(80), &[1, 2], &[1, 2], 10);
    assert!(!text.contains('\x1b'));
    let colourful = Screen { width: 80, style: Style::Colour };
    assert!(chart(colourful, &[100, 200], &[1, 2], 10).contains('\x1b'));
    assert_eq!(colourful.paint(Paint::Good, "ok"), "\x1b[32mok\x1b[0m");
}

#[test]
fn nothing_to_show_is_no_problem() {
    assert!(chart(plain(40), &[], &[], 0).contains("call"));
}
