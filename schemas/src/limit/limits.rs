//! Limits as operators write them: `{"qps": 10, "daily_usd": "1.00", "per_model": {"m": {"rpm": 60}}}`. Counts are whole
//! numbers, money is decimal text of US dollars. What is written as 0 is said to be unlimited; what is not written is
//! left to whoever may fill it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::FailureCode;
use crate::id::{MODEL_NAME_BYTES_MAX, ModelName};
use crate::money::NanoUsd;

/// The largest limit that can be written.
pub const LIMIT_MAX: u64 = i64::MAX.unsigned_abs();
/// Models with limits of their own in one set.
pub const MODELS_MAX: usize = 256;
/// The key under which the limits of models stand.
pub const PER_MODEL: &str = "per_model";

/// What can be limited, in the order in which a request meets it: rates, concurrency, quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitKey {
    /// Calls per second.
    Qps,
    /// Calls per minute.
    Rpm,
    /// Tokens per minute.
    Tpm,
    /// Calls at once.
    Concurrency,
    /// Calls per day.
    DailyCalls,
    /// Calls per month.
    MonthlyCalls,
    /// Tokens per day.
    DailyTokens,
    /// Tokens per month.
    MonthlyTokens,
    /// Money per day.
    DailyUsd,
    /// Money per month.
    MonthlyUsd,
    /// Money in all.
    TotalUsd,
}

/// How a limit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// So much per slice of time.
    Rate(Slice, Unit),
    /// So many at once.
    Concurrency,
    /// So much per period.
    Quota(Span, Unit),
}

/// The slices of time in which a rate is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slice {
    /// Calendar seconds.
    Second,
    /// Calendar minutes.
    Minute,
}

impl Slice {
    /// Its length in microseconds.
    pub const fn micros(self) -> i64 {
        match self {
            Self::Second => 1_000_000,
            Self::Minute => 60_000_000,
        }
    }
}

/// The period of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Span {
    /// A day of the billing time zone.
    Day,
    /// A month of the billing time zone.
    Month,
    /// For ever.
    Total,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unit {
    /// Calls.
    Calls,
    /// Tokens, of prompt and answer together.
    Tokens,
    /// Nano-dollars.
    NanoUsd,
}

impl LimitKey {
    /// Every one, in order.
    pub const ALL: [Self; 11] = [
        Self::Qps,
        Self::Rpm,
        Self::Tpm,
        Self::Concurrency,
        Self::DailyCalls,
        Self::MonthlyCalls,
        Self::DailyTokens,
        Self::MonthlyTokens,
        Self::DailyUsd,
        Self::MonthlyUsd,
        Self::TotalUsd,
    ];

    /// The key that operators write.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qps => "qps",
            Self::Rpm => "rpm",
            Self::Tpm => "tpm",
            Self::Concurrency => "concurrency",
            Self::DailyCalls => "daily_calls",
            Self::MonthlyCalls => "monthly_calls",
            Self::DailyTokens => "daily_tokens",
            Self::MonthlyTokens => "monthly_tokens",
            Self::DailyUsd => "daily_usd",
            Self::MonthlyUsd => "monthly_usd",
            Self::TotalUsd => "total_usd",
        }
    }

    /// The key of a name; `None` for a name that is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == name)
    }

    /// How it is kept.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Qps => Kind::Rate(Slice::Second, Unit::Calls),
            Self::Rpm => Kind::Rate(Slice::Minute, Unit::Calls),
            Self::Tpm => Kind::Rate(Slice::Minute, Unit::Tokens),
            Self::Concurrency => Kind::Concurrency,
            Self::DailyCalls => Kind::Quota(Span::Day, Unit::Calls),
            Self::MonthlyCalls => Kind::Quota(Span::Month, Unit::Calls),
            Self::DailyTokens => Kind::Quota(Span::Day, Unit::Tokens),
            Self::MonthlyTokens => Kind::Quota(Span::Month, Unit::Tokens),
            Self::DailyUsd => Kind::Quota(Span::Day, Unit::NanoUsd),
            Self::MonthlyUsd => Kind::Quota(Span::Month, Unit::NanoUsd),
            Self::TotalUsd => Kind::Quota(Span::Total, Unit::NanoUsd),
        }
    }

    /// What a caller is told who exceeds it.
    pub const fn code(self) -> FailureCode {
        match self {
            Self::Qps => FailureCode::QpsExceeded,
            Self::Rpm => FailureCode::RpmExceeded,
            Self::Tpm => FailureCode::TokensPerMinuteExceeded,
            Self::Concurrency => FailureCode::ConcurrencyExceeded,
            Self::DailyCalls => FailureCode::DailyLimitExceeded,
            Self::MonthlyCalls => FailureCode::MonthlyQuotaExceeded,
            Self::DailyTokens => FailureCode::DailyTokensExceeded,
            Self::MonthlyTokens => FailureCode::MonthlyTokensExceeded,
            Self::DailyUsd => FailureCode::DailySpendExceeded,
            Self::MonthlyUsd => FailureCode::MonthlySpendExceeded,
            Self::TotalUsd => FailureCode::TotalSpendExceeded,
        }
    }

    /// True for amounts of money.
    pub const fn is_money(self) -> bool {
        matches!(self.kind(), Kind::Quota(_, Unit::NanoUsd))
    }

    /// Reads an amount as it is written: whole numbers, or US dollars for money.
    pub fn amount(self, text: &str) -> Result<u64, ProblemKind> {
        if self.is_money() {
            let nano = NanoUsd::parse_usd(text).map_err(|_| ProblemKind::Money)?;
            return u64::try_from(nano.0).map_err(|_| ProblemKind::Money);
        }
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let amount = digits.then(|| text.parse().ok()).flatten();
        amount
            .filter(|amount| *amount <= LIMIT_MAX)
            .ok_or(ProblemKind::Count)
    }
}

/// Why limits cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {kind}")]
pub struct Problem {
    /// Where, in dots.
    pub path: String,
    /// What.
    pub kind: ProblemKind,
}

/// What is wrong with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    /// No key of a limit.
    #[error("there is no such limit")]
    Key,
    /// Not a whole number.
    #[error("expected a whole number")]
    Count,
    /// Not an amount of money.
    #[error("expected US dollars as text such as \"1.25\"")]
    Money,
    /// Not limits of models.
    #[error("expected an object of models and their limits")]
    Models,
    /// Too many models, or too long a name of one.
    #[error("at most 256 models of at most 256 bytes each")]
    TooMany,
}

/// Amounts by key. An amount of 0 says: unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds(BTreeMap<LimitKey, u64>);

impl Bounds {
    /// What is written for a key, 0 included.
    pub fn written(&self, key: LimitKey) -> Option<u64> {
        self.0.get(&key).copied()
    }

    /// Writes an amount, in calls, tokens or nano-dollars.
    pub fn set(&mut self, key: LimitKey, amount: u64) {
        self.0.insert(key, amount.min(LIMIT_MAX));
    }

    /// What is written, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LimitKey, u64)> {
        self.0.iter().map(|(key, amount)| (*key, *amount))
    }

    /// True when nothing is written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn read(&mut self, name: &str, value: &Value) -> Result<(), ProblemKind> {
        let key = LimitKey::parse(name).ok_or(ProblemKind::Key)?;
        let amount = match value {
            Value::String(text) => key.amount(text)?,
            Value::Number(number) if number.is_u64() => key.amount(&number.to_string())?,
            _ if key.is_money() => return Err(ProblemKind::Money),
            _ => return Err(ProblemKind::Count),
        };
        self.set(key, amount);
        Ok(())
    }

    fn show(&self) -> Map<String, Value> {
        let text = |key: LimitKey, amount: u64| {
            if key.is_money() {
                NanoUsd(i64::try_from(amount).unwrap_or(i64::MAX)).usd().into()
            } else {
                amount.into()
            }
        };
        let members = self.iter();
        members
            .map(|(key, amount)| (key.as_str().to_owned(), text(key, amount)))
            .collect()
    }
}

/// The limits of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct Limits {
    /// Over all models.
    pub own: Bounds,
    /// For calls of one model, by the name of the catalogue, or one that may become an alias of it.
    pub per_model: BTreeMap<ModelName, Bounds>,
}

impl Limits {
    /// The limits of whoever has none.
    pub const NONE: &'static Self = &NONE;

    /// True when nothing is written.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.per_model.is_empty()
    }

    /// What is written for a model under its name or one of its `aliases`: of several amounts the smallest.
    pub fn of_model(&self, model: &ModelName, aliases: &[ModelName]) -> Bounds {
        let names = std::iter::once(model).chain(aliases);
        let mut found = Bounds::default();
        for (key, amount) in names
            .filter_map(|name| self.per_model.get(name))
            .flat_map(Bounds::iter)
        {
            let least = match found.written(key) {
                // Unlimited.
                None | Some(0) => amount,
                Some(known) if amount == 0 => known,
                Some(known) => known.min(amount),
            };
            found.set(key, least);
        }
        found
    }
}

static NONE: Limits = Limits {
    own: Bounds(BTreeMap::new()),
    per_model: BTreeMap::new(),
};

impl JsonSchema for Limits {
    fn schema_name() -> Cow<'static, str> {
        "Limits".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let count = if generator.contract().is_serialize() {
            json_schema!({"type": "integer", "minimum": 0})
        } else {
            json_schema!({"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,18}$"}]})
        };
        let money = if generator.contract().is_serialize() {
            json_schema!({"type": "string"})
        } else {
            json_schema!({"oneOf": [
                {"type": "integer", "minimum": 0, "maximum": 1_000_000_000},
                {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,9})?$"},
            ]})
        };
        let of = |key: LimitKey| {
            if key.is_money() {
                money.clone()
            } else {
                count.clone()
            }
        };
        let members = LimitKey::ALL
            .iter()
            .map(|key| (key.as_str().to_owned(), of(*key).to_value()));
        let members: Map<String, Value> = members.collect();
        let mut own = members.clone();
        let one = json_schema!({"type": "object", "properties": members, "additionalProperties": false});
        let models = json_schema!({
            "type": "object",
            "description": "Limits of calls of one model, by its name.",
            "maxProperties": MODELS_MAX,
            "additionalProperties": one,
        });
        own.insert(PER_MODEL.to_owned(), models.to_value());
        json_schema!({
            "type": "object",
            "description": "Limits by name: counts as whole numbers, money as US dollars in text. 0 is unlimited.",
            "properties": own,
            "additionalProperties": false,
        })
    }
}

impl TryFrom<Map<String, Value>> for Limits {
    type Error = Problem;

    fn try_from(members: Map<String, Value>) -> Result<Self, Problem> {
        let at = |path: String| move |kind| Problem { path, kind };
        let mut limits = Self::default();
        for (name, value) in &members {
            if name != PER_MODEL {
                limits.own.read(name, value).map_err(at(name.clone()))?;
                continue;
            }
            let models = value
                .as_object()
                .ok_or(ProblemKind::Models)
                .map_err(at(name.clone()))?;
            if models.len() > MODELS_MAX || models.keys().any(|model| model.len() > MODEL_NAME_BYTES_MAX) {
                return Err(at(name.clone())(ProblemKind::TooMany));
            }
            for (model, bounds) in models {
                let path = format!("{name}.{model}");
                let members = bounds
                    .as_object()
                    .ok_or(ProblemKind::Models)
                    .map_err(at(path.clone()))?;
                let own = limits
                    .per_model
                    .entry(ModelName::from(model.as_str()))
                    .or_default();
                for (name, value) in members {
                    own.read(name, value).map_err(at(format!("{path}.{name}")))?;
                }
            }
        }
        Ok(limits)
    }
}

impl From<Limits> for Map<String, Value> {
    fn from(limits: Limits) -> Self {
        let mut members = limits.own.show();
        if !limits.per_model.is_empty() {
            let models = limits.per_model.iter();
            let models: Map<String, Value> = models
                .map(|(model, bounds)| (model.as_str().to_owned(), bounds.show().into()))
                .collect();
            members.insert(PER_MODEL.to_owned(), models.into());
        }
        members
    }
}

impl fmt::Display for LimitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Limits, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn limits_are_read_as_operators_write_them() {
        let limits = read(
            r#"{"qps":10,"concurrency":"4","daily_usd":"1.00","total_usd":7,"per_model":{"a/b":{"tpm":0}}}"#,
        )
        .expect("read");

        assert_eq!(limits.own.written(LimitKey::Qps), Some(10));
        assert_eq!(limits.own.written(LimitKey::Concurrency), Some(4));
        assert_eq!(limits.own.written(LimitKey::DailyUsd), Some(1_000_000_000));
        assert_eq!(limits.own.written(LimitKey::TotalUsd), Some(7_000_000_000));
        assert_eq!(limits.own.written(LimitKey::Rpm), None);
        let model = &limits.per_model[&ModelName::from("a/b")];
        assert_eq!(model.written(LimitKey::Tpm), Some(0), "written, and unlimited");
    }

    #[test]
    fn what_is_no_limit_is_refused_with_its_path() {
        for (text, path) in [
            (r#"{"qqs":1}"#, "qqs: there is no such limit"),
            (r#"{"qps":-1}"#, "qps: expected a whole number"),
            (r#"{"qps":1.5}"#, "qps: expected a whole number"),
            (r#"{"qps":"+1"}"#, "qps: expected a whole number"),
            (r#"{"qps":18446744073709551615}"#, "qps: expected a whole number"),
            (r#"{"daily_usd":0.1}"#, "daily_usd: expected US dollars"),
            (r#"{"daily_usd":"1e3"}"#, "daily_usd: expected US dollars"),
            (r#"{"daily_usd":null}"#, "daily_usd: expected US dollars"),
            (r#"{"per_model":[]}"#, "per_model: expected an object"),
            (r#"{"per_model":{"m":1}}"#, "per_model.m: expected an object"),
            (
                r#"{"per_model":{"m":{"per_model":{}}}}"#,
                "per_model.m.per_model: there is no such limit",
            ),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(path), "{text}: {error}");
        }
    }

    #[test]
    fn keys_have_names_and_codes_of_their_own() {
        for key in LimitKey::ALL {
            assert_eq!(LimitKey::parse(key.as_str()), Some(key));
            assert_eq!(key.code().status(), 429);
        }
        assert_eq!(LimitKey::MonthlyCalls.code().as_str(), "MONTHLY_QUOTA_EXCEEDED");
        assert_eq!(LimitKey::DailyCalls.code().as_str(), "DAILY_LIMIT_EXCEEDED");
    }

    proptest! {
        #[test]
        fn limits_are_read_back_as_they_were_written(
            own in prop::collection::btree_map(0..11_usize, 0..=LIMIT_MAX, 0..11),
            model in prop::collection::btree_map(0..11_usize, 0..=LIMIT_MAX, 0..11),
        ) {
            let bounds = |amounts: BTreeMap<usize, u64>| {
                let mut bounds = Bounds::default();
                for (key, amount) in amounts {
                    bounds.set(LimitKey::ALL[key], amount);
                }
                bounds
            };
            let per_model = BTreeMap::from([(ModelName::from("m"), bounds(model))]);
            let limits = Limits { own: bounds(own), per_model };

            let text = serde_json::to_string(&limits).expect("write");
            prop_assert_eq!(read(&text).expect("read"), limits);
        }
    }
}
