//! Mistakes that the simulation plants to prove that it finds them. Only builds with debug assertions can make one.

/// A mistake after which a backend that is to be spared is probed by more than one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// A claim that somebody else outran counts as granted.
    LostIsWon,
    /// A claim is used after its lease has run out.
    LeaseOutlived,
    /// The claims of others are not heeded.
    ClaimUnheeded,
}

impl Planted {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::LostIsWon, Self::LeaseOutlived, Self::ClaimUnheeded];
}
