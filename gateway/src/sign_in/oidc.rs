//! `GET /auth/oidc/login` and `/auth/oidc/callback`: members sign in by a provider of identities, with an authorization
//! code and PKCE. Whoever comes back has to be the browser that was sent out, and comes back once over all nodes; the
//! token that the provider signed says who he is, and from then on he is signed in as by a password.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use bus::{BusError, Expected};
use http::header::{CACHE_CONTROL, LOCATION, REFERRER_POLICY, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use schemas::account::{Account, Identity};
use schemas::catalog::change::Author;
use schemas::catalog::user::User;
use schemas::failure::{Failure, FailureCode};
use schemas::id::TenantId;
use schemas::subject::ATTEMPT_BUCKET;
use schemas::time::Timestamp;
use tokio::time::timeout;
use tracing::{info, warn};

use super::answer::{self, Done};
use super::attempts::{self, Of};
use super::member::New;
use super::settings::{Provider, SignUp};
use super::token::Signer;
use super::{accounts, audit, cookie, digest, invalid, login, member, on, origin, sign_up};
use crate::arrival::Arrival;
use crate::caller;
use crate::manage::openapi::{Operation, Parameter};
use crate::manage::{Parameters, json, parameters, settings};
use crate::state::Shared;

#[cfg(test)]
mod corpus;
mod flow;
mod identity;
mod provider;
mod wire;

use flow::Flow;
use identity::{Person, Wrong};
pub(crate) use provider::Oidc;

/// True for an address that a provider may have: under TLS, or on the machine itself.
pub fn is_address(text: &str) -> bool {
    wire::address(text).is_some_and(|uri| uri.query().is_none())
}

/// The cookie of whoever is on the way.
const COOKIE: &str = "waybill_oidc";
/// The paths that it is sent to.
const COOKIE_PATH: &str = "/auth/oidc";
/// What is kept of those who came back.
const KIND: &str = "oidc";
/// How long the bus may take to note that somebody came back.
const WITHIN: Duration = Duration::from_secs(4);

pub(crate) const LOGIN: Operation =
    Operation::read::<Done>("Sends a browser to the provider of identities, to sign in")
        .of_everybody()
        .taking(&[Parameter::new::<String>(
            "return_to",
            "The path of this site at which the browser ends, / where it is left out.",
        )])
        .answering(303)
        .failing(&[400, 403, 404, 429, 503]);
pub(crate) const CALLBACK: Operation = Operation::read::<Done>(
    "Signs in whoever comes back from the provider; the cookie holds the refresh token",
)
.of_everybody()
.taking(&[
    Parameter::new::<String>("state", "What the browser was sent out with."),
    Parameter::new::<String>("code", "What the provider gives for it."),
    Parameter::new::<String>("iss", "Which provider it is."),
    Parameter::new::<String>("error", "Why it gives nothing."),
])
.answering(303)
.failing(&[400, 403, 404, 409, 429, 503]);

/// What is needed of a node to sign somebody in by the provider.
#[derive(Clone, Copy)]
struct Ready<'s> {
    signer: &'s Signer,
    settings: &'s Provider,
    oidc: &'s Oidc,
}

fn ready(state: &Shared) -> Result<Ready<'_>, Failure> {
    let signer = on(state)?;
    let off = || Failure::new(FailureCode::NotFound, "nobody signs in by another provider here");
    Ok(Ready {
        signer,
        settings: state.config.sign_in.oidc.as_ref().ok_or_else(off)?,
        oidc: state.sign_in.oidc.as_ref().ok_or_else(off)?,
    })
}

/// Sends a browser to the provider.
pub(crate) async fn login(
    State(state): State<Shared>,
    arrival: Arrival,
    given: Parameters,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match sent_out(&state, &arrival, given).await {
        Ok((location, cookie)) => redirect(&state, (&location, "go on at the provider"), (&cookie, &parts)),
        Err(failure) => arrival.refuse_unread(&failure),
    }
}

/// Where a browser is sent, and what it keeps.
async fn sent_out(state: &Shared, arrival: &Arrival, given: Parameters) -> Result<(String, String), Failure> {
    let Ready {
        signer,
        settings,
        oidc,
    } = ready(state)?;
    caller::unblocked(state, arrival)?;
    let mut return_to = None;
    for (name, value) in parameters(given)? {
        match name.as_str() {
            "return_to" => return_to = Some(value),
            _ => return Err(invalid("query", "there is no such parameter")),
        }
    }
    let flow = Flow::new(state.ports.mint.random(), return_to.as_deref(), arrival.at);
    let flow = flow.ok_or_else(|| invalid("return_to", "expected a path of this site, such as /usage"))?;
    let about = oidc
        .about(settings)
        .await
        .map_err(|problem| away(arrival, problem))?;
    let query = wire::form(&[
        ("response_type", "code"),
        ("client_id", &settings.client_id),
        ("redirect_uri", &settings.redirect_uri),
        ("scope", &settings.scopes.join(" ")),
        ("state", &flow.state(signer)),
        ("nonce", &flow.nonce(signer)),
        ("code_challenge", &flow.challenge(signer)),
        ("code_challenge_method", "S256"),
    ]);
    let glue = if about.authorization.query().is_some() {
        '&'
    } else {
        '?'
    };
    Ok((
        format!("{}{glue}{query}", about.authorization),
        flow.cookie(signer),
    ))
}

/// What the provider has the browser bring.
#[derive(Default)]
struct Brought {
    state: Option<String>,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Brought {
    /// Reads it; what else a provider adds is passed over, and what comes twice is refused.
    fn of(given: Parameters) -> Result<Self, Failure> {
        let mut brought = Self::default();
        for (name, value) in parameters(given)? {
            let place = match name.as_str() {
                "state" => &mut brought.state,
                "code" => &mut brought.code,
                "iss" => &mut brought.issuer,
                "error" => &mut brought.error,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(invalid("query", "a parameter stands there twice"));
            }
        }
        Ok(brought)
    }
}

/// Signs in whoever comes back. Whatever comes of it, the browser's cookie goes.
pub(crate) async fn callback(
    State(state): State<Shared>,
    arrival: Arrival,
    given: Parameters,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let mut response = match came_back(&state, &arrival, (given, &parts)).await {
        Ok(response) => response,
        Err(failure) => arrival.refuse_unread(&failure),
    };
    let is_known = cookie::of(&parts.headers, COOKIE).is_some();
    if let Some(value) = flow_cookie(&state, "", &parts).filter(|_| is_known) {
        response.headers_mut().append(SET_COOKIE, value);
    }
    response
}

async fn came_back(
    state: &Shared,
    arrival: &Arrival,
    (given, parts): (Parameters, &Parts),
) -> Result<Response, Failure> {
    let ready = ready(state)?;
    caller::unblocked(state, arrival)?;
    let brought = Brought::of(given)?;
    let flow = begun(&ready, (arrival, parts), &brought)?;
    let allowance = state.config.sign_in.logins_of_address;
    attempts::count(state, Of::Address(login::address(arrival)), allowance).await?;
    once(state, brought.state.as_deref().unwrap_or_default()).await?;
    let person = person(&ready, (arrival, state.ports.clock.now()), (brought, &flow)).await?;
    let account = account_of(state, arrival, (ready.settings, person)).await?;
    admit(state, &account).await?;
    let (account, refresh) = answer::begin(state, &account, arrival.at).await?;
    info!(
        tenant = %account.tenant,
        user = %account.user,
        request.id = %arrival.request_id,
        "a member signed in by the provider"
    );
    let mut response = redirect(state, (&flow.return_to, "signed in"), ("", parts));
    answer::put_cookie(state, &mut response, &ready.signer.refresh(&refresh), parts);
    Ok(response)
}

/// The way that a browser was sent out on, and comes back from with the state of that way.
fn begun(
    ready: &Ready<'_>,
    (arrival, parts): (&Arrival, &Parts),
    brought: &Brought,
) -> Result<Flow, Failure> {
    let kept = cookie::of(&parts.headers, COOKIE);
    let flow = kept.and_then(|kept| Flow::read(kept, ready.signer, arrival.at));
    let handed = brought.state.as_deref().unwrap_or_default();
    flow.filter(|flow| flow.is_of(handed, ready.signer))
        .ok_or_else(|| {
            let text = "this sign-in was not begun in this browser, or too long ago: begin again";
            invalid("state", text)
        })
}

/// Who comes back, by the word of the provider.
async fn person(
    ready: &Ready<'_>,
    (arrival, now): (&Arrival, Timestamp),
    (brought, flow): (Brought, &Flow),
) -> Result<Person, Failure> {
    let Ready {
        signer,
        settings,
        oidc,
    } = *ready;
    let is_away = |problem| away(arrival, problem);
    let about = oidc.about(settings).await.map_err(is_away)?;
    let is_theirs = match &brought.issuer {
        Some(issuer) => *issuer == settings.issuer,
        None => !about.tells_issuer,
    };
    if !is_theirs {
        return Err(invalid("iss", "the answer is of another provider"));
    }
    let code = brought.code.filter(|_| brought.error.is_none());
    let code = code.ok_or_else(|| refused("the provider signed nobody in"))?;
    let token = oidc
        .exchange((settings, &about), (&code, &flow.verifier(signer)))
        .await
        .map_err(|problem| not_exchanged(arrival, problem))?;
    let expected = identity::Expected {
        issuer: &settings.issuer,
        client: &settings.client_id,
        nonce: &flow.nonce(signer),
        now,
    };
    let keys = oidc.keys(&about, None).await.map_err(is_away)?;
    let mut read = identity::read(token.reveal(), &keys, expected);
    if read == Err(Wrong::UnknownKey) {
        let newer = oidc.keys(&about, Some(&keys)).await.map_err(is_away)?;
        read = identity::read(token.reveal(), &newer, expected);
    }
    read.map_err(|wrong| not_good(arrival, wrong))
}

/// Notes that somebody came back with a state; refuses whoever brings the same again, to whichever node.
async fn once(state: &Shared, handed: &str) -> Result<(), Failure> {
    let key = format!("{KIND}.{}", digest(state, KIND, handed));
    let life = Duration::from_secs(flow::LIFE_SECONDS.unsigned_abs() * 2);
    let kv = &state.ports.kv;
    let put = kv.put_for((ATTEMPT_BUCKET, &key), "{}".into(), Expected::Absent, life);
    match timeout(WITHIN, put).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(BusError::Conflict)) => Err(invalid("state", "this sign-in is used up: begin again")),
        Ok(Err(_)) | Err(_) => Err(accounts::away()),
    }
}

/// The account of whoever the provider says he is; that of the member whose address it is, or one that is made by the
/// rules of sign-up, where there is none.
async fn account_of(
    state: &Shared,
    arrival: &Arrival,
    (settings, person): (&Provider, Person),
) -> Result<Account, Failure> {
    if !settings.domains.is_empty() && !person.email.is_of(&settings.domains) {
        return Err(refused("addresses of this domain may not sign in"));
    }
    let Some(found) = accounts::by_email(state, &person.email).await? else {
        let catalog = state.ports.catalog.load();
        return match member::of_address(&catalog, &person.email, &settings.tenant) {
            Some(member) => let_in(state, arrival, (settings, person, &member)).await,
            None => made(state, arrival, (settings, person)).await,
        };
    };
    of_tenant(&found.tenant, settings)?;
    match &found.identity {
        Some(known) if *known == person.identity => Ok(found),
        Some(_) => Err(refused(
            "the account of this address is of somebody else at the provider: choose a password first",
        )),
        None => bound(state, arrival, (&found, person.identity)).await,
    }
}

fn of_tenant(tenant: &TenantId, settings: &Provider) -> Result<(), Failure> {
    if *tenant == settings.tenant {
        return Ok(());
    }
    Err(refused(
        "the account of this address does not sign in by this provider",
    ))
}

/// Makes the account of whoever is a member already, with the address that the provider says is his.
async fn let_in(
    state: &Shared,
    arrival: &Arrival,
    (settings, person, member): (&Provider, Person, &User),
) -> Result<Account, Failure> {
    of_tenant(&member.tenant, settings)?;
    let account = member::of_member(member, person.email);
    member::admitted(&state.ports.catalog.load(), &account)?;
    accounts::create(state, &account, arrival.at).await?;
    bound(state, arrival, (&account, person.identity)).await
}

/// Gives an account to whom the provider knows by its address. Who had a password or a session before may have been
/// anybody: nobody had to show that the address is his.
async fn bound(
    state: &Shared,
    arrival: &Arrival,
    (found, identity): (&Account, Identity),
) -> Result<Account, Failure> {
    let bind = |account: &Account| {
        let is_same = account.identity.is_none() && account.email == found.email;
        Ok(is_same.then(|| account.of_identity(identity.clone())))
    };
    let written = accounts::change(state, (&found.tenant, &found.user), bind).await?;
    if written.0.identity.as_ref() != Some(&identity) {
        let text = "the account was changed by somebody else: begin again";
        return Err(Failure::new(FailureCode::Conflict, text));
    }
    let author: Author = member::author(&written.0, KIND, arrival.into());
    audit::tell(state, &written, author, audit::What::Identity);
    Ok(written.0)
}

async fn made(
    state: &Shared,
    arrival: &Arrival,
    (settings, person): (&Provider, Person),
) -> Result<Account, Failure> {
    let sign_up = settings::sign_up(state);
    if !settings.create_members.unwrap_or(sign_up.enabled) {
        return Err(refused(
            "nobody here has this address of mail: an administrator makes members first",
        ));
    }
    let rules = SignUp {
        domains: settings.domains.clone(),
        ..sign_up
    };
    let waits = sign_up::waits(&rules, &person.email)?;
    let mut account = member::fresh(state, &settings.tenant, person.email);
    account.identity = Some(person.identity);
    account.is_new = waits;
    let new = New {
        account: account.clone(),
        name: None,
        role: settings.role,
        disabled: waits,
    };
    member::make(state, new, (KIND, arrival.into())).await?;
    Ok(account)
}

async fn admit(state: &Shared, account: &Account) -> Result<(), Failure> {
    member::known(state, (&account.tenant, &account.user)).await;
    member::admitted(&state.ports.catalog.load(), account)
}

/// Sends a browser on, with the cookie of the way; the empty one leaves it.
fn redirect(
    state: &Shared,
    (location, message): (&str, &'static str),
    (kept, parts): (&str, &Parts),
) -> Response {
    let mut response = json(&Done { message });
    *response.status_mut() = StatusCode::SEE_OTHER;
    let cookie = flow_cookie(state, kept, parts).filter(|_| !kept.is_empty());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // The code of the address that the browser leaves is nobody else's to see.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(location) = HeaderValue::try_from(location) {
        headers.insert(LOCATION, location);
    }
    if let Some(cookie) = cookie {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

fn flow_cookie(state: &Shared, text: &str, parts: &Parts) -> Option<HeaderValue> {
    let is_loopback = origin::is_loopback(origin::authority(&parts.headers, &parts.uri));
    let kept = cookie::Kept {
        name: COOKIE,
        path: COOKIE_PATH,
        seconds: if text.is_empty() {
            0
        } else {
            flow::LIFE_SECONDS.unsigned_abs()
        },
    };
    cookie::keep(&state.config.sign_in, kept, (text, is_loopback))
}

fn refused(text: &'static str) -> Failure {
    Failure::new(FailureCode::InsufficientScope, text)
}

fn away(arrival: &Arrival, problem: wire::Error) -> Failure {
    warn!(
        request.id = %arrival.request_id,
        error = &problem as &dyn std::error::Error,
        "nobody can sign in by the provider"
    );
    let text = "the provider cannot be asked at the moment";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(5)
}

fn not_exchanged(arrival: &Arrival, problem: wire::Error) -> Failure {
    match problem {
        wire::Error::Refused(status) if status.is_client_error() => {
            warn!(request.id = %arrival.request_id, status = status.as_u16(), "the provider takes a code back");
            refused("the provider does not take its code back: begin again")
        }
        problem => away(arrival, problem),
    }
}

fn not_good(arrival: &Arrival, wrong: Wrong) -> Failure {
    warn!(request.id = %arrival.request_id, wrong = wrong.word(), "the provider's token is not good");
    refused(match wrong {
        Wrong::Email => "the provider does not say that the address of mail is yours",
        _ => "the provider's token is not good",
    })
}
