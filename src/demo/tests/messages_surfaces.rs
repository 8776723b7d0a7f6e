use super::super::super::request::Api;
use super::*;

const OVERFLOW: Misfit = Misfit::Overflow { input: 208_310, tools: 900, output: 0, limit: 200_000 };
const BUDGET: Misfit = Misfit::Budget { input: 189_136, tools: 900, output: 20_000, limit: 204_648 };

fn refused(surface: Surface, misfit: Misfit, stream: bool) -> (u16, String) {
    let request = ModelRequest::new(Api::Messages, json!({"model": "m", "stream": stream, "messages": []}));
    let refused = surface.refuse(misfit, &request);
    (refused.status, String::from_utf8(refused.body.to_vec()).unwrap())
}

#[test]
fn every_face_has_its_status_and_words() {
    let faces = [
        (Surface::Anthropic, 400, "prompt is too long: 208310 tokens > 200000 maximum"),
        (Surface::Proxied, 500, "\"{\\\"error\\\""),
        (Surface::Copilot, 400, "model_max_prompt_tokens_exceeded"),
        (Surface::Vertex, 413, "Prompt is too long"),
        (Surface::TooLarge, 413, "request_too_large"),
        (Surface::Numberless, 400, "Prompt exceeds maximum context length"),
        (Surface::ErrorEvent, 400, "prompt is too long"),
    ];
    assert_eq!(faces.len(), Surface::ALL.len());
    for (surface, status, text) in faces {
        let refused = refused(surface, OVERFLOW, false);
        assert!(refused.0 == status && refused.1.contains(text), "{surface:?}: {refused:?}");
    }
    let budget = refused(Surface::Anthropic, BUDGET, true).1;
    let text = "input length and `max_tokens` exceed context limit: 189136 + 20000 > 204648, decrease";
    assert!(budget.contains(text), "{budget}");
}

#[test]
fn a_stream_may_begin_well() {
    let (status, body) = refused(Surface::ErrorEvent, OVERFLOW, true);
    assert_eq!(status, 200);
    assert!(body.starts_with("event: message_start\ndata: {") && body.contains("\n\nevent: error\ndata: {"), "{body}");
    let Reply::Raw { status, .. } = error(529, "overloaded_error", "Overloaded") else { panic!("another reply") };
    assert_eq!(status, 529);
    let request = ModelRequest::new(Api::Messages, json!({"model": "m", "messages": []}));
    let Reply::Raw { body, .. } = broken_stream(&request, "overloaded_error", "Overloaded") else { panic!("another") };
    assert!(String::from_utf8_lossy(&body).contains("\"overloaded_error\""));
}
