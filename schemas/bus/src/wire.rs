//! The Wire port: messages that are not kept. What travels between a gateway and a router elsewhere goes over it:
//! at most once, in order per sender and subject, lost when nobody listens or a listener is too slow. Whoever needs
//! more numbers his messages.

pub mod local;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::BusError;

/// A message that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Where it was sent.
    pub subject: String,
    /// Where an answer is expected.
    pub reply: Option<String>,
    /// What was sent; empty with `unheard`.
    pub payload: Bytes,
    /// Not a message: what was sent with this subject as its reply reached nobody.
    pub unheard: bool,
}

/// Messages that are not kept.
#[async_trait]
pub trait Wire: Send + Sync {
    /// Sends a message. Returns once it is on its way out, [`BusError::Unavailable`] at once while the connection
    /// is down (nothing is kept for later), [`BusError::Refused`] when it is too large.
    async fn send(&self, subject: &str, reply: Option<&str>, payload: Bytes) -> Result<(), BusError>;

    /// Every message to `subject` from now on, which may end in `.*` for one more word. A receiver that does not
    /// keep up loses messages. The subscription ends when the receiver is dropped, and survives reconnects.
    async fn subscribe(&self, subject: &str) -> Result<mpsc::Receiver<Delivery>, BusError>;

    /// Like [`Wire::subscribe`], but each message reaches one member of the group only.
    async fn share(&self, subject: &str, group: &str) -> Result<mpsc::Receiver<Delivery>, BusError>;

    /// A subject prefix that belongs to this connection alone; listeners subscribe to `<inbox>.*`.
    fn inbox(&self) -> &str;

    /// Most bytes of a payload.
    fn payload_bytes_max(&self) -> usize;

    /// True while connected; every change is seen.
    fn connected(&self) -> watch::Receiver<bool>;
}
