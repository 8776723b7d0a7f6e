//! Sessions that broke a law once, as the properties found them.

use super::history::{Kind, Manner, Marks, Signed};
use super::session::Session;
use super::setup::{Knows, Setup};
use super::steps::{CallSpec, Shape, Step, Words};
use super::terms::{DropBlock, Tells, Terms};
use super::turn::Turn;
use super::{Level, rare};
use crate::config::SignedThinking;

/// A call of a tool in one of its forms; its arguments and result by their form and characters.
fn call((tool, family): (usize, usize), arguments: (usize, usize), result: (usize, usize)) -> CallSpec {
    let shape = |(form, chars)| Shape { form, chars };
    CallSpec { tool, family, arguments: shape(arguments), result: shape(result), reused: false }
}

fn setup() -> Setup {
    Setup {
        strategies: 0,
        window: 5_000,
        knows: Knows::Window,
        provider: (1.0, Tells::Numbers),
        terms: Terms::default(),
        delay: 0,
        kinds: [Kind::Tools, Kind::Blocks],
        manner: Manner { output: None, marks: Marks::Short, signed: Signed::Alone },
        signed_thinking: SignedThinking::Kept,
    }
}

/// What became of each step that sends something.
fn turns(setup: &Setup, steps: &[Step], mut look: impl FnMut(&Turn)) {
    let mut session = Session::new(setup);
    for step in steps {
        session.step(step);
        session.last[session.at_work].as_ref().into_iter().for_each(&mut look);
    }
}

/// A fold was condemned together with the provider's option behind it. The request that it was made for overflows again:
/// there is no other way to fold it, and nothing is sent twice.
#[test]
fn what_was_refused_is_not_proposed_again() {
    let terms = Terms { option: DropBlock::Unknown, ..Terms::default() };
    let setup = Setup { terms, signed_thinking: SignedThinking::Dropped, ..setup() };
    let small = || Step::Tools(vec![call((0, 0), (0, 0), (0, 0))]);
    let large = Step::Tools(vec![call((0, 0), (2, 13_070), (0, 0))]);
    let (mut recovered, mut refused, mut last) = (0, 0, None);
    turns(&setup, &[Step::Switch, large, small(), small(), Step::Compacted, Step::Peek(3)], |turn| {
        recovered += usize::from(turn.recovery.as_ref().is_some_and(|recovery| recovery.rung.is_some()));
        refused += usize::from(turn.original);
        last = Some((turn.accepted, turn.sent == turn.raw, turn.known.refused.clone()));
    });
    assert_eq!((recovered, refused), (1, 1));
    assert_eq!(last, Some((false, true, vec![(3, Level::Fold)])));
}

/// A trim that speaks for all of a history with signed thinking leaves the summary of the same history its place, also
/// where it is laid over a fold.
#[test]
fn a_summary_takes_the_place_of_a_trim_of_the_same_history() {
    let kinds = [Kind::Blocks, Kind::Tools];
    let setup = Setup { strategies: 16, window: 8_858, provider: (1.4, Tells::Numbers), kinds, ..setup() };
    let reused = |call| CallSpec { reused: true, ..call };
    let steps = [
        Step::Tools(vec![call((0, 0), (1, 0), (0, 0))]),
        Step::Tools(vec![call((0, 0), (0, 0), (0, 0)), call((0, 0), (1, 0), (0, 0))]),
        Step::Tools(vec![call((0, 0), (3, 924), (2, 200))]),
        Step::Tools(vec![call((0, 0), (0, 0), (10, 0)), call((0, 0), (2, 3_839), (0, 0))]),
        Step::Tools(vec![call((0, 0), (0, 2), (11, 112))]),
        Step::Say(Words::Text(483)),
        Step::Say(Words::Text(125)),
        Step::Say(Words::Text(790)),
        Step::Tools(vec![call((2, 10), (3, 3_021), (1, 1_836))]),
        Step::Say(Words::Rule),
        Step::Tools(vec![
            call((1, 21), (1, 101), (3, 23)),
            call((1, 10), (4, 1_709), (5, 199)),
            reused(call((0, 14), (9, 107), (7, 3_278))),
        ]),
        Step::Say(Words::Text(9_780)),
    ];
    rare(&mut Session::new(&setup), &steps);
    let mut last = None;
    turns(&setup, &steps, |turn| {
        last = Some((turn.ways(), turn.known.active.as_deref().map(|active| (active.level, active.covers))));
    });
    let (ways, active) = last.unwrap();
    assert!(ways.contains(&"truncated") && ways.contains(&"now"), "{ways:?}");
    assert_eq!(active, Some((Level::Summary, 30)));
}
