//! `GET /anthropic/user/balance`: what a caller may still spend, by the budget of which the least is left, and how his
//! day stands. What no limit bounds, and what cannot be told at the moment, is null.

use axum::extract::State;
use axum::response::Response;
use schemas::limit::limits::LimitKey;
use schemas::money::NanoUsd;
use serde::Serialize;

use crate::caller::Caller;
use crate::demand;
use crate::limits::Usage;
use crate::manage::json;
use crate::peers;
use crate::standing;
use crate::state::Shared;

#[derive(Debug, PartialEq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the answer")]
struct Balance {
    is_available: bool,
    currency: &'static str,
    balance_usd: Option<f64>,
    daily_limit_usd: Option<f64>,
    spent_today_usd: Option<f64>,
    reset_at: Option<String>,
    /// False where some node or the records could not be asked: the figures are those that were known last. Left out where
    /// it is true, so that the answer has the members that clients know.
    #[serde(skip_serializing_if = "Clone::clone")]
    is_current: bool,
}

/// The caller's balance.
pub(crate) async fn show(State(state): State<Shared>, caller: Caller) -> Response {
    let catalog = state.ports.catalog.load();
    let budgets = demand::budgets(&catalog, &caller.key);
    let usages = peers::usage_of(&state, &budgets).await;
    let shown = |at| standing::shown(at, state.config.billing_tz);
    let today = least(
        usages
            .iter()
            .filter(|usage| usage.bound.key == LimitKey::DailyUsd),
    );
    let reset_at = today.and_then(|today| today.resets_at).map(shown);
    json(&balance(&usages, reset_at))
}

fn balance(usages: &[Usage], reset_at: Option<String>) -> Balance {
    let today = least(
        usages
            .iter()
            .filter(|usage| usage.bound.key == LimitKey::DailyUsd),
    );
    let left = least(usages.iter()).and_then(left);
    Balance {
        is_available: left != Some(0),
        currency: "USD",
        balance_usd: left.and_then(usd),
        daily_limit_usd: today.and_then(|today| usd(today.bound.limit)),
        spent_today_usd: today.and_then(|today| usd(today.used?)),
        reset_at,
        is_current: usages.iter().all(|usage| usage.is_current),
    }
}

/// The budget of which the least is left.
fn least<'u>(usages: impl Iterator<Item = &'u Usage>) -> Option<&'u Usage> {
    usages.min_by_key(|usage| left(usage).unwrap_or(u64::MAX))
}

/// What is left of a budget, in nano-dollars; `None` while that is not known.
fn left(usage: &Usage) -> Option<u64> {
    usage.used.map(|used| usage.bound.limit.saturating_sub(used))
}

/// Nano-dollars as a number of dollars: the nearest one that a number can be, for people.
fn usd(nano_usd: u64) -> Option<f64> {
    NanoUsd(i64::try_from(nano_usd).ok()?).usd().parse().ok()
}

#[cfg(test)]
mod tests {
    use schemas::limit::layers::{Bound, Scope};

    use super::*;

    fn usage(key: LimitKey, limit: u64, used: Option<u64>) -> Usage {
        Usage {
            bound: Bound {
                key,
                scope: Scope::Key,
                model: None,
                limit,
                name: "acme.t".into(),
            },
            used,
            is_current: used.is_some(),
            resets_at: None,
        }
    }

    #[test]
    fn a_balance_is_what_is_left_of_the_smallest_budget() {
        let usages = [
            usage(LimitKey::DailyUsd, 5_000_000_000, Some(1_000_178_000)),
            usage(LimitKey::MonthlyUsd, 3_000_000_000, Some(2_999_999_999)),
        ];

        let balance = balance(&usages, Some("then".into()));

        assert_eq!(
            balance,
            Balance {
                is_available: true,
                currency: "USD",
                balance_usd: Some(0.000_000_001),
                daily_limit_usd: Some(5.0),
                spent_today_usd: Some(1.000_178),
                reset_at: Some("then".into()),
                is_current: true,
            }
        );
    }

    #[test]
    fn a_spent_budget_is_not_available_and_one_that_is_not_known_is_null() {
        let spent = balance(&[usage(LimitKey::TotalUsd, 7, Some(9))], None);
        let unknown = balance(&[usage(LimitKey::DailyUsd, 1_000_000_000, None)], None);
        let none = balance(&[], None);

        assert_eq!((spent.is_available, spent.balance_usd), (false, Some(0.0)));
        assert_eq!((unknown.is_available, unknown.balance_usd), (true, None));
        assert_eq!((spent.is_current, unknown.is_current), (true, false));
        assert_eq!(
            (unknown.daily_limit_usd, unknown.spent_today_usd),
            (Some(1.0), None)
        );
        assert_eq!(
            (none.is_available, none.balance_usd, none.daily_limit_usd),
            (true, None, None)
        );
    }
}
