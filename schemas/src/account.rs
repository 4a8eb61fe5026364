//! Accounts: by what members of tenants sign in, and where they are signed in. Records of bucket `wb_account`, which
//! only gateways read: the catalogue, which routers follow, holds nothing of them. What becomes of an account is decided
//! here, purely; a record is replaced as a whole by compare-and-set, so that of two nodes that turn the same session
//! one is too late and sees it.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::catalog::user;
use crate::digest::Digest;
use crate::id::{TenantId, UserId};
use crate::secret::Secret;
use crate::subject;
use crate::time::Timestamp;

pub mod attempts;
pub mod email;

use email::Email;

/// Places at which one member is signed in at once; beyond, the one that was idle longest is signed out.
pub const SESSIONS_MAX: usize = 32;
/// Letters with which one may choose a password at once: whoever asks for several cannot tell which one comes last.
const RESETS_MAX: usize = 16;
/// How long the refresh token before the newest gives the newest again, in microseconds: pages of one browser that
/// refresh at once have one cookie.
const AGAIN_MICROS: i64 = 10_000_000;
/// By how much the clock of the node that gave the newest may be ahead, in microseconds.
const SKEW_MICROS: i64 = 60_000_000;

/// A password as it is kept: in the form `$argon2id$v=19$m=..,t=..,p=..$salt$hash`. It is never shown.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hash(Secret<String>);

impl Hash {
    /// Of a text in that form.
    pub fn new(text: String) -> Self {
        Self(Secret::new(text))
    }

    /// The text, for whoever checks a password by it.
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

impl Serialize for Hash {
    /// For the account's own record and nothing else.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.reveal())
    }
}

/// By what a member signs in, and where he is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Whose member.
    pub tenant: TenantId,
    /// The member.
    pub user: UserId,
    /// By what he signs in; unique over the deployment.
    pub email: Email,
    /// His password; `None` before he has chosen one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Hash>,
    /// He signed up himself and has not signed in yet: an administrator may have to approve of him.
    #[serde(default)]
    pub is_new: bool,
    /// Where he is signed in, the longest idle first.
    #[serde(default)]
    pub sessions: Vec<Session>,
    /// With what he may choose a password without the old one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// The same of letters that were asked for before that one and may come after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Reset>,
    /// Who he is at the provider by which he signs in; `None` before he did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// When he signed in last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_in_at: Option<Timestamp>,
}

/// Somebody as a provider of identities knows him, whatever his address of mail is there one day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The provider.
    pub issuer: String,
    /// Its own name of him, which it gives to nobody else.
    pub subject: String,
}

/// One place at which a member is signed in: a family of refresh tokens, of which the newest is good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its id, random.
    pub id: Arc<str>,
    /// How often it was refreshed: the number of the refresh token that is good.
    pub turn: u32,
    /// When it was refreshed last; `None` before it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_at: Option<Timestamp>,
    /// When it began.
    pub opened_at: Timestamp,
    /// When it ends unless it is refreshed.
    pub ends_at: Timestamp,
}

/// A token with which a password may be chosen once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reset {
    /// Its digest.
    pub digest: Digest,
    /// From when on it is good for nothing.
    pub ends_at: Timestamp,
}

/// What becomes of an account when a refresh token is presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// The token was the newest: the account with the next one, which has this number.
    Next(Account, u32),
    /// The token is the one before the newest, and the newest was given a moment ago: that one, which has this number.
    Again(u32),
    /// The token was used before, so that somebody else has it too: the account without the session.
    Reused(Account),
    /// There is no such session any more.
    Over,
}

impl Account {
    /// An account without a password.
    pub fn new(tenant: TenantId, user: UserId, email: Email) -> Self {
        Self {
            tenant,
            user,
            email,
            password: None,
            is_new: false,
            sessions: Vec::new(),
            reset: None,
            earlier: Vec::new(),
            identity: None,
            signed_in_at: None,
        }
    }

    /// Its key in the bucket.
    pub fn key(&self) -> String {
        account_key(&self.tenant, &self.user)
    }

    /// The same after he signed in at one more place.
    #[must_use]
    pub fn signed_in(&self, id: Arc<str>, now: Timestamp, life_seconds: u64) -> Self {
        let mut after = self.living(now);
        let beyond = (after.sessions.len() + 1).saturating_sub(SESSIONS_MAX);
        after.sessions.drain(..beyond);
        after.sessions.push(Session {
            id,
            turn: 0,
            turned_at: None,
            opened_at: now,
            ends_at: later(now, life_seconds),
        });
        after.is_new = false;
        after.signed_in_at = Some(now);
        after
    }

    /// What becomes of it when the refresh token of this number of a session is presented.
    pub fn turned(&self, (id, turn): (&str, u32), now: Timestamp, life_seconds: u64) -> Turned {
        let mut after = self.living(now);
        let Some(place) = after.sessions.iter().position(|session| &*session.id == id) else {
            return Turned::Over;
        };
        let mut session = after.sessions.remove(place);
        if session.turn != turn {
            return if session.gives_again(turn, now) {
                Turned::Again(session.turn)
            } else {
                Turned::Reused(after)
            };
        }
        session.turn = turn.saturating_add(1);
        session.turned_at = Some(now);
        session.ends_at = later(now, life_seconds);
        let next = session.turn;
        after.sessions.push(session);
        Turned::Next(after, next)
    }

    /// The same without a session; `None` where there is no such one.
    #[must_use]
    pub fn signed_out(&self, id: &str) -> Option<Self> {
        let mut after = self.clone();
        after.sessions.retain(|session| &*session.id != id);
        (after.sessions.len() < self.sessions.len()).then_some(after)
    }

    /// The same with another password: signed out everywhere but in the session `but`, and without a reset.
    #[must_use]
    pub fn with_password(&self, password: Hash, but: Option<&str>) -> Self {
        let mut after = self.clone();
        after.sessions.retain(|session| but == Some(&*session.id));
        after.password = Some(password);
        after.without_reset()
    }

    /// The same by another address of mail: what was written to the one before lets nobody in.
    #[must_use]
    pub fn with_email(&self, email: Email) -> Self {
        Self {
            email,
            ..self.clone().without_reset()
        }
    }

    /// The same with a token with which its password may be chosen, and none of before.
    #[must_use]
    pub fn with_reset(&self, reset: Reset) -> Self {
        Self {
            reset: Some(reset),
            ..self.clone().without_reset()
        }
    }

    /// The same with one more: those of before stay good, as far as they are, until one of them is used.
    #[must_use]
    pub fn with_another_reset(&self, reset: Reset, now: Timestamp) -> Self {
        let before = self.earlier.iter().chain(&self.reset);
        let mut earlier: Vec<Reset> = before.filter(|reset| reset.ends_at > now).copied().collect();
        let beyond = (earlier.len() + 1).saturating_sub(RESETS_MAX);
        earlier.drain(..beyond);
        Self {
            reset: Some(reset),
            earlier,
            ..self.clone()
        }
    }

    fn without_reset(self) -> Self {
        Self {
            reset: None,
            earlier: Vec::new(),
            ..self
        }
    }

    /// The same as the account of somebody whom a provider knows: without a password, signed out everywhere, and without
    /// a reset.
    #[must_use]
    pub fn of_identity(&self, identity: Identity) -> Self {
        Self {
            password: None,
            sessions: Vec::new(),
            identity: Some(identity),
            ..self.clone().without_reset()
        }
    }

    /// The same with a password that whoever has its mail chose: whom a provider knows may be somebody else by now.
    #[must_use]
    pub fn with_chosen_password(&self, password: Hash) -> Self {
        Self {
            identity: None,
            ..self.with_password(password, None)
        }
    }

    /// The session of an id, if it is not over.
    pub fn session(&self, id: &str, now: Timestamp) -> Option<&Session> {
        let living = |session: &&Session| &*session.id == id && session.ends_at > now;
        self.sessions.iter().find(living)
    }

    /// True for a token with which a password may be chosen now.
    pub fn is_reset_by(&self, digest: &Digest, now: Timestamp) -> bool {
        let good = |reset: &Reset| reset.digest == *digest && reset.ends_at > now;
        self.earlier.iter().chain(&self.reset).any(good)
    }

    /// The same without sessions that have ended.
    fn living(&self, now: Timestamp) -> Self {
        let mut after = self.clone();
        after.sessions.retain(|session| session.ends_at > now);
        after
    }
}

impl Session {
    /// True for the refresh token before the newest, as long as it counts for the newest.
    fn gives_again(&self, turn: u32, now: Timestamp) -> bool {
        let micros = self.turned_at.map(|at| now.micros().saturating_sub(at.micros()));
        turn.checked_add(1) == Some(self.turn)
            && micros.is_some_and(|micros| (-SKEW_MICROS..AGAIN_MICROS).contains(&micros))
    }
}

/// So many seconds later.
pub fn later(now: Timestamp, seconds: u64) -> Timestamp {
    let micros = seconds.saturating_mul(1_000_000);
    now.plus_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// Whose account an address of mail is: what lies under its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Whose member.
    pub tenant: TenantId,
    /// The member.
    pub user: UserId,
    /// When it was claimed.
    pub at: Timestamp,
}

/// The code with which the first account is made, as long as it is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Its digest.
    pub digest: Digest,
}

/// The key of an account.
pub fn account_key(tenant: &TenantId, user: &UserId) -> String {
    format!("{}{}", subject::account::ACCOUNT, user::cursor(tenant, user))
}

/// The member of a key of the bucket; `None` for one that is no account's.
pub fn owner_of_key(key: &str) -> Option<(TenantId, UserId)> {
    user::user_of_cursor(key.strip_prefix(subject::account::ACCOUNT)?)
}

/// The key under which lies whose an address of mail is.
pub fn email_key(digest: Digest) -> String {
    format!("{}{digest}", subject::account::EMAIL)
}

#[cfg(test)]
mod tests;
