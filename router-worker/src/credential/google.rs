//! Access to Google's Vertex: a service account's key signs a claim, the claim buys a token, and the token is kept
//! until it is about to expire. A credential that is no service account is a token itself.
//!
//! Guarantees: of the requests that need a new token one fetches it, and the others wait for that or go on with the
//! one they have while it lives; a fetch that failed is not repeated at once; key and tokens are in no log.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{Bytes, BytesMut};
use dialects::splice::Spliced;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Uri};
use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use schemas::secret::Secret;
use serde::{Deserialize, Serialize};
use tracing::debug;

use bus::clock::Clock;

use crate::upstream::{Answer, Route, Target, Trust, Upstream};

/// What tokens are for.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Where tokens are bought when the account's file does not say.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// How long a claim is valid, in seconds: as long as the other side allows.
const CLAIM_SECONDS: i64 = 3_600;
/// A token is replaced so many milliseconds before it expires.
const AHEAD_MS: u64 = 5 * 60 * 1_000;
/// A token that lives no longer than this is not used for another request, in milliseconds.
const MARGIN_MS: u64 = 10_000;
/// After a fetch that failed, so many milliseconds pass before the next.
const PAUSE_MS: u64 = 1_000;
/// How long a fetch may take.
const FETCH_WAIT: Duration = Duration::from_secs(10);
/// Largest answer to a fetch, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Accounts whose tokens are kept; beyond, the oldest is forgotten.
const ACCOUNTS_MAX: usize = 256;

/// There is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The credential is no service account, or its key is none.
    #[error("the credential is not the key of a service account")]
    Account,
    /// The account is not accepted.
    #[error("the service account is refused with status {0}")]
    Refused(u16),
    /// Nobody hands out tokens now.
    #[error("the token endpoint cannot be reached")]
    Silent,
    /// The answer holds no token.
    #[error("the answer of the token endpoint is not understood")]
    Malformed,
}

/// A service account's file, as far as it is read.
#[derive(Deserialize)]
struct Account {
    client_email: String,
    private_key: Secret<String>,
    #[serde(default)]
    private_key_id: Option<String>,
    #[serde(default)]
    token_uri: Option<String>,
}

/// A token and its end on the router's clock.
#[derive(Clone)]
struct Token {
    text: Arc<Secret<String>>,
    expires_ms: u64,
}

/// The tokens of one account.
#[derive(Default)]
struct Slot {
    /// Held by whoever fetches.
    fetching: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    token: Option<Token>,
    /// The last fetch failed, at that time.
    failed: Option<(Error, u64)>,
}

/// Tokens by credential.
#[derive(Default)]
pub(crate) struct Tokens {
    slots: Mutex<Vec<(Secret<String>, Arc<Slot>)>>,
}

impl Tokens {
    /// The token to call with, for a credential that is a service account's file; any other is its own token.
    pub(crate) async fn token(
        &self,
        upstream: (&Upstream, Trust),
        clock: &dyn Clock,
        credential: &Secret<String>,
    ) -> Result<Arc<Secret<String>>, Error> {
        if !is_account(credential) {
            return Ok(Arc::new(credential.clone()));
        }
        let slot = self.slot(credential);
        let now_ms = clock.monotonic_ms();
        if let Some(token) = slot.alive(now_ms, AHEAD_MS) {
            return Ok(token);
        }
        let guard = if let Ok(guard) = slot.fetching.try_lock() {
            guard
        } else {
            // Somebody else fetches: what lives is good enough.
            if let Some(token) = slot.alive(now_ms, MARGIN_MS) {
                return Ok(token);
            }
            slot.fetching.lock().await
        };
        let now_ms = clock.monotonic_ms();
        if let Some(token) = slot.alive(now_ms, AHEAD_MS) {
            return Ok(token);
        }
        let fetched = match slot.paused(now_ms) {
            Some(error) => Err(error),
            None => fetch(upstream, clock, credential).await,
        };
        let outcome = slot.note(fetched, clock.monotonic_ms());
        drop(guard);
        outcome
    }

    /// Forgets a token that was refused.
    pub(crate) fn forget(&self, credential: &Secret<String>, token: &Arc<Secret<String>>) {
        let slot = self.slot(credential);
        let mut known = slot.known.lock();
        if known
            .token
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(&known.text, token))
        {
            known.token = None;
        }
    }

    fn slot(&self, credential: &Secret<String>) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if let Some((_, slot)) = slots.iter().find(|(known, _)| known == credential) {
            return Arc::clone(slot);
        }
        if slots.len() >= ACCOUNTS_MAX {
            slots.remove(0);
        }
        let slot = Arc::new(Slot::default());
        slots.push((credential.clone(), Arc::clone(&slot)));
        slot
    }
}

/// True for a service account's file, which has to be changed into a token first.
pub(crate) fn is_account(credential: &Secret<String>) -> bool {
    credential.reveal().trim_start().starts_with('{')
}

impl Slot {
    /// The token, if it lives longer than `margin_ms` from now.
    fn alive(&self, now_ms: u64, margin_ms: u64) -> Option<Arc<Secret<String>>> {
        let known = self.known.lock();
        let token = known.token.as_ref()?;
        let lives = token.expires_ms > now_ms.saturating_add(margin_ms);
        lives.then(|| Arc::clone(&token.text))
    }

    /// Why the last fetch failed, if that was just now.
    fn paused(&self, now_ms: u64) -> Option<Error> {
        let known = self.known.lock();
        let (error, at_ms) = known.failed?;
        (now_ms < at_ms.saturating_add(PAUSE_MS)).then_some(error)
    }

    /// Keeps what came of a fetch. A token that still lives bridges a fetch that failed.
    fn note(&self, fetched: Result<Token, Error>, now_ms: u64) -> Result<Arc<Secret<String>>, Error> {
        match fetched {
            Ok(token) => {
                let text = Arc::clone(&token.text);
                *self.known.lock() = Known {
                    token: Some(token),
                    failed: None,
                };
                Ok(text)
            }
            Err(error) => {
                let bridge = self.alive(now_ms, MARGIN_MS);
                let mut known = self.known.lock();
                if known
                    .failed
                    .is_none_or(|(_, at_ms)| now_ms >= at_ms.saturating_add(PAUSE_MS))
                {
                    known.failed = Some((error, now_ms));
                }
                bridge.ok_or(error)
            }
        }
    }
}

/// Buys a token.
async fn fetch(
    (upstream, trust): (&Upstream, Trust),
    clock: &dyn Clock,
    credential: &Secret<String>,
) -> Result<Token, Error> {
    let account: Account = serde_json::from_str(credential.reveal()).map_err(|_| Error::Account)?;
    let uri = account.token_uri.as_deref().unwrap_or(TOKEN_URI);
    let uri: Uri = uri.parse().map_err(|_| Error::Account)?;
    let claim = claim(&account, &uri, clock.now().millis().div_euclid(1_000))?;
    let body = format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={claim}");
    let mut headers = HeaderMap::with_capacity(4);
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(CONTENT_TYPE, form);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(crate::provider::OUR_USER_AGENT),
    );
    let target = Target {
        route: Arc::new(Route::new(uri, headers, false, trust)),
        credential: None,
        extra: Vec::new(),
    };
    let asked_ms = clock.monotonic_ms();
    let exchange = async {
        let answer = upstream
            .send(&target, &Spliced::from(Bytes::from(body)))
            .await
            .map_err(|error| {
                debug!(
                    error = &error as &dyn std::error::Error,
                    "no token could be fetched"
                );
                if error.is_forbidden() {
                    Error::Account
                } else {
                    Error::Silent
                }
            })?;
        let status = answer.status;
        let body = whole(answer).await?;
        match status.as_u16() {
            200..=299 => read(&body, asked_ms),
            400..=499 if status.as_u16() != 429 => Err(Error::Refused(status.as_u16())),
            _ => Err(Error::Silent),
        }
    };
    tokio::time::timeout(FETCH_WAIT, exchange)
        .await
        .map_err(|_| Error::Silent)?
}

/// The signed claim, in three parts of base64.
fn claim(account: &Account, audience: &Uri, now_seconds: i64) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Header<'a> {
        alg: &'static str,
        typ: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        kid: Option<&'a str>,
    }
    #[derive(Serialize)]
    struct Claims<'a> {
        iss: &'a str,
        scope: &'static str,
        aud: String,
        iat: i64,
        exp: i64,
    }
    let header = Header {
        alg: "RS256",
        typ: "JWT",
        kid: account.private_key_id.as_deref(),
    };
    let claims = Claims {
        iss: &account.client_email,
        scope: SCOPE,
        aud: audience.to_string(),
        iat: now_seconds,
        exp: now_seconds.saturating_add(CLAIM_SECONDS),
    };
    let part = |json: Result<Vec<u8>, serde_json::Error>| {
        let json = json.map_err(|_| Error::Account)?;
        Ok::<_, Error>(URL_SAFE_NO_PAD.encode(json))
    };
    let unsigned = format!(
        "{}.{}",
        part(serde_json::to_vec(&header))?,
        part(serde_json::to_vec(&claims))?
    );
    let key = PrivateKeyDer::from_pem_slice(account.private_key.reveal().as_bytes());
    let key = any_supported_type(&key.map_err(|_| Error::Account)?).map_err(|_| Error::Account)?;
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
        .ok_or(Error::Account)?;
    let signature = signer.sign(unsigned.as_bytes()).map_err(|_| Error::Account)?;
    Ok(format!("{unsigned}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

async fn whole(answer: Answer) -> Result<BytesMut, Error> {
    let mut body = answer.body;
    let mut all = BytesMut::new();
    loop {
        match std::future::poll_fn(|context| body.poll_next(context)).await {
            Ok(Some(piece)) if all.len() + piece.len() <= ANSWER_BYTES_MAX => all.extend_from_slice(&piece),
            Ok(None) => return Ok(all),
            Ok(Some(_)) => return Err(Error::Malformed),
            Err(_) => return Err(Error::Silent),
        }
    }
}

fn read(body: &[u8], asked_ms: u64) -> Result<Token, Error> {
    #[derive(Deserialize)]
    struct Granted {
        access_token: Secret<String>,
        #[serde(default)]
        expires_in: Option<u64>,
    }
    let granted: Granted = serde_json::from_slice(body).map_err(|_| Error::Malformed)?;
    if granted.access_token.reveal().is_empty() {
        return Err(Error::Malformed);
    }
    let lives_ms = granted.expires_in.unwrap_or(0).saturating_mul(1_000);
    Ok(Token {
        text: Arc::new(granted.access_token),
        expires_ms: asked_ms.saturating_add(lives_ms),
    })
}

#[cfg(test)]
mod tests;
