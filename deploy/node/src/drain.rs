//! `waybill drain` and `waybill replay --spool`: every event of a spool goes to the books before it is let go of. A
//! running node is asked to do so and to end; without one the spool is opened here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::{Clock, SystemClock};
use bus::mint::Mint;
use bus::publisher;
use bus::registry::Nodes;
use bus::spool::Spool;
use bus::{Change, Expected, Kv};
use gateway::limits::{self, Limiter};
use schemas::id::SpoolId;
use schemas::limit::planted::Planted;
use schemas::node::NodeRecord;
use schemas::subject::NODE_BUCKET;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::adapters::{self, Carrier};
use crate::config::Config;
use crate::data::{self, DataDirectory};
use crate::supervisor::Supervisor;
use crate::{UsageError, control, numbering, orphans, serve};

/// How long a node that drains waits for the books to take what is in its spool.
pub const DRAIN_WAIT: Duration = Duration::from_mins(1);
/// How often is looked whether the books have everything.
const LOOK: Duration = Duration::from_millis(20);
/// How long the publisher and the ledger of a command may take to end.
const END_WAIT: Duration = Duration::from_secs(8);
/// The file by which a directory is known as a spool's.
const SPOOL_FILE: &str = "spool.id";

/// A spool could not be emptied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node that was asked still runs.
    #[error(
        "the node still drains after {seconds} seconds; wait longer with --wait-seconds, or end it with SIGTERM"
    )]
    Running {
        /// How long was waited.
        seconds: u64,
    },
    /// The node holds the directory, and hears no command.
    #[error(
        "a process holds the data directory and takes no commands; end it with SIGTERM, then drain again"
    )]
    Deaf(#[source] std::io::Error),
    /// The records of quotas cannot be written.
    #[error("the records of quotas do not count yet what is in the spool; it stays there: is the bus well?")]
    Uncounted,
    /// The books do not take the events.
    #[error(
        "{left} events are not in the books after {seconds} seconds: they stay in the spool; is a ledger running?"
    )]
    Left {
        /// Events without a mark.
        left: u64,
        /// How long was waited.
        seconds: u64,
    },
}

/// Drains the node of the configured data directory, or its spool when no node runs. Returns what to print.
pub async fn run(config: &Config, wait: Duration) -> anyhow::Result<String> {
    let begun = Instant::now();
    let data = match DataDirectory::hold(&config.data_dir) {
        Err(data::Error::Held { .. }) => ask_node(config, wait).await?,
        held => held?,
    };
    if !config.spool_dir.join(SPOOL_FILE).exists() {
        return Ok("there is no spool, so there is nothing to drain\n".to_owned());
    }
    let left = wait.saturating_sub(begun.elapsed()).max(END_WAIT);
    empty(config, (data.path(), &config.spool_dir), left).await
}

/// Publishes a spool that was rescued from elsewhere, under its own source and ids. Returns what to print.
pub async fn replay(config: &Config, dir: &Path, wait: Duration) -> anyhow::Result<String> {
    if !dir.join(SPOOL_FILE).exists() {
        let text = format!(
            "{} is not the directory of a spool: it has no file {SPOOL_FILE}",
            dir.display()
        );
        return Err(UsageError(text).into());
    }
    if config.bus.is_shared() {
        return empty(config, (dir, dir), wait).await;
    }
    match DataDirectory::hold(&config.data_dir) {
        Ok(data) => empty(config, (data.path(), dir), wait).await,
        Err(data::Error::Held { .. }) => {
            let text = "a node holds the embedded bus of this data directory; stop it first";
            Err(UsageError(text.to_owned()).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns once the books have every event of the spool.
pub async fn emptied(spool: &Spool) {
    while spool.marked() < spool.appended() {
        sleep(LOOK).await;
    }
}

/// Asks the node that holds the data directory to drain and end, and takes the directory over.
async fn ask_node(config: &Config, wait: Duration) -> anyhow::Result<DataDirectory> {
    let deadline = Instant::now() + wait;
    let running = || Error::Running {
        seconds: wait.as_secs(),
    };
    if !control::drain(&config.data_dir, wait)
        .await
        .map_err(Error::Deaf)?
    {
        return Err(running().into());
    }
    loop {
        match DataDirectory::hold(&config.data_dir) {
            Err(data::Error::Held { .. }) if Instant::now() < deadline => sleep(LOOK).await,
            Err(data::Error::Held { .. }) => return Err(running().into()),
            held => return Ok(held?),
        }
    }
}

/// Opens a spool and publishes what is in it until the books have all of it, and the records of quotas count it; the
/// embedded bus has its ledger here too.
async fn empty(config: &Config, (data_dir, dir): (&Path, &Path), wait: Duration) -> anyhow::Result<String> {
    let deadline = Instant::now() + wait;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mint = Arc::new(Mint::new()?);
    let boot = serve::boot(&mint);
    let (spool, recovered) = Spool::open(config.spool(dir), clock.clone(), mint)?;
    let carrier = Carrier::open(config, data_dir, clock.clone(), wait).await?;
    let mut supervisor = Supervisor::default();
    let (publishing, keeping) = (CancellationToken::new(), CancellationToken::new());
    match &carrier {
        Carrier::Nats(nats) => numbering::begin(&spool, &**nats).await?,
        Carrier::Embedded(embedded) => {
            let store = adapters::open_store(config, data_dir).await?;
            numbering::agree(&spool, &**embedded, Some(&*store)).await?;
            let ports = ledger::Ports::new(carrier.bus(), carrier.kv(), store);
            supervisor.spawn(
                "ledger",
                ledger::run(ledger::Config::default(), ports, keeping.clone()),
            );
        }
    }
    // Before anything is published, and so could leave the spool.
    let limiter = limiter(config, boot, (&spool, &carrier), clock.clone()).await?;
    supervisor.spawn(
        "publisher",
        publisher::run(spool.clone(), carrier.bus(), carrier.kv(), publishing.clone()),
    );
    orphans::settle(&spool, recovered.orphans, config.billing_tz, clock.now()).await?;
    let left = deadline.saturating_duration_since(Instant::now());
    let counted = limiter.tell(left).await;
    let waited = deadline.saturating_duration_since(Instant::now());
    let whole = tokio::select! {
        whole = timeout(waited, emptied(&spool)) => whole.is_ok(),
        Some((name, result)) = supervisor.ended() => {
            result.with_context(|| format!("{name} failed"))?;
            false
        }
    };
    if whole && counted {
        unlist(&*carrier.kv(), spool.id()).await;
    }
    publishing.cancel();
    let mut left = vec!["publisher"];
    let _ = timeout(END_WAIT, supervisor.wait_for(&mut left)).await;
    keeping.cancel();
    let _ = timeout(END_WAIT, async { while supervisor.ended().await.is_some() {} }).await;
    carrier.close().await;
    if !whole && spool.marked() < spool.appended() {
        let left = spool.appended() - spool.marked();
        let seconds = wait.as_secs();
        return Err(Error::Left { left, seconds }.into());
    }
    if !counted {
        return Err(Error::Uncounted.into());
    }
    Ok(format!(
        "the books have every event of the spool {}\n",
        spool.id()
    ))
}

/// Takes the runs on a spool off the list of nodes, which can say nothing any more: the books have all that they said.
/// One that is there after all is back with its next beat; what cannot be taken away stays until it counts as gone.
async fn unlist(kv: &dyn Kv, spool: &SpoolId) {
    let listed = async {
        let mut changes = kv.watch(NODE_BUCKET).await?;
        let mut listed = Vec::new();
        while let Some(Change::Entry(entry)) = changes.recv().await {
            let record = entry.value.as_deref().map(serde_json::from_slice::<NodeRecord>);
            if matches!(record, Some(Ok(record)) if record.spool == *spool) {
                listed.push((entry.key, entry.revision));
            }
        }
        Ok::<_, bus::BusError>(listed)
    };
    let Ok(Ok(listed)) = timeout(END_WAIT, listed).await else {
        return;
    };
    for (key, revision) in listed {
        let gone = kv.delete(NODE_BUCKET, &key, Expected::Revision(revision));
        let _ = timeout(END_WAIT, gone).await;
    }
}

/// What the spool holds of limits, as a node that starts on it would read it.
async fn limiter(
    config: &Config,
    boot: Arc<str>,
    (spool, carrier): (&Spool, &Carrier),
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Limiter> {
    let settings = limits::Settings {
        boot,
        admit_wait: Duration::ZERO,
        billing_tz: config.billing_tz,
        shared: config.bus.is_shared(),
        planted: Planted::default(),
    };
    let ports = limits::Ports {
        bus: carrier.bus(),
        kv: carrier.kv(),
        counters: carrier.counters(),
        nodes: Nodes::new(clock.clone()),
        spool: spool.clone(),
        clock,
    };
    let limiter = Limiter::open(settings, ports).await;
    limiter.context("cannot read what limits hold")
}
