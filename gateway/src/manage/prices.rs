//! `/api/v1/prices`: what models cost, version by version. A version holds from a time on and is never changed: another
//! price is another version. A call is billed by what holds when it is admitted, so no change reaches it any more.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use schemas::catalog::pricing::{self, Block, ScheduleText};
use schemas::catalog::rates::{PriceRecord, price_key};
use schemas::catalog::served::place_of_cursor;
use schemas::catalog::{Catalog, Origin, Stored};
use schemas::event::audit::Kind;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{EndpointId, ModelName, TenantId};
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::model_routes::model_name;
use super::openapi::{Condition, Operation};
use super::page::Asked;
use super::records::{self, History, Match, Place, Written};
use super::resource::{self, Act, Created, Found, Id, Listed, Removed, Resource, Sent, There};
use super::{creation, invalid, rights};
use crate::caller::Caller;

mod judged;

pub(super) use judged::judge;

/// Where prices are made.
const PATH: &str = "/api/v1/prices";
/// Versions that there may be.
const PRICES_MAX: usize = 20_000;

/// A version of a price that is to be made.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PriceWanted")]
pub(crate) struct Wanted {
    /// The model, by the name that callers ask for.
    model: String,
    /// Whose model; the operators' where it is left out.
    #[serde(default)]
    tenant: Option<String>,
    /// Only where this endpoint serves it, by its id.
    #[serde(default)]
    endpoint: Option<String>,
    /// Decimal strings of USD: `prompt`, `completion`, `input_cache_reads`, `input_cache_writes` per million tokens,
    /// `request` and `image` each.
    pricing: Block,
    /// Other prices at some times of the day.
    #[serde(default)]
    pricing_schedule: Option<ScheduleText>,
    /// From when on; from now on where it is left out.
    #[serde(default)]
    effective_from: Option<Timestamp>,
}

const WANTED: &str = "the body is not a price: expected model, pricing and, optionally, tenant, endpoint, \
                      pricing_schedule, effective_from";

/// A version of a price as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Price")]
struct Shown {
    id: Arc<str>,
    tenant: TenantId,
    model: ModelName,
    /// False while no model of the tenant has the name: the version waits for one.
    known: bool,
    /// Null where it holds at all endpoints.
    endpoint: Option<EndpointId>,
    effective_from: Timestamp,
    /// Decimal strings of USD.
    pricing: Block,
    pricing_schedule: Option<ScheduleText>,
    created_at: Timestamp,
    origin: Origin,
    /// The number in its `ETag`.
    revision: u64,
}

/// What the paths of prices do.
pub(crate) const LIST: Operation = Operation::list::<Shown>("Lists the versions of prices, by tenant and id");
pub(crate) const CREATE: Operation =
    Operation::create::<Wanted, Shown>("Makes a version of a price").of_operators();
pub(crate) const SHOW: Operation = Operation::show::<Shown>("Shows a version of a price");
pub(crate) const HISTORY: Operation =
    Operation::find::<History>("Tells who made a version of a price").of_operators();
pub(crate) const REMOVE: Operation =
    Operation::remove::<Shown>("Removes a version of a price; what was admitted stays billed by it")
        .of_operators()
        .under(Condition::IfMatch);

/// The versions of prices.
pub(crate) enum Prices {}

impl Resource for Prices {
    type Record = PriceRecord;
    type Named = Id;

    fn found<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<Found<'c, PriceRecord>, Failure> {
        let stored = named(caller, catalog, id)?;
        Ok(Found::there(place(&stored.record), stored))
    }

    fn gone(id: &Id) -> Option<(Kind, Arc<str>)> {
        resource::of_kind(Kind::Price, id)
    }

    fn answer(act: &Act<'_>, _: &Place, there: There<'_, PriceRecord>) -> Result<Response, Failure> {
        resource::told(there, |price, revision| Self::shown(act, price, revision))
    }

    fn may_be_told(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }
}

impl Created for Prices {
    type Wanted = Wanted;
    const WANTED: &str = WANTED;

    fn may_create(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    async fn create(act: &Act<'_>, sent: Sent<'_>, wanted: Wanted) -> Result<Response, Failure> {
        let (state, caller) = (act.state, act.caller);
        let id = format!("pr-{}", URL_SAFE_NO_PAD.encode(state.ports.mint.random::<12>()));
        let mut price = wanted_price(&state.ports.catalog.load(), &wanted, (&id, act.arrival.at))?;
        let creation = creation::begin(state, caller, sent.headers, (PATH, sent.bytes), id.into()).await?;
        price.id = Arc::clone(&creation.id);
        let made = creation.make(state, &place(&price), price, act.author()).await?;
        let Some(written) = made else {
            return creation.again();
        };
        let shown = Self::shown(act, &written.record, written.revision);
        Ok(creation.answer(state, &written, &shown).await)
    }
}

impl Listed for Prices {
    const OF_TENANT: bool = true;

    fn after<'c>(catalog: &'c Catalog, asked: &Asked) -> Result<Vec<&'c Stored<PriceRecord>>, Failure> {
        let after = asked.after_place(place_of_cursor)?;
        Ok(catalog.prices_after(after.as_ref()).collect())
    }

    fn tenant(price: &PriceRecord) -> Option<&TenantId> {
        Some(&price.tenant)
    }

    fn cursor(price: &PriceRecord) -> String {
        format!("{}.{}", price.tenant, price.id)
    }

    fn shown(act: &Act<'_>, price: &PriceRecord, revision: u64) -> impl Serialize {
        shown(&act.state.ports.catalog.load(), price, revision)
    }
}

impl Removed for Prices {
    fn may_remove(caller: &Caller) -> Result<(), Failure> {
        rights::operates(caller)
    }

    async fn remove(act: &Act<'_>, place: &Place, expected: Match) -> Result<Written<PriceRecord>, Failure> {
        records::remove(act.state, place, expected, act.author(), |_| Ok(())).await
    }
}

/// The version that a caller names: one of a tenant that he administers. Another is not there.
fn named<'c>(caller: &Caller, catalog: &'c Catalog, id: Id) -> Result<&'c Stored<PriceRecord>, Failure> {
    rights::administers(caller)?;
    let Path(id) = id.map_err(|_| records::nothing())?;
    let mut prices = catalog.prices_after(None);
    prices
        .find(|stored| *stored.record.id == *id && rights::reaches(caller, &stored.record.tenant))
        .ok_or_else(records::nothing)
}

fn place(price: &PriceRecord) -> Place {
    Place {
        kind: Kind::Price,
        key: price_key(&price.tenant, &price.id),
        tenant: price.tenant.clone(),
        id: Arc::clone(&price.id),
    }
}

/// A version of a price as it was wanted.
fn wanted_price(
    catalog: &Catalog,
    wanted: &Wanted,
    (id, now): (&str, Timestamp),
) -> Result<PriceRecord, Failure> {
    let tenant = match wanted.tenant.as_deref() {
        None => schemas::catalog::operators(),
        Some(named) => {
            let known = TenantId::parse(named).filter(|id| catalog.tenant(id).is_some());
            known.ok_or_else(|| invalid("tenant", "there is no such tenant"))?
        }
    };
    let endpoint = wanted.endpoint.as_deref().map(EndpointId::from);
    if endpoint
        .as_ref()
        .is_some_and(|id| catalog.endpoint_for(&tenant, id).is_none())
    {
        return Err(invalid("endpoint", "there is no such endpoint"));
    }
    let name = model_name("model", &wanted.model)?;
    let is_default = tenant == schemas::catalog::operators();
    if is_default && catalog.canonical(&name).is_some() {
        return Err(invalid(
            "model",
            "the name is another name of a model: use the model's own",
        ));
    }
    let told = |field: String, reason: String| Failure::new(FailureCode::InvalidRequest, reason).param(field);
    let price = pricing::read(&wanted.pricing)
        .map_err(|problem| told("pricing".into(), problem.to_string()))?
        .ok_or_else(|| invalid("pricing", "it prices nothing; write 0 for what is free"))?;
    let schedule = wanted.pricing_schedule.as_ref();
    let schedule = schedule.map(|text| pricing::schedule(text, &price));
    let schedule = schedule
        .transpose()
        .map_err(|problem| told(format!("pricing_schedule.{}", problem.field), problem.reason))?;
    if catalog.prices_after(None).count() >= PRICES_MAX {
        return Err(invalid(
            "model",
            "there are as many versions of prices as there may be",
        ));
    }
    Ok(PriceRecord {
        id: id.into(),
        tenant,
        model: ModelName::new(name),
        endpoint,
        effective_from: wanted.effective_from.unwrap_or(now),
        price,
        schedule,
        created_at: now,
        origin: Origin::Runtime,
    })
}

fn shown(catalog: &Catalog, price: &PriceRecord, revision: u64) -> Shown {
    Shown {
        known: catalog.is_known(&price.tenant, &price.model),
        id: Arc::clone(&price.id),
        tenant: price.tenant.clone(),
        model: price.model.clone(),
        endpoint: price.endpoint.clone(),
        effective_from: price.effective_from,
        pricing: pricing::written(&price.price),
        pricing_schedule: price.schedule.as_ref().map(pricing::written_schedule),
        created_at: price.created_at,
        origin: price.origin,
        revision,
    }
}
