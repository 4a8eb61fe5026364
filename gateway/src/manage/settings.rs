//! `/admin/settings`: what operators set at run time over what the files say. The list is closed, each setting has a
//! type, and to drop one is to let the files say again what holds.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderMap;
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
use super::records::{self, History, Match, Place};
use super::{Parameters, description, invalid, json, rights, upsert};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::sign_in::settings::SignUp;
use crate::state::Shared;

/// What a setting is to be.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SettingValue")]
pub(super) struct Wanted {
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
    match listed() {
        Ok(page) => json(&page),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// One setting, with its `ETag` where it was set.
pub(crate) async fn show(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    match named(&caller, name) {
        Ok(known) => answer(&state, known),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Who set a setting, and to what.
pub(crate) async fn history(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
) -> Response {
    let told = async {
        let place = place(named(&caller, name)?);
        records::history::<Setting>(&state, &place).await
    };
    match told.await {
        Ok(history) => json(&history),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Sets a setting.
pub(crate) async fn set(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let known = match named(&caller, name) {
        Ok(known) => known,
        Err(failure) => return arrival.refuse_unread(&failure),
    };
    let (parts, body) = request.into_parts();
    let done = async {
        let expected = Match::of(&parts.headers)?;
        let bytes = description::body(&state, &parts.headers, body).await?;
        let Wanted { value } = description::read(&bytes, WANTED)?;
        let value = known.read(&value);
        let value = value.ok_or_else(|| invalid("value", expectation(known.kind)))?;
        let decide = |_: Option<&Setting>| Ok(setting(known, Some(value.clone())));
        upsert::set(&state, &place(known), expected, &caller.author(&arrival), decide).await
    };
    match done.await {
        Ok(_) => answer(&state, known),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// Drops what was set.
pub(crate) async fn drop_it(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    let dropped = async {
        let known = named(&caller, name)?;
        let expected = Match::of(&headers)?;
        let decide = |_: &Setting| Ok(setting(known, None));
        records::change(&state, &place(known), expected, &caller.author(&arrival), decide).await?;
        Ok::<_, Failure>(known)
    };
    match dropped.await {
        Ok(known) => answer(&state, known),
        Err(failure) => arrival.refuse(&failure),
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
fn named(caller: &Caller, name: Result<Path<String>, PathRejection>) -> Result<&'static Known, Failure> {
    rights::operates(caller)?;
    let known = name.ok().and_then(|Path(name)| setting::known(&name));
    known.ok_or_else(records::nothing)
}

fn place(known: &Known) -> Place {
    Place {
        kind: Kind::Setting,
        key: setting_key(known.name),
        tenant: TenantId::from(DEFAULT_TENANT),
        id: Arc::from(known.name),
    }
}

fn answer(state: &Shared, known: &'static Known) -> Response {
    let shown = shown(state, &state.ports.catalog.load(), known);
    match shown.revision {
        Some(revision) => records::shown(&shown, revision),
        None => json(&shown),
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
