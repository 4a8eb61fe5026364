//! Chance that can be repeated: a sequence of numbers from a seed, or from bytes that a fuzzer chooses.

/// A source of choices.
pub(crate) struct Dice {
    state: u64,
    /// Choices made elsewhere, used first.
    given: Vec<u8>,
    next: usize,
}

impl Dice {
    /// The choices of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            given: Vec::new(),
            next: 0,
        }
    }

    /// The choices that bytes stand for; when they are used up, those of a seed.
    pub(crate) fn given(bytes: &[u8]) -> Self {
        Self {
            given: bytes.to_vec(),
            ..Self::of(1)
        }
    }

    fn roll(&mut self) -> u64 {
        if let Some(byte) = self.given.get(self.next) {
            self.next += 1;
            return u64::from(*byte);
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 11
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(self.roll() % end).unwrap_or(0)
    }

    /// True once in `of` times.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Text with something in it, of characters that are hard on those who cut and quote.
    pub(crate) fn text(&mut self) -> String {
        const BITS: &[&str] = &[
            "a",
            "Oslo",
            " ",
            "\n",
            "\"",
            "\\",
            "\u{e9}",
            "\u{1f980}",
            "\u{2028}",
            "{",
            "}",
            "data: ",
            "\n\n",
            "\r",
            "\t",
            "<",
            "\u{7}",
            "</think",
            "0",
            "[DONE]",
        ];
        // A letter first: texts of blanks alone are nobody's answer.
        let mut text = String::from(*self.pick(&["x", "I", "\u{6f22}", "7"]));
        for _ in 0..self.below(5) {
            text.push_str(self.pick::<&str>(BITS));
        }
        text
    }

    /// A text in pieces, none empty.
    pub(crate) fn pieces(&mut self, text: &str) -> Vec<String> {
        let (mut pieces, mut piece) = (Vec::new(), String::new());
        for character in text.chars() {
            piece.push(character);
            if self.once_in(4) {
                pieces.push(std::mem::take(&mut piece));
            }
        }
        if !piece.is_empty() {
            pieces.push(piece);
        }
        pieces
    }
}
