//! The wire in process: for nodes that are everything themselves, and for tests, which may lose, double and delay
//! messages and cut connections. Keeps the promises of [`Wire`]; delivery is immediate and in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{Delivery, Wire};
use crate::BusError;

/// Messages that a listener may lag behind before it loses some.
const LAG_MESSAGES_MAX: usize = 8_192;
/// Most bytes of a payload.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is delivered.
    Pass,
    /// It is lost.
    Drop,
    /// It is delivered twice.
    Double,
    /// It is delivered after this time.
    Late(Duration),
}

/// Decides what becomes of a message: its subject and its payload.
pub type Fates = Box<dyn FnMut(&str, &[u8]) -> Fate + Send>;

/// What the wires of a process are connected to. Cheap to clone.
#[derive(Clone, Default)]
pub struct Network {
    hub: Arc<Hub>,
}

#[derive(Default)]
struct Hub {
    listeners: Mutex<Listeners>,
    fates: Mutex<Option<Fates>>,
    late: Mutex<JoinSet<()>>,
    inboxes: AtomicU64,
}

#[derive(Default)]
struct Listeners {
    all: Vec<Listener>,
    /// Messages that each group has shared so far.
    turns: HashMap<String, usize>,
}

struct Listener {
    subject: String,
    group: Option<String>,
    connected: watch::Receiver<bool>,
    sender: mpsc::Sender<Delivery>,
}

/// One connection to a [`Network`].
pub struct Local {
    hub: Arc<Hub>,
    inbox: String,
    connected: watch::Sender<bool>,
}

impl Network {
    /// A network without connections.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new connection.
    pub fn connect(&self) -> Arc<Local> {
        let number = self.hub.inboxes.fetch_add(1, Ordering::Relaxed);
        Arc::new(Local {
            hub: Arc::clone(&self.hub),
            inbox: format!("_INBOX.local{number}"),
            connected: watch::Sender::new(true),
        })
    }

    /// Decides from now on what becomes of messages; for tests.
    pub fn decide(&self, fates: impl FnMut(&str, &[u8]) -> Fate + Send + 'static) {
        *self.hub.fates.lock() = Some(Box::new(fates));
    }

    /// Delivers everything from now on.
    pub fn pass(&self) {
        *self.hub.fates.lock() = None;
    }
}

impl Local {
    /// Cuts the connection, or restores it: while it is cut nothing is sent and nothing arrives. For tests.
    pub fn cut(&self, cut: bool) {
        self.connected.send_replace(!cut);
    }

    fn listen(&self, subject: &str, group: Option<&str>) -> mpsc::Receiver<Delivery> {
        let (sender, receiver) = mpsc::channel(LAG_MESSAGES_MAX);
        self.hub.listeners.lock().all.push(Listener {
            subject: subject.to_owned(),
            group: group.map(ToOwned::to_owned),
            connected: self.connected.subscribe(),
            sender,
        });
        receiver
    }
}

#[async_trait]
impl Wire for Local {
    async fn send(&self, subject: &str, reply: Option<&str>, payload: Bytes) -> Result<(), BusError> {
        if !*self.connected.borrow() {
            return Err(BusError::Unavailable("the connection is cut".into()));
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BusError::Refused {
                reason: format!("a message has at most {PAYLOAD_BYTES_MAX} bytes"),
            });
        }
        let fate = match &mut *self.hub.fates.lock() {
            Some(fates) => fates(subject, &payload),
            None => Fate::Pass,
        };
        let delivery = Delivery {
            subject: subject.to_owned(),
            reply: reply.map(ToOwned::to_owned),
            payload,
            unheard: false,
        };
        match fate {
            Fate::Pass => self.hub.deliver(delivery),
            Fate::Drop => {}
            Fate::Double => {
                self.hub.deliver(delivery.clone());
                self.hub.deliver(delivery);
            }
            Fate::Late(wait) => {
                let hub = Arc::clone(&self.hub);
                let mut late = self.hub.late.lock();
                while late.try_join_next().is_some() {}
                late.spawn(async move {
                    tokio::time::sleep(wait).await;
                    hub.deliver(delivery);
                });
            }
        }
        Ok(())
    }

    async fn subscribe(&self, subject: &str) -> Result<mpsc::Receiver<Delivery>, BusError> {
        Ok(self.listen(subject, None))
    }

    async fn share(&self, subject: &str, group: &str) -> Result<mpsc::Receiver<Delivery>, BusError> {
        Ok(self.listen(subject, Some(group)))
    }

    fn inbox(&self) -> &str {
        &self.inbox
    }

    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }

    fn connected(&self) -> watch::Receiver<bool> {
        self.connected.subscribe()
    }
}

impl Hub {
    /// Delivers a message, or tells its sender that nobody listens.
    fn deliver(&self, delivery: Delivery) {
        let mut listeners = self.listeners.lock();
        if listeners.deliver(&delivery) {
            return;
        }
        if let Some(reply) = delivery.reply {
            listeners.deliver(&Delivery {
                subject: reply,
                reply: None,
                payload: Bytes::new(),
                unheard: true,
            });
        }
    }
}

impl Listeners {
    /// True when somebody listens.
    fn deliver(&mut self, delivery: &Delivery) -> bool {
        self.all.retain(|listener| !listener.sender.is_closed());
        let mut heard = false;
        let mut served: Vec<&str> = Vec::new();
        for listener in self
            .all
            .iter()
            .filter(|listener| listener.hears(&delivery.subject))
        {
            heard = true;
            let Some(group) = listener.group.as_deref() else {
                listener.take(delivery);
                continue;
            };
            if served.contains(&group) {
                continue;
            }
            served.push(group);
            let of_group =
                |other: &&Listener| other.group.as_deref() == Some(group) && other.hears(&delivery.subject);
            let members: Vec<&Listener> = self.all.iter().filter(of_group).collect();
            let turn = self.turns.entry(group.to_owned()).or_default();
            if let Some(member) = members.get(*turn % members.len().max(1)) {
                member.take(delivery);
            }
            *turn = turn.wrapping_add(1);
        }
        heard
    }
}

impl Listener {
    fn hears(&self, subject: &str) -> bool {
        let matches = match self.subject.strip_suffix('*') {
            Some(prefix) if prefix.ends_with('.') => subject
                .strip_prefix(prefix)
                .is_some_and(|word| !word.is_empty() && !word.contains('.')),
            _ => self.subject == subject,
        };
        matches && *self.connected.borrow()
    }

    fn take(&self, delivery: &Delivery) {
        // A listener that does not keep up loses messages.
        let _ = self.sender.try_send(delivery.clone());
    }
}

#[cfg(test)]
mod tests;
