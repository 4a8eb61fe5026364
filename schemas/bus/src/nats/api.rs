//! Requests to a server's interface of streams and consumers, and publishes that are acknowledged, both over one
//! connection and with its rules: fail fast when it is down, fail when forbidden, and always have a deadline.

use std::time::Duration;

use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{self, Context, ContextBuilder, ErrorCode, stream};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::failure;
use super::link::{Link, Touched};
use crate::BusError;

/// Publishes that may wait for their acknowledgment.
const UNACKED_MAX: usize = 4_096;
/// How long to wait before an id that is just being stored is asked about again.
const UNDECIDED_PAUSE: Duration = Duration::from_millis(50);
/// Prefix of the interface.
const PREFIX: &str = "$JS.API.";

/// The interface of streams, over one connection.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) link: Link,
    pub(super) context: Context,
    pub(super) deadline: Duration,
}

impl Api {
    pub(super) fn new(link: Link, deadline: Duration) -> Self {
        let context = ContextBuilder::new()
            .timeout(deadline)
            .ack_timeout(deadline)
            .max_ack_inflight(UNACKED_MAX)
            .backpressure_on_inflight(true)
            .build(link.client.clone());
        Self {
            link,
            context,
            deadline,
        }
    }

    /// One request, `operation` being the subject without its prefix and `question` nothing or JSON. The server's own
    /// error comes as a value.
    pub(super) async fn request<A: DeserializeOwned>(
        &self,
        operation: &str,
        question: Bytes,
    ) -> Result<Result<A, jetstream::Error>, BusError> {
        let subject = format!("{PREFIX}{operation}");
        let request = async {
            let asked = self.link.client.request(subject.clone(), question).await;
            let answer = asked.map_err(|problem| failure::of_request(&subject, problem))?;
            match serde_json::from_slice(&answer.payload) {
                Ok(Response::Ok(answer)) => Ok(Ok(answer)),
                Ok(Response::Err { error }) => Ok(Err(error)),
                Err(problem) => Err(failure::away(problem)),
            }
        };
        self.link
            .call(Touched::Subject(&subject), self.deadline, request)
            .await
    }

    /// A stream's state and configuration; `None` when there is no such stream.
    pub(super) async fn stream_info(&self, name: &str) -> Result<Option<stream::Info>, BusError> {
        match self.request(&format!("STREAM.INFO.{name}"), Bytes::new()).await? {
            Ok(info) => Ok(Some(info)),
            Err(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            Err(said) => Err(failure::away(said)),
        }
    }

    /// Publishes one message and waits until it is stored.
    pub(super) async fn publish(
        &self,
        subject: &str,
        message: PublishMessage,
    ) -> Result<PublishAck, BusError> {
        let publish = async {
            let sent = self.context.send_publish(subject.to_owned(), message).await;
            let acked = match sent {
                Ok(ack) => ack.await,
                Err(problem) => Err(problem),
            };
            acked.map_err(failure::of_publish)
        };
        self.link
            .call(Touched::Subject(subject), self.deadline, publish)
            .await
    }

    /// Sends a message again that carries an id of which the server is not sure yet.
    pub(super) async fn publish_undecided(
        &self,
        subject: &str,
        message: impl Fn() -> PublishMessage,
        until: Instant,
    ) -> Result<PublishAck, PublishError> {
        loop {
            sleep(UNDECIDED_PAUSE).await;
            let sent = self.context.send_publish(subject.to_owned(), message()).await;
            match sent?.await {
                Err(problem) if failure::is_undecided(&problem) && Instant::now() < until => {}
                done => return done,
            }
        }
    }
}

/// No stream of that name.
#[derive(Debug, thiserror::Error)]
#[error("there is no stream {0}")]
pub(super) struct NoStream(pub(super) String);

/// True for what can be published to: words without spaces or wildcards, separated by single dots.
pub(super) fn is_subject(subject: &str) -> bool {
    subject.split('.').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_and_spaces_are_no_part_of_a_subject() {
        for good in ["a", "wb.ev.request.acme", "$KV.wb_catalog.key.01"] {
            assert!(is_subject(good), "{good}");
        }
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a b",
            "a.*",
            "a.>",
            "a\r\nPUB x",
            "ä",
        ] {
            assert!(!is_subject(bad), "{bad}");
        }
    }
}
