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
