//! Tokens: the access token, a JSON Web Token of one algorithm, and the refresh token, a number under a signature. Both
//! are signed by keys made of the deployment's secret, one for each; a third is for what else is derived from it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use schemas::account;
use schemas::id::{TenantId, UserId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// `{"alg":"HS256","typ":"JWT"}`. A token with any other header is no token: nothing that one says of algorithms, keys or
/// places of keys is ever read.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";
/// Whom access tokens are for.
const AUDIENCE: &str = "waybill";
/// Seconds by which the clock of the node that signed may be ahead.
const SKEW_SECONDS: i64 = 60;
/// Longest token that is looked at, in bytes.
const BYTES_MAX: usize = 1_024;

/// What an access token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    aud: String,
    /// The member.
    pub(crate) sub: UserId,
    /// Whose member.
    pub(crate) tenant: TenantId,
    /// The session.
    pub(crate) sid: String,
    iat: i64,
    exp: i64,
}

/// What a refresh token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refresh {
    /// Whose member.
    pub(crate) tenant: TenantId,
    /// The member.
    pub(crate) user: UserId,
    /// The session.
    pub(crate) session: String,
    /// Its number within the session.
    pub(crate) turn: u32,
}

/// What an access token is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// It is ours and good, as far as it can tell itself.
    Good(Claims),
    /// It is ours and no longer good.
    Over,
    /// It is none of ours.
    Foreign,
}

/// Signs tokens and reads them.
pub(crate) struct Signer {
    access: Hmac<Sha256>,
    refresh: Hmac<Sha256>,
    derived: Hmac<Sha256>,
    issuer: String,
}

impl Signer {
    /// `secret` is the deployment's, `cluster` its name.
    pub(crate) fn new(secret: &[u8], cluster: &str) -> Self {
        let secret = keyed(secret);
        Self {
            refresh: keyed(&tag(&secret, b"waybill refresh tokens")),
            derived: keyed(&tag(&secret, b"waybill sign-in by a provider")),
            access: secret,
            issuer: format!("waybill/{cluster}"),
        }
    }

    /// The access token of a session, good from `now` on.
    pub(crate) fn access(&self, refresh: &Refresh, now: Timestamp, life_seconds: u64) -> String {
        let seconds = |time: Timestamp| time.micros().div_euclid(1_000_000);
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: AUDIENCE.to_owned(),
            sub: refresh.user.clone(),
            tenant: refresh.tenant.clone(),
            sid: refresh.session.clone(),
            iat: seconds(now),
            exp: seconds(account::later(now, life_seconds)),
        };
        // Our own types always serialize.
        let claims = serde_json::to_vec(&claims).unwrap_or_default();
        let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(tag(&self.access, signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// Reads an access token at `now`.
    pub(crate) fn read(&self, token: &str, now: Timestamp) -> Read {
        let Some(claims) = self.signed(token) else {
            return Read::Foreign;
        };
        if claims.iss != self.issuer || claims.aud != AUDIENCE {
            return Read::Foreign;
        }
        let now = now.micros().div_euclid(1_000_000);
        if claims.iat > now + SKEW_SECONDS || claims.exp < claims.iat {
            return Read::Foreign;
        }
        if claims.exp <= now {
            return Read::Over;
        }
        Read::Good(claims)
    }

    /// What a token says whose signature is ours.
    fn signed(&self, token: &str) -> Option<Claims> {
        if token.len() > BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let claims = signed.strip_prefix(HEADER)?.strip_prefix('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        is_tag(&self.access, signed.as_bytes(), &signature)?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// A refresh token: `<tenant>.<member in base64url>.<session>.<turn>.<signature>`.
    pub(crate) fn refresh(&self, refresh: &Refresh) -> String {
        let user = URL_SAFE_NO_PAD.encode(refresh.user.as_str());
        let signed = format!("{}.{user}.{}.{}", refresh.tenant, refresh.session, refresh.turn);
        let signature = URL_SAFE_NO_PAD.encode(tag(&self.refresh, signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    /// What follows from a text and the secret, and from nothing else: of 32 bytes, in base64url. `kind` says what for.
    pub(super) fn derived(&self, kind: &str, text: &str) -> String {
        URL_SAFE_NO_PAD.encode(tag(&self.derived, format!("{kind} {text}").as_bytes()))
    }

    /// Reads a refresh token; `None` for one that is none of ours.
    pub(crate) fn read_refresh(&self, token: &str) -> Option<Refresh> {
        if token.len() > BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        is_tag(&self.refresh, signed.as_bytes(), &signature)?;
        let mut parts = signed.split('.');
        let mut part = || parts.next();
        let (tenant, user, session, turn) = (part()?, part()?, part()?, part()?);
        let user = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?;
        Some(Refresh {
            tenant: TenantId::parse(tenant)?,
            user: UserId::new(user),
            session: session.to_owned(),
            turn: turn.parse().ok()?,
        })
    }
}

/// True for a text that has the form of a JSON Web Token.
pub(crate) fn is_like_one(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

#[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")
}

fn tag(key: &Hmac<Sha256>, text: &[u8]) -> [u8; 32] {
    let mut mac = key.clone();
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// Compares in constant time.
fn is_tag(key: &Hmac<Sha256>, text: &[u8], signature: &[u8]) -> Option<()> {
    let mut mac = key.clone();
    mac.update(text);
    mac.verify_slice(signature).ok()
}

#[cfg(test)]
mod tests;
