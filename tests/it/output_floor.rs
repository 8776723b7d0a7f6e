//! An output limit is lowered where that is all it takes, and never under what the model needs: its thinking (A14), and
//! what clients go on with (A26).

use compactproxy::demo::messages::{self, surfaces};
use compactproxy::demo::provider::{Provider, Settings, Verdict};
use compactproxy::demo::request::{Api, ModelRequest};
use compactproxy::demo::responses;
use compactproxy::demo::surfaces::Surface;
use compactproxy::demo::window::{Counter, Limit};
use serde_json::{Value, json};

use crate::support::chat::{attempts, pair, words};
use crate::support::json::post_text;

/// What is asked of which API, and the lowest output that may come of it.
#[derive(Debug, Clone, Copy)]
struct Case {
    api: Api,
    budget: Option<u64>,
    floor: u64,
}

const CASES: [Case; 5] = [
    Case { api: Api::Chat, budget: None, floor: 3_000 },
    Case { api: Api::Responses, budget: None, floor: 3_000 },
    Case { api: Api::Messages, budget: None, floor: 3_000 },
    Case { api: Api::Messages, budget: Some(1_024), floor: 3_000 },
    Case { api: Api::Messages, budget: Some(4_096), floor: 4_097 },
];

impl Case {
    /// The members with the output limit, and with the conversation.
    fn keys(self) -> (&'static str, &'static str) {
        match self.api {
            Api::Chat => ("max_completion_tokens", "messages"),
            Api::Responses => ("max_output_tokens", "input"),
            Api::Messages => ("max_tokens", "messages"),
        }
    }

    fn path(self) -> &'static str {
        match self.api {
            Api::Chat => "chat/completions",
            Api::Responses => "responses",
            Api::Messages => "messages",
        }
    }

    /// A request that asks for more output than there is room for.
    fn body(self, stream: bool) -> Value {
        let (limit, array) = self.keys();
        let said = |n: u64| ["user", "assistant"].map(|role| json!({"role": role, "content": words(n, 600)}));
        let mut history: Vec<Value> = (0..8).flat_map(said).collect();
        history.push(json!({"role": "user", "content": "Go on."}));
        let mut body = json!({"model": "demo-model", "stream": stream, limit: self.floor + 2_500, array: history});
        if let Some(budget) = self.budget {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
        }
        body
    }

    /// Sends it where so many tokens are left beside the prompt: the bodies that reached the provider.
    async fn sent(self, room: u64, stream: bool) -> Vec<Value> {
        let body = self.body(stream);
        let prompt = Counter::default().prompt(&ModelRequest::new(self.api, body.clone())).total();
        let settings = Settings {
            limit: Limit::of(prompt + room),
            surface: Surface::OpenAi,
            messages: messages::Settings { surface: surfaces::Surface::ErrorEvent, ..messages::Settings::default() },
            responses: responses::Settings { surface: responses::surfaces::Surface::ErrorEvent, ..Default::default() },
            ..Settings::default()
        };
        let (provider, proxy): (Provider, _) = pair(settings, "[compaction]\n").await;
        let url = format!("http://{}/v1/{}", proxy.proxy_addr, self.path());
        let (status, answer) = post_text(&url, &[("anthropic-version", "2023-06-01")], &body).await;
        let sent = attempts(&provider);
        let verdicts: Vec<Verdict> = sent.iter().map(|attempt| attempt.verdict).collect();
        assert_eq!(status, 200, "{self:?} {room} {stream}: {answer}");
        assert_eq!(verdicts, [Verdict::Budget, Verdict::Accepted], "{self:?} {room} {stream}: {answer}");
        assert!(!answer.contains("\"error\":{"), "{answer}");
        assert_eq!(sent[0].json(), body);
        sent.iter().map(|attempt| attempt.json()).collect()
    }
}

#[tokio::test]
async fn an_output_is_lowered_to_what_is_left_down_to_its_floor() {
    for case in CASES {
        let (limit, _) = case.keys();
        for stream in [false, true] {
            let sent = case.sent(case.floor + 200, stream).await;
            let lowered = sent[1][limit].as_u64().unwrap();
            assert!((case.floor..case.floor + 200).contains(&lowered), "{case:?} {stream}: {lowered}");
            let mut same = sent[1].clone();
            same[limit] = sent[0][limit].clone();
            assert_eq!(same, sent[0], "nothing else differs");
        }
    }
}

#[tokio::test]
async fn where_less_than_the_floor_is_left_the_history_is_shortened() {
    for case in CASES {
        let (limit, array) = case.keys();
        for stream in [false, true] {
            let sent = case.sent(case.floor - 100, stream).await;
            let left = sent[1][limit].as_u64().unwrap();
            assert!((case.floor..=case.floor + 2_500).contains(&left), "{case:?} {stream}: {left}");
            assert!(sent[1][array].to_string().len() < sent[0][array].to_string().len() * 3 / 4, "{case:?} {stream}");
            assert_eq!(sent[1]["thinking"], sent[0]["thinking"], "what is thought is the client's");
        }
    }
}
