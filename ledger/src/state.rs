//! What the ledger knows about itself, shared between the one who applies and those who answer.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use schemas::query::LedgerState;

/// What is known of the database; 0 before it was asked.
const CONNECTED: u8 = 1;
const AWAY: u8 = 2;

/// Figures and wishes.
#[derive(Debug, Default)]
pub(crate) struct State {
    events_applied: AtomicU64,
    events_unreadable: AtomicU64,
    events_missing: AtomicU64,
    cursor: AtomicU64,
    database: AtomicU8,
    applying: AtomicBool,
    reread: AtomicBool,
}

impl State {
    /// A batch is in the books.
    pub(crate) fn applied(&self, events: u64, cursor: u64, missing: u64) {
        self.events_applied.fetch_add(events, Relaxed);
        self.set_cursor(cursor);
        self.set_missing(missing);
    }

    pub(crate) fn set_cursor(&self, cursor: u64) {
        self.cursor.store(cursor, Relaxed);
    }

    pub(crate) fn set_missing(&self, missing: u64) {
        self.events_missing.store(missing, Relaxed);
    }

    /// An event was not understood.
    pub(crate) fn unreadable(&self) {
        self.events_unreadable.fetch_add(1, Relaxed);
    }

    /// Notes whether the database answers; true when that is news. That it answers at first is none.
    pub(crate) fn set_connected(&self, connected: bool) -> bool {
        if connected {
            self.database.swap(CONNECTED, Relaxed) == AWAY
        } else {
            self.database.swap(AWAY, Relaxed) != AWAY
        }
    }

    /// Whether the database answers; false until it has been asked.
    pub(crate) fn connected(&self) -> bool {
        self.database.load(Relaxed) == CONNECTED
    }

    /// Notes whether this ledger applies or stands by.
    pub(crate) fn set_applying(&self, applying: bool) {
        self.applying.store(applying, Relaxed);
    }

    /// True while this ledger applies.
    pub(crate) fn applying(&self) -> bool {
        self.applying.load(Relaxed)
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
            database_connected: self.database.load(Relaxed) != AWAY,
            events_missing: self.events_missing.load(Relaxed),
            events_unreadable: self.events_unreadable.load(Relaxed),
        }
    }
}
