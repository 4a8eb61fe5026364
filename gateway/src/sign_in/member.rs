//! Accounts and members: who may sign in, and how both are made together.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::account::email::Email;
use schemas::account::{Account, Hash};
use schemas::catalog::change::{Actor, Author};
use schemas::catalog::user::{User, user_key};
use schemas::catalog::{Catalog, Origin, Role};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{KeyId, TenantId, UserId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::{accounts, hashing, invalid, on};
use crate::arrival::Arrival;
use crate::manage::records::{self, Place};
use crate::state::Shared;

/// How long a member may take to be known on a node that did not make him.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);
/// How often is looked whether he is.
const KNOWN_POLL: Duration = Duration::from_millis(5);

/// A member and his account, both to be made.
pub(super) struct New {
    pub(super) account: Account,
    pub(super) name: Option<Arc<str>>,
    pub(super) role: Role,
    /// He may not sign in before an administrator enables him.
    pub(super) disabled: bool,
}

/// An account of a fresh member.
pub(super) fn fresh(state: &Shared, tenant: &TenantId, email: Email) -> Account {
    let id = URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>());
    Account::new(tenant.clone(), UserId::new(format!("user-{id}")), email)
}

/// Makes a member and his account. `by` is what he is called by whom the history tells of who made him.
pub(super) async fn make(state: &Shared, new: New, (by, arrival): (&str, &Arrival)) -> Result<(), Failure> {
    let New {
        account,
        name,
        role,
        disabled,
    } = new;
    accounts::create(state, &account, arrival.at).await?;
    let user = User {
        name,
        email: Some(account.email.text()),
        role: Some(role),
        disabled,
        created_at: Some(arrival.at),
        ..User::new(account.tenant.clone(), account.user.clone(), Origin::Runtime)
    };
    let made = records::create(state, &place(&account), user, None, author(&account, by, arrival)).await;
    if made.is_err() {
        accounts::undo(state, &account).await;
    }
    made.map(drop)
}

fn place(account: &Account) -> Place {
    Place {
        kind: Kind::User,
        key: user_key(&account.tenant, &account.user),
        tenant: account.tenant.clone(),
        id: Arc::clone(&account.user.0),
    }
}

/// A member as the author of what he does without a credential.
pub(super) fn author(account: &Account, by: &str, arrival: &Arrival) -> Author {
    Author {
        id: arrival.request_id,
        at: arrival.at,
        actor: Actor {
            tenant: account.tenant.clone(),
            user: Some(account.user.clone()),
            key_id: KeyId::from(by),
            key_name: by.into(),
        },
    }
}

/// Waits until this node's catalogue has a member whom another node made a moment ago.
pub(crate) async fn known(state: &Shared, (tenant, user): accounts::Who<'_>) {
    let known = async {
        while state.ports.catalog.peek().user(tenant, user).is_none() {
            sleep(KNOWN_POLL).await;
        }
    };
    // Whoever is not known by then is nobody.
    let _ = timeout(KNOWN_WITHIN, known).await;
}

/// Refuses whoever may not sign in although his password is right.
pub(super) fn admitted(catalog: &Catalog, account: &Account) -> Result<(), Failure> {
    let refused = |text| Err(Failure::new(FailureCode::InsufficientScope, text));
    let tenant = catalog.tenant(&account.tenant);
    match catalog.user(&account.tenant, &account.user) {
        None => refused("the account has no member any more"),
        Some(member) if member.disabled && account.is_new => {
            refused("the account waits for the approval of an administrator")
        }
        Some(member) if member.disabled => refused("the account is disabled"),
        Some(_) if tenant.is_none_or(|tenant| tenant.disabled) => refused("the account's tenant is disabled"),
        Some(_) => Ok(()),
    }
}

/// What an administrator says of signing in when he makes a member.
pub(crate) struct Credentials(Email, Hash);

/// Checks what a new member is to sign in by: an address of mail that is nobody's, and a password.
pub(crate) async fn credentials(
    state: &Shared,
    user: &User,
    password: Option<Secret<String>>,
) -> Result<Option<Credentials>, Failure> {
    let Some(password) = password else {
        return Ok(None);
    };
    on(state)?;
    let email = user.email.as_deref().and_then(Email::parse);
    let email = email.ok_or_else(|| invalid("email", "a member signs in by his address of mail"))?;
    hashing::acceptable(&password, email.as_str(), "password")?;
    free(state, &email, (&user.tenant, &user.id)).await?;
    let hash = state
        .sign_in
        .hasher
        .hash(password, state.ports.mint.random())
        .await?;
    Ok(Some(Credentials(email, hash)))
}

/// Makes the account of a member who was made; one that he has stays as it is, since the call may come again.
pub(crate) async fn give_account(
    state: &Shared,
    user: &User,
    credentials: Option<Credentials>,
    now: Timestamp,
) -> Result<(), Failure> {
    let Some(Credentials(email, hash)) = credentials else {
        return Ok(());
    };
    if accounts::of(state, (&user.tenant, &user.id)).await?.is_some() {
        return Ok(());
    }
    let mut account = Account::new(user.tenant.clone(), user.id.clone(), email);
    account.password = Some(hash);
    accounts::create(state, &account, now).await
}

/// True for a member who has an account, where there is signing in at all.
pub(crate) async fn signs_in(state: &Shared, who: accounts::Who<'_>) -> Result<bool, Failure> {
    Ok(state.sign_in.signer.is_some() && accounts::of(state, who).await?.is_some())
}

/// Refuses an address of mail by which somebody else signs in, and none for whoever signs in by one.
pub(crate) async fn may_have(
    state: &Shared,
    who: accounts::Who<'_>,
    email: Option<&str>,
) -> Result<(), Failure> {
    if !signs_in(state, who).await? {
        return Ok(());
    }
    let email = email.and_then(Email::parse);
    let email = email.ok_or_else(|| invalid("email", "the member signs in by his address of mail"))?;
    free(state, &email, who).await
}

async fn free(state: &Shared, email: &Email, (tenant, user): accounts::Who<'_>) -> Result<(), Failure> {
    match accounts::by_email(state, email).await? {
        Some(theirs) if (&theirs.tenant, &theirs.user) != (tenant, user) => Err(accounts::taken()),
        _ => Ok(()),
    }
}

/// Has an account follow its member: another address of mail, and no session of whoever is disabled.
pub(crate) async fn follow(state: &Shared, member: &User, now: Timestamp) -> Result<(), Failure> {
    if state.sign_in.signer.is_none() {
        return Ok(());
    }
    let who = (&member.tenant, &member.id);
    let Some(account) = accounts::of(state, who).await? else {
        return Ok(());
    };
    if member.disabled && !account.sessions.is_empty() {
        let out = |account: &Account| {
            Ok(Some(Account {
                sessions: Vec::new(),
                ..account.clone()
            }))
        };
        accounts::change(state, who, out).await?;
    }
    match member.email.as_deref().and_then(Email::parse) {
        Some(email) if email != account.email => accounts::move_to(state, who, &email, now).await,
        _ => Ok(()),
    }
}

/// A body of which a digest may be kept: without its password, which could be found by one.
pub(crate) fn without_password(bytes: &[u8]) -> Vec<u8> {
    let Ok(mut body) = serde_json::from_slice::<Map<String, Value>>(bytes) else {
        return bytes.to_vec();
    };
    match body.remove("password") {
        Some(_) => serde_json::to_vec(&body).unwrap_or_default(),
        None => bytes.to_vec(),
    }
}
