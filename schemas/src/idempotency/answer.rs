//! What of an answer is kept under its key, and what a request's ending means for the key.
//!
//! Kept are the status, the headers on a list, and the bytes that were handed to the caller, a stream's events with its
//! end included: replayed in one piece they are the same valid stream of the same dialect, since the body that asks for
//! them is the same. Left out is what belongs to one connection or one moment: framing, cookies, rates, request ids,
//! and the comments that kept a silent stream alive.

use super::BODY_BYTES_MAX;
use crate::event::request::Attempt;
use crate::outcome::Outcome;

/// Headers of an answer that a replay has as well, in lower case.
pub const KEPT_HEADERS: [&str; 5] = [
    "content-type",
    "x-routed-model",
    "x-routing-purpose-fallback",
    "x-session-id",
    "x-waybill-dropped",
];
/// Longest value that is kept, in bytes.
const VALUE_BYTES_MAX: usize = 4_096;

/// What a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body is a stream of events.
    pub stream: bool,
    /// Those of [`KEPT_HEADERS`] that it had.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Body,
}

/// The body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// All of it.
    Kept(Vec<u8>),
    /// It was larger than [`BODY_BYTES_MAX`], or than there was room for.
    TooLarge {
        /// How large, in bytes.
        bytes: u64,
    },
    /// It is lost: its node died after it had settled, or its caller left and nobody heard it out.
    Gone,
}

impl Answer {
    /// One that nobody has.
    pub const fn gone(status: u16) -> Self {
        Self {
            status,
            stream: false,
            headers: Vec::new(),
            body: Body::Gone,
        }
    }

    /// True when it can be given again.
    pub const fn is_replayable(&self) -> bool {
        matches!(self.body, Body::Kept(_))
    }
}

/// Listens to an answer on its way out. Holds at most [`BODY_BYTES_MAX`] of it.
#[derive(Debug, Clone)]
pub struct Keeper {
    status: u16,
    stream: bool,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    bytes: u64,
    forgotten: bool,
}

impl Keeper {
    /// The head of an answer leaves. `stream`: its body is a stream of events.
    pub fn new<'a>(status: u16, stream: bool, headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            status,
            stream,
            headers: headers.into_iter().filter_map(kept).collect(),
            body: Vec::new(),
            bytes: 0,
            forgotten: false,
        }
    }

    /// True while the answer, as far as it was heard, can be given again.
    pub fn keeps(&self) -> bool {
        !self.forgotten && usize::try_from(self.bytes).is_ok_and(|bytes| bytes <= BODY_BYTES_MAX)
    }

    /// Keeps nothing of the body: there is no room for it.
    pub fn forget(&mut self) {
        self.forgotten = true;
        self.body = Vec::new();
    }

    /// A piece of the body leaves: whole events, where it is a stream.
    pub fn piece(&mut self, piece: &[u8]) {
        if self.stream && is_comment(piece) {
            return;
        }
        self.bytes = self
            .bytes
            .saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if self.keeps() {
            self.body.extend_from_slice(piece);
        } else {
            self.body = Vec::new();
        }
    }

    /// What was heard, its last piece being its end.
    pub fn finish(self) -> Answer {
        let body = if self.keeps() {
            Body::Kept(self.body)
        } else {
            Body::TooLarge { bytes: self.bytes }
        };
        Answer {
            status: self.status,
            stream: self.stream,
            headers: self.headers,
            body,
        }
    }
}

/// A header as it is kept, if it is.
fn kept((name, value): (&str, &str)) -> Option<(String, String)> {
    let known = KEPT_HEADERS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(name))?;
    let sound = value.len() <= VALUE_BYTES_MAX && !value.bytes().any(|byte| byte.is_ascii_control());
    sound.then(|| ((*known).to_owned(), value.to_owned()))
}

/// True for events that say nothing: comments alone.
fn is_comment(piece: &[u8]) -> bool {
    let mut lines = piece.split(|byte| matches!(byte, b'\n' | b'\r'));
    !piece.is_empty() && lines.all(|line| line.is_empty() || line.starts_with(b":"))
}

/// How a request ended, as far as its key is concerned.
#[derive(Debug, Clone, Copy)]
pub struct Ending<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// Every try.
    pub attempts: &'a [Attempt],
    /// What the caller was told, or would have been told had he stayed, was heard to its end.
    pub heard_out: bool,
}

/// What becomes of the key of a request that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It is freed: the next request may run.
    Free,
    /// What the caller was told is kept, a failure as well, and told again.
    Keep,
    /// It is closed: nothing runs under it, and there is nothing to be told.
    Close,
}

impl Ending<'_> {
    /// Frees the key where no upstream can have taken the work: a second generation needs a second key.
    pub fn disposition(&self) -> Disposition {
        let taken = self.outcome == Outcome::Ok || self.attempts.iter().any(took_work);
        match (taken, self.heard_out) {
            (false, _) => Disposition::Free,
            (true, true) => Disposition::Keep,
            (true, false) => Disposition::Close,
        }
    }
}

/// Whether the upstream of an attempt took the work, or may have: it said so by its status, or the connection that
/// brought the request to it ended without one. An upstream that could not be reached has not.
fn took_work(attempt: &Attempt) -> bool {
    match attempt.status {
        Some(status) => (200..300).contains(&status),
        None => attempt.outcome != Outcome::UpstreamError,
    }
}

#[cfg(test)]
mod tests;
