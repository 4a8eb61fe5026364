//! The fault that a test of the books plants to prove that it finds it. Without debug assertions, as in every release,
//! there is no way to plant it, and the question for it is answered "no" at compile time.

/// Which fault is planted: none, outside of that test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Planted {
    #[cfg(debug_assertions)]
    moves_sums_again: bool,
}

impl Planted {
    /// An event that the books hold moves the sums again.
    #[cfg(all(test, debug_assertions))]
    pub(super) const DUPLICATE_MOVES_SUMS: Self = Self {
        moves_sums_again: true,
    };

    /// Whether it is planted.
    #[cfg(debug_assertions)]
    pub(super) const fn moves_sums_again(self) -> bool {
        self.moves_sums_again
    }

    /// Whether it is planted: never.
    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "builds with debug assertions need it")]
    pub(super) const fn moves_sums_again(self) -> bool {
        false
    }
}
