//! The server dies without a warning and comes back: nothing is lost, nothing is doubled, everybody goes on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::counter::{Counters, Slice};
use bus::{Bus, BusError, Change, Expected, Kv};
use bytes::Bytes;
use schemas::subject;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::server::{Server, message, until_done};

const PATIENCE: Duration = Duration::from_secs(15);

async fn publish_all(bus: Arc<dyn Bus>, name: &str, count: usize) -> Vec<u64> {
    let messages: Vec<_> = (0..count)
        .map(|number| message(&format!("{name}-{number}")))
        .collect();
    let mut places = Vec::new();
    for batch in messages.chunks(50) {
        places.extend(until_done(|| bus.publish(batch)).await);
    }
    places
}

#[tokio::test]
async fn publishers_lose_and_double_nothing() {
    let mut server = Server::start();
    let nats = server.connect().await;
    let publish = async {
        tokio::join!(
            publish_all(Arc::clone(&nats) as _, "one", 3_000),
            publish_all(Arc::clone(&nats) as _, "two", 3_000)
        )
    };
    let outage = async {
        while nats.state().await.map_or(0, |state| state.last) < 1_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.start_again();
    };
    let ((one, two), ()) = tokio::join!(publish, outage);

    let mut ids: HashMap<String, u64> = HashMap::new();
    let mut next = 1;
    while ids.len() < 6_000 {
        let read = until_done(|| nats.read(next, 512, PATIENCE)).await;
        assert!(!read.is_empty(), "{} of 6000", ids.len());
        for stored in read {
            next = stored.sequence + 1;
            let twice = ids.insert(stored.message.id, stored.sequence);
            assert_eq!(twice, None, "a message is there twice");
        }
    }
    assert_eq!(nats.state().await.expect("state").last + 1, next);
    for (name, places) in [("one", one), ("two", two)] {
        for (number, place) in places.into_iter().enumerate() {
            assert_eq!(ids.get(&format!("{name}-{number}")), Some(&place));
        }
    }
}

#[tokio::test]
async fn a_reader_goes_on_where_it_was() {
    let mut server = Server::start();
    let nats = server.connect().await;
    publish_all(Arc::clone(&nats) as _, "before", 100).await;
    assert_eq!(nats.read(1, 60, PATIENCE).await.expect("read").len(), 60);
    server.kill();
    let away = until_refused(&*nats).await;
    assert!(
        matches!(away, BusError::Unavailable(_) | BusError::Timeout),
        "{away}"
    );
    server.start_again();
    let read = until_done(|| nats.read(61, 60, PATIENCE)).await;
    assert_eq!((read[0].sequence, read.len()), (61, 40));

    // A reader that waits while the server dies fails or goes on, and misses nothing.
    let wait = async {
        loop {
            match nats.read(101, 10, PATIENCE).await {
                Ok(read) if !read.is_empty() => return read,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let outage = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.kill();
        server.start_again();
        publish_all(Arc::clone(&nats) as _, "after", 1).await;
    };
    let (read, ()) = timeout(PATIENCE, async { tokio::join!(wait, outage) })
        .await
        .expect("it goes on");
    assert_eq!((read[0].sequence, read[0].message.id.as_str()), (101, "after-0"));
}

async fn until_refused(bus: &dyn Bus) -> BusError {
    for _ in 0..1_000 {
        if let Err(away) = bus.state().await {
            return away;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the bus is still there");
}

#[tokio::test]
async fn every_call_on_a_dead_connection_fails_at_once_and_nothing_is_sent_later() {
    let mut server = Server::start();
    let nats = server.connect().await;
    let wire = nats.wire();
    let mut connected = nats.connected();
    assert!(*connected.borrow_and_update());
    server.kill();
    timeout(PATIENCE, connected.wait_for(|connected| !connected))
        .await
        .expect("it is seen")
        .expect("it is told");
    let mut wired = wire.connected();
    timeout(PATIENCE, wired.wait_for(|connected| !connected))
        .await
        .expect("it is seen")
        .expect("it is told");

    let begun = Instant::now();
    for number in 0..2_000 {
        let published = nats.publish(&[message(&format!("lost-{number}"))]).await;
        assert!(
            matches!(published, Err(BusError::Unavailable(_))),
            "{published:?}"
        );
        let sent = wire.send("wb.test.lost", None, Bytes::new()).await;
        assert!(matches!(sent, Err(BusError::Unavailable(_))), "{sent:?}");
    }
    let put = nats.put("wb_mark", "a", Bytes::new(), Expected::Any).await;
    assert!(matches!(put, Err(BusError::Unavailable(_))), "{put:?}");
    let added = nats.add(Slice::Minute, "a.1", 1).await;
    assert!(matches!(added, Err(BusError::Unavailable(_))), "{added:?}");
    assert!(nats.get("wb_mark", "a").await.is_err());
    assert!(nats.read(1, 1, PATIENCE).await.is_err());
    assert!(nats.ask("wb.q.x", Bytes::new(), PATIENCE).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    server.start_again();
    assert_eq!(
        until_done(|| nats.state()).await.last,
        0,
        "nothing was sent later"
    );
    assert_eq!(until_done(|| nats.add(Slice::Minute, "a.1", 1)).await, 1);
}

/// What a watcher knows after all that it was told, until a change of `key` to `value`.
async fn until_told(
    changes: &mut mpsc::Receiver<Change>,
    known: &mut HashMap<String, Bytes>,
    (key, value): (&str, &str),
) {
    let told = async {
        while let Some(change) = changes.recv().await {
            let Change::Entry(entry) = change else { continue };
            let is_it = entry.key == key && entry.value.as_deref() == Some(value.as_bytes());
            match entry.value {
                Some(value) => known.insert(entry.key, value),
                None => known.remove(&entry.key),
            };
            if is_it {
                return;
            }
        }
        panic!("the watch ended");
    };
    timeout(PATIENCE, told).await.expect("it is told");
}

#[tokio::test]
async fn a_watch_resumes_with_the_final_value_of_every_key() {
    let mut server = Server::start();
    let nats = server.connect().await;
    let put = |key: &'static str, value: &'static str| {
        let nats = &nats;
        async move {
            let value = Bytes::from_static(value.as_bytes());
            nats.put(subject::MARK_BUCKET, key, value, Expected::Any).await
        }
    };
    put("stays", "1").await.expect("put");
    put("changes", "1").await.expect("put");
    put("goes", "1").await.expect("put");
    let mut changes = nats.watch(subject::MARK_BUCKET).await.expect("watch");
    let mut known = HashMap::new();
    until_told(&mut changes, &mut known, ("goes", "1")).await;

    for round in ["2", "3"] {
        server.kill();
        server.start_again();
        until_done(|| put("changes", round)).await;
        until_done(|| nats.delete(subject::MARK_BUCKET, "goes", Expected::Any)).await;
        until_done(|| put("last", round)).await;
        until_told(&mut changes, &mut known, ("last", round)).await;
        let mut keys: Vec<_> = known
            .iter()
            .map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)))
            .collect();
        keys.sort();
        let expected = [
            format!("changes={round}"),
            format!("last={round}"),
            "stays=1".to_owned(),
        ];
        assert_eq!(keys, expected);
    }
}

#[tokio::test]
async fn a_watch_of_a_bucket_that_lost_its_memory_tells_what_has_gone() {
    let mut server = Server::start();
    let nats = server.connect().await;
    let put = |key: &'static str, value: &'static str| {
        let nats = &nats;
        async move {
            let value = Bytes::from_static(value.as_bytes());
            nats.put(subject::NODE_BUCKET, key, value, Expected::Any).await
        }
    };
    put("node.1", "old").await.expect("put");
    put("node.2", "old").await.expect("put");
    let mut changes = nats.watch(subject::NODE_BUCKET).await.expect("watch");
    let mut known = HashMap::new();
    until_told(&mut changes, &mut known, ("node.2", "old")).await;
    assert_eq!(known.len(), 2);

    server.kill();
    server.start_again();
    // The same revision as before, and another value.
    until_done(|| put("node.1", "new")).await;
    until_told(&mut changes, &mut known, ("node.1", "new")).await;
    until_done(|| put("node.3", "new")).await;
    until_told(&mut changes, &mut known, ("node.3", "new")).await;
    let mut keys: Vec<_> = known.keys().cloned().collect();
    keys.sort();
    assert_eq!(keys, ["node.1", "node.3"]);
}

#[tokio::test]
async fn an_empty_watch_is_current_once_and_goes_on_after_an_outage() {
    let mut server = Server::start();
    let nats = server.connect().await;
    let mut changes = nats.watch("wb_nothing").await.expect("watch");
    assert_eq!(changes.recv().await, Some(Change::Current));
    server.kill();
    server.start_again();
    let value = Bytes::from_static(b"1");
    let revision = until_done(|| nats.put("wb_nothing", "a", value.clone(), Expected::Any)).await;
    let told = timeout(PATIENCE, changes.recv()).await.expect("it is told");
    let Some(Change::Entry(entry)) = told else {
        panic!("{told:?}");
    };
    assert_eq!((entry.key.as_str(), entry.revision), ("a", revision));
}

#[tokio::test]
async fn listeners_and_servers_go_on_after_an_outage() {
    let mut server = Server::start();
    let (here, there) = (server.connect().await, server.connect().await);
    let mut heard = there.wire().subscribe("wb.test.again").await.expect("subscribe");
    let mut questions = there.serve("wb.q.again").await.expect("serve");
    server.kill();
    server.start_again();
    for nats in [&here, &there] {
        for mut connected in [nats.connected(), nats.wire().connected()] {
            timeout(PATIENCE, connected.wait_for(|connected| *connected))
                .await
                .expect("it connects")
                .expect("it is told");
        }
    }
    let send = async {
        loop {
            drop(here.wire().send("wb.test.again", None, Bytes::new()).await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let came = tokio::select! {
        came = timeout(PATIENCE, heard.recv()) => came.expect("it is heard"),
        () = send => None,
    };
    assert!(came.is_some());
    let answer = async {
        while let Some(question) = questions.recv().await {
            drop(question.reply.send(question.payload));
        }
    };
    let ask = until_done(|| here.ask("wb.q.again", Bytes::from_static(b"x"), Duration::from_secs(1)));
    let answered = tokio::select! {
        answered = ask => answered,
        () = answer => panic!("the service ended"),
    };
    assert_eq!(answered, "x");
}

#[tokio::test]
async fn a_gap_in_the_log_is_passed_and_what_was_trimmed_is_told() {
    let server = Server::start();
    let mut options = server.options();
    options.layout[0].deletes_denied = false;
    let nats = bus::nats::Nats::connect(options).await.expect("connect");
    publish_all(Arc::clone(&nats) as _, "gap", 10).await;
    let client = async_nats::connect(&server.url).await.expect("connect");
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("WAYBILL_EVENTS").await.expect("stream");
    stream.delete_message(6).await.expect("delete");
    let read = nats.read(5, 3, PATIENCE).await.expect("read");
    let sequences: Vec<_> = read.into_iter().map(|stored| stored.sequence).collect();
    assert_eq!(sequences, [5, 7, 8]);
    // A reader that is at 9, and the log that begins after it.
    assert_eq!(nats.read(8, 1, PATIENCE).await.expect("read")[0].sequence, 8);
    stream.purge().sequence(10).await.expect("purge");
    for from in [9, 1, 9] {
        let read = nats.read(from, 5, Duration::from_millis(50)).await;
        assert!(matches!(read, Err(BusError::Trimmed { first: 10 })), "{read:?}");
    }
    assert_eq!(nats.read(10, 5, PATIENCE).await.expect("read")[0].sequence, 10);
    stream.purge().await.expect("purge");
    let state = nats.state().await.expect("state");
    assert_eq!((state.first, state.last), (11, 10));
    let read = nats.read(11, 5, Duration::from_millis(50)).await.expect("read");
    assert_eq!(read, []);
}

#[tokio::test]
async fn a_full_log_says_so() {
    let server = Server::start();
    let mut options = server.options();
    options.layout[0].bytes_max = 64 << 10;
    let nats = bus::nats::Nats::connect(options).await.expect("connect");
    let mut refused = None;
    for number in 0..200 {
        let mut large = message(&format!("full-{number}"));
        large.payload = Bytes::from(vec![b'x'; 1_024]);
        if let Err(error) = nats.publish(&[large]).await {
            refused = Some(error);
            break;
        }
    }
    assert!(matches!(refused, Some(BusError::Full)), "{refused:?}");
}

#[tokio::test]
async fn a_beat_leaves_no_history_and_other_records_do() {
    let server = Server::start();
    let nats = server.connect().await;
    for number in 0..5 {
        let value = Bytes::from(format!("{number}"));
        for key in ["beat.01", "key.01"] {
            let put = nats.put(subject::CATALOG_BUCKET, key, value.clone(), Expected::Any);
            put.await.expect("put");
        }
    }
    let client = async_nats::connect(&server.url).await.expect("connect");
    let context = async_nats::jetstream::new(client);
    let stream = context.get_stream("KV_wb_catalog").await.expect("stream");
    assert_eq!(stream.cached_info().state.messages, 6);
}

#[tokio::test]
async fn a_watch_is_current_at_once_although_what_it_reads_is_replaced_meanwhile() {
    const WATCHES: usize = 60;
    let server = Server::start();
    let nats = server.connect().await;
    for number in 0..600 {
        let key = format!("key.{number}");
        let put = nats.put(
            subject::CATALOG_BUCKET,
            &key,
            Bytes::from_static(b"{}"),
            Expected::Any,
        );
        put.await.expect("put");
    }
    let beats = async {
        for number in 0..u64::MAX {
            let value = Bytes::from(number.to_string());
            let put = nats.put(subject::CATALOG_BUCKET, "beat.01", value, Expected::Any);
            put.await.expect("put");
            if number % 20 == 0 {
                // Nothing more comes for a while: whoever waits for the next beat waits long.
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    };
    let watches = async {
        for number in 0..WATCHES {
            let begun = Instant::now();
            let mut changes = nats.watch(subject::CATALOG_BUCKET).await.expect("watch");
            while changes.recv().await.expect("told") != Change::Current {}
            let took = begun.elapsed();
            assert!(took < Duration::from_millis(200), "watch {number} took {took:?}");
        }
    };
    tokio::select! {
        () = beats => {}
        () = watches => {}
    }
}

#[tokio::test]
async fn a_server_that_stands_still_costs_no_more_than_a_deadline() {
    let server = Server::start();
    let mut options = server.options();
    options.deadline = Duration::from_millis(400);
    let nats = bus::nats::Nats::connect(options).await.expect("connect");
    let mut changes = nats.watch(subject::MARK_BUCKET).await.expect("watch");
    server.signal("STOP");
    let begun = Instant::now();
    let put = |expected| nats.put(subject::MARK_BUCKET, "a", Bytes::new(), expected);
    // Whether it was done nobody knows: it is no conflict.
    let first = put(Expected::Absent).await;
    assert!(matches!(first, Err(BusError::Timeout)), "{first:?}");
    assert!(nats.publish(&[message("stands")]).await.is_err());
    assert!(nats.state().await.is_err());
    assert!(nats.get(subject::MARK_BUCKET, "a").await.is_err());
    assert!(nats.read(1, 1, Duration::from_millis(100)).await.is_err());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    server.signal("CONT");
    until_done(|| async { nats.publish(&[message("stands")]).await }).await;
    let read = until_done(|| nats.read(1, 10, PATIENCE)).await;
    assert_eq!(read.len(), 1, "it is there once");
    until_done(|| put(Expected::Any)).await;
    let told = async {
        loop {
            match changes.recv().await {
                Some(Change::Entry(entry)) if entry.key == "a" => return,
                Some(_) => {}
                None => panic!("the watch ended"),
            }
        }
    };
    timeout(PATIENCE, told).await.expect("it is told");
}

#[tokio::test]
async fn a_bus_that_is_closed_ends_its_watches_and_services() {
    let server = Server::start();
    let nats = server.connect().await;
    let mut changes = nats.watch("wb_nothing").await.expect("watch");
    let mut questions = nats.serve("wb.q.close").await.expect("serve");
    assert_eq!(changes.recv().await, Some(Change::Current));
    timeout(PATIENCE, nats.close()).await.expect("it ends");
    assert_eq!(changes.recv().await, None);
    assert!(questions.recv().await.is_none());
}

#[tokio::test]
async fn a_server_that_lost_its_disk_takes_events_again_and_knows_no_catalogue() {
    let mut server = Server::start();
    let nats = server.connect().await;
    nats.publish(&[message("before")]).await.expect("publish");
    let before = nats.state().await.expect("state");

    server.kill();
    server.lose_disk();
    server.start_again();
    let events = [message("after")];
    until_done(|| nats.publish(&events)).await;

    let after = nats.state().await.expect("state");
    assert_ne!(after.created_at_micros, before.created_at_micros);
    assert_eq!(after.last, 1);
    let mark = Bytes::from_static(b"1");
    until_done(|| nats.put(subject::MARK_BUCKET, "spool", mark.clone(), Expected::Any)).await;
    // An empty catalogue knows nobody: nodes go on to serve from the last known one.
    let catalog = nats.watch(subject::CATALOG_BUCKET).await;
    assert!(catalog.is_err(), "{catalog:?}");
}
