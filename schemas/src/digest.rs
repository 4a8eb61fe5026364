//! A SHA-256 as it stands in records, keys and JSON. It is computed at the edge; here it is compared and spelled.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 32;
/// Characters of a digest in base64url without padding.
const TEXT_CHARS: usize = 43;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The SHA-256 of something. As text it is base64url without padding, which every bus takes in a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl Digest {
    /// Reads its text; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != TEXT_CHARS {
            return None;
        }
        let mut bytes = [0; DIGEST_BYTES];
        let (mut bits, mut held, mut at) = (0_u32, 0_u32, 0);
        for character in text.bytes() {
            bits = (bits << 6) | value(character)?;
            held += 6;
            if held >= 8 {
                held -= 8;
                *bytes.get_mut(at)? = u8::try_from((bits >> held) & 0xff).ok()?;
                at += 1;
            }
            bits &= (1 << held) - 1;
        }
        // Two spellings of one digest would be two keys.
        (bits == 0).then_some(Self(bytes))
    }
}

fn value(character: u8) -> Option<u32> {
    let place = ALPHABET.iter().position(|known| *known == character)?;
    u32::try_from(place).ok()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; TEXT_CHARS];
        let (mut bits, mut held, mut at) = (0_usize, 0_u32, 0);
        let mut put = |sextet: usize| {
            text[at] = ALPHABET[sextet & 63];
            at += 1;
        };
        for byte in self.0 {
            bits = (bits << 8) | usize::from(byte);
            held += 8;
            while held >= 6 {
                held -= 6;
                put(bits >> held);
            }
            bits &= (1 << held) - 1;
        }
        put(bits << (6 - held));
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Digest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest in base64url")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Digest, E> {
        Digest::parse(text).ok_or_else(|| E::custom("no digest"))
    }
}

impl From<[u8; DIGEST_BYTES]> for Digest {
    fn from(bytes: [u8; DIGEST_BYTES]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SHA-256 of nothing, and how other programs spell it.
    const NOTHING: [u8; 32] = [
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27,
        0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    ];

    #[test]
    fn a_digest_is_spelled_as_other_programs_spell_it() {
        let text = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

        assert_eq!(Digest(NOTHING).to_string(), text);
        assert_eq!(Digest::parse(text), Some(Digest(NOTHING)));
    }

    #[test]
    fn what_is_no_digest_is_not_read() {
        let good = Digest(NOTHING).to_string();
        let longer = format!("{good}A");
        let padded = format!("{good}=");
        // The last character holds two bits that belong to nothing.
        let loose = format!("{}V", &good[..42]);
        for text in [
            "",
            "47DEQ",
            &good[1..],
            &longer,
            &padded,
            &loose,
            &good.replace('-', "+"),
        ] {
            assert_eq!(Digest::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn digests_read_back(bytes in any::<[u8; 32]>()) {
            let digest = Digest(bytes);
            let json = serde_json::to_string(&digest).expect("serialize");

            prop_assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
            prop_assert_eq!(serde_json::from_str::<Digest>(&json).expect("parse"), digest);
        }
    }
}
