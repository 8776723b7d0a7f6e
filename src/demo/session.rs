//! A coding session as an agent has it: who says what, which tools are called, what they return.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::answer::{Answer, ToolCall};
use super::content::{LONG_LOG, NEEDLE, NEEDLE_BEGINS, green, matches, source, test_log};
use super::reader::{Memory, Sight};
use super::request::ModelRequest;
use super::script::{Behaviour, Reply};

/// What the user asks for once and expects to hold for ever.
pub const RULE: &str = "Never touch anything under migrations/, not even to format it.";

/// A whole session.
#[derive(Debug, Clone)]
pub struct Session {
    pub system: String,
    /// The request's `tools`.
    pub tools: Value,
    /// The first thing the user types.
    pub opening: String,
    /// The model's answers, in order.
    pub steps: Vec<Step>,
}

/// One answer of the model and what comes of it.
#[derive(Debug, Clone)]
pub struct Step {
    pub say: String,
    pub calls: Vec<Planned>,
    /// A line of an earlier result that stands before what the model says.
    pub recalls: Option<Memory<'static>>,
    /// What the user types when the model calls no tool; nothing: the session is over.
    pub then: Option<String>,
}

/// A tool call with the result it will have.
#[derive(Debug, Clone)]
pub struct Planned {
    pub name: &'static str,
    pub arguments: Value,
    pub result: String,
}

impl Session {
    /// The answer that follows `step` earlier ones.
    pub fn answer(&self, step: usize) -> Answer {
        let Some(planned) = self.steps.get(step) else { return Answer::text("All done.") };
        let calls = planned.calls.iter().enumerate().map(|(k, call)| call.call(step, k));
        Answer { text: Some(planned.say.clone()), calls: calls.collect(), ..Answer::default() }
    }

    /// What a tool returns for a call of answer `step`.
    pub fn execute(&self, step: usize, call: &ToolCall) -> String {
        let planned = self.steps.get(step).map(|step| step.calls.as_slice()).unwrap_or_default();
        let planned = planned.iter().enumerate().find(|(k, planned)| planned.call(step, *k) == *call);
        planned.map_or_else(|| format!("error: no such call: {}", call.name), |(_, planned)| planned.result.clone())
    }

    /// The answer to a request. What it repeats of an earlier result the model reads back first where it is not in sight.
    fn reply(&self, request: &ModelRequest) -> Answer {
        let step = request.step().unwrap_or_default();
        let answer = self.answer(step);
        let Some(memory) = self.steps.get(step).and_then(|step| step.recalls) else { return answer };
        let line = match memory.look(request) {
            Sight::Away(call) => return Answer { calls: vec![call], ..Answer::default() },
            Sight::Seen(line) => line,
            Sight::Gone => "that is out of my sight".to_owned(),
        };
        Answer { text: Some(format!("It says: {line}. {}", answer.text.unwrap_or_default())), ..answer }
    }

    /// The session as a provider's behaviour, with summaries when asked for.
    pub fn behaviour(&self) -> Behaviour {
        let session = self.clone();
        Behaviour::new(move |request| Reply::Say(session.reply(request))).with_summaries()
    }

    /// The result that holds [`NEEDLE`].
    pub fn long_log(&self) -> Option<&str> {
        let mut results = self.steps.iter().flat_map(|step| &step.calls).map(|call| call.result.as_str());
        results.find(|result| result.contains(NEEDLE))
    }
}

impl Planned {
    /// The call, `k`th of answer `step`. Its id has nine letters and digits: the strictest servers
    /// take no other.
    fn call(&self, step: usize, k: usize) -> ToolCall {
        let id = format!("st{step:03}c{k:03}");
        ToolCall { id, name: self.name.to_owned(), arguments: self.arguments.to_string() }
    }
}

fn read(path: &str, functions: usize) -> Planned {
    Planned { name: "read_file", arguments: json!({ "path": path }), result: source(path, functions) }
}

fn write(path: &str, functions: usize) -> Planned {
    let content = source(&format!("{path} (new)"), functions);
    let result = format!("wrote {} bytes to {path}", content.len());
    Planned { name: "write_file", arguments: json!({"path": path, "content": content}), result }
}

fn edit(path: &str, old: &str, new: &str) -> Planned {
    let arguments = json!({"path": path, "old_text": old, "new_text": new});
    Planned { name: "edit_file", arguments, result: format!("edited {path}: 1 replacement") }
}

fn grep(pattern: &str, hits: usize) -> Planned {
    Planned { name: "grep", arguments: json!({"pattern": pattern, "path": "src"}), result: matches(pattern, hits) }
}

fn run(command: &str, result: String) -> Planned {
    Planned { name: "execute", arguments: json!({ "command": command }), result }
}

/// The plan with its first `done` entries completed.
fn todos(done: usize) -> Planned {
    let plan = [
        "Find out where a late retry posts twice",
        "Give every posting an idempotency key",
        "Do the same for refunds",
        "Count retries in the metrics",
        "Write the documentation and run everything",
    ];
    let entries = plan.iter().enumerate().map(|(i, text)| {
        let status = match i.cmp(&done) {
            Ordering::Less => "completed",
            Ordering::Equal => "in_progress",
            Ordering::Greater => "pending",
        };
        json!({"content": text, "status": status})
    });
    let arguments = json!({"todos": entries.collect::<Vec<_>>()});
    Planned { name: "write_todos", arguments, result: format!("{done} of {} done", plan.len()) }
}

fn step(say: &str, calls: impl IntoIterator<Item = Planned>) -> Step {
    Step { say: say.to_owned(), calls: calls.into_iter().collect(), recalls: None, then: None }
}

fn reports(say: &str, then: &str) -> Step {
    Step { say: say.to_owned(), calls: Vec::new(), recalls: None, then: (!then.is_empty()).then(|| then.to_owned()) }
}

/// The session of the demo: a settlement service that posts twice when a retry comes late.
pub fn coding_session() -> Session {
    let opening = format!(
        "In harbor, our settlement service, a retry that arrives while the first attempt still runs posts the ledger \
         entry twice. Please find out why and make retries idempotent. {RULE} Run the tests before and after."
    );
    let steps = [finding(), fixing(), refunds(), finishing()].into_iter().flatten().collect();
    Session {
        system: "You are a careful software engineer working in a repository through tools. Keep changes small, \
                 explain what you do in a sentence or two, and run the tests."
            .to_owned(),
        tools: tools(),
        opening,
        steps,
    }
}

fn finding() -> Vec<Step> {
    vec![
        step("I'll begin with a plan.", [todos(0)]),
        step("Where are entries posted?", [grep("post_entry", 70)]),
        step("Two places to look at.", [read("src/settle.rs", 34), read("src/ledger.rs", 36)]),
        step("The retry loop next.", [read("src/retry.rs", 34)]),
        step("And how the tests drive it.", [read("tests/settle.rs", 32)]),
        step("Before I change anything: the tests as they are.", [run("cargo test settle", short_log())]),
        step("A late retry posts twice. The batch is claimed only after posting.", [grep("claim_batch", 60)]),
        step("The store decides who comes first.", [read("src/store.rs", 40)]),
        step("That is the cause; I'll note it.", [todos(1)]),
    ]
}

fn fixing() -> Vec<Step> {
    vec![
        step(
            "First a test that shows it, and a module of its own for the keys.",
            [write("tests/late_retry.rs", 34), write("src/idempotency.rs", 36)],
        ),
        step("Settlement claims by key before it posts.", [write("src/settle.rs", 40)]),
        step("The retry loop passes the key on.", [write("src/retry.rs", 34)]),
        step("Hooking it up.", [edit("src/lib.rs", "mod ledger;", "mod idempotency;\nmod ledger;")]),
        step("Does it build?", [run("cargo check --workspace", green("cargo check", 20))]),
        step(
            "Does it pass? With all output, to see the order of things.",
            [run("cargo test --workspace -- --nocapture", test_log(LONG_LOG, 300_000, NEEDLE))],
        ),
        step(
            "Still one: the key is made anew for each attempt.",
            [edit("src/retry.rs", "let key = Key::new();", "let key = Key::of(&order);")],
        ),
        step("Again.", [run("cargo test settle", green("tests/settle.rs", 180))]),
        step("Is the key made anew anywhere else?", [grep("Key::new", 6)]),
        step("Second point done.", [todos(2)]),
        reports(
            "Retries are idempotent now: a posting is claimed by its key before it is made, and the late retry finds it \
             taken. 180 settlement tests pass.",
            "Good. Now the same for refunds. Keep the public API of Ledger as it is.",
        ),
    ]
}

fn refunds() -> Vec<Step> {
    vec![
        step("Refunds first need reading.", [read("src/refund.rs", 38)]),
        step("Who calls them?", [grep("issue_refund", 70)]),
        step("The journal takes part, too.", [read("src/journal.rs", 36)]),
        step("Refunds by key.", [write("src/refund.rs", 42)]),
        step("The journal records the key.", [write("src/journal.rs", 40)]),
        step(
            "All tests, since the journal is everywhere.",
            [run(
                "cargo test --workspace",
                test_log(
                    "all targets",
                    120_000,
                    "thread 'refund::partial' panicked at src/refund.rs:88:13: key missing",
                ),
            )],
        ),
        step("A partial refund has no key yet.", [read("src/partial.rs", 34)]),
        step("It gets one.", [write("src/partial.rs", 38)]),
        step("Once more, only these.", [run("cargo test refund", green("tests/refund.rs", 160))]),
        step("Third point done.", [todos(3)]),
        reports(
            "Refunds, partial ones too, are idempotent. Ledger's public API is unchanged.",
            "Thanks. What exactly did the first long log say: which order, which batch? Then the metrics and the \
             documentation, please, and a last full run.",
        ),
    ]
}

fn finishing() -> Vec<Step> {
    vec![
        Step {
            recalls: Some(Memory { begins: NEEDLE_BEGINS, below: LONG_LOG }),
            ..step("How are metrics done here?", [read("src/metrics.rs", 36), grep("counter", 50)])
        },
        step("A counter for retries.", [write("src/metrics.rs", 40)]),
        step("The place where it counts.", [edit("src/retry.rs", "Ok(())", "metrics.retried();\n        Ok(())")]),
        step("What the handbook says so far.", [read("docs/settlement.md", 36)]),
        step("The handbook's new chapter.", [write("docs/idempotency.md", 42)]),
        step("A word in the operations guide.", [write("docs/operations.md", 34)]),
        step("Fourth point done.", [todos(4)]),
        step("The last full run.", [run("cargo test --workspace --quiet", green("all targets, quietly", 500))]),
        step("And the lints.", [run("cargo clippy --workspace", green("clippy", 30))]),
        step("All points done.", [todos(5)]),
        reports(
            "Everything is in: idempotent retries and refunds, a retry counter, two chapters of documentation. All tests \
             pass; nothing under migrations/ was touched.",
            "",
        ),
    ]
}

fn short_log() -> String {
    test_log("tests/settle.rs", 20_000, "thread 'settle::late_retry' panicked at src/settle.rs:131:9: posted twice")
}

fn tools() -> Value {
    let tool = |name: &str, about: &str, parameters: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": parameters});
        json!({"type": "function", "function": {"name": name, "description": about, "parameters": schema}})
    };
    let entry = json!({"type": "object", "properties": {"content": {"type": "string"}, "status": {"type": "string"}}});
    let plan =
        json!({"type": "object", "properties": {"todos": {"type": "array", "items": entry}}, "required": ["todos"]});
    let plan = json!({"type": "function", "function": {"name": "write_todos", "description": "Replace the plan.", "parameters": plan}});
    json!([
        tool("read_file", "Read a file of the repository.", &["path"]),
        tool("write_file", "Write a whole file.", &["path", "content"]),
        tool("edit_file", "Replace one text in a file.", &["path", "old_text", "new_text"]),
        tool("grep", "Search files for a pattern.", &["pattern", "path"]),
        tool("execute", "Run a shell command.", &["command"]),
        plan,
    ])
}

#[cfg(test)]
#[path = "tests/session.rs"]
mod tests;
