//! Draws made from one draw.

/// Bits of a draw: as many as every reader of JSON keeps of a number.
const BITS: u32 = 53;

/// A splitmix64 sequence.
#[derive(Debug, Clone, Copy)]
pub struct Draws(u64);

impl Draws {
    /// The sequence of a draw, of which every 64 bits are as likely.
    pub const fn new(draw: u64) -> Self {
        Self(draw)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// A place among `count`, 0 for none.
    pub fn below(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let count = u128::try_from(count).unwrap_or(1);
        usize::try_from((u128::from(self.next()) * count) >> 64).unwrap_or(0)
    }
}

/// Bits from which every bit of the input may be told, spread.
pub(super) const fn mixed(bits: u64) -> u64 {
    let mut mixed = bits;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The upper bits of a number, as many as every reader of JSON keeps.
pub const fn shortened(bits: u64) -> u64 {
    bits >> (u64::BITS - BITS)
}
