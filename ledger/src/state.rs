//! What the ledger knows about itself, shared between the one who applies and those who answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use schemas::query::LedgerState;

/// Figures and wishes.
#[derive(Debug, Default)]
pub(crate) struct State {
    events_applied: AtomicU64,
    events_unreadable: AtomicU64,
    events_missing: AtomicU64,
    cursor: AtomicU64,
    away: AtomicBool,
    reread: AtomicBool,
}

impl State {
    /// A batch is in the books.
    pub(crate) fn applied(&self, events: u64, cursor: u64, missing: u64) {
        self.events_applied.fetch_add(events, Relaxed);
        self.cursor.store(cursor, Relaxed);
        self.events_missing.store(missing, Relaxed);
    }

    pub(crate) fn set_cursor(&self, cursor: u64) {
        self.cursor.store(cursor, Relaxed);
    }

    /// An event was not understood.
    pub(crate) fn unreadable(&self) {
        self.events_unreadable.fetch_add(1, Relaxed);
    }

    /// Notes whether the database answers; true when that is news.
    pub(crate) fn set_connected(&self, connected: bool) -> bool {
        self.away.swap(!connected, Relaxed) == connected
    }

    /// Asks for the log to be read again from its oldest.
    pub(crate) fn ask_reread(&self) {
        self.reread.store(true, Relaxed);
    }

    /// Takes the wish, if there is one.
    pub(crate) fn take_reread(&self) -> bool {
        self.reread.swap(false, Relaxed)
    }

    pub(crate) fn read(&self) -> LedgerState {
        LedgerState {
            events_applied: self.events_applied.load(Relaxed),
            cursor: self.cursor.load(Relaxed),
            database_connected: !self.away.load(Relaxed),
            events_missing: self.events_missing.load(Relaxed),
            events_unreadable: self.events_unreadable.load(Relaxed),
        }
    }
}
