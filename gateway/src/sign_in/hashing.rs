//! Passwords are hashed with Argon2id, on threads of their own and a few at once: each takes tens of milliseconds and
//! nineteen megabytes. Who does not exist costs the same as who does.

use std::sync::Arc;
use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use schemas::account::Hash;
use schemas::failure::{Failure, FailureCode};
use schemas::secret::Secret;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Memory of one hash in KiB, passes over it, and lanes: what OWASP asks for at least.
const COSTS: Costs = Costs {
    memory_kib: 19_456,
    passes: 2,
    lanes: 1,
};
/// Most of each that a kept password may ask for.
const COSTS_MAX: Costs = Costs {
    memory_kib: 262_144,
    passes: 16,
    lanes: 8,
};
const HASH_BYTES: usize = 32;
/// Bytes of a salt.
pub(super) const SALT_BYTES: usize = 16;
/// Passwords that are hashed at once.
const AT_ONCE_MAX: usize = 4;
/// How long one may wait for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Shortest password, in characters.
const CHARS_MIN: usize = 8;
/// Longest, in bytes.
const BYTES_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Costs {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

/// A kept password, taken apart.
struct Parts {
    costs: Costs,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Hashes passwords, a few at once.
pub(crate) struct Hasher(Arc<Semaphore>);

impl Default for Hasher {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(processors.min(AT_ONCE_MAX))))
    }
}

impl Hasher {
    /// What is kept of a password.
    pub(super) async fn hash(
        &self,
        password: Secret<String>,
        salt: [u8; SALT_BYTES],
    ) -> Result<Hash, Failure> {
        let hash = self
            .computed(password, salt.to_vec(), COSTS)
            .await?
            .ok_or_else(failed)?;
        let Costs {
            memory_kib,
            passes,
            lanes,
        } = COSTS;
        let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
        let text = format!("$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${salt}${hash}");
        Ok(Hash::new(text))
    }

    /// True for the password of which `kept` was made. Nobody's takes as long as somebody's.
    pub(super) async fn verify(
        &self,
        password: Secret<String>,
        kept: Option<&Hash>,
    ) -> Result<bool, Failure> {
        let parts = kept.and_then(|kept| parts(kept.reveal()));
        let is_somebody = parts.is_some();
        let parts = parts.unwrap_or_else(|| Parts {
            costs: COSTS,
            salt: vec![0; SALT_BYTES],
            hash: vec![0; HASH_BYTES],
        });
        let hash = self.computed(password, parts.salt, parts.costs).await?;
        let hash = hash.ok_or_else(failed)?;
        Ok(is_same(&hash, &parts.hash) && is_somebody)
    }

    /// The hash of a password; `None` where it cannot be computed.
    async fn computed(
        &self,
        password: Secret<String>,
        salt: Vec<u8>,
        costs: Costs,
    ) -> Result<Option<[u8; HASH_BYTES]>, Failure> {
        let turn = timeout(TURN_WITHIN, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            let text = "too many passwords are being checked";
            return Err(Failure::new(FailureCode::Overloaded, text).retry_after(5));
        };
        // A caller that leaves does not give its turn to another while it is still computed.
        let computing = spawn_blocking(move || {
            let _turn = turn;
            compute(password.reveal().as_bytes(), &salt, costs)
        });
        computing.await.map_err(|_| failed())
    }
}

fn compute(password: &[u8], salt: &[u8], costs: Costs) -> Option<[u8; HASH_BYTES]> {
    let params = Params::new(costs.memory_kib, costs.passes, costs.lanes, Some(HASH_BYTES)).ok()?;
    let mut hash = [0; HASH_BYTES];
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(password, salt, &mut hash).ok()?;
    Some(hash)
}

/// Takes `$argon2id$v=19$m=..,t=..,p=..$salt$hash` apart.
fn parts(text: &str) -> Option<Parts> {
    let rest = text.strip_prefix("$argon2id$v=19$m=")?;
    let (costs, rest) = rest.split_once('$')?;
    let (salt, hash) = rest.split_once('$')?;
    let (memory, costs) = costs.split_once(",t=")?;
    let (passes, lanes) = costs.split_once(",p=")?;
    let within = |text: &str, most: u32| text.parse().ok().filter(|cost| (1..=most).contains(cost));
    Some(Parts {
        costs: Costs {
            memory_kib: within(memory, COSTS_MAX.memory_kib)?,
            passes: within(passes, COSTS_MAX.passes)?,
            lanes: within(lanes, COSTS_MAX.lanes)?,
        },
        salt: STANDARD_NO_PAD.decode(salt).ok()?,
        hash: STANDARD_NO_PAD.decode(hash).ok()?,
    })
}

/// Compares all bytes, wherever the first difference is.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let different = one.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
    one.len() == other.len() && different == 0
}

fn failed() -> Failure {
    Failure::new(FailureCode::Internal, "the password cannot be checked")
}

/// Refuses a password that is easy to find. `param` is the field that it stands in.
pub(super) fn acceptable(password: &Secret<String>, email: &str, param: &'static str) -> Result<(), Failure> {
    let text = password.reveal();
    let refused = |text: &'static str| Err(super::invalid(param, text));
    if text.chars().count() < CHARS_MIN || text.len() > BYTES_MAX {
        return refused("expected a password of 8 to 256 characters");
    }
    let first = text.chars().next();
    if text.chars().all(|char| Some(char) == first) || text.eq_ignore_ascii_case(email) {
        return refused("the password is too easy to guess");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.to_owned())
    }

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_and_no_other_is() {
        let hasher = Hasher::default();
        let kept = hasher
            .hash(secret("correct horse"), [7; 16])
            .await
            .expect("a hash");
        let other_salt = hasher
            .hash(secret("correct horse"), [8; 16])
            .await
            .expect("a hash");

        assert!(kept.reveal().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert_ne!(kept, other_salt);
        for (password, expected) in [("correct horse", true), ("correct horsf", false), ("", false)] {
            assert_eq!(hasher.verify(secret(password), Some(&kept)).await, Ok(expected));
        }
        assert_eq!(hasher.verify(secret("correct horse"), None).await, Ok(false));
        let broken = Hash::new("$argon2id$v=19$m=99999999,t=2,p=1$AAAA$AAAA".to_owned());
        assert_eq!(hasher.verify(secret("x"), Some(&broken)).await, Ok(false));
    }

    #[test]
    fn passwords_that_are_short_or_say_nothing_are_refused() {
        let of = |password: &str| acceptable(&secret(password), "ann@example.com", "password").is_ok();
        for (password, expected) in [
            ("1234567", false),
            ("12345678", true),
            ("aaaaaaaaaaaa", false),
            ("Ann@Example.com", false),
            ("\u{e9}\u{e8}\u{ea}\u{eb}abcd", true),
        ] {
            assert_eq!(of(password), expected, "{password}");
        }
        assert!(!of(&"xy".repeat(129)));
    }
}
