//! What keys of members, keys of endpoints and grants have in common: a secret that is shown once, an id under which
//! lie the records of all secrets it ever had, and a mark instead of a deletion.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, StatusCode};
use schemas::catalog::change::Author;
use schemas::catalog::grant::{self, Reach, credential_key};
use schemas::catalog::{Catalog, Key, KeyDigest, Origin, Stored};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::records::{self, History, Match, Place, Written};
use super::{creation, json};
use crate::caller::Caller;
use crate::key;
use crate::state::Shared;

/// How long a call that is repeated waits for what the first one makes.
const MADE_WITHIN: Duration = Duration::from_secs(2);
/// How often is looked whether it is there.
const MADE_POLL: Duration = Duration::from_millis(10);

/// What came of a call that mints.
pub(super) struct Minted {
    /// The record.
    pub(super) key: Key,
    /// With which revision it lies there.
    pub(super) revision: u64,
    /// The secret, which is nowhere else; `None` where an earlier call with the same key minted it.
    pub(super) secret: Option<String>,
}

impl Minted {
    /// The answer to the call that made it.
    pub(super) fn answer<S: Serialize>(&self, shown: &S) -> Response {
        let mut response = records::shown(shown, self.revision);
        *response.status_mut() = StatusCode::CREATED;
        if self.secret.is_none() {
            creation::mark_repeated(&mut response);
        }
        response
    }
}

/// Mints a credential: `wanted` says all of it but its id, its secret and what is shown of that.
pub(super) async fn mint(
    state: &Shared,
    caller: &Caller,
    (headers, path, body): (&HeaderMap, &str, &[u8]),
    wanted: Key,
    author: Author,
) -> Result<Minted, Failure> {
    let fresh = key::mint_id(&state.ports.mint, &wanted.reach);
    let bound = creation::begin(state, caller, headers, (path, body), Arc::clone(&fresh.0)).await?;
    let (id, made) = (bound.id, bound.made);
    if id != fresh.0
        && let Some(before) = made_before(state, &wanted.reach, &id).await
    {
        return Ok(before);
    }
    let secret = key::mint_as(&state.ports.mint, &wanted.reach);
    let record = Key {
        id: schemas::id::KeyId(id),
        prefix: key::shown(&secret).into(),
        ..wanted
    };
    let place = place(&state.doorkeeper.digest(&secret), &record);
    let written = records::create(state, &place, record, made, author).await?;
    Ok(Minted {
        key: written.record,
        revision: written.revision,
        secret: Some(secret),
    })
}

/// What an earlier call made under this id; `None` where that call ended before it did.
async fn made_before(state: &Shared, reach: &Reach, id: &str) -> Option<Minted> {
    let kind = grant::Kind::of(reach);
    let found = async {
        loop {
            if let Some((_, stored)) = state.ports.catalog.load().key_of_id(kind, id) {
                return Minted {
                    key: Key::clone(&stored.record),
                    revision: stored.revision,
                    secret: None,
                };
            }
            sleep(MADE_POLL).await;
        }
    };
    timeout(MADE_WITHIN, found).await.ok()
}

/// Marks a credential as revoked, with every secret that it has.
pub(super) async fn revoke(
    state: &Shared,
    (kind, id): (grant::Kind, &str),
    author: &Author,
    may: impl Fn(&Key) -> Result<(), Failure>,
) -> Result<Written<Key>, Failure> {
    let catalog = state.ports.catalog.load();
    let mut last = None;
    for (digest, stored) in catalog.records_of_id(kind, id) {
        may(&stored.record)?;
        let author = match last {
            None => author.clone(),
            Some(_) => another(state, author),
        };
        last = Some(mark(state, (digest, &stored.record), &author).await?);
    }
    last.ok_or_else(records::nothing)
}

/// Gives a credential another secret. Of two who do so at once one is told that the other was faster.
pub(super) async fn rotate(
    state: &Shared,
    (digest, old): (&KeyDigest, &Stored<Key>),
    expected: Match,
    author: &Author,
) -> Result<Minted, Failure> {
    if !expected.admits(old.revision) {
        return Err(records::lost_race());
    }
    if old.record.revoked {
        return Err(revoked_already());
    }
    let secret = key::mint_as(&state.ports.mint, &old.record.reach);
    let record = Key {
        prefix: key::shown(&secret).into(),
        rotated_at: Some(author.at),
        origin: Origin::Runtime,
        ..Key::clone(&old.record)
    };
    let own = state.doorkeeper.digest(&secret);
    let written = records::create(state, &place(&own, &record), record, None, another(state, author)).await?;
    // Whoever takes the old secret away is the one who replaced it.
    if let Err(failure) = replace(state, (digest, &old.record), author).await {
        mark(state, (&own, &written.record), &another(state, author)).await?;
        return Err(failure);
    }
    let catalog = state.ports.catalog.load();
    let kind = grant::Kind::of(&old.record.reach);
    for (other, stored) in catalog.records_of_id(kind, old.record.id.as_str()) {
        if *other != own && !stored.record.revoked {
            mark(state, (other, &stored.record), &another(state, author)).await?;
        }
    }
    Ok(Minted {
        key: written.record,
        revision: written.revision,
        secret: Some(secret),
    })
}

/// Takes away a secret that is still good.
async fn replace(state: &Shared, (digest, key): (&KeyDigest, &Key), author: &Author) -> Result<(), Failure> {
    let decide = |key: &Key| {
        if key.revoked {
            return Err(records::lost_race());
        }
        Ok(revoked(key))
    };
    let place = place(digest, key);
    records::change(state, &place, Match::Any, author, decide).await?;
    Ok(())
}

async fn mark(
    state: &Shared,
    (digest, key): (&KeyDigest, &Key),
    author: &Author,
) -> Result<Written<Key>, Failure> {
    let decide = |key: &Key| Ok(revoked(key));
    records::change(state, &place(digest, key), Match::Any, author, decide).await
}

fn revoked(key: &Key) -> Key {
    Key {
        revoked: true,
        // From now on a decision of run time: the file that brought the key does not bring it back.
        origin: Origin::Runtime,
        ..key.clone()
    }
}

/// The author of a further change of one call: each has an event of its own.
fn another(state: &Shared, author: &Author) -> Author {
    Author {
        id: state.ports.mint.request_id(author.at),
        ..author.clone()
    }
}

/// What a revoked credential is told to who would change it.
pub(super) fn revoked_already() -> Failure {
    Failure::new(FailureCode::Conflict, "the credential is revoked: mint another")
}

/// What was changed of a credential over all its secrets, the newest first.
pub(super) async fn history(
    state: &Shared,
    catalog: &Catalog,
    (kind, id): (grant::Kind, &str),
) -> Result<Response, Failure> {
    let mut whole: Option<History> = None;
    for (digest, stored) in catalog.records_of_id(kind, id) {
        let told = records::history::<Key>(state, &place(digest, &stored.record)).await?;
        match &mut whole {
            None => whole = Some(told),
            Some(whole) => whole.join(told),
        }
    }
    whole.as_ref().map(json).ok_or_else(records::nothing)
}

/// Where the record of a credential lies.
pub(super) fn place(digest: &KeyDigest, key: &Key) -> Place {
    Place {
        kind: match key.reach {
            Reach::Member => Kind::Key,
            Reach::Endpoint(_) => Kind::EndpointKey,
            Reach::Grant(_) => Kind::Grant,
        },
        key: credential_key(digest, &key.reach),
        tenant: key.tenant.clone(),
        id: Arc::clone(&key.id.0),
    }
}
