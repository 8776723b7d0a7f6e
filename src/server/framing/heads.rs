//! The heads of one connection's messages, line by line.

use memchr::memchr;

use super::Refusal;
use crate::wire::Dialect;

/// Longest line of a head; the HTTP library has its own limit for the whole head.
const MAX_LINE: usize = 128 * 1024;

/// Follows the messages of one connection.
#[derive(Debug, Default)]
pub(super) struct Heads {
    place: Place,
    head: Head,
    /// The beginning of a line that has not ended yet.
    partial: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    RequestLine,
    Fields,
    /// Bytes of a body to pass over.
    Body(u64),
    ChunkSize,
    /// A chunk's bytes to pass over, its line end included.
    Chunk(u64),
    Trailers,
    /// No longer looking.
    Aside,
}

/// What the lines of one head said so far.
#[derive(Debug, Default)]
struct Head {
    /// As it came: what it says of the dialect is asked only where the message is refused.
    request_line: Vec<u8>,
    length: Option<u64>,
    chunked: bool,
    host: bool,
}

impl Heads {
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            match self.place {
                Place::Aside => return Ok(()),
                Place::Body(left) => {
                    let (rest, left) = pass(bytes, left);
                    bytes = rest;
                    self.place = if left == 0 { Place::RequestLine } else { Place::Body(left) };
                }
                Place::Chunk(left) => {
                    let (rest, left) = pass(bytes, left);
                    bytes = rest;
                    self.place = if left == 0 { Place::ChunkSize } else { Place::Chunk(left) };
                }
                Place::RequestLine | Place::Fields | Place::ChunkSize | Place::Trailers => {
                    let Some(end) = memchr(b'\n', bytes) else { return self.keep(bytes) };
                    let (line, rest) = bytes.split_at(end + 1);
                    bytes = rest;
                    self.whole_line(line)?;
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        if self.partial.len() + bytes.len() > MAX_LINE {
            return Err(self.head.refuse("a line of the head is too long"));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn whole_line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if self.partial.is_empty() {
            return self.line(line);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(line);
        self.line(&whole)
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.place {
            // Empty lines before a request are skipped, as the HTTP library does.
            Place::RequestLine if line.is_empty() => {}
            Place::RequestLine => {
                self.head.begin(line);
                self.place = Place::Fields;
            }
            Place::Fields if line.is_empty() => self.place = self.head.end()?,
            Place::Fields => self.head.field(line)?,
            Place::ChunkSize => self.place = after_chunk_size(line),
            Place::Trailers if line.is_empty() => self.place = Place::RequestLine,
            Place::Trailers | Place::Body(_) | Place::Chunk(_) | Place::Aside => {}
        }
        Ok(())
    }
}

impl Head {
    fn begin(&mut self, line: &[u8]) {
        let mut request_line = std::mem::take(&mut self.request_line);
        request_line.clear();
        request_line.extend_from_slice(line);
        *self = Self { request_line, ..Self::default() };
    }

    fn dialect(&self) -> Option<Dialect> {
        let target = self.request_line.split(|&byte| byte == b' ').nth(1)?;
        let path = std::str::from_utf8(target).ok()?.split('?').next()?;
        crate::proxy::route::error_dialect(path)
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return Err(self.refuse("a header is folded over several lines"));
        }
        let Some(colon) = memchr(b':', line) else { return Ok(()) };
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
        if name.ends_with(b" ") || name.ends_with(b"\t") {
            return Err(self.refuse("there is a space before a header's colon"));
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length(value)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding(value)
        } else if name.eq_ignore_ascii_case(b"host") {
            self.host()
        } else {
            Ok(())
        }
    }

    /// RFC 9112 3.2, also where the lines are the same.
    fn host(&mut self) -> Result<(), Refusal> {
        match std::mem::replace(&mut self.host, true) {
            true => Err(self.refuse("there is more than one Host")),
            false => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Refusal> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
        let Some(length) = length else { return Err(self.refuse("Content-Length is no number")) };
        if self.length.is_some_and(|other| other != length) {
            return Err(self.refuse("there are two different Content-Lengths"));
        }
        self.length = Some(length);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Refusal> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(self.refuse("Transfer-Encoding is other than one \"chunked\""));
        }
        if self.request_line.ends_with(b"HTTP/1.0") {
            return Err(self.refuse("HTTP/1.0 has no Transfer-Encoding"));
        }
        self.chunked = true;
        Ok(())
    }

    fn end(&self) -> Result<Place, Refusal> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(self.refuse("there are both Content-Length and Transfer-Encoding")),
            (true, None) => Ok(Place::ChunkSize),
            (false, None | Some(0)) => Ok(Place::RequestLine),
            (false, Some(length)) => Ok(Place::Body(length)),
        }
    }

    fn refuse(&self, reason: &'static str) -> Refusal {
        Refusal { reason, dialect: self.dialect() }
    }
}

fn after_chunk_size(line: &[u8]) -> Place {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(digits).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
    match size {
        Some(0) => Place::Trailers,
        Some(size) => size.checked_add(2).map_or(Place::Aside, Place::Chunk),
        None => Place::Aside,
    }
}

/// The bytes behind the first `left`, and how many of those are still to come.
fn pass(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let here = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (bytes.get(here..).unwrap_or_default(), left - here as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict over `bytes`, read in pieces of every size, which must not matter.
    fn verdict(bytes: &[u8]) -> Option<&'static str> {
        let read = |size: usize| {
            let mut heads = Heads::default();
            bytes.chunks(size).find_map(|piece| heads.read(piece).err()).map(|refusal| refusal.reason)
        };
        let whole = read(bytes.len());
        for size in 1..bytes.len() {
            assert_eq!(read(size), whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn plain_messages_pass_one_after_another() {
        let mut stream = Vec::new();
        for message in [
            "POST /a HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nab: c",
            "POST /b HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\na\r\n\r\n0\r\nTrailer-Field : v\r\n\r\n",
            "\r\nGET /c HTTP/1.1\nHost: h\n\n",
            "POST /d HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        ] {
            stream.extend_from_slice(message.as_bytes());
        }
        assert_eq!(verdict(&stream), None);
        stream.extend_from_slice(b"GET /e HTTP/1.1\r\nx : y\r\n");
        assert_eq!(verdict(&stream), Some("there is a space before a header's colon"));
    }

    #[test]
    fn ambiguous_framing_is_refused() {
        for head in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length:\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X: a\r\n b\r\n",
            "Content-Length : 5\r\n",
            "Host: a\r\nhost: b\r\n",
        ] {
            assert!(verdict(format!("POST / HTTP/1.1\r\n{head}").as_bytes()).is_some(), "{head:?}");
        }
        assert!(verdict(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n").is_some());
    }

    #[test]
    fn after_a_chunk_that_is_none_it_steps_aside() {
        assert!(verdict(b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\nGET / HTTP/1.1\r\nContent-Length : 1\r\n").is_some());
        let chunks = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\nx : y\r\n";
        assert_eq!(verdict(chunks), None);
    }

    #[test]
    fn a_line_has_a_limit() {
        let head = |length: usize| [b"GET / HTTP/1.1\r\n".to_vec(), vec![b'a'; length]].concat();
        let read = |bytes: &[u8]| bytes.chunks(1000).try_for_each(|piece| Heads::default().read(piece));
        assert!(read(&head(10)).is_ok());
        let mut heads = Heads::default();
        assert!(heads.read(&head(MAX_LINE)).is_ok());
        assert!(heads.read(b"a").is_err());
    }

    #[test]
    fn a_refusal_knows_the_dialect() {
        let mut heads = Heads::default();
        let refusal = heads.read(b"POST /v1/messages?x HTTP/1.1\r\n a\r\n").unwrap_err();
        assert_eq!(refusal.dialect, Some(Dialect::Messages));
    }
}
