//! `/internal/agent-grants`: whoever holds the token for it hands out grants, each for one job of one member. A grant
//! calls models as its owner's keys would, within his limits, and nothing else; it ends by the clock.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use bus::Expected;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::grant::{Kind, Reach, credential_key};
use schemas::catalog::{Catalog, Key, Origin, Role};
use schemas::failure::{Failure, FailureCode};
use schemas::id::{DEFAULT_TENANT, KeyId, ModelName, TenantId, UserId};
use schemas::limit::limits::Limits;
use schemas::subject::CATALOG_BUCKET;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::openapi::{Audience, Operation, Parameter};
use super::page::Asked;
use super::resource::{Act, Sent};
use super::{Parameters, answered, credentials, description, invalid, json, parameters, records};
use crate::arrival::Arrival;
use crate::caller::grant::Dispatch;
use crate::gate;
use crate::state::Shared;

/// Where grants are handed out.
const PATH: &str = "/internal/agent-grants";
/// Longest life of a grant, in minutes: thirty days.
const MINUTES_MAX: u32 = 43_200;
/// Models that one grant may be narrowed to.
const MODELS_MAX: usize = 1_000;
/// Grants of one member that may be good at once. Nodes that mint at the same moment may pass it by one each.
const GRANTS_OF_MEMBER_MAX: usize = 1_000;
/// How long the record of a grant is kept after its end: a day.
const KEPT_MICROS: i64 = 24 * 60 * 60 * 1_000_000;
/// How often grants that ended are looked for.
const SWEEP_EVERY: Duration = Duration::from_mins(1);
/// Grants that are taken away at once, at most.
const SWEPT_MAX: usize = 1_000;
/// How long the catalogue may take over one of them.
const WITHIN: Duration = Duration::from_secs(8);

/// A grant that is to be handed out.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GrantWanted")]
pub(super) struct Wanted {
    /// The member for whom the job works.
    pub(super) user: String,
    /// His tenant; `default` where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// Whoever asks calls the job so; it stands in the rows of its calls.
    pub(super) external_job_id: String,
    /// The only models that it may use; all that he may where it is left out.
    #[serde(default)]
    pub(super) allowed_models: Option<Vec<String>>,
    /// How long it lasts.
    #[schemars(range(min = 1, max = 43_200))]
    pub(super) minutes: u32,
}

const WANTED: &str = "the body is not a grant's description: expected user, external_job_id, minutes and, optionally, \
                      tenant, allowed_models";

/// A grant as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
struct Shown {
    id: KeyId,
    /// Only in the answer that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    prefix: Arc<str>,
    tenant: TenantId,
    user: Option<UserId>,
    external_job_id: Option<Arc<str>>,
    allowed_models: Option<Vec<ModelName>>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked: bool,
    /// The number in its `ETag`.
    revision: u64,
}

const FILTERS: &[Parameter] = &[
    Parameter::new::<TenantId>("tenant", "Only grants of members of this tenant."),
    Parameter::new::<UserId>("user", "Only grants of this member."),
    Parameter::new::<String>("external_job_id", "Only grants for this job."),
];

/// What the paths of grants do.
pub(crate) const CREATE: Operation =
    Operation::create::<Wanted, Shown>("Hands out a grant, which is shown in this answer alone")
        .of(Audience::Others)
        .failing(&[404]);
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the grants, by id")
    .taking(FILTERS)
    .of(Audience::Others)
    .failing(&[404]);
pub(crate) const REVOKE: Operation = Operation::remove::<Shown>("Revokes a grant").of(Audience::Others);

/// Hands out a grant.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    Dispatch(caller): Dispatch,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let made = async {
        let bytes = description::body(&state, &headers, body).await?;
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        let record = granted(&state.ports.catalog.load(), wanted, arrival.at)?;
        let act = Act {
            state: &state,
            arrival: &arrival,
            caller: &caller,
        };
        let sent = Sent {
            headers: &headers,
            bytes: &bytes,
        };
        credentials::mint(&act, (sent, PATH), record).await
    };
    match made.await {
        Ok(minted) => minted.answer(&shown(&minted.key, minted.revision, minted.secret.clone())),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The grants, by id, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    Dispatch(_): Dispatch,
    given: Parameters,
) -> Response {
    let listed = || {
        let (mut wanted, mut rest) = ([None, None, None], Vec::new());
        for (name, value) in parameters(given)? {
            match name.as_str() {
                "tenant" => wanted[0] = Some(value),
                "user" => wanted[1] = Some(value),
                "external_job_id" => wanted[2] = Some(value),
                _ => rest.push((name, value)),
            }
        }
        let asked = Asked::of(Ok(Query(rest)), false)?;
        let catalog = state.ports.catalog.load();
        let mut grants = catalog.keys_after(Kind::Grant, asked.after.as_deref());
        grants.retain(|stored| {
            let key = &stored.record;
            let said = [
                Some(key.tenant.as_str()),
                key.user.as_ref().map(UserId::as_str),
                key.reach.job().map(|job| &**job),
            ];
            let agrees = |(wanted, said): (&Option<String>, Option<&str>)| {
                wanted.is_none() || wanted.as_deref() == said
            };
            wanted.iter().zip(said).all(agrees)
        });
        let cursor = |stored: &&schemas::catalog::Stored<Key>| stored.record.id.to_string();
        Ok(asked.page(grants, cursor, |stored| {
            shown(&stored.record, stored.revision, None)
        }))
    };
    answered(&arrival, listed())
}

/// Revokes a grant.
pub(crate) async fn revoke(
    State(state): State<Shared>,
    arrival: Arrival,
    Dispatch(caller): Dispatch,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let revoked = async {
        let Path(id) = id.map_err(|_| records::nothing())?;
        let author = caller.author(&arrival);
        credentials::revoke(&state, (Kind::Grant, &id), &author, |_| Ok(())).await
    };
    match revoked.await {
        Ok(written) => json(&shown(&written.record, written.revision, None)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The record of a grant as it is wanted, without its id and its token. Whether its owner may still call is asked
/// again with every call.
pub(super) fn granted(catalog: &Catalog, wanted: Wanted, now: Timestamp) -> Result<Key, Failure> {
    let named = wanted.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    let none = || invalid("tenant", "there is no such tenant");
    let tenant = TenantId::parse(named).ok_or_else(none)?;
    let living = catalog.tenant(&tenant).ok_or_else(none)?;
    if living.disabled {
        return Err(invalid("tenant", "the tenant is disabled"));
    }
    let user = UserId::new(description::named("user", wanted.user)?);
    match catalog.user(&tenant, &user) {
        None => return Err(invalid("user", "there is no such member")),
        Some(member) if member.disabled => return Err(invalid("user", "the member is disabled")),
        Some(_) => {}
    }
    let job = description::named("external_job_id", wanted.external_job_id)?;
    if !(1..=MINUTES_MAX).contains(&wanted.minutes) {
        return Err(invalid("minutes", "expected 1 to 43200 minutes"));
    }
    let lasts_micros = i64::from(wanted.minutes) * 60 * 1_000_000;
    let mut grant = Key {
        id: KeyId::from(""),
        name: Arc::clone(&job),
        tenant,
        user: Some(user),
        role: Role::Free,
        models: None,
        limits: Limits::default(),
        output_default_max: None,
        expires_at: Some(Timestamp::from_micros(now.micros().saturating_add(lasts_micros))),
        revoked: false,
        created_at: now,
        origin: Origin::Runtime,
        prefix: "".into(),
        reach: Reach::Grant(job),
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: None,
        maker: None,
        seen_by: None,
    };
    // What it may do at the moment; with each call it is asked again what its owner may.
    let worth = catalog.most_of(&grant);
    (grant.role, grant.granted) = (worth.role, Some(worth.counts));
    if let Some(names) = wanted.allowed_models {
        grant.models = Some(models(catalog, &grant, &names)?);
    }
    Ok(grant)
}

/// The models that a grant is narrowed to: such as its owner may use.
fn models(catalog: &Catalog, grant: &Key, names: &[String]) -> Result<Vec<ModelName>, Failure> {
    if names.len() > MODELS_MAX {
        return Err(invalid("allowed_models", "too many models"));
    }
    let known = names
        .iter()
        .map(|name| gate::visible(catalog, Some(grant), name).map(|model| model.id.clone()));
    let known: Option<Vec<ModelName>> = known.collect();
    known.ok_or_else(|| invalid("allowed_models", "there is no such model"))
}

/// Refuses a grant beside too many of the same member's that are still good.
pub(super) fn has_room(catalog: &Catalog, grant: &Key, now: Timestamp) -> Result<(), Failure> {
    let good = catalog
        .keys_after(Kind::Grant, None)
        .into_iter()
        .filter(|stored| {
            let key = &stored.record;
            let is_theirs = key.tenant == grant.tenant && key.user == grant.user;
            is_theirs && !key.revoked && key.expires_at.is_none_or(|at| at > now)
        });
    if good.count() < GRANTS_OF_MEMBER_MAX {
        return Ok(());
    }
    let text = "the member has 1000 grants that are good: revoke some, or wait until some have ended";
    Err(Failure::new(FailureCode::Conflict, text).param("user"))
}

/// The grants that ended long enough ago for nobody to ask for them any more: where each lies, with which revision.
fn ended(catalog: &Catalog, now: Timestamp) -> Vec<(String, u64)> {
    let over = |key: &Key| {
        let ended = key.expires_at.map_or(i64::MAX, Timestamp::micros);
        matches!(key.reach, Reach::Grant(_)) && ended.saturating_add(KEPT_MICROS) <= now.micros()
    };
    let keys = catalog.stored_keys().filter(|(_, stored)| over(&stored.record));
    keys.map(|(digest, stored)| (credential_key(digest, &stored.record.reach), stored.revision))
        .take(SWEPT_MAX)
        .collect()
}

/// Takes away grants that ended long ago, until `stop`. Every gateway does; what one of them took is gone for all.
pub(crate) async fn sweep(state: Shared, stop: CancellationToken) {
    let sweeping = async {
        loop {
            let ended = ended(&state.ports.catalog.load(), state.ports.clock.now());
            for (key, revision) in ended {
                let kv = &state.ports.kv;
                let expected = Expected::Revision(revision);
                // Whatever came of it, the next sweep looks again.
                let _ = timeout(WITHIN, kv.delete(CATALOG_BUCKET, &key, expected)).await;
            }
            sleep(SWEEP_EVERY).await;
        }
    };
    let _: Option<()> = stop.run_until_cancelled(sweeping).await;
}

fn shown(key: &Key, revision: u64, token: Option<String>) -> Shown {
    Shown {
        id: key.id.clone(),
        token,
        prefix: Arc::clone(&key.prefix),
        tenant: key.tenant.clone(),
        user: key.user.clone(),
        external_job_id: key.reach.job().cloned(),
        allowed_models: key.models.clone(),
        created_at: key.created_at,
        expires_at: key.expires_at,
        revoked: key.revoked,
        revision,
    }
}

#[cfg(test)]
mod tests;
