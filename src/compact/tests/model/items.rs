//! The agent at OpenAI Responses: what it writes as items, in all families of calls.

use serde_json::Value;

use crate::demo::request::{kind, role};
use crate::wire::Dialect;

use super::history::{Agent, CUSTOM, Message, TOOLS, arguments, base64, prose, quoted};
use super::steps::CallSpec;

/// The model of agents that speak Responses.
pub const MODEL: &str = "demo-items";

/// How the id ends of a call that is of the same answer as what precedes its neighbour's output.
pub const SAME: &str = "_same";

/// The dialect of a body of the model's.
pub fn dialect(body: &[u8]) -> Dialect {
    let beginning = body.get(..40).unwrap_or(body);
    match memchr::memmem::find(beginning, MODEL.as_bytes()) {
        Some(_) => Dialect::Responses,
        None => super::blocks::is_spoken(beginning).unwrap_or(Dialect::Chat),
    }
}

/// Whether the model made an item, as part of an answer.
pub fn is_made(item: &Value) -> bool {
    match kind(item) {
        "" | "message" => role(item) == "assistant",
        "reasoning" | "program" | "mcp_approval_request" | "mcp_list_tools" | "sandbox_note" | "compaction" => true,
        other => other.ends_with("_call"),
    }
}

impl Agent {
    /// A user message with these texts, and a picture or a file before them.
    pub fn picture_item(n: usize, text: &str) -> String {
        let data = base64(n);
        let medium = match n % 2 {
            0 => format!(r#"{{"type":"input_image","image_url":"data:image/png;base64,{data}"}}"#),
            _ => format!(
                r#"{{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,{data}"}}"#
            ),
        };
        format!(r#"[{medium},{{"type":"input_text","text":{}}}]"#, quoted(text))
    }

    pub fn reasoning_item(&mut self) {
        let n = self.next();
        let hidden = "gAAAAABf".repeat(n % 40 + 1);
        let said = match n % 3 {
            0 => {
                r#""summary":[{"type":"summary_text","text":"I think."}],"content":[{"type":"reasoning_text","text":"So"}]"#
            }
            _ => r#""summary":[],"content":null"#,
        };
        self.push(format!(r#"{{"type":"reasoning","id":"rs_{n}",{said},"encrypted_content":"{hidden}"}}"#));
    }

    pub fn answer_item(&mut self, text: &str) {
        self.message_item(text, "final_answer");
    }

    fn message_item(&mut self, text: &str, phase: &str) {
        let n = self.next();
        let text = quoted(text);
        self.push(format!(
            r#"{{"id":"msg_{n}","type":"message","role":"assistant","phase":"{phase}","status":"completed","content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}"#
        ));
    }

    /// Reasoning, words and calls made in parallel, then the outputs, each an item; or each call with its output.
    pub fn tool_items(&mut self, specs: &[CallSpec]) {
        let runs = specs.first().map_or(0, |spec| spec.arguments.form % 3);
        (0..runs).for_each(|_| self.reasoning_item());
        if runs == 2 {
            self.message_item("I look.", "commentary");
        }
        let one_by_one = specs.first().is_some_and(|spec| spec.result.form % 3 == 0);
        let mut outputs = Vec::new();
        for (k, spec) in specs.iter().enumerate() {
            let n = self.next();
            let id = if spec.reused { format!("c0000000{k}") } else { format!("c{n:08}") };
            let (call, output) = written_call(&id, n, spec);
            match one_by_one {
                true if k > 0 => {
                    let own = format!(r#"_{n}","call_id""#);
                    self.push(call.replacen(&own, &format!(r#"_{n}{SAME}","call_id""#), 1));
                    self.push(output);
                }
                true => [call, output].into_iter().for_each(|item| self.push(item)),
                false => {
                    self.push(call);
                    outputs.push(output);
                }
            }
        }
        outputs.into_iter().for_each(|output| self.push(output));
    }

    /// What the provider's own tools did, what sets the model's tools, what only some servers know; then an answer.
    pub fn hosted_items(&mut self, which: usize) {
        let n = self.next();
        match which % 7 {
            0 => self.push(format!(
                r#"{{"type":"additional_tools","role":"developer","tools":[{{"type":"function","name":"added_{n}","parameters":{{}} }}]}}"#
            )),
            1 => self.push(format!(r#"{{"type":"configuration_update","settings":{{"n":{n}}}}}"#)),
            4 => self.push(format!(
                r#"{{"type":"mcp_list_tools","id":"mcpl_{n}","server_label":"s","tools":[{{"name":"find","input_schema":{{}} }}]}}"#
            )),
            _ => {}
        }
        self.reasoning_item();
        match which % 7 {
            2 => self.push(format!(
                r#"{{"type":"web_search_call","id":"ws_{n}","status":"completed","action":{{"type":"search","query":"q {n}"}}}}"#
            )),
            3 => {
                let picture = base64(n);
                self.push(format!(
                    r#"{{"type":"code_interpreter_call","id":"ci_{n}","code":"1","container_id":"c","outputs":[{{"type":"logs","logs":{}}}],"status":"completed"}}"#,
                    quoted(&prose(n, n % 7 * 300))
                ));
                self.push(format!(r#"{{"type":"image_generation_call","id":"ig_{n}","status":"completed","result":"{picture}"}}"#));
            }
            4 => self.approved(n),
            5 => self.push(format!(r#"{{"type":"sandbox_note","id":"sn_{n}","seal":{{"b":1.0,"a":[ ]}}}}"#)),
            6 => self.push(format!(
                r#"{{"type":"file_search_call","id":"fs_{n}","queries":["q"],"results":[{{"text":{}}}],"status":"completed"}}"#,
                quoted(&prose(n, n % 9 * 200))
            )),
            _ => {}
        }
        self.answer_item(&prose(n + 1, 90));
    }

    /// A call of a server's that the user has to approve first (R2).
    fn approved(&mut self, n: usize) {
        let given = quoted(&format!(r#"{{"q":{}}}"#, quoted(&prose(n, 120))));
        self.push(format!(
            r#"{{"type":"mcp_approval_request","id":"mcpr_{n}","server_label":"s","name":"find","arguments":{given}}}"#
        ));
        self.push(format!(r#"{{"type":"mcp_approval_response","approval_request_id":"mcpr_{n}","approve":true}}"#));
        self.reasoning_item();
        let said = quoted(&prose(n + 3, n % 11 * 700));
        self.push(format!(
            r#"{{"type":"mcp_call","id":"mcp_{n}","approval_request_id":"mcpr_{n}","server_label":"s","name":"find","arguments":{given},"output":{said}}}"#
        ));
    }

    /// The provider has compacted what precedes (R10).
    pub fn compaction_item(&mut self) {
        let n = self.next();
        let hidden = "gAAAAABc".repeat(n % 60 + 1);
        self.push(format!(r#"{{"type":"compaction","id":"cmp_{n}","encrypted_content":"{hidden}"}}"#));
        self.answer_item(&prose(n, 50));
    }

    /// The history so far as what the provider holds, and what is new (R8).
    pub fn increment(&self) -> (&[Message], &[Message]) {
        let made = self.positions(|message| is_made(&serde_json::from_str(&message.json).unwrap()));
        self.messages.split_at(made.last().map_or(0, |last| last + 1))
    }

    /// The body of a request; `members`: what it says before its input. A single text may be the whole input (R17).
    pub fn body_of_items(&self, messages: &[Message], clock: usize, members: &str) -> Vec<u8> {
        let output = self.manner.output.map_or_else(String::new, |tokens| format!(r#""max_output_tokens": {tokens},"#));
        let prompt = format!("You are agent {}. It is {clock} o'clock.", self.name);
        let first = messages.first().and_then(|message| message.rule.as_ref());
        let input = match first.filter(|_| messages.len() == 1 && clock % 2 == 1) {
            Some(rule) => format!(r#""instructions":"{prompt}","input": {}"#, quoted(rule)),
            None => {
                let items: String = messages.iter().map(|message| format!(",\n{}", message.json)).collect();
                format!(r#""input":[ {{"role":"system","content":"{prompt}"}}{items}]"#)
            }
        };
        let rest = r#""tools":[{"type":"function","name":"shell","parameters":{}}],"b":{"z":1e3,"a":[ ]}"#;
        format!(r#"{{"model":"{MODEL}", "store":false,"temperature":0.10,{output}{members}{input},{rest}}}"#)
            .into_bytes()
    }
}

/// A call of one of the families, and its output.
fn written_call(id: &str, n: usize, spec: &CallSpec) -> (String, String) {
    let tool = TOOLS[spec.tool % TOOLS.len()];
    let given = prose(n + 1, spec.arguments.chars);
    let said = said(n, spec);
    let call = |kind: &str, prefix: &str, rest: &str| {
        format!(r#"{{"type":"{kind}","id":"{prefix}_{n}","call_id":"{id}",{rest}}}"#)
    };
    let output = |family: &str, said: &str| {
        format!(r#"{{"type":"{family}_output","call_id":"{id}","output":{said},"weight":1.50}}"#)
    };
    let quoted_given = quoted(&given);
    match (spec.tool % TOOLS.len(), spec.family) {
        (CUSTOM, _) => {
            let rest = format!(r#""name":"{tool}","input":{quoted_given}"#);
            (call("custom_tool_call", "ctc", &rest), output("custom_tool_call", &said))
        }
        // Codex answers it as if it were a function.
        (_, family @ (0 | 1)) => {
            let rest = format!(
                r#""action":{{"type":"exec","command":["sh","-c",{quoted_given}],"env":{{}} }},"status":"completed""#
            );
            let answers = if family == 0 { "local_shell_call" } else { "function_call" };
            (call("local_shell_call", "lsh", &rest), output(answers, &quoted(&prose(n + 3, spec.result.chars))))
        }
        (_, 2 | 3) => {
            let rest = format!(r#""action":{{"commands":[ {quoted_given}],"timeout_ms":null}}"#);
            (call("shell_call", "sh", &rest), output("shell_call", &streams(n, spec)))
        }
        (_, 4) => {
            let rest = format!(
                r#""status":"completed","operation":{{"type":"update_file","path":"f{n}.rs","diff":{quoted_given}}}"#
            );
            let said = quoted(&prose(n + 3, spec.result.chars));
            let answer = format!(
                r#"{{"type":"apply_patch_call_output","call_id":"{id}","status":"completed","output":{said}}}"#
            );
            (call("apply_patch_call", "apc", &rest), answer)
        }
        (_, 5) => computer(id, n),
        (_, 6) => {
            let rest = format!(r#""arguments":{{"query":{} }}"#, quoted(&prose(n, spec.arguments.chars % 90)));
            (call("tool_search_call", "tsc", &rest), found(id, n, spec))
        }
        (_, 7) => {
            let rest = format!(r#""code":{quoted_given},"fingerprint":"fp{n}==""#);
            let said = quoted(&prose(n + 3, spec.result.chars));
            let answer =
                format!(r#"{{"type":"program_output","call_id":"{id}","result":{said},"status":"completed"}}"#);
            (call("program", "prog", &rest), answer)
        }
        (_, 8) => {
            let rest = format!(r#""payload":{{"text":{quoted_given},"n":1.0}}"#);
            (call("teleport_call", "tp", &rest), output("teleport_call", &said))
        }
        _ => {
            let arguments = quoted(&arguments(n, spec, &given));
            let call = format!(
                r#"{{"arguments":{arguments},"type":"function_call","id":"fc_{n}","call_id":"{id}","name":"{tool}"}}"#
            );
            (call, output("function_call", &said))
        }
    }
}

/// What a search for tools finds: it stays, whatever stands for the items around it.
fn found(id: &str, n: usize, spec: &CallSpec) -> String {
    let what = quoted(&prose(n + 3, spec.result.chars % 1_500));
    let found = format!(r#"[{{"type":"function","name":"found_{n}","description":{what},"parameters":{{}} }}]"#);
    format!(r#"{{"type":"tool_search_output","call_id":"{id}","tools":{found}}}"#)
}

/// An output: a string, texts, or texts and a picture.
fn said(n: usize, spec: &CallSpec) -> String {
    let text = |seed: usize, chars: usize| format!(r#"{{"type":"input_text","text":{}}}"#, quoted(&prose(seed, chars)));
    let half = spec.result.chars / 2;
    match spec.result.form % 5 {
        0 => format!("[{},{}]", text(n, half), text(n + 7, half)),
        1 => {
            let picture = format!(r#"{{"type":"input_image","image_url":"data:image/png;base64,{}"}}"#, base64(n));
            format!("[{picture}, {}]", text(n + 3, spec.result.chars))
        }
        2 if spec.result.chars < 60 => r#""""#.to_owned(),
        _ => quoted(&prose(n + 3, spec.result.chars)),
    }
}

/// What the commands of a shell call printed.
fn streams(n: usize, spec: &CallSpec) -> String {
    let half = spec.result.chars / 2;
    let (out, err) = (quoted(&prose(n, half)), quoted(&prose(n + 7, half)));
    format!(r#"[{{"stdout":{out},"stderr":{err},"outcome":{{"type":"exit","exit_code":0}}}}]"#)
}

/// A click, and the screen behind it (R20); the check that it raised is acknowledged.
fn computer(id: &str, n: usize) -> (String, String) {
    let check = format!(r#"[{{"id":"sc_{n}","code":"malicious","message":"m"}}]"#);
    let call = format!(
        r#"{{"type":"computer_call","id":"cu_{n}","call_id":"{id}","action":{{"type":"click","x":{n},"y":2}},"pending_safety_checks":{check},"status":"completed"}}"#
    );
    let screen = format!(r#"{{"type":"computer_screenshot","image_url":"data:image/png;base64,{}"}}"#, base64(n));
    let output = format!(
        r#"{{"type":"computer_call_output","call_id":"{id}","acknowledged_safety_checks":{check},"output":{screen}}}"#
    );
    (call, output)
}
