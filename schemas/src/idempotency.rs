//! One billed generation per idempotency key, over any number of nodes: what a key is, where its record lies, and what
//! a request that brings one is told. Everything here is pure; whoever acts on it writes, reads and sends.
//!
//! The life of a key. A request [claims](claim) it: whoever creates the record runs, everybody else reads it and is
//! told "in progress", "another body", or the first answer. The one who runs [holds](hold) the key: it renews the
//! record, and in the end puts the [answer] in its place, or frees it when no upstream took the work. What a
//! claim that was given up may still leave behind is [cleared](release) by the same node.
//!
//! What it stands on:
//!
//! - Every write is a compare-and-set, and a write whose answer did not come may still be applied: so what is there is
//!   read back before anything follows from it. A record names the request that wrote it; no two requests share an id.
//! - Nobody compares two machines' clocks. An observer counts a lease from first seeing a revision; a holder counts
//!   from before it sent the write, and stops at nine tenths.
//! - A lease that has run out allows nothing but a question: how did that request end? Only a request of which it is
//!   certain that it is charged nothing, for good, is taken over. So a slow holder, a stale read or a wrong clock can
//!   delay an answer, but not charge a second one.
//! - Two bounds are assumed: a write is done within [`Terms::freed_life_ms`] of being sent, or never; and a node that has
//!   settled a request can say so within [`Terms::running_life_ms`], or is declared gone.

pub mod answer;
pub mod claim;
pub mod creation;
pub mod hold;
pub mod record;
pub mod release;
pub mod room;
pub mod sightings;

use std::fmt;

use crate::digest::Digest;
use crate::failure::{Failure, FailureCode};
use crate::id::{KeyId, TenantId};

/// Longest idempotency key, in bytes.
pub const KEY_BYTES_MAX: usize = 128;
/// Largest answer that is kept to be replayed, in bytes.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
/// How long a lock counts after its last renewal was first seen, in milliseconds.
pub const LEASE_MS: u64 = 60_000;
/// How long an answer is kept by default, in minutes.
pub const KEPT_MINUTES: u16 = 10;
/// Most bytes of the bucket of keys, unless the configuration says otherwise: of small answers some eighty thousand for
/// one tenant alone, and sixty thousand keys without their answers.
pub const BUCKET_BYTES_MAX: u64 = 256 << 20;
/// Longest time an answer may be kept, in minutes.
pub const KEPT_MINUTES_MAX: u16 = 1_440;

/// The header that brings a key, and the one that marks a replay.
pub const HEADER: &str = "idempotency-key";
/// Says `true` on a replay.
pub const REPLAY_HEADER: &str = "x-idempotent-replay";

/// Seconds after which a caller whose first request still runs may ask again.
const RETRY_SECONDS: u64 = 5;
/// Seconds after which a caller may try again while the store of keys is away.
const AWAY_SECONDS: u64 = 5;
/// How long a lock lies in its bucket unless it is renewed, in milliseconds: as long as a node that is gone may come
/// back and say how its requests ended.
const RUNNING_LIFE_MS: u64 = 24 * 3_600_000;
/// How long a freed key leaves its mark, in milliseconds: longer than a write can be under way.
const FREED_LIFE_MS: u64 = 60_000;

/// A caller's idempotency key: 1 to [`KEY_BYTES_MAX`] printable ASCII characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Box<str>);

/// Not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header 'Idempotency-Key' must be 1 to 128 printable characters")]
pub struct KeyError;

impl Key {
    /// Reads the value of the header.
    pub fn parse(value: &[u8]) -> Result<Self, KeyError> {
        let printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if value.is_empty() || value.len() > KEY_BYTES_MAX || !printable {
            return Err(KeyError);
        }
        let text = std::str::from_utf8(value).map_err(|_| KeyError)?;
        Ok(Self(text.into()))
    }
}

/// A key may hold what a caller would not want in a log.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

impl KeyError {
    /// What the caller is told.
    pub fn failure(self) -> Failure {
        Failure::new(FailureCode::InvalidRequest, self.to_string()).param(HEADER)
    }
}

/// Within what a key means the same: one virtual key of one tenant, as authentication found them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant.
    pub tenant: TenantId,
    /// The virtual key.
    pub key_id: KeyId,
}

/// The key of a record in its bucket: the tenant in clear, the rest as a digest. `sha256` digests the parts, one after
/// another.
pub fn record_key(scope: &Scope, key: &Key, sha256: impl FnOnce(&[&[u8]]) -> Digest) -> String {
    let tenant = scope.tenant.as_str();
    let (tenant_bytes, key_bytes) = (length(tenant), length(scope.key_id.as_str()));
    let digest = sha256(&[
        &tenant_bytes,
        tenant.as_bytes(),
        &key_bytes,
        scope.key_id.as_str().as_bytes(),
        key.0.as_bytes(),
    ]);
    format!("{tenant}.{digest}")
}

/// What two requests under one key must have in common, to the byte. `path` is without its query; `body` is what was
/// received. `sha256` digests the parts, one after another.
pub fn fingerprint(method: &str, path: &str, body: &[u8], sha256: impl FnOnce(&[&[u8]]) -> Digest) -> Digest {
    sha256(&[method.as_bytes(), b"\n", path.as_bytes(), b"\n", body])
}

/// The length in front of a part, so that no two lists of parts are the same bytes.
fn length(part: &str) -> [u8; 8] {
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes()
}

/// For how long what counts, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a lock counts after its last renewal was first seen.
    pub lease_ms: u64,
    /// How often it is renewed.
    pub renew_ms: u64,
    /// How long a lock lies in its bucket unless it is renewed.
    pub running_life_ms: u64,
    /// How long an answer lies there.
    pub done_life_ms: u64,
    /// How long a freed key leaves its mark there.
    pub freed_life_ms: u64,
    /// The mistake to make: a switch that only builds with debug assertions have.
    #[cfg(debug_assertions)]
    pub planted: Option<Planted>,
}

/// A mistake that the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A compare-and-set that somebody else won counts as won.
    LostIsWon,
    /// A compare-and-set without an answer counts as lost.
    UnknownIsLost,
    /// A lease is used after its end.
    LeaseOutlived,
    /// What a read says is enough to run.
    ReadAdmits,
}

impl Terms {
    /// The terms under which answers are kept for so many minutes; `None` outside 1 to [`KEPT_MINUTES_MAX`].
    pub fn kept_minutes(minutes: u16) -> Option<Self> {
        (1..=KEPT_MINUTES_MAX).contains(&minutes).then(|| Self {
            done_life_ms: u64::from(minutes) * 60_000,
            ..Self::default()
        })
    }

    /// Whether a mistake is to be made. In a program, none ever is.
    #[cfg_attr(
        not(debug_assertions),
        expect(clippy::unused_self, reason = "there is nothing to ask for a mistake with")
    )]
    const fn makes(&self, mistake: Planted) -> bool {
        #[cfg(debug_assertions)]
        return matches!(self.planted, Some(planted) if planted as u8 == mistake as u8);
        #[cfg(not(debug_assertions))]
        {
            let _ = mistake;
            false
        }
    }

    /// Until when a holder may send, having sent its last write at `sent_ms`.
    const fn lease_end_ms(&self, sent_ms: u64) -> u64 {
        sent_ms.saturating_add(nine_tenths(self.lease_ms))
    }

    /// Until when a holder may charge, having sent its last write at `sent_ms`.
    const fn life_end_ms(&self, sent_ms: u64) -> u64 {
        sent_ms.saturating_add(nine_tenths(self.running_life_ms))
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease_ms: LEASE_MS,
            renew_ms: LEASE_MS / 3,
            running_life_ms: RUNNING_LIFE_MS,
            done_life_ms: u64::from(KEPT_MINUTES) * 60_000,
            freed_life_ms: FREED_LIFE_MS,
            #[cfg(debug_assertions)]
            planted: None,
        }
    }
}

const fn nine_tenths(ms: u64) -> u64 {
    ms - ms / 10
}

/// A write that is to be done, if what is there is what is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What is to be there.
    pub record: record::Record,
    /// The revision it replaces; `None` where nothing may be there.
    pub expected: Option<u64>,
    /// For how long it is to lie there, in milliseconds.
    pub life_ms: u64,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Done: its revision.
    At(u64),
    /// Not done, and never will be: something else was there.
    Conflict,
    /// Not done, and never will be: it is larger than the bus takes, or the bucket is full.
    Refused,
    /// Nobody knows: no answer came, or the bus is away. It may be done, or be done later.
    Unknown,
}

/// What a read of the record found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// Nothing is there.
    Nothing,
    /// This is there.
    Found {
        /// The record; `None` for one that this program cannot read.
        record: Option<Box<record::Record>>,
        /// Its revision.
        revision: u64,
        /// When this node first saw that revision (see [`sightings`]).
        seen_ms: u64,
    },
    /// The bus is away.
    Failed,
}

/// Why a request is refused because of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The first one still runs, or nobody can say how it ended.
    InProgress,
    /// The key belongs to another body.
    Mismatch,
    /// The first one is over and its answer is not there.
    NotReplayable,
    /// The store of keys is away.
    StoreUnavailable,
}

impl Refusal {
    /// Its word in figures.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Mismatch => "mismatch",
            Self::NotReplayable => "not_replayable",
            Self::StoreUnavailable => "store_unavailable",
        }
    }

    /// What the caller is told.
    pub fn failure(self) -> Failure {
        match self {
            Self::InProgress => Failure::new(
                FailureCode::IdempotencyInProgress,
                "the first request with this idempotency key is still running",
            )
            .retry_after(RETRY_SECONDS),
            Self::Mismatch => Failure::new(
                FailureCode::IdempotencyBodyMismatch,
                "the idempotency key was used with another request",
            )
            .param(HEADER),
            Self::NotReplayable => Failure {
                exhausted: true,
                ..Failure::new(
                    FailureCode::IdempotencyNotReplayable,
                    "the first request with this idempotency key is over, and its answer was not kept",
                )
            },
            Self::StoreUnavailable => Failure::new(
                FailureCode::StoreUnavailable,
                "the idempotency key cannot be checked at the moment",
            )
            .retry_after(AWAY_SECONDS),
        }
    }
}

#[cfg(test)]
mod tests;
