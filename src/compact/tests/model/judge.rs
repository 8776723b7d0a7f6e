//! The embedded strict provider as the judge of what is sent: every rule that it has, with what it remembers.

use std::collections::HashMap;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::demo::messages::{Binding, Prefill, Settings, Signatures, rules as messages};
use crate::demo::profiles::Profile;
use crate::demo::request::{Api, Ids, ModelRequest, Purpose, kind, list, role, text};
use crate::demo::responses::answer::response_id;
use crate::demo::responses::rules as responses;
use crate::demo::responses::store::Store;
use crate::demo::rules::{Arguments, Empty, Rules, Violation};
use crate::wire::Dialect;

use super::history::{Agent, Message};
use super::items::{SAME, dialect, is_made};
use super::turn::Turn;

/// Names of what a client may hold at the provider, beside the responses that it continues.
pub const HELD: &str = "msg_held";

pub struct Judge {
    binding: Binding,
    signatures: Signatures,
    store: Store,
    /// The conversation that the provider holds.
    pub conversation: String,
    responses: usize,
}

impl Judge {
    pub fn new(binding: Binding) -> Self {
        let mut store = Store::default();
        let conversation = text(&store.open(), "id").to_owned();
        let held = json!({"type": "message", "id": HELD, "role": "assistant", "content": "What is held."});
        store.keep(&ModelRequest::new(Api::Responses, json!({"model": "m", "input": "x"})), &[held], None);
        Self { binding, signatures: Signatures::default(), store, conversation, responses: 1 }
    }

    /// Rows are lost: what was signed over rewritten history is sent with another.
    pub fn forgets(&mut self) {
        self.binding = Binding::Block;
        self.signatures = Signatures::default();
    }

    /// Lets the provider hold this history; the response's id.
    pub fn holds(&mut self, history: &[Message]) -> String {
        self.responses += 1;
        let items: Vec<Value> = history.iter().map(|message| serde_json::from_str(&message.json).unwrap()).collect();
        let mut request = ModelRequest::new(Api::Responses, json!({"model": "m", "input": items}));
        request.index = self.responses;
        self.store.keep(&request, &[], None);
        response_id(&request)
    }

    /// What the client gives keeps the rules by itself, and so does what is sent for it.
    pub fn accepts(&mut self, agent: &Agent, turn: &Turn) {
        let (raw, sent) = (json(&turn.raw), json(&turn.sent));
        match dialect(&turn.raw) {
            Dialect::Chat => chat(&raw, &sent),
            Dialect::Responses => {
                self.answered(&raw);
                assert_eq!(self.items(&raw), None, "the agent itself breaks a rule: {raw}");
                assert_eq!(self.items(&sent), None, "{sent}\nfor {raw}");
            }
            Dialect::Messages => {
                let structure = blocks(&raw, Binding::Block, &mut Signatures::default());
                assert_eq!(structure, None, "the agent itself breaks a rule: {raw}");
                let bound = agent.manner.signed == super::history::Signed::Bound;
                let binding = if bound && !turn.original { self.binding } else { Binding::Block };
                assert_eq!(blocks(&sent, binding, &mut self.signatures), None, "{sent}\nfor {raw}");
            }
        }
    }

    /// As [`accepts`](Self::accepts), of another body for the same request, in which the beginning differs.
    pub fn accepts_else(&self, raw: &[u8], out: &[u8]) {
        let (raw, out) = (json(raw), json(out));
        let broken = match dialect_of(&raw) {
            Dialect::Chat => return chat(&raw, &out),
            Dialect::Responses => self.items(&out),
            Dialect::Messages => blocks(&out, Binding::Block, &mut Signatures::default()),
        };
        assert_eq!(broken, None, "{out}");
    }

    fn items(&self, body: &Value) -> Option<Violation> {
        let checked = responses::parameters(body).and_then(|()| {
            let (input, held) = self.store.resolve(body, &HashMap::new())?;
            let request = ModelRequest { input, held, ..ModelRequest::new(Api::Responses, body.clone()) };
            responses::check(&request, Ids::Own, &self.store)
        });
        checked.err()
    }

    /// The provider knows which reasoning each item of its answers came with (R4).
    fn answered(&mut self, raw: &Value) {
        let request = ModelRequest::new(Api::Responses, json!({"model": "m", "store": false}));
        let (mut answers, mut goes_on): (Vec<Vec<Value>>, bool) = (vec![Vec::new()], false);
        for item in list(raw, "input") {
            if !is_made(item) {
                goes_on = false;
                continue;
            }
            match answers.last_mut().filter(|_| goes_on || text(item, "id").ends_with(SAME)) {
                Some(answer) => answer.push(item.clone()),
                None => answers.push(vec![item.clone()]),
            }
            goes_on = true;
        }
        for answer in answers {
            let led = answer.into_iter().skip_while(|item| kind(item) != "reasoning");
            let own: Vec<Value> = led.filter(|item| !text(item, "id").is_empty()).collect();
            self.store.keep(&request, &own, None);
        }
    }
}

/// C1 to D16: whatever a provider takes of the client it takes of the proxy.
fn chat(raw: &Value, out: &Value) {
    let said = |empty: Empty| Rules { empty, ..Rules::default() }.check(raw).err();
    let empty = if said(Empty::Nothing).is_none() { Empty::Nothing } else { Empty::Text };
    assert_eq!(said(empty), None, "the agent itself breaks a rule: {raw}");
    for profile in Profile::ALL {
        for arguments in [Arguments::Opaque, Arguments::Parsed] {
            let rules = Rules { profile, arguments, empty };
            if rules.check(raw).is_ok() {
                assert_eq!(rules.check(out).err(), None, "{profile:?}: {out}");
            }
        }
    }
}

/// A1 to A27.
fn blocks(body: &Value, binding: Binding, signatures: &mut Signatures) -> Option<Violation> {
    let settings = Settings { binding, prefill: Prefill::Refused, ids: Ids::Own, ..Settings::default() };
    let mut request = ModelRequest::new(Api::Messages, body.clone());
    request.headers = betas(body);
    if binding == Binding::Conversation {
        let answers = list(body, "messages").iter().filter(|message| role(message) == "assistant");
        answers.for_each(|answer| signatures.issued(list(answer, "content")));
    }
    messages::check(&request, Purpose::Answer, &settings, signatures).err()
}

/// The beta features that the members of a body need.
fn betas(body: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut add = |name: &'static str| {
        headers.append("anthropic-beta", HeaderValue::from_static(name));
    };
    if body.pointer("/thinking/block_binding").is_some() {
        add("thinking-binding-controls-2026-08-01");
    }
    if body.get("context_management").is_some() {
        add("compact-2026-01-12");
    }
    headers
}

fn dialect_of(body: &Value) -> Dialect {
    match text(body, "model") {
        super::items::MODEL => Dialect::Responses,
        super::blocks::MODEL => Dialect::Messages,
        _ => Dialect::Chat,
    }
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Whether an item or a block is of a type that is in no specification.
pub fn is_novel(value: &Value) -> bool {
    matches!(kind(value), "sandbox_note" | "novel_block" | "container_upload" | "teleport_call")
}
