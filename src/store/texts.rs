//! How long values lie in the database: zstd, with the length beside it.

use std::io::Read;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Fast enough (about 500 MB/s) that compressing a large text fits into the commit's bound.
const ZSTD_LEVEL: i32 = 1;

/// No stored value is longer than this when unpacked; a row that claims more is damaged.
pub(super) const MAX_VALUE_BYTES: u64 = 256 << 20;

/// A stored value that cannot be read back.
#[derive(Debug, thiserror::Error)]
#[error("a stored value is damaged")]
pub(super) struct Damaged;

/// Compresses the values of one batch: the room that it works in is taken once.
pub(super) struct Packer(zstd::bulk::Compressor<'static>);

impl Packer {
    /// `None` if memory is out.
    pub(super) fn new() -> Option<Self> {
        zstd::bulk::Compressor::new(ZSTD_LEVEL).ok().map(Self)
    }

    /// `bytes`, compressed. `None` if it is over [`MAX_VALUE_BYTES`] (or memory is out).
    pub(super) fn pack(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() as u64 > MAX_VALUE_BYTES {
            return None;
        }
        self.0.compress(bytes).ok()
    }

    pub(super) fn pack_row<T: Serialize>(&mut self, row: &T) -> Option<Vec<u8>> {
        self.pack(&serde_json::to_vec(row).ok()?)
    }
}

/// What [`Packer::pack`] was given.
pub(super) fn unpack(packed: &[u8]) -> Result<Vec<u8>, Damaged> {
    let mut bytes = Vec::new();
    let decoder = zstd::Decoder::with_buffer(packed).map_err(|_| Damaged)?;
    decoder.take(MAX_VALUE_BYTES + 1).read_to_end(&mut bytes).map_err(|_| Damaged)?;
    if bytes.len() as u64 > MAX_VALUE_BYTES { Err(Damaged) } else { Ok(bytes) }
}

/// A stored text of a known length in bytes.
pub(super) fn unpack_text(packed: &[u8], length: i64) -> Result<String, Damaged> {
    let text = String::from_utf8(unpack(packed)?).map_err(|_| Damaged)?;
    if i64::try_from(text.len()) == Ok(length) { Ok(text) } else { Err(Damaged) }
}

pub(super) fn unpack_row<T: DeserializeOwned>(packed: &[u8]) -> Result<T, Damaged> {
    serde_json::from_slice(&unpack(packed)?).map_err(|_| Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
        Packer::new()?.pack(bytes)
    }

    #[test]
    fn a_text_comes_back_exactly() {
        for text in ["", "x", "naïve\r\n\0 \u{10FFFF}", &"line\n".repeat(100_000)] {
            let packed = pack(text.as_bytes()).unwrap();
            assert_eq!(unpack_text(&packed, text.len() as i64).unwrap(), text);
        }
        assert!(pack("line\n".repeat(100_000).as_bytes()).unwrap().len() < 5_000, "it is compressed");
    }

    #[test]
    fn damage_is_an_error_never_another_text() {
        let mut packed = pack(b"twelve bytes").unwrap();
        assert!(unpack_text(&packed, 11).is_err(), "another length");
        packed.truncate(packed.len() - 1);
        assert!(unpack_text(&packed, 12).is_err(), "cut off");
        assert!(unpack(b"not zstd").is_err());
        assert!(unpack_text(&pack(&[0xff]).unwrap(), 1).is_err(), "not UTF-8");
    }
}
