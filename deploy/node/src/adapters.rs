//! The adapters that a configuration asks for, opened: what carries messages between roles, and where the books are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::Clock;
use bus::counter::Counters;
use bus::embedded::Embedded;
use bus::layout::{self, Sizes};
use bus::nats::setup::SetupError;
use bus::nats::{Nats, Options, Tls};
use bus::{Bus, Kv};
use ledger::store::Store;
use ledger::store::postgres::{self, PostgresStore};
use ledger::store::sqlite::SqliteStore;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::config::{Config, cluster};

/// How long one try to reach the servers of the bus may take; a line of the log tells of each that failed.
const REACH_WITHIN: Duration = Duration::from_secs(5);
/// How long a start looks at the database.
const DATABASE_WITHIN: Duration = Duration::from_secs(10);

/// What carries messages between roles.
#[derive(Clone)]
pub enum Carrier {
    /// This process.
    Embedded(Arc<Embedded>),
    /// Servers that the nodes of a cluster share.
    Nats(Arc<Nats>),
}

impl Carrier {
    /// Opens what the configuration names. The embedded bus lives below `data_dir`; servers are waited for, at most
    /// `wait`.
    pub async fn open(
        config: &Config,
        data_dir: &Path,
        clock: Arc<dyn Clock>,
        wait: Duration,
    ) -> anyhow::Result<Self> {
        match &config.bus {
            cluster::Bus::Embedded { log_bytes_max } => {
                let options = bus::embedded::Options {
                    log_bytes_max: *log_bytes_max,
                    idempotency_bytes_max: config.idempotency_bytes_max,
                    ..Default::default()
                };
                let opened = Embedded::open(&data_dir.join("bus"), options, clock);
                Ok(Self::Embedded(
                    opened.context("cannot open the embedded bus in the data directory")?,
                ))
            }
            cluster::Bus::Nats(nats) => {
                let mut options = options(
                    nats,
                    config.node_id.as_ref().map_or("waybill", |node| node.as_str()),
                    config.idempotency_bytes_max,
                );
                if config.stands_apart() {
                    layout::keep_those_of_a_pool(&mut options.layout);
                }
                Ok(Self::Nats(reach(options, wait).await?))
            }
        }
    }

    /// The log.
    pub fn bus(&self) -> Arc<dyn Bus> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            Self::Nats(nats) => nats.clone(),
        }
    }

    /// The buckets.
    pub fn kv(&self) -> Arc<dyn Kv> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            Self::Nats(nats) => nats.clone(),
        }
    }

    /// The counters of rates.
    pub fn counters(&self) -> Arc<dyn Counters> {
        match self {
            Self::Embedded(embedded) => embedded.clone(),
            Self::Nats(nats) => nats.clone(),
        }
    }

    /// Sends what is on its way and lets go of servers.
    pub async fn close(&self) {
        if let Self::Nats(nats) = self {
            nats.close().await;
        }
    }
}

fn options(nats: &cluster::Nats, name: &str, idempotency_bytes_max: u64) -> Options {
    let sizes = Sizes {
        events_bytes_max: nats.log_bytes_max,
        idempotency_bytes_max,
        ..Sizes::default()
    };
    let cluster::Tls { ca, identity } = nats.tls.clone();
    let secured = ca.is_some() || identity.is_some();
    Options {
        urls: nats.urls.iter().map(|url| url.reveal().clone()).collect(),
        credentials: nats.creds.clone(),
        inbox_prefix: nats.inbox_prefix.clone(),
        tls: secured.then_some(Tls {
            authority: ca,
            identity,
        }),
        name: name.to_owned(),
        replicas: nats.replicas,
        layout: layout::cluster(&sizes),
        ..Options::default()
    }
}

/// Connects, and says in between that it waits.
async fn reach(options: Options, wait: Duration) -> Result<Arc<Nats>, SetupError> {
    let deadline = Instant::now() + wait;
    loop {
        let mut attempt = options.clone();
        attempt.connect_wait = REACH_WITHIN.min(deadline.saturating_duration_since(Instant::now()));
        match Nats::connect(attempt).await {
            Err(problem) if problem.may_pass() && Instant::now() < deadline => {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    seconds_max = wait.as_secs(),
                    "waiting for the bus"
                );
            }
            ended => return ended,
        }
    }
}

/// Opens the books that the configuration names. A database on a server is looked at now, so that tables of another
/// version stop the start; one that is away does not: it is asked again for as long as the ledger runs.
pub async fn open_store(config: &Config, data_dir: &Path) -> anyhow::Result<Arc<dyn Store>> {
    let (url, migrate) = match &config.store {
        cluster::Store::Sqlite => {
            let store = SqliteStore::open(data_dir)
                .await
                .context("cannot open the books in the data directory")?;
            return Ok(Arc::new(store));
        }
        cluster::Store::Postgres { url, migrate } => (url, *migrate),
    };
    let options = postgres::Options {
        migrate,
        ..postgres::Options::default()
    };
    let store = PostgresStore::new(url.reveal(), options)?;
    match timeout(DATABASE_WITHIN, store.prepare()).await {
        Ok(Ok(())) => info!(store = %config.store, "the books are open"),
        Ok(Err(problem)) if !problem.retryable() => return Err(problem.into()),
        Ok(Err(problem)) => warn!(
            error = &problem as &dyn std::error::Error,
            store = %config.store,
            "the database is away: events wait in the log until it is there"
        ),
        Err(_) => warn!(
            store = %config.store,
            "the database does not answer: events wait in the log until it does"
        ),
    }
    Ok(Arc::new(store))
}
