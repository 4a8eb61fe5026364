//! The first account: made with a code that a node prints at its start, once in a day and only while there is no
//! account. The code makes an operator and is good once.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bus::mint::Mint;
use bus::{BusError, Change, Expected, Kv};
use http::StatusCode;
use http::request::Parts;
use schemars::JsonSchema;
use schemas::account::email::Email;
use schemas::account::{Account, Setup, owner_of_key};
use schemas::catalog::Role;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::secret::Secret;
use schemas::subject::{ACCOUNT_BUCKET, account};
use serde::Deserialize;
use tokio::time::timeout;

use super::answer::SignedIn;
use super::attempts::{self, Of};
use super::member::New;
use super::{accounts, answer, digest, digest_under, hashing, invalid, login, member, on};
use crate::arrival::Arrival;
use crate::caller;
use crate::manage::description;
use crate::manage::openapi::Operation;
use crate::state::Shared;

/// How long a code is good.
const LIFE: Duration = Duration::from_hours(24);
/// How long the bus may take over one operation.
const WITHIN: Duration = Duration::from_secs(10);
const KIND: &str = "setup";

/// Who wants to make the first account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FirstAccount")]
pub(crate) struct Wanted {
    /// The code that a node printed at its start.
    #[schemars(with = "String")]
    code: Secret<String>,
    /// The address of mail to sign in by.
    email: String,
    /// The password, of 8 to 256 characters.
    #[schemars(with = "String")]
    password: Secret<String>,
    /// A name that people read.
    #[serde(default)]
    name: Option<String>,
}

const WANTED: &str = "expected code, email, password and, optionally, name";

pub(crate) const SETUP: Operation = Operation::ask::<Wanted, SignedIn>(
    "Makes the first account, of an operator, with the code that a node printed",
)
.of_everybody()
.answering(201)
.failing(&[401, 404, 409, 429, 503]);

/// Makes a code where there is no account and no code. `None` where there is either. `secret` is the one that keys are
/// known by.
pub async fn offer(kv: &dyn Kv, secret: &[u8], mint: &Mint) -> Result<Option<String>, BusError> {
    let has_account = timeout(WITHIN, has_account(kv)).await;
    if has_account.unwrap_or(Err(BusError::Timeout))? {
        return Ok(None);
    }
    let code = URL_SAFE_NO_PAD.encode(mint.random::<18>());
    let record = Setup {
        digest: digest_under(secret, KIND, &code),
    };
    let value = serde_json::to_vec(&record).unwrap_or_default();
    let place = (ACCOUNT_BUCKET, account::SETUP);
    match kv.put_for(place, value.into(), Expected::Absent, LIFE).await {
        Ok(_) => Ok(Some(code)),
        Err(BusError::Conflict) => Ok(None),
        Err(problem) => Err(problem),
    }
}

async fn has_account(kv: &dyn Kv) -> Result<bool, BusError> {
    let mut changes = kv.watch(ACCOUNT_BUCKET).await?;
    while let Some(change) = changes.recv().await {
        match change {
            Change::Entry(entry) if entry.value.is_some() && owner_of_key(&entry.key).is_some() => {
                return Ok(true);
            }
            Change::Entry(_) => {}
            Change::Current => return Ok(false),
        }
    }
    Err(BusError::Timeout)
}

/// Makes the first account, and signs it in.
pub(crate) async fn create(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        on(&state)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted = description::read(&bytes, WANTED)?;
        made(&state, (&arrival, &parts), wanted).await
    };
    match done.await {
        Ok(response) => response,
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn made(
    state: &Shared,
    (arrival, parts): (&Arrival, &Parts),
    wanted: Wanted,
) -> Result<Response, Failure> {
    caller::unblocked(state, arrival)?;
    let allowance = state.config.sign_in.logins_of_address;
    attempts::count(state, Of::Address(login::address(arrival)), allowance).await?;
    let email = Email::parse(&wanted.email).ok_or_else(|| invalid("email", "expected an address of mail"))?;
    hashing::acceptable(&wanted.password, email.as_str(), "password")?;
    let name = wanted.name.map(description::name).transpose()?;
    let mut account = member::fresh(state, &TenantId::from(DEFAULT_TENANT), email);
    take(state, arrival, (wanted.code.reveal(), &account)).await?;
    let salt = state.ports.mint.random();
    let password = state.sign_in.hasher.hash(wanted.password, salt).await?;
    account.password = Some(password);
    let new = New {
        account: account.clone(),
        name,
        role: Role::Operator,
        disabled: false,
    };
    member::make(state, new, ("setup", arrival.into())).await?;
    answer::open(state, &account, parts, (StatusCode::CREATED, arrival.at)).await
}

/// Takes the code, which nobody has after that. It is kept where the account cannot be made.
async fn take(state: &Shared, arrival: &Arrival, (code, account): (&str, &Account)) -> Result<(), Failure> {
    let wrong = || {
        caller::failed(state, arrival);
        let text = "the code is not good: a node prints one at its start while there is no account";
        Failure::new(FailureCode::WrongPassword, text).param("code")
    };
    let found = accounts::read::<Setup>(state, account::SETUP).await?;
    let (setup, revision) = found.ok_or_else(wrong)?;
    if setup.digest != digest(state, KIND, code) {
        return Err(wrong());
    }
    accounts::nobody_elses(state, &account.email, (&account.tenant, &account.user)).await?;
    let kv = &state.ports.kv;
    let taken = kv.delete(ACCOUNT_BUCKET, account::SETUP, Expected::Revision(revision));
    match timeout(WITHIN, taken).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(BusError::Conflict)) => Err(wrong()),
        Ok(Err(_)) | Err(_) => Err(accounts::away()),
    }
}
