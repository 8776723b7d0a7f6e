//! The scripted model: it reads removed texts back, one a turn, with what it is told in the conversation alone.

use std::sync::{Arc, Mutex};

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::provider::Settings;
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Behaviour, Reply};
use serde_json::{Value, json};

use super::pages::Reading;
use crate::support::recall::result;

/// Most pages that the model asks for at once: a small window has no room for more.
const AT_ONCE: usize = 2;

/// What the model is after, and what came of it.
#[derive(Debug, Default)]
pub struct Hunt {
    pub wanted: Option<Wanted>,
    calls: usize,
    /// Requests without the tool, one after the other. The last one of a turn may have none: the model goes on in the next.
    without: usize,
}

/// One text, and how the model goes about it.
#[derive(Debug)]
pub enum Wanted {
    /// Page by page.
    Whole(Reading),
    /// By these patterns, a few at once; what was found of the first of them.
    Marks {
        id: String,
        marks: Vec<String>,
        found: Vec<String>,
        /// Where the search for the next of them goes on: it took too long on a busy machine.
        on: Option<Value>,
    },
    Failed(String),
}

pub type Shared = Arc<Mutex<Hunt>>;

impl Wanted {
    pub fn is_over(&self) -> bool {
        match self {
            Self::Whole(reading) => reading.is_done,
            Self::Marks { marks, found, .. } => found.len() >= marks.len(),
            Self::Failed(_) => true,
        }
    }

    /// The arguments of the next calls.
    fn calls(&self) -> Vec<Value> {
        match self {
            Self::Whole(reading) => vec![reading.arguments()],
            Self::Marks { id, marks, found, on } => {
                let next = marks.iter().skip(found.len()).take(AT_ONCE);
                let mut calls: Vec<Value> = next.map(|mark| json!({"id": id, "pattern": mark})).collect();
                if let (Some(call), Some(Value::Object(place))) = (calls.first_mut(), on) {
                    call.as_object_mut().unwrap().extend(place.clone());
                }
                calls
            }
            Self::Failed(_) => Vec::new(),
        }
    }

    /// Takes what the tool said.
    fn take(&mut self, said: Vec<String>) {
        match self {
            // The turn's last round: the same again in the next.
            Self::Whole(_) if said[0].starts_with("Error: not run, because this turn had too many such calls") => {}
            Self::Whole(reading) => {
                if let Err(why) = reading.take(&said[0]) {
                    *self = Self::Failed(why);
                }
            }
            Self::Marks { marks, found, on, .. } => {
                for said in said {
                    *on = late(&said).filter(|_| !said.contains(marks[found.len()].as_str()));
                    if on.is_some() {
                        break;
                    }
                    found.push(said);
                }
            }
            Self::Failed(_) => {}
        }
    }
}

/// Where a search goes on that took too long.
fn late(said: &str) -> Option<Value> {
    let (_, on) = said.split_once("took too long: go on with a simpler pattern and ")?;
    let place = on.split(']').next()?.split(';').next()?.split(" and ");
    let place = place.map(|argument| argument.split_once('='));
    let place =
        place.map(|argument| argument.map(|(name, value)| (name.to_owned(), value.parse::<u64>().unwrap().into())));
    Some(Value::Object(place.collect::<Option<_>>()?))
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
            self.without += 1;
            if self.without > 1 {
                *wanted = Wanted::Failed("the tool is not offered".to_owned());
            }
            return Reply::Say(Answer::text("Nothing."));
        };
        (self.calls, self.without) = (self.calls + 1, 0);
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
