//! What the gateway itself says in a stream, in the words of its surface: that it still lives, and that it cannot be
//! finished. Its upstream says everything else.

use std::sync::Arc;

use bytes::Bytes;
use dialects::messages;
use dialects::responses::error::Said;
use schemas::event::request::Surface;
use schemas::failure::Failure;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use uuid::Uuid;

use super::Live;
use crate::error;
use crate::responses::Echo;

/// The comment of a silent stream: no part of any dialect, and passed over by clients of all.
pub(super) const COMMENT: Bytes = Bytes::from_static(b": keepalive\n\n");

/// What the gateway says on one stream.
pub(super) struct Voice {
    surface: Surface,
    request_id: RequestId,
    started_at: Timestamp,
    public_model: Arc<str>,
    echo: Option<Box<Echo>>,
    /// The upstream has said something.
    heard: bool,
    /// What it said of its response.
    said: Said,
}

impl Voice {
    /// For the stream of a request.
    pub(super) fn new(request: Option<&Live>) -> Self {
        let accepted = request.map(|live| &live.slot.accepted);
        Self {
            surface: accepted.map_or(Surface::Chat, |accepted| accepted.surface),
            request_id: accepted.map_or(RequestId(Uuid::nil()), |accepted| accepted.request_id),
            started_at: accepted.map_or(Timestamp::default(), |accepted| accepted.started_at),
            public_model: request.map_or_else(|| "".into(), |live| live.public_model.clone()),
            echo: request.and_then(|live| live.echo.clone()),
            heard: false,
            said: Said::default(),
        }
    }

    /// The upstream said `chunk`.
    pub(super) fn heard(&mut self, chunk: &[u8]) {
        self.heard = true;
        if self.surface == Surface::Responses {
            self.said.heard(chunk);
        }
    }

    /// That the stream lives: an event where the dialect has one and a client may expect it, else a comment.
    pub(super) fn alive(&self) -> Bytes {
        if self.surface == Surface::Messages && self.heard {
            messages::error::ping()
        } else {
            COMMENT
        }
    }

    /// That the stream cannot be finished. No end mark follows.
    pub(super) fn failure(&self, failure: &Failure) -> Bytes {
        match self.surface {
            Surface::Messages => messages::error::event(failure, &self.request_id.to_string()),
            Surface::Responses => self.failed(failure),
            Surface::Chat | Surface::Completions | Surface::Embeddings | Surface::Proxy => {
                error::event(failure, self.request_id)
            }
        }
    }

    /// The same of a response.
    fn failed(&self, failure: &Failure) -> Bytes {
        let id = self.request_id.0.as_simple().to_string();
        let created = self.started_at.millis().div_euclid(1_000);
        let told = self.said.failed(failure, &id, &self.public_model, created);
        match &self.echo {
            Some(echo) => echo.own(told),
            None => told,
        }
    }
}
