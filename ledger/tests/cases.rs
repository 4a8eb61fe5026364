//! What broke the design on paper: logs that lose what they took, ledgers that overtake each other, spools that come
//! back changed, books that are put back. In the end rows = answers, none twice, and sums are those of the rows.

#![expect(clippy::expect_used, reason = "a test suite")]

#[path = "cases/quotas.rs"]
mod quotas;
#[path = "cases/scene.rs"]
mod scene;

use std::path::Path;
use std::time::Duration;

use bus::{Bus as _, Expected, Kv as _};
use ledger::fold;
use ledger::record::Record;
use ledger::store::sqlite::{FILE_NAME, SqliteStore};
use ledger::store::{Batch, Cursor, Store as _, StoreError};
use proptest::prelude::*;
use scene::{Gateway, Ledger, Scene, until};
use schemas::outcome::Outcome;
use schemas::subject::{MARK_BUCKET, NODE_BUCKET, mark, node};

#[tokio::test]
async fn a_ledger_that_commits_before_the_one_it_read_after_changes_nothing() {
    let mut scene = Scene::new().await;
    let gateway = scene.gateway();
    scene.answer(&gateway, 20);
    until("all is published", || scene.bus.ids().len() == 20).await;
    let read = scene.bus.read(1, 20, Duration::ZERO).await.expect("read");
    let records: Vec<Record> = read.iter().map(Record::read).collect();
    let commit = async |records: &[Record], expected: Option<u64>| {
        let at = |sequence| Cursor {
            stream_created: 0,
            sequence,
        };
        let batch = Batch {
            expected: expected.map(at),
            next: at(records.last().expect("a record").sequence),
            records,
            fold: fold::fold,
            marks: Vec::new(),
        };
        scene.store.apply(&batch).await
    };

    let early = commit(&records[10..], Some(10)).await;
    assert!(matches!(early, Err(StoreError::Superseded)), "{early:?}");
    commit(&records[..10], None).await.expect("the first");
    commit(&records[10..], Some(10)).await.expect("the second");
    let late = commit(&records[..10], None).await;
    assert!(matches!(late, Err(StoreError::Superseded)), "{late:?}");
    scene.check().await;
}

#[tokio::test]
async fn one_of_two_ledgers_applies_and_the_other_takes_over_when_it_dies() {
    let mut scene = Scene::new().await;
    let gateway = scene.gateway();
    let ledgers = [scene.ledger(), scene.ledger()];
    let applying = |ledgers: &[Ledger]| ledgers.iter().filter(|ledger| ledger.ports.applying()).count();
    scene.answer(&gateway, 300);
    until("one of them stands by", || applying(&ledgers) == 1).await;
    let mut doubts = 0;
    for _ in 0..20 {
        scene.answer(&gateway, 10);
        tokio::time::sleep(Duration::from_millis(20)).await;
        doubts += u32::from(applying(&ledgers) != 1);
    }
    // A busy machine may hold the one up for longer than the other's patience, once.
    assert!(doubts < 10, "they take turns");
    scene.settled(&[&gateway]).await;
    until("one of them stands by", || applying(&ledgers) == 1).await;

    let (mut dead, mut left) = (None, None);
    for ledger in ledgers {
        let place = if ledger.ports.applying() {
            &mut dead
        } else {
            &mut left
        };
        *place = Some(ledger);
    }
    dead.expect("one applies").kill().await;
    let left = left.expect("one stands by");
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(!left.ports.applying(), "there is nothing to do");
    scene.answer(&gateway, 100);

    scene.settled(&[&gateway]).await;
    assert!(left.ports.applying() && left.ports.database_connected());
    left.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_log_whose_disk_lost_what_it_had_acknowledged_gets_it_again() {
    let mut scene = Scene::new().await;
    let (one, other) = (scene.gateway(), scene.gateway());
    let ledger = scene.ledger();
    scene.answer(&one, 20);
    scene.answer(&other, 20);
    scene.settled(&[&one, &other]).await;
    ledger.kill().await;
    scene.answer(&one, 30);
    scene.answer(&other, 1);
    until("all is published", || scene.bus.ids().len() >= 71).await;
    scene.bus.roll_back(30);

    let ledger = scene.ledger();
    scene.answer(&one, 5);
    scene.settled(&[&one, &other]).await;
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn places_that_the_log_gives_away_again_hide_no_event() {
    let mut scene = Scene::new().await;
    let (one, other) = (scene.gateway(), scene.gateway());
    let ledger = scene.ledger();
    scene.answer(&one, 50);
    scene.settled(&[&one]).await;
    // The ledger is at 50; the log goes back to 10 and is beyond 50 again before anybody looks.
    scene.bus.roll_back(10);
    scene.answer(&other, 1);
    scene.answer(&one, 100);

    scene.settled(&[&one, &other]).await;
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_message_that_the_log_lost_and_takes_for_a_repetition_is_stored_under_another_id() {
    let mut scene = Scene::new().await;
    let gateway = scene.gateway();
    scene.answer(&gateway, 10);
    until("all is published", || scene.bus.ids().len() == 10).await;
    scene.bus.lose(4);
    scene.bus.lose(10);
    let gateway = scene.restart(gateway, |_| ()).await;
    let ledger = scene.ledger();

    scene.settled(&[&gateway]).await;
    assert!(scene.bus.ids().iter().any(|id| id.contains(":r")));
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_spool_lost_under_the_same_name_leaves_a_gap_that_is_told_and_harms_nobody_else() {
    let mut scene = Scene::new().await;
    let mut first = scene.gateway();
    scene.answer(&first, 10);
    until("all is published", || scene.bus.ids().len() == 10).await;
    first.stop().await;
    scene.bus.lose(5);
    let dir = first.kill().await;
    std::fs::remove_dir_all(dir).expect("the volume is lost");

    let second = scene.gateway();
    let ledger = scene.ledger();
    scene.answer(&second, 10);
    scene.settled(&[&second]).await;
    let missing = scene.store.coverage().await.expect("coverage").missing();
    assert_eq!(missing, 1, "the gap is known");
    ledger.stop().await;
    let rows = scene.rows().await;
    assert_eq!(
        rows.len(),
        19,
        "what was lost with the volume is all that is missing"
    );
    scene.check_sums(&rows).await;
}

/// Damages the record of the second of three answers.
fn damage(dir: &Path, needle: &str) {
    let mut damaged = 0;
    for file in std::fs::read_dir(dir).expect("a directory") {
        let path = file.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("readable");
        if let Some(at) = bytes
            .windows(needle.len())
            .position(|part| part == needle.as_bytes())
        {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("writable");
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
}

#[tokio::test]
async fn one_unreadable_record_of_a_spool_costs_itself_and_is_declared() {
    let mut scene = Scene::new().await;
    let mut gateway = scene.gateway();
    gateway.stop().await;
    scene.answer(&gateway, 1);
    let unlucky = scene.accepted();
    let id = unlucky.request_id;
    scene.answer_one(&gateway, unlucky);
    scene.answer(&gateway, 1);
    let gateway = scene.restart(gateway, |dir| damage(dir, &id.to_string())).await;
    let ledger = scene.ledger();
    scene.answer(&gateway, 5);

    scene.settled(&[&gateway]).await;
    ledger.stop().await;
    scene.answered.remove(&id);
    assert_eq!(scene.store.coverage().await.expect("coverage").missing(), 0);
    scene.check().await;
}

#[tokio::test]
async fn a_request_of_a_node_that_is_gone_is_lost_until_the_node_says_otherwise() {
    let mut scene = Scene::new().await;
    let (own, mut gone) = (scene.gateway(), scene.gateway());
    let (accepted, other) = (scene.accepted(), scene.accepted());
    scene.append(&gone, &accepted);
    scene.append(&gone, &other);
    until("both are published", || scene.bus.ids().len() == 2).await;
    gone.stop().await;
    let ledger = scene.reaping_ledger(&own);

    until("both are declared", || own.spool.appended() == 2).await;
    scene.settled(&[&own]).await;
    let rows = scene.rows().await;
    assert!(
        rows.iter()
            .all(|row| row.settled.outcome == Outcome::Lost && row.settled.cost_nano_usd.0 == 0)
    );
    assert_eq!(rows.len(), 2);
    scene.check_sums(&rows).await;

    scene.publish(&mut gone);
    scene.answer_one(&gone, accepted);
    scene.answer_one(&gone, other);
    scene.settled(&[&own, &gone]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(own.spool.appended(), 2, "nothing is declared twice");
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_declaration_that_comes_after_the_settlement_changes_nothing() {
    let mut scene = Scene::new().await;
    let (own, gone) = (scene.gateway(), scene.gateway());
    let accepted = scene.accepted();
    scene.append(&gone, &accepted);
    let ledger = scene.ledger();
    scene.answer_one(&gone, accepted.clone());
    scene.settled(&[&gone]).await;

    scene.append(&own, &scene.lost(accepted));
    scene.settled(&[&own]).await;
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_node_that_beats_is_not_reaped_and_one_that_an_operator_gave_up_is_at_once() {
    let scene = Scene::new().await;
    let (own, there, forgotten) = (scene.gateway(), scene.gateway(), scene.gateway());
    let put = async |key: String, value: Vec<u8>| {
        let put = scene.bus.put(NODE_BUCKET, &key, value.into(), Expected::Any);
        put.await.expect("put");
    };
    let record = scene.node_record(&there);
    let record = serde_json::to_vec(&record).expect("json");
    put(format!("{}{}", node::NODE, there.spool.id()), record).await;
    scene.append(&there, &scene.accepted());
    scene.append(&own, &scene.accepted());
    let ledger = scene.reaping_ledger(&own);
    scene.settled(&[&there, &own]).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(own.spool.appended(), 1, "nobody is gone");

    scene.append(&forgotten, &scene.accepted());
    put(format!("{}{}", node::GONE, forgotten.spool.id()), Vec::new()).await;
    until("it is declared", || own.spool.appended() == 2).await;
    scene.settled(&[&own]).await;
    assert_eq!(scene.rows().await.len(), 1);
    ledger.stop().await;
}

fn copy_books(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("{FILE_NAME}{suffix}");
        let _ = std::fs::remove_file(to.join(&name));
        if from.join(&name).exists() {
            std::fs::copy(from.join(&name), to.join(&name)).expect("a copy");
        }
    }
}

#[tokio::test]
async fn books_put_back_from_an_older_copy_catch_up_from_the_log() {
    let mut scene = Scene::new().await;
    let (one, other) = (scene.gateway(), scene.gateway());
    let copy = scene.dir.path().join("copy");
    let ledger = scene.ledger();
    scene.answer(&one, 50);
    scene.settled(&[&one]).await;
    ledger.stop().await;
    copy_books(scene.dir.path(), &copy);
    let ledger = scene.ledger();
    scene.answer(&one, 50);
    scene.answer(&other, 50);
    scene.settled(&[&one, &other]).await;
    ledger.stop().await;

    scene.store = std::sync::Arc::new(SqliteStore::open(&copy).await.expect("the copy"));
    assert_eq!(scene.rows().await.len(), 50);
    let ledger = scene.ledger();
    scene.answer(&one, 1);
    until("the mark moves on", || scene.mark(&one) == 101).await;
    ledger.stop().await;
    scene.check().await;
}

#[tokio::test]
async fn a_copied_spool_that_gives_places_twice_is_not_trimmed_until_an_operator_says_so() {
    let mut scene = Scene::new().await;
    let gateway = scene.gateway();
    scene.answer(&gateway, 3);
    until("all is published", || scene.bus.ids().len() == 3).await;
    let dir = gateway.kill().await;
    let copy = scene.dir.path().join("copied-spool");
    std::fs::create_dir_all(&copy).expect("a directory");
    for file in std::fs::read_dir(&dir).expect("a directory") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), copy.join(file.file_name())).expect("a copy");
    }
    let (original, double) = (scene.reopen(&dir), scene.reopen(&copy));
    scene.answer(&original, 1);
    scene.answer(&double, 1);
    until("both are published", || scene.bus.ids().len() == 5).await;
    let ledger = scene.ledger();
    let key = format!("{}{}", mark::CONTESTED, original.spool.id());
    until("the contest is told", || {
        scene.bus.text(MARK_BUCKET, &key).is_some()
    })
    .await;
    until("both spools know", || {
        original.spool.gauges().contested && double.spool.gauges().contested
    })
    .await;
    scene.answer(&original, 5);
    scene.answer(&double, 5);
    until("both are published", || scene.bus.ids().len() >= 15).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((original.spool.marked(), double.spool.marked()), (0, 0));
    let gone = scene.bus.delete(MARK_BUCKET, &key, Expected::Any);
    gone.await.expect("an operator has looked");
    scene.settled(&[&original, &double]).await;
    ledger.stop().await;
    scene.check().await;
}

#[derive(Debug, Clone)]
enum Step {
    Answer { gateway: usize, calls: u32 },
    Lose(u64),
    Repeat(u64),
    RollBack(u64),
    MakeAnew,
    LoseAnswers,
    Away(bool),
    RestartGateway(usize),
    RestartLedger(usize),
    Pause,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..2, 1_u32..30).prop_map(|(gateway, calls)| Step::Answer { gateway, calls }),
        2 => (1_u64..200).prop_map(Step::Lose),
        1 => (1_u64..200).prop_map(Step::Repeat),
        1 => (0_u64..200).prop_map(Step::RollBack),
        1 => Just(Step::MakeAnew),
        1 => Just(Step::LoseAnswers),
        1 => any::<bool>().prop_map(Step::Away),
        1 => (0_usize..2).prop_map(Step::RestartGateway),
        1 => (0_usize..2).prop_map(Step::RestartLedger),
        4 => Just(Step::Pause),
    ]
}

async fn play(steps: Vec<Step>) {
    let mut scene = Scene::new().await;
    let mut gateways: Vec<Gateway> = vec![scene.gateway(), scene.gateway()];
    let mut ledgers = vec![scene.ledger(), scene.ledger()];
    for step in steps {
        match step {
            Step::Answer { gateway, calls } => scene.answer(&gateways[gateway], calls),
            Step::Lose(place) => scene.bus.lose(place),
            Step::Repeat(place) => scene.bus.repeat(place),
            Step::RollBack(last) => scene.bus.roll_back(last),
            Step::MakeAnew => scene.bus.make_anew(),
            Step::LoseAnswers => scene.bus.lose_answers(2),
            Step::Away(away) => {
                // A ledger does not start without its bus: who was started has had his turn before it goes away.
                tokio::task::yield_now().await;
                scene.bus.set_away(away);
            }
            Step::RestartGateway(number) => {
                let gateway = gateways.remove(number);
                let gateway = scene.restart(gateway, |_| ()).await;
                gateways.insert(number, gateway);
            }
            Step::RestartLedger(number) => {
                ledgers.remove(number).kill().await;
                scene.bus.set_away(false);
                ledgers.insert(number, scene.ledger());
            }
            Step::Pause => tokio::time::sleep(Duration::from_millis(15)).await,
        }
    }
    scene.bus.set_away(false);
    scene.settled(&[&gateways[0], &gateways[1]]).await;
    for ledger in ledgers {
        ledger.kill().await;
    }
    scene.check().await;
    scene.store.rebuild().await.expect("rebuild");
    scene.check().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 4, ..ProptestConfig::default() })]

    #[test]
    fn whatever_log_gateways_and_ledgers_do_the_books_are_exact_in_the_end(
        steps in prop::collection::vec(step(), 5..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(play(steps));
    }
}
