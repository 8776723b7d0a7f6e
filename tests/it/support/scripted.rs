//! An upstream that answers what it is told, in pieces, and keeps what arrived; and the client before it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::task::AbortHandle;

use super::wire::{Listener, Wire, values};

/// Names that say how a message is framed on one connection, lower-case.
const FRAMING: [&str; 5] = ["connection", "keep-alive", "transfer-encoding", "content-length", "host"];

/// A message as it stood on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The first line of its head.
    pub start: String,
    /// End-to-end fields as spelled: by name, equal names in their order.
    pub fields: Vec<(String, String)>,
    /// The length that its head tells; without one a body comes in chunks.
    pub length: Option<usize>,
    pub body: Vec<u8>,
}

/// Fields without what frames a message, ordered as [`Message::fields`] are.
pub fn end_to_end(fields: impl IntoIterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut fields: Vec<_> = fields.into_iter().filter(|(name, _)| !is_framing(name)).collect();
    // Stable: the order of fields with the same name has a meaning, that of different ones has none.
    fields.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    fields
}

fn is_framing(name: &str) -> bool {
    FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing))
}

impl Message {
    /// One whose head tells the length of its body.
    pub fn whole(start: String, fields: Vec<(String, String)>, body: Vec<u8>) -> Self {
        Self { start, fields, length: Some(body.len()), body }
    }

    /// One whose head tells no length.
    pub fn open(start: String, fields: Vec<(String, String)>, body: Vec<u8>) -> Self {
        Self { start, fields, length: None, body }
    }

    /// Its bytes on a connection, with these fields more in its head; the chunks of an open body have these
    /// lengths, again and again.
    fn encoded(&self, more: &str, lengths: &[usize]) -> Vec<Vec<u8>> {
        let mut head = format!("{}\r\n{more}", self.start);
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        match self.length {
            Some(length) => vec![[format!("{head}Content-Length: {length}\r\n\r\n").as_bytes(), &self.body].concat()],
            None if self.body.is_empty() => vec![format!("{head}\r\n").into_bytes()],
            None => {
                let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
                [vec![head], chunks(&self.body, lengths), vec![b"0\r\n\r\n".to_vec()]].concat()
            }
        }
    }
}

fn chunks(body: &[u8], lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut chunks, mut rest) = (Vec::new(), body);
    for length in lengths.iter().cycle() {
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        if piece.is_empty() {
            break;
        }
        chunks.push([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        rest = after;
    }
    chunks
}

/// A message from the other side, by its own framing; `None` when the connection has ended.
pub async fn receive(wire: &mut Wire) -> Option<Message> {
    let head = wire.head_or_end().await?;
    let length = values(&head, "content-length").first().map(|length| length.parse().unwrap());
    let chunked = values(&head, "transfer-encoding").iter().any(|value| value.eq_ignore_ascii_case("chunked"));
    let body = if chunked { wire.chunked().await.0 } else { wire.exactly(length.unwrap_or(0)).await };
    let mut lines = head.trim_end().split("\r\n");
    let start = lines.next().unwrap().to_owned();
    let fields = lines.map(|line| line.split_once(':').unwrap());
    let fields = end_to_end(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
    Some(Message { start, fields, length, body })
}

/// Sends a request and reads the answer.
pub async fn ask(wire: &mut Wire, request: &Message) -> Message {
    for bytes in request.encoded("Host: proxy\r\n", &[]) {
        wire.send(bytes).await;
    }
    receive(wire).await.unwrap()
}

/// Lengths of an answer's chunks: they end within events, lines and characters.
const LENGTHS: [usize; 6] = [1, 150, 7, 4_000, 33, 900];

#[derive(Debug, Default)]
struct State {
    answer: Option<Message>,
    received: Vec<Message>,
}

/// Ends with the value.
pub struct Scripted {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    accept: AbortHandle,
}

impl Scripted {
    pub async fn start() -> Self {
        let listener = Listener::bind().await;
        let (addr, state) = (listener.addr(), Arc::new(Mutex::new(State::default())));
        let shared = state.clone();
        let accept = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                connections.spawn(serve(listener.accept_any().await, shared.clone()));
            }
        });
        Self { addr, state, accept: accept.abort_handle() }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// From now on every request gets this.
    pub fn will_answer(&self, answer: Message) {
        self.state.lock().unwrap().answer = Some(answer);
    }

    /// What has arrived since the last call.
    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.state.lock().unwrap().received)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn serve(mut wire: Wire, state: Arc<Mutex<State>>) {
    wire.stream.set_nodelay(true).unwrap();
    while let Some(request) = receive(&mut wire).await {
        let answer = {
            let mut state = state.lock().unwrap();
            state.received.push(request);
            state.answer.clone().unwrap()
        };
        for bytes in answer.encoded("", &LENGTHS) {
            wire.send(bytes).await;
            // The other side may read this piece alone.
            tokio::task::yield_now().await;
        }
    }
}
