//! The bus of a cluster: NATS with JetStream. The log and the counters are streams, buckets are streams in key-value
//! form, questions and the wire are plain messages.
//!
//! A node has two connections: one for what is kept, one for what is not. While a connection is down every call on it
//! fails at once with [`BusError::Unavailable`], nothing is kept for later, and watches and subscriptions go on by
//! themselves when it is back. What the server acknowledged survives its processes; that it survives power failures
//! is up to the servers' `sync_interval` and replicas, which no client can see.

mod api;
mod counters;
mod failure;
mod kv;
mod link;
mod log;
mod pull;
mod questions;
mod room;
pub mod setup;
mod share;
mod watch;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemas::subject::RESPONSE_BUCKET;
use schemas::time::Timestamp;
use tokio::sync::{mpsc, watch as state};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::api::Api;
use self::kv::Buckets;
use self::link::Link;
use self::log::Log;
use self::setup::SetupError;
use self::share::Room;
use self::watch::Watch;
use self::wire::NatsWire;
use crate::counter::{Counters, Slice};
use crate::layout::{Sizes, Stream, cluster};
use crate::publisher::LedgerCursor;
use crate::wire::Wire;
use crate::{Bus, BusError, Change, Entry, Expected, Kv, LogState, Message, Question, Revision, Stored};

/// How to reach the servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Addresses, `nats://[user:password@]host:port` or `tls://…`; one is enough, the others are learned from it.
    pub urls: Vec<String>,
    /// File with the node's credentials (`.creds`).
    pub credentials: Option<PathBuf>,
    /// Certificates; `None` leaves it to the server whether connections are secured.
    pub tls: Option<Tls>,
    /// How the node calls itself in the servers' lists of connections.
    pub name: String,
    /// Prefix of the subjects on which this node gets answers; its user must be allowed to subscribe below it, and
    /// whoever answers it to publish there. `None` is `_INBOX.<user>` where an address names the user, else `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// Copies of each stream that is made: 1 on one server, 3 in a cluster.
    pub replicas: usize,
    /// What must be there, made or compared at the start.
    pub layout: Vec<Stream>,
    /// How long connecting, and what somebody else must make, is waited for.
    pub connect_wait: Duration,
    /// Most time of one call.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            credentials: None,
            tls: None,
            name: "waybill".to_owned(),
            inbox_prefix: None,
            replicas: 1,
            layout: cluster(&Sizes::default()),
            connect_wait: Duration::from_secs(30),
            deadline: Duration::from_secs(5),
        }
    }
}

/// Certificates of a secured connection.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// File with the authority that signed the servers' certificates; `None` trusts the machine's own authorities.
    pub authority: Option<PathBuf>,
    /// Files with this node's certificate and its key, where servers ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// The bus of a cluster.
pub struct Nats {
    api: Api,
    log: Log,
    buckets: Buckets,
    wire: Arc<NatsWire>,
    room: Arc<Room>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    _end: DropGuard,
}

impl Nats {
    /// Connects, checks the servers, and makes or compares what a cluster keeps.
    pub async fn connect(options: Options) -> Result<Arc<Self>, SetupError> {
        let until = Instant::now() + options.connect_wait;
        let link = Link::connect(&options, "log").await?;
        setup::check_server(&link)?;
        let wire = Link::connect(&options, "wire").await?;
        let shutdown = CancellationToken::new();
        let end = shutdown.clone().drop_guard();
        let tasks = TaskTracker::new();
        tasks.spawn(link.clone().observe(shutdown.clone()));
        let api = Api::new(link, options.deadline);
        let losses = api.link.losses();
        setup::ensure(&api, &options, until).await?;
        let deadline = options.deadline;
        tasks.spawn(setup::keep(api.clone(), options, losses, shutdown.clone()));
        Ok(Arc::new(Self {
            log: Log::new(api.clone()),
            buckets: Buckets::new(api.clone()),
            wire: NatsWire::new(wire, deadline),
            room: Arc::default(),
            api,
            tasks,
            shutdown,
            _end: end,
        }))
    }

    /// Messages that are not kept, over their own connection.
    pub fn wire(&self) -> Arc<dyn Wire> {
        Arc::clone(&self.wire) as _
    }

    /// True while the connection of log, buckets and counters is up; every change is seen.
    pub fn connected(&self) -> state::Receiver<bool> {
        self.api.link.connected()
    }

    /// The version of the server that this node is connected to.
    pub fn server_version(&self) -> String {
        self.api.link.client.server_info().version
    }

    /// Lets go of the oldest events that the ledger's cursor has passed, if the log is short of room; returns how many.
    /// To be called now and then by whoever keeps books: a full log takes nothing.
    pub async fn make_room(&self, cursor: LedgerCursor) -> Result<u64, BusError> {
        room::make(&self.api, cursor).await
    }

    /// Ends watches and services, after what was sent is on its way.
    pub async fn close(&self) {
        self.wire.flush().await;
        self.shutdown.cancel();
        self.tasks.close();
        drop(tokio::time::timeout(self.api.deadline, self.tasks.wait()).await);
    }
}

#[async_trait]
impl Bus for Nats {
    async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        self.log.publish(messages).await
    }

    async fn read(&self, from: u64, messages_max: usize, wait: Duration) -> Result<Vec<Stored>, BusError> {
        self.log.read(from, messages_max, wait).await
    }

    async fn state(&self) -> Result<LogState, BusError> {
        self.log.state().await
    }

    async fn ask(&self, subject: &str, question: Bytes, wait: Duration) -> Result<Bytes, BusError> {
        questions::ask(&self.api.link, subject, question, wait).await
    }

    async fn serve(&self, subject: &str) -> Result<mpsc::Receiver<Question>, BusError> {
        let tasks = (&self.tasks, self.shutdown.child_token());
        questions::serve(&self.api.link, subject, self.api.deadline, tasks).await
    }
}

#[async_trait]
impl Kv for Nats {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        self.buckets.get(bucket, key).await
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let bytes = u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
        let value = (Some(value), None);
        let written = self.buckets.write((bucket, key), value, expected).await?;
        if bucket == RESPONSE_BUCKET
            && let Some(look) = self.room.look(bytes)
        {
            self.tasks
                .spawn(look.run(self.api.clone(), self.shutdown.child_token()));
        }
        Ok(written)
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        self.buckets
            .write(place, (Some(value), Some(life)), expected)
            .await
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.buckets.write((bucket, key), (None, None), expected).await
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let (watch, pull, changes) = Watch::open(&self.api, bucket).await?;
        self.tasks.spawn(watch.run(pull, self.shutdown.child_token()));
        Ok(changes)
    }
}

#[async_trait]
impl Counters for Nats {
    async fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
        counters::add(&self.api, slice, name, amount).await
    }

    async fn since(&self, slice: Slice) -> Result<Option<Timestamp>, BusError> {
        counters::since(&self.api, slice).await
    }
}
