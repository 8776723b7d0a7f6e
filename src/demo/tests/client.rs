use bytes::Bytes;

use super::super::answer::Answer;
use super::super::request::ModelRequest;
use super::super::rules::unreadable;
use super::super::session::coding_session;
use super::super::{messages as strict_messages, responses as strict_responses};
use super::*;

const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Messages];

fn call(id: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(), name: "grep".to_owned(), arguments: r#"{"path":"src","pattern":"a\"b…"}"#.to_owned()
    }
}

fn answer() -> Answer {
    let text = "I look twice, since once is not enough for a delta of 48 characters.";
    Answer { calls: vec![call("st000c000"), call("st000c001")], ..Answer::text(text) }
}

/// The session's first request.
fn request(api: Api, mode: Mode) -> ModelRequest {
    let session = coding_session();
    let history: Vec<String> = of(api).opening(&session).iter().map(Value::to_string).collect();
    let ask = Ask { model: "m", session: &session, history: &history, mode, max_output: None };
    ModelRequest::new(api, serde_json::from_str(&of(api).body(&ask)).unwrap())
}

fn events(api: Api, answer: &Answer) -> Vec<Bytes> {
    let (request, usage) = (request(api, Mode::Stream), Usage { prompt: 9, cached: 4, written: 0, completion: 3 });
    match api {
        Api::Chat => answer.events(&request, usage),
        Api::Responses => strict_responses::events(answer, &request, usage),
        Api::Messages => strict_messages::events(answer, &request, usage),
    }
}

fn whole(api: Api, answer: &Answer) -> Bytes {
    let (request, usage) = (request(api, Mode::Whole), Usage { prompt: 9, cached: 4, written: 0, completion: 3 });
    match api {
        Api::Chat => answer.json(&request, usage),
        Api::Responses => strict_responses::json(answer, &request, usage),
        Api::Messages => strict_messages::json(answer, &request, usage),
    }
}

#[test]
fn answers_are_read_alike_in_a_stream_and_whole() {
    for api in APIS {
        let streamed = of(api).read_stream(&events(api, &answer()).concat()).unwrap();
        let whole = of(api).read_whole(&whole(api, &answer())).unwrap();
        assert_eq!(streamed.calls, answer().calls, "{api:?}");
        assert_eq!(streamed.usage, Usage { prompt: 9, cached: 4, written: 0, completion: 3 }, "{api:?}");
        let stamped = |heard: &Heard| heard.items.iter().map(|item| without(item.clone(), of(api))).collect();
        let (streamed, whole): (Vec<Value>, Vec<Value>) = (stamped(&streamed), stamped(&whole));
        assert_eq!(streamed, whole, "{api:?}");
    }
}

#[test]
fn what_the_model_thought_goes_back_as_it_came() {
    let heard = of(Api::Messages).read_stream(&events(Api::Messages, &answer()).concat()).unwrap();
    let sent = strict_messages::answer::content(&answer(), &request(Api::Messages, Mode::Stream));
    assert_eq!(heard.items[0]["content"], Value::from(sent));
    assert!(heard.items[0]["content"][0]["signature"].as_str().is_some_and(|signature| !signature.is_empty()));
    let heard = of(Api::Responses).read_stream(&events(Api::Responses, &answer()).concat()).unwrap();
    assert_eq!(heard.items, strict_responses::answer::items(&answer(), &request(Api::Responses, Mode::Stream)));
    assert!(heard.items[0]["encrypted_content"].is_string());
}

#[test]
fn cut_and_failed_streams_are_errors() {
    for api in APIS {
        let events = events(api, &answer());
        for end in 0..events.len() {
            assert!(of(api).read_stream(&events[..end].concat()).is_err(), "{api:?}: {end} events");
        }
        assert!(of(api).read_whole(unreadable().body.to_string().as_bytes()).is_err(), "{api:?}");
    }
    let failed =
        b"data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"message\":\"x\"}}}\n\n";
    assert_eq!(of(Api::Responses).read_stream(failed).unwrap_err(), "x");
    let overloaded = b"data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"y\"}}\n\n";
    assert_eq!(of(Api::Messages).read_stream(overloaded).unwrap_err(), "y");
}

#[test]
fn calls_and_results_are_found_where_they_stand() {
    for api in APIS {
        let heard = of(api).read_whole(&whole(api, &answer())).unwrap();
        let calls: Vec<Part> = heard.items.iter().flat_map(|item| of(api).parts(item)).collect();
        let expected = heard.calls.iter().map(|ToolCall { id, name, arguments }| Part::Call {
            id: id.clone(),
            tool: name.clone(),
            arguments: arguments.clone(),
        });
        assert_eq!(calls, expected.collect::<Vec<_>>(), "{api:?}");
        let results: Vec<_> = heard.calls.iter().map(|call| (call, format!("of {}", call.id))).collect();
        let results = of(api).results(&results);
        let results: Vec<Part> = results.iter().flat_map(|item| of(api).parts(item)).collect();
        let expected =
            ["st000c000", "st000c001"].map(|id| Part::Result { id: id.to_owned(), text: format!("of {id}") });
        assert_eq!(results, expected, "{api:?}");
    }
}

#[test]
fn the_history_keeps_its_bytes_but_for_the_moving_breakpoint() {
    let session = coding_session();
    for api in APIS {
        let history: Vec<String> = ["one", "two"].map(|text| of(api).user(text).to_string()).to_vec();
        let ask = Ask { model: "m", session: &session, history: &history, mode: Mode::Whole, max_output: Some(7_000) };
        let body = of(api).body(&ask);
        assert!(body.contains(&format!("\"{}\":[{},", of(api).list(), history[0])), "{api:?}");
        assert!(body.contains(":7000"), "{api:?}");
        assert_eq!(body.ends_with(&format!("{}]}}", history[1])), api != Api::Messages, "{api:?}");
        assert_eq!(body.matches("cache_control").count(), if api == Api::Messages { 2 } else { 0 }, "{api:?}");
    }
}

#[test]
fn stamps_are_left_out_at_any_depth() {
    let item = r#"{"content":[{"signature":"s","text":"t"}],"id":"i"}"#.to_owned();
    let left = |api| said(of(api), std::slice::from_ref(&item))[0].to_string();
    assert_eq!(left(Api::Chat), item);
    assert_eq!(left(Api::Messages), r#"{"content":[{"text":"t"}],"id":"i"}"#);
    assert_eq!(left(Api::Responses), r#"{"content":[{"signature":"s","text":"t"}]}"#);
}

#[test]
fn what_the_model_thought_is_not_what_was_said() {
    let block = r#"{"content":[{"text":"t","type":"text"},{"thinking":"t","type":"thinking"}]}"#.to_owned();
    assert_eq!(said(of(Api::Messages), &[block])[0].to_string(), r#"{"content":[{"text":"t","type":"text"}]}"#);
    let item = r#"{"type":"reasoning"}"#.to_owned();
    assert!(said(of(Api::Responses), std::slice::from_ref(&item)).is_empty());
    assert_eq!(said(of(Api::Chat), &[item]).len(), 1);
}
