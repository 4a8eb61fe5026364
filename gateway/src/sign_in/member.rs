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
        // What is left opens nothing: it is of no member.
        let _ = accounts::remove(state, (&account.tenant, &account.user)).await;
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

/// True for a member who may sign in, as far as he and his tenant are concerned.
pub(super) fn may_enter(catalog: &Catalog, member: &User) -> bool {
    let tenant = catalog.tenant(&member.tenant);
    !member.disabled && tenant.is_some_and(|tenant| !tenant.disabled)
}

/// Refuses whoever may not sign in although his password is right.
pub(super) fn admitted(catalog: &Catalog, account: &Account) -> Result<(), Failure> {
    let refused = |text| Err(Failure::new(FailureCode::InsufficientScope, text));
    match catalog.user(&account.tenant, &account.user) {
        None => refused("the account has no member any more"),
        Some(member) if member.disabled && account.is_new => {
            refused("the account waits for the approval of an administrator")
        }
        Some(member) if member.disabled => refused("the account is disabled"),
        Some(member) if member.email.is_none() => {
            refused("the account's member has no address of mail any more")
        }
        Some(member) if !may_enter(catalog, member) => refused("the account's tenant is disabled"),
        Some(_) => Ok(()),
    }
}

/// The member whose address of mail it is; of several, which were made before addresses were one member's, one of the
/// tenant, and always the same.
pub(super) fn of_address(catalog: &Catalog, email: &Email, tenant: &TenantId) -> Option<User> {
    let members = catalog.members_of_address(email);
    let first = members.min_by_key(|member| (member.tenant != *tenant, &member.tenant, &member.id));
    first.cloned()
}

/// The account of a member who has an address and came to it by showing that it is his: one without a password.
pub(super) fn of_member(member: &User, email: Email) -> Account {
    Account::new(member.tenant.clone(), member.id.clone(), email)
}

/// True for whoever signed up and is not let in yet.
pub(super) fn waits(catalog: &Catalog, account: &Account) -> bool {
    let member = catalog.user(&account.tenant, &account.user);
    account.is_new && member.is_some_and(|member| member.disabled)
}

/// What a new member is to sign in by, as it is kept. He needs an address of mail for it.
pub(crate) async fn password(
    state: &Shared,
    user: &User,
    password: Option<Secret<String>>,
) -> Result<Option<Hash>, Failure> {
    let Some(password) = password else {
        return Ok(None);
    };
    on(state)?;
    let email = user.email.as_deref().and_then(Email::parse);
    let email = email.ok_or_else(|| invalid("email", "a member signs in by his address of mail"))?;
    hashing::acceptable(&password, email.as_str(), "password")?;
    let salt = state.ports.mint.random();
    state.sign_in.hasher.hash(password, salt).await.map(Some)
}

/// Makes the account of a member who was made; one that he has stays as it is, since the call may come again.
pub(crate) async fn give_account(
    state: &Shared,
    user: &User,
    password: Option<Hash>,
    now: Timestamp,
) -> Result<(), Failure> {
    let email = user.email.as_deref().and_then(Email::parse);
    let (Some(password), Some(email)) = (password, email) else {
        return Ok(());
    };
    if accounts::of(state, (&user.tenant, &user.id)).await?.is_some() {
        return Ok(());
    }
    let mut account = Account::new(user.tenant.clone(), user.id.clone(), email);
    account.password = Some(password);
    accounts::create(state, &account, now).await
}

/// True for a member who has an account, where there is signing in at all.
pub(crate) async fn signs_in(state: &Shared, who: accounts::Who<'_>) -> Result<bool, Failure> {
    Ok(state.sign_in.signer.is_some() && accounts::of(state, who).await?.is_some())
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
