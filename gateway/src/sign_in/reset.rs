//! Tokens with which a password may be chosen once: an administrator has one made for a member, and where mail is sent
//! whoever forgot his password. Where mail is sent they are mailed, and nobody but the member sees them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use schemas::account::email::Email;
use schemas::account::{Account, Reset, later};
use schemas::catalog::change::Author;
use schemas::digest::Digest;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{RequestId, TenantId, UserId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::answer::Done;
use super::attempts::{self, Of};
use super::errand::{self, Errand};
use super::mail::letter::{Occasion, Token};
use super::{Asked, accounts, audit, digest, invalid, login, member, on};
use crate::arrival::Arrival;
use crate::caller::{self, Caller};
use crate::manage::openapi::{Operation, Parameter};
use crate::manage::users::{self, Named};
use crate::manage::{Parameters, description, json, records, rights};
use crate::state::Shared;

/// How long a password may be chosen with a token, in seconds.
const LIFE_SECONDS: u64 = 86_400;
const KIND: &str = "reset";

/// Whose password is forgotten.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PasswordForgotten")]
pub(crate) struct Forgotten {
    /// The address of mail that he signs in by.
    email: String,
}

const FORGOTTEN_WANTED: &str = "expected email";

/// A token with which a member may choose a password once.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PasswordReset")]
pub(crate) struct Shown {
    /// Shown only now; null where it is mailed.
    token: Option<String>,
    /// Where it is mailed to; null where it is shown.
    mailed_to: Option<Arc<str>>,
    /// Until when it is good.
    expires_at: Timestamp,
}

/// A token that was made.
struct Issued {
    token: Token,
    /// Where its member is written to.
    email: Email,
    /// He has not chosen a password before.
    is_first: bool,
    expires_at: Timestamp,
}

pub(crate) const FORGET: Operation = Operation::ask::<Forgotten, Done>(
    "Mails a token with which a password may be chosen, to whoever has an account of the address",
)
.of_everybody()
.answering(202)
.failing(&[404, 429, 503]);
pub(crate) const RESET: Operation = Operation::find::<Shown>(
    "Makes a token with which a member may choose a password once, and mails it where mail is sent",
)
.answering(201)
.taking(&[
    Parameter::new::<TenantId>("tenant", "The tenant, where it is not the caller's own."),
    Parameter::new::<bool>("mail", "False shows the token although mail is sent."),
])
.failing(&[409, 503]);

/// Has a token mailed to whoever has an account of an address. Whether somebody has is looked up later: nothing of it
/// shows in the answer, nor in the time that it takes.
pub(crate) async fn forget(State(state): State<Shared>, arrival: Arrival, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        on(&state)?;
        if !state.sign_in.errands.sends_mail() {
            let text = "no mail is sent from here: whoever administers the account has a token made";
            return Err(Failure::new(FailureCode::NotFound, text));
        }
        let bytes = description::body(&state, &parts.headers, body).await?;
        let wanted: Forgotten = description::read(&bytes, FORGOTTEN_WANTED)?;
        let email = Email::parse(&wanted.email);
        let email = email.ok_or_else(|| invalid("email", "expected an address of mail"))?;
        caller::unblocked(&state, &arrival)?;
        let settings = &state.config.sign_in;
        attempts::count(
            &state,
            Of::Address(login::address(&arrival)),
            settings.logins_of_address,
        )
        .await?;
        attempts::count(&state, Of::Forgotten(&email), settings.logins_of_email).await?;
        errand::leave(&state, Errand::Forgotten(email, (&arrival).into()))
    };
    match done.await {
        Ok(()) => {
            let mut response = json(&Done {
                message: "if there is an account of that address, a letter is on its way to it",
            });
            *response.status_mut() = StatusCode::ACCEPTED;
            response
        }
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Makes the token of whoever forgot his password; `None` where nobody who may sign in has the address.
pub(super) async fn forgotten(
    state: &Shared,
    email: &Email,
    asked: Asked,
) -> Result<Option<Occasion>, Failure> {
    let Some(account) = accounts::by_email(state, email).await? else {
        return Ok(None);
    };
    let who = (&account.tenant, &account.user);
    member::known(state, who).await;
    if member::admitted(&state.ports.catalog.load(), &account).is_err() {
        return Ok(None);
    }
    let author = member::author(&account, "password-forgotten", asked);
    let issued = issue(state, who, (author, Before::Good)).await?;
    Ok(Some(Occasion::Forgotten(issued.token)))
}

/// Makes the token of whoever signed up.
pub(super) async fn first(
    state: &Shared,
    account: &Account,
    (waits, asked): (bool, Asked),
) -> Result<Occasion, Failure> {
    let author = member::author(account, "sign-up", asked);
    let Issued { token, .. } = issue(state, (&account.tenant, &account.user), (author, Before::Good)).await?;
    Ok(Occasion::SignedUp { token, waits })
}

/// Makes a token for a member whom the caller administers.
pub(crate) async fn reset(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    (id, given): Named,
    _body: Body,
) -> Response {
    let made = async {
        let (mail, given) = mailed(given)?;
        let (tenant, user) = users::of(&caller, (id, given))?;
        on(&state)?;
        let issued = token_for(&state, (&arrival, &caller), (&tenant, &user)).await?;
        handed_over(&state, issued, (mail, arrival.request_id))
    };
    match made.await {
        Ok(shown) => {
            let mut response = json(&shown);
            *response.status_mut() = StatusCode::CREATED;
            let headers = response.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response
        }
        Err(failure) => arrival.refuse_unread(&failure),
    }
}

/// Whether a token is to be mailed where mail is sent, and the other parameters.
fn mailed(given: Parameters) -> Result<(bool, Parameters), Failure> {
    let Ok(Query(all)) = given else {
        return Ok((true, given));
    };
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name == "mail");
    let mail = match own.last() {
        None => true,
        Some((_, value)) => value
            .parse()
            .map_err(|_| invalid("mail", "expected true or false"))?,
    };
    Ok((mail, Ok(Query(others))))
}

/// Mails a token to its member where mail is sent, or shows it to whoever had it made.
fn handed_over(state: &Shared, issued: Issued, (mail, request): (bool, RequestId)) -> Result<Shown, Failure> {
    let Issued {
        token,
        email,
        is_first,
        expires_at,
    } = issued;
    if !mail || !state.sign_in.errands.sends_mail() {
        return Ok(Shown {
            token: Some(token.reveal().to_owned()),
            mailed_to: None,
            expires_at,
        });
    }
    let mailed_to = Some(email.text());
    let occasion = if is_first {
        Occasion::Invited(token)
    } else {
        Occasion::Forgotten(token)
    };
    errand::leave(state, Errand::Letter(email, occasion, request))?;
    Ok(Shown {
        token: None,
        mailed_to,
        expires_at,
    })
}

async fn token_for(
    state: &Shared,
    (arrival, caller): (&Arrival, &Caller),
    (tenant, user): accounts::Who<'_>,
) -> Result<Issued, Failure> {
    let catalog = state.ports.catalog.load();
    let found = catalog.user(tenant, user).ok_or_else(records::nothing)?;
    rights::may_touch(caller, &catalog, (tenant, user))?;
    rights::may_let_in(caller, &catalog, found, "id")?;
    if accounts::of(state, (tenant, user)).await?.is_none() {
        let email = found.email.as_deref().and_then(Email::parse);
        let email =
            email.ok_or_else(|| invalid("email", "the member has no address of mail to sign in by"))?;
        let account = Account::new(tenant.clone(), user.clone(), email);
        accounts::create(state, &account, arrival.at).await?;
    }
    issue(state, (tenant, user), (caller.author(arrival), Before::Over)).await
}

/// What becomes of the tokens that a member was given before.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// They stay good: letters overtake one another, and whoever asked for two uses the one that comes.
    Good,
    /// They are good for nothing.
    Over,
}

/// Makes a token for a member who has an account.
async fn issue(
    state: &Shared,
    (tenant, user): accounts::Who<'_>,
    (author, before): (Author, Before),
) -> Result<Issued, Failure> {
    let secret = URL_SAFE_NO_PAD.encode(state.ports.mint.random::<32>());
    let token = format!("{tenant}.{}.{secret}", URL_SAFE_NO_PAD.encode(user.as_str()));
    let expires_at = later(author.at, LIFE_SECONDS);
    let reset = Reset {
        digest: digest_of(state, &token),
        ends_at: expires_at,
    };
    let with = |account: &Account| {
        Ok(Some(match before {
            Before::Good => account.with_another_reset(reset, author.at),
            Before::Over => account.with_reset(reset),
        }))
    };
    let written = accounts::change(state, (tenant, user), with).await?;
    audit::tell(state, &written, author, audit::What::Reset);
    let (account, _) = written;
    Ok(Issued {
        token: Token::new(token),
        is_first: account.password.is_none(),
        email: account.email,
        expires_at,
    })
}

/// What is kept of a token.
pub(super) fn digest_of(state: &Shared, token: &str) -> Digest {
    digest(state, KIND, token)
}

/// Whose password a token is for.
pub(super) fn member_of(token: &str) -> Option<(TenantId, UserId)> {
    let mut parts = token.split('.');
    let (tenant, user) = (parts.next()?, parts.next()?);
    let user = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?;
    Some((TenantId::parse(tenant)?, UserId::new(user)))
}
