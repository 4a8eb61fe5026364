//! A bucket in memory that is as slow, as silent and as far away as a test says.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bus::{BusError, Change, Entry, Expected, Kv, Revision};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How a bucket behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It answers.
    Fine,
    /// It writes, and does not say so.
    Mute,
    /// It neither writes nor answers, but can be read.
    Stuck,
    /// It cannot be reached.
    Away,
}

/// A bucket in memory.
pub(crate) struct Bucket {
    latency: Duration,
    state: Mutex<State>,
}

struct State {
    mood: Mood,
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    watchers: Vec<mpsc::Sender<Change>>,
    writes: u32,
}

impl Bucket {
    /// An empty bucket that answers after `latency`.
    pub(crate) fn new(latency: Duration) -> Self {
        Self {
            latency,
            state: Mutex::new(State {
                mood: Mood::Fine,
                revision: 0,
                entries: BTreeMap::new(),
                watchers: Vec::new(),
                writes: 0,
            }),
        }
    }

    /// How it behaves from now on; when it goes away, watches end.
    pub(crate) fn set(&self, mood: Mood) {
        let mut state = self.state.lock();
        state.mood = mood;
        if mood == Mood::Away {
            state.watchers.clear();
        }
    }

    /// Writes so far, lost races left out.
    pub(crate) fn writes(&self) -> u32 {
        self.state.lock().writes
    }

    /// The keys that have a value.
    pub(crate) fn keys(&self) -> Vec<String> {
        let state = self.state.lock();
        let present = state.entries.values().filter(|entry| entry.value.is_some());
        present.map(|entry| entry.key.clone()).collect()
    }

    async fn write(&self, key: &str, value: Option<Bytes>, expected: Expected) -> Result<Revision, BusError> {
        sleep(self.latency).await;
        let mood = self.state.lock().mood;
        let written = match mood {
            Mood::Away => return Err(BusError::Closed),
            Mood::Stuck => return std::future::pending().await,
            Mood::Fine | Mood::Mute => self.state.lock().apply(key, value, expected),
        };
        if mood == Mood::Mute {
            return std::future::pending().await;
        }
        sleep(self.latency).await;
        written
    }
}

impl State {
    fn apply(&mut self, key: &str, value: Option<Bytes>, expected: Expected) -> Result<Revision, BusError> {
        let there = self.entries.get(key).filter(|entry| entry.value.is_some());
        let fits = match expected {
            Expected::Any => true,
            Expected::Absent => there.is_none(),
            Expected::Revision(revision) => there.is_some_and(|entry| entry.revision == revision),
        };
        if !fits {
            return Err(BusError::Conflict);
        }
        self.revision += 1;
        self.writes += 1;
        let entry = Entry {
            key: key.to_owned(),
            value,
            revision: self.revision,
        };
        self.entries.insert(key.to_owned(), entry.clone());
        let change = Change::Entry(entry);
        self.watchers
            .retain(|watcher| watcher.try_send(change.clone()).is_ok());
        Ok(self.revision)
    }
}

#[async_trait]
impl Kv for Bucket {
    async fn get(&self, _: &str, key: &str) -> Result<Option<Entry>, BusError> {
        sleep(self.latency).await;
        let state = self.state.lock();
        if state.mood == Mood::Away {
            return Err(BusError::Closed);
        }
        let entry = state.entries.get(key).cloned();
        Ok(entry.filter(|entry| entry.value.is_some()))
    }

    async fn put(&self, _: &str, key: &str, value: Bytes, expected: Expected) -> Result<Revision, BusError> {
        self.write(key, Some(value), expected).await
    }

    /// Nothing ends here: whoever reads judges the age himself.
    async fn put_for(
        &self,
        (_, key): (&str, &str),
        value: Bytes,
        expected: Expected,
        _: Duration,
    ) -> Result<Revision, BusError> {
        self.write(key, Some(value), expected).await
    }

    async fn delete(&self, _: &str, key: &str, expected: Expected) -> Result<Revision, BusError> {
        self.write(key, None, expected).await
    }

    async fn watch(&self, _: &str) -> Result<mpsc::Receiver<Change>, BusError> {
        let mut state = self.state.lock();
        if state.mood == Mood::Away {
            return Err(BusError::Closed);
        }
        let (watcher, changes) = mpsc::channel(1_024);
        let present = state.entries.values().filter(|entry| entry.value.is_some());
        for entry in present {
            watcher.try_send(Change::Entry(entry.clone())).expect("room");
        }
        watcher.try_send(Change::Current).expect("room");
        state.watchers.push(watcher);
        Ok(changes)
    }
}
