//! Canaries: words that stand in keys, credentials, secrets, prompts and arguments of tools of the harness and must
//! not be found where the product writes. Digests of keys are looked for as well.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::violation::Violation;
use crate::client::{ARGUMENT_CANARY, PROMPT_CANARY};
use crate::mail::MAIL_PASSWORD;
use crate::node::config::{
    ADMIN_KEY, API_KEY_SECRET, CALLER_KEY, EXPIRED_KEY, FALSE_KEY, JWT_SECRET_KEY, NARROW_KEY, OPERATOR_KEY,
    OTHER_KEY, PRO_KEY, PROVIDER_KEY,
};
use crate::provider::CLIENT_SECRET;

/// Characters of a line that a violation shows.
const LINE_CHARS_MAX: usize = 300;

/// Every key, by what it is: those that are known, those that are refused, and the credential of upstreams.
const KEYS: [(&str, &str); 9] = [
    ("the key of the operator", OPERATOR_KEY),
    ("the key of the admin", ADMIN_KEY),
    ("the key of the caller", CALLER_KEY),
    ("the key of the other caller", OTHER_KEY),
    ("the key of the caller of role pro", PRO_KEY),
    ("the key for few models", NARROW_KEY),
    ("the expired key", EXPIRED_KEY),
    ("the false key", FALSE_KEY),
    ("the credential of the provider", PROVIDER_KEY),
];

/// Something that must not be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canary {
    /// What it is.
    pub name: &'static str,
    /// The text that would give it away.
    pub text: String,
}

/// A text that is searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Where it stands.
    pub place: String,
    /// The text.
    pub text: String,
}

/// The canaries of the harness: keys, credential, secret, prompt and argument as they are, keys as digests too.
pub fn canaries() -> Vec<Canary> {
    let mut canaries = plain_canaries();
    for (_, key) in KEYS {
        let mut keyed =
            Hmac::<Sha256>::new_from_slice(API_KEY_SECRET.as_bytes()).expect("any length is a key");
        keyed.update(key.as_bytes());
        let digests = [
            keyed.finalize().into_bytes().to_vec(),
            Sha256::digest(key).to_vec(),
        ];
        for digest in digests {
            let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            for text in [
                hex.concat(),
                STANDARD_NO_PAD.encode(&digest),
                URL_SAFE_NO_PAD.encode(&digest),
            ] {
                canaries.push(Canary {
                    name: "the digest of a key",
                    text,
                });
            }
        }
    }
    canaries
}

/// The same without digests, for places where digests belong.
pub fn plain_canaries() -> Vec<Canary> {
    let others = [
        ("the secret of digests", API_KEY_SECRET),
        ("the secret of sessions", JWT_SECRET_KEY),
        ("the password of mail", MAIL_PASSWORD),
        ("the secret of a client", CLIENT_SECRET),
        ("the prompt", PROMPT_CANARY),
        ("the argument of a tool", ARGUMENT_CANARY),
    ];
    KEYS.into_iter()
        .chain(others)
        .map(|(name, text)| Canary {
            name,
            text: text.to_owned(),
        })
        .collect()
}

/// Each kind of canary that stands in a text, once a text.
pub(super) fn find(canaries: &[Canary], texts: &[Text]) -> Vec<Violation> {
    let mut found = Vec::new();
    for text in texts {
        let mut named = BTreeSet::new();
        for canary in canaries {
            if let Some(at) = text.text.find(&canary.text)
                && named.insert(canary.name)
            {
                let (canary, place) = (canary.name, text.place.clone());
                found.push(Violation::CanaryFound {
                    canary,
                    place,
                    line: line_at(&text.text, at),
                });
            }
        }
    }
    found
}

fn line_at(text: &str, at: usize) -> String {
    let (before, after) = text.split_at(at);
    let before: String = before
        .rsplit('\n')
        .next()
        .unwrap_or_default()
        .chars()
        .rev()
        .take(100)
        .collect();
    let before: String = before.chars().rev().collect();
    let after: String = after
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(LINE_CHARS_MAX)
        .collect();
    format!("{before}{after}")
}
