//! Who calls: exactly one credential, looked up by its digest in the catalogue at hand. A missing, false, revoked
//! and expired credential, and one of a disabled tenant or member, get the same answer, byte for byte but for the
//! request id.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts, Request};
use axum::response::Response;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use schemas::catalog::change::{Actor, Author};
use schemas::catalog::user::Worth;
use schemas::catalog::{Catalog, Key, KeyDigest, Origin, Role};
use schemas::event::request::Payer;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, KeyId, TenantId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use sha2::Sha256;

use crate::arrival::Arrival;
use crate::sign_in;
use crate::state::Shared;

pub(crate) mod flood;
pub(crate) mod grant;
pub(crate) mod session;

/// The one text for every kind of credential that is not good.
const REFUSED: &str = "A valid API key is required: Authorization: Bearer <key>, or x-api-key: <key>.";
/// Seconds after which a caller of a node with an outdated catalogue may try again.
const STALE_RETRY_SECONDS: u64 = 5;
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Longest credential that is looked at, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 1_024;

/// The digest under which the catalogue knows a virtual key: HMAC-SHA256 under the deployment's secret.
pub fn digest(secret: &[u8], key: &str) -> KeyDigest {
    Digester::new(secret).digest(key)
}

/// Digests keys; the secret is mixed in once.
pub(crate) struct Digester(Hmac<Sha256>);

impl Digester {
    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes a key of any length"))
    }

    pub(crate) fn digest(&self, key: &str) -> KeyDigest {
        let mut mac = self.0.clone();
        mac.update(key.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// The caller of one request; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The credential's record.
    pub(crate) key: Arc<Key>,
}

impl Caller {
    /// What he may do.
    pub(crate) fn role(&self) -> Role {
        self.key.role
    }

    /// Who pays.
    pub(crate) fn tenant(&self) -> &TenantId {
        &self.key.tenant
    }

    /// Under whose name is kept what he goes on from: his tenant's, but what is made with a credential that reaches
    /// less than a member's is for nobody but its holder.
    pub(crate) fn keeper(&self) -> TenantId {
        if self.key.reach.is_member() {
            return self.key.tenant.clone();
        }
        TenantId::new(format!("{}/{}", self.key.tenant, self.key.id))
    }

    /// True for those who run the platform: operators, and administrators of the operator's own tenant.
    pub(crate) fn operates(&self) -> bool {
        match self.key.role {
            Role::Operator => true,
            Role::Admin => self.key.tenant.as_str() == DEFAULT_TENANT,
            Role::Free | Role::Pro | Role::Internal => false,
        }
    }

    /// Who he is to those who read what was changed.
    fn actor(&self) -> Actor {
        Actor {
            tenant: self.key.tenant.clone(),
            user: self.key.user.clone(),
            key_id: self.key.id.clone(),
            key_name: self.key.name.clone(),
        }
    }

    /// The author of what a request changes.
    pub(crate) fn author(&self, arrival: &Arrival) -> Author {
        Author {
            id: arrival.request_id,
            at: arrival.at,
            actor: self.actor(),
        }
    }

    /// The facts for the books.
    pub(crate) fn payer(&self) -> Payer {
        Payer {
            tenant: self.key.tenant.clone(),
            user: self.key.user.clone(),
            key_id: self.key.id.clone(),
            key_name: self.key.name.clone(),
            job_id: self.key.reach.job().cloned(),
        }
    }
}

/// Everything needed to tell who calls.
pub(crate) struct Doorkeeper {
    digester: Digester,
    admin: Option<(KeyDigest, Caller)>,
    /// The token of whoever hands out grants.
    dispatch: Option<KeyDigest>,
}

impl Doorkeeper {
    /// `admin_token` is an operator that stands outside the catalogue.
    pub(crate) fn new(secret: &[u8], admin_token: Option<&Secret<String>>) -> Self {
        let digester = Digester::new(secret);
        let token = admin_token
            .map(|token| token.reveal().trim())
            .filter(|token| !token.is_empty());
        let admin = token.map(|token| {
            (
                digester.digest(token),
                Caller {
                    key: Arc::new(admin()),
                },
            )
        });
        Self {
            digester,
            admin,
            dispatch: None,
        }
    }

    /// The same with the token of whoever hands out grants; nobody does where it is blank.
    pub(crate) fn with_dispatch(mut self, token: Option<&Secret<String>>) -> Self {
        self.dispatch = grant::token(&self.digester, token.map(|token| token.reveal().as_str()));
        self
    }

    /// The digest of a key, for its record.
    pub(crate) fn digest(&self, key: &str) -> KeyDigest {
        self.digester.digest(key)
    }

    /// The caller of these headers; `None` unless there is exactly one credential and it is good at `now`.
    pub(crate) fn identify(&self, headers: &HeaderMap, catalog: &Catalog, now: Timestamp) -> Option<Caller> {
        let digest = self.digester.digest(credential(headers)?);
        // Digests are looked up and compared, never keys: how long a comparison takes tells nothing about a key.
        if let Some((own, caller)) = &self.admin
            && *own == digest
        {
            return Some(caller.clone());
        }
        let key = catalog.key(&digest)?;
        let expired = key.expires_at.is_some_and(|at| at <= now);
        let worth = catalog.worth_of(key).filter(|_| !key.revoked && !expired)?;
        Some(Caller {
            key: within(key, worth),
        })
    }
}

/// A key as what it is worth at the moment.
fn within(key: &Arc<Key>, worth: Worth) -> Arc<Key> {
    if key.role == worth.role && key.counts() == worth.counts {
        return Arc::clone(key);
    }
    Arc::new(Key {
        role: worth.role,
        granted: Some(worth.counts),
        ..Key::clone(key)
    })
}

/// The operator behind the administrator's token.
fn admin() -> Key {
    Key {
        id: KeyId::from("admin-token"),
        name: "admin-token".into(),
        tenant: TenantId::from(DEFAULT_TENANT),
        user: None,
        role: Role::Operator,
        models: None,
        limits: schemas::limit::limits::Limits::default(),
        output_default_max: None,
        expires_at: None,
        revoked: false,
        created_at: Timestamp::from_micros(0),
        origin: Origin::File,
        prefix: "".into(),
        reach: schemas::catalog::grant::Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: Some(Role::Operator),
        maker: None,
        seen_by: None,
    }
}

/// The one credential of a request. Two that differ, a header said twice with different values, and a scheme
/// other than `Bearer` are none.
pub(crate) fn credential(headers: &HeaderMap) -> Option<&str> {
    let mut found = None;
    let bearers = headers
        .get_all(AUTHORIZATION)
        .iter()
        .map(|value| bearer(value.to_str().ok()?));
    let keys = headers
        .get_all(X_API_KEY)
        .iter()
        .map(|value| value.to_str().ok().map(str::trim));
    for candidate in bearers.chain(keys) {
        let candidate = candidate.filter(|text| !text.is_empty() && text.len() <= CREDENTIAL_BYTES_MAX)?;
        if found.is_some_and(|other| other != candidate) {
            return None;
        }
        found = Some(candidate);
    }
    found
}

/// The token of an `Authorization` value.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The answer to a credential that is not good.
pub(crate) fn refused() -> Failure {
    Failure::new(FailureCode::InvalidApiKey, REFUSED)
}

/// The answer to everybody while the node cannot know which credentials are still good.
fn stale() -> Failure {
    let text =
        "the node has not heard from the catalogue for too long to tell who may call; try another node";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(STALE_RETRY_SECONDS)
}

/// Refuses an address that sent too many false credentials.
pub(crate) fn unblocked(state: &Shared, arrival: &Arrival) -> Result<(), Failure> {
    let address: Option<IpAddr> = arrival.peer.map(|peer| peer.ip());
    match address.and_then(|address| state.floods.blocked(address, arrival.at)) {
        Some(seconds) => Err(refused().with_status(429).retry_after(seconds)),
        None => Ok(()),
    }
}

/// Counts a false credential.
pub(crate) fn failed(state: &Shared, arrival: &Arrival) {
    if let Some(peer) = arrival.peer {
        state.floods.count(peer.ip(), arrival.at);
    }
}

/// Looks up the caller of a request and counts false credentials.
pub(crate) async fn identify(
    state: &Shared,
    arrival: &Arrival,
    request: Presented<'_>,
) -> Result<Caller, Failure> {
    if state.stale() {
        return Err(stale());
    }
    unblocked(state, arrival)?;
    let headers = request.headers;
    let known = state
        .doorkeeper
        .identify(headers, &state.ports.catalog.peek(), arrival.at);
    let caller = match known {
        Some(caller) => caller,
        // No call with a key pays for what sessions need.
        None => Box::pin(unknown(state, arrival, request)).await?,
    };
    grant::within_reach(caller, arrival.door)
}

/// What a request says of who sends it.
#[derive(Clone, Copy)]
pub(crate) struct Presented<'a> {
    pub(crate) headers: &'a HeaderMap,
    /// By which name the node was reached.
    pub(crate) authority: Option<&'a str>,
}

impl<'a> Presented<'a> {
    fn of(parts: &'a Parts) -> Self {
        Self {
            headers: &parts.headers,
            authority: sign_in::origin::authority(&parts.headers, &parts.uri),
        }
    }

    /// The same of a request that is whole.
    pub(crate) fn of_request(request: &'a Request) -> Self {
        Self {
            headers: request.headers(),
            authority: sign_in::origin::authority(request.headers(), request.uri()),
        }
    }
}

/// Who calls without a key that is known: a member who signed in, or on a node that asks nobody, whoever.
async fn unknown(state: &Shared, arrival: &Arrival, request: Presented<'_>) -> Result<Caller, Failure> {
    let headers = request.headers;
    if let Some(credential) = credential(headers) {
        match session::bearer(state, credential, arrival.at).await? {
            session::Bearer::Member(caller) => return Ok(caller),
            // No sign of a flood: pages go on calling when a session ends.
            session::Bearer::Over => return Err(refused()),
            session::Bearer::Nobody => {}
        }
    }
    if sign_in::asks_nobody(state, request) {
        return Ok(session::anonymous());
    }
    if headers.contains_key(AUTHORIZATION) || headers.contains_key(X_API_KEY) {
        failed(state, arrival);
    }
    Err(refused())
}

impl<S: Send + Sync> FromRequestParts<S> for Caller
where
    Shared: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let arrival = Arrival::of(&parts.extensions);
        let admitted = admit(&Shared::from_ref(state), &arrival, Presented::of(parts)).await;
        admitted.map_err(|refused| *refused)
    }
}

/// The caller of a request, or the answer to one that has none.
pub(crate) async fn admit(
    state: &Shared,
    arrival: &Arrival,
    request: Presented<'_>,
) -> Result<Caller, Box<Response>> {
    identify(state, arrival, request).await.map_err(|failure| {
        state.metrics.refused(failure.code, arrival.surface_word(), None);
        Box::new(arrival.refuse_unread(&failure))
    })
}

/// The caller, or nobody: for what everybody may read, a bad credential counts as none.
#[derive(Debug, Clone)]
pub(crate) struct Visitor(pub(crate) Option<Caller>);

impl<S: Send + Sync> FromRequestParts<S> for Visitor
where
    Shared: FromRef<S>,
{
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let state = Shared::from_ref(state);
        let arrival = Arrival::of(&parts.extensions);
        match identify(&state, &arrival, Presented::of(parts)).await {
            Ok(caller) => Ok(Self(Some(caller))),
            Err(failure)
                if matches!(
                    failure.code,
                    FailureCode::StoreUnavailable | FailureCode::InsufficientScope
                ) =>
            {
                Err(arrival.refuse_unread(&failure))
            }
            Err(_) => Ok(Self(None)),
        }
    }
}

#[cfg(test)]
mod tests;
