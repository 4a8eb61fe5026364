//! Who is declared lost, and as what. Whole stories are among the cases of this package's tests.

use bus::faulty::Bent;
use bus::mint::Mint;
use bus::registry;
use bus::spool;
use schemas::event::request::RequestSettled;
use schemas::node::NodeRecord;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fixture::{self, NOON, SOURCE, apply, record, request_id};
use crate::store::sqlite::SqliteStore;

/// Wall time stands still.
struct Stopped(Timestamp);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn monotonic_ms(&self) -> u64 {
        0
    }
}

/// A reaper, and the registry of its node.
struct Scene {
    reaper: Reaper,
    spool: Spool,
    tasks: JoinSet<Result<(), bus::BusError>>,
    bus: Arc<Bent>,
    _dir: TempDir,
}

/// Wall time is `seconds` after the admission of the open request, the third of [`SOURCE`].
async fn scene(seconds: i64) -> Scene {
    let dir = TempDir::new().expect("a directory");
    let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
    let accepted = record(1, fixture::lost(3).accepted);
    apply(&*store, &[accepted]).await.expect("apply");
    let started = NOON.plus_micros(3_000);
    let clock: Arc<dyn Clock> = Arc::new(Stopped(started.plus_micros(seconds * 1_000_000)));
    let options = spool::Options {
        dir: dir.path().join("spool"),
        cluster: "main".to_owned(),
        bytes_max: 1 << 20,
        durability: spool::Durability::Process,
    };
    let mint = Arc::new(Mint::new().expect("randomness"));
    let (spool, _) = Spool::open(options, Arc::clone(&clock), mint).expect("a spool");
    let bus = Arc::new(Bent::default());
    let reaping = Reaping {
        spool: spool.clone(),
        nodes: Nodes::new(Arc::clone(&clock)),
        clock,
        billing_tz: chrono_tz::Pacific::Kiritimati,
    };
    let ports = Ports::new(bus.clone(), bus.clone(), store).with_reaping(reaping);
    ports.state.set_applying(true);
    let reaper = Reaper::new(&Config::default(), &ports).expect("a reaper");
    Scene {
        reaper,
        spool,
        tasks: JoinSet::new(),
        bus,
        _dir: dir,
    }
}

impl Scene {
    /// The reaper's own node beats.
    async fn beat(&mut self) {
        let nodes = self.reaper.reaping.nodes.clone();
        let spool = self.spool.id().clone();
        let telling = Box::new(move || NodeRecord {
            node: "ledger-1".into(),
            boot: "boot-1".into(),
            spool: spool.clone(),
            roles: Vec::new(),
            pool: "default".into(),
            version: "1".into(),
            address: None,
            started_at: NOON,
            catalog_revision: 0,
            configuration: None,
            database_connected: None,
        });
        let end = CancellationToken::new();
        self.tasks
            .spawn(registry::run(self.bus.clone(), nodes.clone(), telling, end));
        let heard = tokio::time::timeout(Duration::from_secs(10), async {
            while nodes.live().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        heard.await.expect("its own beat comes back");
    }
}

#[tokio::test]
async fn a_node_is_gone_after_ten_minutes_on_the_observers_own_clock() {
    let mut scene = scene(0).await;
    scene.beat().await;
    let (source, own) = (Arc::from(SOURCE), Arc::from(scene.spool.source()));
    let start = Instant::now();
    let mut presence = |source: &Arc<str>, seconds| {
        scene
            .reaper
            .presence(source, start + Duration::from_secs(seconds))
    };

    assert_eq!(presence(&source, 0), Presence::There);
    assert_eq!(presence(&source, 599), Presence::There);
    assert_eq!(presence(&source, 600), Presence::Gone);
    assert_eq!(presence(&own, 6_000), Presence::There, "who asks is there");
}

#[tokio::test]
async fn a_request_that_may_still_live_is_not_declared_lost() {
    for (seconds, declared) in [(3_599, 0), (3_600, 1)] {
        let mut scene = scene(seconds).await;
        for _ in 0..2 {
            scene.reaper.reap(SOURCE, Presence::Gone).await.expect("reap");
        }
        assert_eq!(scene.spool.appended(), declared);
    }
    let mut scene = scene(1).await;
    scene
        .reaper
        .reap(SOURCE, Presence::Forgotten)
        .await
        .expect("reap");
    assert_eq!(scene.spool.appended(), 1, "an operator knows better");
}

#[tokio::test]
async fn a_ledger_that_hears_nobody_or_stands_by_declares_nothing() {
    let mut scene = scene(10_000).await;
    scene.reaper.gone_after = Duration::ZERO;
    scene.reaper.look().await.expect("look");
    assert!(scene.reaper.absent.is_empty());
    scene.beat().await;
    scene.reaper.state.set_applying(false);
    scene.reaper.look().await.expect("look");
    assert_eq!(scene.spool.appended(), 0);

    scene.reaper.state.set_applying(true);
    scene.reaper.look().await.expect("look");
    assert_eq!(scene.spool.appended(), 1);
}

#[test]
fn a_declaration_is_the_same_event_whoever_makes_it_and_keeps_the_days_of_the_admission() {
    assert_eq!(event_id(request_id(1)), event_id(request_id(1)));
    assert_ne!(event_id(request_id(1)), event_id(request_id(2)));
    assert_ne!(event_id(request_id(1)).0, request_id(1).0);

    let accepted = fixture::lost(1).accepted;
    let later = NOON.plus_micros(86_400_000_000);
    let row: RequestSettled = lost(&accepted, later, chrono_tz::America::Los_Angeles).into_row();
    let days = [row.waybill_day, row.billing_day, row.billing_month].map(|day| day.to_string());
    assert_eq!(days, ["2026-11-30", "2026-11-29", "2026-11-01"]);
    assert_eq!((row.started_at, row.ended_at), (accepted.started_at, later));
}
