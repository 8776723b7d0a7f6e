//! What the proxy's tools answered is a part of the prompt: it counts for the estimate, in the round that follows and in
//! every later turn.

use serde_json::json;

use crate::support::chat::{attempts, ids, pair, side_calls, words};
use crate::support::recall::EVICTION;

use super::*;

/// A page of the text that was removed, or the lines with one word in it.
fn reading(request: &ModelRequest, all: bool) -> ToolCall {
    let id = ids(request.body.to_string().as_bytes()).remove(0);
    let arguments = if all { json!({"id": id}) } else { json!({"id": id, "pattern": "launch code"}) };
    ToolCall { id: "own_1".to_owned(), name: "read_evicted".to_owned(), arguments: arguments.to_string() }
}

#[tokio::test]
async fn results_of_the_proxys_tools_count_for_the_estimate() {
    let sections = format!(
        "{EVICTION}[tools]\npage_chars = 16_000\n[compaction]\ntrigger_tokens = 3_000\nkeep_tokens = 500\n\
         [[window]]\nmodel = \"*\"\ninput = 100_000\n"
    );
    for (cell, all) in cells().flat_map(|cell| [(cell, true), (cell, false)]) {
        let steps = vec![step(move |request| says("", vec![reading(request, all)])), step(|_| says("Read.", vec![]))];
        let (provider, proxy) = pair(scripted(steps), &sections).await;
        let mut body = cell.asked("weight");
        let text = format!("{}\n{NEEDLE}\n", words(3, 6_000));
        let items = body[cell.dialect.array()].as_array_mut().unwrap();
        items.splice(2.., cell.dialect.results(&[("call_0", &[text])]));
        let had = cell.had(&proxy, &body).await;
        assert_eq!((had.text.as_str(), attempts(&provider).len()), ("Read.", 2), "{cell:?}");
        // The client's own history stays far below the trigger.
        let mut next = cell.dialect.went_on(&body, &had);
        for _ in 0..2 {
            let had = cell.had(&proxy, &next).await;
            next = cell.dialect.went_on(&next, &had);
        }
        let sent = attempts(&provider).pop().unwrap();
        let is_compacted = !String::from_utf8_lossy(&sent.body).contains("own_1");
        assert_eq!((is_compacted, side_calls(&provider).is_empty()), (all, !all), "{cell:?} {all}");
        assert_unhurt(&provider);
    }
}
