//! `POST /admin/config/rollback`: puts back what the records of files said after a revision. The files are not changed:
//! from then on they say something else, and the next change of one of them wins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bus::passage::{Passage, Write};
use bus::revisions::Begun;
use bus::{BusError, Expected};
use bytes::Bytes;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::change::{Author, Change, Difference};
use schemas::catalog::user::User;
use schemas::configuration::{Cause, RecordChange, Revision, shown, undo};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::subject::CATALOG_BUCKET;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Shown, away, judge, later, of, revisions};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::manage::openapi::Operation;
use crate::manage::records::{self, Match, Place};
use crate::manage::{description, json as answer, rights};
use crate::sign_in::turn::{Address, Turn};
use crate::state::Shared;

/// How long the catalogue may take over one operation.
const WITHIN: Duration = Duration::from_secs(8);

/// To which revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RollbackWanted")]
pub(crate) struct Wanted {
    /// The number of the revision that is to be in force again.
    to: u64,
}

const WANTED: &str = "the body does not say where to: expected to, the number of a revision";

/// What was put back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Rollback")]
pub(crate) struct Done {
    /// The revision that this made; null where nothing had to be put back.
    revision: Option<Shown>,
    /// Records that were put back.
    changed: usize,
    /// Records that stay as they are, and why.
    left: Vec<Left>,
    /// What is to be known.
    notice: &'static str,
}

/// A record that was not put back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RollbackLeft")]
pub(crate) struct Left {
    kind: String,
    id: String,
    why: &'static str,
}

const NOTICE: &str =
    "the files say something else now: correct them, because their next change is in force again";

/// What the path does.
pub(crate) const ROLLBACK: Operation =
    Operation::ask::<Wanted, Done>("Puts back what configuration files said after a revision")
        .of_operators()
        .under(crate::manage::openapi::Condition::IfMatch)
        .failing(&[404, 409, 503]);

/// A record as it lies in the bucket.
type Lying = (Option<Value>, Expected);

/// Puts records back.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let done = async {
        let expected = Match::of(&headers)?;
        let bytes = description::body(&state, &headers, body).await?;
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        put_back(&state, &caller, (wanted.to, expected), caller.author(&arrival)).await
    };
    match done.await {
        Ok(done) => answer(&done),
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn put_back(
    state: &Shared,
    caller: &Caller,
    (to, expected): (u64, Match),
    author: Author,
) -> Result<Done, Failure> {
    let later = later(state, to).await?;
    let newest = later.last().map_or(to, |(revision, _)| revision.number);
    if !expected.admits(newest) {
        let text = "files or somebody else changed the configuration: look again and decide again";
        return Err(Failure::new(FailureCode::Conflict, text));
    }
    let overruled = overruled(&later);
    let said = undo::before(later.into_iter().flat_map(|(_, changes)| changes));
    let (steps, left) = steps(state, said).await?;
    if steps.is_empty() {
        return Ok(Done {
            revision: None,
            changed: 0,
            left,
            notice: NOTICE,
        });
    }
    may_put_back(state, caller, &steps).await?;
    let turns = turns(state, &steps, &author).await?;
    let report = state.ports.configuration.report();
    let told = Revision {
        number: 0,
        at: author.at,
        node: state.config.node.clone(),
        cause: Cause::Rollback { to, overruled },
        actor: Some(author.actor.clone()),
        set: Arc::clone(&report.in_force.set),
        files: report.in_force.files.clone(),
        changed: 0,
        pieces: 0,
        catalog_revision: None,
    };
    let changes: Vec<RecordChange> = steps.iter().map(|(change, _)| change.clone()).collect();
    let begun = revisions(state).begin(told, &changes).await.map_err(away)?;
    // Who asked may leave: what was begun is written to its end.
    let putting = put_all(state.clone(), (steps, turns), begun, author.clone());
    let written = state.leaving.spawn(putting).await;
    let revision = written.unwrap_or_else(|_| Err(away(BusError::Closed)))?;
    tell(
        state,
        author,
        (newest, to),
        revision.catalog_revision.unwrap_or_default(),
    );
    records::seen(state, revision.catalog_revision.unwrap_or_default()).await;
    Ok(Done {
        changed: revision.changed,
        revision: Some(of(&revision)),
        left,
        notice: NOTICE,
    })
}

/// Refuses what would have others do more than the caller may.
async fn may_put_back(
    state: &Shared,
    caller: &Caller,
    steps: &[(RecordChange, Expected)],
) -> Result<(), Failure> {
    let keys = steps.iter().map(|(change, _)| change.key.as_str());
    let signing_in = judge::signing_in(state, keys).await?;
    let catalog = state.ports.catalog.load();
    let mut changes = steps.iter().map(|(change, _)| change);
    changes.try_for_each(|change| judge::put_back(caller, &catalog, &signing_in, change))
}

/// Sets of files that came after the revision that is put back, and those that earlier rollbacks overruled.
fn overruled(later: &[(Revision, Vec<RecordChange>)]) -> Vec<Arc<str>> {
    let mut sets: Vec<Arc<str>> = Vec::new();
    for (revision, _) in later {
        sets.push(Arc::clone(&revision.set));
        if let Cause::Rollback { overruled, .. } = &revision.cause {
            sets.extend(overruled.iter().cloned());
        }
    }
    sets.sort();
    sets.dedup();
    sets
}

/// What has to be written, and what stays.
async fn steps(
    state: &Shared,
    said: BTreeMap<String, Option<Value>>,
) -> Result<(Vec<(RecordChange, Expected)>, Vec<Left>), Failure> {
    let (mut steps, mut left) = (Vec::new(), Vec::new());
    for (key, to) in said {
        let (from, expected) = lying(state, &key).await?;
        let change = RecordChange { key, from, to };
        if change.from == change.to {
            continue;
        }
        match stays(&change) {
            Some(why) => {
                let (kind, id) = shown::named(&change.key, change.from.as_ref().or(change.to.as_ref()));
                left.push(Left { kind, id, why });
            }
            None => steps.push((change, expected)),
        }
    }
    Ok((steps, left))
}

/// Why a record stays as it is.
fn stays(change: &RecordChange) -> Option<&'static str> {
    let of_run_time = |record: &Value| record.get("origin").is_some_and(|origin| origin == "runtime");
    if change.stays() {
        Some("keys are not put back: one that was taken away stays so")
    } else if change.from.as_ref().is_some_and(of_run_time) {
        Some("it was changed at run time since")
    } else {
        None
    }
}

async fn lying(state: &Shared, key: &str) -> Result<Lying, Failure> {
    let get = timeout(WITHIN, state.ports.kv.get(CATALOG_BUCKET, key)).await;
    let entry = get.unwrap_or(Err(BusError::Timeout)).map_err(away)?;
    let found = entry.and_then(|entry| Some((entry.value?, entry.revision)));
    Ok(match found {
        Some((value, revision)) => (serde_json::from_slice(&value).ok(), Expected::Revision(revision)),
        None => (None, Expected::Absent),
    })
}

/// Members who are about to be put back, each with what he is then.
type Turns = Vec<(Turn, Option<User>)>;

async fn turns(
    state: &Shared,
    steps: &[(RecordChange, Expected)],
    author: &Author,
) -> Result<Turns, Failure> {
    let mut turns = Turns::new();
    for (change, _) in steps {
        if let Some((tenant, user)) = judge::member_of(&change.key) {
            let turn = Turn::begin(state, (&tenant, &user), Address::Falls, author.at).await?;
            let after = change.to.clone().and_then(|to| serde_json::from_value(to).ok());
            turns.push((turn, after));
        }
    }
    Ok(turns)
}

/// Writes what is put back, and has the accounts of members follow them.
async fn put_all(
    state: Shared,
    (steps, turns): (Vec<(RecordChange, Expected)>, Turns),
    begun: Begun,
    author: Author,
) -> Result<Revision, Failure> {
    let revision = write(&state, steps, begun).await?;
    for (turn, after) in turns {
        turn.done(&state, after.as_ref(), &author).await?;
    }
    Ok(revision)
}

async fn write(
    state: &Shared,
    steps: Vec<(RecordChange, Expected)>,
    begun: Begun,
) -> Result<Revision, Failure> {
    let writes = steps.into_iter().map(|(change, expected)| Write {
        key: change.key,
        value: change.to.map(|value| Bytes::from(value.to_string())),
        expected,
    });
    let passing = async {
        let passage = Passage::begin(&*state.ports.kv).await?;
        let written = passage.write(writes.collect()).await;
        let last = passage.end().await;
        written.and(last)
    };
    match timeout(WITHIN, passing).await.unwrap_or(Err(BusError::Timeout)) {
        Ok(last) => revisions(state).finish(begun, last).await.map_err(away),
        Err(BusError::Conflict) => Err(records::lost_race()),
        Err(problem) => Err(away(problem)),
    }
}

/// Tells who did it.
fn tell(state: &Shared, author: Author, (from, to): (u64, u64), revision: u64) {
    let place = Place {
        kind: Kind::Configuration,
        key: String::new(),
        tenant: TenantId::from(DEFAULT_TENANT),
        id: "files".into(),
    };
    let fields = [(
        "revision".to_owned(),
        Difference {
            from: json!(from),
            to: json!(to),
        },
    )];
    let change = Change {
        id: author.id,
        at: author.at,
        actor: author.actor,
        replaced: None,
        fields: BTreeMap::from(fields),
    };
    records::tell(state, &place, &change, revision);
}
