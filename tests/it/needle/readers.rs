//! Four ways back to a removed text, each by its id alone.

use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};

use super::case::Stand;
use super::model::Wanted;
use super::pages::Reading;
use crate::support::chat::{get, send_to, whole};

/// How a text was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Page by page.
    Tool,
    /// In pages of a few lines.
    Lines,
    /// By what stands in it.
    Pattern,
    Mcp,
    File,
    Url,
}

pub type Text = Result<String, String>;

impl Stand<'_> {
    /// The model reads it page by page; a turn whose rounds end goes on in the next.
    pub async fn by_tool(&self, body: &Value, reading: Reading) -> Text {
        match self.hunted(body, Wanted::Whole(reading)).await {
            Wanted::Whole(Reading { text, is_done: true, .. }) => Ok(text),
            Wanted::Failed(why) => Err(why),
            other => Err(format!("no end in ten turns: {other:.200?}")),
        }
    }

    /// The model looks for these marks by pattern: those that it does not find.
    pub async fn by_pattern(&self, body: &Value, id: &str, marks: &[String]) -> Result<Vec<String>, String> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = Wanted::Marks { id: id.to_owned(), marks: marks.to_vec(), found: Vec::new(), on: None };
        match self.hunted(body, wanted).await {
            Wanted::Marks { found, .. } if found.len() == marks.len() => {
                let missing = marks.iter().zip(found).filter(|(mark, found)| !found.contains(mark.as_str()));
                Ok(missing.map(|(mark, found)| format!("{mark}: {found:.200}")).collect())
            }
            other => Err(format!("{other:.200?}")),
        }
    }

    async fn hunted(&self, body: &Value, wanted: Wanted) -> Wanted {
        self.hunt.lock().unwrap().wanted = Some(wanted);
        let mut turns = 0;
        while self.hunt.lock().unwrap().wanted.as_ref().is_some_and(|wanted| !wanted.is_over()) && turns < 10 {
            turns += 1;
            let answer = self.dialect.ask(self.proxy().proxy_addr, "k", body).await;
            if answer.status != 200 {
                return Wanted::Failed(format!("{}: {:.300}", answer.status, answer.text()));
            }
            self.dialect.read(&answer);
        }
        self.hunt.lock().unwrap().wanted.take().unwrap()
    }

    pub async fn by_mcp(&self, id: &str) -> Text {
        let mut reading = Reading::of(id);
        while !reading.is_done {
            let params = json!({"name": "read_evicted", "arguments": reading.arguments()});
            let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let (name, value) = self.dialect.credential("k");
            let headers = [("accept", "application/json, text/event-stream"), (name, value.as_str())];
            let url = format!("http://{}/_compactproxy/mcp", self.proxy().proxy_addr);
            let answer = whole(send_to(&url, &headers, Bytes::from(call.to_string())).await.unwrap()).await;
            let answer: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
            let page = answer["result"]["content"][0]["text"].as_str().ok_or_else(|| answer.to_string())?;
            reading.take(page)?;
        }
        Ok(reading.text)
    }

    /// The whole text, and the same again in pages of lines and of characters, as pointers propose them.
    pub async fn by_url(&self, id: &str) -> Text {
        let at = async |query: &str| get(self.proxy().proxy_addr, &format!("/_compactproxy/evicted/{id}{query}")).await;
        let whole = at("").await;
        if whole.status != 200 {
            return Err(format!("{}: {}", whole.status, whole.text()));
        }
        for (unit, header) in [("lines", "x-compactproxy-lines"), ("chars", "x-compactproxy-chars")] {
            let total: usize = whole.header(header).parse().map_err(|_| format!("no {header}"))?;
            let limit = total / 2 + 1;
            let mut pages = String::new();
            for offset in (0..total).step_by(limit) {
                pages += at(&format!("?unit={unit}&offset={offset}&limit={limit}")).await.text();
            }
            if pages != whole.text() {
                return Err(format!("its pages by {unit} are another text"));
            }
        }
        Ok(whole.text().to_owned())
    }
}

/// The file of that name in the only tenant's folder.
pub fn by_file(folder: &Path, id: &str) -> Text {
    let read = |folder: &Path| {
        let tenant = std::fs::read_dir(folder)?.next().ok_or(std::io::ErrorKind::NotFound)??;
        std::fs::read_to_string(tenant.path().join(id))
    };
    read(folder).map_err(|error| error.to_string())
}
