//! The scripted model: it reads removed texts back, one a turn, with what it is told in the conversation alone.

use std::sync::{Arc, Mutex};

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::Settings;
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Reply};
use serde_json::{Value, json};

use super::pages::Reading;
use crate::support::recall::result;

/// What the model is after, and what came of it.
#[derive(Debug, Default)]
pub struct Hunt {
    pub wanted: Option<Wanted>,
    calls: usize,
}

/// One text, and how the model goes about it.
#[derive(Debug)]
pub enum Wanted {
    /// Page by page.
    Whole(Reading),
    /// By these patterns, all at once; what was found.
    Marks {
        id: String,
        marks: Vec<String>,
        found: Option<Vec<String>>,
    },
    Failed(String),
}

pub type Shared = Arc<Mutex<Hunt>>;

impl Wanted {
    pub fn is_over(&self) -> bool {
        match self {
            Self::Whole(reading) => reading.is_done,
            Self::Marks { found, .. } => found.is_some(),
            Self::Failed(_) => true,
        }
    }

    /// The arguments of the next calls.
    fn calls(&self) -> Vec<Value> {
        match self {
            Self::Whole(reading) => vec![reading.arguments()],
            Self::Marks { id, marks, .. } => marks.iter().map(|mark| json!({"id": id, "pattern": mark})).collect(),
            Self::Failed(_) => Vec::new(),
        }
    }

    /// Takes what the tool said.
    fn take(&mut self, said: Vec<String>) {
        match self {
            Self::Whole(reading) => {
                if let Err(why) = reading.take(&said[0]) {
                    *self = Self::Failed(why);
                }
            }
            Self::Marks { found, .. } => *found = Some(said),
            Self::Failed(_) => {}
        }
    }
}

/// A provider with this model; it writes summaries, too.
pub fn provider(hunt: &Shared) -> Settings {
    let hunt = Arc::clone(hunt);
    let behaviour = Behaviour::new(move |request| hunt.lock().unwrap().answer(request)).with_summaries();
    Settings { behaviour, ..Settings::default() }
}

impl Hunt {
    fn answer(&mut self, request: &ModelRequest) -> Reply {
        let Some(wanted) = &mut self.wanted else { return Reply::Say(Answer::text("Done.")) };
        let said: Vec<String> =
            wanted.calls().iter().enumerate().filter_map(|(n, _)| result(request, &called(self.calls, n))).collect();
        if !said.is_empty() && said.len() == wanted.calls().len() {
            wanted.take(said);
        }
        if wanted.is_over() {
            return Reply::Say(Answer::text("Read."));
        }
        let names = request.tools().iter().flat_map(|tool| [&tool["function"]["name"], &tool["name"]]);
        let Some(name) = names.filter_map(Value::as_str).find(|name| name.ends_with("read_evicted")) else {
            *wanted = Wanted::Failed("the tool is not offered".to_owned());
            return Reply::Say(Answer::text("Nothing."));
        };
        self.calls += 1;
        let call = |(n, arguments): (usize, &Value)| ToolCall {
            id: called(self.calls, n),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        Reply::Say(Answer { calls: wanted.calls().iter().enumerate().map(call).collect(), ..Answer::default() })
    }
}

fn called(round: usize, n: usize) -> String {
    format!("hunt_{round}_{n}")
}
