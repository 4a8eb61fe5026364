//! `/api/v1/users`: members of tenants. Administrators make those of their own tenant, operators of any: what a member
//! may do at most, what he may use over all his keys, and whether his keys are served at all. A member is named by his
//! id within a tenant, which is the caller's own unless `?tenant=` says another.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::user::{User, user_key, user_of_cursor};
use schemas::catalog::{Catalog, Origin, Role, Stored};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{ModelName, TenantId, UserId};
use schemas::limit::limits::Limits;
use schemas::secret::Secret;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::description::Edit;
use super::openapi::{Condition, Operation, Parameter};
use super::page::Asked;
use super::records::{self, History, Match, Place};
use super::{Parameters, creation, description, invalid, json, parameters, rights, scope};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::gate;
use crate::sign_in::member;
use crate::state::Shared;

/// How a member is named: by his id, and by the parameter `tenant`.
pub(crate) type Named = (Result<Path<String>, PathRejection>, Parameters);

/// Where members are made.
const PATH: &str = "/api/v1/users";
/// Longest address of mail, in bytes.
const EMAIL_BYTES_MAX: usize = 254;
/// Models that may be disabled for one member.
const MODELS_MAX: usize = 1_000;

/// A member that is to be made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UserWanted")]
pub(super) struct Wanted {
    /// The caller's own where it is left out.
    #[serde(default)]
    pub(super) tenant: Option<String>,
    /// A fresh one where it is left out.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// Where he is written to.
    #[serde(default)]
    pub(super) email: Option<String>,
    /// For people.
    #[serde(default)]
    pub(super) name: Option<String>,
    /// The most that his keys may do; the lowest where it is left out.
    #[serde(default)]
    pub(super) role: Option<Role>,
    /// Of all his keys together.
    #[serde(default)]
    #[schemars(with = "Option<Limits>")]
    pub(super) limits: Option<Map<String, Value>>,
    /// With what he signs in by his address of mail, of 8 to 256 characters; he has none where it is left out.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(super) password: Option<Secret<String>>,
}

const WANTED: &str =
    "the body is not a member's description: expected any of tenant, id, email, name, role, limits, password";

/// What of a member is to be different. What is not named stays; limits are replaced as a whole.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UserPatch")]
pub(super) struct Patch {
    /// Null takes it away.
    #[serde(default)]
    #[schemars(length(max = description::NAME_BYTES_MAX))]
    pub(super) email: Edit<String>,
    /// Null takes it away.
    #[serde(default)]
    #[schemars(length(max = description::NAME_BYTES_MAX))]
    pub(super) name: Edit<String>,
    /// The most that his keys may do.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Role")]
    pub(super) role: Option<Role>,
    /// All of them: what is not named is no more.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Limits")]
    pub(super) limits: Option<Map<String, Value>>,
    /// True has all his keys refused.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "bool")]
    pub(super) disabled: Option<bool>,
    /// All models that are not there for him.
    #[serde(default, deserialize_with = "description::given")]
    #[schemars(with = "Vec<String>")]
    pub(super) disabled_models: Option<Vec<String>>,
}

const PATCH: &str = "the body is not a change of a member: expected any of email, name, role, limits, disabled, \
     disabled_models";

/// A member as he is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "User")]
struct Shown {
    tenant: TenantId,
    id: UserId,
    email: Option<Arc<str>>,
    name: Option<Arc<str>>,
    /// Null where his keys alone say what he may do.
    role: Option<Role>,
    limits: Limits,
    disabled: bool,
    /// An operator disabled him, and only one enables him again.
    disabled_by_operator: bool,
    /// Models that are not there for him, whatever his keys say.
    disabled_models: Vec<ModelName>,
    /// Null for one of a file.
    created_at: Option<Timestamp>,
    origin: Origin,
    /// The number in his `ETag`.
    revision: u64,
}

/// What names the tenant of a member.
pub(crate) const OF_TENANT: &[Parameter] = &[Parameter::new::<TenantId>(
    "tenant",
    "The tenant, where it is not the caller's own.",
)];

/// What the paths of members do.
pub(crate) const LIST: Operation =
    Operation::list::<Shown>("Lists the members that the caller administers, by tenant and id")
        .taking(OF_TENANT);
pub(crate) const CREATE: Operation = Operation::create::<Wanted, Shown>("Makes a member");
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a member").taking(OF_TENANT);
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who changed a member, and what, the newest first").taking(OF_TENANT);
pub(crate) const CHANGE: Operation =
    Operation::change::<Patch, Shown>("Changes a member; what is not named stays").taking(OF_TENANT);
pub(crate) const RESTORE: Operation =
    Operation::remove::<Shown>("Drops what was changed of a member: he is again as his file has him")
        .taking(OF_TENANT)
        .of_operators()
        .under(Condition::IfMatch);

/// Has a member be again as his file has him.
pub(crate) async fn restore(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: Named,
    headers: HeaderMap,
) -> Response {
    let restored = async {
        rights::operates(&caller)?;
        let (tenant, id) = of(&caller, named)?;
        let expected = Match::of(&headers)?;
        let place = place(&tenant, &id);
        records::restore::<User>(&state, &place, expected, &caller.author(&arrival)).await
    };
    match restored.await {
        Ok(written) => json(&shown(&written.record, written.revision)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Makes a member.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(failure) = rights::administers(&caller) {
        return arrival.refuse_unread(&failure);
    }
    let made = async {
        let bytes = description::body(&state, &headers, body).await?;
        let mut wanted: Wanted = description::read(&bytes, WANTED)?;
        let password = wanted.password.take();
        let asked = member::without_password(&bytes);
        let fresh = || format!("user-{}", URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()));
        let id = wanted.id.clone().unwrap_or_else(fresh);
        let catalog = state.ports.catalog.load();
        let mut user = wanted_user(&caller, &catalog, wanted, (&id, arrival.at))?;
        if password.is_some() {
            rights::may_let_in(&caller, &catalog, &user, "password")?;
        }
        let creation = creation::begin(&state, &caller, &headers, (PATH, &asked), id.into()).await?;
        user.id = UserId(creation.id);
        let place = place(&user.tenant, &user.id);
        let credentials = member::credentials(&state, &user, password).await?;
        let made = records::create(&state, &place, user, creation.made, caller.author(&arrival)).await?;
        member::give_account(&state, &made.record, credentials, arrival.at).await?;
        Ok::<_, Failure>(made)
    };
    match made.await {
        Ok(written) => creation::answer(&written, &shown(&written.record, written.revision)),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The members that the caller administers, by tenant and id, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::administers(&caller)?;
        let asked = Asked::of(given, true)?;
        let reached = asked.reaching(&caller)?;
        let after = asked.after_place(user_of_cursor)?;
        let catalog = state.ports.catalog.load();
        let mut users = catalog.users_after(after.as_ref());
        users.retain(|stored| reached(&stored.record.tenant));
        let cursor = |stored: &&Stored<User>| stored.record.cursor();
        Ok(asked.page(users, cursor, |stored| shown(&stored.record, stored.revision)))
    };
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One member, with his `ETag`.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: Named,
) -> Response {
    let catalog = state.ports.catalog.load();
    let found = of(&caller, named)
        .and_then(|(tenant, id)| catalog.stored_user(&tenant, &id).ok_or_else(records::nothing));
    match found {
        Ok(stored) => records::shown(&shown(&stored.record, stored.revision), stored.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What was changed of a member, and by whom.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: Named,
) -> Response {
    let told = async {
        let (tenant, id) = of(&caller, named)?;
        records::history::<User>(&state, &place(&tenant, &id)).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Changes a member.
pub(crate) async fn patch(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    named: Named,
    request: Request,
) -> Response {
    let place = match of(&caller, named) {
        Ok((tenant, id)) => place(&tenant, &id),
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let changed = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let patch: Patch = description::read(&bytes, PATCH)?;
        let catalog = state.ports.catalog.load();
        let who = (&place.tenant, &UserId(Arc::clone(&place.id)));
        match &patch.email {
            Edit::Stays => {}
            Edit::Goes => member::may_have(&state, who, None).await?,
            Edit::Is(email) => member::may_have(&state, who, Some(email)).await?,
        }
        let signs_in = member::signs_in(&state, who).await?;
        let decide = |user: &User| {
            let after = patched(&caller, &catalog, user, &patch)?;
            if signs_in {
                rights::may_change_sign_in(&caller, &catalog, (user, &after))?;
            }
            Ok(after)
        };
        let changed = records::change(&state, &place, expected, &caller.author(&arrival), decide).await?;
        member::follow(&state, &changed.record, arrival.at).await?;
        Ok::<_, Failure>(changed)
    };
    match changed.await {
        Ok(written) => records::shown(&shown(&written.record, written.revision), written.revision),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// The member that a caller names, of a tenant that he administers.
pub(crate) fn of(caller: &Caller, (id, given): Named) -> Result<(TenantId, UserId), Failure> {
    rights::administers(caller)?;
    let mut tenant = None;
    for (name, value) in parameters(given)? {
        match name.as_str() {
            "tenant" => tenant = Some(value),
            _ => return Err(invalid(name, "there is no such parameter")),
        }
    }
    let tenant = rights::tenant(caller, tenant.as_deref())?;
    // A name that is not even text is the name of nobody.
    let Path(id) = id.map_err(|_| records::nothing())?;
    let tenant = TenantId::parse(tenant.as_str()).ok_or_else(records::nothing)?;
    Ok((tenant, UserId::new(id)))
}

fn place(tenant: &TenantId, id: &UserId) -> Place {
    Place {
        kind: Kind::User,
        key: user_key(tenant, id),
        tenant: tenant.clone(),
        id: Arc::clone(&id.0),
    }
}

/// A member as he was wanted, if he is the caller's to make.
pub(super) fn wanted_user(
    caller: &Caller,
    catalog: &Catalog,
    wanted: Wanted,
    (id, now): (&str, Timestamp),
) -> Result<User, Failure> {
    let tenant = rights::living_tenant(caller, catalog, wanted.tenant.as_deref())?;
    let id = UserId::new(description::named("id", id.to_owned())?);
    // Keys may be his before he has a record.
    rights::may_touch(caller, catalog, (&tenant, &id))?;
    Ok(User {
        email: wanted.email.map(email).transpose()?,
        name: wanted.name.map(description::name).transpose()?,
        role: Some(rights::may_give(caller, wanted.role.unwrap_or_default())?),
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        // What is disabled for whoever makes him is disabled for him.
        disabled_models: rights::denied(caller, catalog),
        created_at: Some(now),
        ..User::new(tenant, id, Origin::Runtime)
    })
}

/// A member after a change. A member of a file is from then on what the API made of him.
pub(super) fn patched(
    caller: &Caller,
    catalog: &Catalog,
    user: &User,
    patch: &Patch,
) -> Result<User, Failure> {
    rights::may_touch(caller, catalog, (&user.tenant, &user.id))?;
    // The record may be newer than the view that ranks go by.
    if let Some(role) = user.role {
        rights::may_give(caller, role)?;
    }
    let mut after = user.clone();
    patch.email.apply(&mut after.email, email)?;
    patch.name.apply(&mut after.name, description::name)?;
    if let Some(role) = patch.role {
        after.role = Some(rights::may_give(caller, role)?);
    }
    if let Some(limits) = &patch.limits {
        after.limits = description::limits(caller, catalog, limits.clone())?;
    }
    if let Some(disabled) = patch.disabled {
        let operates = rights::operates(caller).is_ok();
        if user.disabled_by_operator && !disabled && !operates {
            return Err(
                scope("an operator disabled the member: only one enables him again").param("disabled"),
            );
        }
        after.disabled = disabled;
        if operates {
            after.disabled_by_operator = disabled;
        }
    }
    if let Some(names) = &patch.disabled_models {
        after.disabled_models = disabled_models(caller, catalog, user, names)?;
    }
    if after.disabled && rights::is_self(caller, &user.tenant, &user.id) {
        return Err(invalid("disabled", "nobody disables himself"));
    }
    if after != *user {
        after.origin = Origin::Runtime;
    }
    Ok(after)
}

/// The models that are not there for a member: such as the caller may use himself, in what goes and in what comes.
fn disabled_models(
    caller: &Caller,
    catalog: &Catalog,
    user: &User,
    names: &[String],
) -> Result<Vec<ModelName>, Failure> {
    if names.len() > MODELS_MAX {
        return Err(invalid("disabled_models", "too many models"));
    }
    let visible = |name: &str| gate::visible(catalog, Some(&caller.key), name).map(|model| model.id.clone());
    let known = |name: &String| {
        let stays = user.disabled_models.iter().find(|known| known.as_str() == name);
        stays.cloned().or_else(|| visible(name))
    };
    let after: Option<BTreeSet<ModelName>> = names.iter().map(known).collect();
    let after = after.ok_or_else(|| invalid("disabled_models", "there is no such model"))?;
    let gone = user.disabled_models.iter().filter(|name| !after.contains(name));
    // Nobody lets others use what he may not use.
    let hidden = |name: &ModelName| {
        catalog.model_anywhere(name.as_str()).is_some() && visible(name.as_str()).is_none()
    };
    if gone.into_iter().any(hidden) {
        return Err(
            scope("the key may not use all of the models that would be enabled").param("disabled_models"),
        );
    }
    Ok(after.into_iter().collect())
}

/// An address of mail, as far as that can be told without writing to it.
fn email(text: String) -> Result<Arc<str>, Failure> {
    let parts = text.split_once('@');
    let plain = text.len() <= EMAIL_BYTES_MAX && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let whole = parts.is_some_and(|(who, host)| !who.is_empty() && !host.is_empty() && !host.contains('@'));
    if plain && whole {
        Ok(text.into())
    } else {
        Err(invalid("email", "expected an address such as alice@example.com"))
    }
}

fn shown(user: &User, revision: u64) -> Shown {
    Shown {
        tenant: user.tenant.clone(),
        id: user.id.clone(),
        email: user.email.clone(),
        name: user.name.clone(),
        role: user.role,
        limits: user.limits.clone(),
        disabled: user.disabled,
        disabled_by_operator: user.disabled_by_operator,
        disabled_models: user.disabled_models.clone(),
        created_at: user.created_at,
        origin: user.origin,
        revision,
    }
}
