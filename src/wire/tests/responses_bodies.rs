//! Random items of Responses.

use proptest::prelude::*;
use serde_json::{Value, json};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "\\PC{0,12}",
        2 => (0_usize..3_000).prop_map(|n| "lorem ipsum \"é\"\n".repeat(n / 16)),
    ]
}

/// One item of any kind, the odd ones included; ids are drawn from few, so that some pair up.
pub fn item() -> impl Strategy<Value = Value> {
    (text(), "[a-c]", 0_usize..20).prop_map(|(text, id, kind)| match kind {
        0 => json!({"role": "user", "content": text}),
        1 => json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": "data:,"}]}),
        2 => json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "final",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}),
        3 => json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": text}),
        4 => json!({"type": "function_call", "call_id": id, "name": "f", "arguments": json!({"a": text}).to_string()}),
        5 => json!({"type": "function_call_output", "call_id": id, "output": text}),
        6 => json!({"type": "custom_tool_call", "call_id": id, "name": "g", "input": text}),
        7 => json!({"type": "custom_tool_call_output", "call_id": id, "output": [{"type": "input_text", "text": text}]}),
        8 => json!({"type": "local_shell_call", "call_id": id, "action": {"type": "exec", "command": ["echo", text]}}),
        9 => json!({"type": "shell_call_output", "call_id": id, "output": [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
        10 => json!({"type": "computer_call_output", "call_id": id, "output": {"type": "computer_screenshot", "image_url": text}}),
        11 => json!({"type": "tool_search_call", "call_id": null, "arguments": {"q": text}}),
        12 => json!({"type": "tool_search_output", "call_id": null, "tools": []}),
        13 => json!({"type": "mcp_call", "id": id, "name": "m", "server_label": "s", "arguments": "{}", "output": text}),
        14 => json!({"type": "web_search_call", "id": id, "action": {"query": text}}),
        15 => json!({"type": "configuration_update", "tools": [text]}),
        16 => json!({"type": "compaction", "encrypted_content": text}),
        17 => json!({"id": id}),
        18 => json!({"type": "message", "role": "developer", "content": text}),
        _ => json!({"type": "novelty", "z": [text, 1.5, true, null, {"y": {}}]}),
    })
}
