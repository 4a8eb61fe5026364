//! A bus in memory that can be bent: it loses messages, forgets its end, is made anew, goes away, and answers too
//! late. For tests of what must hold whatever a bus does.

#![expect(clippy::expect_used, reason = "a test suite")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemas::time::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::counter::{Counters, Slice};
use crate::{Bus, BusError, Change, Entry, Expected, Kv, LogState, Message, Question, Revision, Stored};

/// Changes that a watcher may be behind before it is dropped.
const WATCH_CHANGES_MAX: usize = 4_096;

/// A log, records and questions in memory, with faults on demand.
#[derive(Debug, Default)]
pub struct Bent {
    held: Mutex<Held>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    created_at_micros: i64,
    messages: BTreeMap<u64, Message>,
    first: u64,
    last: u64,
    /// The duplicate window: it remembers what it saw, also when the log has lost it.
    places: HashMap<String, u64>,
    records: BTreeMap<(String, String), Entry>,
    /// When records end that have lifetimes.
    ends: BTreeMap<(String, String), Instant>,
    revision: Revision,
    watchers: Vec<(String, mpsc::Sender<Change>)>,
    servers: HashMap<String, mpsc::Sender<Question>>,
    counters: [BTreeMap<String, u64>; 2],
    counters_since: Option<Timestamp>,
    away: bool,
    answers_lost: u32,
    write_answers_lost: u32,
}

impl Bent {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no panic while held")
    }

    /// Everything fails with [`BusError::Unavailable`] while the bus is away.
    pub fn set_away(&self, away: bool) {
        self.held().away = away;
    }

    /// The next `publishes` are stored, and answered with [`BusError::Timeout`].
    pub fn lose_answers(&self, publishes: u32) {
        self.held().answers_lost = publishes;
    }

    /// The next `writes` of records and counters are done, and answered with [`BusError::Timeout`].
    pub fn lose_write_answers(&self, writes: u32) {
        self.held().write_answers_lost = writes;
    }

    /// All counters are forgotten, at this time.
    pub fn forget_counters(&self, now: Timestamp) {
        let mut held = self.held();
        held.counters = Default::default();
        held.counters_since = Some(now);
    }

    /// The keys of a bucket.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let held = self.held();
        let of_bucket = held.records.iter().filter(|((of, _), _)| of == bucket);
        let there = of_bucket.filter(|(_, entry)| entry.value.is_some());
        there.map(|((_, key), _)| key.clone()).collect()
    }

    /// Loses one message; its id is remembered, so that it is not stored again.
    pub fn lose(&self, place: u64) {
        self.held().messages.remove(&place);
    }

    /// Stores a message a second time.
    pub fn repeat(&self, place: u64) {
        let mut held = self.held();
        if let Some(message) = held.messages.get(&place).cloned() {
            held.store(message);
        }
        drop(held);
        self.changed.notify_waiters();
    }

    /// Loses everything after `last`, as a disk that had not written it: the places are given away again.
    pub fn roll_back(&self, last: u64) {
        let mut held = self.held();
        held.messages.split_off(&(last + 1));
        held.places.retain(|_, place| *place <= last);
        held.last = held.last.min(last);
    }

    /// Makes the log anew: another birth, no messages.
    pub fn make_anew(&self) {
        let mut held = self.held();
        held.created_at_micros += 1;
        held.messages.clear();
        held.places.clear();
        held.last = 0;
    }

    /// The ids of all messages, in order.
    pub fn ids(&self) -> Vec<String> {
        let held = self.held();
        held.messages.values().map(|message| message.id.clone()).collect()
    }

    /// The value of a record as text.
    pub fn text(&self, bucket: &str, key: &str) -> Option<String> {
        let held = self.held();
        let entry = held.records.get(&(bucket.to_owned(), key.to_owned()))?;
        Some(String::from_utf8_lossy(entry.value.as_ref()?).into_owned())
    }

    fn reach(&self) -> Result<MutexGuard<'_, Held>, BusError> {
        let mut held = self.held();
        held.expire(Instant::now());
        if held.away {
            Err(BusError::Unavailable("bent".into()))
        } else {
            Ok(held)
        }
    }
}

impl Held {
    /// What a write is answered that was done.
    fn answered<T>(&mut self, answer: T) -> Result<T, BusError> {
        if self.write_answers_lost == 0 {
            return Ok(answer);
        }
        self.write_answers_lost -= 1;
        Err(BusError::Timeout)
    }

    fn expire(&mut self, now: Instant) {
        let over = self.ends.extract_if(.., |_, end| *end <= now);
        for (place, _) in over {
            self.records.remove(&place);
        }
    }

    fn store(&mut self, message: Message) -> u64 {
        self.last += 1;
        self.messages.insert(self.last, message);
        self.last
    }

    fn state(&self) -> LogState {
        LogState {
            created_at_micros: self.created_at_micros,
            first: self.first.max(1),
            last: self.last,
        }
    }

    fn write(
        &mut self,
        (bucket, key): (&str, &str),
        (value, life): (Option<Bytes>, Option<Duration>),
        expected: Expected,
    ) -> Result<Revision, BusError> {
        let place = (bucket.to_owned(), key.to_owned());
        let now = self.records.get(&place);
        let fits = match expected {
            Expected::Any => true,
            Expected::Absent => now.is_none_or(|entry| entry.value.is_none()),
            Expected::Revision(revision) => now.is_some_and(|entry| entry.revision == revision),
        };
        if !fits {
            return Err(BusError::Conflict);
        }
        self.revision += 1;
        let entry = Entry {
            key: key.to_owned(),
            value,
            revision: self.revision,
        };
        match life {
            Some(life) => self.ends.insert(place.clone(), Instant::now() + life),
            None => self.ends.remove(&place),
        };
        self.records.insert(place, entry.clone());
        self.watchers.retain(|(watched, sender)| {
            watched != bucket || sender.try_send(Change::Entry(entry.clone())).is_ok()
        });
        let revision = self.revision;
        self.answered(revision)
    }
}

#[async_trait]
impl Counters for Bent {
    async fn add(&self, slice: Slice, name: &str, amount: u64) -> Result<u64, BusError> {
        let mut held = self.reach()?;
        let counters = match slice {
            Slice::Second => &mut held.counters[0],
            Slice::Minute => &mut held.counters[1],
        };
        let counter = counters.entry(name.to_owned()).or_default();
        *counter += amount;
        let total = *counter;
        held.answered(total)
    }

    async fn since(&self, _slice: Slice) -> Result<Option<Timestamp>, BusError> {
        Ok(self.reach()?.counters_since)
    }
}

#[async_trait]
impl Bus for Bent {
    async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        let mut held = self.reach()?;
        let mut places = Vec::with_capacity(messages.len());
        for message in messages {
            let place = match held.places.get(&message.id).copied() {
                Some(place) => place,
                None => held.store(message.clone()),
            };
            held.places.insert(message.id.clone(), place);
            places.push(place);
        }
        let answered = held.answers_lost == 0;
        held.answers_lost = held.answers_lost.saturating_sub(1);
        drop(held);
        self.changed.notify_waiters();
        if answered {
            Ok(places)
        } else {
            Err(BusError::Timeout)
        }
    }

    async fn read(&self, from: u64, messages_max: usize, wait: Duration) -> Result<Vec<Stored>, BusError> {
        let deadline = Instant::now() + wait;
        loop {
            let changed = self.changed.notified();
            let found: Vec<Stored> = {
                let held = self.reach()?;
                let LogState { first, .. } = held.state();
                if from < first {
                    return Err(BusError::Trimmed { first });
                }
                let found = held.messages.range(from..).take(messages_max);
                found
                    .map(|(sequence, message)| Stored {
                        sequence: *sequence,
                        message: message.clone(),
                    })
                    .collect()
            };
            if !found.is_empty() || timeout_at(deadline, changed).await.is_err() {
                return Ok(found);
            }
        }
    }

    async fn state(&self) -> Result<LogState, BusError> {
        Ok(self.reach()?.state())
    }

    async fn ask(&self, subject: &str, question: Bytes, wait: Duration) -> Result<Bytes, BusError> {
        let missing = || BusError::NoResponder {
            subject: subject.to_owned(),
        };
        let server = self.reach()?.servers.get(subject).cloned().ok_or_else(missing)?;
        let (reply, answer) = oneshot::channel();
        let question = Question {
            payload: question,
            reply,
        };
        server.send(question).await.map_err(|_| missing())?;
        match timeout(wait, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(BusError::Timeout),
        }
    }

    async fn serve(&self, subject: &str) -> Result<mpsc::Receiver<Question>, BusError> {
        let (sender, receiver) = mpsc::channel(16);
        self.reach()?.servers.insert(subject.to_owned(), sender);
        Ok(receiver)
    }
}

#[async_trait]
impl Kv for Bent {
    async fn get(&self, bucket: &str, key: &str) -> Result<Option<Entry>, BusError> {
        let held = self.reach()?;
        let entry = held.records.get(&(bucket.to_owned(), key.to_owned()));
        Ok(entry.filter(|entry| entry.value.is_some()).cloned())
    }

    async fn put(
        &self,
        bucket: &str,
        key: &str,
        value: Bytes,
        expected: Expected,
    ) -> Result<Revision, BusError> {
        self.reach()?.write((bucket, key), (Some(value), None), expected)
    }

    async fn put_for(
        &self,
        place: (&str, &str),
        value: Bytes,
        expected: Expected,
        life: Duration,
    ) -> Result<Revision, BusError> {
        self.reach()?.write(place, (Some(value), Some(life)), expected)
    }

    async fn delete(&self, bucket: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.reach()?.write((bucket, key), (None, None), expected)
    }

    async fn watch(&self, bucket: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let (sender, receiver) = mpsc::channel(WATCH_CHANGES_MAX);
        let mut held = self.reach()?;
        let of_bucket = held.records.iter().filter(|((watched, _), _)| watched == bucket);
        for (_, entry) in of_bucket.filter(|(_, entry)| entry.value.is_some()) {
            sender
                .try_send(Change::Entry(entry.clone()))
                .expect("room for what there is");
        }
        sender.try_send(Change::Current).expect("room for the marker");
        held.watchers.push((bucket.to_owned(), sender));
        Ok(receiver)
    }
}
