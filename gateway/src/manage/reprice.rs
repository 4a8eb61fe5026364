//! `POST /api/v1/system/reprice`: what requests of some time cost by prices that were corrected afterwards. Rows stay as
//! they are: where the cost is another one, an adjustment goes into the log through this node's spool. One call looks at
//! one page of rows, and says where the next begins. Said again it finds nothing more to adjust.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use schemars::JsonSchema;
use schemas::catalog::Catalog;
use schemas::catalog::change::Actor;
use schemas::catalog::pricing::{self, Block, ScheduleText};
use schemas::catalog::rates::{Applied, Rates, Version};
use schemas::event::ledger::{Adjusted, Reason};
use schemas::event::request::RequestSettled;
use schemas::failure::{Failure, FailureCode};
use schemas::id::{EndpointId, ModelName, NodeId, RequestId, TenantId};
use schemas::money::{NanoUsd, Price, PriceVersion};
use schemas::query::{Adjustments, LogFilter, LogsAnswer, LogsQuery, PAGE_ROWS_MAX, Row};
use schemas::reprice::{Repriced, reprice};
use schemas::subject::QUERY_LOGS;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::openapi::Operation;
use super::{READ_WITHIN, ask, description, invalid, json, rights};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::peers;
use crate::state::Shared;

/// Prices that a call may bring along.
const PRICES_MAX: usize = 1_000;
/// The name of prices that a call brought along, in the place of a revision of the catalogue.
const GIVEN: &str = "given";

/// What is computed anew.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RepriceWanted")]
pub(super) struct Wanted {
    /// Requests admitted at or after.
    from: Timestamp,
    /// Requests admitted before.
    to: Timestamp,
    /// Of this tenant.
    #[serde(default)]
    tenant: Option<String>,
    /// Of this model.
    #[serde(default)]
    model: Option<String>,
    /// By these prices, and only what they name; by those of the catalogue at the time of each request where it is left
    /// out.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    prices: Option<Vec<Given>>,
    /// Only told, not written.
    #[serde(default)]
    dry_run: bool,
    /// Where the page begins: `next` of the one before.
    #[serde(default)]
    after: Option<RequestId>,
    /// Most rows of the page; 1000 where it is left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u32>,
}

/// A price that a call brings along.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RepriceBy")]
struct Given {
    /// The model, as rows have it.
    model: String,
    /// Only requests of this tenant.
    #[serde(default)]
    tenant: Option<String>,
    /// Only what this endpoint served, by its id.
    #[serde(default)]
    endpoint: Option<String>,
    /// Decimal strings of USD: `prompt`, `completion`, `input_cache_reads`, `input_cache_writes` per million tokens,
    /// `request` and `image` each.
    pricing: Block,
    /// Other prices at some times of the day.
    #[serde(default)]
    pricing_schedule: Option<ScheduleText>,
    /// From when on; always where it is left out.
    #[serde(default)]
    effective_from: Option<Timestamp>,
}

const WANTED: &str = "the body is not what is to be repriced: expected from, to and, optionally, tenant, model, prices, \
                      dry_run, after, limit";

/// What came of a page of rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Reprice")]
struct Shown {
    /// Rows that were looked at.
    rows: u64,
    /// Rows that cost something else: as many adjustments were written, unless it was only to be told.
    adjusted: u64,
    /// Rows that cost something and for which there is no price now: they stay as they are.
    unpriced: u64,
    /// What all of the rows cost so far, earlier adjustments included, in nano-dollars.
    before_nano_usd: i64,
    /// What they cost now.
    after_nano_usd: i64,
    /// By how much that is more.
    difference_nano_usd: i64,
    /// False where rows or adjustments of some node may be missing in the books yet: say it again later.
    is_current: bool,
    /// Where the next page begins; null on the last.
    next: Option<RequestId>,
}

/// What the path does.
pub(crate) const REPRICE: Operation = Operation::ask::<Wanted, Shown>(
    "Computes what requests cost by prices that were corrected, and writes adjustments where that is something else",
)
.of_operators();

/// Prices that count instead of the catalogue's, in rising precedence.
struct Prices(Vec<(Given, Version)>);

/// What a row is repriced by.
enum Found {
    /// Nothing was said of it: it stays.
    Unnamed,
    /// It has no price.
    Nothing,
    /// A price, and which.
    Price(Price, PriceVersion),
}

/// Reprices a page of rows.
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
        let bytes = description::large_body(&state, &headers, body).await?;
        let wanted: Wanted = description::read(&bytes, WANTED)?;
        if wanted.from >= wanted.to {
            return Err(invalid("to", "expected a time after from"));
        }
        if !(1..=PAGE_ROWS_MAX).contains(&wanted.limit.unwrap_or(PAGE_ROWS_MAX)) {
            return Err(invalid("limit", "expected 1 to 1000"));
        }
        let actor = caller.author(&arrival).actor;
        page(&state, wanted, (actor, arrival.at)).await
    };
    match done.await {
        Ok(done) => json(&done),
        Err(failure) => arrival.refuse(&failure),
    }
}

async fn page(state: &Shared, wanted: Wanted, (actor, now): (Actor, Timestamp)) -> Result<Shown, Failure> {
    let query = LogsQuery {
        filter: LogFilter {
            from: Some(wanted.from),
            to: Some(wanted.to),
            tenant: wanted.tenant.as_deref().map(TenantId::from),
            model: wanted.model.as_deref().map(ModelName::from),
            ..LogFilter::default()
        },
        limit: wanted.limit.unwrap_or(PAGE_ROWS_MAX),
        after: wanted.after,
    };
    let prices = wanted.prices.map(Prices::read).transpose()?;
    // What was adjusted a moment ago is found in the books then, and not adjusted once more.
    let is_current = peers::booked(state).await;
    let answer: LogsAnswer = ask(state, QUERY_LOGS, &query, READ_WITHIN).await?;
    let catalog = state.ports.catalog.load();
    let mut shown = Shown {
        rows: 0,
        adjusted: 0,
        unpriced: 0,
        before_nano_usd: 0,
        after_nano_usd: 0,
        difference_nano_usd: 0,
        is_current,
        next: answer.next,
    };
    for Row { settled, .. } in &answer.data {
        let id = settled.request_id;
        let known = answer.adjustments.get(&id).copied().unwrap_or_default();
        let found = match &prices {
            Some(prices) => prices.of(settled),
            None => of_catalog(&catalog, settled),
        };
        let adjusted = shown.count(settled, known, found);
        let Some((prices, price_version, cost)) = adjusted.filter(|_| !wanted.dry_run) else {
            continue;
        };
        let now = (actor.clone(), now, state.config.node.clone());
        let adjusted = adjustment(settled, known, (prices, price_version, cost), now);
        write(state, &adjusted)?;
    }
    Ok(shown)
}

impl Shown {
    /// Counts a row; what it costs now and by which prices, where that is something else.
    fn count(
        &mut self,
        settled: &RequestSettled,
        known: Adjustments,
        found: Found,
    ) -> Option<(Price, PriceVersion, NanoUsd)> {
        let was = cost_so_far(settled, known);
        self.rows += 1;
        self.before_nano_usd = self.before_nano_usd.saturating_add(was.0);
        self.after_nano_usd = self.after_nano_usd.saturating_add(was.0);
        let price = match &found {
            Found::Unnamed => return None,
            Found::Nothing => None,
            Found::Price(price, _) => Some(price),
        };
        match (reprice(settled, was, price), found) {
            (Repriced::Costs(cost), Found::Price(price, version)) => {
                let more = cost.0.saturating_sub(was.0);
                self.adjusted += 1;
                self.after_nano_usd = self.after_nano_usd.saturating_add(more);
                self.difference_nano_usd = self.difference_nano_usd.saturating_add(more);
                Some((price, version, cost))
            }
            (Repriced::Unpriced, _) => {
                self.unpriced += 1;
                None
            }
            _ => None,
        }
    }
}

const fn cost_so_far(settled: &RequestSettled, known: Adjustments) -> NanoUsd {
    NanoUsd(settled.cost_nano_usd.0.saturating_add(known.amount_nano_usd))
}

fn adjustment(
    settled: &RequestSettled,
    known: Adjustments,
    (prices, price_version, cost): (Price, PriceVersion, NanoUsd),
    (actor, adjusted_at, node): (Actor, Timestamp, NodeId),
) -> Adjusted {
    let was = cost_so_far(settled, known);
    Adjusted {
        request_id: settled.request_id,
        number: known.last.saturating_add(1),
        tenant: settled.tenant.clone(),
        user: settled.user.clone(),
        key_id: settled.key_id.clone(),
        job_id: settled.job_id.clone(),
        model: settled.model.clone(),
        served_model: settled.served_model.clone(),
        provider: settled.provider.clone(),
        endpoint_id: settled.endpoint_id.clone(),
        started_at: settled.started_at,
        billing_day: settled.billing_day,
        billing_month: settled.billing_month,
        was_nano_usd: was,
        cost_nano_usd: cost,
        amount_nano_usd: NanoUsd(cost.0.saturating_sub(was.0)),
        prices,
        price_version,
        reason: Reason::Repriced,
        actor,
        adjusted_at,
        node,
    }
}

/// Into the spool, from where it is published. What stands there counts, whatever becomes of the call.
fn write(state: &Shared, adjusted: &Adjusted) -> Result<(), Failure> {
    let spool = &state.ports.spool;
    if !spool.has_room() {
        let text =
            "the spool is full: what was adjusted so far counts, go on when the log takes events again";
        return Err(Failure::new(FailureCode::SpoolFull, text).retry_after(5));
    }
    let appended = spool.append(&adjusted.tenant, adjusted.adjusted_at, adjusted);
    appended.map(drop).map_err(|problem| {
        tracing::error!(
            request.id = %adjusted.request_id,
            error = &problem as &dyn std::error::Error,
            "an adjustment cannot be written"
        );
        let text = "an adjustment cannot be written: what was adjusted so far counts, go on later";
        Failure::new(FailureCode::StoreUnavailable, text).retry_after(5)
    })
}

/// What the catalogue says that a request costs, by the time of its admission.
fn of_catalog(catalog: &Catalog, settled: &RequestSettled) -> Found {
    let name = settled.model.as_str();
    let model = catalog
        .model_for(&settled.tenant, name)
        .or_else(|| catalog.model_anywhere(name));
    let served = settled.endpoint_id.as_ref();
    let route = model.zip(served).and_then(|(model, served)| {
        let mut routes = model.routes.iter();
        routes.find(|route| route.endpoint_id == *served)
    });
    let Some(route) = route else {
        return Found::Nothing;
    };
    let rates = route.rates.as_ref();
    let applied = rates.and_then(|rates| rates.at(settled.started_at));
    let Applied { price, since } = applied.unwrap_or(Applied {
        price: route.price,
        since: None,
    });
    price.map_or(Found::Nothing, |price| {
        Found::Price(price, PriceVersion::of(&catalog.revision_text, since))
    })
}

impl Prices {
    fn read(given: Vec<Given>) -> Result<Self, Failure> {
        if given.len() > PRICES_MAX {
            return Err(invalid("prices", "expected at most 1000 prices"));
        }
        let mut prices = Vec::with_capacity(given.len());
        for (place, given) in given.into_iter().enumerate() {
            let version = version(&given, place)?;
            prices.push((given, version));
        }
        prices.sort_by_key(|(given, version)| {
            let rank = (given.endpoint.is_some(), given.tenant.is_some());
            (rank, version.from)
        });
        Ok(Self(prices))
    }

    /// What a request costs: by its endpoint before by its tenant before by its model alone.
    fn of(&self, settled: &RequestSettled) -> Found {
        let mut named = self.0.iter().rev().filter(|(given, version)| {
            given.model == settled.model.as_str()
                && given
                    .tenant
                    .as_deref()
                    .is_none_or(|of| of == settled.tenant.as_str())
                && given
                    .endpoint
                    .as_deref()
                    .is_none_or(|of| Some(of) == settled.endpoint_id.as_ref().map(EndpointId::as_str))
                && version.from.is_none_or(|from| from <= settled.started_at)
        });
        let Some((_, version)) = named.next() else {
            return Found::Unnamed;
        };
        match Rates(vec![version.clone()]).at(settled.started_at) {
            Some(Applied {
                price: Some(price),
                since,
            }) => Found::Price(price, PriceVersion::of(&GIVEN.into(), since)),
            _ => Found::Unnamed,
        }
    }
}

fn version(given: &Given, place: usize) -> Result<Version, Failure> {
    let told = |field: &str, reason: String| {
        Failure::new(FailureCode::InvalidRequest, reason).param(format!("prices[{place}].{field}"))
    };
    let price = pricing::read(&given.pricing)
        .map_err(|problem| told("pricing", problem.to_string()))?
        .ok_or_else(|| told("pricing", "it prices nothing; write 0 for what is free".into()))?;
    let schedule = given.pricing_schedule.as_ref();
    let schedule = schedule.map(|text| pricing::schedule(text, &price));
    let schedule = schedule
        .transpose()
        .map_err(|problem| told("pricing_schedule", problem.to_string()))?;
    Ok(Version {
        from: given.effective_from,
        price: Some(price),
        schedule,
    })
}
