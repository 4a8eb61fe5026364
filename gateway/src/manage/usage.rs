//! `GET /api/v1/usage`: sums over the request log, in groups and buckets.

use axum::extract::State;
use axum::response::Response;
use chrono_tz::Tz;
use schemars::JsonSchema;
use schemas::failure::Failure;
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
const FILTERS: [&str; 7] = ["from", "to", "tenant", "user", "key", "model", "endpoint"];

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
        "The time zone of the buckets, by its IANA name; the billing time zone else.",
    ),
    Parameter::new::<Timestamp>("from", "Admitted at or after."),
    Parameter::new::<Timestamp>("to", "Admitted before."),
    Parameter::new::<String>("model", "Of this model."),
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
        let query = query(&parameters(given)?, &caller, state.config.billing_tz)?;
        let is_current = peers::booked(&state).await;
        let Sums { data } = ask(&state, QUERY_USAGE, &query, READ_WITHIN).await?;
        Ok(Shown { data, is_current })
    };
    answered(&arrival, read.await)
}

/// The question behind the parameters of a URL. Buckets are of the billing time zone unless another is named.
pub(super) fn query(
    given: &[(String, String)],
    caller: &Caller,
    billing_tz: Tz,
) -> Result<UsageQuery, Failure> {
    let mut query = UsageQuery {
        filter: LogFilter::default(),
        group_by: Vec::new(),
        interval: None,
        tz: billing_tz.name().to_owned(),
    };
    for (name, value) in given {
        match name.as_str() {
            "group_by" => query.group_by = groups(name, value)?,
            "interval" => query.interval = Some(word(name, value)?),
            "tz" => {
                let tz: Tz = value
                    .parse()
                    .map_err(|_| invalid(name, "there is no such time zone"))?;
                tz.name().clone_into(&mut query.tz);
            }
            _ => filtered(&mut query.filter, name, value)
                .filter(|_| FILTERS.contains(&name.as_str()))
                .unwrap_or_else(|| Err(invalid(name, "there is no such parameter")))?,
        }
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
