//! Virtual keys: how they are minted, and the record that stands for one in the catalogue. The key itself is
//! in no record; it is shown once to whoever asked for it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::mint::Mint;
use schemas::catalog::grant::Reach;
use schemas::catalog::{Key, Origin, Role};
use schemas::id::{KeyId, ModelName, TenantId, UserId};
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;

/// What minted keys of members begin with.
pub const MEMBER_PREFIX: &str = "sk-tenant-";
/// What minted keys of endpoints begin with.
pub const ENDPOINT_PREFIX: &str = "sk-";
/// What grants begin with.
pub const GRANT_PREFIX: &str = "agr-";
/// Characters of a minted key after its prefix.
const SECRET_CHARS: usize = 43;
/// Shortest key that is accepted, in characters.
pub const KEY_CHARS_MIN: usize = 16;
/// Longest key that is accepted, in characters.
pub const KEY_CHARS_MAX: usize = 256;
/// Characters of a minted key that its record keeps, for recognition.
const SHOWN_CHARS: usize = 4;
/// Characters of a chosen key that its record keeps: a chosen key may have few, and none to spare.
const SHOWN_CHARS_CHOSEN: usize = 3;

/// Mints a key for a member: `sk-tenant-` and 43 URL-safe characters (32 random bytes).
pub fn mint_member(mint: &Mint) -> String {
    mint_as(mint, &Reach::Member)
}

/// Mints a credential of a kind: its prefix and 43 URL-safe characters (32 random bytes).
pub fn mint_as(mint: &Mint, reach: &Reach) -> String {
    let prefix = prefix(reach);
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(mint.random::<32>()))
}

const fn prefix(reach: &Reach) -> &'static str {
    match reach {
        Reach::Member => MEMBER_PREFIX,
        Reach::Endpoint(_) => ENDPOINT_PREFIX,
        Reach::Grant(_) => GRANT_PREFIX,
    }
}

/// A fresh id of a credential of a kind.
pub fn mint_id(mint: &Mint, reach: &Reach) -> KeyId {
    let lead = match reach {
        Reach::Member => "key-",
        Reach::Endpoint(_) => "ekey-",
        Reach::Grant(_) => "grant-",
    };
    KeyId::new(format!("{lead}{}", URL_SAFE_NO_PAD.encode(mint.random::<12>())))
}

/// True for a text that may be a key: 16 to 256 printable ASCII characters, no spaces.
pub fn acceptable(key: &str) -> bool {
    (KEY_CHARS_MIN..=KEY_CHARS_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What a new key is to be.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Its name.
    pub name: Arc<str>,
    /// Who pays.
    pub tenant: TenantId,
    /// The member it belongs to.
    pub user: Option<UserId>,
    /// What it may do.
    pub role: Role,
    /// Only these models.
    pub models: Option<Vec<ModelName>>,
    /// What it may use.
    pub limits: Limits,
    /// Most tokens of an answer to a call that names no maximum.
    pub output_default_max: Option<u64>,
    /// Refused from then on.
    pub expires_at: Option<Timestamp>,
}

/// The record of `key`, made at `now`. A key of a file is `<tenant>.<name>`, so that it keeps its id over restarts;
/// any other gets a fresh one.
pub fn record(mint: &Mint, key: &str, grant: Grant, origin: Origin, now: Timestamp) -> Key {
    let id = match origin {
        Origin::File => KeyId::new(format!("{}.{}", grant.tenant, grant.name)),
        Origin::Runtime => mint_id(mint, &Reach::Member),
    };
    Key {
        id,
        name: grant.name,
        tenant: grant.tenant,
        user: grant.user,
        role: grant.role,
        models: grant.models,
        limits: grant.limits,
        output_default_max: grant.output_default_max,
        expires_at: grant.expires_at,
        revoked: false,
        created_at: now,
        origin,
        prefix: shown(key).into(),
        reach: Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        // Files and the command line are the operators'.
        granted: Some(grant.role),
        maker: None,
        seen_by: None,
    }
}

/// The part of a key that may be shown.
pub fn shown(key: &str) -> String {
    let minted = [MEMBER_PREFIX, ENDPOINT_PREFIX, GRANT_PREFIX]
        .iter()
        .find(|prefix| key.len() == prefix.len() + SECRET_CHARS && key.starts_with(**prefix));
    let chars = minted.map_or(SHOWN_CHARS_CHOSEN, |prefix| prefix.len() + SHOWN_CHARS);
    key.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_keys_have_43_characters_after_the_prefix_and_never_repeat() {
        let mint = Mint::new().expect("randomness");

        let first = mint_member(&mint);
        let second = mint_member(&mint);

        assert_eq!(first.len(), MEMBER_PREFIX.len() + 43);
        assert!(acceptable(&first));
        assert_ne!(first, second);
    }

    #[test]
    fn a_record_shows_too_little_of_a_key_to_use_it() {
        let mint = Mint::new().expect("randomness");
        let grant = Grant {
            name: "ci".into(),
            tenant: TenantId::from("acme"),
            user: None,
            role: Role::Free,
            models: None,
            limits: Limits::default(),
            output_default_max: None,
            expires_at: None,
        };

        let chosen = record(
            &mint,
            "correct-horse-battery",
            grant,
            Origin::File,
            Timestamp::from_micros(5),
        );

        assert_eq!(&*chosen.prefix, "cor");
        assert_eq!(chosen.id.as_str(), "acme.ci");
        assert_eq!(chosen.created_at, Timestamp::from_micros(5));
        assert!(!chosen.revoked);
    }

    #[test]
    fn keys_are_printable_and_long_enough() {
        assert!(!acceptable("short"));
        assert!(!acceptable("has a space inside it"));
        assert!(!acceptable(&"x".repeat(257)));
    }
}
