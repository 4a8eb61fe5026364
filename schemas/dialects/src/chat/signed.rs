//! Signatures of Gemini's calls inside the ids of calls: clients of chat send ids back as they came, and little else.
//!
//! Guarantee: what is read is what was written; a signature that would not come back the same is not written.

use crate::superset::request::{Proof, ProofMaker};

/// What stands between an id and the signature.
pub(crate) const MARK: &str = "__sig_";
/// Longest signature that is carried, in bytes.
const SIGNATURE_BYTES_MAX: usize = 8 * 1024;

/// The id of a call that Gemini signed; `None` where the id cannot carry the signature.
pub(in crate::chat) fn written(id: &str, maker: ProofMaker, signature: &str) -> Option<String> {
    if maker != ProofMaker::Gemini || id.contains(MARK) || signature.len() > SIGNATURE_BYTES_MAX {
        return None;
    }
    let letters = signature
        .trim_end_matches('=')
        .chars()
        .map(|letter| match letter {
            '+' => '-',
            '/' => '_',
            letter => letter,
        });
    let written: String = id.chars().chain(MARK.chars()).chain(letters).collect();
    let (_, proof) = read(&written);
    proof
        .is_some_and(|proof| proof.text == signature)
        .then_some(written)
}

/// The id without a signature, and the signature.
pub(in crate::chat) fn read(id: &str) -> (&str, Option<Proof>) {
    let Some((plain, letters)) = id.split_once(MARK) else {
        return (id, None);
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if plain.is_empty() || letters.is_empty() || !letters.bytes().all(is_letter) {
        return (id, None);
    }
    let mut text: String = letters
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            letter => letter,
        })
        .collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    let proof = Proof {
        maker: ProofMaker::Gemini,
        text,
        redacted: false,
    };
    (plain, Some(proof))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_signature_comes_back_with_its_call(id in "[A-Za-z0-9_-]{1,20}", blocks in "([A-Za-z0-9+/]{4}){1,9}", end in "([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?") {
            let signature = format!("{blocks}{end}");
            if let Some(written) = written(&id, ProofMaker::Gemini, &signature) {
                let (plain, proof) = read(&written);
                prop_assert_eq!(plain, id.as_str());
                prop_assert_eq!(proof.map(|proof| proof.text), Some(signature));
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')));
            } else {
                prop_assert!(id.contains(MARK));
            }
        }

        #[test]
        fn anything_can_be_read(id in "(a?__sig_)?.{0,12}") {
            let (plain, _) = read(&id);
            prop_assert!(id.starts_with(plain));
        }
    }

    #[test]
    fn what_would_not_come_back_the_same_is_not_written() {
        let gemini = |signature: &str| written("c", ProofMaker::Gemini, signature);

        assert_eq!(gemini("a+/9").as_deref(), Some("c__sig_a-_9"));
        assert_eq!(gemini("a-_9"), None);
        assert_eq!(gemini("abcde"), None);
        assert_eq!(gemini("ab c"), None);
        assert_eq!(gemini(""), None);
        assert_eq!(gemini(&"a".repeat(SIGNATURE_BYTES_MAX + 4)), None);
        assert_eq!(written("c", ProofMaker::OpenAi, "abcd"), None);
        assert_eq!(read("call_1"), ("call_1", None));
        assert_eq!(read("__sig_abcd"), ("__sig_abcd", None));
    }
}
