//! `/api/v1/tenant/api-keys`: virtual keys are minted, listed, changed, given other secrets and revoked here. A key is
//! shown once, in the answer that makes it; to revoke is to mark its record, never to delete it.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::grant::{Kind, Reach};
use schemas::catalog::policy::KeyRouting;
use schemas::catalog::user::User;
use schemas::catalog::{Catalog, Key, Origin, Role, Stored};
use schemas::failure::{Amount, Failure};
use schemas::id::{KeyId, ModelName, UserId};
use schemas::limit::layers::Bound;
use schemas::limit::limits::Limits;
use schemas::time::Timestamp;
use schemas::usage::TOKENS_MAX;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Created, Found, Id, Resource, Sent, There};
use super::{Parameters, credentials, description, invalid, json, rights};
use crate::arrival::Arrival;
use crate::caller::{Caller, session};
use crate::demand;
use crate::gate;
use crate::key::Grant;
use crate::limits::Usage;
use crate::peers;
use crate::standing;
use crate::state::Shared;

/// Models one key may be narrowed to.
const MODELS_MAX: usize = 1_000;
/// Where keys are made.
const PATH: &str = "/api/v1/tenant/api-keys";

pub(super) mod change;
mod filter;

use change::Patch;
use filter::{FILTERS, Filter};

/// What a caller asks for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "KeyWanted")]
pub(crate) struct Wanted {
    /// For people.
    pub(super) name: String,
    /// The caller's own where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// The member whose key it is.
    #[serde(default)]
    pub(super) user: Option<String>,
    /// What may be done with it; the lowest where it is left out.
    #[serde(default)]
    pub(super) role: Option<Role>,
    /// The only models that it may use; those of the caller's own key where it is left out.
    #[serde(default)]
    pub(super) models: Option<Vec<String>>,
    /// Its own.
    #[serde(default)]
    #[schemars(with = "Option<Limits>")]
    pub(super) limits: Option<Map<String, Value>>,
    /// When it ends.
    #[serde(default)]
    pub(super) expires_at: Option<Timestamp>,
    /// Most tokens of an answer to a call that names no maximum; 0 names none.
    #[serde(default)]
    pub(super) output_default_max: Option<u64>,
}

pub(super) const WANTED: &str = "the body is not a key's description: expected name and, optionally, tenant, user, role, \
                      models, limits, expires_at, output_default_max";

/// A key as it is shown.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(super) struct Shown<'a> {
    id: &'a str,
    /// Only in the answer that makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    name: &'a str,
    prefix: &'a str,
    tenant: &'a str,
    user: Option<&'a str>,
    role: Role,
    models: Option<&'a [ModelName]>,
    limits: &'a Limits,
    /// How its own quotas stand; only in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    quotas: Option<Vec<Counted>>,
    output_default_max: Option<u64>,
    expires_at: Option<Timestamp>,
    created_at: Timestamp,
    /// When it got its secret, where that is not its first.
    rotated_at: Option<Timestamp>,
    revoked: bool,
    /// What it says of calls that leave the choice of a model to us.
    routing: Option<KeyRouting>,
    origin: Origin,
    /// The number in its `ETag`.
    revision: u64,
}

/// How one quota of a key stands.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KeyQuota")]
struct Counted {
    /// Which.
    quota: &'static str,
    /// For calls of this model only.
    model: Option<ModelName>,
    limit: Amount,
    /// Null where nothing is known.
    used: Option<Amount>,
    remaining: Option<Amount>,
    /// False where some node or the records could not be asked: the figures are those that were known last.
    is_current: bool,
    /// Null for what is never whole again.
    reset_at: Option<String>,
}

/// What the paths of keys do.
pub(crate) const LIST: Operation =
    Operation::list::<Shown<'static>>("Lists the keys that the caller administers, by id").taking(FILTERS);
pub(crate) const CREATE: Operation =
    Operation::create::<Wanted, Shown<'static>>("Mints a key, which is shown in this answer alone");
pub(crate) const SHOW: Operation = Operation::show::<Shown<'static>>("Shows a key and how its quotas stand");
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a key, and what, the newest first");
pub(crate) const CHANGE: Operation =
    Operation::change::<Patch, Shown<'static>>("Changes a key; what is not named stays");
pub(crate) const ROTATE: Operation =
    Operation::find::<Shown<'static>>("Gives a key another secret, which is shown in this answer alone")
        .answering(201)
        .under(Condition::IfMatch)
        .failing(&[409]);
pub(crate) const REVOKE: Operation = Operation::remove::<Shown<'static>>("Revokes a key");

/// The keys of members.
pub(crate) enum Keys {}

impl Resource for Keys {
    type Record = Key;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, Key>, Failure> {
        credentials::named(Kind::Member, caller, catalog, id)
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, Key>) -> Result<Response, Failure> {
        resource::told(there, |key, revision| shown(key, revision, None))
    }

    fn history(act: &Act<'_>, place: &Place) -> impl Future<Output = Result<History, Failure>> + Send {
        credentials::history(act.state, Kind::Member, place)
    }
}

impl Created for Keys {
    type Wanted = Wanted;
    const WANTED: &str = WANTED;

    async fn create(act: &Act<'_>, sent: Sent<'_>, wanted: Wanted) -> Result<Response, Failure> {
        let catalog = act.state.ports.catalog.load();
        let record = record(act.caller, &catalog, wanted, act.arrival.at)?;
        let minted = credentials::mint(act, (sent, PATH), record).await?;
        Ok(minted.answer(&shown(&minted.key, minted.revision, minted.secret.as_deref())))
    }
}

impl Changed for Keys {
    type Patch = Patch;
    const PATCH: &str = change::PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<Key>, Failure> {
        let catalog = act.state.ports.catalog.load();
        let decide = |key: &Key| change::patched(act.caller, &catalog, key, &patch);
        credentials::change(act.state, place, expected, &act.author(), decide).await
    }
}

/// The keys that the caller administers, by id, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let catalog = state.ports.catalog.load();
    let listed = || {
        rights::administers(&caller)?;
        let (filter, asked) = Filter::of(given, &caller)?;
        let mut keys = catalog.keys_after(Kind::Member, asked.after.as_deref());
        keys.retain(|stored| rights::reaches(&caller, &stored.record.tenant) && filter.takes(&stored.record));
        Ok((asked, keys))
    };
    match listed() {
        Ok((asked, keys)) => page(&state, &catalog, &asked, keys).await,
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The caller's own keys, by id, page by page: those of the member who signed in, or the one that is presented.
pub(crate) async fn list_own(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let asked = match Asked::of(given, false) {
        Ok(asked) => asked,
        Err(failure) => return arrival.refuse(&failure),
    };
    let catalog = state.ports.catalog.load();
    let mut keys = catalog.keys_after(Kind::Member, asked.after.as_deref());
    let member = session::member(&caller);
    keys.retain(|stored| match member {
        Some((tenant, user)) => stored.record.tenant == *tenant && stored.record.user.as_ref() == Some(user),
        None => stored.record.id == caller.key.id,
    });
    page(&state, &catalog, &asked, keys).await
}

/// A page of keys, with how their quotas stand.
async fn page(state: &Shared, catalog: &Catalog, asked: &Asked, mut keys: Vec<&Stored<Key>>) -> Response {
    // One more than is shown: a page tells whether another follows.
    keys.truncate(asked.limit() + 1);
    // All at once: each question goes to every node.
    let own = keys
        .iter()
        .map(|stored| demand::own_quotas(catalog, &stored.record));
    let own: Vec<Vec<Bound>> = own.collect();
    let usages = peers::usage_of(state, &own.concat()).await;
    let mut usages = usages.into_iter();
    let with_quotas = keys.into_iter().zip(&own).map(|(stored, own)| {
        let quotas = usages.by_ref().take(own.len());
        let quotas: Vec<Counted> = quotas.map(|usage| counted(state, usage)).collect();
        (stored, quotas)
    });
    let cursor = |(stored, _): &(&Stored<Key>, Vec<Counted>)| stored.record.id.to_string();
    json(
        &asked.page(with_quotas.collect(), cursor, |(stored, quotas)| Shown {
            quotas: Some(quotas),
            ..shown(&stored.record, stored.revision, None)
        }),
    )
}

/// One key, with its `ETag` and how its quotas stand.
pub(crate) async fn show(State(state): State<Shared>, arrival: Arrival, caller: Caller, id: Id) -> Response {
    let catalog = state.ports.catalog.load();
    match credentials::found(Kind::Member, &caller, &catalog, id) {
        Ok((_, stored)) => {
            let own = demand::own_quotas(&catalog, &stored.record);
            let usages = peers::usage_of(&state, &own).await.into_iter();
            let key = Shown {
                quotas: Some(usages.map(|usage| counted(&state, usage)).collect()),
                ..shown(&stored.record, stored.revision, None)
            };
            records::shown(&key, stored.revision)
        }
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Gives a key another secret; the one before is refused from then on.
pub(crate) async fn rotate(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Id,
    headers: HeaderMap,
) -> Response {
    let catalog = state.ports.catalog.load();
    let rotated = async {
        let known = credentials::found(Kind::Member, &caller, &catalog, id)?;
        let expected = Match::of(&headers)?;
        let renewed = |key: &Key| rights::renewed(&caller, &catalog, key);
        credentials::rotate(&state, known, expected, &caller.author(&arrival), renewed).await
    };
    match rotated.await {
        Ok(minted) => minted.answer(&shown(&minted.key, minted.revision, minted.secret.as_deref())),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// How a quota of a key stands.
fn counted(state: &Shared, usage: Usage) -> Counted {
    let Bound {
        key, limit, model, ..
    } = usage.bound;
    let amount = |amount| Amount::of(key, amount);
    Counted {
        quota: key.as_str(),
        model,
        limit: amount(limit),
        used: usage.used.map(amount),
        remaining: usage.used.map(|used| amount(limit.saturating_sub(used))),
        is_current: usage.is_current,
        reset_at: usage
            .resets_at
            .map(|at| standing::shown(at, state.config.billing_tz)),
    }
}

/// Revokes a key.
pub(crate) async fn revoke(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    id: Id,
) -> Response {
    let catalog = state.ports.catalog.load();
    let revoked = async {
        let (_, stored) = credentials::found(Kind::Member, &caller, &catalog, id)?;
        let may = |key: &Key| {
            if key.role > caller.role() {
                return Err(records::nothing());
            }
            Ok(())
        };
        let named = (Kind::Member, stored.record.id.as_str());
        credentials::revoke(&state, named, &caller.author(&arrival), may).await
    };
    match revoked.await {
        Ok(written) => json(&shown(&written.record, written.revision, None)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What the caller may grant of what he wants.
pub(super) fn grant(caller: &Caller, catalog: &Catalog, wanted: Wanted) -> Result<Grant, Failure> {
    let tenant = rights::living_tenant(caller, catalog, wanted.tenant.as_deref())?;
    let name = description::name(wanted.name)?;
    let role = rights::may_give(caller, wanted.role.unwrap_or_default())?;
    let user = wanted
        .user
        .map(|user| description::named("user", user).map(UserId::new));
    let user = user.transpose()?;
    if let Some(member) = user.as_ref().and_then(|id| catalog.user(&tenant, id)) {
        of_member(member, role)?;
    }
    Ok(Grant {
        name,
        tenant,
        user,
        role,
        models: models(caller, catalog, wanted.models)?,
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        output_default_max: output_default_max(wanted.output_default_max)?,
        expires_at: rights::may_last(caller, wanted.expires_at)?,
    })
}

/// Refuses what a key of a member could not be.
fn of_member(member: &User, role: Role) -> Result<(), Failure> {
    if member.disabled {
        return Err(invalid("user", "the member is disabled"));
    }
    if member.role.is_some_and(|most| role > most) {
        return Err(invalid("role", "the member's own role is lower"));
    }
    Ok(())
}

/// The most tokens of an answer to a call that names no maximum; 0 names none.
pub(super) fn output_default_max(wanted: Option<u64>) -> Result<Option<u64>, Failure> {
    let wanted = wanted.filter(|tokens| *tokens > 0);
    if wanted.is_some_and(|tokens| tokens > TOKENS_MAX) {
        return Err(invalid("output_default_max", "no answer has so many tokens"));
    }
    Ok(wanted)
}

/// The models a new key is narrowed to: only such as the caller may use himself.
pub(super) fn models(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Option<Vec<String>>,
) -> Result<Option<Vec<ModelName>>, Failure> {
    let Some(wanted) = wanted else {
        return Ok(caller.key.models.clone());
    };
    if wanted.len() > MODELS_MAX {
        return Err(invalid("models", "too many models"));
    }
    let known = wanted
        .iter()
        .map(|name| gate::visible(catalog, Some(&caller.key), name).map(|model| model.id.clone()));
    let known: Option<Vec<ModelName>> = known.collect();
    known
        .map(Some)
        .ok_or_else(|| invalid("models", "there is no such model"))
}

/// The record of a key as it is wanted, without its id and its secret.
pub(super) fn record(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Wanted,
    now: Timestamp,
) -> Result<Key, Failure> {
    let grant = grant(caller, catalog, wanted)?;
    let key = Key {
        id: KeyId::from(""),
        name: grant.name,
        tenant: grant.tenant,
        user: grant.user,
        role: grant.role,
        models: grant.models,
        limits: grant.limits,
        output_default_max: grant.output_default_max,
        expires_at: grant.expires_at,
        revoked: false,
        created_at: now,
        origin: Origin::Runtime,
        prefix: "".into(),
        reach: Reach::Member,
        denied: rights::denied(caller, catalog),
        rotated_at: None,
        routing: None,
        granted: None,
        maker: None,
        seen_by: None,
    };
    rights::minted(caller, catalog, key)
}

pub(super) fn shown<'a>(record: &'a Key, revision: u64, key: Option<&'a str>) -> Shown<'a> {
    Shown {
        id: record.id.as_str(),
        key,
        name: &record.name,
        prefix: &record.prefix,
        tenant: record.tenant.as_str(),
        user: record.user.as_ref().map(UserId::as_str),
        role: record.role,
        models: record.models.as_deref(),
        limits: &record.limits,
        quotas: None,
        output_default_max: record.output_default_max,
        expires_at: record.expires_at,
        created_at: record.created_at,
        rotated_at: record.rotated_at,
        revoked: record.revoked,
        routing: record.routing,
        origin: record.origin,
        revision,
    }
}
