use serde_json::json;

use super::super::super::answer::{Answer, ToolCall};
use super::super::super::request::Api;
use super::super::answer::items;
use super::super::store::Chains;
use super::*;

fn checked(body: &Value, store: &Store) -> Result<(), Violation> {
    parameters(body)?;
    let mut request = ModelRequest::new(Api::Responses, body.clone());
    (request.input, request.held) = store.resolve(body, &Chains::new())?;
    check(&request, Ids::Own, store)
}

fn body(input: Value) -> Value {
    json!({"model": "m", "input": input})
}

fn user() -> Value {
    json!({"role": "user", "content": "hello"})
}

#[track_caller]
fn keeps(body: &Value) {
    assert_eq!(checked(body, &Store::default()), Ok(()), "{body}");
}

#[track_caller]
fn breaks(rule: &str, says: &str, body: &Value) {
    let violation = checked(body, &Store::default()).expect_err("it was accepted");
    let error = &violation.body["error"];
    let message = error["message"].as_str().unwrap();
    assert_eq!((violation.rule, &error["type"]), (rule, &json!("invalid_request_error")), "{message}");
    assert!(message.contains(says), "{message}");
    assert_eq!(violation.status, if rule == "R5" { 404 } else { 400 }, "{message}");
}

/// Call and output of each family, with the words for a call without output and an output without call.
fn families() -> Vec<(Value, Value, &'static str, &'static str)> {
    let function = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let custom = json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"});
    let screenshot = json!({"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"});
    let of = |kind: &str| json!({"type": kind, "call_id": "c"});
    vec![
        (
            function,
            json!({"type": "function_call_output", "call_id": "c", "output": "ok"}),
            "No tool output found for function call c.",
            "No tool call found for function call output with call_id c.",
        ),
        (
            custom,
            json!({"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]}),
            "No tool output found for custom tool call c.",
            "No tool call found for custom tool call output with call_id c.",
        ),
        (of("local_shell_call"), of("local_shell_call_output"), "for local shell call c.", "with call_id c."),
        (of("shell_call"), of("shell_call_output"), "for shell call c.", "with call_id c."),
        (
            of("apply_patch_call"),
            json!({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}),
            "for apply patch call c.",
            "for apply patch call output with call_id c.",
        ),
        (
            of("computer_call"),
            json!({"type": "computer_call_output", "call_id": "c", "output": screenshot}),
            "for computer call c.",
            "for computer call output with call_id c.",
        ),
        (of("tool_search_call"), of("tool_search_output"), "for tool search call c.", "with call_id c."),
        (of("program"), of("program_output"), "for program c.", "for program output with call_id c."),
        (
            json!({"type": "mcp_approval_request", "id": "c", "name": "f", "arguments": "{}", "server_label": "s"}),
            json!({"type": "mcp_approval_response", "approval_request_id": "c", "approve": true}),
            "approval request c.",
            "approval response with id c.",
        ),
        (of("unheard_of_call"), of("unheard_of_call_output"), "for unheard of call c.", "with call_id c."),
        (of("unheard_of_call"), of("unheard_of_output"), "for unheard of call c.", "with call_id c."),
    ]
}

#[test]
fn r1_r2_every_call_has_its_output() {
    for (call, output, open, orphan) in families() {
        let rule = if call["type"] == "function_call" { "R1" } else { "R2" };
        keeps(&body(json!([user(), call, output])));
        breaks(rule, open, &body(json!([user(), call])));
        breaks(rule, open, &body(json!([user(), call, user()])));
        breaks(rule, orphan, &body(json!([user(), output])));
        breaks(rule, orphan, &body(json!([user(), output, call])));
        breaks(rule, orphan, &body(json!([user(), call, output, output])));
        // Ids may be used again once they are answered.
        keeps(&body(json!([user(), call, output, call, output])));
    }
}

#[test]
fn r2_families_do_not_answer_each_other() {
    let [function, custom] = [0, 1].map(|i| families().swap_remove(i));
    breaks("R2", "No tool call found for custom tool call output", &body(json!([user(), function.0, custom.1])));
    let shell = json!({"type": "local_shell_call", "call_id": "c"});
    keeps(&body(json!([user(), shell, function.1])));
    let pending = json!({"type": "computer_call", "call_id": "c", "pending_safety_checks": [{"id": "s1"}]});
    let screenshot = json!({"type": "computer_screenshot", "file_id": "f"});
    let mut seen = json!({"type": "computer_call_output", "call_id": "c", "output": screenshot});
    breaks("R2", "safety checks that were not acknowledged: s1", &body(json!([user(), pending, seen])));
    seen["acknowledged_safety_checks"] = json!([{"id": "s1"}]);
    keeps(&body(json!([user(), pending, seen])));
}

#[test]
fn r3_what_the_provider_runs_stands_alone() {
    for kind in ["mcp_call", "mcp_list_tools", "web_search_call", "file_search_call", "code_interpreter_call"] {
        keeps(&body(json!([user(), {"type": kind, "id": "x_1"}])));
    }
    keeps(&body(json!([user(), {"type": "tool_search_call", "call_id": null}])));
    keeps(&body(json!([user(), {"type": "unheard_of", "anything": 1}])));
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAAAABx"})
}

#[test]
fn r4_reasoning_stands_before_what_it_led_to() {
    let said = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]});
    let [call, output] = [families().swap_remove(0).0, families().swap_remove(0).1];
    keeps(&body(json!([user(), reasoning("rs_1"), said])));
    keeps(&body(json!([user(), reasoning("rs_1"), reasoning("rs_2"), call, output])));
    let alone = "Item 'rs_1' of type 'reasoning' was provided without its required following item.";
    for input in [
        json!([user(), reasoning("rs_1")]),
        json!([user(), reasoning("rs_1"), user()]),
        json!([user(), call, reasoning("rs_1"), output]),
        json!([user(), reasoning("rs_1"), {"type": "compaction_trigger"}]),
    ] {
        breaks("R4", alone, &body(input));
    }
    breaks(
        "R4",
        "required parameter: 'input[1].summary'",
        &body(json!([user(), {"type": "reasoning", "id": "rs_1"}, said])),
    );
}

/// The provider's own items carry what it remembers of them.
#[test]
fn r4_r6_own_items_come_back_as_they_went_out() {
    let body = json!({"model": "m", "input": "go", "store": false, "reasoning": {}, "include": ["reasoning.encrypted_content"]});
    let request = ModelRequest::new(Api::Responses, body.clone());
    let call = ToolCall { id: "c".to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
    let made = items(&Answer { calls: vec![call], ..Answer::text("a") }, &request);
    let mut store = Store::default();
    store.keep(&request, &made, None);
    let with = |items: &[Value]| {
        let output = json!({"type": "function_call_output", "call_id": "c", "output": "ok"});
        let mut next = body.clone();
        next["input"] = [&[user()], items, &[output]].concat().into();
        checked(&next, &store)
    };
    assert_eq!(with(&made), Ok(()));
    let lost = with(&made[1..]).unwrap_err();
    let text = lost.body["error"]["message"].as_str().unwrap();
    assert!(lost.rule == "R4" && text.contains("without its required 'reasoning' item: 'rs_"), "{text}");
    let mut nameless = made.clone();
    nameless.iter_mut().for_each(|item| drop(item.as_object_mut().unwrap().remove("id")));
    assert_eq!(with(&nameless[1..]), Ok(()), "without ids nothing is remembered of them");
    let mut cut = made.clone();
    let secret = cut[0]["encrypted_content"].as_str().unwrap();
    cut[0]["encrypted_content"] = secret.split_at(200).0.into();
    let cut = with(&cut).unwrap_err();
    assert_eq!((cut.rule, &cut.body["error"]["code"]), ("R6", &json!("invalid_encrypted_content")));
    let mut noted = made.clone();
    let secret = format!("{}x", noted[0]["encrypted_content"].as_str().unwrap());
    noted[0]["encrypted_content"] = secret.into();
    assert_eq!(with(&noted).unwrap_err().rule, "R6");
    let mut bare = made.clone();
    bare[0].as_object_mut().unwrap().remove("encrypted_content");
    let bare = with(&bare).unwrap_err();
    assert_eq!((bare.rule, bare.status), ("R5", 404));
}

#[test]
fn r5_an_id_without_content_is_a_reference() {
    let said = json!({"type": "message", "role": "assistant", "content": "a"});
    let bare = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let mut stateless = body(json!([user(), bare, said]));
    keeps(&stateless);
    stateless["store"] = false.into();
    breaks("R5", "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.", &stateless);
    breaks("R5", "Item with id 'msg_x' not found.", &body(json!([{"type": "item_reference", "id": "msg_x"}])));
    breaks("R5", "Item with id 'msg_x' not found.", &body(json!([{"id": "msg_x"}])));
}

#[test]
fn r7_ids_have_a_form() {
    let says = "Invalid 'input[0].id': 'x'. Expected an ID that begins with 'msg'.";
    breaks("R7", says, &body(json!([{"type": "message", "id": "x", "role": "user", "content": "a"}])));
    let long = json!({"type": "function_call_output", "call_id": "c".repeat(65), "output": ""});
    breaks(
        "R7",
        "string too long. Expected a string with maximum length 64, but got a string with length 65",
        &body(json!([long])),
    );
}

#[test]
fn r8_r9_history_on_the_server() {
    let mut store = Store::default();
    let first = ModelRequest::new(Api::Responses, body(json!("go")));
    let [call, output] = [families().swap_remove(0).0, families().swap_remove(0).1];
    store.keep(&first, std::slice::from_ref(&call), None);
    let id = super::super::answer::response_id(&first);
    let mut next = body(json!([output]));
    next["previous_response_id"] = id.clone().into();
    assert_eq!(checked(&next, &store), Ok(()));
    next["input"] = json!([user()]);
    assert_eq!(checked(&next, &store).unwrap_err().rule, "R1", "the call behind the id is still open");
    next["conversation"] = "conv_1".into();
    breaks("R8", "Mutually exclusive parameters", &next);
    let mut unknown = body(json!("go on"));
    unknown["previous_response_id"] = "resp_x".into();
    breaks("R8", "Previous response with id 'resp_x' not found.", &unknown);
    let error = checked(&unknown, &store).unwrap_err().body;
    assert_eq!(error["error"]["code"], "previous_response_not_found");
    assert_eq!(error["error"]["param"], "previous_response_id");
    let conversation = store.open()["id"].clone();
    let mut in_it = body(json!("go"));
    in_it["conversation"] = json!({"id": conversation});
    assert_eq!(checked(&in_it, &store), Ok(()));
    in_it["conversation"] = "conv_x".into();
    assert_eq!(checked(&in_it, &store).unwrap_err().rule, "R9");
    // Not stored: nobody knows it afterwards.
    let mut secret = ModelRequest { index: 7, ..ModelRequest::new(Api::Responses, body(json!("go"))) };
    secret.body["store"] = false.into();
    let mut local = Chains::new();
    store.keep(&secret, &[], Some(&mut local));
    let id = super::super::answer::response_id(&secret);
    let later = json!({"model": "m", "input": "go on", "previous_response_id": id});
    assert_eq!(checked(&later, &store).unwrap_err().rule, "R8");
    assert_eq!(store.resolve(&later, &local).unwrap().1, 1, "but the connection that made it");
}

#[test]
fn r10_r11_compaction() {
    let compaction = json!({"type": "compaction", "encrypted_content": "gAAAAABx"});
    let [call, output] = [families().swap_remove(0).0, families().swap_remove(0).1];
    keeps(&body(json!([compaction, user()])));
    keeps(&body(json!([user(), call, output, compaction, user()])));
    breaks("R1", "No tool output found", &body(json!([user(), call, compaction, output])));
    breaks("R10", "'input[0].encrypted_content'", &body(json!([{"type": "compaction"}, user()])));
    keeps(&body(json!([user(), {"type": "compaction_trigger"}])));
    breaks("R11", "must be the last input item", &body(json!([{"type": "compaction_trigger"}, user()])));
    breaks("R1", "No tool output found", &body(json!([user(), call, {"type": "compaction_trigger"}])));
}

#[test]
fn parameters_have_bounds() {
    let with = |key: &str, value: Value| {
        let mut body = body(json!("a"));
        body[key] = value;
        body
    };
    keeps(&with("max_output_tokens", json!(16)));
    breaks("R14", "Expected a value >= 16, but got 15 instead.", &with("max_output_tokens", json!(15)));
    keeps(&with("context_management", json!([{"type": "compaction", "compact_threshold": 1000}])));
    breaks("R12", "Expected a value >= 1000", &with("context_management", json!([{"compact_threshold": 999}])));
    keeps(&with("truncation", json!("auto")));
    breaks("R13", "Supported values are", &with("truncation", json!("some")));
    keeps(&with("instructions", json!("be good")));
    breaks("R15", "'instructions': expected a string", &with("instructions", json!(["be good"])));
    breaks("R15", "array too long", &with("tools", vec![json!({}); 129].into()));
    breaks("P2", "only allowed when 'stream' is enabled", &with("stream_options", json!({})));
    breaks("P8", "Missing required parameter: 'model'.", &json!({"input": "a"}));
}

#[test]
fn r15_r16_r17_items_have_a_shape() {
    breaks("P7", "must be provided", &body(json!([])));
    breaks("P7", "must be provided", &json!({"model": "m"}));
    breaks("R17", "expected one of a string or array", &body(json!({})));
    breaks("R17", "expected an object", &body(json!(["a"])));
    breaks("R17", "string too long", &body("x".repeat(10_485_761).into()));
    breaks("R17", "'input[0].role'", &body(json!([{"type": "message", "content": "a"}])));
    breaks("R17", "empty array", &body(json!([{"role": "user", "content": []}])));
    let wrong = json!([{"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}]);
    breaks("R17", "Supported values are: 'output_text', 'refusal'", &body(wrong));
    let said = |phase: &str| json!([user(), {"role": "assistant", "content": "a", "phase": phase}]);
    keeps(&body(said("commentary")));
    breaks("R16", "'commentary' and 'final_answer'", &body(said("middle")));
    keeps(&body(json!([{"type": "additional_tools", "role": "developer", "tools": []}, user()])));
    breaks("R15", "'input[0].tools'", &body(json!([{"type": "additional_tools"}, user()])));
}

#[test]
fn r1_r20_outputs_and_pictures() {
    let [call, mut output] = [families().swap_remove(0).0, families().swap_remove(0).1];
    let with = |output: &Value| body(json!([user(), call, output]));
    for good in
        [json!(""), json!([{"type": "input_text", "text": ""}]), json!([{"type": "input_image", "file_id": "f"}])]
    {
        output["output"] = good;
        keeps(&with(&output));
    }
    for bad in [json!(null), json!([]), json!({}), json!([{"type": "output_text", "text": "a"}])] {
        output["output"] = bad;
        assert_eq!(checked(&with(&output), &Store::default()).unwrap_err().rule, "R1");
    }
    output["output"] = json!([{"type": "input_image"}]);
    breaks("R20", "one of 'image_url' or 'file_id'", &with(&output));
    let screen = families().swap_remove(5);
    let mut text = screen.1.clone();
    text["output"] = json!({"type": "input_text", "text": "removed"});
    breaks("R20", "'computer_screenshot'", &body(json!([user(), screen.0, text])));
}
