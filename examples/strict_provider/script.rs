//! Answers by a script. What does not follow it is answered as ever; the histories are judged in any case.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use compactproxy::demo::answer::{Answer, ToolCall};
use compactproxy::demo::request::ModelRequest;
use compactproxy::demo::script::{Gate, Reply};
use serde::Deserialize;
use serde_json::Value;

/// Stands in a call's arguments for the id of the first removed text that the request points to.
const REMOVED: &str = "{removed}";
/// What stands before such an id, and its length.
const POINTER: &str = "/_compactproxy/evicted/";
const ID_CHARS: usize = 32;

/// What the model does in each conversation, call by call. Conversations are told apart by the name of their model.
#[derive(Debug, Default, Deserialize)]
pub struct Script(Mutex<HashMap<String, VecDeque<Step>>>);

/// What it does with one call.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "does", rename_all = "lowercase", deny_unknown_fields)]
enum Step {
    /// Of a stream no more than `events`, where they are counted; then nothing, and no end.
    Say {
        says: Says,
        events: Option<usize>,
    },
    /// As many events of a stream, or bytes of another answer, then the connection breaks.
    Break {
        says: Says,
        after: usize,
    },
    Fail {
        status: u16,
        body: Value,
    },
    /// Not even a head.
    Wait,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Says {
    text: Option<String>,
    thoughts: Option<String>,
    calls: Vec<Call>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Script {
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// What the script has for this call: "Done." behind its end. `None`: it does not know the conversation. Where the
    /// answer will not end, the line `waits MODEL` tells that the call is there.
    pub fn reply(&self, request: &ModelRequest) -> Option<Reply> {
        let mut conversations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(step) = conversations.get_mut(request.model())?.pop_front() else {
            return Some(Answer::text("Done.").reply());
        };
        if matches!(step, Step::Wait | Step::Say { events: Some(_), .. }) {
            writeln!(io::stdout(), "waits {}", request.model()).ok();
        }
        Some(step.reply(request))
    }
}

impl Step {
    fn reply(self, request: &ModelRequest) -> Reply {
        match self {
            Self::Say { says, events } => Reply::Say(Answer { pace: events.map(opened), ..says.answer(request) }),
            Self::Break { says, after } => Reply::CutOff { answer: says.answer(request), after },
            Self::Fail { status, body } => {
                let headers = vec![("content-type", "application/json".to_owned())];
                Reply::Raw { status, headers, body: body.to_string().into() }
            }
            Self::Wait => Reply::Late(Gate::new(), Answer::default()),
        }
    }
}

impl Says {
    fn answer(self, request: &ModelRequest) -> Answer {
        let id = removed(&request.body.to_string()).unwrap_or_default();
        let calls = self.calls.into_iter().map(|Call { id: call, name, arguments }| ToolCall {
            id: call,
            name,
            arguments: arguments.replace(REMOVED, &id),
        });
        Answer { text: self.text, reasoning: self.thoughts, calls: calls.collect(), ..Answer::default() }
    }
}

fn opened(events: usize) -> Gate {
    let gate = Gate::new();
    gate.permit(events);
    gate
}

fn removed(body: &str) -> Option<String> {
    let (_, behind) = body.split_once(POINTER)?;
    behind.get(..ID_CHARS).map(str::to_owned)
}
