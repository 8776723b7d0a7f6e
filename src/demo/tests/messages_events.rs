use super::super::super::answer::ToolCall;
use super::super::super::request::Api;
use super::*;

const USAGE: Usage = Usage { prompt: 3_000, cached: 2_000, written: 900, completion: 7 };

fn request() -> ModelRequest {
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    ModelRequest::new(
        Api::Messages,
        json!({"model": "m", "thinking": thinking, "messages": [{"role": "user", "content": "go"}]}),
    )
}

fn answer() -> Answer {
    let call =
        ToolCall { id: "t".to_owned(), name: "f".to_owned(), arguments: json!({"a": "é".repeat(99)}).to_string() };
    Answer { calls: vec![call], ..Answer::text("Zeile für Zeile. ".repeat(9)) }
}

fn data(events: &[Bytes]) -> Vec<Value> {
    let parse = |event: &Bytes| {
        let text = std::str::from_utf8(event).unwrap();
        let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    events.iter().map(parse).collect()
}

#[test]
fn a_stream_adds_up_to_the_message() {
    let events = data(&events(&answer(), &request(), USAGE));
    let mut kinds: Vec<&str> = events.iter().map(kind).collect();
    kinds.dedup();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected = [
        &["message_start", "content_block_start", "ping"][..],
        &block[1..],
        &block,
        &block,
        &["message_delta", "message_stop"],
    ];
    assert_eq!(kinds, expected.concat());
    let mut content: Vec<Value> = Vec::new();
    let mut input = String::new();
    for event in &events {
        match kind(event) {
            "content_block_start" => content.push(event["content_block"].clone()),
            "content_block_delta" => {
                let (delta, block) = (&event["delta"], content.last_mut().unwrap());
                for key in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[key].as_str() {
                        block[key] = format!("{}{more}", block[key].as_str().unwrap()).into();
                    }
                }
                input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if kind(content.last().unwrap()) == "tool_use" => {
                content.last_mut().unwrap()["input"] = serde_json::from_str(&input).unwrap();
            }
            _ => {}
        }
    }
    let whole: Value = serde_json::from_slice(&json(&answer(), &request(), USAGE)).unwrap();
    assert_eq!(whole["content"], Value::from(content));
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["input_tokens"], 100);
    assert_eq!(whole["usage"]["cache_read_input_tokens"], 2_000);
    assert_eq!(whole["usage"]["cache_creation_input_tokens"], 900);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 100);
}

#[test]
fn how_it_stopped() {
    let stops = |answer: &Answer| stop_reason(answer);
    assert_eq!(stops(&Answer::text("a")), "end_turn");
    assert_eq!(stops(&Answer { finish: Some("length"), ..Answer::text("a") }), "max_tokens");
    let full = Answer { finish: Some("model_context_window_exceeded"), ..Answer::text("a") };
    assert_eq!(stops(&full), "model_context_window_exceeded");
    assert_eq!(stops(&Answer { refusal: Some("no".to_owned()), ..Answer::default() }), "refusal");
}
