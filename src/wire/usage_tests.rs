use super::*;

const CHUNKS: &str = concat!(
    "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \\n\\ndata: b\"},\"finish_reason\":null}],\"usage\":null}\n\n",
    "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"model\":\"m-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":8,",
    "\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\n",
    "data: [DONE]\n\n",
);

fn expected() -> Observed {
    Observed {
        usage: Some(Usage { prompt_tokens: 70, completion_tokens: 8, cached_tokens: 64 }),
        finish_reason: Some("stop".to_owned()),
        model: Some("m-1".to_owned()),
        done: true,
    }
}

/// What the last `WINDOW` bytes of a stream say.
fn tail(stream: impl AsRef<[u8]>) -> Observed {
    const WINDOW: usize = 16 * 1024;
    let stream = stream.as_ref();
    let from = stream.len().saturating_sub(WINDOW);
    from_stream_tail(&stream[from..], if from > 0 { Shown::End } else { Shown::All })
}

#[test]
fn a_stream_reports_itself() {
    assert_eq!(tail(CHUNKS), expected());
    assert_eq!(tail(CHUNKS.replace('\n', "\r\n")), expected());
}

#[test]
fn a_long_stream_is_read_from_its_end() {
    let filler = "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n";
    for repeat in [100, 327, 328, 400, 3_000] {
        let stream = filler.repeat(repeat) + CHUNKS;
        assert_eq!(tail(&stream), expected(), "{repeat}");
    }
}

#[test]
fn the_cut_first_event_is_not_read() {
    let forged = "data: {\"model\":\"forged\"}\n\ndata: {\"choices\":[]}\n\n";
    assert_eq!(from_stream_tail(forged.as_bytes(), Shown::All).model.as_deref(), Some("forged"));
    assert_eq!(from_stream_tail(forged.as_bytes(), Shown::End), Observed::default());
    assert_eq!(from_stream_tail(b"no blank line", Shown::End), Observed::default());
}

#[test]
fn done_is_told_from_an_open_end() {
    assert!(tail("data: {\"choices\":[]}\n\ndata: [DONE]").done);
    assert!(!tail("data: {\"choices\":[]}\n\n").done);
    assert!(!tail("data: {\"choices\":[{\"delta\":{\"content\":\"[DONE]\"}}]}\n\n").done);
}

#[test]
fn bodies_report_themselves_or_nothing() {
    let body = br#"{"id":"x","model":"m","choices":[{"message":{"content":"hi"},"finish_reason":"length"}],
        "usage":{"prompt_tokens":5,"completion_tokens":6,"prompt_cache_hit_tokens":4}}"#;
    let usage = Usage { prompt_tokens: 5, completion_tokens: 6, cached_tokens: 4 };
    assert_eq!(from_body(body).usage, Some(usage));
    assert_eq!(from_body(body).finish_reason.as_deref(), Some("length"));
    for odd in [
        &b"{\"usage\":\"none\",\"choices\":{},\"model\":7}"[..],
        b"{\"usage\":{\"prompt_tokens\":-1}}",
        b"[1]",
        b"",
        b"\xff\xfe",
        b"{\"usage\":{\"prompt_tokens\":5",
    ] {
        assert_eq!(from_body(odd), Observed::default(), "{odd:?}");
    }
    let partial =
        from_body(b"{\"usage\":{\"prompt_tokens\":\"many\"},\"choices\":[{\"finish_reason\":3}],\"model\":\"m\"}");
    assert_eq!(partial, Observed { model: Some("m".to_owned()), ..Observed::default() });
}

#[test]
fn groq_reports_beside_the_choices() {
    let stream = "data: {\"choices\":[],\"x_groq\":{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}}\n\n";
    assert_eq!(tail(stream).usage, Some(Usage { prompt_tokens: 3, completion_tokens: 1, cached_tokens: 0 }));
}

/// The last event of a stream of Responses; `filler` stands where instructions and tools are said again.
fn conclusion(kind: &str, details: &str, filler: &str) -> String {
    format!(
        "event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":9,\"response\":{{\"id\":\"resp_1\",\"model\":\"m-1\",\
         \"incomplete_details\":{details},\"instructions\":\"{filler}\",\"output\":[],\"usage\":{{\"input_tokens\":70,\
         \"input_tokens_details\":{{\"cached_tokens\":64}},\"output_tokens\":8,\"total_tokens\":78}},\"user\":null}}}}\n\n"
    )
}

#[test]
fn responses_report_themselves() {
    let done = Observed { finish_reason: None, ..expected() };
    assert_eq!(tail(conclusion("response.completed", "null", "")), done);
    assert_eq!(tail(conclusion("response.failed", "null", "")), done);
    let cut = Observed { finish_reason: Some("max_output_tokens".to_owned()), ..expected() };
    assert_eq!(tail(conclusion("response.incomplete", r#"{"reason":"max_output_tokens"}"#, "")), cut);
    let body = conclusion("", "null", "");
    let body = body.split_once("\"response\":").unwrap().1.trim_end().strip_suffix('}').unwrap();
    assert_eq!(from_body(body.as_bytes()), Observed { done: false, ..done });
}

/// The window begins inside the only event that tells: its usage is near its end.
#[test]
fn usage_is_found_behind_long_instructions() {
    for filler in [20_000, 100_000] {
        let quoted = r#"\"usage\":{\"input_tokens\":1}"#;
        let filler = "x".repeat(filler) + quoted;
        let stream = conclusion("response.completed", "null", &filler);
        assert_eq!(tail(&stream).usage, expected().usage);
        let forged = stream.split_once(",\"output\":[]").unwrap().0.to_owned() + "\"}}\n\n";
        assert_eq!(tail(forged).usage, None, "a text that speaks of usage");
    }
}

/// A stream of Anthropic's with some words in the middle.
fn message(words: usize, last_usage: &str) -> String {
    let start = r#"{"type":"message_start","message":{"type":"message","model":"c-1","stop_reason":null,"usage":{"input_tokens":9,"cache_read_input_tokens":60,"cache_creation_input_tokens":1,"output_tokens":1}}}"#;
    let word = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"word\"}}\n\n";
    let delta = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{last_usage}}}"#);
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    format!(
        "event: message_start\ndata: {start}\n\n{}event: message_delta\ndata: {delta}\n\n{stop}",
        word.repeat(words)
    )
}

#[test]
fn a_message_of_anthropics_reports_itself() {
    let usage = Some(Usage { prompt_tokens: 70, completion_tokens: 8, cached_tokens: 60 });
    let expected =
        Observed { usage, finish_reason: Some("end_turn".to_owned()), model: Some("c-1".to_owned()), done: true };
    assert_eq!(tail(message(2, r#"{"output_tokens":8}"#)), expected);
    let whole = r#"{"type":"message","model":"c-1","content":[],"stop_reason":"end_turn","usage":{"input_tokens":9,"cache_read_input_tokens":60,"cache_creation_input_tokens":1,"output_tokens":8}}"#;
    assert_eq!(from_body(whole.as_bytes()), Observed { done: false, ..expected.clone() });
    // The event that counted the input is out of the window: the last one may count it as well.
    assert_eq!(tail(message(900, r#"{"output_tokens":8}"#)).usage, None);
    let counted =
        r#"{"input_tokens":9,"cache_read_input_tokens":60,"cache_creation_input_tokens":1,"output_tokens":8}"#;
    assert_eq!(tail(message(900, counted)).usage, usage);
    // It may leave the cache out of its count.
    assert_eq!(tail(message(2, r#"{"input_tokens":9,"output_tokens":8}"#)).usage, usage);
}

/// Some servers leave what they read from their cache out of the prompt's count.
#[test]
fn cached_tokens_that_exceed_the_prompt_are_beside_it() {
    let usage = |text: &str| from_body(text.as_bytes()).usage.unwrap();
    let beside = usage(
        r#"{"usage":{"prompt_tokens":500,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":9500}}}"#,
    );
    assert_eq!((beside.prompt_tokens, beside.cached_tokens), (10_000, 9_500));
    let within = usage(
        r#"{"usage":{"prompt_tokens":9500,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":9500}}}"#,
    );
    assert_eq!((within.prompt_tokens, within.cached_tokens), (9_500, 9_500));
}
