//! How people sign in: by an address of mail and a password to a session, which is an access token of some minutes and
//! a cookie that gives the next one. What is kept of it lies in buckets that only gateways read, so that any node signs
//! in whoever another one knows, and signs out for all.
//!
//! ```text
//! setup · sign-up · login ─► attempts (counted first) ─► accounts ─► answer: access token + cookie
//! oidc                    ─► cookie + state (once)    ─► provider ─► accounts ─► answer
//! forgotten · sign-up     ─► errand (queue)           ─► accounts ─► mail
//! refresh · logout        ─► cookie + origin          ─► accounts   (each token once)
//! every other call        ─► caller::session          ─► follow     (which sessions are open)
//! changes of members      ─► turn                     ─► accounts   (addresses, and who is out)
//! ```

use http::HeaderMap;
use schemas::failure::{Failure, FailureCode};
use schemas::id::RequestId;
use schemas::time::Timestamp;

use crate::arrival::Arrival;
use crate::caller::{self, Presented};
use crate::config::Config;
use crate::state::{Shared, State};

mod accounts;
mod answer;
pub(crate) mod attempts;
mod audit;
mod cookie;
pub(crate) mod errand;
mod follow;
mod hashing;
pub(crate) mod login;
pub mod mail;
pub(crate) mod me;
pub(crate) mod member;
pub mod oidc;
pub(crate) mod origin;
pub(crate) mod password;
pub(crate) mod refresh;
pub(crate) mod reset;
pub mod settings;
pub mod setup;
pub(crate) mod sign_up;
pub(crate) mod token;
pub(crate) mod turn;

pub(crate) use follow::run;

use errand::Errands;
use follow::Followed;
use hashing::Hasher;
use oidc::Oidc;
use token::Signer;

/// What a gateway has to sign people in.
pub(crate) struct SignIn {
    /// Signs tokens; `None` where nobody signs in.
    pub(crate) signer: Option<Signer>,
    pub(crate) hasher: Hasher,
    pub(crate) followed: Followed,
    pub(crate) errands: Errands,
    /// Asks the provider of identities; `None` where there is none.
    pub(crate) oidc: Option<Oidc>,
}

/// Which request wants something, and since when.
#[derive(Debug, Clone, Copy)]
struct Asked {
    id: RequestId,
    at: Timestamp,
}

impl From<&Arrival> for Asked {
    fn from(arrival: &Arrival) -> Self {
        Self {
            id: arrival.request_id,
            at: arrival.at,
        }
    }
}

impl SignIn {
    pub(crate) fn new(config: &Config) -> Self {
        let secret = config.sign_in.secret.as_ref();
        Self {
            signer: secret.map(|secret| Signer::new(secret.reveal(), &config.cluster)),
            hasher: Hasher::default(),
            followed: Followed::default(),
            errands: Errands::new(&config.sign_in),
            oidc: config.sign_in.oidc.as_ref().and_then(|_| Oidc::new()),
        }
    }
}

/// True for a session that the account has, as it is written now.
pub(crate) async fn is_open(
    state: &Shared,
    who: accounts::Who<'_>,
    session: &str,
    now: Timestamp,
) -> Result<bool, Failure> {
    let account = accounts::of(state, who).await?;
    Ok(account.is_some_and(|account| account.session(session, now).is_some()))
}

/// True where whoever comes is an administrator: on a node that says so, reached by a name of its own machine, and by no
/// page of another site.
pub(crate) fn asks_nobody(state: &State, request: Presented<'_>) -> bool {
    let settings = &state.config.sign_in;
    let Presented { headers, authority } = request;
    let is_here = settings.insecure || origin::is_loopback(authority);
    !settings.required && is_here && !is_of_another_page(state, headers, authority)
}

fn is_of_another_page(state: &State, headers: &HeaderMap, authority: Option<&str>) -> bool {
    let from = origin::of(headers, authority, &state.cors_origins);
    from == origin::From::Elsewhere
}

/// What signs tokens, where people can sign in at all.
fn on(state: &State) -> Result<&Signer, Failure> {
    let text = "nobody can sign in here: the node has no JWT_SECRET_KEY";
    let off = || Failure::new(FailureCode::NotFound, text);
    state.sign_in.signer.as_ref().ok_or_else(off)
}

fn wrong_password() -> Failure {
    let text = "the address of mail or the password is wrong";
    Failure::new(FailureCode::WrongPassword, text)
}

/// The same of whoever signs in. Nobody learns by it that an account waits for approval: that would tell addresses that
/// were nobody's from others, to whoever signs up with them.
fn not_let_in() -> Failure {
    let text = "the address of mail or the password is wrong, or the account waits for approval";
    Failure::new(FailureCode::WrongPassword, text)
}

fn invalid(param: &'static str, text: &'static str) -> Failure {
    Failure::new(FailureCode::InvalidRequest, text).param(param)
}

/// The digest of a code or token that is shown once.
fn digest(state: &State, kind: &str, text: &str) -> schemas::digest::Digest {
    schemas::digest::Digest(state.doorkeeper.digest(&format!("{kind} {text}")))
}

/// The same for a node that has no gateway yet.
fn digest_under(secret: &[u8], kind: &str, text: &str) -> schemas::digest::Digest {
    schemas::digest::Digest(caller::digest(secret, &format!("{kind} {text}")))
}
