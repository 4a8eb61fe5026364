//! What models take and give: text, images, audio, video.

use std::ops::BitOr;

use serde::{Deserialize, Serialize};

/// Kinds of input, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Modalities(u8);

impl Modalities {
    /// Text, which every chat model takes.
    pub const TEXT: Self = Self(1);
    /// Images.
    pub const IMAGE: Self = Self(2);
    /// Audio.
    pub const AUDIO: Self = Self(4);
    /// Video.
    pub const VIDEO: Self = Self(8);

    /// True when all of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True for the empty set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The words of the set, in a fixed order.
    pub fn words(self) -> Vec<&'static str> {
        let all = [
            (Self::TEXT, "text"),
            (Self::IMAGE, "image"),
            (Self::AUDIO, "audio"),
            (Self::VIDEO, "video"),
        ];
        all.iter()
            .filter(|(kind, _)| self.contains(*kind))
            .map(|(_, word)| *word)
            .collect()
    }

    /// The set of one word; `None` for a word that is not a kind of input.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "text" => Self::TEXT,
            "image" => Self::IMAGE,
            "audio" => Self::AUDIO,
            "video" => Self::VIDEO,
            _ => return None,
        })
    }
}

impl BitOr for Modalities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
