//! The embedded bus keeps every promise of the ports, and its own about files.

use std::path::PathBuf;

use super::*;
use crate::clock::SystemClock;
use crate::conformance;

fn open_with(dir: &Path, options: Options) -> Arc<Embedded> {
    Embedded::open(dir, options, Arc::new(SystemClock::new())).expect("open")
}

fn open(dir: &Path) -> Arc<Embedded> {
    open_with(dir, Options::default())
}

/// A log of 256 KiB in files of 16 KiB.
fn small() -> Options {
    Options {
        log_bytes_max: 256 << 10,
        responses_bytes_max: 64 << 10,
        idempotency_bytes_max: 64 << 10,
        duplicates_max: 10,
    }
}

fn message(number: usize) -> Message {
    let payload = Bytes::from(vec![b'x'; 1_000]);
    Message {
        subject: "wb.ev.request.acme".to_owned(),
        id: format!("id-{number}"),
        payload,
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let listed = crate::segment::files::list(&dir.join("log"), ".log").expect("list");
    listed.into_iter().map(|(_, _, path)| path).collect()
}

/// Ids of the first messages.
async fn ids(bus: &Embedded, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < count {
        let from = u64::try_from(ids.len()).expect("small") + 1;
        let read = bus.read(from, 10, Duration::from_secs(5)).await.expect("read");
        assert!(!read.is_empty(), "{ids:?}");
        ids.extend(read.into_iter().map(|stored| stored.message.id));
    }
    ids
}

/// Runs promises against one bus.
macro_rules! promises {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().expect("dir");
                let bus = open(dir.path());
                conformance::$name(&*bus).await.expect("the adapter works");
            }
        )*
    };
}

promises!(
    order_is_kept,
    publishing_is_idempotent,
    reading_resumes_anywhere,
    reading_waits_for_the_first_message,
    the_state_tells_the_ends_of_the_log,
    a_question_that_nobody_serves_has_no_responder,
    a_question_is_answered,
    a_question_without_an_answer_times_out,
    what_was_put_is_got,
    a_write_that_expects_something_else_conflicts,
    revisions_grow_over_the_bucket,
    a_watch_tells_what_is_there_and_then_every_change,
    a_watch_of_nothing_is_current_at_once,
);

macro_rules! lifetime_promises {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().expect("dir");
                let bus = open(dir.path());
                conformance::lifetime::$name(&*bus).await.expect("the adapter works");
                conformance::lifetime::$name(&crate::faulty::Bent::default())
                    .await
                    .expect("the adapter of tests works");
            }
        )*
    };
}

lifetime_promises!(
    a_value_goes_after_its_lifetime,
    a_lifetime_is_that_of_the_value,
    a_lifetime_counts_also_over_a_deletion,
    of_writes_at_once_one_is_done,
);

#[tokio::test]
async fn a_full_bucket_of_idempotency_keys_refuses_answers_before_locks_and_has_room_again_in_time() {
    const BUCKET: &str = schemas::subject::IDEMPOTENCY_BUCKET;
    let dir = tempfile::tempdir().expect("dir");
    let bus = open_with(dir.path(), small());
    let life = Duration::from_secs(2);
    let answer = Bytes::from(vec![b'x'; 8 << 10]);
    let put = |key: String, value: Bytes| {
        let bus = bus.clone();
        async move { bus.put_for((BUCKET, &key), value, Expected::Any, life).await }
    };
    let mut answers = 0;
    while put(format!("acme.{answers}"), answer.clone()).await.is_ok() {
        answers += 1;
    }

    assert_eq!(answers, 6, "7/8 of 64 KiB have room for so many and their keys");
    let refused = put("acme.more".to_owned(), answer.clone()).await;
    assert!(matches!(refused, Err(BusError::Full)), "{refused:?}");
    put("acme.0".to_owned(), answer.clone())
        .await
        .expect("what replaces as much has room");
    put("acme.lock".to_owned(), Bytes::from_static(b"lock"))
        .await
        .expect("a lock has room");
    tokio::time::sleep(life + Duration::from_millis(200)).await;
    put("acme.more".to_owned(), answer)
        .await
        .expect("room comes back with the end of lifetimes");
}

#[tokio::test]
async fn a_journal_that_is_written_anew_keeps_lifetimes() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    let put = |key: &'static str, seconds| {
        bus.put_for(
            ("wb_x", key),
            Bytes::from_static(b"1"),
            Expected::Absent,
            Duration::from_secs(seconds),
        )
    };
    put("short", 1).await.expect("put");
    put("long", 600).await.expect("put");
    for _ in 0..6 {
        let large = Bytes::from(vec![b'y'; 1 << 20]);
        bus.put("wb_y", "large", large, Expected::Any).await.expect("put");
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    drop(bus);

    let bus = open(dir.path());

    assert_eq!(bus.get("wb_x", "short").await.expect("get"), None);
    assert!(bus.get("wb_x", "long").await.expect("get").is_some());
}

#[tokio::test]
async fn counters_keep_their_promises() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    conformance::counter::additions_add_up(&*bus, "k")
        .await
        .expect("add");
    conformance::counter::counters_are_apart(&*bus, "k")
        .await
        .expect("add");
    conformance::counter::additions_at_once_all_count(&*bus, "k")
        .await
        .expect("add");
}

#[tokio::test]
async fn everything_survives_reopening() {
    let dir = tempfile::tempdir().expect("dir");
    conformance::the_log_survives_reopening(&|| open(dir.path()))
        .await
        .expect("log");
    conformance::buckets_survive_reopening(&|| open(dir.path()))
        .await
        .expect("buckets");
    conformance::lifetime::lifetimes_survive_reopening(&|| open(dir.path()))
        .await
        .expect("lifetimes");
}

#[tokio::test]
async fn a_second_opener_is_refused() {
    let dir = tempfile::tempdir().expect("dir");
    let _bus = open(dir.path());
    let second = Embedded::open(dir.path(), Options::default(), Arc::new(SystemClock::new()));
    assert!(
        matches!(second.map(|_| ()), Err(BusError::Disk(error)) if error.kind() == io::ErrorKind::ResourceBusy)
    );
}

#[tokio::test]
async fn a_full_log_takes_nothing_more_until_the_ledger_has_passed_it() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open_with(dir.path(), small());
    let mut published = 0_usize;
    while bus.publish(&[message(published)]).await.is_ok() {
        published += 1;
    }
    assert!(matches!(
        bus.publish(&[message(published)]).await,
        Err(BusError::Full)
    ));
    let newest = u64::try_from(published).expect("small");
    assert!(published > 200, "{published}");

    bus.release(newest);

    let places = bus.publish(&[message(published)]).await.expect("room");
    assert_eq!(places, [newest + 1], "what was refused left no trace");
    let first = bus.state().await.expect("state").first;
    assert!(first > 50 && first < newest, "{first}");
    let trimmed = bus.read(1, 10, Duration::ZERO).await;
    assert!(matches!(trimmed, Err(BusError::Trimmed { first: told }) if told == first));
    let read = bus.read(first, 1, Duration::from_secs(5)).await.expect("read");
    assert_eq!(read[0].sequence, first);
}

#[tokio::test]
async fn a_reader_at_the_end_goes_on_after_its_file_was_released() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open_with(dir.path(), small());
    for round in 0..40_u64 {
        let batch: Vec<_> = (0..10)
            .map(|number| message(usize::try_from(round * 10 + number).expect("small")))
            .collect();
        let places = bus.publish(&batch).await.expect("publish");
        let last = bus
            .read(places[9], 10, Duration::from_secs(5))
            .await
            .expect("read");
        assert_eq!(
            last.iter().map(|stored| stored.sequence).collect::<Vec<_>>(),
            [round * 10 + 10]
        );
        bus.release(places[9]);
    }
    assert!(files(dir.path()).len() < 12);
}

#[tokio::test]
async fn a_torn_end_of_the_log_costs_only_itself() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    bus.publish(&[message(1), message(2)]).await.expect("publish");
    let created = bus.state().await.expect("state").created_at_micros;
    drop(bus);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&files(dir.path())[0])
        .expect("open");
    let whole = file.metadata().expect("metadata").len();
    file.set_len(whole - 1).expect("cut");

    let bus = open(dir.path());

    let state = bus.state().await.expect("state");
    assert_eq!((state.last, state.created_at_micros), (1, created));
    assert_eq!(
        bus.publish(&[message(1), message(2)]).await.expect("publish"),
        [1, 2]
    );
    assert_eq!(ids(&bus, 2).await, ["id-1", "id-2"]);
}

#[tokio::test]
async fn a_log_whose_end_was_spoiled_is_another_log() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    bus.publish(&[message(1), message(2)]).await.expect("publish");
    let created = bus.state().await.expect("state").created_at_micros;
    drop(bus);
    let path = &files(dir.path())[0];
    let mut bytes = std::fs::read(path).expect("read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path, bytes).expect("write");

    let bus = open(dir.path());

    assert!(bus.state().await.expect("state").created_at_micros > created);
    assert_eq!(
        bus.publish(&[message(2), message(3)]).await.expect("publish"),
        [2, 3]
    );
    assert_eq!(ids(&bus, 3).await, ["id-1", "id-2", "id-3"]);
}

#[tokio::test]
async fn buckets_that_are_written_often_stay_small_and_keep_their_revisions() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    let value = Bytes::from(vec![b'v'; 1 << 20]);
    let mut last = 0;
    for number in 0..24 {
        let key = ["a", "b"][number % 2];
        last = bus
            .put("wb_test", key, value.clone(), Expected::Any)
            .await
            .expect("put");
    }
    last = last.max(bus.delete("wb_test", "a", Expected::Any).await.expect("delete"));
    let bytes: u64 = std::fs::read_dir(dir.path().join("kv"))
        .expect("list")
        .map(|entry| entry.expect("entry").metadata().expect("metadata").len())
        .sum();
    assert!(bytes <= 10 << 20, "{bytes}");
    drop(bus);

    let bus = open(dir.path());

    assert_eq!(bus.get("wb_test", "a").await.expect("get"), None);
    let kept = bus.get("wb_test", "b").await.expect("get").expect("entry");
    assert_eq!((kept.value, kept.revision), (Some(value), 24));
    assert!(
        bus.put("wb_test", "a", Bytes::new(), Expected::Absent)
            .await
            .expect("put")
            > last
    );
}

#[tokio::test]
async fn a_damaged_record_of_a_bucket_costs_only_itself() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    for key in ["a", "b", "c"] {
        bus.put("wb_test", key, Bytes::from("value"), Expected::Any)
            .await
            .expect("put");
    }
    drop(bus);
    let path = dir.path().join("kv").join("0000000000.kv");
    let mut bytes = std::fs::read(&path).expect("read");
    let third = bytes.len() / 3;
    bytes[third + 20] ^= 1;
    std::fs::write(&path, bytes).expect("write");

    let bus = open(dir.path());

    let mut kept = Vec::new();
    for key in ["a", "b", "c"] {
        kept.extend(bus.get("wb_test", key).await.expect("get").map(|entry| entry.key));
    }
    assert_eq!(kept, ["a", "c"]);
    assert!(!path.exists(), "the file was written anew");
}

#[tokio::test]
async fn a_watcher_that_reads_nothing_is_ended_and_stops_nobody() {
    let dir = tempfile::tempdir().expect("dir");
    let bus = open(dir.path());
    let mut changes = bus.watch("wb_test").await.expect("watch");
    let writes = (0..5_000).map(|number: u32| {
        let bus = Arc::clone(&bus);
        async move {
            bus.put("wb_test", "key", Bytes::from(number.to_string()), Expected::Any)
                .await
        }
    });
    futures_util::future::try_join_all(writes).await.expect("writes");
    let mut told = 0;
    while changes.recv().await.is_some() {
        told += 1;
    }
    assert!((4_096..5_000).contains(&told), "{told}");
}

#[tokio::test]
async fn a_full_bucket_of_responses_lets_the_oldest_go_and_no_other_bucket_does() {
    use schemas::subject::{CATALOG_BUCKET, RESPONSE_BUCKET};

    let dir = tempfile::tempdir().expect("dir");
    let value = || Bytes::from(vec![b'x'; 8 << 10]);
    {
        let bus = open_with(dir.path(), small());
        for number in 0..20 {
            for bucket in [RESPONSE_BUCKET, CATALOG_BUCKET] {
                let key = format!("key.{number:02}");
                bus.put(bucket, &key, value(), Expected::Any).await.expect("put");
            }
        }
    }
    let bus = open_with(dir.path(), small());
    let mut held = Vec::new();
    for number in 0..20 {
        let key = format!("key.{number:02}");
        let response = bus.get(RESPONSE_BUCKET, &key).await.expect("get");
        held.extend(response.map(|_| number));
        let other = bus.get(CATALOG_BUCKET, &key).await.expect("get");
        assert!(other.is_some());
    }
    assert!(held.len() >= 6 && held.len() <= 8, "{held:?}");
    assert_eq!(held.last(), Some(&19));
    assert!(held.windows(2).all(|pair| pair[1] == pair[0] + 1), "{held:?}");
}

#[tokio::test]
async fn an_owner_who_fills_the_bucket_of_responses_pushes_out_nothing_of_anybody_else() {
    use schemas::subject::RESPONSE_BUCKET;

    let dir = tempfile::tempdir().expect("dir");
    let bus = open_with(dir.path(), small());
    let put = async |key: &str| {
        let value = Bytes::from(vec![b'x'; 8 << 10]);
        bus.put(RESPONSE_BUCKET, key, value, Expected::Any)
            .await
            .expect("put");
    };
    put("small.first").await;
    for number in 0..40 {
        put(&format!("large.{number:02}")).await;
    }
    put("small.second").await;

    for (key, is_there) in [
        ("small.first", true),
        ("small.second", true),
        ("large.00", false),
        ("large.39", true),
    ] {
        let found = bus.get(RESPONSE_BUCKET, key).await.expect("get");
        assert_eq!(found.is_some(), is_there, "{key}");
    }
}
