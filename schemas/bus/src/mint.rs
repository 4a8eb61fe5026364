//! The only place that makes ids, keys and random numbers.

use parking_lot::Mutex;
use schemas::id::{EventId, RequestId};
use schemas::time::Timestamp;
use uuid::{Builder, Uuid};

/// A source of ids and randomness: buffered, so that an id costs no system call.
pub struct Mint {
    pool: Mutex<Pool>,
}

/// Bytes fetched from the operating system at a time.
const POOL_BYTES: usize = 4096;

struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

/// The operating system has no randomness to give.
#[derive(Debug, thiserror::Error)]
#[error("the operating system gives no random bytes")]
pub struct NoRandomness(#[source] getrandom::Error);

impl Mint {
    /// A mint, proven to work by one fetch of randomness.
    pub fn new() -> Result<Self, NoRandomness> {
        let mut bytes = [0; POOL_BYTES];
        getrandom::fill(&mut bytes).map_err(NoRandomness)?;
        Ok(Self {
            pool: Mutex::new(Pool { bytes, used: 0 }),
        })
    }

    /// A new request id, minted at `now`.
    pub fn request_id(&self, now: Timestamp) -> RequestId {
        RequestId(self.uuid_v7(now))
    }

    /// A new event id, minted at `now`.
    pub fn event_id(&self, now: Timestamp) -> EventId {
        EventId(self.uuid_v7(now))
    }

    /// A number below `2^64`, every one as likely.
    pub fn draw(&self) -> u64 {
        u64::from_le_bytes(self.random())
    }

    /// `N` random bytes.
    pub fn random<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        let mut pool = self.pool.lock();
        if pool.used + N > POOL_BYTES {
            // Proven to work at start; should it stop, the rest of the old pool is never handed out twice:
            // `used` moves on only after a fetch that succeeded.
            while getrandom::fill(&mut pool.bytes).is_err() {
                std::thread::yield_now();
            }
            pool.used = 0;
        }
        let from = pool.used;
        out.copy_from_slice(&pool.bytes[from..from + N]);
        pool.bytes[from..from + N].fill(0);
        pool.used += N;
        out
    }

    fn uuid_v7(&self, now: Timestamp) -> Uuid {
        let millis = u64::try_from(now.millis()).unwrap_or(0);
        Builder::from_unix_timestamp_millis(millis, &self.random()).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_differ_and_hold_their_time() {
        let mint = Mint::new().expect("randomness");
        let now = Timestamp::from_micros(1_796_000_000_123_000);

        let first = mint.request_id(now);
        let second = mint.request_id(now);

        assert_ne!(first, second);
        assert_eq!(first.minted_at(), Some(now));
    }

    #[test]
    fn the_pool_refills_when_it_runs_out() {
        let mint = Mint::new().expect("randomness");
        let draws: std::collections::HashSet<u64> = (0..2_000).map(|_| mint.draw()).collect();
        assert_eq!(draws.len(), 2_000);
    }
}
