mod properties;

use super::*;

/// What an upstream does after its head.
#[derive(Debug, Clone, Copy)]
enum Ending {
    End,
    Fail,
    Deadline,
}

/// Plays a response; the step it ended in and the bytes that a relay would have sent.
fn play(sent: Sent, status: u16, chunks: &[&[u8]], ending: Ending) -> (Step, Vec<u8>) {
    let mut hold = Hold::new(sent);
    let mut steps = vec![hold.on_head(status, Coding::Readable)];
    for chunk in chunks {
        steps.push(hold.on_data(Bytes::copy_from_slice(chunk), chunk));
    }
    steps.push(match ending {
        Ending::End => hold.on_end(),
        Ending::Fail => hold.on_failed(),
        Ending::Deadline => hold.on_deadline(),
    });
    let last = *steps.last().unwrap();
    assert_ne!(last, Step::Hold);
    let first_final = steps.iter().position(|step| *step != Step::Hold).unwrap();
    assert!(steps[first_final..].iter().all(|step| *step == last), "more than one end: {steps:?}");
    (last, hold.into_held().concat())
}

fn ends_in(status: u16, body: &str) -> Step {
    play(Sent::Original, status, &[body.as_bytes()], Ending::End).0
}

/// The step after the data alone, before the body has ended.
fn after_data(status: u16, body: &str) -> Step {
    let mut hold = Hold::new(Sent::Original);
    hold.on_head(status, Coding::Readable);
    hold.on_data(Bytes::copy_from_slice(body.as_bytes()), body.as_bytes())
}

fn recovers(step: Step) -> bool {
    matches!(step, Step::Recover(verdict) if verdict != Verdict::Other)
}

const OVERFLOW: &str = r#"{"error":{"message":"prompt is too long: 5000 tokens > 4096 maximum"}}"#;
const QUOTA: &str = r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#;

#[test]
fn statuses_decide_first() {
    for status in [400, 404, 413, 422, 500, 503] {
        assert_eq!(after_data(status, OVERFLOW), Step::Hold);
        assert!(recovers(ends_in(status, OVERFLOW)), "{status}");
        assert_eq!(ends_in(status, QUOTA), Step::Release);
    }
    for status in [201, 204, 301, 401, 402, 403, 429, 502, 529] {
        assert_eq!(Hold::new(Sent::Rewritten).on_head(status, Coding::Readable), Step::Release, "{status}");
    }
}

#[test]
fn a_refused_rewrite_is_told() {
    for (status, expected) in [(400, Step::Rejected(400)), (422, Step::Rejected(422)), (500, Step::Release)] {
        for ending in [Ending::End, Ending::Fail, Ending::Deadline] {
            assert_eq!(play(Sent::Rewritten, status, &[QUOTA.as_bytes()], ending).0, expected);
        }
        assert_eq!(ends_in(status, QUOTA), Step::Release);
        assert_eq!(Hold::new(Sent::Rewritten).on_head(status, Coding::Unknown), expected);
    }
    assert!(recovers(play(Sent::Rewritten, 400, &[OVERFLOW.as_bytes()], Ending::End).0));
    let template = r#"{"error":{"code":500,"message":"Jinja Exception: conversation roles must alternate"}}"#;
    assert_eq!(play(Sent::Rewritten, 500, &[template.as_bytes()], Ending::End).0, Step::Rejected(500));
    assert_eq!(ends_in(500, template), Step::Release, "the client's own body is the client's");
    let tools = r#"{"error":{"message":"No endpoints found that support tool use"}}"#;
    for status in 400..600 {
        let refused = if overflow::is_of_the_moment(status) { Step::Release } else { Step::Rejected(status) };
        assert_eq!(play(Sent::Offering, status, &[tools.as_bytes()], Ending::End).0, refused);
        assert_eq!(ends_in(status, tools), Step::Release, "the client's own tools are the client's");
        let rewritten = play(Sent::Rewritten, status, &[tools.as_bytes()], Ending::End).0;
        assert_eq!(rewritten, if matches!(status, 400 | 422) { Step::Rejected(status) } else { Step::Release });
        let other = if matches!(status, 400 | 422) { Step::Rejected(status) } else { Step::Release };
        assert_eq!(play(Sent::Offering, status, &[QUOTA.as_bytes()], Ending::End).0, other, "{status}");
    }
    for text in [tools.to_owned(), format!("data: {tools}\n\n")] {
        assert_eq!(play(Sent::Offering, 200, &[text.as_bytes()], Ending::End).0, Step::Rejected(400), "{text}");
        assert_eq!(play(Sent::Rewritten, 200, &[text.as_bytes()], Ending::End).0, Step::Release, "{text}");
    }
}

#[test]
fn a_refused_rewrite_is_told_inside_a_success_too() {
    let error = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    let stream = format!("event: ping\ndata: {{\"type\":\"ping\"}}\n\nevent: error\ndata: {error}\n\n");
    for text in [error, &stream] {
        assert_eq!(play(Sent::Rewritten, 200, &[text.as_bytes()], Ending::End).0, Step::Rejected(400), "{text}");
        assert_eq!(play(Sent::Original, 200, &[text.as_bytes()], Ending::End).0, Step::Release, "{text}");
        let busy = text.replace("invalid_request_error", "rate_limit_error");
        assert_eq!(play(Sent::Rewritten, 200, &[busy.as_bytes()], Ending::End).0, Step::Release, "{busy}");
    }
}

#[test]
fn what_cannot_be_decoded_is_relayed() {
    for status in [200, 400, 500] {
        assert_eq!(Hold::new(Sent::Original).on_head(status, Coding::Unknown), Step::Release);
    }
}

#[test]
fn bookkeeping_is_held_until_an_error() {
    let bookkeeping = [
        ": OPENROUTER PROCESSING\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"tool_calls\":null,\"content\":null}}]}\n\n",
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null}}\n\n",
        "event: response.queued\ndata: {\"type\":\"response.queued\",\"response\":{}}\n\n",
        "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":{}}\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\",\"content\":[]}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "\n\n",
    ];
    let errors = [
        format!("data: {OVERFLOW}\n\n"),
        format!("event: error\ndata: {OVERFLOW}\n\n"),
        format!("error: {OVERFLOW}\n\n"),
        "event: error\ndata: prompt is too long: 5000 tokens > 4096 maximum\n\n".to_owned(),
        "data: {\"type\":\"error\",\"code\":\"context_length_exceeded\",\"message\":\"m\"}\n\n".to_owned(),
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"context_length_exceeded\"}}}\n\n"
            .to_owned(),
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"model_context_window_exceeded\"}]}\n\n".to_owned(),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"\"}},\"finish_reason\":\"error\",{}]}}\n\n",
            OVERFLOW.trim_start_matches('{')
        ),
    ];
    for piece in bookkeeping {
        assert_eq!(after_data(200, piece), Step::Hold, "{piece}");
        for error in &errors {
            assert!(recovers(after_data(200, &format!("{piece}{error}"))), "{piece}{error}");
        }
        assert_eq!(after_data(200, &format!("{piece}data: {QUOTA}\n\n")), Step::Release);
        assert_eq!(ends_in(200, piece), Step::Release);
    }
    let all = bookkeeping.concat() + &errors[0];
    assert!(recovers(after_data(200, &all)));
}

#[test]
fn output_is_never_held() {
    let outputs = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[{\"text\":\"Hi\"}]}\n\n",
        "data: [DONE]\n\n",
        "data: not json\n\n",
        "data: {\"type\":\"response.output_item.added\"}\n\n",
        "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}}}\n\n",
        "data: {\"type\":\"something.new\"}\n\n",
        // LocalAI says it as content first: by then it is too late.
        "data: {\"choices\":[{\"delta\":{\"content\":\"prompt is too long: 5000 tokens > 4096 maximum\"}}]}\n\n",
    ];
    for output in outputs {
        assert_eq!(after_data(200, output), Step::Release, "{output}");
        assert_eq!(after_data(200, &format!("{output}data: {OVERFLOW}\n\n")), Step::Release);
    }
}

#[test]
fn json_in_a_success_is_held_only_if_it_begins_as_an_error() {
    let errors = [
        OVERFLOW.to_owned(),
        format!("[{OVERFLOW}]"),
        format!(" \n{OVERFLOW}"),
        format!("{{\"id\":\"gen-1\",\"created\":17,{}", OVERFLOW.trim_start_matches('{')),
        r#"{"object":"error","message":"prompt is too long: 5000 tokens > 4096 maximum"}"#.to_owned(),
        r#"{"detail":"prompt is too long: 5000 tokens > 4096 maximum"}"#.to_owned(),
        // Behind members of an answer that say nothing.
        format!("{{\"id\":null,\"choices\":null,{}", OVERFLOW.trim_start_matches('{')),
        format!("{{\"choices\": [ ],{}", OVERFLOW.trim_start_matches('{')),
        format!("{{\"object\":\"\",\"model\":\"m\",{}", OVERFLOW.trim_start_matches('{')),
        format!("{{\"success\":false,{}", OVERFLOW.trim_start_matches('{')),
        format!("{{\"object\":\"chat.completion\",\"usage\":{{}},\"choices\":[],{}", OVERFLOW.trim_start_matches('{')),
        r#"{"id":"1","choices":null,"created":1,"model":"m","object":"chat.completion","usage":{"total_tokens":0},"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit (2013)"}}"#.to_owned(),
    ];
    for error in &errors {
        assert_eq!(after_data(200, error), Step::Hold, "{error}");
        assert!(recovers(ends_in(200, error)), "{error}");
        assert_eq!(play(Sent::Original, 200, &[error.as_bytes()], Ending::Deadline).0, Step::Release);
        assert_eq!(play(Sent::Original, 200, &[error.as_bytes()], Ending::Fail).0, Step::Release);
    }
    assert_eq!(ends_in(200, QUOTA), Step::Release);
    for answer in [
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"choices\":[{\"ind",
        "{\"object\":\"chat.completion\",\"model\":\"m\",\"usage\":{\"",
        "{\"choices\":[{",
        "{\"success\":true,",
        "{\"error\":null,\"id\":\"resp_1\",\"object\":\"response\"",
        "{\"type\":\"message\",",
        "{}",
        "[1,2",
        "hello",
        "\u{0}\u{1}binary",
    ] {
        assert_eq!(after_data(200, answer), Step::Release, "{answer}");
    }
}

#[test]
fn an_overflow_in_disguise_is_seen_where_it_comes_in_one_piece() {
    let answer = |reason: &str, content: &str, written: u32| {
        format!(
            r#"{{"id":"x","object":"chat.completion","choices":[{{"message":{{"content":"{content}"}},"finish_reason":"{reason}"}}],"usage":{{"prompt_tokens":4096,"completion_tokens":{written}}}}}"#
        )
    };
    assert!(recovers(after_data(200, &answer("model_context_window_exceeded", "", 0))));
    assert!(recovers(after_data(200, &answer("length", "", 0))));
    assert_eq!(after_data(200, &answer("length", "cut", 16)), Step::Release);
    assert_eq!(after_data(200, &answer("stop", "", 0)), Step::Release);
}

/// The largest opening on record: Codex's instructions and tools, 24 KB, stand in two events.
#[test]
fn an_agents_opening_events_fit() {
    assert_eq!(STREAM_BYTES, 65_536, "the design's number");
    let opening = |kind: &str| {
        let instructions = "x".repeat(23_743);
        let data = format!("{{\"type\":\"{kind}\",\"response\":{{\"instructions\":\"{instructions}\"}}}}");
        format!("event: {kind}\ndata: {data}\n\n")
    };
    let begun = opening("response.created") + &opening("response.in_progress");
    assert_eq!(after_data(200, &begun), Step::Hold);
    assert!(recovers(after_data(200, &format!("{begun}event: error\ndata: {OVERFLOW}\n\n"))));
}

#[test]
fn streams_are_held_up_to_their_bound() {
    let comment = |length: usize| format!(":{}\n", "x".repeat(length - 2));
    for (length, expected) in
        [(STREAM_BYTES - 1, Step::Hold), (STREAM_BYTES, Step::Hold), (STREAM_BYTES + 1, Step::Release)]
    {
        let lines: String = (0..64).map(|_| comment(1_000)).collect::<String>() + &comment(length - 64_000);
        assert_eq!(after_data(200, &lines), expected, "{length}");
        assert_eq!(after_data(200, &" ".repeat(length.min(4_000))), Step::Hold);
    }
    let raw = Bytes::from(vec![0; STREAM_BYTES + 1]);
    let mut hold = Hold::new(Sent::Original);
    hold.on_head(200, Coding::Readable);
    assert_eq!(hold.on_data(raw, b""), Step::Release, "raw bytes count too");
    let inflated = format!("data: {}", "x".repeat(STREAM_BYTES));
    let mut hold = Hold::new(Sent::Original);
    hold.on_head(200, Coding::Readable);
    assert_eq!(hold.on_data(Bytes::from_static(b"small"), inflated.as_bytes()), Step::Release, "decoded bytes too");
}

#[test]
fn error_bodies_are_judged_at_their_bound() {
    let body = |length: usize| format!("{OVERFLOW}{}", " ".repeat(length - OVERFLOW.len()));
    for (length, ended) in [(ERROR_BYTES - 1, false), (ERROR_BYTES, false), (ERROR_BYTES + 1, true)] {
        assert_eq!(after_data(400, &body(length)) != Step::Hold, ended, "{length}");
        assert_eq!(after_data(200, &body(length)) != Step::Hold, ended, "{length}");
    }
    assert!(recovers(after_data(400, &body(ERROR_BYTES + 1))));
    assert_eq!(after_data(200, &body(ERROR_BYTES + 1)), Step::Release);
    let other = format!("{QUOTA}{}", " ".repeat(ERROR_BYTES));
    let mut hold = Hold::new(Sent::Rewritten);
    hold.on_head(422, Coding::Readable);
    assert_eq!(hold.on_data(Bytes::from(other.clone()), other.as_bytes()), Step::Rejected(422));
}

#[test]
fn the_deadline_ends_the_wait() {
    let mut hold = Hold::new(Sent::Original);
    assert_eq!(hold.on_deadline(), Step::Hold, "nothing to release before the head");
    hold.on_head(200, Coding::Readable);
    assert_eq!(hold.on_data(Bytes::from_static(b": ping\n\n"), b": ping\n\n"), Step::Hold);
    assert_eq!(hold.on_deadline(), Step::Release);
    assert_eq!(play(Sent::Original, 400, &[b"{\"err"], Ending::Deadline).0, Step::Release);
    assert!(recovers(play(Sent::Original, 400, &[OVERFLOW.as_bytes()], Ending::Deadline).0));
}

#[test]
fn compressed_pieces_are_kept_as_they_came() {
    let mut hold = Hold::new(Sent::Original);
    hold.on_head(400, Coding::Readable);
    assert_eq!(hold.on_data(Bytes::from_static(b"\x1f\x8b"), b""), Step::Hold);
    assert_eq!(hold.on_data(Bytes::from_static(b"\x00\x01"), OVERFLOW.as_bytes()), Step::Hold);
    assert!(recovers(hold.on_end()));
    assert_eq!(hold.into_held().concat(), b"\x1f\x8b\x00\x01");
}

/// Every recorded error of Responses inside a stream, behind the bookkeeping of a long request.
#[test]
fn recorded_errors_of_responses_are_told_apart_in_a_stream() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("skipped: no collection of real errors here");
        return;
    };
    let begun = |kind: &str| {
        let instructions = "x".repeat(23_743);
        format!(
            "event: {kind}\ndata: {{\"type\":\"{kind}\",\"response\":{{\"error\":null,\"instructions\":\"{instructions}\"}}}}\n\n"
        )
    };
    let mut seen = 0;
    for line in text.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        if case["api"] != "openai_responses" || case["phase"] != "stream" {
            continue;
        }
        let stream = begun("response.created") + &begun("response.in_progress") + case["body"].as_str().unwrap();
        let step = ends_in(200, &stream);
        assert_eq!(recovers(step), case["class"] == "overflow", "{line}: {step:?}");
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

/// Every recorded error of Anthropic Messages, as an answer and inside a stream behind its bookkeeping.
#[test]
fn recorded_errors_of_messages_are_recovered_from_or_relayed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/overflow-errors.jsonl");
    let Ok(recorded) = std::fs::read_to_string(path) else {
        println!("no recorded errors here");
        return;
    };
    let begun = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n\
                 event: ping\ndata: {\"type\":\"ping\"}\n\n";
    let mut seen = 0;
    for line in recorded.lines() {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        let (Some("anthropic_messages"), Some(body), Some(status)) =
            (case["api"].as_str(), case["body"].as_str(), case["status"].as_u64())
        else {
            continue;
        };
        let expected = case["class"] != "negative";
        assert_eq!(recovers(ends_in(status as u16, body)), expected, "{}", case["id"]);
        seen += 1;
        let whole: Result<serde_json::Value, _> = serde_json::from_str(body);
        let Ok(serde_json::Value::Object(error)) = whole else { continue };
        // A refusal by its status alone is no event, and bytes are counted before a stream begins.
        if status != 400 {
            continue;
        }
        let stream = format!("{begun}event: error\ndata: {}\n\n", serde_json::Value::Object(error));
        assert_eq!(recovers(after_data(200, &stream)), expected, "{} in a stream", case["id"]);
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_message_that_fills_the_window_at_once_is_an_overflow() {
    let begun = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n";
    let end = |reason: &str| {
        let delta = format!("{{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}}}}");
        after_data(200, &format!("{begun}event: message_delta\ndata: {delta}\n\n"))
    };
    assert!(recovers(end("model_context_window_exceeded")));
    assert_eq!(end("end_turn"), Step::Release);
}
