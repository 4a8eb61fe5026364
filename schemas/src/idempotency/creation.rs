//! Idempotency keys of calls that make a record of the catalogue. Nothing runs there: the key is bound once to what is
//! asked for and to the id of what is made, for good by a compare-and-set, the record itself says under which key it was
//! made, and the binding then keeps the answer. Whoever comes again finds one of them, or goes on where the first one
//! stopped; what was made and is gone since is not made again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Key, Refusal, Scope, length};
use crate::catalog::change::Made;
use crate::digest::Digest;

/// How long a key stays bound, in milliseconds.
pub const LIFE_MS: u64 = 24 * 3_600_000;

/// Parts its digests from those of calls to models.
const CREATION: &[u8] = b"creation";

/// Where it is noted that what a key made was taken away: no tenant is called so.
const GONE: &str = "_gone";

/// To what a key is bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// What was asked for.
    pub asked: Digest,
    /// The id of what is made.
    pub id: Arc<str>,
    /// What the call was answered, once it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Done>,
}

/// A call that made what it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What it was shown; `None` where that had a secret in it, which nobody keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Value>,
    /// With which revision it was made.
    pub revision: u64,
}

/// The digest of a key in its scope. `sha256` digests the parts, one after another.
pub fn digest(scope: &Scope, key: &Key, sha256: impl FnOnce(&[&[u8]]) -> Digest) -> Digest {
    let (tenant, key_id) = (scope.tenant.as_str(), scope.key_id.as_str());
    sha256(&[
        CREATION,
        &length(tenant),
        tenant.as_bytes(),
        &length(key_id),
        key_id.as_bytes(),
        key.0.as_bytes(),
    ])
}

/// Where the binding of a key lies in its bucket.
pub fn place(scope: &Scope, digest: Digest) -> String {
    format!("{}.{digest}", scope.tenant)
}

/// Where it is noted that what a key of this digest made was taken away.
pub fn gone_place(digest: Digest) -> String {
    format!("{GONE}.{digest}")
}

/// The id of what a call makes that came with a key bound to `found`; it asks for `made`.
pub fn id_of(found: &Binding, made: Made) -> Result<Arc<str>, Refusal> {
    if found.asked == made.asked {
        Ok(Arc::clone(&found.id))
    } else {
        Err(Refusal::Mismatch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record_key;
    use super::*;
    use crate::id::{KeyId, TenantId};

    fn parts(parts: &[&[u8]]) -> Digest {
        let mut bytes = [0_u8; 32];
        for (place, byte) in parts.concat().into_iter().enumerate() {
            bytes[place % 32] = bytes[place % 32].wrapping_mul(31).wrapping_add(byte);
        }
        Digest(bytes)
    }

    fn scope(tenant: &str, key_id: &str) -> Scope {
        Scope {
            tenant: TenantId::from(tenant),
            key_id: KeyId::from(key_id),
        }
    }

    #[test]
    fn a_key_means_something_else_to_others_and_to_models() {
        let key = Key::parse(b"once").expect("a key");
        let mine = scope("acme", "k1");
        let digest_of = |scope: &Scope| digest(scope, &key, parts);

        let place_of_mine = place(&mine, digest_of(&mine));

        assert!(place_of_mine.starts_with("acme."));
        assert_ne!(digest_of(&mine), digest_of(&scope("acme", "k2")));
        assert_ne!(digest_of(&mine), digest_of(&scope("acm", "ek1")));
        assert_ne!(place_of_mine, record_key(&mine, &key, parts));
    }

    #[test]
    fn a_key_that_comes_again_makes_the_same_and_nothing_else() {
        let bound = Binding {
            asked: Digest([1; 32]),
            id: "user-1".into(),
            done: None,
        };
        let made = |asked| Made {
            key: Digest([9; 32]),
            asked: Digest([asked; 32]),
        };

        assert_eq!(id_of(&bound, made(1)).as_deref(), Ok("user-1"));
        assert_eq!(id_of(&bound, made(2)), Err(Refusal::Mismatch));
    }
}
