//! What the proxy's tools answered is a part of the prompt: it counts for the estimate.

use serde_json::json;

use crate::support::chat::{ids, pair, side_calls, words};

use super::*;

const SECTIONS: &str =
    "[tool_result_eviction]\nmax_result_chars = 4000\npreview_chars = 200\n[tools]\npage_chars = 16_000\n";

/// All of a page of the text that was removed, or the lines with one word in it.
fn reading(request: &ModelRequest, number: usize, all: bool) -> ToolCall {
    let id = ids(request.body.to_string().as_bytes()).remove(0);
    let arguments = if all { json!({"id": id}) } else { json!({"id": id, "pattern": "launch code"}) };
    ToolCall { id: format!("own_{number}"), name: "read_evicted".to_owned(), arguments: arguments.to_string() }
}

impl Cell {
    /// A conversation whose removed text is several pages.
    fn heavy(self, name: &str) -> Value {
        let mut body = self.asked(name);
        let text = format!("{}\n{NEEDLE}\n", words(3, 6_000));
        let items = body[self.dialect.array()].as_array_mut().unwrap();
        items.splice(2.., self.dialect.results(&[("call_0", &[text])]));
        body
    }
}

/// Two pages take the prompt over the trigger, and two matches do not.
#[tokio::test]
async fn results_of_the_proxys_tools_count_for_the_estimate() {
    let sections = format!("{SECTIONS}[compaction]\nkeep_tokens = 1000\n[[window]]\nmodel = \"*\"\ninput = 6000\n");
    for (cell, all) in cells().flat_map(|cell| [(cell, true), (cell, false)]) {
        let read = |number| step(move |request: &ModelRequest| says("", vec![reading(request, number, all)]));
        let (provider, proxy) =
            pair(scripted(vec![read(1), read(2), step(|_| says("Read.", vec![]))]), &sections).await;
        let body = cell.heavy("summary");
        let had = cell.had(&proxy, &body).await;
        assert_eq!(had.text, "Read.", "{cell:?} {all}");
        cell.had(&proxy, &cell.dialect.went_on(&body, &had)).await;
        assert_eq!(side_calls(&provider).is_empty(), !all, "{cell:?} {all}");
        assert_unhurt(&provider);
    }
}
