//! Bytes and JSON that are almost right: recorded requests and answers, bent in a place or two.

use serde_json::{Map, Value, json};

/// A sequence of numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Draws(u64);

/// What numbers are replaced by.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "1e309",
    "-0.0",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "1e-400",
    "3.5",
    "00",
];
/// What is put between other bytes.
const PIECES: [&[u8]; 14] = [
    b"\0",
    b"\n\n",
    b"\r",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"data: ",
    b"data: [DONE]\n\n",
    b"event: error\n",
    b"{",
    b"}",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
];
/// How deep a value is nested that is nested too deep.
const DEPTH: usize = 400;
/// Bytes of a text that is long.
const LONG: usize = 70_000;

impl Draws {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..count`; 0 for none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % (count.max(1) as u64)).unwrap_or(0)
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        of.get(self.below(of.len())).expect("something to draw from")
    }
}

/// Bends bytes; `other` is what pieces may be taken from.
pub(crate) fn bend(draws: &mut Draws, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=draws.below(3) {
        let at = draws.below(bytes.len());
        let to = (at + 1 + draws.below(64)).min(bytes.len());
        match draws.below(8) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << draws.below(8);
                }
            }
            1 => drop(bytes.drain(at..to)),
            2 => {
                let piece = bytes[at..to].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let piece = *draws.one(&PIECES);
                bytes.splice(at..at, piece.iter().copied());
            }
            4 => bytes.truncate(at),
            5 => {
                let from = draws.below(other.len());
                let until = (from + draws.below(512)).min(other.len());
                bytes.splice(at..to, other[from..until].iter().copied());
            }
            6 => number(draws, &mut bytes, at),
            _ => {
                let end = (at + draws.below(4_096)).min(bytes.len());
                bytes[at..end].reverse();
            }
        }
    }
    bytes
}

/// Replaces the next number by another.
fn number(draws: &mut Draws, bytes: &mut Vec<u8>, at: usize) {
    let Some(from) = bytes[at..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|place| at + place)
    else {
        return;
    };
    let length = bytes[from..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let text = *draws.one(&NUMBERS);
    bytes.splice(from..from + length, text.bytes());
}

/// Bends a JSON value in one place, so that it stays JSON.
pub(crate) fn bend_value(draws: &mut Draws, value: &mut Value) {
    let enters = !draws.once_in(4);
    match value {
        Value::Object(members) if enters && !members.is_empty() => {
            let names: Vec<String> = members.keys().cloned().collect();
            let name = draws.one(&names).clone();
            if draws.once_in(12) {
                members.remove(&name);
            } else if let Some(member) = members.get_mut(&name) {
                bend_value(draws, member);
            }
        }
        Value::Array(items) if enters && !items.is_empty() => {
            let place = draws.below(items.len());
            if draws.once_in(12) {
                items.remove(place);
            } else if let Some(item) = items.get_mut(place) {
                bend_value(draws, item);
            }
        }
        value => *value = another(draws),
    }
}

fn another(draws: &mut Draws) -> Value {
    match draws.below(11) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(1.5e300),
        4 => json!(u64::MAX),
        5 => json!(""),
        6 => json!("\u{0}\u{feff}\u{10ffff}\\\"</s>"),
        7 => json!("x".repeat(LONG)),
        8 => json!([]),
        9 => Value::Object(Map::new()),
        _ => (0..DEPTH).fold(json!(1), |inner, _| json!([inner])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_bends_alike_and_most_bendings_change_something() {
        let text = br#"{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":16}"#;
        let bent = |seed| bend(&mut Draws::new(seed), text, b"other");

        assert_eq!(bent(3), bent(3));
        let changed = (0..200).filter(|seed| bent(*seed) != text).count();
        assert!(changed > 150, "{changed}");
    }

    #[test]
    fn bytes_of_any_length_can_be_bent() {
        for seed in 0..500 {
            for text in [&b""[..], b"1", b"{}"] {
                bend(&mut Draws::new(seed), text, b"");
            }
        }
    }
}
