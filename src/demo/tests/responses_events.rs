use super::super::super::answer::ToolCall;
use super::super::super::request::Api;
use super::*;

fn request(body: Value) -> ModelRequest {
    ModelRequest::new(Api::Responses, body)
}

const USAGE: Usage = Usage { prompt: 2_000, cached: 1_024, written: 0, completion: 7 };

fn answer() -> Answer {
    let call = |id: &str, name: &str| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: "{\"a\": 1}".to_owned(),
    };
    Answer { calls: vec![call("c1", "read"), call("c2", "exec")], ..Answer::text("Zeile für Zeile. ".repeat(9)) }
}

#[test]
fn a_stream_tells_the_whole_response_in_order() {
    let tools = json!([{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]);
    let body = json!({"model": "m", "input": "go", "stream": true, "reasoning": {}, "tools": tools});
    let events = frames(&answer(), &request(body.clone()), USAGE);
    let kinds: Vec<&str> = events.iter().map(kind).collect();
    let mut short = kinds.clone();
    short.dedup();
    assert_eq!(
        short,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.custom_tool_call_input.delta",
            "response.custom_tool_call_input.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert!(events.iter().enumerate().all(|(n, event)| event["sequence_number"] == n));
    let whole: Value = serde_json::from_slice(&json(&answer(), &request(body), USAGE)).unwrap();
    assert_eq!(events.last().unwrap()["response"], whole);
    let done: Vec<&Value> =
        events.iter().filter(|event| kind(event) == "response.output_item.done").map(|event| &event["item"]).collect();
    assert_eq!(whole["output"], json!(done));
    assert_eq!(whole["output"][3]["namespace"], "functions");
    let deltas = events.iter().filter(|event| kind(event) == "response.output_text.delta");
    let text: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(text, answer().text.unwrap());
    assert_eq!(whole["usage"]["input_tokens_details"]["cached_tokens"], 1_024);
    assert_eq!(whole["usage"]["total_tokens"], 2_007);
}

#[test]
fn an_answer_cut_short_is_incomplete() {
    let cut = Answer { finish: Some("length"), ..Answer::text("a") };
    let last = frames(&cut, &request(json!({"model": "m", "input": "go"})), USAGE).pop().unwrap();
    assert_eq!(kind(&last), "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

#[test]
fn asked_to_compact_it_gives_one_item() {
    let body = json!({"model": "m", "input": [{"role": "user", "content": "a"}, {"type": "compaction_trigger"}]});
    let items = items(&answer(), &request(body));
    assert_eq!(items.len(), 1);
    assert_eq!(kind(&items[0]), "compaction");
    // The scripted model finds its own words in it; what was said before is gone.
    assert!(text(&items[0], "encrypted_content").ends_with(&answer().text.unwrap()));
}
