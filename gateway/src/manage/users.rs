//! `/api/v1/users`: members of tenants. Administrators make those of their own tenant, operators of any: what a member
//! may do at most, what he may use over all his keys, and whether his keys are served at all. A member is named by his
//! id within a tenant, which is the caller's own unless `?tenant=` says another.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
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
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Created, Found, Id, Listed, Removed, Resource, Sent, There};
use super::rights::Becoming;
use super::{Parameters, creation, description, invalid, parameters, rights, scope};
use crate::caller::Caller;
use crate::gate;
use crate::sign_in::member;
use crate::sign_in::turn::{Address, Turn};

/// How a member is named: by his id, and by the parameter `tenant`.
pub(crate) type Named = (Id, Parameters);

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
pub(crate) struct Wanted {
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
pub(crate) struct Patch {
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

/// The members of tenants.
pub(crate) enum Users {}

impl Resource for Users {
    type Record = User;
    type Named = Named;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, named: Named) -> Result<Found<'c, User>, Failure> {
        let (tenant, id) = of(caller, named)?;
        Ok(Found {
            place: place(&tenant, &id),
            stored: catalog.stored_user(&tenant, &id),
        })
    }

    fn answer(_: &Act<'_>, _: &Place, there: There<'_, User>) -> Result<Response, Failure> {
        resource::told(there, shown)
    }
}

impl Created for Users {
    type Wanted = Wanted;
    const WANTED: &str = WANTED;

    async fn create(act: &Act<'_>, sent: Sent<'_>, mut wanted: Wanted) -> Result<Response, Failure> {
        let Act {
            state,
            arrival,
            caller,
        } = *act;
        let password = wanted.password.take();
        let asked = member::without_password(sent.bytes);
        let fresh = || format!("user-{}", URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()));
        let id = wanted.id.clone().unwrap_or_else(fresh);
        let catalog = state.ports.catalog.load();
        let mut user = wanted_user(caller, &catalog, wanted, (&id, arrival.at))?;
        let creation = creation::begin(state, caller, sent.headers, (PATH, &asked), id.into()).await?;
        user.id = UserId(Arc::clone(&creation.id));
        let place = place(&user.tenant, &user.id);
        let password = member::password(state, &user, password).await?;
        let email = user.email.clone();
        // Who is there already has what he has: he is shown again, or his id is taken.
        let is_there = records::exists::<User>(state, &place).await?;
        let address = match email.as_deref().filter(|_| !is_there) {
            None => Address::Stays,
            email => Address::Is(email),
        };
        let turn = Turn::begin(state, (&user.tenant, &user.id), address, arrival.at).await?;
        let author = act.author();
        let made = creation.make(state, &place, user, author.clone()).await;
        let written = match made {
            Ok(Some(written)) => written,
            Ok(None) => {
                turn.fail(state).await;
                return creation.again();
            }
            Err(failure) => {
                turn.fail(state).await;
                return Err(failure);
            }
        };
        member::give_account(state, &written.record, password, arrival.at).await?;
        turn.done(state, Some(&written.record), &author).await?;
        let shown = shown(&written.record, written.revision);
        Ok(creation.answer(state, &written, &shown).await)
    }
}

impl Listed for Users {
    const OF_TENANT: bool = true;

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<User>>, Failure> {
        let after = asked.after_place(user_of_cursor)?;
        Ok(catalog.users_after(after.as_ref()))
    }

    fn tenant(user: &User) -> Option<&TenantId> {
        Some(&user.tenant)
    }

    fn cursor(user: &User) -> String {
        user.cursor()
    }

    fn shown(_: &Act<'_>, user: &User, revision: u64) -> impl Serialize {
        shown(user, revision)
    }
}

impl Changed for Users {
    type Patch = Patch;
    const PATCH: &str = PATCH;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        patch: Patch,
    ) -> Result<Written<User>, Failure> {
        let (state, caller) = (act.state, act.caller);
        let catalog = state.ports.catalog.load();
        let who = (&place.tenant, &UserId(Arc::clone(&place.id)));
        let address = match &patch.email {
            Edit::Stays => Address::Stays,
            Edit::Goes => Address::Is(None),
            Edit::Is(email) => Address::Is(Some(email)),
        };
        let turn = Turn::begin(state, who, address, act.arrival.at).await?;
        let signs_in = turn.signs_in;
        let decide = |user: &User| {
            let after = patched(caller, &catalog, user, &patch)?;
            let becoming = Becoming {
                before: user,
                after: &after,
                signs_in,
            };
            rights::may_become(caller, &catalog, &becoming)?;
            Ok(after)
        };
        let author = act.author();
        let changed = records::change(state, place, expected, &author, decide).await;
        match changed {
            Ok(changed) => {
                turn.done(state, Some(&changed.record), &author).await?;
                Ok(changed)
            }
            Err(failure) => {
                turn.fail(state).await;
                Err(failure)
            }
        }
    }
}

impl Removed for Users {
    fn may_remove(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    /// Has a member be again as his file has him.
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<User>, Failure> {
        let (state, caller) = (act.state, act.caller);
        let who = (&place.tenant, &UserId(Arc::clone(&place.id)));
        let turn = Turn::begin(state, who, Address::Falls, act.arrival.at).await?;
        let catalog = state.ports.catalog.load();
        let may = |before: &User, after: &User| {
            let becoming = Becoming {
                before,
                after,
                signs_in: turn.signs_in,
            };
            rights::may_become(caller, &catalog, &becoming)
        };
        let author = act.author();
        let dropped = records::restore(state, place, expected, &author, may).await?;
        turn.done(state, Some(&dropped.record), &author).await?;
        Ok(dropped)
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
    let role = rights::may_give(caller, wanted.role.unwrap_or_default())?;
    let nobody = User::new(tenant, id, Origin::Runtime);
    let user = User {
        email: wanted.email.map(email).transpose()?,
        name: wanted.name.map(description::name).transpose()?,
        role: Some(role),
        granted: rights::granted(caller, role, None),
        limits: description::limits(caller, catalog, wanted.limits.unwrap_or_default())?,
        // What is disabled for whoever makes him is disabled for him.
        disabled_models: rights::denied(caller, catalog),
        created_at: Some(now),
        ..nobody.clone()
    };
    let becoming = Becoming {
        before: &nobody,
        after: &user,
        signs_in: false,
    };
    rights::may_become(caller, catalog, &becoming)?;
    Ok(user)
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
        after.granted = rights::granted(caller, role, after.granted);
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
    if after.disabled && rights::is_behind(caller, &user.tenant, &user.id) {
        return Err(invalid("disabled", "nobody disables himself"));
    }
    if after != *user {
        after.origin = Origin::Runtime;
    }
    Ok(after)
}

/// The models that are not there for a member: such as the caller may use himself, in what comes.
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
