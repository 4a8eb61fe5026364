//! Bodies that come compressed. What they unfold to is bounded as it grows, by the bytes of one body and of all, so
//! that a few bytes cannot become memory without end; other requests run in between.

use std::io;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::{Permit, Refusal, wide};

/// Bytes that are unfolded at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Largest window of zstd, as a power of two: 8 MiB, which is what every sender keeps to by default.
const WINDOW_LOG_MAX: u32 = 23;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    /// The one coding that the headers name; `None` for a plain body.
    pub(super) fn of(headers: &HeaderMap) -> Result<Option<Self>, Refusal> {
        let mut found = None;
        let values = headers.get_all(CONTENT_ENCODING).iter();
        let words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        for word in words.map(<[u8]>::trim_ascii) {
            let coding = if word.eq_ignore_ascii_case(b"gzip") || word.eq_ignore_ascii_case(b"x-gzip") {
                Self::Gzip
            } else if word.eq_ignore_ascii_case(b"zstd") {
                Self::Zstd
            } else if word.eq_ignore_ascii_case(b"identity") || word.is_empty() {
                continue;
            } else {
                return Err(Refusal::Coded);
            };
            if found.replace(coding).is_some() {
                return Err(Refusal::Coded);
            }
        }
        Ok(found)
    }
}

/// Unfolds `body` to at most `bytes_max` bytes, for which `permit` is made to grow.
pub(super) async fn unfold(
    coding: Coding,
    body: &[u8],
    permit: &mut Permit,
    bytes_max: u64,
) -> Result<Bytes, Refusal> {
    match coding {
        Coding::Gzip => {
            let mut decoder = GzipDecoder::new(body);
            decoder.multiple_members(true);
            drain(decoder, permit, bytes_max).await
        }
        Coding::Zstd => {
            let window = DParameter::window_log_max(WINDOW_LOG_MAX);
            let mut decoder = ZstdDecoder::with_params(body, &[window]);
            decoder.multiple_members(true);
            drain(decoder, permit, bytes_max).await
        }
    }
}

async fn drain(
    mut decoder: impl AsyncRead + Unpin,
    permit: &mut Permit,
    bytes_max: u64,
) -> Result<Bytes, Refusal> {
    let mut plain = BytesMut::new();
    loop {
        plain.reserve(PIECE_BYTES);
        let read: io::Result<usize> = decoder.read_buf(&mut plain).await;
        if read.map_err(|_| Refusal::Garbled)? == 0 {
            return Ok(plain.freeze());
        }
        if wide(plain.len()) > bytes_max {
            return Err(Refusal::TooLarge { bytes_max });
        }
        permit.grow_to(wide(plain.len()))?;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_compression::tokio::write::{GzipEncoder, ZstdEncoder};
    use tokio::io::AsyncWriteExt as _;

    use super::super::Bodies;
    use super::*;

    async fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzipEncoder::new(Vec::new());
                encoder.write_all(plain).await.expect("write");
                encoder.shutdown().await.expect("end");
                encoder.into_inner()
            }
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new());
                encoder.write_all(plain).await.expect("write");
                encoder.shutdown().await.expect("end");
                encoder.into_inner()
            }
        }
    }

    async fn unfolded(coding: Coding, packed: &[u8]) -> Result<usize, Refusal> {
        let bodies = Arc::new(Bodies::new(1_000_000));
        let mut permit = Permit::new(&bodies);
        let plain = unfold(coding, packed, &mut permit, 200_000).await?;
        assert_eq!(bodies.bytes(), wide(plain.len()));
        Ok(plain.len())
    }

    #[tokio::test]
    async fn a_body_unfolds_to_what_was_packed_and_no_further_than_its_bound() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let small = packed(coding, &b"x".repeat(150_000)).await;
            let bomb = packed(coding, &b"x".repeat(20_000_000)).await;

            assert_eq!(unfolded(coding, &small).await, Ok(150_000));
            let refused = Err(Refusal::TooLarge { bytes_max: 200_000 });
            assert_eq!(unfolded(coding, &bomb).await, refused);
        }
    }

    #[tokio::test]
    async fn a_body_that_is_not_what_it_says_is_refused() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let mut torn = packed(coding, br#"{"model":"m"}"#).await;
            torn.truncate(torn.len() - 3);

            assert_eq!(unfolded(coding, b"{}").await, Err(Refusal::Garbled));
            assert_eq!(unfolded(coding, &torn).await, Err(Refusal::Garbled));
        }
    }

    #[test]
    fn one_known_coding_is_taken() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(value));
            Coding::of(&headers)
        };

        assert_eq!(Coding::of(&HeaderMap::new()), Ok(None));
        assert_eq!(of("identity"), Ok(None));
        assert_eq!(of("GZIP"), Ok(Some(Coding::Gzip)));
        assert_eq!(of("zstd, identity"), Ok(Some(Coding::Zstd)));
        assert_eq!(of("gzip, zstd"), Err(Refusal::Coded));
        assert_eq!(of("br"), Err(Refusal::Coded));
    }
}
