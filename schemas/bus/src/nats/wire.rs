//! Messages that are not kept, over a connection of their own, so that no burst of the log delays them. Each
//! subscription is a bounded queue that loses what it has no room for; none ever holds up another.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::api::is_subject;
use super::failure;
use super::link::{Link, SUBSCRIPTION_MESSAGES_MAX, Touched};
use crate::BusError;
use crate::wire::{Delivery, Wire};

/// How long a message may wait until the connection takes it.
const SEND_WAIT: Duration = Duration::from_secs(1);

/// The wire.
pub(super) struct NatsWire {
    link: Link,
    inbox: String,
    deadline: Duration,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    _end: DropGuard,
}

impl NatsWire {
    pub(super) fn new(link: Link, deadline: Duration) -> Arc<Self> {
        let shutdown = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(link.clone().observe(shutdown.clone()));
        Arc::new(Self {
            inbox: link.client.new_inbox(),
            link,
            deadline,
            tasks,
            _end: shutdown.clone().drop_guard(),
            shutdown,
        })
    }

    /// Waits until what was sent is on its way.
    pub(super) async fn flush(&self) {
        drop(timeout(SEND_WAIT, self.link.client.flush()).await);
    }

    async fn listen(&self, subject: &str, group: Option<&str>) -> Result<mpsc::Receiver<Delivery>, BusError> {
        if !is_subject(subject.strip_suffix(".*").unwrap_or(subject)) {
            return Err(BusError::Refused {
                reason: format!("{subject:?} is no subject"),
            });
        }
        let subscribe = async {
            let client = &self.link.client;
            let joined = match group {
                Some(group) => client.queue_subscribe(subject.to_owned(), group.to_owned()).await,
                None => client.subscribe(subject.to_owned()).await,
            };
            let subscriber = joined.map_err(failure::away)?;
            self.link.settle().await?;
            Ok(subscriber)
        };
        let subscriber = self
            .link
            .call(Touched::Subject(subject), self.deadline, subscribe)
            .await?;
        let (sender, deliveries) = mpsc::channel(SUBSCRIPTION_MESSAGES_MAX);
        let shutdown = self.shutdown.clone();
        self.tasks
            .spawn(deliver(subscriber, sender, subject.to_owned(), shutdown));
        Ok(deliveries)
    }
}

#[async_trait]
impl Wire for NatsWire {
    async fn send(&self, subject: &str, reply: Option<&str>, payload: Bytes) -> Result<(), BusError> {
        self.link.check()?;
        if payload.len() > self.payload_bytes_max() {
            return Err(BusError::Refused {
                reason: format!(
                    "{} bytes are more than the server's max_payload of {}",
                    payload.len(),
                    self.payload_bytes_max()
                ),
            });
        }
        let client = &self.link.client;
        let send = async {
            match reply {
                Some(reply) => {
                    let reply = reply.to_owned();
                    client
                        .publish_with_reply(subject.to_owned(), reply, payload)
                        .await
                }
                None => client.publish(subject.to_owned(), payload).await,
            }
        };
        timeout(SEND_WAIT, send)
            .await
            .map_err(|slow| BusError::Unavailable(Box::new(slow)))?
            .map_err(failure::away)
    }

    async fn subscribe(&self, subject: &str) -> Result<mpsc::Receiver<Delivery>, BusError> {
        self.listen(subject, None).await
    }

    async fn share(&self, subject: &str, group: &str) -> Result<mpsc::Receiver<Delivery>, BusError> {
        self.listen(subject, Some(group)).await
    }

    fn inbox(&self) -> &str {
        &self.inbox
    }

    fn payload_bytes_max(&self) -> usize {
        self.link.client.max_payload()
    }

    fn connected(&self) -> watch::Receiver<bool> {
        self.link.connected()
    }
}

/// Hands deliveries over without ever waiting for who takes them.
async fn deliver(
    mut subscriber: Subscriber,
    deliveries: mpsc::Sender<Delivery>,
    subject: String,
    shutdown: CancellationToken,
) {
    let mut lost = 0_u64;
    loop {
        let message = tokio::select! {
            biased;
            () = deliveries.closed() => break,
            () = shutdown.cancelled() => break,
            message = subscriber.next() => message,
        };
        let Some(message) = message else { break };
        match deliveries.try_send(delivery(message)) {
            Ok(()) => {
                if lost > 0 {
                    warn!(subject, messages = lost, "a slow listener lost messages");
                    lost = 0;
                }
            }
            Err(mpsc::error::TrySendError::Full(_)) => lost += 1,
            Err(mpsc::error::TrySendError::Closed(_)) => break,
        }
    }
}

fn delivery(message: Message) -> Delivery {
    let unheard = message.status == Some(StatusCode::NO_RESPONDERS);
    Delivery {
        subject: message.subject.to_string(),
        reply: message.reply.map(|reply| reply.to_string()),
        payload: message.payload,
        unheard,
    }
}
