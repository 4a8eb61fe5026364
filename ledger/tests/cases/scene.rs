//! Gateways, a log that can be bent, two ledgers on one set of books; and what must be true in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::clock::{Clock, SystemClock};
use bus::faulty::Bent;
use bus::mint::Mint;
use bus::publisher::{self, Pace};
use bus::registry::{self, Nodes};
use bus::spool::{self, Spool};
use ledger::store::Store;
use ledger::store::sqlite::SqliteStore;
use ledger::{Config, Ports, Reaping};
use schemas::event::Fact;
use schemas::event::request::{Payer, RequestAccepted, RequestLost, RequestSettled, Surface};
use schemas::id::{RequestId, TenantId};
use schemas::limit::Reservation;
use schemas::money::{NanoUsd, PriceVersion};
use schemas::node::{NodeRecord, NodeRole};
use schemas::outcome::Outcome;
use schemas::query::{Interval, LogFilter, LogsQuery, Row, UsageQuery};
use schemas::subject::MARK_BUCKET;
use schemas::time::Timestamp;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What one call costs.
const COST: i64 = 1_000;

/// One log, one set of books.
pub(crate) struct Scene {
    pub(crate) bus: Arc<Bent>,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) answered: BTreeSet<RequestId>,
    pub(crate) dir: TempDir,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    spools: AtomicU64,
}

/// A gateway: a spool and its publisher.
pub(crate) struct Gateway {
    pub(crate) spool: Spool,
    dir: PathBuf,
    publisher: JoinSet<Result<(), bus::BusError>>,
}

/// A ledger at work.
pub(crate) struct Ledger {
    pub(crate) ports: Ports,
    shutdown: CancellationToken,
    tasks: JoinSet<Result<(), ledger::Error>>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = SqliteStore::open(dir.path()).await.expect("a store");
        Self {
            bus: Arc::default(),
            store: Arc::new(store),
            answered: BTreeSet::new(),
            dir,
            clock: Arc::new(SystemClock::new()),
            mint: Arc::new(Mint::new().expect("randomness")),
            spools: AtomicU64::new(0),
        }
    }

    /// A gateway with a spool of its own, publishing.
    pub(crate) fn gateway(&self) -> Gateway {
        let number = self.spools.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.path().join(format!("spool-{number}"));
        self.reopen(&dir)
    }

    fn open_spool(&self, dir: &Path) -> Spool {
        let options = spool::Options {
            dir: dir.to_owned(),
            cluster: "main".to_owned(),
            bytes_max: 1 << 24,
            durability: spool::Durability::Process,
        };
        let opened = Spool::open(options, Arc::clone(&self.clock), Arc::clone(&self.mint));
        opened.expect("a spool").0
    }

    /// A gateway on a directory that is there.
    pub(crate) fn reopen(&self, dir: &Path) -> Gateway {
        let mut gateway = Gateway {
            spool: self.open_spool(dir),
            dir: dir.to_owned(),
            publisher: JoinSet::new(),
        };
        self.publish(&mut gateway);
        gateway
    }

    /// Starts the gateway's publisher.
    pub(crate) fn publish(&self, gateway: &mut Gateway) {
        let pace = Pace {
            grace: Duration::from_millis(150),
            look: Duration::from_millis(30),
        };
        gateway.publisher.spawn(publisher::run_at(
            pace,
            gateway.spool.clone(),
            self.bus.clone(),
            self.bus.clone(),
            CancellationToken::new(),
        ));
    }

    /// The gateway dies and comes back on its spool; `between` sees the directory meanwhile.
    pub(crate) async fn restart(&self, gateway: Gateway, between: impl FnOnce(&Path)) -> Gateway {
        let dir = gateway.kill().await;
        between(&dir);
        self.reopen(&dir)
    }

    /// A ledger on the books of this scene.
    pub(crate) fn ledger(&self) -> Ledger {
        let ports = Ports::new(self.bus.clone(), self.bus.clone(), self.store.clone());
        Self::ledger_with(ports)
    }

    fn ledger_with(ports: Ports) -> Ledger {
        let config = Config {
            gather_ms: 1,
            mark_interval_ms: 10,
            patience_ms: 500,
            gone_seconds: 0,
            holder_gone_seconds: 24 * 3_600,
            request_seconds_max: 0,
            reap_interval_ms: 10,
            ..Config::default()
        };
        let (shutdown, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(ledger::run(config, ports.clone(), shutdown.clone()));
        Ledger {
            ports,
            shutdown,
            tasks,
        }
    }

    /// A ledger that declares requests lost, on a node whose spool is `own`'s.
    pub(crate) fn reaping_ledger(&self, own: &Gateway) -> Ledger {
        let nodes = Nodes::new(Arc::clone(&self.clock));
        let reaping = Reaping {
            spool: own.spool.clone(),
            nodes: nodes.clone(),
            clock: Arc::clone(&self.clock),
            billing_tz: chrono_tz::UTC,
        };
        let ports = Ports::new(self.bus.clone(), self.bus.clone(), self.store.clone()).with_reaping(reaping);
        let mut ledger = Self::ledger_with(ports);
        let record = self.node_record(own);
        let telling = Box::new(move || record.clone());
        let (kv, end) = (self.bus.clone(), CancellationToken::new());
        ledger.tasks.spawn(async move {
            registry::run(kv, nodes, telling, end)
                .await
                .map_err(ledger::Error::Bus)
        });
        ledger
    }

    /// What the node of a gateway says of itself.
    pub(crate) fn node_record(&self, gateway: &Gateway) -> NodeRecord {
        NodeRecord {
            node: gateway.spool.id().as_str().into(),
            boot: gateway.spool.id().as_str().into(),
            spool: gateway.spool.id().clone(),
            roles: vec![NodeRole::Gateway],
            pool: "default".into(),
            version: "1".into(),
            address: None,
            started_at: self.clock.now(),
            catalog_revision: 0,
            configuration: None,
            database_connected: None,
        }
    }

    /// A request that a gateway accepts.
    pub(crate) fn accepted(&self) -> RequestAccepted {
        let now = self.clock.now();
        RequestAccepted {
            request_id: self.mint.request_id(now),
            payer: Payer {
                tenant: TenantId::from("acme"),
                user: None,
                key_id: "key-1".into(),
                key_name: "first".into(),
                job_id: None,
            },
            surface: Surface::Chat,
            model: "model".into(),
            reservation: Reservation::default(),
            price_version: PriceVersion("r1".into()),
            started_at: now,
            node: "node-1".into(),
        }
    }

    /// Answers calls: their rows are owed from now on.
    pub(crate) fn answer(&mut self, gateway: &Gateway, calls: u32) {
        for _ in 0..calls {
            let accepted = self.accepted();
            self.answer_one(gateway, accepted);
        }
    }

    /// Answers one call that was accepted before.
    pub(crate) fn answer_one(&mut self, gateway: &Gateway, accepted: RequestAccepted) {
        let now = self.clock.now();
        let row = RequestSettled {
            outcome: Outcome::Ok,
            status: 200,
            error_code: None,
            cost_nano_usd: NanoUsd(COST),
            cost_usd: NanoUsd(COST).usd(),
            output_tokens: 7,
            ..self.lost(accepted).into_row()
        };
        gateway.spool.settle(now, &row).expect("room in the spool");
        self.answered.insert(row.request_id);
    }

    /// The declaration that a request is lost.
    pub(crate) fn lost(&self, accepted: RequestAccepted) -> RequestLost {
        let day = accepted.started_at.day();
        RequestLost {
            accepted,
            declared_at: self.clock.now(),
            waybill_day: day,
            billing_day: day,
            billing_month: day,
        }
    }

    /// Appends a fact to a gateway's spool.
    pub(crate) fn append<F: Fact>(&self, gateway: &Gateway, fact: &F) {
        let tenant = TenantId::from("acme");
        let appended = gateway.spool.append(&tenant, self.clock.now(), fact);
        appended.expect("room in the spool");
    }

    /// Waits until the books have everything that is in these spools.
    pub(crate) async fn settled(&self, gateways: &[&Gateway]) {
        for gateway in gateways {
            until("the mark reaches the end of the spool", || {
                gateway.spool.marked() == gateway.spool.appended()
            })
            .await;
        }
    }

    /// The mark of a spool.
    pub(crate) fn mark(&self, gateway: &Gateway) -> u64 {
        let mark = self.bus.text(MARK_BUCKET, gateway.spool.id().as_str());
        mark.map_or(0, |mark| mark.parse().expect("a number"))
    }

    pub(crate) async fn rows(&self) -> Vec<Row> {
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let query = LogsQuery {
                filter: LogFilter::default(),
                limit: 500,
                after,
            };
            let page = self.store.logs(&query).await.expect("a page");
            rows.extend(page.data);
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    /// Every answered call has its row and no other has one; sums are those of the rows.
    pub(crate) async fn check(&self) {
        let rows = self.rows().await;
        let found: BTreeSet<RequestId> = rows.iter().map(|row| row.settled.request_id).collect();
        assert_eq!(found.len(), rows.len(), "a request has two rows");
        assert_eq!(found, self.answered);
        assert!(rows.iter().all(|row| row.settled.outcome == Outcome::Ok));
        self.check_sums(&rows).await;
    }

    /// Sums are those of the rows.
    pub(crate) async fn check_sums(&self, rows: &[Row]) {
        let mut expected: BTreeMap<Timestamp, (u64, i64)> = BTreeMap::new();
        for row in rows {
            let micros = row.settled.started_at.micros();
            let hour = Timestamp::from_micros(micros - micros.rem_euclid(3_600_000_000));
            let sum = expected.entry(hour).or_default();
            sum.0 += 1;
            sum.1 += row.settled.cost_nano_usd.0;
        }
        let query = UsageQuery {
            filter: LogFilter::default(),
            group_by: Vec::new(),
            interval: Some(Interval::Hour),
            tz: "UTC".to_owned(),
        };
        let sums = self.store.usage(&query).await.expect("sums");
        let sums: BTreeMap<Timestamp, (u64, i64)> = sums
            .iter()
            .map(|sum| {
                let from = sum.from.as_deref().and_then(Timestamp::parse).expect("a time");
                (from, (sum.requests, sum.cost_nano_usd))
            })
            .collect();
        assert_eq!(sums, expected);
    }
}

impl Gateway {
    /// Its process dies; the directory stays.
    pub(crate) async fn kill(mut self) -> PathBuf {
        self.stop().await;
        self.dir.clone()
    }

    /// Its publisher dies.
    pub(crate) async fn stop(&mut self) {
        self.publisher.shutdown().await;
    }
}

impl Ledger {
    /// It dies.
    pub(crate) async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    /// It ends in order.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = self.tasks.join_next().await.expect("a ledger");
        ended.expect("no panic").expect("a clean end");
        self.tasks.shutdown().await;
    }
}

/// Waits until `condition` holds; a test that waits for long has failed.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}
