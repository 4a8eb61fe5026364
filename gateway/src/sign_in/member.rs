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
use schemas::id::{KeyId, RequestId, TenantId, UserId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::errand::{self, Errand};
use super::mail::letter::Occasion;
use super::{Asked, accounts, hashing, invalid, on};
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
pub(super) async fn make(state: &Shared, new: New, (by, asked): (&str, Asked)) -> Result<(), Failure> {
    let New {
        account,
        name,
        role,
        disabled,
    } = new;
    accounts::create(state, &account, asked.at).await?;
    let user = User {
        name,
        email: Some(account.email.text()),
        role: Some(role),
        // Operators say who may sign up, and as what.
        granted: Some(role),
        disabled,
        created_at: Some(asked.at),
        ..User::new(account.tenant.clone(), account.user.clone(), Origin::Runtime)
    };
    let made = records::create(state, &place(&account), user, None, author(&account, by, asked)).await;
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
pub(super) fn author(account: &Account, by: &str, asked: Asked) -> Author {
    Author {
        id: asked.id,
        at: asked.at,
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

/// True for whoever signed up and is not let in yet.
pub(super) fn waits(catalog: &Catalog, account: &Account) -> bool {
    let member = catalog.user(&account.tenant, &account.user);
    account.is_new && member.is_some_and(|member| member.disabled)
}

/// What an administrator says of signing in when he makes a member, whose address of mail it is from then on.
pub(crate) struct Credentials {
    email: Held,
    password: Hash,
}

/// An address of mail that is held for a member until it is his, so that of two who are to have it one is refused before
/// anything is made or changed.
pub(crate) struct Held {
    email: Email,
    /// It was not his before.
    is_new: bool,
}

/// Checks what a new member is to sign in by, and holds it for him: an address of mail that is nobody's, and a password.
pub(crate) async fn credentials(
    state: &Shared,
    user: &User,
    password: Option<Secret<String>>,
    now: Timestamp,
) -> Result<Option<Credentials>, Failure> {
    let Some(password) = password else {
        return Ok(None);
    };
    on(state)?;
    let email = user.email.as_deref().and_then(Email::parse);
    let email = email.ok_or_else(|| invalid("email", "a member signs in by his address of mail"))?;
    hashing::acceptable(&password, email.as_str(), "password")?;
    let password = state
        .sign_in
        .hasher
        .hash(password, state.ports.mint.random())
        .await?;
    let email = hold(state, email, (&user.tenant, &user.id), now).await?;
    Ok(Some(Credentials { email, password }))
}

async fn hold(state: &Shared, email: Email, who: accounts::Who<'_>, now: Timestamp) -> Result<Held, Failure> {
    let is_new = accounts::claim(state, &email, who, now).await?;
    Ok(Held { email, is_new })
}

/// Lets go of what was held for a member who is not made, or not changed.
pub(crate) async fn let_go(state: &Shared, held: Option<Held>, who: accounts::Who<'_>) {
    if let Some(held) = held.filter(|held| held.is_new) {
        accounts::release(state, &held.email, who).await;
    }
}

/// Makes the account of a member who was made; one that he has stays as it is, since the call may come again.
pub(crate) async fn give_account(
    state: &Shared,
    user: &User,
    credentials: Option<Credentials>,
    now: Timestamp,
) -> Result<(), Failure> {
    let Some(Credentials { email, password }) = credentials else {
        return Ok(());
    };
    let who = (&user.tenant, &user.id);
    if accounts::of(state, who).await?.is_some() {
        return Ok(());
    }
    let mut account = Account::new(user.tenant.clone(), user.id.clone(), email.email);
    account.password = Some(password);
    accounts::create(state, &account, now).await
}

impl Credentials {
    /// What is held for a member who is not made.
    pub(crate) fn into_held(self) -> Held {
        self.email
    }
}

/// True for a member who has an account, where there is signing in at all.
pub(crate) async fn signs_in(state: &Shared, who: accounts::Who<'_>) -> Result<bool, Failure> {
    Ok(state.sign_in.signer.is_some() && accounts::of(state, who).await?.is_some())
}

/// Holds an address of mail for a member who signs in by it from now on. Refuses one by which somebody else signs in, and
/// none for whoever signs in by one.
pub(crate) async fn may_have(
    state: &Shared,
    who: accounts::Who<'_>,
    email: Option<&str>,
    now: Timestamp,
) -> Result<Option<Held>, Failure> {
    if !signs_in(state, who).await? {
        return Ok(None);
    }
    let email = email.and_then(Email::parse);
    let email = email.ok_or_else(|| invalid("email", "the member signs in by his address of mail"))?;
    hold(state, email, who, now).await.map(Some)
}

/// Tells a member whom an administrator lets in, if he signed up himself and waited for it.
pub(crate) async fn let_in(state: &Shared, member: &User, request: RequestId) {
    if !state.sign_in.errands.sends_mail() {
        return;
    }
    // He is let in all the same if nobody can tell him.
    let account = accounts::of(state, (&member.tenant, &member.id)).await;
    if let Some(account) = account.ok().flatten().filter(|account| account.is_new) {
        let _ = errand::leave(state, Errand::Letter(account.email, Occasion::Approved, request));
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
