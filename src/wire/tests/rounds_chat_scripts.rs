//! Scripts of rounds of Chat Completions: as a provider writes them, and as a strict client reads what comes of them.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Answer, Aside, Ending, Form, OwnResult};
use crate::wire::Dialect;

pub const OWN: [&str; 2] = ["read_evicted", "session_search"];

#[derive(Debug, Clone, Default)]
pub struct Style {
    pub crlf: bool,
    pub comments: bool,
    pub split_names: bool,
    pub no_index: bool,
    pub same_index: bool,
    pub late_id: bool,
    pub usage_each: bool,
    pub all_at_once: bool,
    pub role_each: bool,
    pub reason_stop: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Script {
    pub thoughts: Vec<String>,
    pub texts: Vec<String>,
    /// Name, pieces of the arguments.
    pub calls: Vec<(String, Vec<String>)>,
}

impl Script {
    pub fn is_own(name: &str) -> bool {
        OWN.contains(&name)
    }

    fn id(round: usize, at: usize) -> String {
        format!("call_{round}_{at}")
    }

    fn reason(&self, style: &Style) -> &'static str {
        if self.calls.is_empty() || style.reason_stop { "stop" } else { "tool_calls" }
    }

    fn usage(round: usize) -> Value {
        let (prompt, completion) = (100 * (round + 1), 10 + round);
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "completion_tokens_details": {"reasoning_tokens": 3}})
    }

    /// As a provider streams it.
    pub fn stream(&self, round: usize, style: &Style) -> Vec<u8> {
        let eol = if style.crlf { "\r\n" } else { "\n" };
        let mut out = String::new();
        let mut first = true;
        let mut send = |mut delta: Value, reason: Option<&str>| {
            if std::mem::take(&mut first) || style.role_each {
                delta["role"] = json!("assistant");
            }
            let mut chunk = json!({"id": format!("chat-{round}"), "object": "chat.completion.chunk",
                "created": 1000 + round, "model": "m",
                "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]});
            if style.usage_each {
                chunk["usage"] = Self::usage(round);
            }
            out.push_str(&format!("data: {chunk}{eol}{eol}"));
            if style.comments {
                out.push_str(&format!(": PROCESSING{eol}{eol}"));
            }
        };
        if !style.all_at_once {
            send(json!({"content": ""}), None);
        }
        self.thoughts.iter().for_each(|text| send(json!({"reasoning_content": text}), None));
        self.texts.iter().for_each(|text| send(json!({"content": text}), None));
        let calls: Vec<Vec<Value>> = (0..self.calls.len()).map(|at| self.call(round, at, style)).collect();
        if style.all_at_once {
            let whole: Vec<Value> = calls.concat();
            send(json!({"tool_calls": whole}), Some(self.reason(style)));
        } else {
            calls.concat().into_iter().for_each(|piece| send(json!({"tool_calls": [piece]}), None));
            send(json!({}), Some(self.reason(style)));
        }
        if !style.usage_each {
            let chunk = json!({"id": format!("chat-{round}"), "created": 1000 + round, "choices": [],
                "usage": Self::usage(round)});
            out.push_str(&format!("data: {chunk}{eol}{eol}"));
        }
        out.push_str(&format!("data: [DONE]{eol}{eol}"));
        out.into_bytes()
    }

    fn call(&self, round: usize, at: usize, style: &Style) -> Vec<Value> {
        let (name, arguments) = &self.calls[at];
        let id = Self::id(round, at);
        let mut pieces = Vec::new();
        // A split name can only be put together where an index says whose it is.
        let split = style.split_names && !style.no_index && !style.same_index && !style.all_at_once;
        let cut = if split { name.len() / 2 } else { name.len() };
        let (begun, rest) = name.split_at(cut);
        pieces.push(json!({"id": id, "type": "function", "function": {"name": begun, "arguments": ""}}));
        if split {
            pieces.push(json!({"function": {"name": rest}}));
        }
        if style.all_at_once {
            pieces[0]["function"]["arguments"] = json!(arguments.concat());
        } else {
            pieces.extend(arguments.iter().map(|piece| json!({"function": {"arguments": piece}})));
        }
        if style.late_id && pieces.len() > 1 && !style.no_index && !style.same_index {
            let id = pieces[0]["id"].take();
            pieces.last_mut().unwrap()["id"] = id;
        }
        pieces[0]["extra_content"] = json!({"google": {"thought_signature": "c2ln"}});
        for piece in &mut pieces {
            match (style.no_index, style.same_index) {
                (true, _) => {}
                (_, true) => piece["index"] = json!(0),
                _ => piece["index"] = json!(at),
            }
        }
        pieces
    }

    /// As a provider answers without a stream.
    pub fn json(&self, round: usize, style: &Style) -> Vec<u8> {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| {
                json!({"id": Self::id(round, at),
            "type": "function", "function": {"name": name, "arguments": arguments.concat()}})
            })
            .collect();
        let mut message = json!({"role": "assistant", "content": self.texts.concat()});
        if !self.thoughts.is_empty() {
            message["reasoning_content"] = json!(self.thoughts.concat());
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let body = json!({"id": format!("chat-{round}"), "created": 1000 + round, "usage": Self::usage(round),
            "choices": [{"index": 0, "message": message, "finish_reason": self.reason(style)}]});
        serde_json::to_vec_pretty(&body).unwrap()
    }
}

/// What a client had of an answer.
#[derive(Debug, Default, PartialEq)]
pub struct Had {
    pub text: String,
    pub thoughts: String,
    /// Id, name, arguments.
    pub calls: Vec<(String, String, String)>,
    pub reason: String,
    pub usage: Value,
}

/// Reads a stream as a strict client does.
pub fn read_strictly(stream: &[u8], style: &Style) -> Had {
    let text = std::str::from_utf8(stream).unwrap().replace("\r\n", "\n");
    assert!(text.ends_with("\n\n"), "{text}");
    let mut had = Had::default();
    let (mut ids, mut ended, mut done, mut chunks) = (Vec::new(), false, false, 0);
    let mut at_index: Vec<Option<u64>> = Vec::new();
    for event in text.trim_end_matches('\n').split("\n\n") {
        if event.starts_with(':') {
            continue;
        }
        let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
        assert!(!done, "{event:?} comes behind the end");
        if data == "[DONE]" {
            done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(data).unwrap();
        ids.push((chunk["id"].clone(), chunk["created"].clone()));
        if chunk["usage"].is_object() {
            had.usage = chunk["usage"].clone();
        }
        let Some(choice) = chunk["choices"].get(0) else { continue };
        assert!(!ended, "{event:?} comes behind the reason");
        let delta = &choice["delta"];
        if chunks > 0 && !style.role_each {
            assert!(delta["role"].is_null(), "{event:?}: a second role");
        } else if chunks == 0 {
            assert_eq!(delta["role"], "assistant");
        }
        chunks += 1;
        had.text.push_str(delta["content"].as_str().unwrap_or_default());
        had.thoughts.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            let (index, id) = (piece["index"].as_u64(), piece["id"].as_str().unwrap_or_default());
            let starts = match index {
                Some(_) if style.same_index => !id.is_empty(),
                Some(index) => index as usize >= had.calls.len(),
                None => !id.is_empty(),
            };
            if starts {
                if let (Some(index), false) = (index, style.same_index) {
                    assert_eq!(index as usize, had.calls.len(), "a gap between calls");
                }
                had.calls.push(Default::default());
                at_index.push(index);
            }
            let at = index.filter(|_| !style.same_index).map_or(had.calls.len() - 1, |index| index as usize);
            let call = had.calls.get_mut(at).unwrap();
            call.0.push_str(id);
            call.1.push_str(piece["function"]["name"].as_str().unwrap_or_default());
            call.2.push_str(piece["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            (ended, had.reason) = (true, reason.to_owned());
        }
    }
    assert!(done && ended, "{text}");
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    had
}

pub fn read_json(body: &[u8]) -> Had {
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!((&body["id"], &body["created"]), (&json!("chat-0"), &json!(1000)));
    let choice = &body["choices"][0];
    let message = &choice["message"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let call =
        |call: &Value| (text(&call["id"]), text(&call["function"]["name"]), text(&call["function"]["arguments"]));
    if let Some(calls) = message.get("tool_calls") {
        assert!(!calls.as_array().unwrap().is_empty());
    }
    Had {
        text: text(&message["content"]),
        thoughts: text(&message["reasoning_content"]),
        calls: message["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        reason: text(&choice["finish_reason"]),
        usage: body["usage"].clone(),
    }
}

/// What came of a run of rounds.
pub struct Run {
    pub shown: Vec<u8>,
    pub asides: Option<Aside>,
    /// Per round that was answered: turn and results.
    pub rounds: Vec<(Bytes, Bytes)>,
    pub handed: bool,
}

/// Runs scripts as rounds; the last one is the last round that is allowed.
pub fn run(scripts: &[Script], form: Form, style: &Style, mut cuts: Vec<usize>) -> Run {
    let own = OWN.iter().map(|name| (*name).to_owned()).collect();
    let mut answer = Answer::new(Dialect::Chat, form, own);
    let mut run = Run { shown: Vec::new(), asides: None, rounds: Vec::new(), handed: false };
    let mut results = Vec::new();
    for (round, script) in scripts.iter().enumerate() {
        let body = match form {
            Form::Stream => script.stream(round, style),
            Form::Json => script.json(round, style),
        };
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(cuts.pop().unwrap_or(rest.len()).clamp(1, rest.len()));
            run.shown.extend(answer.push(&Bytes::copy_from_slice(piece)).concat());
            rest = more;
        }
        let ending = answer.end();
        match &ending {
            Ending::Answered => {}
            Ending::Again(round) | Ending::Handed(round) => {
                let of = |call: &super::OwnCall| OwnResult { text: format!("result of {}", call.id), failed: false };
                let said: Vec<OwnResult> = round.calls.iter().map(of).collect();
                run.handed = matches!(ending, Ending::Handed(_));
                run.rounds.push((round.turn.clone(), Dialect::Chat.results(round, &said)));
                results.push(said);
            }
        }
        let last = round + 1 == scripts.len();
        if matches!(ending, Ending::Again(_)) && last {
            results.pop();
            run.rounds.pop();
        }
        if last || !matches!(ending, Ending::Again(_)) {
            run.shown.extend(answer.finish().concat());
            break;
        }
        answer.next_round();
    }
    run.asides = answer.aside(&results);
    run
}

pub fn scripts() -> impl Strategy<Value = Vec<Script>> {
    let word = || prop::sample::select(vec!["one ", "zw\u{f6}lf", " three", "\n", "\u{1f600} four", "\"quoted\""]);
    let words = move || prop::collection::vec(word().prop_map(str::to_owned), 0..3);
    let arguments = || {
        let piece = prop::sample::select(vec!["{\"id\"", ":\"a\"}", "", "{}"]);
        prop::collection::vec(piece.prop_map(str::to_owned), 0..4)
    };
    let client = prop::sample::select(vec!["read_file", "re", "read_evicted_more", "bash", "session"]);
    let own = prop::sample::select(OWN.to_vec());
    let call = move |name: BoxedStrategy<&'static str>| (name.prop_map(str::to_owned), arguments());
    let own_call = call(own.clone().boxed());
    let any_call = call(prop_oneof![own, client].boxed());
    let between = (words(), words(), prop::collection::vec(own_call, 1..3));
    let last = (words(), words(), prop::collection::vec(any_call, 0..4));
    let script = |(thoughts, texts, calls)| Script { thoughts, texts, calls };
    (prop::collection::vec(between.prop_map(script), 0..3), last.prop_map(script)).prop_map(|(mut rounds, last)| {
        rounds.push(last);
        rounds
    })
}

pub fn styles() -> impl Strategy<Value = Style> {
    any::<[bool; 10]>().prop_map(|on| Style {
        crlf: on[0],
        comments: on[1],
        split_names: on[2],
        no_index: on[3] && on[4],
        same_index: on[3] && !on[4],
        late_id: on[5],
        usage_each: on[6],
        all_at_once: on[7],
        role_each: on[8],
        reason_stop: on[9],
    })
}

/// What a client must have of it all.
pub fn expected(scripts: &[Script], style: &Style) -> Had {
    let last = scripts.last().unwrap();
    let round = scripts.len() - 1;
    let shown = last.calls.iter().enumerate().filter(|(_, (name, _))| !Script::is_own(name));
    let calls: Vec<_> =
        shown.map(|(at, (name, arguments))| (Script::id(round, at), name.clone(), arguments.concat())).collect();
    let hidden_only = calls.is_empty() && !last.calls.is_empty();
    let mut usage = Script::usage(round);
    let before: u64 = (0..round as u64).map(|round| 10 + round).sum();
    usage["completion_tokens"] = json!(10 + round as u64 + before);
    usage["total_tokens"] = json!(usage["total_tokens"].as_u64().unwrap() + before);
    usage["completion_tokens_details"]["reasoning_tokens"] = json!(3 * (round + 1));
    Had {
        text: scripts.iter().flat_map(|script| script.texts.clone()).collect(),
        thoughts: scripts.iter().flat_map(|script| script.thoughts.clone()).collect(),
        calls,
        reason: if hidden_only { "stop" } else { last.reason(style) }.to_owned(),
        usage,
    }
}
