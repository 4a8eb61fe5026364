//! Accounts in their bucket: read from wherever the newest is, and replaced by compare-and-set.

use std::time::Duration;

use bus::{BusError, Expected};
use bytes::Bytes;
use schemas::account::email::Email;
use schemas::account::{Account, Owner, account_key, email_key};
use schemas::catalog::user::{User, user_key};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{TenantId, UserId};
use schemas::subject::{ACCOUNT_BUCKET, account};
use schemas::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::idempotency::sha256;
use crate::manage::records;
use crate::state::Shared;

/// How long the bus may take over one operation.
const WITHIN: Duration = Duration::from_secs(4);
/// How long a change may take to come back.
const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How often is looked whether it has.
const SEEN_POLL: Duration = Duration::from_millis(2);
/// Times a change is decided anew after somebody else's.
const TRIES_MAX: usize = 8;
/// How long an address that was claimed for a member need not be his, in seconds.
const CLAIM_SECONDS: i64 = 60;

/// A member, by the names that accounts have.
pub(super) type Who<'a> = (&'a TenantId, &'a UserId);

/// What lies under a key, with its revision.
pub(super) async fn read<T: DeserializeOwned>(
    state: &Shared,
    key: &str,
) -> Result<Option<(T, u64)>, Failure> {
    let get = state.ports.kv.get(ACCOUNT_BUCKET, key);
    let Ok(Ok(found)) = timeout(WITHIN, get).await else {
        return Err(away());
    };
    let Some((value, revision)) = found.and_then(|entry| Some((entry.value?, entry.revision))) else {
        return Ok(None);
    };
    let record = serde_json::from_slice(&value).map_err(|_| unreadable())?;
    Ok(Some((record, revision)))
}

/// Puts a record; `None` where something else is there. Of a write of which nobody says what became of it, is looked
/// for what is there.
async fn put<T>(state: &Shared, key: &str, record: &T, expected: Expected) -> Result<Option<u64>, Failure>
where
    T: Serialize + DeserializeOwned + PartialEq,
{
    let value = serde_json::to_vec(record).map_err(|_| unreadable())?;
    let put = state
        .ports
        .kv
        .put(ACCOUNT_BUCKET, key, Bytes::from(value), expected);
    let conflict = match timeout(WITHIN, put).await {
        Ok(Ok(revision)) => return Ok(Some(revision)),
        Ok(Err(BusError::Conflict)) => true,
        Ok(Err(_)) | Err(_) => false,
    };
    match read::<T>(state, key).await? {
        // Nobody else writes the same: each write has a random id or a time in it.
        Some((found, revision)) if !conflict && found == *record => Ok(Some(revision)),
        _ if conflict => Ok(None),
        _ => Err(away()),
    }
}

/// A member's account.
pub(super) async fn of(state: &Shared, (tenant, user): Who<'_>) -> Result<Option<Account>, Failure> {
    let found = read::<Account>(state, &account_key(tenant, user)).await?;
    Ok(found.map(|(account, _)| account))
}

/// The account of an address of mail. An address that is nobody's takes as many reads as any other.
pub(super) async fn by_email(state: &Shared, email: &Email) -> Result<Option<Account>, Failure> {
    let owner = read::<Owner>(state, &place(email)).await?;
    let key = owner.map_or_else(
        || format!("{}-", account::ACCOUNT),
        |(owner, _)| account_key(&owner.tenant, &owner.user),
    );
    let found = read::<Account>(state, &key).await?;
    Ok(found
        .map(|(account, _)| account)
        .filter(|account| account.email == *email))
}

/// Makes an account. Its address of mail is nobody else's, then and afterwards.
pub(super) async fn create(state: &Shared, wanted: &Account, now: Timestamp) -> Result<(), Failure> {
    let who = (&wanted.tenant, &wanted.user);
    let is_new = claim(state, &wanted.email, who, now).await?;
    let Some(revision) = put(state, &wanted.key(), wanted, Expected::Absent).await? else {
        if is_new {
            release(state, &wanted.email, who).await;
        }
        let text = "the member has an account already";
        return Err(Failure::new(FailureCode::AlreadyExists, text));
    };
    // Whoever found the code for the first account is too late.
    withdraw_setup(state).await;
    seen(state, revision).await;
    Ok(())
}

/// Takes a member's account away, with its address of mail; where he has none nothing is done.
pub(super) async fn remove(state: &Shared, (tenant, user): Who<'_>) -> Result<(), Failure> {
    let key = account_key(tenant, user);
    for _ in 0..TRIES_MAX {
        let Some((account, revision)) = read::<Account>(state, &key).await? else {
            return Ok(());
        };
        let kv = &state.ports.kv;
        let delete = kv.delete(ACCOUNT_BUCKET, &key, Expected::Revision(revision));
        match timeout(WITHIN, delete).await {
            Ok(Ok(gone)) => {
                release(state, &account.email, (tenant, user)).await;
                seen(state, gone).await;
                return Ok(());
            }
            Ok(Err(BusError::Conflict)) => {}
            Ok(Err(_)) | Err(_) => return Err(away()),
        }
    }
    Err(raced())
}

/// Changes an account to what `decide` makes of it; `None` leaves it.
pub(super) async fn change(
    state: &Shared,
    (tenant, user): Who<'_>,
    mut decide: impl FnMut(&Account) -> Result<Option<Account>, Failure>,
) -> Result<(Account, u64), Failure> {
    let key = account_key(tenant, user);
    for _ in 0..TRIES_MAX {
        let Some((found, revision)) = read::<Account>(state, &key).await? else {
            return Err(nobody());
        };
        let Some(wanted) = decide(&found)? else {
            return Ok((found, revision));
        };
        if let Some(revision) = put(state, &key, &wanted, Expected::Revision(revision)).await? {
            seen(state, revision).await;
            return Ok((wanted, revision));
        }
    }
    Err(raced())
}

/// Gives an account another address of mail.
pub(super) async fn move_to(
    state: &Shared,
    who: Who<'_>,
    email: &Email,
    now: Timestamp,
) -> Result<(), Failure> {
    claim(state, email, who, now).await?;
    let mut before = None;
    change(state, who, |account| {
        before = Some(account.email.clone());
        Ok((account.email != *email).then(|| account.with_email(email.clone())))
    })
    .await?;
    if let Some(before) = before.filter(|before| before != email) {
        let key = place(&before);
        let delete = state.ports.kv.delete(ACCOUNT_BUCKET, &key, Expected::Any);
        // An address that is not let go leads to an account that has another: whoever wants it gets it.
        let _ = timeout(WITHIN, delete).await;
    }
    Ok(())
}

/// Refuses an address of mail that is another member's, by what the catalogue knows.
pub(super) async fn nobody_elses(state: &Shared, email: &Email, who: Who<'_>) -> Result<(), Failure> {
    let catalog = state.ports.catalog.load();
    for member in catalog.members_of_address(email) {
        let theirs = (&member.tenant, &member.id);
        // He may have given it up a moment ago.
        if theirs != who && has(state, theirs, email).await? {
            return Err(taken());
        }
    }
    Ok(())
}

/// True for a member whose address of mail it is, as his record is written now.
async fn has(state: &Shared, who: Who<'_>, email: &Email) -> Result<bool, Failure> {
    let own = member(state, who).await?.and_then(|member| member.email);
    Ok(own.is_some_and(|own| email.is(&own)))
}

/// True where there is no member of that id, as far as is written now.
pub(super) async fn is_nobodys(state: &Shared, who: Who<'_>) -> Result<bool, Failure> {
    Ok(member(state, who).await?.is_none())
}

/// A member as his record is written now.
async fn member(state: &Shared, (tenant, user): Who<'_>) -> Result<Option<User>, Failure> {
    let found = records::read::<User>(state, &user_key(tenant, user)).await?;
    Ok(found.map(|(kept, _)| kept.record))
}

/// Makes an address of mail a member's, if it is nobody else's. True where it was not his before.
pub(super) async fn claim(
    state: &Shared,
    email: &Email,
    (tenant, user): Who<'_>,
    now: Timestamp,
) -> Result<bool, Failure> {
    nobody_elses(state, email, (tenant, user)).await?;
    let key = place(email);
    let wanted = Owner {
        tenant: tenant.clone(),
        user: user.clone(),
        at: now,
    };
    let is_fresh = |owner: &Owner| now.micros() - owner.at.micros() < CLAIM_SECONDS * 1_000_000;
    let (mut expected, mut is_new) = (Expected::Absent, true);
    for _ in 0..TRIES_MAX {
        if put(state, &key, &wanted, expected).await?.is_some() {
            return Ok(is_new);
        }
        let Some((owner, revision)) = read::<Owner>(state, &key).await? else {
            (expected, is_new) = (Expected::Absent, true);
            continue;
        };
        let theirs = (&owner.tenant, &owner.user);
        is_new = theirs != (tenant, user);
        match (is_new, is_fresh(&owner)) {
            (false, true) => return Ok(false),
            (true, true) => return Err(taken()),
            (true, false) if is_of(state, theirs, email).await? => return Err(taken()),
            // What he has he claims anew: it may be changed back to a moment later.
            (_, false) => expected = Expected::Revision(revision),
        }
    }
    Err(taken())
}

/// True for a member who signs in by an address of mail, or is written to there.
async fn is_of(state: &Shared, who: Who<'_>, email: &Email) -> Result<bool, Failure> {
    let account = of(state, who).await?;
    Ok(account.is_some_and(|account| account.email == *email) || has(state, who, email).await?)
}

/// Lets go of an address of mail that was claimed for a member who does not get it after all.
pub(super) async fn release(state: &Shared, email: &Email, (tenant, user): Who<'_>) {
    let key = place(email);
    let Ok(Some((owner, revision))) = read::<Owner>(state, &key).await else {
        return;
    };
    if (&owner.tenant, &owner.user) == (tenant, user) {
        let kv = &state.ports.kv;
        // What is left holds the address for a minute.
        let _ = timeout(
            WITHIN,
            kv.delete(ACCOUNT_BUCKET, &key, Expected::Revision(revision)),
        )
        .await;
    }
}

/// The code for the first account is good for nothing once there is an account.
pub(super) async fn withdraw_setup(state: &Shared) {
    let delete = state
        .ports
        .kv
        .delete(ACCOUNT_BUCKET, account::SETUP, Expected::Any);
    // It ends by itself, too.
    let _ = timeout(WITHIN, delete).await;
}

/// Waits until this node knows of a change.
async fn seen(state: &Shared, revision: u64) {
    let seen = async {
        while state.sign_in.followed.revision() < revision {
            sleep(SEEN_POLL).await;
        }
    };
    // Written it is in any case; a slow watch only delays when it counts here.
    let _ = timeout(SEEN_WITHIN, seen).await;
}

fn place(email: &Email) -> String {
    email_key(sha256(&[email.as_str().as_bytes()]))
}

pub(super) fn taken() -> Failure {
    let text = "the address of mail is a member's already";
    Failure::new(FailureCode::AlreadyExists, text).param("email")
}

fn raced() -> Failure {
    let text = "the account was changed by somebody else: try again";
    Failure::new(FailureCode::Conflict, text)
}

fn nobody() -> Failure {
    Failure::new(FailureCode::NotFound, "there is no such account")
}

fn unreadable() -> Failure {
    Failure::new(FailureCode::Internal, "the account cannot be read")
}

pub(super) fn away() -> Failure {
    let text = "accounts cannot be read or changed at the moment";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(2)
}
