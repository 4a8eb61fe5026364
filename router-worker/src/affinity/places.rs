//! Where sessions are, as one router knows it, without I/O. What it decided itself counts until it is written; from then
//! on the newest revision does, whoever wrote it. When there are too many, those that were touched longest ago go.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use schemas::affinity::record::Record;
use tokio::sync::oneshot;

/// Sessions that are remembered.
const PLACES_MAX: usize = 100_000;

/// What is known of a session.
#[derive(Debug)]
struct Place {
    /// `None` once it was forgotten, until that is written.
    record: Option<Record>,
    /// How long the record lives, in milliseconds; known for what was decided here.
    life_ms: u64,
    /// The revision of what is in the bucket; 0 while nobody knows of any.
    revision: u64,
    state: State,
    /// When it was touched, as the order counts it.
    stamp: u64,
    /// Those who wait until it is written, or is not going to be: they are let go.
    waiting: Vec<oneshot::Sender<()>>,
}

/// Whether the bucket has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has.
    Shared,
    /// It has not, and nobody writes it.
    Unshared,
    /// It will be written.
    Queued,
    /// It is being written; `again`: it changed meanwhile.
    Writing { again: bool },
}

/// Something to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Write {
    /// The session is there.
    Put {
        record: Record,
        /// How long the record lives, in milliseconds.
        life_ms: u64,
    },
    /// It is nowhere, if it still is where it was at this revision.
    Delete { revision: u64 },
}

/// What is known of a session under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// It is there.
    At(Record),
    /// It was forgotten here, which others may not know yet.
    Nowhere,
    /// Nothing.
    Nothing,
}

/// Sessions by the keys of their records.
#[derive(Debug, Default)]
pub(super) struct Places {
    entries: HashMap<Arc<str>, Place>,
    /// Keys in the order in which they were touched, with their stamps then.
    order: VecDeque<(Arc<str>, u64)>,
    stamps: u64,
}

impl Places {
    /// What is known under a key.
    pub(super) fn known(&self, key: &str) -> Known {
        match self.entries.get(key) {
            None => Known::Nothing,
            Some(place) => place.record.clone().map_or(Known::Nowhere, Known::At),
        }
    }

    /// The session is there now, for so many milliseconds. True when its key is to be queued for writing.
    pub(super) fn put(&mut self, key: &str, record: Record, life_ms: u64) -> bool {
        let known = self.entries.remove_entry(key);
        let (key, revision, state, waiting) = match known {
            Some((key, place)) => (key, place.revision, place.state, place.waiting),
            None => (Arc::from(key), 0, State::Shared, Vec::new()),
        };
        let (state, is_new) = changed(state);
        let place = Place {
            record: Some(record),
            life_ms,
            revision,
            state,
            stamp: 0,
            waiting,
        };
        self.insert(key, place);
        is_new
    }

    /// The session is nowhere. True when its key is to be queued for writing.
    pub(super) fn forget(&mut self, key: &str) -> bool {
        let Some(place) = self.entries.get_mut(key) else {
            return false;
        };
        place.record = None;
        let (state, is_new) = changed(place.state);
        place.state = state;
        is_new
    }

    /// True when the bucket does not have it and nobody writes it; from now on somebody does.
    pub(super) fn is_left_out(&mut self, key: &str) -> bool {
        let Some(place) = self.entries.get_mut(key) else {
            return false;
        };
        let is_left_out = place.state == State::Unshared;
        if is_left_out {
            place.state = State::Queued;
        }
        is_left_out
    }

    /// There is no room among what waits to be written.
    pub(super) fn leave_out(&mut self, key: &str) {
        if let Some(place) = self.entries.get_mut(key) {
            place.state = State::Unshared;
            place.waiting.clear();
        }
    }

    /// Tells when a session is written, or is not going to be; `None` when there is nothing to wait for.
    pub(super) fn wait(&mut self, key: &str) -> Option<oneshot::Receiver<()>> {
        let place = self.entries.get_mut(key)?;
        if matches!(place.state, State::Shared | State::Unshared) {
            return None;
        }
        let (waiter, written) = oneshot::channel();
        place.waiting.push(waiter);
        Some(written)
    }

    /// Revisions begin anew, or may do so: what is told from now on is the newest, whatever its number.
    pub(super) fn begin_anew(&mut self) {
        for place in self.entries.values_mut() {
            place.revision = 0;
        }
    }

    /// What is to be written under a key; somebody begins to.
    pub(super) fn begin(&mut self, key: &str) -> Option<Write> {
        let place = self.entries.get_mut(key)?;
        place.state = State::Writing { again: false };
        Some(match &place.record {
            Some(record) => Write::Put {
                record: record.clone(),
                life_ms: place.life_ms,
            },
            None => Write::Delete {
                revision: place.revision,
            },
        })
    }

    /// It was written, at a revision; `None` when it was not, or nobody knows. True when there is something newer to
    /// write.
    pub(super) fn wrote(&mut self, key: &str, revision: Option<u64>) -> bool {
        let Some(place) = self.entries.get_mut(key) else {
            return false;
        };
        place.revision = place.revision.max(revision.unwrap_or(0));
        if place.state == (State::Writing { again: true }) {
            place.state = State::Queued;
            return true;
        }
        place.state = revision.map_or(State::Unshared, |_| State::Shared);
        place.waiting.clear();
        if place.record.is_none() {
            // Whatever is in the bucket now is read again when somebody asks.
            self.entries.remove(key);
        }
        false
    }

    /// Takes what the bucket has: told by its watch, or read. What was decided here and is not written yet is newer.
    pub(super) fn learn(&mut self, key: &str, revision: u64, record: Option<Record>) {
        let Some(place) = self.entries.get_mut(key) else {
            if let Some(record) = record {
                let place = Place {
                    record: Some(record),
                    life_ms: 0,
                    revision,
                    state: State::Shared,
                    stamp: 0,
                    waiting: Vec::new(),
                };
                self.insert(Arc::from(key), place);
            }
            return;
        };
        if revision <= place.revision {
            return;
        }
        place.revision = revision;
        if matches!(place.state, State::Queued | State::Writing { .. }) {
            return;
        }
        match record {
            Some(record) => {
                place.record = Some(record);
                place.state = State::Shared;
            }
            None => {
                self.entries.remove(key);
            }
        }
    }

    fn insert(&mut self, key: Arc<str>, place: Place) {
        self.stamps += 1;
        let stamp = self.stamps;
        self.order.push_back((Arc::clone(&key), stamp));
        self.entries.insert(key, Place { stamp, ..place });
        // A key that is touched often stands in the order often; only its last place there counts.
        while self.entries.len() > PLACES_MAX || self.order.len() > 2 * PLACES_MAX {
            let Some((key, stamp)) = self.order.pop_front() else {
                return;
            };
            let is_last = self.entries.get(&key).is_some_and(|place| place.stamp == stamp);
            if is_last {
                self.entries.remove(&key);
            }
        }
    }
}

/// The state of what changed, and whether it is to be queued.
const fn changed(state: State) -> (State, bool) {
    match state {
        State::Shared | State::Unshared => (State::Queued, true),
        State::Queued => (State::Queued, false),
        State::Writing { .. } => (State::Writing { again: true }, false),
    }
}

#[cfg(test)]
mod tests;
