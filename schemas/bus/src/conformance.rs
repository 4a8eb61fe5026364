//! What every adapter must do, one function per promise. A function takes any adapter, also one that holds
//! other things already, panics when the promise is broken, and fails when the adapter does.

pub mod counter;
pub mod dispatch;
pub mod lifetime;
pub mod script;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{Bus, BusError, Change, Entry, Expected, Kv, Message, Stored};

/// Long enough for any adapter that works.
const PATIENCE: Duration = Duration::from_secs(10);
/// Short, where nothing is to come.
const MOMENT: Duration = Duration::from_millis(50);

fn message(id: &str) -> Message {
    let payload = Bytes::from(format!("payload of {id}"));
    Message {
        subject: "wb.ev.request.acme".to_owned(),
        id: id.to_owned(),
        payload,
    }
}

fn messages(prefix: &str, count: usize) -> Vec<Message> {
    (0..count)
        .map(|number| message(&format!("{prefix}-{number}")))
        .collect()
}

/// Reads until `count` messages are there, `step` at a time.
async fn read(bus: &dyn Bus, from: u64, count: usize, step: usize) -> Result<Vec<Stored>, BusError> {
    let mut all: Vec<Stored> = Vec::new();
    while all.len() < count {
        let next = all.last().map_or(from, |stored| stored.sequence + 1);
        let more = bus.read(next, step, PATIENCE).await?;
        assert!(!more.is_empty(), "{} of {count} messages came", all.len());
        assert!(more.len() <= step, "more messages than were asked for");
        all.extend(more);
    }
    Ok(all)
}

fn assert_is(read: &[Stored], published: &[Message], from: u64) {
    assert_eq!(read.len(), published.len());
    for ((stored, message), sequence) in read.iter().zip(published).zip(from..) {
        assert_eq!((stored.sequence, &stored.message), (sequence, message));
    }
}

/// Messages get dense places in the order in which they were published, and are read in it.
pub async fn order_is_kept(bus: &dyn Bus) -> Result<(), BusError> {
    let published = messages("order", 20);
    let mut places = bus.publish(&published[..7]).await?;
    places.extend(bus.publish(&published[7..]).await?);
    let from = places[0];
    assert!(places.iter().copied().eq(from..from + 20), "{places:?}");
    assert_is(&read(bus, from, 20, 6).await?, &published, from);
    Ok(())
}

/// A message that is published again is stored once and gets its first place, in the same batch or later.
pub async fn publishing_is_idempotent(bus: &dyn Bus) -> Result<(), BusError> {
    let once = messages("again", 3);
    let first = bus.publish(&once).await?;
    assert_eq!(bus.publish(&once).await?, first);
    let new = message("again-new");
    let mixed = [once[1].clone(), new.clone(), new.clone()];
    let places = bus.publish(&mixed).await?;
    assert_eq!(places, [first[1], first[2] + 1, first[2] + 1]);
    let kept = [once, vec![new]].concat();
    assert_is(&read(bus, first[0], 4, 10).await?, &kept, first[0]);
    assert_eq!(bus.read(first[2] + 2, 10, MOMENT).await?, []);
    Ok(())
}

/// A reader begins wherever it says, as often as it likes; reading takes nothing away.
pub async fn reading_resumes_anywhere(bus: &dyn Bus) -> Result<(), BusError> {
    let published = messages("resume", 30);
    let from = bus.publish(&published).await?[0];
    for skipped in [29, 0, 13, 14, 0, 28] {
        let index = usize::try_from(skipped).unwrap_or_default();
        let read = read(bus, from + skipped, 30 - index, 5).await?;
        assert_is(&read, &published[index..], from + skipped);
    }
    Ok(())
}

/// A read waits for the first message, and comes back empty when none comes.
pub async fn reading_waits_for_the_first_message(bus: &dyn Bus) -> Result<(), BusError> {
    let next = bus.state().await?.last + 1;
    assert_eq!(bus.read(next, 10, MOMENT).await?, []);
    let published = messages("wait", 1);
    let publish = async {
        tokio::time::sleep(MOMENT).await;
        bus.publish(&published).await
    };
    let (read, places) = tokio::join!(bus.read(next, 10, PATIENCE), publish);
    assert_eq!(places?, [next]);
    assert_is(&read?, &published, next);
    Ok(())
}

/// The state tells where the log begins and ends and when it was made.
pub async fn the_state_tells_the_ends_of_the_log(bus: &dyn Bus) -> Result<(), BusError> {
    let before = bus.state().await?;
    let place = bus.publish(&messages("state", 1)).await?[0];
    read(bus, place, 1, 1).await?;
    let after = bus.state().await?;
    assert_eq!((place, after.last), (before.last + 1, place));
    assert_eq!(
        (after.first, after.created_at_micros),
        (before.first, before.created_at_micros)
    );
    assert!(after.created_at_micros > 0);
    Ok(())
}

/// A log that is opened again has its messages, its age and its memory of ids. `open` is called only after
/// the adapter that it gave before was dropped.
pub async fn the_log_survives_reopening(open: &dyn Fn() -> Arc<dyn Bus>) -> Result<(), BusError> {
    let published = messages("reopen", 40);
    let bus = open();
    let places = bus.publish(&published).await?;
    let created = bus.state().await?.created_at_micros;
    drop(bus);

    let bus = open();
    assert_is(&read(&*bus, places[0], 40, 9).await?, &published, places[0]);
    assert_eq!(bus.state().await?.created_at_micros, created);
    assert_eq!(bus.publish(&published[5..6]).await?, [places[5]]);
    assert_eq!(bus.publish(&messages("reopen-new", 1)).await?, [places[39] + 1]);
    Ok(())
}

/// A question that nobody serves fails at once, also when its server has gone.
pub async fn a_question_that_nobody_serves_has_no_responder(bus: &dyn Bus) -> Result<(), BusError> {
    for served_before in [false, true] {
        if served_before {
            drop(bus.serve("wb.q.nobody").await?);
        }
        let asked = bus.ask("wb.q.nobody", Bytes::new(), PATIENCE).await;
        assert!(matches!(asked, Err(BusError::NoResponder { subject }) if subject == "wb.q.nobody"));
    }
    Ok(())
}

/// A question is answered by one of its servers, and servers share the questions.
pub async fn a_question_is_answered(bus: &dyn Bus) -> Result<(), BusError> {
    async fn serve(mut questions: mpsc::Receiver<crate::Question>, name: &str) -> usize {
        let mut served = 0;
        while let Some(question) = questions.recv().await {
            if question.payload == "stop" {
                questions.close();
            }
            served += 1;
            let answer = [name.as_bytes(), &question.payload].concat();
            assert!(question.reply.send(answer.into()).is_ok());
        }
        served
    }
    let (one, two) = (bus.serve("wb.q.twice").await?, bus.serve("wb.q.twice").await?);
    let ask = async {
        for number in 0..20 {
            let question = Bytes::from(format!("{number}"));
            let answer = bus.ask("wb.q.twice", question, PATIENCE).await?;
            assert!(
                answer == format!("one {number}") || answer == format!("two {number}"),
                "{answer:?}"
            );
        }
        for _ in 0..2 {
            bus.ask("wb.q.twice", Bytes::from("stop"), PATIENCE).await?;
        }
        Ok::<(), BusError>(())
    };
    let (one, two, asked) = tokio::join!(serve(one, "one "), serve(two, "two "), ask);
    asked?;
    assert_eq!(one + two, 22);
    assert!(one > 1 && two > 1, "{one} and {two}");
    Ok(())
}

/// A server that does not answer leaves the asker to his timeout.
pub async fn a_question_without_an_answer_times_out(bus: &dyn Bus) -> Result<(), BusError> {
    let mut questions = bus.serve("wb.q.silent").await?;
    let ask = bus.ask("wb.q.silent", Bytes::new(), MOMENT);
    let (asked, question) = tokio::join!(ask, questions.recv());
    drop(question);
    assert!(matches!(asked, Err(BusError::Timeout)));
    Ok(())
}

fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

async fn next(changes: &mut mpsc::Receiver<Change>) -> Option<Change> {
    tokio::time::timeout(PATIENCE, changes.recv())
        .await
        .unwrap_or_default()
}

/// What was put is got, until it is deleted; buckets do not meet.
pub async fn what_was_put_is_got(kv: &dyn Kv) -> Result<(), BusError> {
    assert_eq!(kv.get("wb_got", "key").await?, None);
    let revision = kv.put("wb_got", "key", text("one"), Expected::Any).await?;
    kv.put("wb_got_other", "key", text("other"), Expected::Any)
        .await?;
    let entry = Entry {
        key: "key".to_owned(),
        value: Some(text("one")),
        revision,
    };
    assert_eq!(kv.get("wb_got", "key").await?, Some(entry));
    kv.delete("wb_got", "key", Expected::Any).await?;
    assert_eq!(kv.get("wb_got", "key").await?, None);
    assert!(kv.get("wb_got_other", "key").await?.is_some());
    Ok(())
}

/// A write happens only when what is there is what it expects.
pub async fn a_write_that_expects_something_else_conflicts(kv: &dyn Kv) -> Result<(), BusError> {
    let conflicts = |written: Result<u64, BusError>| matches!(written, Err(BusError::Conflict));
    let (bucket, key) = ("wb_expect", "key");
    assert!(conflicts(
        kv.put(bucket, key, text("x"), Expected::Revision(1)).await
    ));
    let one = kv.put(bucket, key, text("one"), Expected::Absent).await?;
    assert!(conflicts(kv.put(bucket, key, text("x"), Expected::Absent).await));
    assert!(conflicts(
        kv.put(bucket, key, text("x"), Expected::Revision(one + 1)).await
    ));
    let two = kv.put(bucket, key, text("two"), Expected::Revision(one)).await?;
    assert!(conflicts(
        kv.put(bucket, key, text("x"), Expected::Revision(one)).await
    ));
    assert!(conflicts(kv.delete(bucket, key, Expected::Revision(one)).await));
    assert_eq!(
        kv.get(bucket, key).await?.and_then(|entry| entry.value),
        Some(text("two"))
    );
    kv.delete(bucket, key, Expected::Revision(two)).await?;
    kv.delete(bucket, key, Expected::Any).await?;
    assert!(conflicts(
        kv.put(bucket, key, text("x"), Expected::Revision(two)).await
    ));
    kv.put(bucket, key, text("three"), Expected::Absent).await?;
    Ok(())
}

/// Revisions grow over the whole bucket, deletions included.
pub async fn revisions_grow_over_the_bucket(kv: &dyn Kv) -> Result<(), BusError> {
    let mut revisions = Vec::new();
    for key in ["a", "b", "a", "c"] {
        revisions.push(kv.put("wb_grow", key, text(key), Expected::Any).await?);
    }
    revisions.push(kv.delete("wb_grow", "a", Expected::Any).await?);
    revisions.push(kv.put("wb_grow", "a", text("a"), Expected::Any).await?);
    assert!(
        revisions.is_sorted_by(|earlier, later| earlier < later),
        "{revisions:?}"
    );
    Ok(())
}

/// A watch tells every entry, then that it is current, then every change in its order.
pub async fn a_watch_tells_what_is_there_and_then_every_change(kv: &dyn Kv) -> Result<(), BusError> {
    let bucket = "wb_watch";
    let entry = |key: &str, value: Option<&str>, revision| {
        Change::Entry(Entry {
            key: key.to_owned(),
            value: value.map(text),
            revision,
        })
    };
    kv.put(bucket, "gone", text("x"), Expected::Any).await?;
    let a = kv.put(bucket, "a", text("1"), Expected::Any).await?;
    let b = kv.put(bucket, "b", text("2"), Expected::Any).await?;
    kv.delete(bucket, "gone", Expected::Any).await?;
    let mut changes = kv.watch(bucket).await?;
    let mut there = Vec::new();
    loop {
        match next(&mut changes).await {
            Some(Change::Current) => break,
            // A deletion that is still remembered may be told.
            Some(Change::Entry(entry)) if entry.value.is_none() => {}
            Some(change) => there.push(change),
            None => return Err(BusError::Timeout),
        }
    }
    there.sort_by_key(|change| matches!(change, Change::Entry(entry) if entry.key == "b"));
    assert_eq!(there, [entry("a", Some("1"), a), entry("b", Some("2"), b)]);

    for number in 0..50 {
        let value = number.to_string();
        let key = ["a", "b", "c"][number % 3];
        let revision = kv.put(bucket, key, text(&value), Expected::Any).await?;
        // One by one: of a key that changes again before it was told, only the newest value may be told.
        let told = next(&mut changes).await;
        assert_eq!(told, Some(entry(key, Some(&value), revision)));
    }
    kv.put("wb_watch_other", "a", text("unseen"), Expected::Any)
        .await?;
    let revision = kv.delete(bucket, "a", Expected::Any).await?;
    assert_eq!(next(&mut changes).await, Some(entry("a", None, revision)));
    Ok(())
}

/// A watch of a bucket that has nothing is current at once.
pub async fn a_watch_of_nothing_is_current_at_once(kv: &dyn Kv) -> Result<(), BusError> {
    let mut changes = kv.watch("wb_nothing").await?;
    assert_eq!(next(&mut changes).await, Some(Change::Current));
    Ok(())
}

/// Buckets that are opened again have their values and go on with their revisions. `open` is called only
/// after the adapter that it gave before was dropped.
pub async fn buckets_survive_reopening(open: &dyn Fn() -> Arc<dyn Kv>) -> Result<(), BusError> {
    let kv = open();
    kv.put("wb_reopen", "gone", text("x"), Expected::Any).await?;
    let kept = kv.put("wb_reopen", "kept", text("1"), Expected::Any).await?;
    let last = kv.delete("wb_reopen", "gone", Expected::Any).await?;
    drop(kv);

    let kv = open();
    let entry = Entry {
        key: "kept".to_owned(),
        value: Some(text("1")),
        revision: kept,
    };
    assert_eq!(kv.get("wb_reopen", "kept").await?, Some(entry));
    assert_eq!(kv.get("wb_reopen", "gone").await?, None);
    assert!(kv.put("wb_reopen", "gone", text("y"), Expected::Absent).await? > last);
    Ok(())
}
