//! Prices that change with time. A call is billed by what holds when it is admitted: a change is a new record with the
//! time from which it holds, and what was admitted before keeps what it was admitted with.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Catalog, Model, Origin, Stored};
use crate::id::{EndpointId, ModelName, TenantId};
use crate::money::{NanoUsd, Price};
use crate::subject;
use crate::time::Timestamp;

/// Minutes of a day.
const DAY_MINUTES: i64 = 24 * 60;
/// Microseconds of a minute.
const MINUTE_MICROS: i64 = 60_000_000;
/// Most windows of a schedule.
pub const WINDOWS_MAX: usize = 48;

/// What a model costs from some time on: one version of a price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceRecord {
    /// Its id.
    pub id: Arc<str>,
    /// Whose model.
    pub tenant: TenantId,
    /// The model, by the name that callers ask for.
    pub model: ModelName,
    /// Only where this endpoint serves it; counts before a price of the model everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointId>,
    /// From when on.
    pub effective_from: Timestamp,
    /// What it costs while no schedule says otherwise.
    pub price: Price,
    /// What it costs at which time of the day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Where it came from.
    pub origin: Origin,
}

/// Prices by the time of the day, UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// From when on it holds.
    pub effective_at: Timestamp,
    /// The windows of each day; the first that holds counts.
    pub windows: Vec<Window>,
    /// Outside of all windows.
    pub default: Price,
}

/// A part of each day, from its start to before its end; over midnight where the end is the smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Minutes after midnight.
    pub start: u16,
    /// Minutes after midnight; 1440 is the end of the day.
    pub end: u16,
    /// What holds in it.
    pub price: Price,
}

impl Window {
    fn holds(&self, minute: i64) -> bool {
        let (start, end) = (i64::from(self.start), i64::from(self.end));
        if start < end {
            (start..end).contains(&minute)
        } else {
            minute >= start || minute < end
        }
    }
}

/// What holds at one moment, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// What is charged; `None` is unpriced.
    pub price: Option<Price>,
    /// Since when; `None` for what always held.
    pub since: Option<Timestamp>,
}

impl Schedule {
    /// What holds at a moment; `None` before there was a schedule.
    pub fn at(&self, at: Timestamp) -> Option<(Price, Timestamp)> {
        if at < self.effective_at {
            return None;
        }
        let minutes = at.micros().div_euclid(MINUTE_MICROS);
        let minute = minutes.rem_euclid(DAY_MINUTES);
        let window = self.windows.iter().find(|window| window.holds(minute));
        let price = window.map_or(self.default, |window| window.price);
        let edges = self.windows.iter().flat_map(|window| [window.start, window.end]);
        // Minutes since an edge was passed, today or the day before.
        let passed = edges.map(|edge| (minute - i64::from(edge)).rem_euclid(DAY_MINUTES));
        let since = passed.min().map_or(self.effective_at, |ago| {
            Timestamp::from_micros((minutes - ago).saturating_mul(MINUTE_MICROS))
        });
        Some((price, since.max(self.effective_at)))
    }
}

/// The versions of a route's price, in rising precedence.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rates(pub Vec<Version>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// From when on; `None` for always.
    pub from: Option<Timestamp>,
    /// What it costs while no schedule says otherwise; `None` is unpriced.
    pub price: Option<Price>,
    /// What it costs at which time of the day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
}

impl Rates {
    /// What holds at a moment; `None` where no version does.
    pub fn at(&self, at: Timestamp) -> Option<Applied> {
        let holds = |version: &&Version| version.from.is_none_or(|from| from <= at);
        let version = self.0.iter().rev().find(holds)?;
        let scheduled = version.schedule.as_ref().and_then(|schedule| schedule.at(at));
        Some(scheduled.map_or(
            Applied {
                price: version.price,
                since: version.from,
            },
            |(price, since)| Applied {
                price: Some(price),
                since: Some(version.from.map_or(since, |from| from.max(since))),
            },
        ))
    }
}

impl Model {
    /// The model with the prices that hold at a moment, and since when they do.
    pub fn priced(self: &Arc<Self>, at: Timestamp) -> (Arc<Self>, Option<Timestamp>) {
        if self.routes.iter().all(|route| route.rates.is_none()) {
            return (Arc::clone(self), None);
        }
        let mut model = Self::clone(self);
        let mut since = None;
        for route in &mut model.routes {
            if let Some(applied) = route.rates.as_ref().and_then(|rates| rates.at(at)) {
                route.price = applied.price;
                since = since.max(applied.since);
            }
        }
        if let Some(price) = model.routes.first().and_then(|route| route.price) {
            model.pricing = listed(&price);
        }
        (Arc::new(model), since)
    }
}

/// A price as it is listed: USD per million tokens, or each.
pub fn listed(price: &Price) -> Vec<(String, String)> {
    let parts = [
        ("prompt", price.input, true),
        ("completion", price.output, true),
        ("input_cache_reads", price.cached, price.cached != price.input),
        (
            "input_cache_writes",
            price.cache_write,
            price.cache_write != price.input,
        ),
        ("request", price.request, price.request != 0),
        ("image", price.image, price.image != 0),
    ];
    let told = parts.into_iter().filter(|(_, _, told)| *told);
    told.map(|(name, amount, _)| (name.to_owned(), plain(amount)))
        .collect()
}

/// An amount without zeros that say nothing.
pub fn plain(nano_usd: i64) -> String {
    let text = NanoUsd(nano_usd).usd();
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Catalog {
    /// A version of a price, with its revision.
    pub fn stored_price(&self, tenant: &TenantId, id: &str) -> Option<&Stored<PriceRecord>> {
        self.served.prices.get(&(tenant.clone(), Arc::from(id)))
    }

    /// Every version of every price, by tenant and id, that comes after `after`.
    pub fn prices_after(
        &self,
        after: Option<&(TenantId, Arc<str>)>,
    ) -> impl Iterator<Item = &Stored<PriceRecord>> {
        let prices = self.served.prices.iter();
        let later = prices.filter(move |(place, _)| after.is_none_or(|after| *place > after));
        later.map(|(_, stored)| stored)
    }
}

/// The record key of a version of a price.
pub fn price_key(tenant: &TenantId, id: &str) -> String {
    format!("{}{tenant}.{id}", subject::catalog::PRICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: i64) -> Price {
        Price {
            input,
            ..Price::default()
        }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).expect("a time")
    }

    fn night() -> Schedule {
        Schedule {
            effective_at: at("2026-11-01T12:00:00Z"),
            windows: vec![Window {
                start: 16 * 60 + 30,
                end: 30,
                price: price(1),
            }],
            default: price(2),
        }
    }

    #[test]
    fn a_window_holds_from_its_start_to_before_its_end_and_over_midnight() {
        for (moment, cost, since) in [
            ("2026-11-01T12:00:00Z", 2, "2026-11-01T12:00:00Z"),
            ("2026-11-01T16:29:59.999999Z", 2, "2026-11-01T12:00:00Z"),
            ("2026-11-01T16:30:00Z", 1, "2026-11-01T16:30:00Z"),
            ("2026-11-02T00:29:59Z", 1, "2026-11-01T16:30:00Z"),
            ("2026-11-02T00:30:00Z", 2, "2026-11-02T00:30:00Z"),
            ("2026-11-05T09:00:00Z", 2, "2026-11-05T00:30:00Z"),
        ] {
            assert_eq!(night().at(at(moment)), Some((price(cost), at(since))), "{moment}");
        }
        assert_eq!(night().at(at("2026-11-01T11:59:59Z")), None);
    }

    #[test]
    fn the_newest_version_that_has_begun_holds_and_one_to_come_does_not() {
        let version = |from: Option<&str>, cost| Version {
            from: from.map(at),
            price: Some(price(cost)),
            schedule: None,
        };
        let rates = Rates(vec![
            version(None, 9),
            version(Some("2026-11-01T00:00:00Z"), 8),
            version(Some("2026-12-01T00:00:00Z"), 7),
        ]);
        for (moment, cost) in [
            ("2026-10-31T23:59:59Z", 9),
            ("2026-11-01T00:00:00Z", 8),
            ("2026-11-30T23:59:59Z", 8),
            ("2026-12-01T00:00:00Z", 7),
        ] {
            let applied = rates.at(at(moment)).expect("a price");
            assert_eq!(applied.price, Some(price(cost)), "{moment}");
        }
        assert_eq!(Rates::default().at(at("2026-12-01T00:00:00Z")), None);
    }

    #[test]
    fn a_schedule_holds_no_longer_back_than_its_version() {
        let rates = Rates(vec![Version {
            from: Some(at("2026-11-03T18:00:00Z")),
            price: Some(price(5)),
            schedule: Some(night()),
        }]);
        let applied = rates.at(at("2026-11-03T19:00:00Z")).expect("a price");
        assert_eq!(applied.price, Some(price(1)));
        assert_eq!(applied.since, Some(at("2026-11-03T18:00:00Z")));
    }

    #[test]
    fn prices_are_listed_without_zeros_that_say_nothing() {
        let listed = listed(&Price {
            input: 150_000_000,
            cached: 75_000_000,
            cache_write: 150_000_000,
            output: 2_000_000_000,
            request: 0,
            image: 0,
        });
        let text: Vec<String> = listed
            .iter()
            .map(|(name, text)| format!("{name}={text}"))
            .collect();
        assert_eq!(text.join(" "), "prompt=0.15 completion=2 input_cache_reads=0.075");
    }
}
