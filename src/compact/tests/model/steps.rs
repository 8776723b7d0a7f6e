//! What may happen in a session, at random.

use proptest::prelude::*;

/// What happens next: to the history of the agent that is at work, or to the world around it.
#[derive(Clone, Debug)]
pub enum Step {
    /// Calls made in parallel, and their results.
    Tools(Vec<CallSpec>),
    /// The assistant ends its turn and the user says something.
    Say(Words),
    /// A system message in mid-conversation, then the user's words.
    Reminder(Words),
    /// The latest list of what is to be done.
    Todo,
    /// Plan mode, work in the background, or the user's refusal.
    State(usize),
    /// The same request once more.
    Retry,
    /// An old request once more; the history stays.
    Peek(usize),
    /// Back to an old request; the history goes on from there.
    Rewind(usize),
    /// What the provider's own tools did, and things of which only some servers know.
    Hosted(usize),
    /// The provider compacts the history by itself.
    Compacted,
    /// The same history once more, part of it out of sight or to be compacted by the provider.
    Aside(usize),
    /// A user message is changed in place.
    Edit(usize),
    /// The other agent is at work from here on.
    Switch,
    Configure(usize),
    /// The process ends and comes back.
    Restart,
    /// The memory of what went whole is lost.
    Forget,
    /// The store's file is deleted.
    DeleteStore,
    /// The next commits fail.
    LoseWrites(usize),
}

#[derive(Clone, Debug)]
pub struct CallSpec {
    pub tool: usize,
    /// In which of the API's forms the call is made.
    pub family: usize,
    pub arguments: Shape,
    pub result: Shape,
    /// The id was used for another call before.
    pub reused: bool,
}

/// A text's form and its length in characters.
#[derive(Clone, Debug)]
pub struct Shape {
    pub form: usize,
    pub chars: usize,
}

#[derive(Clone, Debug)]
pub enum Words {
    Rule,
    Text(usize),
    Picture(usize),
    Parts(usize),
}

impl Step {
    /// Whether a request is sent.
    pub fn sends(&self) -> bool {
        use Step::{Configure, DeleteStore, Forget, LoseWrites, Restart, Switch};
        !matches!(self, Switch | Configure(_) | Restart | Forget | DeleteStore | LoseWrites(_))
    }
}

impl CallSpec {
    pub fn small() -> Self {
        let shape = Shape { form: 1, chars: 40 };
        Self { tool: 0, family: 11, arguments: shape.clone(), result: shape, reused: false }
    }
}

fn chars() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0_usize..200, 4 => 200_usize..2_500, 2 => 2_500_usize..7_000, 1 => 7_000_usize..25_000]
}

fn shape() -> impl Strategy<Value = Shape> {
    (0_usize..12, chars()).prop_map(|(form, chars)| Shape { form, chars })
}

fn call() -> impl Strategy<Value = CallSpec> {
    let reused = prop::bool::weighted(0.2);
    (0_usize..6, 0_usize..24, shape(), shape(), reused).prop_map(|(tool, family, arguments, result, reused)| CallSpec {
        tool,
        family,
        arguments,
        result,
        reused,
    })
}

fn words() -> impl Strategy<Value = Words> {
    prop_oneof![
        4 => Just(Words::Rule),
        2 => (0_usize..1_500).prop_map(Words::Text),
        1 => (0_usize..300).prop_map(Words::Picture),
        1 => (0_usize..300).prop_map(Words::Parts),
        1 => (3_000_usize..12_000).prop_map(Words::Text),
    ]
}

/// Steps that only make a history longer.
pub fn growth() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => prop::collection::vec(call(), 1..4).prop_map(Step::Tools),
        3 => words().prop_map(Step::Say),
        1 => Just(Step::Todo),
        1 => (0_usize..4).prop_map(Step::State),
        1 => (0_usize..8).prop_map(Step::Hosted),
    ]
}

/// Everything that may happen.
pub fn anything() -> impl Strategy<Value = Step> {
    prop_oneof![
        24 => growth(),
        1 => words().prop_map(Step::Reminder),
        2 => Just(Step::Retry),
        1 => (0_usize..8).prop_map(Step::Peek),
        1 => (0_usize..8).prop_map(Step::Rewind),
        1 => (0_usize..4).prop_map(Step::Edit),
        1 => Just(Step::Compacted),
        2 => (0_usize..6).prop_map(Step::Aside),
        1 => Just(Step::Switch),
        1 => (0_usize..64).prop_map(Step::Configure),
        1 => Just(Step::Restart),
        1 => Just(Step::Forget),
        1 => Just(Step::DeleteStore),
        1 => (1_usize..4).prop_map(Step::LoseWrites),
    ]
}
