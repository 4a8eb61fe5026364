//! Days are sealed once, and what is done to the books afterwards is found. A verifier in another language that knows the
//! documentation alone says the same.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bus::clock::Clock;
use bus::mint::Mint;
use bus::spool::{self, Spool};
use bus::{Message, Stored};
use schemas::event::Event;
use schemas::event::request::RequestSettled;
use schemas::merkle::seal_digest;
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

use super::chain::Chain;
use super::sealer::{Sealer, Sealing};
use super::verify::{Asked, Fault, Report};
use super::*;
use crate::Ports;
use crate::fixture::memory::MemoryBus;
use crate::fixture::{NOON, SOURCE, adjusted, apply, full, lost, record, request_id, settled};
use crate::store::sqlite::{FILE_NAME, SqliteStore};

const HOUR: i64 = 3_600_000_000;
/// The UTC day of [`NOON`].
const DAY: &str = "2026-11-30";

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

struct Scene {
    store: Arc<SqliteStore>,
    dir: TempDir,
}

/// One ledger's sealer and its spool.
struct Ledger {
    sealer: Sealer,
    spool: Spool,
    _dir: TempDir,
}

impl Ledger {
    /// What it has told so far.
    async fn told(&self) -> Vec<(u64, Message)> {
        while self.spool.readable() < self.spool.appended() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        self.spool.read(1, 100).expect("a batch")
    }
}

/// When the day of [`NOON`] may be sealed.
fn due() -> Timestamp {
    Timestamp::parse("2026-12-03T00:00:00Z").expect("a time")
}

impl Scene {
    async fn of(records: &[Record]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = Arc::new(SqliteStore::open(dir.path()).await.expect("a store"));
        apply(&*store, records).await.expect("apply");
        Self { store, dir }
    }

    fn ledger(&self) -> Ledger {
        let dir = TempDir::new().expect("a directory");
        let clock: Arc<dyn Clock> = Arc::new(Stopped(due()));
        let options = spool::Options {
            dir: dir.path().join("spool"),
            cluster: "main".to_owned(),
            bytes_max: 1 << 20,
            durability: spool::Durability::Process,
        };
        let mint = Arc::new(Mint::new().expect("randomness"));
        let (spool, _) = Spool::open(options, Arc::clone(&clock), mint).expect("a spool");
        let sealing = Sealing {
            spool: spool.clone(),
            clock,
            node: "node-1".into(),
        };
        let bus = Arc::new(MemoryBus::default());
        let ports = Ports::new(bus.clone(), bus, self.store.clone()).with_sealing(sealing);
        ports.state.set_applying(true);
        Ledger {
            sealer: Sealer::new(&ports).expect("a sealer"),
            spool,
            _dir: dir,
        }
    }

    /// Books what a ledger has told.
    async fn book(&self, ledger: &Ledger) {
        let told = ledger.told().await;
        let records: Vec<Record> = told
            .into_iter()
            .map(|(sequence, message)| {
                let sequence = 1_000 + sequence;
                Record::read(&Stored { sequence, message })
            })
            .collect();
        apply(&*self.store, &records).await.expect("apply");
    }

    /// Has a ledger seal all that is due.
    async fn seal_all(&self, ledger: &mut Ledger) {
        while ledger.sealer.look(due()).await.expect("a look") {
            self.book(ledger).await;
        }
    }

    async fn seals(&self) -> Vec<Sealed> {
        let records = self.store.seals(None).await.expect("seals");
        records.iter().filter_map(read).collect()
    }

    async fn verify(&self) -> Report {
        verify::run(&*self.store, &Asked::default(), due())
            .await
            .expect("a report")
    }

    async fn tamper(&self, statement: &'static str) {
        let file = format!("sqlite://{}", self.dir.path().join(FILE_NAME).display());
        let mut connection = SqliteConnection::connect(&file).await.expect("a connection");
        let done = sqlx::query(statement)
            .execute(&mut connection)
            .await
            .expect("done");
        assert!(done.rows_affected() > 0, "{statement}");
    }

    /// The root as a reader of the documentation computes it from the table.
    fn root_elsewhere(&self, through: u64) -> String {
        let mut python = Command::new("python3")
            .arg("-")
            .arg(self.dir.path().join(FILE_NAME))
            .args(["acme", DAY, SOURCE, &through.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut input = python.stdin.take().expect("a pipe");
        input.write_all(include_bytes!("verifier.py")).expect("write");
        drop(input);
        let output = python.wait_with_output().expect("an end");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }
}

/// Ten rows of one day, one of them with every field, one provisional, and one of the next day.
fn ten() -> Vec<Record> {
    let mut records: Vec<Record> = (1..=8).map(|n| record(n, settled(n))).collect();
    records.push(record(9, full(9)));
    records.push(record(10, lost(10)));
    records.push(record(11, later(11)));
    records
}

/// A waybill of the day after.
fn later(n: u64) -> RequestSettled {
    let after = settled(n).started_at.plus_micros(24 * HOUR);
    let millis = u128::try_from(after.millis()).expect("positive");
    RequestSettled {
        request_id: RequestId(Uuid::from_u128(millis << 80 | 7 << 76 | 2 << 62 | u128::from(n))),
        started_at: after,
        waybill_day: after.day(),
        ..settled(n)
    }
}

#[test]
fn a_day_is_due_48_hours_after_its_end() {
    let last = |now: Timestamp| due_days(now).last().expect("a day").to_string();
    assert_eq!(last(due().plus_micros(-1)), "2026-11-29");
    assert_eq!(last(due()), DAY);
    assert_eq!(due_days(due()).count(), 35);
}

#[tokio::test]
async fn a_day_is_sealed_once_over_restarts_and_two_ledgers() {
    let scene = Scene::of(&ten()).await;
    let mut first = scene.ledger();
    let mut second = scene.ledger();

    assert!(first.sealer.look(due()).await.expect("a look"));
    assert!(first.sealer.look(due()).await.expect("a look"), "it is under way");
    assert!(
        second.sealer.look(due()).await.expect("a look"),
        "the other took over meanwhile"
    );
    scene.book(&first).await;
    scene.book(&second).await;
    scene.seal_all(&mut first).await;
    scene.seal_all(&mut second).await;
    scene.seal_all(&mut scene.ledger()).await;

    let told = scene.seals().await;
    assert_eq!(told.len(), 2, "one of each ledger");
    assert_eq!(seal_digest(&told[0]), seal_digest(&told[1]), "which say the same");
    let chain = Chain::of(told);
    assert!(chain.broken.is_empty());
    let [seal] = &*chain.seals else {
        panic!("{:?}", chain.seals);
    };
    assert_eq!((seal.day.to_string().as_str(), seal.part, seal.rows), (DAY, 1, 9));
    assert_eq!(seal.sum_nano_usd.0, 9 * 178_000);
    assert_eq!(seal.through, BTreeMap::from([(SOURCE.to_owned(), 11)]));
    assert!(scene.verify().await.is_sound());
}

#[tokio::test]
async fn a_ledger_that_stands_by_seals_nothing() {
    let scene = Scene::of(&ten()).await;
    let mut ledger = scene.ledger();
    ledger.sealer.stand_by();
    assert!(!ledger.sealer.look(due()).await.expect("a look"));
    assert_eq!(ledger.spool.appended(), 0);
}

#[tokio::test]
async fn another_program_computes_the_same_root_from_the_documentation() {
    let scene = Scene::of(&ten()).await;
    scene.seal_all(&mut scene.ledger()).await;
    let seals = scene.seals().await;
    assert_eq!(scene.root_elsewhere(11), seals[0].root.to_string());
    scene
        .tamper("UPDATE api_logs SET cost_nano_usd = 1 WHERE source_sequence = 4")
        .await;
    assert_ne!(scene.root_elsewhere(11), seals[0].root.to_string());
}

#[tokio::test]
async fn what_is_done_to_sealed_rows_is_found_and_named() {
    let (third, fourth) = (request_id(3), request_id(4));
    let cases: [(&'static str, Vec<RequestId>); 6] = [
        (
            "UPDATE api_logs SET cost_nano_usd = 0 WHERE source_sequence = 3",
            vec![third],
        ),
        (
            "UPDATE api_logs SET model = 'org/other' WHERE source_sequence = 3",
            vec![third],
        ),
        ("DELETE FROM api_logs WHERE source_sequence = 3", vec![third]),
        (
            "UPDATE api_logs SET provisional = 1 WHERE source_sequence = 3",
            vec![third],
        ),
        (
            "UPDATE api_logs SET request_id = substr(request_id, 1, 35) || 'f' WHERE source_sequence = 3",
            vec![third, RequestId(Uuid::from_u128(third.0.as_u128() | 0xf))],
        ),
        (
            "UPDATE api_logs SET source_sequence = 7 - source_sequence, cost_nano_usd = source_sequence \
             WHERE source_sequence IN (3, 4)",
            vec![third, fourth],
        ),
    ];
    for (statement, requests) in cases {
        let scene = Scene::of(&ten()).await;
        scene.seal_all(&mut scene.ledger()).await;
        assert!(scene.verify().await.is_sound());
        scene.tamper(statement).await;
        let report = scene.verify().await;
        let [fault] = &*report.faults else {
            panic!("{statement}: {report:?}");
        };
        assert_eq!(
            (fault.fault, fault.day.to_string().as_str()),
            (Fault::Rows, DAY),
            "{statement}"
        );
        assert_eq!(fault.requests, requests, "{statement}");
        // Nothing papers over it.
        let before = scene.seals().await.len();
        scene.seal_all(&mut scene.ledger()).await;
        assert_eq!(scene.seals().await.len(), before, "{statement}");
    }
}

#[tokio::test]
async fn rows_that_come_late_are_of_a_part_of_their_own_and_forged_ones_are_found() {
    let scene = Scene::of(&ten()).await;
    scene.seal_all(&mut scene.ledger()).await;
    // The node's own word about the request that was declared lost, and another row of the day.
    apply(&*scene.store, &[record(12, settled(10)), record(13, settled(13))])
        .await
        .expect("apply");
    let report = scene.verify().await;
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.unsealed.iter().map(|of| of.rows).sum::<u64>(), 2);

    scene.seal_all(&mut scene.ledger()).await;
    let seals = scene.seals().await;
    assert_eq!(
        seals
            .iter()
            .map(|seal| (seal.part, seal.rows))
            .collect::<Vec<_>>(),
        [(1, 9), (2, 2)]
    );
    assert_eq!(seals[1].previous, Some(seal_digest(&seals[0])));
    let report = scene.verify().await;
    assert!(report.is_sound() && report.unsealed.is_empty(), "{report:?}");

    scene
        .tamper("UPDATE api_logs SET source_sequence = 99 WHERE source_sequence = 13")
        .await;
    let faults: Vec<Fault> = scene
        .verify()
        .await
        .faults
        .iter()
        .map(|found| found.fault)
        .collect();
    assert_eq!(faults, [Fault::Rows]);
    let forged = Scene::of(&ten()).await;
    forged.seal_all(&mut forged.ledger()).await;
    apply(&*forged.store, &[record(12, settled(12))])
        .await
        .expect("apply");
    forged
        .tamper("UPDATE api_logs SET cost_nano_usd = 7 WHERE source_sequence = 12")
        .await;
    let report = forged.verify().await;
    assert_eq!(
        report.faults.iter().map(|found| found.fault).collect::<Vec<_>>(),
        [Fault::Untold]
    );
    assert_eq!(report.faults[0].requests, [request_id(12)]);
}

#[tokio::test]
async fn a_seal_survives_a_rebuild_and_one_that_is_taken_away_breaks_the_chain() {
    let scene = Scene::of(&ten()).await;
    scene.seal_all(&mut scene.ledger()).await;
    apply(&*scene.store, &[record(12, settled(12))])
        .await
        .expect("apply");
    scene.seal_all(&mut scene.ledger()).await;
    let seals = scene.seals().await;
    scene.store.rebuild().await.expect("a rebuild");
    assert_eq!(scene.seals().await, seals);
    assert!(scene.verify().await.is_sound());

    scene
        .tamper(
            "DELETE FROM event_log WHERE position = \
             (SELECT min(position) FROM event_log WHERE type = 'waybill.ledger.sealed.v1')",
        )
        .await;
    let report = scene.verify().await;
    assert_eq!(
        report.faults.iter().map(|found| found.fault).collect::<Vec<_>>(),
        [Fault::Chain]
    );
    scene.seal_all(&mut scene.ledger()).await;
    assert_eq!(scene.seals().await.len(), 1, "a broken chain is not gone on with");
}

#[tokio::test]
async fn adjustments_are_sealed_with_their_day_or_as_a_further_part_of_it() {
    let mut records = ten();
    records.push(record(12, adjusted(&settled(2), (1, 0), -8_000)));
    let scene = Scene::of(&records).await;
    scene.seal_all(&mut scene.ledger()).await;
    assert_eq!(scene.root_elsewhere(12), scene.seals().await[0].root.to_string());
    let late = [
        record(13, adjusted(&settled(2), (2, -8_000), 3)),
        record(14, adjusted(&full(9), (1, 0), 1)),
    ];
    apply(&*scene.store, &late).await.expect("apply");
    let report = scene.verify().await;
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.unsealed[0].rows, report.unsealed[0].adjustments), (0, 2));
    scene.seal_all(&mut scene.ledger()).await;
    scene.seal_all(&mut scene.ledger()).await;

    let seals = scene.seals().await;
    let told = |seal: &Sealed| {
        (
            (seal.format, seal.part, seal.rows, seal.sum_nano_usd.0),
            (seal.adjustments, seal.adjusted_nano_usd.0),
        )
    };
    assert_eq!(
        seals.iter().map(told).collect::<Vec<_>>(),
        [((2, 1, 9, 9 * 178_000), (1, -8_000)), ((2, 2, 0, 0), (2, 4))]
    );
    scene.store.rebuild().await.expect("a rebuild");
    let report = scene.verify().await;
    assert!(report.is_sound() && report.unsealed.is_empty(), "{report:?}");
    assert_eq!((report.seals, report.rows, report.adjustments), (2, 9, 3));
}

#[tokio::test]
async fn what_is_done_to_adjustments_is_found_and_named() {
    let cases: [(&'static str, Vec<RequestId>); 4] = [
        (
            "UPDATE adjustments SET amount_nano_usd = 0 WHERE number = 1",
            vec![request_id(2)],
        ),
        (
            "UPDATE adjustments SET actor = replace(actor, 'key_ops', 'key_no') WHERE number = 2",
            vec![request_id(2)],
        ),
        ("DELETE FROM adjustments WHERE number = 2", vec![request_id(2)]),
        (
            "INSERT INTO adjustments SELECT request_id, 3, day, tenant, \"user\", key_id, job_id, model, served_model, \
             provider, endpoint_id, started_at, billing_day, billing_month, was_nano_usd, cost_nano_usd, \
             amount_nano_usd, prices, price_version, reason, actor, adjusted_at, node, source, source_sequence, \
             event_id FROM adjustments WHERE number = 2",
            vec![request_id(2)],
        ),
    ];
    let mut records = ten();
    records.push(record(12, adjusted(&settled(2), (1, 0), -8_000)));
    records.push(record(13, adjusted(&settled(2), (2, -8_000), 3)));
    for (statement, requests) in cases {
        let scene = Scene::of(&records).await;
        scene.seal_all(&mut scene.ledger()).await;
        assert!(scene.verify().await.is_sound());
        scene.tamper(statement).await;
        let report = scene.verify().await;
        let [fault] = &*report.faults else {
            panic!("{statement}: {report:?}");
        };
        assert_eq!(fault.fault, Fault::Rows, "{statement}");
        assert_eq!(fault.requests, requests, "{statement}");
    }
}

#[tokio::test]
async fn adjustments_of_a_day_that_is_long_past_are_sealed() {
    let scene = Scene::of(&ten()).await;
    scene.seal_all(&mut scene.ledger()).await;
    let late = record(12, adjusted(&settled(2), (1, 0), 7));
    apply(&*scene.store, &[late]).await.expect("apply");
    let months = due().plus_micros(200 * 24 * HOUR);
    let mut ledger = scene.ledger();
    while ledger.sealer.look(months).await.expect("a look") {
        scene.book(&ledger).await;
    }
    let seals = scene.seals().await;
    let last = seals.last().expect("a seal");
    assert_eq!(
        (last.day.to_string().as_str(), last.part, last.adjustments),
        (DAY, 2, 1)
    );
    assert!(scene.verify().await.is_sound());
}

#[test]
fn a_seal_that_was_changed_breaks_what_comes_after() {
    let text = include_str!("../../../schemas/tests/golden/v1/ledger.sealed.json");
    let envelope: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let Event::LedgerSealed(golden) =
        Event::read(schemas::subject::LEDGER_SEALED, &envelope["data"].to_string()).expect("a fact")
    else {
        panic!("another event");
    };
    let next = |previous: Option<&Sealed>| Sealed {
        previous: previous.map(seal_digest),
        day: previous.map_or(golden.day, |seal| seal.day + Days::new(1)),
        ..(*golden).clone()
    };
    let first = next(None);
    let second = next(Some(&first));
    let third = next(Some(&second));
    let whole = Chain::of([first.clone(), second.clone(), third.clone()]);
    assert_eq!((whole.seals.len(), whole.broken.len()), (3, 0));
    assert_eq!(whole.last(), Some(seal_digest(&third)));
    let mut changed = second.clone();
    changed.rows += 1;
    let broken = Chain::of([first, changed, third.clone()]).broken;
    assert_eq!(broken, std::slice::from_ref(&third));
    assert_eq!(Chain::of([second, third]).broken.len(), 2);
    assert_eq!(NOON.day().to_string(), DAY);
}
