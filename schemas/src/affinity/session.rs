//! The names of a session, and where its records lie. A name is made opaque at once: what a caller called his session
//! is in no bucket. Scope is part of every record's key, so that no name reaches over tenants or endpoint groups.
//!
//! A session has a token for each of its names. A caller who sends the token he was told as `X-Session-Id` is led to
//! the record of the name that it was made from, so that a session which was only guessed becomes one that is named.

use super::hint::Facts;
use super::{Level, Policy};
use crate::digest::Digest;
use crate::id::TenantId;

/// Begins every token.
const TOKEN_PREFIX: &str = "wbs_";

/// Within what a session's name means the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope<'a> {
    /// The tenant who calls.
    pub tenant: &'a TenantId,
    /// The endpoint group, or the model where its routes are not a group.
    pub group: &'a str,
}

/// What a session may be named by.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// What the caller says, see [`super::hint::Spoken::session`].
    pub session: Option<&'a str>,
    /// What his program says, see [`super::hint::Spoken::hint`].
    pub hint: Option<&'a str>,
    /// What his body says.
    pub facts: &'a Facts<'a>,
    /// His virtual key, by its id.
    pub caller: &'a str,
}

/// One name of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// How it is named.
    pub level: Level,
    /// The token that stands for the name.
    token: String,
    /// The key of its record in the bucket.
    pub record_key: String,
}

/// The names of a session at the levels that count, in the order in which they are looked up. The caller himself is a
/// name only for calls that have no other: he may have many sessions, and they need not be on one backend. `sha256`
/// digests the parts, one after another.
pub fn names(
    scope: Scope<'_>,
    told: &Names<'_>,
    policy: &Policy,
    sha256: impl Fn(&[&[u8]]) -> Digest,
) -> Vec<Name> {
    let (l2, l1) = (told.facts.opening.l2(), told.facts.opening.l1());
    let value = |level: Level| -> Option<&[u8]> {
        match level {
            Level::Header => told.session.map(str::as_bytes),
            Level::Hint => told.hint.map(str::as_bytes),
            Level::CacheKey => told.facts.cache_key().map(str::as_bytes),
            Level::User => told.facts.user().map(str::as_bytes),
            Level::L2 => l2.as_ref().map(<[u8; 16]>::as_slice),
            Level::L1 => l1.as_ref().map(<[u8; 16]>::as_slice),
            Level::Caller => Some(told.caller.as_bytes()),
        }
    };
    let mut names = Vec::new();
    for level in Level::ALL {
        let counts = policy.uses(level) && (level != Level::Caller || names.is_empty());
        let Some(value) = value(level).filter(|_| counts) else {
            continue;
        };
        let token = token(level, value, &sha256);
        let record_key = record_key(scope, &token, &sha256);
        names.push(Name {
            level,
            token,
            record_key,
        });
    }
    names
}

/// The token of the session as its caller is told it, which is its own name where he gave it one; `None` where there
/// is no session but only a caller. `names` are all of its names.
pub fn told<'a>(names: &'a [Name], session: Option<&'a str>) -> Option<&'a str> {
    let first = names.first()?;
    match first.level {
        Level::Header => session,
        Level::Caller => None,
        _ => Some(&first.token),
    }
}

fn token(level: Level, value: &[u8], sha256: &impl Fn(&[&[u8]]) -> Digest) -> String {
    if level == Level::Header
        && let Some(token) = own_token(value)
    {
        return token.to_owned();
    }
    let digest = sha256(&[level.as_str().as_bytes(), b"\n", value]);
    format!("{TOKEN_PREFIX}{digest}")
}

/// A token of ours that comes back.
fn own_token(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    Digest::parse(text.strip_prefix(TOKEN_PREFIX)?).map(|_| text)
}

fn record_key(scope: Scope<'_>, token: &str, sha256: &impl Fn(&[&[u8]]) -> Digest) -> String {
    let tenant = scope.tenant.as_str();
    // A token has one length and a tenant's id no line feed, so no two scopes are the same bytes.
    let digest = sha256(&[
        tenant.as_bytes(),
        b"\n",
        token.as_bytes(),
        b"\n",
        scope.group.as_bytes(),
    ]);
    format!("{tenant}.{digest}")
}

#[cfg(test)]
mod tests;
