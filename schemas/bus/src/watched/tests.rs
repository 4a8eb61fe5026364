//! Watches that end, that cannot be had, and that take their time.

use std::collections::VecDeque;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::*;
use crate::{Expected, Revision};

const BUCKET: &str = "wb_test";

/// What becomes of one watch.
enum Fate {
    /// It tells this, then ends.
    Ends(Vec<Change>),
    /// It tells this, then nothing more.
    Stays(Vec<Change>),
    Fails,
    /// It comes after so long, tells nothing and stays.
    Comes(Duration),
}

/// A bucket whose watches fare as they are told to.
#[derive(Default)]
struct Fated {
    fates: Mutex<VecDeque<Fate>>,
    asked: Mutex<Vec<Instant>>,
    open: Mutex<Vec<mpsc::Sender<Change>>>,
}

#[async_trait]
impl Kv for Fated {
    async fn get(&self, _: &str, _: &str) -> Result<Option<Entry>, BusError> {
        Err(BusError::Closed)
    }

    async fn put(&self, _: &str, _: &str, _: Bytes, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Closed)
    }

    async fn delete(&self, _: &str, _: &str, _: Expected) -> Result<Revision, BusError> {
        Err(BusError::Closed)
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        assert_eq!(bucket, BUCKET);
        self.asked.lock().push(Instant::now());
        let fate = self.fates.lock().pop_front();
        let (sender, receiver) = mpsc::channel(8);
        let (changes, stays) = match fate {
            Some(Fate::Ends(changes)) => (changes, false),
            Some(Fate::Stays(changes)) => (changes, true),
            Some(Fate::Comes(after)) => {
                sleep(after).await;
                (Vec::new(), true)
            }
            Some(Fate::Fails) | None => return Err(BusError::Timeout),
        };
        for change in changes {
            sender.send(change).await.expect("room");
        }
        if stays {
            self.open.lock().push(sender);
        }
        Ok(receiver)
    }
}

fn watched(fates: impl IntoIterator<Item = Fate>) -> (Arc<Fated>, Watched) {
    let kv = Arc::new(Fated::default());
    kv.fates.lock().extend(fates);
    let watched = Watched::new(kv.clone(), BUCKET);
    (kv, watched)
}

fn entry(key: &str) -> Change {
    Change::Entry(Entry {
        key: key.to_owned(),
        value: None,
        revision: 1,
    })
}

/// So many things that are told, in one word each.
async fn words(watched: &mut Watched, count: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..count {
        words.push(match watched.next().await {
            Told::Begun => "begun".to_owned(),
            Told::Entry(entry) => entry.key,
            Told::Current => "current".to_owned(),
            Told::Ended => "ended".to_owned(),
            Told::Away(_) => "away".to_owned(),
        });
    }
    words
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_is_made_anew_and_tells_everything_from_the_start() {
    let (_, mut watched) = watched([
        Fate::Ends(vec![entry("a"), Change::Current, entry("b")]),
        Fate::Stays(vec![entry("b"), Change::Current]),
    ]);

    let told = words(&mut watched, 8).await;

    let expected = ["begun", "a", "current", "b", "ended", "begun", "b", "current"];
    assert_eq!(told, expected);
    assert!(watched.is_watching() && !watched.has_more());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_is_away_is_told_once_and_asked_ever_more_rarely() {
    let fails = std::iter::repeat_with(|| Fate::Fails).take(9);
    let (kv, mut watched) = watched(fails.chain([Fate::Ends(vec![Change::Current]), Fate::Fails]));

    let told = words(&mut watched, 5).await;

    assert_eq!(told, ["away", "begun", "current", "ended", "away"]);
    let asked = kv.asked.lock().clone();
    let pauses: Vec<u128> = asked
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).as_millis())
        .collect();
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000, 50]);
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_without_a_word_are_asked_for_ever_more_rarely() {
    let ends = std::iter::repeat_with(|| Fate::Ends(Vec::new())).take(3);
    let (kv, mut watched) = watched(ends);

    assert_eq!(words(&mut watched, 4).await, ["begun", "ended", "begun", "ended"]);
    watched.next().await;

    let asked = kv.asked.lock().clone();
    assert_eq!(asked[2] - asked[0], Duration::from_millis(150));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_loses_nothing_of_a_watch_that_takes_its_time() {
    let (kv, mut watched) = watched([Fate::Comes(Duration::from_secs(10))]);

    for _ in 0..9 {
        assert!(timeout(Duration::from_secs(1), watched.next()).await.is_err());
    }

    assert_eq!(words(&mut watched, 1).await, ["begun"]);
    assert_eq!(kv.asked.lock().len(), 1, "it is not asked for again");
}
