//! `GET /api/v1/usage`: sums over the request log, in groups and buckets.

use axum::extract::State;
use axum::response::Response;
use chrono::Weekday;
use chrono_tz::Tz;
use schemars::JsonSchema;
use schemas::failure::Failure;
use schemas::limit::window::{self, Calendar};
use schemas::query::{GroupBy, Interval, LogFilter, UsageQuery, UsageRow};
use schemas::subject::QUERY_USAGE;
use schemas::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::openapi::{Operation, Parameter};
use super::{Parameters, READ_WITHIN, answered, ask, filtered, invalid, narrow, parameters, word};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::peers;
use crate::state::Shared;

/// Filters that sums know; the others concern single rows.
const FILTERS: [&str; 8] = [
    "from",
    "to",
    "tenant",
    "user",
    "key",
    "model",
    "served_model",
    "endpoint",
];

/// The sums as the books tell them.
#[derive(Deserialize)]
struct Sums {
    data: Box<RawValue>,
}

/// The same as they are shown.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
struct Shown {
    /// The sums, the oldest bucket first, then by group.
    #[schemars(with = "Vec<UsageRow>")]
    data: Box<RawValue>,
    /// False where what some node answered may be missing.
    is_current: bool,
}

/// Since when is summed: days, weeks from Monday and months of the time zone.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "UsagePeriod")]
enum Period {
    Today,
    Week,
    Month,
    All,
}

impl Period {
    /// When it began; `None` for all of time.
    fn begun(self, zone: Tz, now: Timestamp) -> Option<Timestamp> {
        let calendar = Calendar::at(&zone, now);
        let day = match self {
            Self::Today => calendar.day(),
            Self::Week => calendar.day().week(Weekday::Mon).checked_first_day()?,
            Self::Month => calendar.month(),
            Self::All => return None,
        };
        Some(window::begun(&zone, now, day))
    }
}

/// The parameters of sums.
const PARAMETERS: &[Parameter] = &[
    Parameter::new::<String>("tenant", "Of this tenant."),
    Parameter::new::<String>("user", "Of this member."),
    Parameter::new::<String>("key", "Of this key, by id."),
    Parameter::new::<Vec<GroupBy>>("group_by", "The fields that sums are grouped by."),
    Parameter::new::<Interval>(
        "interval",
        "The width of a bucket; one for all where it is left out.",
    ),
    Parameter::new::<String>(
        "tz",
        "The time zone of buckets and periods, by its IANA name; the billing time zone else.",
    ),
    Parameter::new::<Period>("period", "Since when, instead of from and to."),
    Parameter::new::<Timestamp>("from", "Admitted at or after."),
    Parameter::new::<Timestamp>("to", "Admitted before."),
    Parameter::new::<String>("model", "Of this model."),
    Parameter::new::<String>("served_model", "Answered by this model, as rows have it."),
    Parameter::new::<String>("endpoint", "Served by this endpoint."),
];
/// The same for who asks for his own.
pub(super) const OWN_PARAMETERS: &[Parameter] = PARAMETERS.split_at(3).1;

/// What the path does.
pub(crate) const SUMS: Operation =
    Operation::read::<Shown>("Sums what was used, in groups and buckets of time")
        .taking(PARAMETERS)
        .of_callers();

/// Sums of usage.
pub(crate) async fn sums(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
) -> Response {
    let read = async {
        let when = (state.config.billing_tz, arrival.at);
        let query = query(&parameters(given)?, &caller, when)?;
        let is_current = peers::booked(&state).await;
        let Sums { data } = ask(&state, QUERY_USAGE, &query, READ_WITHIN).await?;
        Ok(Shown { data, is_current })
    };
    answered(&arrival, read.await)
}

/// The question behind the parameters of a URL. Buckets and periods are of the billing time zone unless another is named.
pub(super) fn query(
    given: &[(String, String)],
    caller: &Caller,
    (billing_tz, now): (Tz, Timestamp),
) -> Result<UsageQuery, Failure> {
    let mut query = UsageQuery {
        filter: LogFilter::default(),
        group_by: Vec::new(),
        interval: None,
        tz: billing_tz.name().to_owned(),
    };
    let (mut zone, mut period) = (billing_tz, None);
    for (name, value) in given {
        match name.as_str() {
            "period" => period = Some(word::<Period>(name, value)?),
            "group_by" => query.group_by = groups(name, value)?,
            "interval" => query.interval = Some(word(name, value)?),
            "tz" => {
                zone = value
                    .parse()
                    .map_err(|_| invalid(name, "there is no such time zone"))?;
                zone.name().clone_into(&mut query.tz);
            }
            _ => filtered(&mut query.filter, name, value)
                .filter(|_| FILTERS.contains(&name.as_str()))
                .unwrap_or_else(|| Err(invalid(name, "there is no such parameter")))?,
        }
    }
    if let Some(period) = period {
        if query.filter.from.is_some() || query.filter.to.is_some() {
            return Err(invalid("period", "expected either a period, or from and to"));
        }
        query.filter.from = period.begun(zone, now);
    }
    narrow(&mut query.filter, caller)?;
    Ok(query)
}

fn groups(name: &str, value: &str) -> Result<Vec<GroupBy>, Failure> {
    let mut groups = Vec::new();
    for text in value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let group: GroupBy = word(name, text)?;
        if groups.contains(&group) {
            return Err(invalid(name, "a field is given twice"));
        }
        groups.push(group);
    }
    Ok(groups)
}
