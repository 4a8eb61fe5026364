//! Faults that the simulation plants to prove that it finds them, and so does a node under test with all around it. Without
//! debug assertions, as in every release, there is no way to plant one, and every question for one is answered "no" at
//! compile time.

/// A fault of the kind that exact limits die of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A request whose caller left is not settled.
    SettleSkippedOnClientGone,
    /// What was given back once is given back again.
    GivenBackTwice,
    /// A write that lost against another is taken for one that won.
    LostTakenForWon,
    /// A write whose fate is unknown is taken for one that lost.
    UnknownTakenForLost,
    /// Slots are handed out after the lease has run out.
    LeaseUsedAfterExpiry,
    /// What a silent node holds is handed out before its lease has run out.
    ReleasedEarly,
    /// A request that panicked keeps its slot.
    SlotLeakedOnPanic,
    /// An older record replaces a newer one.
    StaleReadAdmitted,
    /// A request is settled in the period it ended in.
    WindowFixedAtSettle,
    /// An event that the record holds already is counted again.
    DuplicateEventCounted,
}

impl Bug {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::SettleSkippedOnClientGone,
        Self::GivenBackTwice,
        Self::LostTakenForWon,
        Self::UnknownTakenForLost,
        Self::LeaseUsedAfterExpiry,
        Self::ReleasedEarly,
        Self::SlotLeakedOnPanic,
        Self::StaleReadAdmitted,
        Self::WindowFixedAtSettle,
        Self::DuplicateEventCounted,
    ];

    /// What it is called where it is planted by name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SettleSkippedOnClientGone => "settle-skipped-on-client-gone",
            Self::GivenBackTwice => "given-back-twice",
            Self::LostTakenForWon => "lost-taken-for-won",
            Self::UnknownTakenForLost => "unknown-taken-for-lost",
            Self::LeaseUsedAfterExpiry => "lease-used-after-expiry",
            Self::ReleasedEarly => "released-early",
            Self::SlotLeakedOnPanic => "slot-leaked-on-panic",
            Self::StaleReadAdmitted => "stale-read-admitted",
            Self::WindowFixedAtSettle => "window-fixed-at-settle",
            Self::DuplicateEventCounted => "duplicate-event-counted",
        }
    }
}

/// Which fault is planted: none, outside of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Planted {
    #[cfg(debug_assertions)]
    bug: Option<Bug>,
    /// Of so many requests one panics at its end; 0 for none.
    #[cfg(debug_assertions)]
    panic_every: u32,
}

impl Planted {
    /// One fault.
    #[cfg(debug_assertions)]
    pub const fn with(bug: Bug) -> Self {
        Self {
            bug: Some(bug),
            panic_every: 0,
        }
    }

    /// The same, where of so many requests one panics.
    #[cfg(debug_assertions)]
    #[must_use]
    pub const fn panicking(self, panic_every: u32) -> Self {
        Self { panic_every, ..self }
    }

    /// Whether the request with this number panics.
    #[cfg(debug_assertions)]
    pub fn panics(self, number: u64) -> bool {
        self.panic_every > 0 && number.is_multiple_of(u64::from(self.panic_every))
    }

    /// Whether the request with this number panics: never.
    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "builds with debug assertions need it")]
    pub const fn panics(self, _number: u64) -> bool {
        false
    }

    /// Whether it is planted.
    #[cfg(debug_assertions)]
    pub(crate) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether it is planted: never.
    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "builds with debug assertions need it")]
    pub(crate) const fn has(self, _bug: Bug) -> bool {
        false
    }
}
