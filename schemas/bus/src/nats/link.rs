//! One connection, and calls over it. A call on a connection that is down fails at once; one whose connection goes
//! down, or which the server forbids, fails as soon as that is known; every other one has a deadline. The client
//! keeps what is sent while it is disconnected and sends it later, so nothing is given to it then.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Options;
use super::setup::SetupError;
use crate::BusError;

/// The shortest and the longest pause between two attempts to connect again.
const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_millis(500);
/// How long one attempt to connect may take.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// How often a silent server is asked whether it is there; after two without an answer it is not.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Commands that may wait for the connection's task.
const COMMANDS_MAX: usize = 2_048;
/// Messages that may wait in one subscription; what comes on top is lost.
pub(super) const SUBSCRIPTION_MESSAGES_MAX: usize = 8_192;
/// Refusals that are remembered for calls that are just running.
const REFUSALS_MAX: usize = 64;
/// How often the connection's state is read, should its events have been lost.
const STATE_INTERVAL: Duration = Duration::from_millis(250);
/// Where answers come unless a user has a place of its own.
const INBOX: &str = "_INBOX";
/// How long after an answer a refusal that came before it may still be on its way through the client.
const REFUSAL_WAIT: Duration = Duration::from_millis(50);
/// How a server's refusal begins.
const VIOLATION: &str = "permissions violation";

/// The connection is down.
#[derive(Debug, thiserror::Error)]
#[error("no connection to the servers")]
pub(super) struct Disconnected;

/// What is known of a connection.
#[derive(Debug)]
struct Signals {
    connected: watch::Sender<bool>,
    /// Counts how often the connection was lost.
    losses: watch::Sender<u64>,
    /// What the server said when it forbade something.
    refusals: broadcast::Sender<Arc<str>>,
}

impl Signals {
    fn note(&self, name: &str, event: &Event) {
        match event {
            Event::Connected => self.connection_is(true),
            Event::Disconnected | Event::Closed => self.connection_is(false),
            Event::ServerError(ServerError::Other(said)) if is_violation(said) => {
                warn!(connection = name, said = %said, "the server forbids something");
                drop(self.refusals.send(Arc::from(said.as_str())));
            }
            Event::SlowConsumer(_) => warn!(connection = name, "a subscription lost messages"),
            Event::LameDuckMode => info!(connection = name, "the server is about to leave"),
            _ => {}
        }
    }

    fn connection_is(&self, connected: bool) {
        let changed = self
            .connected
            .send_if_modified(|was| std::mem::replace(was, connected) != connected);
        if changed && !connected {
            self.losses.send_modify(|losses| *losses = losses.wrapping_add(1));
        }
    }
}

fn is_violation(said: &str) -> bool {
    said.get(..VIOLATION.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(VIOLATION))
}

/// What a call would do, as a server names it when it forbids it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Touched<'a> {
    /// This subject.
    Subject(&'a str),
    /// Any subject that begins so.
    Prefix(&'a str),
}

impl Touched<'_> {
    fn is_in(self, said: &str) -> bool {
        match self {
            Self::Subject(subject) => said.contains(&format!("\"{subject}\"")),
            Self::Prefix(prefix) => said.contains(&format!("\"{prefix}")),
        }
    }
}

/// One connection.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    signals: Arc<Signals>,
    /// Prefix of the subjects on which answers come.
    pub(super) inbox: Arc<str>,
}

impl Link {
    /// Connects; `purpose` tells the node's connections apart. Tries again until `options.connect_wait` has passed.
    pub(super) async fn connect(options: &Options, purpose: &'static str) -> Result<Self, SetupError> {
        let signals = Arc::new(Signals {
            connected: watch::Sender::new(true),
            losses: watch::Sender::new(0),
            refusals: broadcast::Sender::new(REFUSALS_MAX),
        });
        let addresses = super::setup::addresses(&options.urls)?;
        let until = Instant::now() + options.connect_wait;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut tried = connect_options(options, purpose, &signals).await?;
            let user = super::setup::user(&addresses);
            let inbox: Arc<str> = inbox_prefix(options, user.as_ref()).into();
            tried = tried.custom_inbox_prefix(inbox.as_ref());
            if let Some((user, password)) = user {
                tried = tried.user_and_password(user, password);
            }
            match tried.connect(addresses.as_slice()).await {
                Ok(client) => {
                    return Ok(Self {
                        client,
                        signals,
                        inbox,
                    });
                }
                Err(problem) => {
                    let problem = SetupError::from_connect(options, problem);
                    let pause = reconnect_delay(attempt);
                    if !problem.may_pass() || Instant::now() + pause >= until {
                        return Err(problem);
                    }
                    debug!(
                        connection = purpose,
                        error = &problem as &dyn std::error::Error,
                        "not connected yet"
                    );
                    sleep(pause).await;
                }
            }
        }
    }

    /// Keeps what is known of the connection true until `shutdown`, also when events of the client were lost.
    pub(super) async fn observe(self, shutdown: CancellationToken) {
        loop {
            let is_connected = self.client.connection_state() == State::Connected;
            self.signals.connection_is(is_connected);
            tokio::select! {
                () = sleep(STATE_INTERVAL) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// True while connected; every change is seen.
    pub(super) fn connected(&self) -> watch::Receiver<bool> {
        self.signals.connected.subscribe()
    }

    /// Counts how often the connection was lost.
    pub(super) fn losses(&self) -> watch::Receiver<u64> {
        self.signals.losses.subscribe()
    }

    /// [`BusError::Unavailable`] while the connection is down.
    pub(super) fn check(&self) -> Result<(), BusError> {
        if self.client.connection_state() == State::Connected {
            Ok(())
        } else {
            Err(BusError::Unavailable(Box::new(Disconnected)))
        }
    }

    /// Runs a call: [`BusError::Unavailable`] at once when the connection is down, [`BusError::Refused`] when the
    /// server forbids what it touches or to listen for answers, [`BusError::Timeout`] after `wait` or when the connection is lost meanwhile.
    pub(super) async fn call<T>(
        &self,
        touched: Touched<'_>,
        wait: Duration,
        call: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, BusError> {
        let mut losses = self.losses();
        let mut refusals = self.signals.refusals.subscribe();
        self.check()?;
        tokio::select! {
            biased;
            done = timeout(wait, call) => done.unwrap_or(Err(BusError::Timeout)),
            reason = refusal(&mut refusals, touched, &self.inbox) => Err(BusError::Refused { reason }),
            _ = losses.changed() => Err(BusError::Timeout),
        }
    }

    /// Waits until the server has handled all that was sent before, and until its refusals, which take another way
    /// through the client, would have been seen.
    pub(super) async fn settle(&self) -> Result<(), BusError> {
        self.round_trip().await?;
        sleep(REFUSAL_WAIT).await;
        Ok(())
    }

    async fn round_trip(&self) -> Result<(), BusError> {
        let nobody = self.client.new_inbox();
        let asked = self.client.request(nobody, bytes::Bytes::new()).await;
        match asked {
            Ok(_) => Ok(()),
            Err(problem) if problem.kind() == async_nats::RequestErrorKind::NoResponders => Ok(()),
            Err(problem) => Err(BusError::Unavailable(Box::new(problem))),
        }
    }
}

/// True when the server does not let this user listen for answers.
pub(super) fn is_deaf(said: &str, inbox: &str) -> bool {
    said.contains(&format!("Subscription to \"{inbox}."))
}

/// The next refusal of what is touched, or of the place where answers come.
async fn refusal(refusals: &mut broadcast::Receiver<Arc<str>>, touched: Touched<'_>, inbox: &str) -> String {
    loop {
        match refusals.recv().await {
            Ok(said) if touched.is_in(&said) || is_deaf(&said, inbox) => {
                return format!("{said}; give this node's user that permission");
            }
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

fn reconnect_delay(attempt: usize) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1))
        .unwrap_or(u32::MAX)
        .min(8);
    RECONNECT_MIN.saturating_mul(1 << doublings).min(RECONNECT_MAX)
}

/// Where answers come: below a prefix of the user's own, so that no other user hears them.
fn inbox_prefix(options: &Options, user: Option<&(String, String)>) -> String {
    let is_word = |user: &str| {
        user.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match (&options.inbox_prefix, user) {
        (Some(prefix), _) => prefix.clone(),
        (None, Some((user, _))) if is_word(user) && !user.is_empty() => format!("{INBOX}.{user}"),
        (None, _) => INBOX.to_owned(),
    }
}

async fn connect_options(
    options: &Options,
    purpose: &'static str,
    signals: &Arc<Signals>,
) -> Result<ConnectOptions, SetupError> {
    let signals = Arc::clone(signals);
    let mut connect = ConnectOptions::new()
        .name(format!("{} {purpose}", options.name))
        .client_capacity(COMMANDS_MAX)
        .subscription_capacity(SUBSCRIPTION_MESSAGES_MAX)
        .request_timeout(Some(options.deadline))
        .connection_timeout(CONNECT_WAIT)
        .ping_interval(PING_INTERVAL)
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            signals.note(purpose, &event);
            std::future::ready(())
        });
    if let Some(path) = &options.credentials {
        let read = connect.credentials_file(path).await;
        connect = read.map_err(|source| SetupError::Credentials {
            path: path.clone(),
            source,
        })?;
    }
    if let Some(tls) = &options.tls {
        connect = connect.require_tls(true);
        if let Some(authority) = &tls.authority {
            connect = connect.add_root_certificates(authority.clone());
        }
        if let Some((certificate, key)) = &tls.identity {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
    }
    Ok(connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_between_attempts_to_connect_grow_to_half_a_second() {
        let pauses: Vec<_> = [1, 2, 3, 4, 5, 1_000_000]
            .map(|attempt| reconnect_delay(attempt).as_millis())
            .into();
        assert_eq!(pauses, [50, 100, 200, 400, 500, 500]);
    }

    #[test]
    fn a_user_gets_its_answers_at_a_place_of_its_own() {
        let mut options = Options::default();
        let user = |name: &str| Some((name.to_owned(), String::new()));
        assert_eq!(inbox_prefix(&options, user("ledger").as_ref()), "_INBOX.ledger");
        assert_eq!(inbox_prefix(&options, user("a.>").as_ref()), "_INBOX");
        assert_eq!(inbox_prefix(&options, None), "_INBOX");
        options.inbox_prefix = Some("_IN".to_owned());
        assert_eq!(inbox_prefix(&options, user("ledger").as_ref()), "_IN");
    }

    #[test]
    fn a_refusal_is_told_to_whoever_touched_its_subject() {
        let said = r#"Permissions Violation for Subscription to "wb.run.b" using queue "routers""#;
        assert!(is_violation(said));
        assert!(!is_violation("Stale Connection"));
        assert!(Touched::Subject("wb.run.b").is_in(said));
        assert!(!Touched::Subject("wb.run").is_in(said));
        assert!(Touched::Prefix("wb.run.").is_in(said));
        let deaf = r#"Permissions Violation for Subscription to "_INBOX.a.Gi7nKj39LkOE3TwKRTDv1C.*""#;
        assert!(is_deaf(deaf, "_INBOX.a") && is_deaf(deaf, "_INBOX") && !is_deaf(deaf, "_INBOX.ab"));
        assert!(!is_deaf(said, "_INBOX"));
    }
}
