//! The same agent at Anthropic Messages: what it writes as blocks.

use std::fmt::Write;

use serde_json::Value;

use crate::demo::messages::{Binding, Prefill, Settings, Signatures, rules};
use crate::demo::request::{Api, Ids, ModelRequest, Purpose};
use crate::wire::Dialect;

use super::history::{Agent, CallSpec, Kind, Message, TOOLS, prose, quoted};

/// The model of agents that speak Messages.
pub const MODEL: &str = "demo-blocks";

/// The breakpoint that moves from turn to turn.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

impl Agent {
    pub fn picture_block(text: &str) -> String {
        let picture = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}"#;
        format!(r#"[{picture},{{"type":"text","text":{}}}]"#, quoted(text))
    }

    /// What the model thought before what follows: signed, hidden, or nothing.
    fn thought(&mut self) -> String {
        let n = self.next();
        match n % 4 {
            0 => String::new(),
            1 => format!(r#"{{"type":"redacted_thinking","data":"{}"}},"#, "gAAAAABf".repeat(n % 40 + 1)),
            _ => format!(
                r#"{{"type":"thinking","thinking":{},"signature":"sig{n}=="}},"#,
                quoted(&prose(n, 40 + n % 5 * 60))
            ),
        }
    }

    pub fn answer_block(&mut self, text: &str) {
        let thought = self.thought();
        self.push(format!(r#"{{"role":"assistant","content":[{thought}{{"type":"text","text":{}}}]}}"#, quoted(text)));
    }

    /// Calls made in parallel, then all their results in one message; behind some the user says something.
    pub fn tool_blocks(&mut self, specs: &[CallSpec]) {
        self.change_block(specs[0].arguments.form);
        let mut calls = self.thought();
        if specs.len() == 2 {
            calls.push_str(r#"{"type":"text","text":"I look."},"#);
        }
        let (mut blocks, mut results) = (Vec::new(), Vec::new());
        for (k, spec) in specs.iter().enumerate() {
            let n = self.next();
            let id = if spec.reused { format!("toolu_0{k}") } else { format!("toolu_{n:08}") };
            let tool = TOOLS[spec.tool % TOOLS.len()];
            let given = quoted(&prose(n + 1, spec.arguments.chars));
            let input = match spec.arguments.form % 4 {
                0 => format!(r#"{{"path": "f{n}.rs", "nested":{{"list":[1.0,{given}]}}, "n":2e1}}"#),
                1 => "{}".to_owned(),
                _ => format!(r#"{{"command":{given},"path":"f{n}.rs"}}"#),
            };
            blocks.push(format!(r#"{{"input":{input},"type":"tool_use","id":"{id}","name":"{tool}"}}"#));
            results.push(result(&id, n, spec));
        }
        if specs[0].result.form.is_multiple_of(5) {
            results
                .push(format!(r#"{{"type":"text","text":{}}}"#, quoted("<system-reminder>Go on.</system-reminder>")));
        }
        self.push(format!(r#"{{"role":"assistant","content":[{calls}{}]}}"#, blocks.join(", ")));
        self.push(format!(r#"{{"role":"user","content":[{}]}}"#, results.join(",")));
    }

    /// Now and then the harness changes tools or instructions behind what the user said.
    fn change_block(&mut self, form: usize) {
        if form.is_multiple_of(3)
            && self.messages.last().is_some_and(|message| message.json.contains(r#""role":"user""#))
        {
            let n = self.next();
            self.push(format!(
                r#"{{"role":"system","content":[{{"type":"mid_conv_system","content":[{{"type":"text","text":"Instruction {n}."}}]}}]}}"#
            ));
        }
    }

    pub fn todo_block(&mut self, n: usize, entry: &str) {
        let thought = self.thought();
        let input = format!(r#"{{"todos":[{{"content":"{entry}","status":"in_progress","id":"1"}}]}}"#);
        self.push(format!(
            r#"{{"role":"assistant","content":[{thought}{{"type":"tool_use","id":"toolu_{n:08}","name":"todo_write","input":{input}}}]}}"#
        ));
        self.messages.last_mut().unwrap().todo = Some(entry.to_owned());
        self.push(format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{n:08}","content":"ok"}}]}}"#
        ));
    }

    /// The history as it is sent: the last two messages of the user's that can carry a breakpoint have one.
    pub fn marked(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let carries = |message: &&mut Message| message.json.ends_with("}]}") && !message.json.contains("assistant");
        if self.kind == Kind::Blocks {
            for message in messages.iter_mut().rev().filter(carries).take(2) {
                message.json.insert_str(message.json.len() - "}]}".len(), MARK);
            }
        }
        messages
    }

    /// The body of a request with these messages. The system prompt holds a clock, and what Claude Code begins with.
    pub fn body_of_blocks(&self, messages: &[Message], clock: usize) -> Vec<u8> {
        let mut body = format!(
            r#"{{"model":"{MODEL}", "max_tokens":500,"system":[ {{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch={clock};"}}, {{"type":"text","text":"You are an agent. It is {clock} o'clock."{MARK}}}],"thinking":{{"type":"adaptive"}},"messages":["#
        );
        for (at, message) in messages.iter().enumerate() {
            write!(body, "{}{}", if at == 0 { "" } else { ",\n" }, message.json).unwrap();
        }
        let tool = |name: &&str| format!(r#"{{"name":"{name}","input_schema":{{"type":"object"}}}}"#);
        let tools: Vec<_> = TOOLS.iter().chain(&["todo_write"]).map(tool).collect();
        write!(body, r#"],"tools":[{}],"metadata":{{"z":1e3}}}}"#, tools.join(",")).unwrap();
        body.into_bytes()
    }
}

fn result(id: &str, n: usize, spec: &CallSpec) -> String {
    let text = |seed: usize, chars: usize| format!(r#"{{"type":"text","text":{}}}"#, quoted(&prose(seed, chars)));
    let content = match spec.result.form % 6 {
        0 => format!(r#"[{},{}]"#, text(n, spec.result.chars / 2), text(n + 7, spec.result.chars / 2)),
        1 => return format!(r#"{{"type":"tool_result","tool_use_id":"{id}"}}"#),
        2 => Agent::picture_block(&prose(n + 3, spec.result.chars)),
        _ => quoted(&prose(n + 3, spec.result.chars)),
    };
    format!(r#"{{"tool_use_id":"{id}","type":"tool_result","content": {content},"is_error":false}}"#)
}

/// What is said without the breakpoints that clients move.
pub fn unmarked(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(MARK, "")
}

/// A1 to A22 of what is sent.
pub fn valid(raw: &Value, out: &Value) {
    assert_eq!(broken(raw), None, "the agent itself breaks a rule");
    assert_eq!(broken(out), None, "{out}");
}

fn broken(body: &Value) -> Option<String> {
    let settings =
        Settings { binding: Binding::Block, prefill: Prefill::Refused, ids: Ids::Own, ..Settings::default() };
    let request = ModelRequest::new(Api::Messages, body.clone());
    let checked = rules::check(&request, Purpose::Answer, &settings, &mut Signatures::default());
    checked.err().map(|violation| format!("{violation:?}"))
}

/// Whether a block holds thoughts; those of finished turns may be left out (A13).
pub fn is_thought(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// The dialect of a body by its model.
pub fn is_spoken(beginning: &[u8]) -> Option<Dialect> {
    memchr::memmem::find(beginning, MODEL.as_bytes()).map(|_| Dialect::Messages)
}
