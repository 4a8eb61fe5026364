//! What keys of members, keys of endpoints and grants have in common: a secret that is shown once, an id under which
//! lie the records of all secrets it ever had, and a mark instead of a deletion.
//!
//! Another secret is given in two steps. First the record of the old one is marked, by compare-and-set, and names the
//! place of the new one; then the new record is made there, where nothing may be. So there is never more than one good
//! secret, and whoever changes or revokes meanwhile finds the record that counts, or takes its place before it is made.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use schemas::catalog::change::Author;
use schemas::catalog::grant::{self, Reach, credential_key};
use schemas::catalog::{Catalog, Key, KeyDigest, Stored};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::records::{self, History, Match, Place, Race, Written};
use super::resource::{Act, Found, Id, Sent};
use super::{creation, rights};
use crate::caller::Caller;
use crate::key;
use crate::state::Shared;

mod succession;

use succession::{Held, Newest};

/// How long a call waits for what another one makes: a repeated one for the first, a change for another secret.
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
    act: &Act<'_>,
    (sent, path): (Sent<'_>, &str),
    wanted: Key,
) -> Result<Minted, Failure> {
    let (state, author) = (act.state, act.author());
    let fresh = key::mint_id(&state.ports.mint, &wanted.reach);
    let asked = (path, &sent.bytes[..]);
    let bound = creation::begin(state, act.caller, sent.headers, asked, Arc::clone(&fresh.0)).await?;
    let (id, made) = (Arc::clone(&bound.id), bound.made);
    if id != fresh.0
        && let Some(before) = made_before(state, &wanted.reach, &id).await
    {
        return Ok(before);
    }
    if bound.is_done() {
        return Err(creation::gone());
    }
    let secret = key::mint_as(&state.ports.mint, &wanted.reach);
    let record = Key {
        id: schemas::id::KeyId(id),
        prefix: key::shown(&secret).into(),
        ..wanted
    };
    if let Reach::Grant(_) = record.reach {
        super::grants::has_room(&state.ports.catalog.load(), &record, author.at)?;
    }
    let place = place(&state.doorkeeper.digest(&secret), &record);
    let written = records::create(state, &place, record, made, author).await?;
    bound.keep(state, None, written.revision).await;
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

/// The credential of an id that a caller names: one of a tenant that he administers. Another is not there.
pub(super) fn found<'c>(
    kind: grant::Kind,
    caller: &Caller,
    catalog: &'c Catalog,
    id: Id,
) -> Result<(&'c KeyDigest, &'c Stored<Key>), Failure> {
    rights::administers(caller)?;
    // A name that is not even text is the name of nothing.
    let Path(id) = id.map_err(|_| records::nothing())?;
    let found = catalog.key_of_id(kind, &id);
    found
        .filter(|(_, stored)| rights::reaches(caller, &stored.record.tenant))
        .ok_or_else(records::nothing)
}

/// The same with its place.
pub(super) fn named<'c>(
    kind: grant::Kind,
    caller: &Caller,
    catalog: &'c Catalog,
    id: Id,
) -> Result<Found<'c, Key>, Failure> {
    let (digest, stored) = found(kind, caller, catalog, id)?;
    Ok(Found::there(place(digest, &stored.record), stored))
}

/// Marks a credential as revoked, with every secret that it has and with that which it is being given.
pub(super) async fn revoke(
    state: &Shared,
    (kind, id): (grant::Kind, &str),
    author: &Author,
    may: impl Fn(&Key) -> Result<(), Failure>,
) -> Result<Written<Key>, Failure> {
    let catalog = state.ports.catalog.load();
    let (digest, stored) = catalog.key_of_id(kind, id).ok_or_else(records::nothing)?;
    let known = place(digest, &stored.record);
    let revoked = revoke_newest(state, &known, author, may).await?;
    // As it is now: what was just marked is not marked, and told of, again.
    let catalog = state.ports.catalog.load();
    mark_all(state, &good(&catalog, kind, id), author).await?;
    Ok(revoked)
}

/// Marks the secret that counts. Once it is, nobody gives the credential another.
async fn revoke_newest(
    state: &Shared,
    known: &Place,
    author: &Author,
    may: impl Fn(&Key) -> Result<(), Failure>,
) -> Result<Written<Key>, Failure> {
    let race = Race::begin(state);
    loop {
        let revoked = match succession::newest(state, known).await? {
            Newest::There {
                place,
                held,
                revision,
            } => {
                may(&held.key)?;
                let decide = |held: &Held| Ok(held.revoked());
                records::change(state, &place, Match::Revision(revision), author, decide).await
            }
            Newest::Awaited { last, next, .. } => {
                may(&last.key)?;
                records::create(state, &next, last.taking_the_place(None), None, author.clone()).await
            }
        };
        match revoked {
            Err(failure) if succession::was_faster(&failure) => {}
            revoked => return revoked.map(Held::written),
        }
        race.again().await?;
    }
}

/// Changes a credential to what `decide` makes of it as it is now, whichever secret it has.
pub(super) async fn change(
    state: &Shared,
    known: &Place,
    expected: Match,
    author: &Author,
    decide: impl Fn(&Key) -> Result<Key, Failure>,
) -> Result<Written<Key>, Failure> {
    let race = Race::begin(state);
    loop {
        let Newest::There {
            place,
            held,
            revision,
        } = succession::settled(state, known).await?
        else {
            return Err(records::lost_race());
        };
        if expected == Match::Any {
            // What is refused as it stands is refused, not decided anew.
            decide(&held.key)?;
        }
        let at = match expected {
            Match::Any => Match::Revision(revision),
            wanted @ Match::Revision(_) => wanted,
        };
        let decide = |held: &Held| decide(&held.key).map(Held::of);
        match records::change(state, &place, at, author, decide).await {
            Err(failure) if expected == Match::Any && succession::was_faster(&failure) => {}
            changed => return changed.map(Held::written),
        }
        race.again().await?;
    }
}

/// Gives a credential another secret, being from then on what `renewed` makes of it. Of two who do so at once one is
/// told that the other was faster.
pub(super) async fn rotate(
    state: &Shared,
    (digest, known): (&KeyDigest, &Stored<Key>),
    expected: Match,
    author: &Author,
    renewed: impl Fn(&Key) -> Result<Key, Failure>,
) -> Result<Minted, Failure> {
    let may = |key: &Key| renewed(key).map(drop);
    let (kind, id) = (grant::Kind::of(&known.record.reach), known.record.id.as_str());
    // Nothing of this can be what a later call mints: that begins where this one ends.
    let mut others = good(&state.ports.catalog.load(), kind, id);
    let secret = key::mint_as(&state.ports.mint, &known.record.reach);
    let own = place(&state.doorkeeper.digest(&secret), &known.record);
    let known_at = place(digest, &known.record);
    others.retain(|other| other.key != known_at.key);
    let replaced = if known.record.revoked {
        take_over(state, (&known_at, &own), expected, author, may).await?
    } else {
        let decide = |held: &Held| {
            if held.key.revoked {
                return Err(held
                    .replaced_by
                    .as_ref()
                    .map_or_else(revoked_already, |_| records::lost_race()));
            }
            may(&held.key)?;
            Ok(held.replaced(&own))
        };
        records::change(state, &known_at, expected, author, decide).await?
    };
    let before = replaced.record.key;
    let record = Held::of(Key {
        prefix: key::shown(&secret).into(),
        revoked: false,
        rotated_at: Some(author.at).max(before.rotated_at),
        ..renewed(&before)?
    });
    // Without an answer it may yet be made, so the old one does not come back: whoever comes next ends it.
    let made = records::create(state, &own, record, None, records::another(state, author)).await;
    let written = made.map_err(|failure| {
        if succession::was_faster(&failure) {
            records::lost_race()
        } else {
            failure
        }
    })?;
    mark_all(state, &others, author).await?;
    let Written { record, revision, .. } = written;
    Ok(Minted {
        key: record.key,
        revision,
        secret: Some(secret),
    })
}

/// The first step where a call before ended between the two: what that one would have made is made, and marked as
/// replaced by `own`.
async fn take_over(
    state: &Shared,
    (known, own): (&Place, &Place),
    expected: Match,
    author: &Author,
    may: impl Fn(&Key) -> Result<(), Failure>,
) -> Result<Written<Held>, Failure> {
    match succession::newest(state, known).await? {
        Newest::There { held, .. } if held.key.revoked => Err(revoked_already()),
        Newest::There { .. } => Err(records::lost_race()),
        Newest::Awaited { last, next, revision } => {
            if !expected.admits(revision) {
                return Err(records::lost_race());
            }
            may(&last.key)?;
            records::create(
                state,
                &next,
                last.taking_the_place(Some(own)),
                None,
                author.clone(),
            )
            .await
        }
    }
}

/// Where the good secrets of an id lie, as far as a catalogue knows.
fn good(catalog: &Catalog, kind: grant::Kind, id: &str) -> Vec<Place> {
    let records = catalog.records_of_id(kind, id).into_iter();
    let good = records.filter(|(_, stored)| !stored.record.revoked);
    good.map(|(digest, stored)| place(digest, &stored.record))
        .collect()
}

async fn mark_all(state: &Shared, places: &[Place], author: &Author) -> Result<(), Failure> {
    for place in places {
        let decide = |held: &Held| Ok(held.revoked());
        records::change(state, place, Match::Any, &records::another(state, author), decide).await?;
    }
    Ok(())
}

/// What a revoked credential is told to who would change it.
pub(super) fn revoked_already() -> Failure {
    Failure::new(FailureCode::Conflict, "the credential is revoked: mint another")
}

/// What was changed of a credential over all its secrets, the newest first.
pub(super) async fn history(state: &Shared, kind: grant::Kind, at: &Place) -> Result<History, Failure> {
    let catalog = state.ports.catalog.load();
    let mut whole: Option<History> = None;
    for (digest, stored) in catalog.records_of_id(kind, &at.id) {
        let told = records::history::<Key>(state, &place(digest, &stored.record)).await?;
        match &mut whole {
            None => whole = Some(told),
            Some(whole) => whole.join(told),
        }
    }
    whole.ok_or_else(records::nothing)
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
