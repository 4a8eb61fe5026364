//! The provider of identities: what it says of itself and its keys, kept for a while, and the exchange of a code for a
//! token. Keys are read again when a token names one that is not known, and no more often than every few seconds.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use schemas::secret::Secret;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::identity::Keys;
use super::wire::{Error, Wire, address, encoded, form};
use crate::sign_in::settings::Provider;

/// How long what a provider says of itself is kept.
const KEPT: Duration = Duration::from_hours(1);
/// How long its keys stay at least although a token names another.
const KEYS_REST: Duration = Duration::from_secs(3);
/// How long nobody asks again after nothing came.
const FAILED_REST: Duration = Duration::from_secs(2);
/// Longest token or code of a provider that is passed on, in bytes.
const CODE_BYTES_MAX: usize = 4_096;

/// What a provider says of itself.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) authorization: Uri,
    token: Uri,
    keys: Uri,
    /// It tells, with each code, that it is from it.
    pub(super) tells_issuer: bool,
    /// Whoever asks says who he is in the body, for it knows no header.
    secret_in_body: bool,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// What it answers to a code.
#[derive(Deserialize)]
struct Exchanged {
    id_token: Secret<String>,
}

/// Something of a provider's that was read, or could not be.
struct Kept<T> {
    found: Option<(Arc<T>, Instant)>,
    failed: Option<(Error, Instant)>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            found: None,
            failed: None,
        }
    }
}

impl<T> Kept<T> {
    /// Reads it anew. Whoever asks right after one that failed is told the same: a provider that is away is not waited for
    /// by one after the other.
    async fn renew(&mut self, read: impl Future<Output = Result<T, Error>>) -> Result<Arc<T>, Error> {
        if let Some((problem, _)) = self.failed.filter(|(_, at)| at.elapsed() < FAILED_REST) {
            return Err(problem);
        }
        match read.await {
            Ok(found) => {
                let found = Arc::new(found);
                self.found = Some((Arc::clone(&found), Instant::now()));
                self.failed = None;
                Ok(found)
            }
            Err(problem) => {
                self.failed = Some((problem, Instant::now()));
                Err(problem)
            }
        }
    }
}

/// Asks one provider.
pub(crate) struct Oidc {
    wire: Wire,
    about: Mutex<Kept<About>>,
    keys: Mutex<Kept<Keys>>,
}

impl Oidc {
    pub(in crate::sign_in) fn new() -> Option<Self> {
        Some(Self {
            wire: Wire::new()?,
            about: Mutex::default(),
            keys: Mutex::default(),
        })
    }

    /// What the provider says of itself, as it was read within the hour.
    pub(super) async fn about(&self, settings: &Provider) -> Result<Arc<About>, Error> {
        let mut kept = self.about.lock().await;
        let fresh = kept.found.as_ref().filter(|(_, at)| at.elapsed() < KEPT);
        if let Some((about, _)) = fresh {
            return Ok(Arc::clone(about));
        }
        let issuer = settings.issuer.trim_end_matches('/');
        let place = address(&format!("{issuer}/.well-known/openid-configuration"));
        let place = place.ok_or(Error::Odd("address"))?;
        let read = async { About::of(&self.wire.get(&place).await?, settings) };
        kept.renew(read).await
    }

    /// Its keys: those that are kept, or newer ones where a token names one that is not among them. The same where it is
    /// too early to ask again.
    pub(super) async fn keys(&self, about: &About, but: Option<&Arc<Keys>>) -> Result<Arc<Keys>, Error> {
        let mut kept = self.keys.lock().await;
        if let Some((keys, at)) = &kept.found {
            let is_wanted = but.is_none_or(|but| !Arc::ptr_eq(but, keys)) && at.elapsed() < KEPT;
            if is_wanted || at.elapsed() < KEYS_REST {
                return Ok(Arc::clone(keys));
            }
        }
        let read = async {
            let read = self.wire.get(&about.keys).await?;
            Keys::parse(&read).ok_or(Error::Odd("set of keys"))
        };
        kept.renew(read).await
    }

    /// The ID token that a code is good for.
    pub(super) async fn exchange(
        &self,
        (settings, about): (&Provider, &About),
        (code, verifier): (&str, &str),
    ) -> Result<Secret<String>, Error> {
        if code.is_empty() || code.len() > CODE_BYTES_MAX {
            return Err(Error::Odd("code"));
        }
        let mut pairs = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &settings.redirect_uri),
            ("client_id", &settings.client_id),
            ("code_verifier", verifier),
        ];
        let mut login = None;
        match &settings.client_secret {
            Some(secret) if about.secret_in_body => pairs.push(("client_secret", secret.reveal())),
            Some(secret) => {
                let pair = format!("{}:{}", encoded(&settings.client_id), encoded(secret.reveal()));
                login = Some(Secret::new(STANDARD.encode(pair)));
            }
            None => {}
        }
        let read = self.wire.post(&about.token, form(&pairs), login).await?;
        let exchanged: Exchanged =
            serde_json::from_slice(&read).map_err(|_| Error::Odd("answer to a code"))?;
        Ok(exchanged.id_token)
    }
}

impl About {
    /// Reads what a provider says of itself. It has to be the one that was asked.
    fn of(text: &[u8], settings: &Provider) -> Result<Self, Error> {
        let odd = || Error::Odd("description of itself");
        let document: Document = serde_json::from_slice(text).map_err(|_| odd())?;
        if document.issuer != settings.issuer {
            return Err(Error::Odd("issuer"));
        }
        let methods = document.token_endpoint_auth_methods_supported;
        let knows = |method: &str| {
            methods
                .as_ref()
                .is_some_and(|methods| methods.iter().any(|known| known == method))
        };
        Ok(Self {
            authorization: address(&document.authorization_endpoint).ok_or_else(odd)?,
            token: address(&document.token_endpoint).ok_or_else(odd)?,
            keys: address(&document.jwks_uri).ok_or_else(odd)?,
            tells_issuer: document.authorization_response_iss_parameter_supported,
            secret_in_body: knows("client_secret_post") && !knows("client_secret_basic"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use schemas::catalog::Role;
    use schemas::id::TenantId;
    use serde_json::{Value, json};

    use super::*;

    fn settings() -> Provider {
        Provider {
            issuer: "https://login.example.com".to_owned(),
            client_id: "waybill".to_owned(),
            client_secret: None,
            scopes: Vec::new(),
            domains: Vec::new(),
            tenant: TenantId::from("default"),
            role: Role::Free,
            create_members: None,
            redirect_uri: "https://gw.example.com/auth/oidc/callback".to_owned(),
        }
    }

    fn about(change: impl FnOnce(&mut Value)) -> Result<About, Error> {
        let mut document = json!({"issuer": "https://login.example.com",
            "authorization_endpoint": "https://login.example.com/authorize",
            "token_endpoint": "https://tokens.example.com/token", "jwks_uri": "https://keys.example.com/keys"});
        change(&mut document);
        About::of(document.to_string().as_bytes(), &settings())
    }

    #[test]
    fn a_provider_that_says_it_is_another_or_is_asked_in_the_clear_is_none() {
        let good = about(|_| {}).expect("a provider");
        assert!(!good.tells_issuer && !good.secret_in_body);
        let by_form = about(|document| {
            document["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
            document["authorization_response_iss_parameter_supported"] = json!(true);
        });
        let by_form = by_form.expect("a provider");
        assert!(by_form.tells_issuer && by_form.secret_in_body);
        for (member, value) in [
            ("issuer", json!("https://evil.example.com")),
            ("issuer", json!("https://login.example.com/")),
            ("token_endpoint", json!("http://tokens.example.com/token")),
            ("jwks_uri", json!("http://keys.example.com/keys")),
            ("jwks_uri", json!("file:///etc/passwd")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            ("authorization_endpoint", Value::Null),
        ] {
            assert!(
                about(|document| document[member] = value.clone()).is_err(),
                "{member} {value}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_did_not_answer_is_not_asked_again_at_once() {
        let (mut kept, asked) = (Kept::<u8>::default(), Cell::new(0));
        let read = |answer: Result<u8, Error>| {
            let asked = &asked;
            async move {
                asked.set(asked.get() + 1);
                answer
            }
        };

        assert_eq!(kept.renew(read(Err(Error::Away))).await, Err(Error::Away));
        tokio::time::advance(FAILED_REST / 2).await;
        assert_eq!(kept.renew(read(Ok(1))).await, Err(Error::Away));
        assert_eq!(asked.get(), 1);
        tokio::time::advance(FAILED_REST).await;
        assert_eq!(kept.renew(read(Ok(1))).await, Ok(Arc::new(1)));
        assert_eq!(kept.renew(read(Ok(2))).await, Ok(Arc::new(2)));
        assert_eq!(asked.get(), 3);
    }
}
