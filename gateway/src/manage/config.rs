//! `/admin/config`: what of the configuration files is in force at which node, what is wrong with them, what they
//! changed and when, and the way back. For operators.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bus::BusError;
use bus::revisions::Revisions;
use schemars::JsonSchema;
use schemas::catalog::change::Actor;
use schemas::configuration::{Cause, FileDigest, Problem, RecordChange, Revision, Told, shown, undo};
use schemas::failure::{Failure, FailureCode};
use schemas::id::NodeId;
use schemas::time::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::openapi::{Operation, Parameter};
use super::page::{Asked, Page};
use super::{Parameters, answered, invalid, json, number, parameters, records, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

mod judge;
pub(crate) mod rollback;
pub(crate) mod transfer;

/// The configuration of a deployment, as one of its nodes knows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Configuration")]
pub(crate) struct Standing {
    /// The node that answers.
    node: NodeId,
    /// The revision of the catalogue that it works with, which its answers name in `X-Waybill-Config`.
    catalog_revision: u64,
    /// The number of the newest revision that files or a rollback made; null while there is none.
    revision: Option<u64>,
    /// The digest of all its files together.
    set: String,
    /// Since when they are in force.
    since: Timestamp,
    /// When they were read last.
    read_at: Timestamp,
    /// The files that are in force.
    files: Vec<FileDigest>,
    /// How much is wrong with them.
    problems: usize,
    /// Every node that is known, with what it says of its own files.
    nodes: Vec<OfNode>,
}

/// What a node says of its configuration.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeConfiguration")]
struct OfNode {
    node: NodeId,
    /// The revision of the catalogue that it works with.
    catalog_revision: u64,
    /// Null of a node that does not say.
    configuration: Option<Told>,
}

/// What is wrong with the files of a node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationProblems")]
pub(crate) struct Problems {
    /// The worst first.
    data: Vec<Problem>,
    /// The node whose files they are.
    node: NodeId,
    /// When its files were read last.
    read_at: Timestamp,
}

/// A change of the catalogue that files or a rollback made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationRevision")]
pub(crate) struct Shown {
    number: u64,
    at: Timestamp,
    node: NodeId,
    /// Why it came to be.
    cause: Cause,
    /// Who asked for it, where somebody did.
    actor: Option<Actor>,
    /// The digest of all files together.
    set: String,
    files: Vec<FileDigest>,
    /// Records that it changed.
    changed: usize,
    /// False where what it changed was too large to be kept: nothing from before can be put back.
    kept: bool,
    /// The revision of the catalogue with which all of it was in force; null where a node ended in between.
    catalog_revision: Option<u64>,
}

/// What became of a record, without secrets.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationChange")]
pub(crate) struct ShownChange {
    /// The kind of record: `model`, `endpoint`, `tenant`, …
    kind: String,
    /// Its id.
    id: String,
    /// What it said; null where it was not there.
    from: Option<Value>,
    /// What it says; null where it is gone.
    to: Option<Value>,
}

/// A revision with what it changed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationRevisionWhole")]
pub(crate) struct Whole {
    revision: Shown,
    /// Null where it is not kept.
    changes: Option<Vec<ShownChange>>,
}

/// What is different between two revisions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ConfigurationDifference")]
pub(crate) struct Difference {
    from: u64,
    to: u64,
    changes: Vec<ShownChange>,
}

/// What the paths do.
pub(crate) const SHOW: Operation =
    Operation::read::<Standing>("Tells what of the configuration files is in force at which node")
        .of_operators();
pub(crate) const PROBLEMS: Operation =
    Operation::read::<Problems>("Tells what is wrong with the configuration files of this node")
        .of_operators();
pub(crate) const HISTORY: Operation =
    Operation::list::<Shown>("Lists what configuration files changed, the newest first")
        .of_operators()
        .failing(&[503]);
pub(crate) const REVISION: Operation =
    Operation::find::<Whole>("Shows what one reading of the configuration files changed")
        .of_operators()
        .failing(&[503]);
pub(crate) const DIFF: Operation =
    Operation::find::<Difference>("Compares what was in force after two revisions of the configuration")
        .of_operators()
        .taking(&[
            Parameter::new::<u64>("from", "The number of a revision").required(),
            Parameter::new::<u64>("to", "The number of a revision").required(),
        ])
        .failing(&[409, 503]);

/// What is in force where.
pub(crate) async fn show(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse(&failure);
    }
    let report = state.ports.configuration.report();
    // What is in force can be told without the bucket.
    let newest = revisions(&state).all().await.ok().and_then(|mut all| all.pop());
    let nodes = state.ports.nodes.live().into_iter().map(|record| OfNode {
        node: record.node,
        catalog_revision: record.catalog_revision,
        configuration: record.configuration,
    });
    let mut nodes: Vec<OfNode> = nodes.collect();
    let catalog_revision = state.ports.catalog.peek().revision;
    let is_me = |of: &OfNode| of.node == state.config.node;
    // A node knows of itself at once what the others hear at its next beat.
    nodes.retain(|of| !is_me(of));
    nodes.push(OfNode {
        node: state.config.node.clone(),
        catalog_revision,
        configuration: Some((&*report).into()),
    });
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    json(&Standing {
        node: state.config.node.clone(),
        catalog_revision,
        revision: newest.map(|newest| newest.number),
        set: report.in_force.set.to_string(),
        since: report.in_force.since,
        read_at: report.read_at,
        files: report.in_force.files.clone(),
        problems: report.problems.len(),
        nodes,
    })
}

/// What is wrong with the files of this node.
pub(crate) async fn problems(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    if let Err(failure) = rights::operates(&caller) {
        return arrival.refuse(&failure);
    }
    let report = state.ports.configuration.report();
    json(&Problems {
        data: report.problems.clone(),
        node: state.config.node.clone(),
        read_at: report.read_at,
    })
}

/// What files changed, the newest first, page by page.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = async {
        rights::operates(&caller)?;
        let asked = Asked::of(given, false)?;
        let after = asked.after.as_deref().map(|after| {
            let text = "expected what a page said as next";
            after.parse::<u64>().map_err(|_| invalid("after", text))
        });
        let after = after.transpose()?;
        let mut all = revisions(&state).all().await.map_err(away)?;
        all.retain(|revision| after.is_none_or(|after| revision.number < after));
        all.reverse();
        let cursor = |revision: &Revision| revision.number.to_string();
        Ok(asked.page(all, cursor, |revision| of(&revision)))
    };
    match listed.await {
        Ok(page) => json::<Page<Shown>>(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One revision, with what it changed.
pub(crate) async fn revision(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let found = async {
        rights::operates(&caller)?;
        let id: Option<u64> = id.ok().and_then(|Path(id)| id.parse().ok());
        let revisions = revisions(&state);
        let all = revisions.all().await.map_err(away)?;
        let revision = all.into_iter().find(|revision| Some(revision.number) == id);
        let revision = revision.ok_or_else(records::nothing)?;
        let changes = revisions.changes(&revision).await.map_err(away)?;
        Ok(Whole {
            revision: of(&revision),
            changes: changes.map(|changes| changes.iter().map(change).collect()),
        })
    };
    answered(&arrival, found.await)
}

/// What is different between two revisions.
pub(crate) async fn diff(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let compared = async {
        rights::operates(&caller)?;
        let (mut from, mut to) = (None, None);
        for (name, value) in parameters(given)? {
            let place = match name.as_str() {
                "from" => &mut from,
                "to" => &mut to,
                _ => return Err(invalid(name, "there is no such parameter")),
            };
            *place = Some(u64::from(number(&name, &value, 1, u32::MAX)?));
        }
        let from = from.ok_or_else(|| invalid("from", "the number of a revision is missing"))?;
        let to = to.ok_or_else(|| invalid("to", "the number of a revision is missing"))?;
        let later = later(&state, from.min(to)).await?;
        let upper = from.max(to);
        if later.last().is_none_or(|(newest, _)| newest.number < upper) && from != to {
            return Err(records::nothing());
        }
        let within = later.into_iter().filter(|(revision, _)| revision.number <= upper);
        let changes = undo::between(within.flat_map(|(_, changes)| changes));
        let forth = |found: RecordChange| {
            if from <= to {
                found
            } else {
                RecordChange {
                    from: found.to,
                    to: found.from,
                    ..found
                }
            }
        };
        let changes = changes.into_iter().map(forth);
        Ok(Difference {
            from,
            to,
            changes: changes.map(|found| change(&found)).collect(),
        })
    };
    answered(&arrival, compared.await)
}

fn revisions(state: &Shared) -> Revisions {
    Revisions::new(state.ports.kv.clone())
}

/// The revisions after one, the oldest first, each with what it changed.
async fn later(state: &Shared, number: u64) -> Result<Vec<(Revision, Vec<RecordChange>)>, Failure> {
    let revisions = revisions(state);
    let all = revisions.all().await.map_err(away)?;
    if all.iter().all(|revision| revision.number != number) {
        return Err(records::nothing());
    }
    let mut later = Vec::new();
    for revision in all.into_iter().filter(|revision| revision.number > number) {
        let changes = revisions.changes(&revision).await.map_err(away)?;
        let changes = changes.ok_or_else(|| {
            let text = format!(
                "what revision {} changed was too large to be kept, so nothing from before it is known",
                revision.number
            );
            Failure::new(FailureCode::Conflict, text)
        })?;
        later.push((revision, changes));
    }
    Ok(later)
}

fn of(revision: &Revision) -> Shown {
    Shown {
        number: revision.number,
        at: revision.at,
        node: revision.node.clone(),
        cause: revision.cause.clone(),
        actor: revision.actor.clone(),
        set: revision.set.to_string(),
        files: revision.files.clone(),
        changed: revision.changed,
        kept: revision.pieces > 0 || revision.changed == 0,
        catalog_revision: revision.catalog_revision,
    }
}

fn change(found: &RecordChange) -> ShownChange {
    let (kind, id) = shown::named(&found.key, found.to.as_ref().or(found.from.as_ref()));
    ShownChange {
        kind,
        id,
        from: found.from.as_ref().map(shown::without_secrets),
        to: found.to.as_ref().map(shown::without_secrets),
    }
}

fn away(_: BusError) -> Failure {
    let text = "what files changed cannot be read at the moment";
    Failure::new(FailureCode::StoreUnavailable, text).retry_after(2)
}
