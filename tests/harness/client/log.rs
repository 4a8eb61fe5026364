//! What the clients of a test were answered, in the words that the checker compares with the books.

use std::sync::Arc;

use http::Response;
use parking_lot::Mutex;
use serde_json::Value;

/// How an answer ended, as its reader saw it.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// A body that is no stream, complete.
    Whole,
    /// A stream with its `[DONE]`.
    Done,
    /// A stream whose last event was this error.
    ErrorEvent(Value),
    /// A stream that ended well framed, without `[DONE]` and without an error.
    EofWithoutDone,
    /// The connection was reset, or ended inside the framing; the text says how.
    Broken(String),
    /// The client left before the end.
    Left,
}

/// One answered inference call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The request id that the node gave; empty if it gave none.
    pub request_id: String,
    /// The HTTP status.
    pub status: u16,
    /// The `code` of the error body, where there is one.
    pub code: Option<String>,
    /// How the answer ended.
    pub end: End,
}

/// What was answered to some clients; clones share it.
#[derive(Debug, Clone, Default)]
pub struct ClientLog {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    answered: Vec<Answered>,
    unanswered: usize,
}

impl ClientLog {
    /// Each answered call, in the order in which the answers ended.
    pub fn answered(&self) -> Vec<Answered> {
        self.inner.lock().answered.clone()
    }

    /// Calls that ended without the head of an answer: their request ids are not known.
    pub fn unanswered(&self) -> usize {
        self.inner.lock().unanswered
    }

    /// Notes a call whose request id its sender will not know.
    pub fn add_unanswered(&self) {
        self.inner.lock().unanswered += 1;
    }

    /// Takes all of another log over.
    pub fn absorb(&self, other: &Self) {
        let (mut answered, unanswered) = (other.answered(), other.unanswered());
        let mut inner = self.inner.lock();
        inner.answered.append(&mut answered);
        inner.unanswered += unanswered;
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Notes an answer that another client than ours got.
    pub fn add(&self, answered: Answered) {
        self.inner.lock().answered.push(answered);
    }
}

/// One answer under way; when dropped without an end the client has left.
pub(super) struct Entry {
    log: ClientLog,
    answered: Option<Answered>,
}

impl Entry {
    pub(super) fn new<B>(log: &ClientLog, response: &Response<B>) -> Self {
        let answered = Answered {
            request_id: super::header(response.headers(), "x-request-id").to_owned(),
            status: response.status().as_u16(),
            code: None,
            end: End::Left,
        };
        Self {
            log: log.clone(),
            answered: Some(answered),
        }
    }

    /// Notes the end; only the first counts.
    pub(super) fn end(&mut self, end: End, code: Option<String>) {
        if let Some(mut answered) = self.answered.take() {
            answered.end = end;
            answered.code = code;
            self.log.add(answered);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(End::Left, None);
    }
}
