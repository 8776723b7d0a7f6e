//! The agent at OpenAI Chat Completions: what it writes as messages.

use std::fmt::Write;

use super::history::{Agent, CUSTOM, Message, TOOLS, arguments, base64, prose, quoted};
use super::steps::CallSpec;

/// Forms of arguments whose message says what the model thought (D6), or holds it sealed (D10).
const REASONED: usize = 11;
const SIGNED: usize = 10;

impl Agent {
    /// What a user says beside a picture, a recording or a file.
    pub fn picture_message(n: usize, text: &str) -> String {
        let data = base64(n);
        let medium = match n % 3 {
            0 => format!(r#"{{"type":"input_audio","input_audio":{{"data":"{data}","format":"wav"}}}}"#),
            1 => format!(
                r#"{{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{data}"}}}}"#
            ),
            _ => format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#),
        };
        format!(r#"[{medium},{{"type":"text","text":{}}}]"#, quoted(text))
    }

    /// Calls made in parallel and their results; a call alone may be a legacy function's (C12).
    pub fn tool_messages(&mut self, specs: &[CallSpec]) {
        if let [spec] = specs
            && spec.family < 3
        {
            return self.function(spec);
        }
        let thought = specs[0].arguments.form;
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for (k, spec) in specs.iter().enumerate() {
            let n = self.next();
            let id = if spec.reused { format!("c0000000{k}") } else { format!("c{n:08}") };
            let call = written_call(&id, n, spec);
            calls.push(if thought == SIGNED { signed(&call, n) } else { call });
            let content = match spec.result.form % 4 {
                0 => {
                    let half = spec.result.chars / 2;
                    let parts = [prose(n, half), prose(n + 7, half)].map(|text| quoted(&text));
                    format!(r#"[{{"type":"text","text":{}}},{{"type":"text","text":{}}}]"#, parts[0], parts[1])
                }
                // Tools do print nothing.
                1 if spec.result.chars < 60 => r#""""#.to_owned(),
                _ => quoted(&prose(n + 3, spec.result.chars)),
            };
            results.push(format!(r#"{{"role":"tool","tool_call_id":"{id}","content":{content}}}"#));
        }
        let reasoning = match thought {
            REASONED => format!(r#""reasoning_content":{},"#, quoted(&prose(self.next(), 150))),
            _ => String::new(),
        };
        let calls = calls.join(", ");
        self.push(format!(r#"{{"role":"assistant",{reasoning}"content":null,"tool_calls":[{calls}]}}"#));
        results.into_iter().for_each(|result| self.push(result));
    }

    fn function(&mut self, spec: &CallSpec) {
        let n = self.next();
        let tool = TOOLS[spec.tool % TOOLS.len()];
        let given = quoted(&arguments(n, spec, &prose(n + 1, spec.arguments.chars)));
        self.push(format!(
            r#"{{"role":"assistant","content":null,"function_call":{{"name":"{tool}","arguments":{given}}}}}"#
        ));
        let said = quoted(&prose(n + 3, spec.result.chars));
        self.push(format!(r#"{{"role":"function","name":"{tool}","content":{said}}}"#));
    }

    /// Answers in other forms than a text.
    pub fn hosted_message(&mut self, which: usize) {
        let n = self.next();
        self.push(match which % 4 {
            0 => format!(r#"{{"role":"assistant","content":null,"audio":{{"id":"audio_{n}"}}}}"#),
            1 => format!(r#"{{"role":"assistant","content":[{{"type":"refusal","refusal":{}}}]}}"#, quoted(&prose(n, 60))),
            2 => format!(
                r#"{{"role":"assistant","content":[{{"type":"text","text":{}}}],"annotations":[{{"type":"url_citation","url_citation":{{"start_index":0}}}}]}}"#,
                quoted(&prose(n, 200))
            ),
            _ => format!(
                r#"{{"role":"assistant","reasoning_content":{},"content":{},"novelty":{{"kept": 1.0}}}}"#,
                quoted(&prose(n, 300)),
                quoted(&prose(n + 1, 80))
            ),
        });
    }

    pub fn body_of_messages(&self, messages: &[Message], clock: usize) -> Vec<u8> {
        let output = match self.manner.output {
            Some(tokens) if self.name == 0 => format!(r#""max_completion_tokens":{tokens},"#),
            Some(tokens) => format!(r#""max_tokens":{tokens}, "#),
            None => String::new(),
        };
        let mut body = format!(
            r#"{{"model":"demo-coder", "temperature":0.10,{output}"messages":[ {{"role":"system","content":"You are agent {}. It is {clock} o'clock."}}"#,
            self.name
        );
        messages.iter().for_each(|message| write!(body, ",\n{}", message.json).unwrap());
        body.push_str(
            r#"],"tools":[{"type":"function","function":{"name":"shell"}},{"type":"custom","custom":{"name":"apply_patch"}}],"functions":[{"name":"shell"}],"b":{"z":1e3,"a":[ ]}}"#,
        );
        body.into_bytes()
    }
}

/// With what the model thought (D10).
fn signed(call: &str, n: usize) -> String {
    let signature = "RW5jcnlwdGVk".repeat(n % 9 + 1);
    call.replacen('{', &format!(r#"{{"extra_content":{{"google":{{"thought_signature":"{signature}"}}}},"#), 1)
}

fn written_call(id: &str, n: usize, spec: &CallSpec) -> String {
    let tool = TOOLS[spec.tool % TOOLS.len()];
    let text = prose(n + 1, spec.arguments.chars);
    if spec.tool % TOOLS.len() == CUSTOM {
        return format!(r#"{{"id":"{id}","type":"custom","custom":{{"name":"{tool}","input":{}}}}}"#, quoted(&text));
    }
    let arguments = quoted(&arguments(n, spec, &text));
    format!(r#"{{"id":"{id}","type":"function","function":{{"arguments":{arguments},"name":"{tool}"}}}}"#)
}
