//! Content encodings: what a request came in, what an answer goes out in.

use std::io;

use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
use bytes::Bytes;
use http::{HeaderMap, header};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Brotli,
    Zstd,
    /// A zlib stream, as the standard has it.
    Deflate,
}

/// Which answers are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encodes {
    /// Where the client accepts the encoding.
    #[default]
    Accepted,
    /// All, whatever the client accepts: there are such servers.
    All,
}

impl Encoding {
    /// Its name in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        }
    }
}

/// `wanted` if the client accepts it, else `Identity`.
pub fn accepted(headers: &HeaderMap, wanted: Encoding) -> Encoding {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut names = values.flat_map(|value| value.split(',')).map(|name| name.split(';').next().unwrap_or_default());
    if names.any(|name| name.trim().eq_ignore_ascii_case(wanted.name())) { wanted } else { Encoding::Identity }
}

/// The body behind its `content-encoding`; an error if it is not in that encoding.
pub async fn decode(headers: &HeaderMap, body: &[u8]) -> io::Result<Vec<u8>> {
    let name = headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?"));
    match name {
        None | Some("identity") => Ok(body.to_vec()),
        Some("gzip") => read(GzipDecoder::new(body)).await,
        Some("br") => read(BrotliDecoder::new(body)).await,
        Some("zstd") => read(ZstdDecoder::new(body)).await,
        // Both meanings of the name are in use.
        Some("deflate") => match read(ZlibDecoder::new(body)).await {
            Ok(decoded) => Ok(decoded),
            Err(_) => read(DeflateDecoder::new(body)).await,
        },
        Some(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

async fn read(mut decoder: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder.read_to_end(&mut decoded).await?;
    Ok(decoded)
}

/// The pieces encoded as one stream; each can be decoded as soon as it is there.
pub async fn encode(encoding: Encoding, pieces: &[Bytes]) -> io::Result<Vec<Bytes>> {
    match encoding {
        Encoding::Identity => Ok(pieces.to_vec()),
        Encoding::Gzip => write(GzipEncoder::new(Vec::new()), pieces, GzipEncoder::get_mut).await,
        Encoding::Brotli => write(BrotliEncoder::new(Vec::new()), pieces, BrotliEncoder::get_mut).await,
        Encoding::Zstd => write(ZstdEncoder::new(Vec::new()), pieces, ZstdEncoder::get_mut).await,
        Encoding::Deflate => write(ZlibEncoder::new(Vec::new()), pieces, ZlibEncoder::get_mut).await,
    }
}

async fn write<E: AsyncWrite + Unpin>(
    mut encoder: E,
    pieces: &[Bytes],
    written: fn(&mut E) -> &mut Vec<u8>,
) -> io::Result<Vec<Bytes>> {
    let mut encoded = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces {
        encoder.write_all(piece).await?;
        encoder.flush().await?;
        encoded.push(std::mem::take(written(&mut encoder)).into());
    }
    encoder.shutdown().await?;
    encoded.push(std::mem::take(written(&mut encoder)).into());
    Ok(encoded)
}
