use super::super::super::request::{Api, kind};
use super::*;

const OVERFLOW: Misfit = Misfit::Overflow { input: 70_000, tools: 900, output: 0, limit: 65_536 };
const BUDGET: Misfit = Misfit::Budget { input: 60_000, tools: 900, output: 8_000, limit: 65_536 };

fn request(stream: bool) -> ModelRequest {
    ModelRequest::new(Api::Responses, json!({"model": "m", "stream": stream, "input": "go"}))
}

fn events(surface: Surface) -> Vec<Value> {
    let refused = surface.refuse(OVERFLOW, &request(true));
    assert_eq!((refused.status, refused.content_type), (200, "text/event-stream"), "{surface:?}");
    let body = String::from_utf8(refused.body.to_vec()).unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn streams_fail_in_every_nesting() {
    let opening = ["response.created", "response.in_progress"];
    let nestings = [
        (Surface::ErrorEvent, "/error/code", "/error/message"),
        (Surface::FlatErrorEvent, "/code", "/message"),
        (Surface::FailedEvent, "/response/error/code", "/response/error/message"),
        (Surface::FailedWrapped, "/response/error/code", "/response/error/message"),
    ];
    for (surface, code, message) in nestings {
        let events = events(surface);
        assert_eq!(events[..2].iter().map(kind).collect::<Vec<_>>(), opening);
        assert_eq!(events[2].pointer(code).unwrap(), "context_length_exceeded");
        assert!(events[2].pointer(message).unwrap().as_str().unwrap().starts_with("Your input exceeds"));
        assert_eq!(events[2]["sequence_number"], 2);
    }
    let first = events(Surface::FirstEvent);
    assert_eq!((first.len(), kind(&first[0])), (1, "error"));
}

#[test]
fn without_a_stream_it_is_a_status() {
    for surface in Surface::ALL {
        let refused = surface.refuse(OVERFLOW, &request(false));
        assert_eq!(refused.status, 400);
        let body: Value = serde_json::from_slice(&refused.body).unwrap();
        assert!(body["error"]["message"].is_string(), "{surface:?}");
        let budget = surface.refuse(BUDGET, &request(false));
        assert!(String::from_utf8_lossy(&budget.body).contains("8000"), "{surface:?}");
    }
    let copilot = Surface::Copilot.refuse(OVERFLOW, &request(true));
    assert_eq!((copilot.status, copilot.content_type), (400, "text/plain; charset=utf-8"));
    assert_eq!(kind(&Surface::OpenAi.frames(OVERFLOW, &request(true))[0]), "error");
}
