//! The same agent at OpenAI Responses: what it writes as items.

use crate::wire::{Conversation, Dialect, Role};

use super::history::{Agent, CUSTOM, CallSpec, TOOLS, arguments, prose, quoted};

/// The model of agents that speak Responses.
pub const MODEL: &str = "demo-items";

/// The dialect of a body of the model's.
pub fn dialect(body: &[u8]) -> Dialect {
    let beginning = body.get(..40).unwrap_or(body);
    match memchr::memmem::find(beginning, MODEL.as_bytes()) {
        Some(_) => Dialect::Responses,
        None => super::blocks::is_spoken(beginning).unwrap_or(Dialect::Chat),
    }
}

impl Agent {
    /// A user message with these texts, and a picture before them if one is asked for.
    pub fn picture_item(text: &str) -> String {
        let picture = r#"{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="}"#;
        format!(r#"[{picture},{{"type":"input_text","text":{}}}]"#, quoted(text))
    }

    pub fn reasoning_item(&mut self) {
        let n = self.next();
        let hidden = "gAAAAABf".repeat(n % 40 + 1);
        self.push(format!(
            r#"{{"type":"reasoning","id":"rs_{n}","summary":[],"content":null,"encrypted_content":"{hidden}"}}"#
        ));
    }

    pub fn answer_item(&mut self, text: &str) {
        let n = self.next();
        let text = quoted(text);
        self.push(format!(
            r#"{{"id":"msg_{n}","type":"message","role":"assistant","phase":"final","status":"completed","content":[{{"type":"output_text","text":{text},"annotations":[]}}]}}"#
        ));
    }

    /// Reasoning, words and calls made in parallel, then the outputs, each an item.
    pub fn tool_items(&mut self, specs: &[CallSpec]) {
        let runs = specs.first().map_or(0, |spec| spec.arguments.form % 3);
        (0..runs).for_each(|_| self.reasoning_item());
        if runs == 2 {
            self.answer_item("I look.");
        }
        let mut outputs = Vec::new();
        for (k, spec) in specs.iter().enumerate() {
            let n = self.next();
            let id = if spec.reused { format!("c0000000{k}") } else { format!("c{n:08}") };
            let (call, output) = written_call(&id, n, spec);
            self.push(call);
            outputs.push(output);
        }
        outputs.into_iter().for_each(|output| self.push(output));
    }
}

/// A call of one of the families, and its output.
fn written_call(id: &str, n: usize, spec: &CallSpec) -> (String, String) {
    let tool = TOOLS[spec.tool % TOOLS.len()];
    let given = prose(n + 1, spec.arguments.chars);
    let (first, second) = (prose(n, spec.result.chars / 2), prose(n + 7, spec.result.chars / 2));
    let said = match spec.result.form % 4 {
        0 => format!(
            r#"[{{"type":"input_text","text":{}}},{{"type":"input_text","text":{}}}]"#,
            quoted(&first),
            quoted(&second)
        ),
        _ => quoted(&prose(n + 3, spec.result.chars)),
    };
    let output = |family: &str, said: &str| {
        format!(r#"{{"type":"{family}_output","call_id":"{id}","output":{said},"weight":1.50}}"#)
    };
    match (spec.tool % TOOLS.len(), spec.arguments.form % 4) {
        (CUSTOM, _) => {
            let call =
                format!(r#"{{"type":"custom_tool_call","call_id":"{id}","name":"{tool}","input":{}}}"#, quoted(&given));
            (call, output("custom_tool_call", &said))
        }
        // What it finds stays, whatever stands for the items around it.
        (0, 2) => {
            let call = format!(
                r#"{{"type":"tool_search_call","id":"tsc_{n}","call_id":"{id}","arguments":{{"query":{} }}}}"#,
                quoted(&prose(n, spec.arguments.chars % 90))
            );
            let found = format!(r#"[{{"type":"function","name":"found_{n}","parameters":{{}} }}]"#);
            (call, format!(r#"{{"type":"tool_search_output","call_id":"{id}","tools":{found}}}"#))
        }
        (0, 3) => {
            let call = format!(
                r#"{{"type":"shell_call","call_id":"{id}","action":{{"commands":[ {}],"timeout_ms":null}}}}"#,
                quoted(&given)
            );
            let said = format!(
                r#"[{{"stdout":{},"stderr":{},"outcome":{{"type":"exit","exit_code":0}}}}]"#,
                quoted(&first),
                quoted(&second)
            );
            (call, output("shell_call", &said))
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

/// R1, R2, R4 of what is sent for `raw`, whose first `upto` items a head stands for.
pub fn valid(raw: &Conversation<'_>, out: &Conversation<'_>, upto: usize) {
    let mut open: Vec<&str> = Vec::new();
    for item in &out.items {
        open.extend(item.facts.calls.iter().map(|call| call.id.as_str()));
        for id in &item.facts.results {
            let at = open.iter().rposition(|open| open == id);
            open.remove(at.expect("an output without its call"));
        }
    }
    let mut unanswered: Vec<&str> = Vec::new();
    for item in &raw.items {
        unanswered.extend(item.facts.calls.iter().map(|call| call.id.as_str()));
        unanswered.retain(|id| !item.facts.results.iter().any(|result| result == id));
    }
    assert!(open.iter().all(|id| unanswered.contains(id)), "calls without outputs: {open:?}");
    // What the model made behind its reasoning stays behind it.
    if raw.items.get(upto).is_some_and(|item| item.facts.role == Role::Assistant) {
        let answer = (0..upto).rev().take_while(|i| raw.items[*i].facts.role == Role::Assistant);
        let cut = answer.into_iter().any(|i| is_reasoning(raw, i));
        assert!(!cut, "reasoning was cut from what it produced");
    }
    let found = |conversation: &Conversation<'_>| {
        let outputs = (0..conversation.items.len()).map(|i| conversation.raw(i).to_vec());
        outputs.filter(|raw| memchr::memmem::find(raw, b"\"tool_search_").is_some()).collect::<Vec<_>>()
    };
    assert_eq!(found(raw), found(out), "what a search found is gone");
    let last = out.items.len() - 1;
    assert!(!is_reasoning(out, last), "reasoning is the last item");
}

fn is_reasoning(conversation: &Conversation<'_>, item: usize) -> bool {
    conversation.raw(item).windows(18).any(|bytes| bytes == br#""type":"reasoning""#)
}
