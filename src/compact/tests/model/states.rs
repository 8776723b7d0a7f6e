//! What is pinned of a history: lists, plan mode, work in the background, the user's refusals.

use super::history::{Agent, Kind, Message, quoted};
use super::steps::CallSpec;

/// What a call says of the state, by words that stand in no other call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Todo(String),
    Plan(String),
    Runs(String),
    /// What ran has ended.
    Ended,
    Refused(String),
}

/// The words of the states in force behind these messages.
pub fn in_force(messages: &[Message]) -> Vec<&str> {
    let (mut todo, mut plan, mut runs, mut refused) = (None, None, None, None);
    for state in messages.iter().filter_map(|message| message.state.as_ref()) {
        match state {
            State::Todo(words) => todo = Some(words.as_str()),
            State::Plan(words) => plan = Some(words.as_str()),
            State::Runs(words) => runs = Some(words.as_str()),
            State::Ended => runs = None,
            State::Refused(words) => refused = Some(words.as_str()),
        }
    }
    [todo, plan, runs, refused].into_iter().flatten().collect()
}

impl Agent {
    pub fn todo(&mut self) {
        let entry = format!("todo number {:08}", self.next());
        let arguments = format!(r#"{{"todos":[{{"content":"{entry}","status":"in_progress","id":"1"}}]}}"#);
        self.tells(State::Todo(entry), ("todo_write", &arguments), "ok");
    }

    /// Enters plan mode, leaves it with a plan, begins or ends something in the background, or is refused.
    pub fn state(&mut self, which: usize) {
        let n = self.next();
        let runs = self.messages.iter().rev().find_map(|message| match &message.state {
            Some(State::Runs(id)) => Some(Some(id.clone())),
            Some(State::Ended) => Some(None),
            _ => None,
        });
        match (which % 4, runs.flatten()) {
            (0, _) => {
                let file = format!("/plans/p{n:08}.md");
                let arguments = format!(r#"{{"plan_file_path":"{file}"}}"#);
                self.tells(State::Plan(file), ("EnterPlanMode", &arguments), "Entered plan mode.");
            }
            (1, _) => {
                let plan = format!("plan number {n:08}");
                let arguments = format!(r#"{{"plan":"{plan}"}}"#);
                self.tells(State::Plan(plan), ("ExitPlanMode", &arguments), "User has approved your plan.");
            }
            (2, None) => {
                let id = format!("bash_{n:08}");
                let answer = format!("Command running in background with ID: {id}");
                let arguments = r#"{"command":"npm run dev","run_in_background":true}"#;
                self.tells(State::Runs(id), ("shell", arguments), &answer);
            }
            (2, Some(id)) => {
                let arguments = format!(r#"{{"shell_id":"{id}"}}"#);
                self.tells(State::Ended, ("KillShell", &arguments), &format!("Successfully killed shell: {id}"));
            }
            _ => {
                let command = format!("rm -rf build{n:08}");
                let arguments = format!(r#"{{"command":"{command}"}}"#);
                let answer = "The user doesn't want to proceed with this tool use. The tool use was rejected.";
                self.tells(State::Refused(command), ("shell", &arguments), answer);
            }
        }
    }

    /// A call by which a state is known, and its answer. Agents that act by text have no such tools.
    fn tells(&mut self, state: State, (tool, arguments): (&str, &str), answer: &str) {
        let (n, answer) = (self.next(), quoted(answer));
        let text = quoted(arguments);
        let (call, result) = match self.kind {
            Kind::Text => return self.observation(&[CallSpec::small()]),
            Kind::Tools => (
                format!(
                    r#"{{"role":"assistant","content":null,"tool_calls":[{{"id":"c{n:08}","type":"function","function":{{"name":"{tool}","arguments":{text}}}}}]}}"#
                ),
                format!(r#"{{"role":"tool","tool_call_id":"c{n:08}","content":{answer}}}"#),
            ),
            Kind::Items => (
                format!(r#"{{"type":"function_call","call_id":"c{n:08}","name":"{tool}","arguments":{text}}}"#),
                format!(r#"{{"type":"function_call_output","call_id":"c{n:08}","output":{answer}}}"#),
            ),
            Kind::Blocks => {
                let thought = self.thought();
                (
                    format!(
                        r#"{{"role":"assistant","content":[{thought}{{"type":"tool_use","id":"toolu_{n:08}","name":"{tool}","input":{arguments}}}]}}"#
                    ),
                    format!(
                        r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{n:08}","content":{answer}}}]}}"#
                    ),
                )
            }
        };
        self.messages.push(Message { state: Some(state), ..Message::plain(call) });
        self.push(result);
    }
}
