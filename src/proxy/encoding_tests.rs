use async_compression::tokio::bufread as enc;
use proptest::prelude::*;
use tokio::io::AsyncReadExt;

use super::*;

const ENCODED: [Encoding; 4] = [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd, Encoding::Deflate];

/// Runs an encoder over bytes that are all there, so that it never waits.
fn read_all(mut reader: impl AsyncRead + Unpin) -> Bytes {
    let mut out = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    let mut reading = Box::pin(reader.read_to_end(&mut out));
    assert!(reading.as_mut().poll(&mut cx).is_ready());
    drop(reading);
    Bytes::from(out)
}

fn encode(encoding: Encoding, plain: &[u8]) -> Bytes {
    match encoding {
        Encoding::Identity => Bytes::copy_from_slice(plain),
        Encoding::Gzip => read_all(enc::GzipEncoder::new(plain)),
        Encoding::Brotli => read_all(enc::BrotliEncoder::with_quality(plain, async_compression::Level::Fastest)),
        Encoding::Zstd => read_all(enc::ZstdEncoder::new(plain)),
        Encoding::Deflate => read_all(enc::ZlibEncoder::new(plain)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bodies_decode_in_any_pieces(plain in proptest::collection::vec(0u8..4, 0..12_000), cut in 1usize..3_000) {
        for encoding in ENCODED {
            let encoded = encode(encoding, &plain);
            prop_assert_eq!(&decode(encoding, &encoded, plain.len()).unwrap(), &plain);
            let mut decoder = Decoder::new(encoding, plain.len()).unwrap();
            let mut out = Vec::new();
            for piece in encoded.chunks(cut) {
                decoder.feed(Bytes::copy_from_slice(piece), |decoded| out.extend_from_slice(decoded));
            }
            decoder.finish(|decoded| out.extend_from_slice(decoded)).unwrap();
            prop_assert_eq!(&out, &plain);
        }
    }
}

#[test]
fn a_decoder_hands_on_what_has_been_flushed() {
    let plain = vec![7; 100_000];
    let encoded = encode(Encoding::Gzip, &plain);
    let mut decoder = Decoder::new(Encoding::Gzip, usize::MAX).unwrap();
    let mut out = 0;
    decoder.feed(encoded.slice(..encoded.len() - 8), |decoded| out += decoded.len());
    assert_eq!(out, plain.len(), "only the checksum is missing");
}

#[test]
fn the_cap_is_exact_and_broken_bodies_are_refused() {
    let plain = vec![b'a'; 100_000];
    for encoding in ENCODED {
        let encoded = encode(encoding, &plain);
        assert!(decode(encoding, &encoded, plain.len()).is_ok());
        assert_eq!(decode(encoding, &encoded, plain.len() - 1), Err(DecodeError::TooLarge));
        assert_eq!(decode(encoding, &encoded.slice(..encoded.len() - 1), usize::MAX), Err(DecodeError::Broken));
        assert!(decode(encoding, &Bytes::from_static(b"{\"a\": 1}"), 100).is_err());
        assert_eq!(decode(encoding, &Bytes::new(), 100), Err(DecodeError::Broken));
    }
}

/// A small body that becomes a large one takes its share of the buffers step by step.
#[tokio::test]
async fn a_refused_step_ends_the_decoding() {
    let plain = Bytes::from(vec![0; 1 << 20]);
    for (encoding, encoded) in encoded_zeros(&plain).await {
        let (mut admitted, mut asked) = (0, 0);
        let decoded = decode_while(encoding, &encoded, usize::MAX, |bytes| {
            asked += bytes;
            let fits = admitted + bytes <= 100_000;
            admitted += if fits { bytes } else { 0 };
            fits
        });
        assert_eq!(decoded, Err(DecodeError::TooLarge), "{encoding:?}");
        assert!(asked <= 100_000 + STEP && admitted > 0, "{encoding:?}: {asked}");
    }
}

async fn encoded_zeros(plain: &Bytes) -> Vec<(Encoding, Bytes)> {
    use crate::demo::encoding::{Encoding as Demo, encode};
    let mut all = Vec::new();
    for (encoding, demo) in
        [(Encoding::Gzip, Demo::Gzip), (Encoding::Brotli, Demo::Brotli), (Encoding::Zstd, Demo::Zstd)]
    {
        all.push((encoding, encode(demo, std::slice::from_ref(plain)).await.unwrap().concat().into()));
    }
    all
}

#[test]
fn deflate_without_its_wrapper_and_gzip_in_two_members_decode() {
    let raw = read_all(enc::DeflateEncoder::new(&b"hello hello hello"[..]));
    assert_eq!(decode(Encoding::Deflate, &raw, 100).unwrap(), "hello hello hello");
    let members = [encode(Encoding::Gzip, b"one "), encode(Encoding::Gzip, b"two")].concat();
    assert_eq!(decode(Encoding::Gzip, &Bytes::from(members), 100).unwrap(), "one two");
}

#[test]
fn unknown_and_stacked_encodings_have_no_decoder() {
    let of = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, http::HeaderValue::from_static(value));
        }
        Encoding::of(&headers)
    };
    assert_eq!(of(&[]), Some(Encoding::Identity));
    assert_eq!(of(&["GZip"]), Some(Encoding::Gzip));
    assert_eq!(of(&["gzip, br"]), None);
    assert_eq!(of(&["gzip", "br"]), None);
    assert_eq!(of(&["aws-chunked"]), None);
}
