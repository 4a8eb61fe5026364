//! Questions and answers between the roles of one process. Servers of a subject take turns.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::{BusError, Question};

/// Questions that wait for one server; who asks beyond that waits to be let in.
const WAITING_MAX: usize = 64;

/// Who serves what.
#[derive(Default)]
pub(super) struct Questions {
    servers: Mutex<HashMap<String, Servers>>,
}

#[derive(Default)]
struct Servers {
    all: Vec<mpsc::Sender<Question>>,
    turn: usize,
}

impl Questions {
    pub(super) fn serve(&self, subject: &str) -> mpsc::Receiver<Question> {
        let (server, questions) = mpsc::channel(WAITING_MAX);
        self.servers
            .lock()
            .entry(subject.to_owned())
            .or_default()
            .all
            .push(server);
        questions
    }

    pub(super) async fn ask(&self, subject: &str, payload: Bytes, wait: Duration) -> Result<Bytes, BusError> {
        timeout(wait, self.exchange(subject, payload))
            .await
            .unwrap_or(Err(BusError::Timeout))
    }

    async fn exchange(&self, subject: &str, payload: Bytes) -> Result<Bytes, BusError> {
        let (reply, answer) = oneshot::channel();
        let mut question = Question { payload, reply };
        loop {
            let Some(server) = self.next(subject) else {
                return Err(BusError::NoResponder {
                    subject: subject.to_owned(),
                });
            };
            match server.send(question).await {
                Ok(()) => break,
                Err(mpsc::error::SendError(returned)) => question = returned,
            }
        }
        match answer.await {
            Ok(answer) => Ok(answer),
            // The server let it fall: the asker's time runs on.
            Err(_) => std::future::pending().await,
        }
    }

    /// The server whose turn it is; those that have gone are forgotten.
    fn next(&self, subject: &str) -> Option<mpsc::Sender<Question>> {
        let mut servers = self.servers.lock();
        let of_subject = servers.get_mut(subject)?;
        of_subject.all.retain(|server| !server.is_closed());
        of_subject.turn = of_subject.turn.wrapping_add(1);
        let turn = of_subject.turn.checked_rem(of_subject.all.len())?;
        of_subject.all.get(turn).cloned()
    }
}
