//! What lies under an idempotency key: a lock while its request runs, then the answer with its waybill, or the mark of
//! a key that was freed.
//!
//! The bytes: a version, the length of a head in JSON, the head, and for an answer the envelope of the waybill and the
//! body as they are, whose lengths are in the head. A head may get more members; what an older program must not
//! misread gets a new version.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::BODY_BYTES_MAX;
use super::answer::{Answer, Body};
use crate::digest::Digest;
use crate::id::{RequestId, SpoolId};

/// The version that is written.
const VERSION: u8 = 1;
/// Bytes before the head: the version and the head's length.
const PREFIX_BYTES: usize = 5;
/// Longest head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Largest envelope of a waybill, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 128 * 1024;
/// Longest lease that is believed, in milliseconds: what a record says must not lock a key for ever.
const LEASE_MS_MAX: u64 = 3_600_000;

/// The record of one idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Its request runs.
    Running(Running),
    /// Its request is over.
    Done(Box<Done>),
    /// No upstream took the work of this request: the key is as good as new.
    Freed(RequestId),
}

/// The lock of a request that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The request.
    pub request_id: RequestId,
    /// The run of the process that holds it.
    pub boot: Arc<str>,
    /// The spool in which its end will stand.
    pub spool: SpoolId,
    /// What it asks for.
    pub digest: Digest,
    /// Milliseconds after which whoever has seen nothing but this revision may ask how it ended.
    pub lease_ms: u64,
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The request.
    pub request_id: RequestId,
    /// What it asked for.
    pub digest: Digest,
    /// What it was answered.
    pub answer: Answer,
    /// The envelope of its `request.settled`, as it stands in the spool: whoever replays the answer publishes it again.
    /// Empty where the books had it before.
    pub envelope: Vec<u8>,
}

impl Record {
    /// The request it is about.
    pub fn request_id(&self) -> RequestId {
        match self {
            Self::Running(running) => running.request_id,
            Self::Done(done) => done.request_id,
            Self::Freed(request_id) => *request_id,
        }
    }

    /// The record as bytes. An answer or envelope that is too large to be kept is left out.
    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (head, envelope, body): (Vec<u8>, &[u8], &[u8]) = match self {
            Self::Running(running) => (serde_json::to_vec(&Head::Running(running.clone()))?, &[], &[]),
            Self::Freed(request_id) => {
                let head = Head::Freed {
                    request_id: *request_id,
                };
                (serde_json::to_vec(&head)?, &[], &[])
            }
            Self::Done(done) => {
                let envelope = fitting(&done.envelope, ENVELOPE_BYTES_MAX);
                let body = match &done.answer.body {
                    Body::Kept(body) => fitting(body, BODY_BYTES_MAX),
                    Body::TooLarge { .. } | Body::Gone => &[],
                };
                (
                    serde_json::to_vec(&Head::of_done(done, envelope))?,
                    envelope,
                    body,
                )
            }
        };
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + head.len() + envelope.len() + body.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(envelope);
        bytes.extend_from_slice(body);
        Ok(bytes)
    }

    /// Reads a record; `None` for anything else, also for what a later version says.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (prefix, rest) = bytes.split_at_checked(PREFIX_BYTES)?;
        let [version, length @ ..] = prefix else {
            return None;
        };
        let head_bytes = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        if *version != VERSION || head_bytes > HEAD_BYTES_MAX {
            return None;
        }
        let (head, rest) = rest.split_at_checked(head_bytes)?;
        match serde_json::from_slice(head).ok()? {
            Head::Running(mut running) => {
                running.lease_ms = running.lease_ms.min(LEASE_MS_MAX);
                rest.is_empty().then_some(Self::Running(running))
            }
            Head::Freed { request_id } => rest.is_empty().then_some(Self::Freed(request_id)),
            Head::Done(head) => head.read(rest).map(|done| Self::Done(Box::new(done))),
        }
    }
}

fn fitting(bytes: &[u8], bytes_max: usize) -> &[u8] {
    if bytes.len() > bytes_max { &[] } else { bytes }
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Head {
    Running(Running),
    Done(DoneHead),
    Freed { request_id: RequestId },
}

#[derive(Serialize, Deserialize)]
struct DoneHead {
    request_id: RequestId,
    digest: Digest,
    status: u16,
    stream: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    envelope_bytes: usize,
    body: BodyHead,
}

/// How long a body is, and whether it is there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BodyHead {
    Kept(usize),
    TooLarge(u64),
    Gone,
}

impl Head {
    fn of_done(done: &Done, envelope: &[u8]) -> Self {
        let body = match &done.answer.body {
            Body::Kept(body) if body.len() > BODY_BYTES_MAX => {
                BodyHead::TooLarge(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
            Body::Kept(body) => BodyHead::Kept(body.len()),
            Body::TooLarge { bytes } => BodyHead::TooLarge(*bytes),
            Body::Gone => BodyHead::Gone,
        };
        Self::Done(DoneHead {
            request_id: done.request_id,
            digest: done.digest,
            status: done.answer.status,
            stream: done.answer.stream,
            headers: done.answer.headers.clone(),
            envelope_bytes: envelope.len(),
            body,
        })
    }
}

impl DoneHead {
    fn read(self, rest: &[u8]) -> Option<Done> {
        let (envelope, rest) = rest.split_at_checked(self.envelope_bytes)?;
        let body = match self.body {
            BodyHead::Kept(bytes) if bytes == rest.len() && bytes <= BODY_BYTES_MAX => {
                Body::Kept(rest.to_vec())
            }
            BodyHead::TooLarge(bytes) if rest.is_empty() => Body::TooLarge { bytes },
            BodyHead::Gone if rest.is_empty() => Body::Gone,
            BodyHead::Kept(_) | BodyHead::TooLarge(_) | BodyHead::Gone => return None,
        };
        Some(Done {
            request_id: self.request_id,
            digest: self.digest,
            answer: Answer {
                status: self.status,
                stream: self.stream,
                headers: self.headers,
                body,
            },
            envelope: envelope.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests;
