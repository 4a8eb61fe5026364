//! What one side of dispatch has to say, on its way to the wire: anybody puts messages in without waiting, one task
//! sends them in order. Bounded: what does not fit is not sent, which the protocol takes as lost on the way.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::debug;

use crate::wire::Wire;

/// Most messages that wait to be sent.
const MESSAGES_MAX: usize = 16_384;
/// Most bytes that wait to be sent.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A message to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Where it goes.
    pub(super) subject: String,
    /// Where an answer is expected.
    pub(super) reply: Option<String>,
    /// What is sent.
    pub(super) payload: Bytes,
    /// The offer that it is, if it is one: its request hears when it cannot be sent.
    pub(super) offer: Option<u64>,
}

/// Messages that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<Outgoing>,
    bytes: usize,
}

impl Outbox {
    /// Puts a message in; false when there is no room.
    pub(super) fn put(&self, message: Outgoing) -> bool {
        let mut queue = self.queue.lock();
        let bytes = queue.bytes.saturating_add(message.payload.len());
        if queue.messages.len() >= MESSAGES_MAX || bytes > BYTES_MAX {
            return false;
        }
        queue.bytes = bytes;
        queue.messages.push_back(message);
        drop(queue);
        self.filled.notify_one();
        true
    }

    /// Sends what is there, in order; returns when nothing is left.
    pub(super) async fn send(&self, wire: &dyn Wire, unsent: &(dyn Fn(u64) + Send + Sync)) {
        while let Some(message) = self.next() {
            let reply = message.reply.as_deref();
            let sent = wire.send(&message.subject, reply, message.payload).await;
            if let Err(problem) = sent {
                debug!(
                    subject = message.subject,
                    error = &problem as &dyn std::error::Error,
                    "a message of dispatch cannot be sent"
                );
                if let Some(lane) = message.offer {
                    unsent(lane);
                }
            }
        }
    }

    /// Sends for ever.
    pub(super) async fn run(&self, wire: &dyn Wire, unsent: &(dyn Fn(u64) + Send + Sync)) {
        loop {
            self.send(wire, unsent).await;
            self.filled.notified().await;
        }
    }

    fn next(&self) -> Option<Outgoing> {
        let mut queue = self.queue.lock();
        let message = queue.messages.pop_front()?;
        queue.bytes = queue.bytes.saturating_sub(message.payload.len());
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_taken() {
        let outbox = Outbox::default();
        let message = |bytes: usize| Outgoing {
            subject: "wb.test".to_owned(),
            reply: None,
            payload: Bytes::from(vec![0; bytes]),
            offer: None,
        };
        assert!(outbox.put(message(BYTES_MAX)));
        assert!(!outbox.put(message(1)));
        assert!(outbox.next().is_some());
        for _ in 0..MESSAGES_MAX {
            assert!(outbox.put(message(0)));
        }
        assert!(!outbox.put(message(0)));
    }
}
