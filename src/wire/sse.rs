//! An incremental reader of server-sent events over byte chunks, bounded and silent: what it
//! cannot read it gives up, and the caller relays on.

use std::collections::VecDeque;

/// Largest event that is read, in bytes of its lines; a stream with a larger one is given up.
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The `event` field, if any. llama.cpp's `error: {…}` line counts as an event named `error`.
    pub name: Option<String>,
    /// The `data` lines, joined by line feeds. Invalid UTF-8 is replaced.
    pub data: String,
    /// Offset in the stream of the byte after the blank line that ends the event; where that line
    /// ends in CR LF, of the line feed.
    pub end: u64,
}

/// Reads events out of chunks that may be cut anywhere.
#[derive(Debug)]
pub struct Reader {
    max_event_bytes: usize,
    /// The bytes of the current, unfinished line.
    line: Vec<u8>,
    name: Option<String>,
    data: Option<String>,
    /// Bytes taken by the event in progress, comments aside.
    held: usize,
    /// Offset of the next byte to be pushed.
    offset: u64,
    /// The last line ended in CR: a line feed that follows belongs to it.
    after_cr: bool,
    ready: VecDeque<Event>,
    first_line: bool,
    given_up: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT_BYTES)
    }

    /// A reader that gives up at events of more than `max_event_bytes`.
    pub fn with_limit(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            line: Vec::new(),
            name: None,
            data: None,
            held: 0,
            offset: 0,
            after_cr: false,
            ready: VecDeque::new(),
            first_line: true,
            given_up: false,
        }
    }

    /// Whether an event was over the limit; no further events come then.
    pub fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// Whether everything pushed so far belongs to finished events and blank or comment lines.
    pub fn is_between_events(&self) -> bool {
        self.line.is_empty() && self.name.is_none() && self.data.is_none()
    }

    /// Takes the next chunk of the stream.
    pub fn push(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() && !self.given_up {
            if std::mem::take(&mut self.after_cr) && chunk.first() == Some(&b'\n') {
                self.offset += 1;
                chunk = chunk.get(1..).unwrap_or_default();
                continue;
            }
            let Some(at) = memchr::memchr2(b'\n', b'\r', chunk) else {
                self.offset += chunk.len() as u64;
                return self.extend(chunk);
            };
            let (text, rest) = chunk.split_at_checked(at).unwrap_or((chunk, &[]));
            self.extend(text);
            self.after_cr = rest.first() == Some(&b'\r');
            self.offset += at as u64 + 1;
            chunk = rest.get(1..).unwrap_or_default();
            self.end_line();
        }
    }

    /// The stream has ended: an event without its blank line counts too, as servers that fail often
    /// close right after it.
    pub fn finish(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.dispatch();
    }

    /// The next event that is complete.
    pub fn next_event(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    fn extend(&mut self, text: &[u8]) {
        if self.held + self.line.len() + text.len() > self.max_event_bytes {
            self.given_up = true;
            self.line = Vec::new();
            (self.name, self.data) = (None, None);
        } else {
            self.line.extend_from_slice(text);
        }
    }

    fn end_line(&mut self) {
        if self.given_up {
            return;
        }
        let taken = std::mem::take(&mut self.line);
        let mut line = taken.as_slice();
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (line.get(..at), line.get(at + 1..).unwrap_or_default()),
            None => (Some(line), &[][..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field.unwrap_or_default() {
            b"event" => self.name = Some(value.into_owned()),
            b"error" => {
                self.name = Some("error".to_owned());
                self.add_data(&value);
            }
            b"data" => self.add_data(&value),
            _ => return,
        }
        self.held += line.len();
    }

    fn add_data(&mut self, value: &str) {
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }

    fn dispatch(&mut self) {
        let name = self.name.take();
        self.held = 0;
        if let Some(data) = self.data.take() {
            self.ready.push_back(Event { name, data, end: self.offset });
        }
    }
}

#[cfg(test)]
#[path = "sse_tests.rs"]
mod tests;
