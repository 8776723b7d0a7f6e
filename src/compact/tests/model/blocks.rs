//! The agent at Anthropic Messages: what it writes as blocks.

use std::fmt::Write;

use serde_json::Value;

use crate::demo::answer::Answer;
use crate::demo::messages::answer::content;
use crate::demo::request::{Api, ModelRequest, kind};
use crate::wire::Dialect;

use super::history::{Agent, Kind, Marks, Message, Signed, TOOLS, base64, prose, quoted};
use super::steps::CallSpec;

/// The model of agents that speak Messages.
pub const MODEL: &str = "demo-blocks";

/// Breakpoints of either lifetime: they move from turn to turn.
const SHORT: &str = r#","cache_control":{"type":"ephemeral"}"#;
const LONG: &str = r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#;

impl Agent {
    /// A picture or a document, and what is said of it.
    pub fn picture_block(n: usize, text: &str) -> String {
        format!(r#"[{},{{"type":"text","text":{}}}]"#, medium(n), quoted(text))
    }

    /// What the model thought before what follows: signed, hidden, or nothing.
    pub fn thought(&mut self) -> String {
        let n = self.next();
        let always = self.budget().is_some();
        match n % 4 {
            0 if !always => String::new(),
            1 => format!(r#"{{"type":"redacted_thinking","data":"{}"}},"#, "gAAAAABf".repeat(n % 40 + 1)),
            _ => {
                let thought = prose(n, 40 + n % 5 * 60);
                let signature = match self.manner.signed {
                    Signed::Alone => format!("sig{n}=="),
                    Signed::Bound => self.signature(&thought),
                };
                format!(r#"{{"type":"thinking","thinking":{},"signature":"{signature}"}},"#, quoted(&thought))
            }
        }
    }

    /// The provider's signature over what it received last.
    fn signature(&self, thought: &str) -> String {
        let first = || self.body_of_blocks(&self.messages, 0, "");
        let body = self.heard.clone().unwrap_or_else(first);
        let request = ModelRequest::new(Api::Messages, serde_json::from_slice(&body).unwrap());
        let answer = Answer { reasoning: Some(thought.to_owned()), ..Answer::text("x") };
        content(&answer, &request)[0]["signature"].as_str().unwrap().to_owned()
    }

    /// Tokens that the model may think, where the client sets a number; only large outputs have room for it (A14).
    fn budget(&self) -> Option<u64> {
        self.manner.output.filter(|tokens| *tokens > 2_000).map(|_| 1_024)
    }

    pub fn answer_block(&mut self, text: &str) {
        let thought = self.thought();
        self.push(format!(r#"{{"role":"assistant","content":[{thought}{{"type":"text","text":{}}}]}}"#, quoted(text)));
    }

    /// Calls made in parallel, then all their results in one message; behind some the user says something.
    pub fn tool_blocks(&mut self, specs: &[CallSpec]) {
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
            if spec.family == 0 {
                blocks.push(served(n, spec.arguments.form));
            }
            blocks.push(format!(r#"{{"input":{input},"type":"tool_use","id":"{id}","name":"{tool}"}}"#));
            results.push(result(&id, n, spec));
        }
        match specs[0].result.form {
            0 => results
                .push(format!(r#"{{"type":"text","text":{}}}"#, quoted("<system-reminder>Go on.</system-reminder>"))),
            1 => results.push(r#"{"type":"container_upload","file_id":"file_1"}"#.to_owned()),
            _ => {}
        }
        self.push(format!(r#"{{"role":"assistant","content":[{calls}{}]}}"#, blocks.join(", ")));
        self.push(format!(r#"{{"role":"user","content":[{}]}}"#, results.join(",")));
        self.change_block(specs[0].arguments.form);
    }

    /// Now and then the harness changes tools or instructions behind what the user said (A21).
    fn change_block(&mut self, form: usize) {
        if !form.is_multiple_of(3) {
            return;
        }
        let n = self.next();
        let change = match n % 2 {
            0 => format!(r#"{{"type":"mid_conv_system","content":[{{"type":"text","text":"Instruction {n}."}}]}}"#),
            _ => format!(
                r#"{{"type":"tool_addition","tool":{{"definition":{{"name":"added_{n}","input_schema":{{"type":"object"}}}}}}}}"#
            ),
        };
        self.push(format!(r#"{{"role":"system","content":[{change}]}}"#));
    }

    /// What the provider's own tools did within the turn (A4); the model may have paused in it.
    pub fn hosted_blocks(&mut self, which: usize) {
        let n = self.next();
        let thought = self.thought();
        let said = format!(r#"{{"type":"text","text":{}}}"#, quoted(&prose(n, 90)));
        let (call, answer) = (served_call(n, which), served_answer(n, which));
        if which.is_multiple_of(4) {
            self.push(format!(r#"{{"role":"assistant","content":[{thought}{call}]}}"#));
            self.push(format!(r#"{{"role":"assistant","content":[{answer},{said}]}}"#));
        } else {
            let novelty = format!(r#"{{"type":"novel_block","seal":{{"b":1.0,"n":{n}}}}}"#);
            self.push(format!(r#"{{"role":"assistant","content":[{thought}{call},{answer}, {novelty},{said}]}}"#));
        }
    }

    /// The provider has compacted what precedes (A19).
    pub fn compaction_block(&mut self) {
        let n = self.next();
        let story = quoted(&prose(n, 200));
        self.push(format!(
            r#"{{"role":"assistant","content":[{{"type":"compaction","content":{story}}},{{"type":"text","text":"Done."}}]}}"#
        ));
    }

    /// The history as it is sent: the last two messages of the user's that can carry a breakpoint have one.
    pub fn marked(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let carries = |message: &&mut Message| message.json.ends_with("}]}") && !message.json.contains("assistant");
        if self.kind == Kind::Blocks {
            for (k, message) in messages.iter_mut().rev().filter(carries).take(2).enumerate() {
                let mark = match self.manner.marks {
                    Marks::Long => LONG,
                    Marks::Mixed if k == 1 => LONG,
                    Marks::Short | Marks::Mixed => SHORT,
                };
                message.json.insert_str(message.json.len() - "}]}".len(), mark);
            }
        }
        messages
    }

    /// The body of a request; `members`: what it says before its messages. The system prompt holds what Claude Code
    /// begins with, and a clock where no thinking is bound to it.
    pub fn body_of_blocks(&self, messages: &[Message], clock: usize, members: &str) -> Vec<u8> {
        let output = self.manner.output.unwrap_or(500);
        let thinking = match self.budget() {
            Some(budget) => format!(r#"{{"type":"enabled","budget_tokens":{budget}}}"#),
            None => r#"{"type":"adaptive"}"#.to_owned(),
        };
        let mark = if self.manner.marks == Marks::Short { SHORT } else { LONG };
        let hour = if self.manner.signed == Signed::Bound { 0 } else { clock };
        let mut body = format!(
            r#"{{"model":"{MODEL}", "max_tokens":{output},{members}"system":[ {{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch={clock};"}}, {{"type":"text","text":"You are an agent. It is {hour} o'clock."{mark}}}],"thinking":{thinking},"messages":["#
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

fn medium(n: usize) -> String {
    let data = base64(n);
    match n % 3 {
        0 => format!(
            r#"{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{data}"}}}}"#
        ),
        1 => format!(
            r#"{{"type":"document","title":"t","source":{{"type":"text","media_type":"text/plain","data":{}}}}}"#,
            quoted(&prose(n, 300))
        ),
        _ => format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#),
    }
}

/// A call of a server's tool and its answer, one after the other.
fn served(n: usize, which: usize) -> String {
    format!("{},{}", served_call(n, which), served_answer(n, which))
}

fn served_call(n: usize, which: usize) -> String {
    let query = quoted(&prose(n, 60));
    match which % 2 {
        0 => format!(
            r#"{{"type":"server_tool_use","id":"srvtoolu_{n}","name":"web_search","input":{{"query":{query}}}}}"#
        ),
        _ => format!(
            r#"{{"type":"mcp_tool_use","id":"mcptoolu_{n}","name":"find","server_name":"s","input":{{"q":{query}}}}}"#
        ),
    }
}

fn served_answer(n: usize, which: usize) -> String {
    match which % 2 {
        0 => format!(
            r#"{{"type":"web_search_tool_result","tool_use_id":"srvtoolu_{n}","content":[{{"type":"web_search_result","url":"https://a.example/{n}","title":"t","encrypted_content":"{}"}}]}}"#,
            "RW5jcnlwdGVk".repeat(n % 30 + 1)
        ),
        _ => format!(
            r#"{{"type":"mcp_tool_result","tool_use_id":"mcptoolu_{n}","is_error":false,"content":[{{"type":"text","text":{}}}]}}"#,
            quoted(&prose(n, n % 7 * 200))
        ),
    }
}

fn result(id: &str, n: usize, spec: &CallSpec) -> String {
    let text = |seed: usize, chars: usize| format!(r#"{{"type":"text","text":{}}}"#, quoted(&prose(seed, chars)));
    let content = match spec.result.form % 8 {
        0 => format!(r#"[{},{}]"#, text(n, spec.result.chars / 2), text(n + 7, spec.result.chars / 2)),
        1 => return format!(r#"{{"type":"tool_result","tool_use_id":"{id}"}}"#),
        2 => format!("[{},{}]", medium(n), text(n + 3, spec.result.chars)),
        3 => format!(
            r#"[{{"type":"search_result","source":"https://a.example","title":"t","content":[{}]}},{{"type":"tool_reference","tool_name":"shell"}},{}]"#,
            text(n + 5, 200),
            text(n + 3, spec.result.chars)
        ),
        4 if spec.result.chars < 60 => r#""""#.to_owned(),
        _ => quoted(&prose(n + 3, spec.result.chars)),
    };
    format!(r#"{{"tool_use_id":"{id}","type":"tool_result","content": {content},"is_error":false}}"#)
}

/// What is said without the breakpoints that clients move.
pub fn unmarked(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(SHORT, "").replace(LONG, "")
}

/// A block that changes what the system says, or the tools.
pub fn is_change(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("mid_conv_system" | "tool_addition" | "tool_removal"))
}

/// Whether a block holds thoughts; those of finished turns may be left out (A13).
pub fn is_thought(block: &Value) -> bool {
    matches!(kind(block), "thinking" | "redacted_thinking")
}

/// The dialect of a body by its model.
pub fn is_spoken(beginning: &[u8]) -> Option<Dialect> {
    memchr::memmem::find(beginning, MODEL.as_bytes()).map(|_| Dialect::Messages)
}
