//! The limiter before a bus that is bent: what it admits, what it gives back, what it remembers.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus as _;
use bus::clock::Clock;
use bus::faulty::Bent;
use bus::mint::Mint;
use bus::registry::Nodes;
use bus::spool::{self, Durability, Spool};
use chrono_tz::Tz;
use futures_util::future::OptionFuture;
use schemas::event::request::RequestSettled;
use schemas::failure::FailureCode;
use schemas::limit::holdings::demand::{Refusal, Used};
use schemas::limit::layers::{Bound, Name, Scope};
use schemas::limit::limits::LimitKey;
use schemas::limit::quota::record::Record;
use schemas::outcome::Outcome;
use schemas::query::{QueryError, QuotasAnswer, QuotasQuery};
use schemas::subject::{QUERY_QUOTAS, QUOTA_BUCKET, SLOT_BUCKET};
use schemas::time::Timestamp;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Held, Limiter, Ports, Settings, Told, Wanted, driver};
use crate::settle::tests::settled;

/// 2026-11-30T12:00:30Z: the middle of a minute.
const NOON: i64 = 1_796_040_030_000_000;

/// A clock that stands still with tokio's.
struct Paused(Instant);

impl Clock for Paused {
    fn now(&self) -> Timestamp {
        let micros = i64::try_from(self.0.elapsed().as_micros()).expect("a short test");
        Timestamp::from_micros(NOON).plus_micros(micros)
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).expect("a short test")
    }
}

/// One process of a node.
struct Process {
    limiter: Limiter,
    spool: Spool,
    stop: CancellationToken,
    driver: JoinSet<()>,
}

struct Scene {
    bus: Arc<Bent>,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    dirs: Vec<TempDir>,
}

impl Scene {
    fn new(nodes: usize) -> Self {
        Self {
            bus: Arc::default(),
            clock: Arc::new(Paused(Instant::now())),
            mint: Arc::new(Mint::new().expect("randomness")),
            dirs: (0..nodes)
                .map(|_| tempfile::tempdir().expect("a directory"))
                .collect(),
        }
    }

    async fn start(&self, node: usize, boot: &str) -> Process {
        let options = spool::Options {
            dir: self.dirs[node].path().to_owned(),
            cluster: "test".to_owned(),
            bytes_max: 1 << 20,
            durability: Durability::Process,
        };
        let (spool, _) = Spool::open(options, self.clock.clone(), self.mint.clone()).expect("a spool");
        let settings = Settings {
            boot: boot.into(),
            admit_wait: Duration::from_secs(8),
            billing_tz: Tz::UTC,
            shared: true,
            planted: schemas::limit::planted::Planted::default(),
        };
        let ports = Ports {
            bus: self.bus.clone(),
            kv: self.bus.clone(),
            counters: self.bus.clone(),
            nodes: Nodes::new(self.clock.clone()),
            spool: spool.clone(),
            clock: self.clock.clone(),
        };
        let limiter = Limiter::open(settings, ports).await.expect("a limiter");
        let stop = CancellationToken::new();
        let mut driver = JoinSet::new();
        driver.spawn(driver::run(limiter.clone(), stop.clone()));
        Process {
            limiter,
            spool,
            stop,
            driver,
        }
    }

    fn record(&self, name: &str) -> Record {
        let text = self.bus.text(QUOTA_BUCKET, name).expect("a record");
        Record::decode(text.as_bytes()).expect("a record of a quota")
    }
}

impl Process {
    async fn admit(&self, bounds: &[Bound], nano_usd: u64) -> Result<Held, Refusal> {
        let wanted = Wanted {
            bounds: bounds.into(),
            tokens: 10,
            nano_usd,
            at: self.limiter.now().wall,
        };
        self.limiter.admit(wanted).await
    }

    async fn granted(&self, bounds: &[Bound], nano_usd: u64) -> Held {
        match self.admit(bounds, nano_usd).await {
            Ok(held) => held,
            Err(refusal) => panic!("refused: {refusal:?}"),
        }
    }

    async fn refused(&self, bounds: &[Bound], nano_usd: u64) -> Refusal {
        match self.admit(bounds, nano_usd).await {
            Ok(held) => {
                held.release();
                panic!("granted")
            }
            Err(refusal) => refusal,
        }
    }

    /// Charges a request, puts its waybill into the spool and settles it.
    fn settle(&self, mut held: Held, nano_usd: u64) -> u64 {
        let charge = held.charge(used(nano_usd));
        let waybill = RequestSettled {
            quotas: charge.of_quotas(),
            ..settled()
        };
        let appended = self.spool.settle(Timestamp::from_micros(NOON), &waybill);
        let sequence = appended.expect("room").sequence;
        held.settle(Outcome::Ok, sequence);
        charge.nano_usd
    }

    /// Ends in order.
    async fn end(mut self) {
        self.stop.cancel();
        while self.driver.join_next().await.is_some() {}
    }

    /// Dies.
    async fn die(mut self) {
        self.driver.shutdown().await;
    }
}

fn bound(key: LimitKey, limit: u64) -> Bound {
    Bound {
        key,
        scope: Scope::Key,
        model: None,
        limit,
        name: Name::from(format!("acme.k.x.{key}").as_str()),
    }
}

fn used(nano_usd: u64) -> Used {
    Used {
        calls: 1,
        tokens: 10,
        nano_usd,
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nothing_bounds_asks_nobody() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;

    let held = node.granted(&[], 1).await;

    assert!(held.is_nothing());
    held.release();
    assert_eq!(scene.bus.keys(QUOTA_BUCKET), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn two_nodes_grant_a_rate_exactly() {
    let scene = Scene::new(2);
    let nodes = [scene.start(0, "a").await, scene.start(1, "b").await];
    let bounds = [bound(LimitKey::Rpm, 1_000)];

    let mut granted = 0;
    for call in 0..2_000 {
        match nodes[call % 2].admit(&bounds, 1).await {
            Ok(held) => {
                granted += 1;
                held.settle(Outcome::Ok, 0);
            }
            Err(refusal) => assert_eq!(refusal.code, FailureCode::RpmExceeded),
        }
    }

    assert_eq!(granted, 1_000);
    let refusal = nodes[0].refused(&bounds, 1).await;
    assert_eq!(refusal.retry_after_seconds, 30, "the minute ends");
    assert_eq!(refusal.standing.remaining, 0);
}

#[tokio::test(start_paused = true)]
async fn slots_are_never_more_than_the_limit_and_come_back() {
    let scene = Scene::new(2);
    let nodes = [scene.start(0, "a").await, scene.start(1, "b").await];
    let bounds = [bound(LimitKey::Concurrency, 5)];

    let mut running = Vec::new();
    for call in 0..40 {
        if let Ok(held) = nodes[call % 2].admit(&bounds, 1).await {
            running.push(held);
        }
    }
    assert_eq!(running.len(), 5);
    for held in running.drain(..) {
        held.release();
    }
    sleep(Duration::from_secs(1)).await;

    let held = nodes[1].granted(&bounds, 1).await;
    held.release();
    for node in nodes {
        node.end().await;
    }
    let record = scene.bus.text(SLOT_BUCKET, "acme.k.x.concurrency");
    assert_eq!(
        record.as_deref(),
        Some(r#"{"holders":{}}"#),
        "nothing is left behind"
    );
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_dead_node_are_free_after_its_lease() {
    let scene = Scene::new(2);
    let (dying, node) = (scene.start(0, "a").await, scene.start(1, "b").await);
    let bounds = [bound(LimitKey::Concurrency, 1)];
    let held = dying.granted(&bounds, 1).await;
    sleep(Duration::from_millis(200)).await;

    dying.die().await;
    assert_eq!(
        node.refused(&bounds, 1).await.code,
        FailureCode::ConcurrencyExceeded
    );
    sleep(Duration::from_secs(16)).await;
    node.granted(&bounds, 1).await.release();
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_spent_to_the_last_and_the_record_counts_it() {
    let scene = Scene::new(2);
    let nodes = [scene.start(0, "a").await, scene.start(1, "b").await];
    let bounds = [bound(LimitKey::DailyUsd, 1_000)];

    let mut charged = 0;
    for call in 0..400 {
        if let Ok(held) = nodes[call % 2].admit(&bounds, 10).await {
            charged += nodes[call % 2].settle(held, 7);
        }
        sleep(Duration::from_millis(20)).await;
    }

    assert!(charged > 980 && charged <= 1_000, "{charged}");
    let usage = nodes[0].limiter.usage_of(&bounds, &Told::default()).await;
    let own = nodes[1].limiter.usage_of(&bounds, &Told::default()).await;
    sleep(Duration::from_secs(70)).await;
    let record = scene.record("acme.k.x.daily_usd.2026-11-30");
    assert_eq!(record.spent(), u128::from(charged));
    assert_eq!(record.total(), u128::from(charged), "nothing is held at rest");
    let later = nodes[0].limiter.usage_of(&bounds, &Told::default()).await;
    assert_eq!(later[0].used, Some(charged));
    assert!(usage[0].used <= later[0].used && own[0].used <= later[0].used);
}

#[tokio::test(start_paused = true)]
async fn what_is_in_hand_is_granted_while_the_bus_is_away_and_never_more() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::DailyUsd, 1_000)];
    for _ in 0..40 {
        let held = node.granted(&bounds, 10).await;
        node.settle(held, 10);
        sleep(Duration::from_millis(100)).await;
    }
    scene.bus.set_away(true);

    let mut granted = 40;
    let refusal = loop {
        match node.admit(&bounds, 10).await {
            Ok(held) => {
                granted += 1;
                node.settle(held, 10);
            }
            Err(refusal) => break refusal,
        }
    };
    assert!(granted > 45 && granted < 100, "{granted}");
    assert_eq!(refusal.code, FailureCode::StoreUnavailable);
    assert_eq!(refusal.retry_after_seconds, 1);

    scene.bus.set_away(false);
    sleep(Duration::from_secs(1)).await;
    while granted < 100 {
        let held = node.granted(&bounds, 10).await;
        node.settle(held, 10);
        granted += 1;
    }
    let refusal = node.refused(&bounds, 10).await;
    assert_eq!(refusal.code, FailureCode::DailySpendExceeded);
    sleep(Duration::from_secs(6)).await;
    let record = scene.record("acme.k.x.daily_usd.2026-11-30");
    assert_eq!((record.spent(), record.total()), (1_000, 1_000));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_cost_time_and_no_limit() {
    let scene = Scene::new(2);
    let nodes = [scene.start(0, "a").await, scene.start(1, "b").await];
    let bounds = [
        bound(LimitKey::Rpm, 100),
        bound(LimitKey::Concurrency, 3),
        bound(LimitKey::DailyCalls, 50),
    ];

    let mut granted = 0;
    for call in 0..200 {
        if call % 3 == 0 {
            scene.bus.lose_write_answers(1);
        }
        let node = &nodes[call % 2];
        if let Ok(held) = node.admit(&bounds, 1).await {
            granted += 1;
            node.settle(held, 1);
        }
        sleep(Duration::from_millis(50)).await;
    }

    assert!(granted <= 50, "{granted}");
    scene.bus.lose_write_answers(0);
    for _ in 0..60 {
        sleep(Duration::from_millis(1_500)).await;
        if let Ok(held) = nodes[0].admit(&bounds, 1).await {
            granted += 1;
            nodes[0].settle(held, 1);
        }
    }
    assert_eq!(granted, 50, "what was in doubt is had in the end");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(scene.record("acme.k.x.daily_calls.2026-11-30").spent(), 50);
}

#[tokio::test(start_paused = true)]
async fn counters_that_were_made_anew_are_sat_out() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::Rpm, 10)];
    for _ in 0..10 {
        node.granted(&bounds, 1).await.settle(Outcome::Ok, 0);
    }
    scene.bus.forget_counters(scene.clock.now());
    sleep(Duration::from_secs(3)).await;

    let refusal = node.refused(&bounds, 1).await;
    assert_eq!(refusal.code, FailureCode::StoreUnavailable, "nobody can tell");
    sleep(Duration::from_secs(20)).await;
    for _ in 0..10 {
        node.granted(&bounds, 1).await.settle(Outcome::Ok, 0);
    }
    assert_eq!(node.refused(&bounds, 1).await.code, FailureCode::RpmExceeded);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_died_counts_what_its_spool_holds() {
    let scene = Scene::new(2);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::TotalUsd, 1_000)];
    scene.bus.set_away(false);
    let open = node.granted(&bounds, 300).await;
    for _ in 0..3 {
        let held = node.granted(&bounds, 100).await;
        node.settle(held, 50);
    }
    node.die().await;
    drop(open);
    let name = "acme.k.x.total_usd.total";
    assert_eq!(scene.record(name).spent(), 0, "it was not told");
    assert!(scene.record(name).total() >= 300);

    let node = scene.start(0, "b").await;
    sleep(Duration::from_secs(2)).await;

    let record = scene.record(name);
    assert_eq!((record.spent(), record.total()), (150, 150));
    let other = scene.start(1, "c").await;
    assert_eq!(
        other.limiter.usage_of(&bounds, &Told::default()).await[0].used,
        Some(150)
    );
    assert_eq!(
        node.limiter.usage_of(&bounds, &Told::default()).await[0].used,
        Some(150)
    );
    other.granted(&bounds, 850).await.release();
    assert_eq!(
        other.refused(&bounds, 851).await.code,
        FailureCode::TotalSpendExceeded
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_vain_leaves_nothing_behind() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::Concurrency, 1), bound(LimitKey::DailyUsd, 100)];
    scene.bus.set_away(true);

    let began = Instant::now();
    let refusal = node.refused(&bounds, 1).await;
    assert_eq!(refusal.code, FailureCode::StoreUnavailable);
    assert_eq!(began.elapsed().as_secs(), 8);
    let impatient = tokio::time::timeout(Duration::from_secs(1), node.admit(&bounds, 1)).await;
    assert!(impatient.is_err(), "its caller left");

    assert_eq!(node.limiter.figures().reservations_open, 0);
    assert_eq!(node.limiter.0.machine.lock().holdings.waiting(), 0);
    scene.bus.set_away(false);
    sleep(Duration::from_secs(1)).await;
    node.granted(&bounds, 100).await.release();
}

#[tokio::test(start_paused = true)]
async fn more_than_was_reserved_is_covered_where_the_limit_has_it() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::DailyUsd, 1_000)];

    let mut held = node.granted(&bounds, 10).await;
    OptionFuture::from(held.cover(used(900))).await;
    assert_eq!(held.charge(used(900)).nano_usd, 900);
    held.settle(Outcome::Ok, 1);
    let mut held = node.granted(&bounds, 10).await;
    OptionFuture::from(held.cover(used(500))).await;
    let charge = held.charge(used(500));
    assert_eq!((charge.nano_usd, charge.absorbed_nano_usd), (100, 400));
    held.settle(Outcome::Ok, 2);
}

#[tokio::test(start_paused = true)]
async fn a_charge_that_the_spool_refused_is_made_again() {
    let scene = Scene::new(1);
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::DailyUsd, 1_000)];
    let mut held = node.granted(&bounds, 100).await;

    assert_eq!(held.charge(used(80)).nano_usd, 80);
    held.uncharge();
    assert_eq!(held.charge(used(0)).nano_usd, 0);
    held.settle(Outcome::Lost, 1);

    assert_eq!(
        node.limiter.usage_of(&bounds, &Told::default()).await[0].used,
        Some(0)
    );
}

#[tokio::test(start_paused = true)]
async fn counters_that_differ_from_the_books_are_told() {
    let scene = Scene::new(1);
    let mut questions = scene.bus.serve(QUERY_QUOTAS).await.expect("served");
    let node = scene.start(0, "a").await;
    let bounds = [bound(LimitKey::DailyUsd, 1_000)];
    let name = Name::from("acme.k.x.daily_usd.2026-11-30");
    for (told, difference) in [(7, 0), (5, 2), (7, 2)] {
        let held = node.granted(&bounds, 10).await;
        node.settle(held, 7);
        node.spool.trim(node.spool.appended());

        let question = questions.recv().await.expect("it asks");
        let query: QuotasQuery = serde_json::from_slice(&question.payload).expect("a question");
        assert_eq!(query.source, node.spool.source());
        assert_eq!((query.upto, query.upto - query.after), (node.spool.appended(), 1));
        let answer: Result<QuotasAnswer, QueryError> = Ok(QuotasAnswer {
            quotas: [(name.clone(), told)].into(),
        });
        let answer = serde_json::to_vec(&answer).expect("json");
        question.reply.send(answer.into()).expect("it waits");
        sleep(Duration::from_millis(10)).await;
        assert_eq!(node.limiter.figures().counter_ledger_difference, difference);
    }
}
