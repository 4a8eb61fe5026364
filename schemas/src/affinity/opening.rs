//! How a conversation begins: its instructions, the first thing its user said and the first thing the model said. They
//! are the same in every later turn, so they tell a conversation that nobody gave a name.
//!
//! A skim feeds texts as it comes upon them, decoded: how they were spelled, cut into blocks with marks for caches, or
//! ordered among other members does not matter. What is kept is a hash. It is not a cryptographic one: a caller who
//! finds two conversations with one hash has them on one backend, and they are his own, since the scope is part of the
//! name that is made of it.

/// Text of one piece beyond this is told by its length alone, in bytes.
const PIECE_BYTES_MAX: usize = 32 * 1024;
/// Begins a block in the instructions of Claude Code that differs with every prompt.
const BILLING: &str = "x-anthropic-billing-header:";

const LANE_A: u64 = 0xa076_1d64_78bd_642f;
const LANE_B: u64 = 0xe703_7ed1_a0b4_28db;

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// `system` or `developer`.
    System,
    /// `user`.
    User,
    /// `assistant` or `model`.
    Assistant,
    /// Anybody else, such as a tool.
    Other,
}

impl Speaker {
    /// Reads a role of any dialect.
    pub fn of_role(role: &str) -> Self {
        match role {
            "system" | "developer" => Self::System,
            "user" => Self::User,
            "assistant" | "model" => Self::Assistant,
            _ => Self::Other,
        }
    }
}

/// One text, in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Text {
    lanes: (u64, u64),
    pieces: u64,
}

impl Text {
    /// Adds a piece: a whole block, or the whole text where it has no blocks.
    pub fn add(&mut self, piece: &str) {
        if piece.is_empty() || piece.starts_with(BILLING) {
            return;
        }
        self.pieces = self.pieces.saturating_add(1);
        let bytes = piece.as_bytes();
        self.word(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let kept = bytes.get(..PIECE_BYTES_MAX).unwrap_or(bytes);
        let mut words = kept.chunks_exact(8);
        for word in &mut words {
            self.word(little_endian(word));
        }
        self.word(little_endian(words.remainder()));
    }

    /// Nothing was said.
    pub const fn is_empty(&self) -> bool {
        self.pieces == 0
    }

    fn word(&mut self, word: u64) {
        let (a, b) = self.lanes;
        self.lanes = (
            fold(a ^ word, LANE_A).wrapping_add(word),
            fold(b ^ word.rotate_left(32), LANE_B).wrapping_add(a),
        );
    }

    fn mix(&mut self, other: Self) {
        self.pieces = self.pieces.saturating_add(other.pieces);
        self.word(other.pieces);
        self.word(other.lanes.0);
        self.word(other.lanes.1);
    }
}

/// Up to eight bytes as a number.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Both halves of a product in one.
fn fold(one: u64, other: u64) -> u64 {
    let product = (u128::from(one) * u128::from(other)).to_le_bytes();
    let (low, high) = product.split_at(8);
    little_endian(low) ^ little_endian(high)
}

/// The beginning of a conversation, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// Instructions beside the messages.
    instructions: Text,
    /// Instructions among the messages, before the first of the user's.
    system: Text,
    user: Option<Text>,
    assistant: Option<Text>,
}

impl Opening {
    /// Instructions that stand beside the messages, before or behind them in the body.
    pub fn instruct(&mut self, text: Text) {
        self.instructions.mix(text);
    }

    /// The next message.
    pub fn message(&mut self, speaker: Speaker, text: Text) {
        match speaker {
            Speaker::System if self.user.is_none() => self.system.mix(text),
            Speaker::User if !text.is_empty() => {
                self.user.get_or_insert(text);
            }
            Speaker::Assistant if self.user.is_some() && !text.is_empty() => {
                self.assistant.get_or_insert(text);
            }
            Speaker::System | Speaker::User | Speaker::Assistant | Speaker::Other => {}
        }
    }

    /// Stands for the instructions, which many conversations may have in common; `None` where there are none.
    pub fn instructions(&self) -> Option<[u8; 16]> {
        let is_instructed = !(self.instructions.is_empty() && self.system.is_empty());
        is_instructed.then(|| self.hash(&[]))
    }

    /// Stands for the instructions and the first thing the user said; `None` where he said nothing.
    pub fn l1(&self) -> Option<[u8; 16]> {
        self.user.map(|user| self.hash(&[user]))
    }

    /// The same with the first thing the model said; `None` where it said nothing yet.
    pub fn l2(&self) -> Option<[u8; 16]> {
        let (user, assistant) = (self.user?, self.assistant?);
        Some(self.hash(&[user, assistant]))
    }

    fn hash(&self, texts: &[Text]) -> [u8; 16] {
        let mut whole = Text::default();
        for text in [self.instructions, self.system].iter().chain(texts) {
            whole.mix(*text);
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&whole.lanes.0.to_le_bytes());
        bytes[8..].copy_from_slice(&whole.lanes.1.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests;
