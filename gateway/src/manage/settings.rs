//! `/admin/settings`: what operators set at run time over what the files say. The list is closed, each setting has a
//! type, and to drop one is to let the files say again what holds.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use schemars::JsonSchema;
use schemas::catalog::setting::{self, KNOWN, Known, Setting, Type, setting_key};
use schemas::catalog::{Catalog, Origin};
use schemas::event::audit::Kind;
use schemas::failure::Failure;
use schemas::id::{DEFAULT_TENANT, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::openapi::Operation;
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Changed, Found, Id, Removed, Resource, There};
use super::{Parameters, answered, invalid, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::sign_in::settings::SignUp;
use crate::state::Shared;

/// What a setting is to be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SettingValue")]
pub(crate) struct Wanted {
    /// Of the setting's type: true or false, a whole number, a decimal text of USD, or a list of texts.
    value: Value,
}

const WANTED: &str = "the body is not a setting's value: expected {\"value\": …}";

/// A setting as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Setting")]
struct Shown {
    /// Its name.
    name: &'static str,
    /// What kind of value it has.
    #[serde(rename = "type")]
    kind: Type,
    /// What it is for.
    description: &'static str,
    /// What holds at the moment; null where nothing is said.
    value: Option<Value>,
    /// Whether it was set, or is what the files say.
    origin: Origin,
    /// The number in its `ETag`; null for one that was never set.
    revision: Option<u64>,
}

/// What the paths of settings do.
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the settings, by name").of_operators();
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a setting").of_operators();
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who set a setting, and to what, the newest first").of_operators();
pub(crate) const SET: Operation = Operation::change::<Wanted, Shown>("Sets a setting").of_operators();
pub(crate) const DROP: Operation =
    Operation::remove::<Shown>("Drops what was set: the files say again what holds").of_operators();

/// Who may sign up, with what was set over what the files say.
pub(crate) fn sign_up(state: &Shared) -> SignUp {
    let catalog = state.ports.catalog.peek();
    let mut rules = state.config.sign_in.sign_up.clone();
    rules.enabled = catalog.flag(setting::SIGNUP_ENABLED).unwrap_or(rules.enabled);
    rules.approval = catalog
        .flag(setting::SIGNUP_APPROVAL_REQUIRED)
        .unwrap_or(rules.approval);
    if let Some(domains) = catalog.words(setting::SIGNUP_DOMAINS) {
        rules.domains = domains.into_iter().map(str::to_owned).collect();
    }
    rules
}

/// True where everybody may read where models are served.
pub(crate) fn public_routing(state: &Shared) -> bool {
    let set = state.ports.catalog.peek().flag(setting::PUBLIC_ROUTING);
    set.unwrap_or(state.config.public_routing)
}

/// The settings, by name, page by page.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let listed = || {
        rights::operates(&caller)?;
        let asked = Asked::of(given, false)?;
        let catalog = state.ports.catalog.load();
        let later = |known: &&Known| asked.after.as_deref().is_none_or(|after| known.name > after);
        let settings: Vec<&Known> = KNOWN.iter().filter(later).collect();
        let cursor = |known: &&Known| known.name.to_owned();
        Ok(asked.page(settings, cursor, |known| shown(&state, &catalog, known)))
    };
    answered(&arrival, listed())
}

/// The settings.
pub(crate) enum Settings {}

impl Resource for Settings {
    type Record = Setting;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, name: Id) -> Result<Found<'c, Setting>, Failure> {
        let known = named(caller, name)?;
        Ok(Found {
            place: place(known),
            stored: catalog.stored_setting(known.name),
        })
    }

    fn answer(act: &Act<'_>, place: &Place, _: There<'_, Setting>) -> Result<Response, Failure> {
        let catalog = act.state.ports.catalog.load();
        let shown = shown(act.state, &catalog, of_place(place)?);
        Ok(resource::overlaid(&shown, shown.revision))
    }
}

impl Changed for Settings {
    type Patch = Wanted;
    const PATCH: &str = WANTED;

    async fn change(
        act: &Act<'_>,
        place: &Place,
        expected: Match,
        Wanted { value }: Wanted,
    ) -> Result<Written<Setting>, Failure> {
        let known = of_place(place)?;
        let value = known.read(&value);
        let value = value.ok_or_else(|| invalid("value", expectation(known.kind)))?;
        let decide = |_: Option<&Setting>| Ok(setting(known, Some(value.clone())));
        upsert::set(act.state, place, expected, &act.author(), decide).await
    }
}

impl Removed for Settings {
    /// Drops what was set.
    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<Setting>, Failure> {
        let known = of_place(place)?;
        let decide = |_: &Setting| Ok(setting(known, None));
        records::change(act.state, place, expected, &act.author(), decide).await
    }
}

fn setting(known: &Known, value: Option<Value>) -> Setting {
    Setting {
        name: known.name.into(),
        value,
    }
}

const fn expectation(kind: Type) -> &'static str {
    match kind {
        Type::Boolean => "expected true or false",
        Type::Count => "expected a whole number; 0 is unlimited",
        Type::Money => "expected USD as a decimal text, such as \"1.50\"; \"0\" is unlimited",
        Type::List => "expected a list of at most 1000 texts without blanks",
    }
}

/// The setting that a caller names, if settings are his to see.
fn named(caller: &Caller, name: Id) -> Result<&'static Known, Failure> {
    rights::operates(caller)?;
    let known = name.ok().and_then(|Path(name)| setting::known(&name));
    known.ok_or_else(records::nothing)
}

/// The setting that lies at a place.
fn of_place(place: &Place) -> Result<&'static Known, Failure> {
    setting::known(&place.id).ok_or_else(records::nothing)
}

fn place(known: &Known) -> Place {
    Place {
        kind: Kind::Setting,
        key: setting_key(known.name),
        tenant: TenantId::from(DEFAULT_TENANT),
        id: Arc::from(known.name),
    }
}

fn shown(state: &Shared, catalog: &Catalog, known: &'static Known) -> Shown {
    let set = catalog.setting(known.name);
    let rules = || sign_up(state);
    let value = match known.name {
        setting::PUBLIC_ROUTING => Some(Value::from(public_routing(state))),
        setting::SIGNUP_ENABLED => Some(Value::from(rules().enabled)),
        setting::SIGNUP_APPROVAL_REQUIRED => Some(Value::from(rules().approval)),
        setting::SIGNUP_DOMAINS => Some(Value::from(rules().domains)),
        _ => known.of_role(catalog),
    };
    Shown {
        name: known.name,
        kind: known.kind,
        description: known.about,
        value,
        origin: if set.is_some() {
            Origin::Runtime
        } else {
            Origin::File
        },
        revision: catalog.stored_setting(known.name).map(|stored| stored.revision),
    }
}
