//! Proofs of one maker on their way through clients of another's dialect. Clients give back what a dialect has for
//! proofs as it came; what is not of the dialect's own maker stands there with a prefix of ours.
//!
//! Guarantee: what is read is what was written, and nothing with the prefix is taken for something of a dialect's own
//! maker.

use super::request::{Proof, ProofMaker};

/// What every proof of ours begins with.
const PREFIX: &str = "waybill.";
/// What the proof of a call begins with, behind the prefix.
const CALL: &str = "call.";
const MAKERS: [ProofMaker; 3] = [ProofMaker::Anthropic, ProofMaker::Gemini, ProofMaker::OpenAi];

/// What a client sent back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told<'a> {
    /// The proof of a thought: who made it, and it.
    Thought(ProofMaker, &'a str),
    /// The proof of the call with this id.
    Call(&'a str, Proof),
    /// Of no use.
    Nothing,
}

/// The proof of a thought as clients of a dialect see it whose own maker is `own`.
pub(crate) fn written(maker: ProofMaker, text: &str, own: ProofMaker) -> String {
    if maker == own {
        text.to_owned()
    } else {
        format!("{PREFIX}{}.{text}", word(maker))
    }
}

/// The proof of a call, for a thought of its own.
pub(crate) fn written_for_call(maker: ProofMaker, call_id: &str, text: &str) -> String {
    format!("{PREFIX}{CALL}{}.{}.{call_id}{text}", word(maker), call_id.len())
}

/// True for a mark of ours, whatever it proves.
pub(crate) fn is_ours(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Reads what a client sent back in a dialect whose own maker is `own`.
pub(crate) fn told(text: &str, own: ProofMaker) -> Told<'_> {
    let Some(ours) = text.strip_prefix(PREFIX) else {
        return if text.is_empty() {
            Told::Nothing
        } else {
            Told::Thought(own, text)
        };
    };
    if let Some(rest) = ours.strip_prefix(CALL) {
        return of_call(rest).unwrap_or(Told::Nothing);
    }
    match maker(ours) {
        Some((maker, proof)) if !proof.is_empty() => Told::Thought(maker, proof),
        _ => Told::Nothing,
    }
}

fn of_call(text: &str) -> Option<Told<'_>> {
    let (maker, rest) = maker(text)?;
    let (bytes, rest) = rest.split_once('.')?;
    let (call_id, text) = rest.split_at_checked(bytes.parse().ok()?)?;
    let proof = Proof {
        maker,
        text: text.to_owned(),
        redacted: false,
    };
    Some(Told::Call(call_id, proof))
}

/// The maker named first, and the rest.
fn maker(text: &str) -> Option<(ProofMaker, &str)> {
    let (named, rest) = text.split_once('.')?;
    let maker = MAKERS.into_iter().find(|maker| word(*maker) == named)?;
    Some((maker, rest))
}

const fn word(maker: ProofMaker) -> &'static str {
    match maker {
        ProofMaker::Anthropic => "anthropic",
        ProofMaker::Gemini => "gemini",
        ProofMaker::OpenAi => "openai",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_proof_is_read_as_it_was_written(
            makers in (0_usize..3, 0_usize..3), text in "[a-zA-Z0-9+/=]{1,40}", id in ".{1,20}",
        ) {
            let (maker, own) = (MAKERS[makers.0], MAKERS[makers.1]);
            let proof = Proof { maker, text: text.clone(), redacted: false };

            let thought = written(maker, &text, own);
            prop_assert_eq!(told(&thought, own), Told::Thought(maker, &text));
            prop_assert_eq!(is_ours(&thought), maker != own);
            let call = written_for_call(maker, &id, &text);
            prop_assert_eq!(told(&call, own), Told::Call(&id, proof));
        }

        #[test]
        fn anything_can_be_read(text in "(waybill\\.)?(call\\.)?(gemini\\.)?([0-9]\\.)?.{0,10}") {
            let _ = told(&text, ProofMaker::OpenAi);
        }
    }

    #[test]
    fn a_prefix_of_ours_without_a_proof_proves_nothing() {
        for text in [
            "",
            "waybill.",
            "waybill.none",
            "waybill.gemini.",
            "waybill.call.gemini.99.x",
            "waybill.call.gemini.x",
            "waybill.other.x",
        ] {
            assert_eq!(told(text, ProofMaker::Anthropic), Told::Nothing, "{text}");
        }
    }
}
