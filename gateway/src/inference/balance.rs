//! `GET /anthropic/user/balance`: what a caller may still spend. Its form is that of a gateway with limits; as long as
//! there are none, what is unknown is null.

use axum::response::Response;
use serde::Serialize;

use crate::caller::Caller;
use crate::manage::json;

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the answer")]
struct Balance {
    is_available: bool,
    currency: &'static str,
    balance_usd: Option<f64>,
    daily_limit_usd: Option<f64>,
    spent_today_usd: Option<f64>,
    reset_at: Option<String>,
}

/// The caller's balance.
pub(crate) async fn show(_caller: Caller) -> Response {
    json(&Balance {
        is_available: true,
        currency: "USD",
        balance_usd: None,
        daily_limit_usd: None,
        spent_today_usd: None,
        reset_at: None,
    })
}
