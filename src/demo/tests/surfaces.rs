use std::path::Path;

use super::*;

const OVERFLOW: Misfit = Misfit::Overflow { input: 70_000, tools: 900, output: 0, limit: 65_536 };
const BUDGET: Misfit = Misfit::Budget { input: 60_000, tools: 900, output: 8_000, limit: 65_536 };

fn text(refused: &Refused) -> &str {
    std::str::from_utf8(&refused.body).unwrap()
}

#[test]
fn openai_says_it_in_its_own_words() {
    let refused = Surface::OpenAi.refuse(OVERFLOW, true);
    let body: Value = serde_json::from_slice(&refused.body).unwrap();
    let message = "This model's maximum context length is 65536 tokens. However, your messages resulted in 70000 tokens. Please reduce the length of the messages.";
    let error = json!({"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}});
    assert_eq!((refused.status, body), (400, error));
    let budget = Surface::OpenAi.refuse(BUDGET, true);
    assert!(text(&budget).contains("you requested 68000 tokens (60000 in the messages, 8000 in the completion)"));
}

#[test]
fn every_surface_tells_overflow_from_budget_where_it_tells_anything() {
    for surface in Surface::ALL.into_iter().filter(|surface| *surface != Surface::TooLarge) {
        for stream in [true, false] {
            let (overflow, budget) = (surface.refuse(OVERFLOW, stream), surface.refuse(BUDGET, stream));
            assert!(text(&overflow).contains("70000") && text(&overflow).contains("65536"), "{surface:?}");
            assert!(text(&budget).contains("8000") && text(&budget).contains("65536"), "{surface:?}");
        }
    }
}

#[test]
fn the_odd_ones_look_as_they_should() {
    let first = Surface::SglangFirstEvent.refuse(OVERFLOW, true);
    assert_eq!((first.status, first.content_type), (200, "text/event-stream"));
    assert!(text(&first).starts_with("data: {\"error\""));
    assert_eq!(Surface::SglangFirstEvent.refuse(OVERFLOW, false).status, 400);
    let second = Surface::AfterBookkeeping.refuse(OVERFLOW, true);
    assert!(text(&second).starts_with("data: {\"choices\""));
    assert_eq!(text(&second).matches("data: ").count(), 2);
    assert_eq!(Surface::OpenRouter.refuse(OVERFLOW, false).status, 200);
    assert_eq!(Surface::TooLarge.refuse(OVERFLOW, false).status, 413);
    assert_eq!(Surface::Tgi.refuse(OVERFLOW, false).status, 422);
    assert_eq!(Surface::Server500.refuse(OVERFLOW, false).status, 500);
    assert!(Surface::Gzip.refuse(OVERFLOW, false).gzip);
    assert!(Surface::Echo.refuse(OVERFLOW, false).body.len() > 4_000_000);
}

/// The texts with their numbers blanked are among those that servers were seen to send.
#[test]
fn texts_are_those_of_recorded_errors() {
    let recorded = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl"));
    let Ok(recorded) = std::fs::read_to_string(recorded) else {
        println!("no recorded errors here: skipped");
        return;
    };
    let blank = |text: &str| {
        text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
    };
    let known: String = recorded
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().unwrap().replace("\\\"", "\""))
        .map(|body| blank(&body) + "\n")
        .collect();
    for (surface, misfit) in [
        (Surface::OpenAi, OVERFLOW),
        (Surface::OpenAi, BUDGET),
        (Surface::OpenAiFunctions, OVERFLOW),
        (Surface::Vllm, OVERFLOW),
        (Surface::Vllm, BUDGET),
        (Surface::LlamaCpp, OVERFLOW),
        (Surface::OpenRouter, OVERFLOW),
        (Surface::SglangFirstEvent, OVERFLOW),
        (Surface::SglangFirstEvent, BUDGET),
        (Surface::Tgi, OVERFLOW),
        (Surface::Server500, OVERFLOW),
    ] {
        let body: Value = serde_json::from_slice(&surface.refuse(misfit, false).body).unwrap();
        let paths = ["/error/message", "/message", "/detail", "/error"];
        let message = paths.iter().find_map(|path| body.pointer(path)?.as_str()).unwrap();
        let mut blanked = blank(message);
        blanked.truncate(blanked.find("Make sure that").unwrap_or(blanked.len()));
        assert!(known.contains(&blanked), "{surface:?}: {blanked}");
    }
}
