//! Reads a request body once, as bytes, within bounds: its own size, the bytes of all bodies in memory, the time a caller
//! may pause, and the time it may take in all. What is refused by its declared length is refused before a byte of it is read. A body that
//! comes compressed is unfolded within the same bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use schemas::failure::{Failure, FailureCode};
use tokio::time::Instant;

mod decode;

use decode::Coding;

/// Largest body that is copied out of the read buffer it came in, in bytes.
const COPIED_BYTES_MAX: usize = 4 * 1024;
/// Largest buffer that is made on the strength of a declared length, in bytes.
const TRUSTED_BYTES_MAX: u64 = 1024 * 1024;
/// Seconds after which a caller refused for want of memory may try again.
const RETRY_SECONDS: u64 = 2;

/// The bytes of bodies that are in memory.
#[derive(Debug)]
pub(crate) struct Bodies {
    bytes: AtomicU64,
    bytes_max: u64,
    /// How long one may be on its way.
    arrival_max: Duration,
}

impl Bodies {
    /// Room for `bytes_max` bytes of bodies that may be on their way as long as they like.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max,
            arrival_max: Duration::MAX,
        }
    }

    /// The same, for bodies each of which has come whole within `arrival_max`.
    pub(crate) fn arriving_within(self, arrival_max: Duration) -> Self {
        Self { arrival_max, ..self }
    }

    /// Bytes taken.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }
}

/// Room for one body, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    bodies: Arc<Bodies>,
    bytes: u64,
}

impl Permit {
    /// Room for nothing yet.
    pub(crate) fn new(bodies: &Arc<Bodies>) -> Self {
        Self {
            bodies: bodies.clone(),
            bytes: 0,
        }
    }

    /// Makes sure of room for `bytes` in all.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), Refusal> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.bodies.take(more) {
            return Err(Refusal::Crowded);
        }
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.bodies.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why a body is not read, or not to its end. In every case the connection closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Larger than one body may be.
    #[error("the request body is larger than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// All bodies together are too large.
    #[error("too many large requests are being read")]
    Crowded,
    /// Compressed in a way that is not known here.
    #[error("the request body may be compressed with gzip or zstd, once")]
    Coded,
    /// Not compressed as its head says.
    #[error("the request body cannot be decompressed")]
    Garbled,
    /// The caller stopped sending, or would never have come to an end.
    #[error("the request body did not arrive in time")]
    Stalled,
    /// The caller's connection broke off.
    #[error("the request body broke off")]
    Broken,
}

impl Refusal {
    /// What the caller is told.
    pub(crate) fn failure(self) -> Failure {
        let text = self.to_string();
        match self {
            Self::TooLarge { .. } => Failure::new(FailureCode::BodyTooLarge, text),
            Self::Crowded => Failure::new(FailureCode::Overloaded, text).retry_after(RETRY_SECONDS),
            Self::Coded => Failure::new(FailureCode::InvalidRequest, text)
                .param("content-encoding")
                .with_status(415),
            Self::Garbled => Failure::new(FailureCode::InvalidRequest, text).param("content-encoding"),
            Self::Stalled => Failure::new(FailureCode::InvalidRequest, text).with_status(408),
            Self::Broken => Failure::new(FailureCode::InvalidRequest, text),
        }
    }
}

/// Bounds on one body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Its size.
    pub(crate) bytes_max: u64,
    /// How long the caller may pause.
    pub(crate) pause_max: Duration,
}

/// Reads `body` whole, with the room it takes. One piece is handed on as it came, without a copy.
pub(crate) async fn read(
    bodies: &Arc<Bodies>,
    headers: &HeaderMap,
    mut body: Body,
    limits: Limits,
) -> Result<(Bytes, Permit), Refusal> {
    let coding = Coding::of(headers)?;
    let declared = body.size_hint().lower();
    let mut permit = Permit::new(bodies);
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let too_large = Refusal::TooLarge {
        bytes_max: limits.bytes_max,
    };
    if declared > limits.bytes_max {
        return Err(too_large);
    }
    permit.grow_to(declared)?;
    let whole_by = Instant::now().checked_add(bodies.arrival_max);
    while let Some(piece) = next(&mut body, limits.pause_max, whole_by).await? {
        let total = wide(first.len()) + wide(rest.len()) + wide(piece.len());
        if total > limits.bytes_max {
            return Err(too_large);
        }
        permit.grow_to(total)?;
        if total == wide(piece.len()) {
            first = piece;
            continue;
        }
        if !first.is_empty() {
            rest.reserve(usize::try_from(declared.max(total).min(TRUSTED_BYTES_MAX)).unwrap_or(0));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        if rest.capacity() - rest.len() < piece.len() {
            // Whoever has sent so much is believed: the buffer grows once more, and to no more than what was said.
            let missing = declared.saturating_sub(wide(rest.len()));
            rest.reserve(usize::try_from(missing).unwrap_or(0).max(piece.len()));
            permit.grow_to(wide(rest.capacity()))?;
        }
        rest.extend_from_slice(&piece);
    }
    let body = if rest.is_empty() {
        apart(first)
    } else {
        rest.freeze()
    };
    match coding {
        None => Ok((body, permit)),
        Some(coding) => {
            let body = decode::unfold(coding, &body, &mut permit, limits.bytes_max).await?;
            Ok((body, permit))
        }
    }
}

/// A small body is copied: it lives as long as its answer, and would keep the connection's whole read buffer.
fn apart(piece: Bytes) -> Bytes {
    if piece.len() > COPIED_BYTES_MAX {
        return piece;
    }
    Bytes::copy_from_slice(&piece)
}

/// The next piece that has bytes; trailers are passed over.
async fn next(
    body: &mut Body,
    pause_max: Duration,
    whole_by: Option<Instant>,
) -> Result<Option<Bytes>, Refusal> {
    loop {
        let paused_by = Instant::now() + pause_max;
        let by = whole_by.map_or(paused_by, |whole_by| whole_by.min(paused_by));
        let frame = tokio::time::timeout_at(by, body.frame()).await;
        match frame.map_err(|_| Refusal::Stalled)? {
            None => return Ok(None),
            Some(Err(_)) => return Err(Refusal::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if !data.is_empty() => return Ok(Some(data)),
                Ok(_) | Err(_) => {}
            },
        }
    }
}

/// A length in memory as a count.
fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        bytes_max: 10,
        pause_max: Duration::from_mins(1),
    };

    fn pieces(pieces: &'static [&'static str]) -> Body {
        let pieces = pieces
            .iter()
            .map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    async fn read_with(bodies: &Arc<Bodies>, body: Body) -> Result<Bytes, Refusal> {
        read(bodies, &HeaderMap::new(), body, LIMITS)
            .await
            .map(|(bytes, _)| bytes)
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let bodies = Arc::new(Bodies::new(100));

        let read = read_with(&bodies, pieces(&["{\"a\"", "", ":1", "}"])).await;

        assert_eq!(read, Ok(Bytes::from_static(b"{\"a\":1}")));
        assert_eq!(bodies.bytes(), 0);
    }

    #[tokio::test]
    async fn a_body_is_refused_as_soon_as_it_is_known_to_be_too_large() {
        let bodies = Arc::new(Bodies::new(100));
        let refused = Err(Refusal::TooLarge { bytes_max: 10 });

        assert_eq!(read_with(&bodies, Body::from("01234567890")).await, refused);
        assert_eq!(read_with(&bodies, pieces(&["012345", "67890"])).await, refused);
        assert_eq!(
            read_with(&bodies, pieces(&["012345", "6789"]))
                .await
                .map(|read| read.len()),
            Ok(10)
        );
        assert_eq!(bodies.bytes(), 0);
    }

    #[tokio::test]
    async fn bodies_together_have_a_bound_and_give_their_room_back() {
        let bodies = Arc::new(Bodies::new(12));

        let first = read(&bodies, &HeaderMap::new(), Body::from("0123456789"), LIMITS).await;
        let second = read_with(&bodies, Body::from("012")).await;
        drop(first);
        let third = read_with(&bodies, Body::from("012")).await;

        assert_eq!(second, Err(Refusal::Crowded));
        assert_eq!(third.map(|read| read.len()), Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_stops_sending_is_not_waited_for() {
        let bodies = Arc::new(Bodies::new(100));
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());

        assert_eq!(read_with(&bodies, silent).await, Err(Refusal::Stalled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_never_pauses_long_is_waited_for_no_longer_than_the_bound() {
        let bodies = Arc::new(Bodies::new(100).arriving_within(Duration::from_mins(5)));
        let dribble = |gap_seconds| {
            let pieces = futures_util::stream::unfold(0, move |count| async move {
                tokio::time::sleep(Duration::from_secs(gap_seconds)).await;
                let piece = Ok::<_, std::io::Error>(Bytes::from_static(b"x"));
                (count < 10).then_some((piece, count + 1))
            });
            Body::from_stream(pieces)
        };
        let started = Instant::now();

        let in_time = read_with(&bodies, dribble(25)).await;
        let too_slow = read_with(&bodies, dribble(50)).await;

        assert_eq!(in_time.map(|read| read.len()), Ok(10));
        assert_eq!(too_slow, Err(Refusal::Stalled));
        assert_eq!(started.elapsed().as_secs(), 11 * 25 + 300);
        assert_eq!(bodies.bytes(), 0);
    }
}
