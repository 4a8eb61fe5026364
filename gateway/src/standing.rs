//! How limits stand, in the headers of answers: `X-RateLimit-*` of calls, tokens and money, and when a quota is whole
//! again. Of several limits of one kind the one of which the least is left is told.

use std::sync::Arc;

use bytes::Bytes;
use chrono::TimeZone as _;
use chrono_tz::Tz;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemas::failure::{Amount, Exceeded, Failure, FailureCode};
use schemas::limit::Standing;
use schemas::limit::holdings::demand::Refusal;
use schemas::limit::layers::Scope;
use schemas::limit::limits::{Kind, LimitKey, Slice, Span, Unit};
use schemas::limit::window::Calendar;
use schemas::time::Timestamp;

use crate::demand::Most;
use crate::error::SHOULD_RETRY;

/// Seconds after which a call may be tried again that no time is known to help: its limit never becomes whole by itself,
/// or is less than the call may use.
const NEVER_RETRY_SECONDS: u64 = 3_600;

const QUOTA_RESET: HeaderName = HeaderName::from_static("x-quota-reset");

/// Room for the headers that an answer gets here, and for those that the ingress adds: headers grow once.
const HEADERS_MAX: usize = 20;

/// Values of limits that an answer tells at most: three of each unit.
const VALUES_MAX: usize = 9;
/// Room for them.
const VALUES_BYTES: usize = 160;

/// What the headers of one kind are called: the limit, what is left, when it is whole again.
type Names = [HeaderName; 3];

static REQUESTS: Names = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
static TOKENS: Names = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];
static COST: Names = [
    HeaderName::from_static("x-ratelimit-limit-cost"),
    HeaderName::from_static("x-ratelimit-remaining-cost"),
    HeaderName::from_static("x-ratelimit-reset-cost"),
];

fn names(unit: Unit) -> &'static Names {
    match unit {
        Unit::Calls => &REQUESTS,
        Unit::Tokens => &TOKENS,
        Unit::NanoUsd => &COST,
    }
}

/// What a limit counts; calls, for calls at once.
const fn unit(key: LimitKey) -> Unit {
    match key.kind() {
        Kind::Rate(_, unit) | Kind::Quota(_, unit) => unit,
        Kind::Concurrency => Unit::Calls,
    }
}

/// Whether answers tell of such a limit. That a call runs says nothing about whether another may follow.
pub(crate) fn is_told(key: LimitKey) -> bool {
    key != LimitKey::Concurrency
}

/// Of calls, of tokens and of money, the limit of which the least is left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Least([Option<(LimitKey, Standing)>; 3]);

impl Least {
    /// Those of some; of two of which as much is left, the first.
    pub(crate) fn of(standings: impl Iterator<Item = (LimitKey, Standing)>) -> Self {
        let mut least = Self::default();
        for (key, standing) in standings {
            let place = match unit(key) {
                Unit::Calls => 0,
                Unit::Tokens => 1,
                Unit::NanoUsd => 2,
            };
            if let Some(known) = least.0.get_mut(place)
                && known.is_none_or(|(_, known)| standing.remaining < known.remaining)
            {
                *known = Some((key, standing));
            }
        }
        least
    }
}

/// How the limits stand under which a call was admitted.
#[derive(Debug)]
pub(crate) struct Standings {
    /// Of each kind, the one of which the least is left.
    pub(crate) least: Least,
    /// The day and month of now.
    pub(crate) period: Arc<Period>,
    /// When they stood so.
    pub(crate) now: Timestamp,
}

/// A day and its month, and how their ends are shown: written once for all answers of a day.
#[derive(Debug)]
pub(crate) struct Period {
    /// Them.
    pub(crate) calendar: Calendar,
    day_ends: Option<HeaderValue>,
    month_ends: Option<HeaderValue>,
}

impl Period {
    /// Those of a time.
    pub(crate) fn at(billing_tz: Tz, at: Timestamp) -> Self {
        let calendar = Calendar::at(&billing_tz, at);
        let ends = |span| {
            let ends = calendar.resets_at(span)?;
            HeaderValue::try_from(shown(ends, billing_tz)).ok()
        };
        Self {
            day_ends: ends(Span::Day),
            month_ends: ends(Span::Month),
            calendar,
        }
    }

    /// When a span is over, as it is shown; `None` for what never is.
    fn ends(&self, span: Span) -> Option<&HeaderValue> {
        match span {
            Span::Day => self.day_ends.as_ref(),
            Span::Month => self.month_ends.as_ref(),
            Span::Total => None,
        }
    }
}

impl Standings {
    /// Puts them into the head of an answer.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        headers.reserve(HEADERS_MAX);
        let mut values = Values::default();
        let mut quota_resets = None;
        for (key, standing) in self.least.0.iter().flatten() {
            let resets_at = resets_at(*key, &self.period.calendar, self.now);
            let seconds = resets_at.map(|at| seconds_until(at, self.now));
            values.put(*key, standing, seconds);
            if let Kind::Quota(span, _) = key.kind() {
                // Of several the last one is told, money's: it is what callers ask for.
                quota_resets = self.period.ends(span).or(quota_resets);
            }
        }
        values.tell(headers);
        if let Some(at) = quota_resets {
            headers.insert(QUOTA_RESET, at.clone());
        }
    }
}

/// Values of headers, written one behind the other into one text, which they share.
struct Values {
    text: String,
    /// Whose each is, and where it ends.
    of: Vec<(&'static HeaderName, usize)>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            text: String::with_capacity(VALUES_BYTES),
            of: Vec::with_capacity(VALUES_MAX),
        }
    }
}

impl Values {
    fn put(&mut self, key: LimitKey, standing: &Standing, reset_seconds: Option<u64>) {
        let [limit, remaining, reset] = names(unit(key));
        for (name, amount) in [(limit, standing.limit), (remaining, standing.remaining)] {
            Amount::push(key, amount, &mut self.text);
            self.of.push((name, self.text.len()));
        }
        if let Some(seconds) = reset_seconds {
            push_duration(seconds, &mut self.text);
            self.of.push((reset, self.text.len()));
        }
    }

    fn tell(self, headers: &mut HeaderMap) {
        let text = Bytes::from(self.text);
        let mut begin = 0;
        for (name, end) in self.of {
            if let Ok(value) = HeaderValue::from_maybe_shared(text.slice(begin..end)) {
                headers.insert(name.clone(), value);
            }
            begin = end;
        }
    }
}

/// The headers of a refusal.
pub(crate) fn refused(exceeded: &Exceeded, headers: &mut HeaderMap) {
    if exceeded.is_excessive {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    let mut values = Values::default();
    values.put(exceeded.key, &exceeded.standing, exceeded.reset_seconds);
    values.tell(headers);
    if let (Kind::Quota(..), Some(at)) = (exceeded.key.kind(), &exceeded.reset_at) {
        headers.extend(HeaderValue::try_from(at).ok().map(|at| (QUOTA_RESET, at)));
    }
}

/// True when the call may use more than its limit is: no other time is better for it.
pub(crate) fn is_excessive(refusal: &Refusal, most: &Most) -> bool {
    let needed = match unit(refusal.key) {
        Unit::Calls => return false,
        Unit::Tokens => most.tokens,
        Unit::NanoUsd => most.nano_usd,
    };
    needed > refusal.standing.limit
}

/// What a caller is told whose call some limit refuses. `remedy` is what he can do when he asks for more than the limit
/// allows at all.
pub(crate) fn failure(refusal: Refusal, remedy: Option<String>, now: Timestamp, billing_tz: Tz) -> Failure {
    let Refusal {
        code,
        key,
        scope,
        model,
        standing,
        reset_at,
        retry_after_seconds,
    } = refusal;
    match code {
        FailureCode::StoreUnavailable => {
            let text = "the limits of the call cannot be checked at the moment";
            return Failure::new(code, text).retry_after(retry_after_seconds);
        }
        FailureCode::Overloaded => {
            let text = "too many calls wait for their limits";
            return Failure::new(code, text).retry_after(retry_after_seconds);
        }
        _ => {}
    }
    let retry_seconds = match key.kind() {
        Kind::Quota(Span::Total, _) => NEVER_RETRY_SECONDS,
        _ if remedy.is_some() => retry_after_seconds.max(NEVER_RETRY_SECONDS),
        _ => retry_after_seconds,
    };
    let text = match &model {
        Some(model) => format!(
            "{} {} limit for the model '{model}' exceeded",
            whose(scope),
            what(key)
        ),
        None => format!("{} {} limit exceeded", whose(scope), what(key)),
    };
    let is_excessive = remedy.is_some();
    let text = match remedy {
        Some(remedy) => format!("{text}: the call may use more than the limit allows at all; {remedy}"),
        None => text,
    };
    let mut failure = Failure::new(code, text).retry_after(retry_seconds);
    failure.exceeded = Some(Box::new(Exceeded {
        key,
        scope,
        model,
        standing,
        reset_at: reset_at.map(|at| shown(at, billing_tz)),
        reset_seconds: reset_at.map(|at| seconds_until(at, now)),
        is_excessive,
    }));
    failure
}

/// When a limit is whole again; `None` for what never is, and for calls at once.
pub(crate) fn resets_at(key: LimitKey, calendar: &Calendar, now: Timestamp) -> Option<Timestamp> {
    match key.kind() {
        Kind::Quota(span, _) => calendar.resets_at(span),
        Kind::Rate(slice, _) => Some(slice_ends(slice, now)),
        Kind::Concurrency => None,
    }
}

fn slice_ends(slice: Slice, now: Timestamp) -> Timestamp {
    let micros = slice.micros();
    now.plus_micros(micros - now.micros().rem_euclid(micros))
}

/// A time as it is shown: RFC 3339 in whole seconds, with the offset of the billing time zone.
pub(crate) fn shown(at: Timestamp, billing_tz: Tz) -> String {
    let local = billing_tz.from_utc_datetime(&at.to_utc().naive_utc());
    local.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

const fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::Tenant => "Tenant",
        Scope::User => "User",
        Scope::Key => "API key",
    }
}

const fn what(key: LimitKey) -> &'static str {
    match key {
        LimitKey::Qps => "calls-per-second",
        LimitKey::Rpm => "calls-per-minute",
        LimitKey::Tpm => "tokens-per-minute",
        LimitKey::Concurrency => "concurrency",
        LimitKey::DailyCalls => "daily call",
        LimitKey::MonthlyCalls => "monthly call",
        LimitKey::DailyTokens => "daily token",
        LimitKey::MonthlyTokens => "monthly token",
        LimitKey::DailyUsd => "daily spend",
        LimitKey::MonthlyUsd => "monthly spend",
        LimitKey::TotalUsd => "total spend",
    }
}

/// Whole seconds until a time, rounded up: at it, it is whole again.
fn seconds_until(at: Timestamp, now: Timestamp) -> u64 {
    let micros = at.micros().saturating_sub(now.micros());
    u64::try_from(micros).unwrap_or(0).div_ceil(1_000_000)
}

/// A duration as OpenAI writes it: `1s`, `6m0s`, `23h59m59s`.
fn push_duration(seconds: u64, out: &mut String) {
    let mut digits = itoa::Buffer::new();
    let mut push = |number, unit| {
        out.push_str(digits.format(number));
        out.push(unit);
    };
    let (hours, minutes) = (seconds / 3_600, seconds / 60);
    if hours > 0 {
        push(hours, 'h');
    }
    if minutes > 0 {
        push(minutes % 60, 'm');
    }
    push(seconds % 60, 's');
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_micros(1_796_040_000_500_000);

    fn standing(limit: u64, remaining: u64) -> Standing {
        Standing {
            limit,
            current: limit - remaining,
            remaining,
        }
    }

    fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
        let text = |value: &HeaderValue| value.to_str().expect("text").to_owned();
        let mut pairs: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect();
        pairs.sort();
        pairs
    }

    #[test]
    fn durations_are_written_as_openai_writes_them() {
        for (seconds, text) in [
            (0, "0s"),
            (1, "1s"),
            (59, "59s"),
            (360, "6m0s"),
            (86_399, "23h59m59s"),
            (3_600, "1h0m0s"),
        ] {
            let mut written = String::new();
            push_duration(seconds, &mut written);
            assert_eq!(written, text);
        }
    }

    #[test]
    fn of_each_kind_the_limit_of_which_the_least_is_left_is_told() {
        let of = [
            (LimitKey::Rpm, standing(60, 50)),
            (LimitKey::DailyCalls, standing(1_000, 7)),
            (LimitKey::DailyUsd, standing(1_000_000_000, 250_000_000)),
        ];
        let standings = Standings {
            least: Least::of(of.into_iter()),
            period: Arc::new(Period::at(Tz::Asia__Shanghai, NOON)),
            now: NOON,
        };
        let mut headers = HeaderMap::new();

        standings.tell(&mut headers);

        let told = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(
            pairs(&headers),
            [
                told("x-quota-reset", "2026-12-01T00:00:00+08:00"),
                told("x-ratelimit-limit-cost", "1.000000000"),
                told("x-ratelimit-limit-requests", "1000"),
                told("x-ratelimit-remaining-cost", "0.250000000"),
                told("x-ratelimit-remaining-requests", "7"),
                told("x-ratelimit-reset-cost", "4h0m0s"),
                told("x-ratelimit-reset-requests", "4h0m0s"),
            ]
        );
    }

    #[test]
    fn a_refusal_tells_whose_limit_and_when_it_is_whole_again() {
        let refusal = Refusal {
            code: FailureCode::DailyLimitExceeded,
            key: LimitKey::DailyCalls,
            scope: Scope::Key,
            model: None,
            standing: standing(1_000, 0),
            reset_at: Some(NOON.plus_micros(14_399_500_000)),
            retry_after_seconds: 14_400,
        };

        let failure = failure(refusal, None, NOON, Tz::Asia__Shanghai);

        assert_eq!(failure.status, 429);
        assert_eq!(failure.message, "API key daily call limit exceeded");
        assert_eq!(failure.retry_after_seconds, Some(14_400));
        let exceeded = failure.exceeded.expect("a limit");
        assert_eq!(
            serde_json::to_value(&*exceeded).expect("json"),
            serde_json::json!({
                "limit": 1_000, "current": 1_000, "remaining": 0, "scope": "per_api_key",
                "reset_at": "2026-12-01T00:00:00+08:00",
            })
        );
        let mut headers = HeaderMap::new();
        refused(&exceeded, &mut headers);
        assert_eq!(headers["x-ratelimit-reset-requests"], "4h0m0s");
        assert_eq!(headers["x-ratelimit-remaining-requests"], "0");
        assert_eq!(headers["x-quota-reset"], "2026-12-01T00:00:00+08:00");
    }

    #[test]
    fn a_call_larger_than_its_limit_is_not_told_to_come_again_when_the_minute_is_over() {
        let told = |remedy: Option<&str>| {
            let refusal = Refusal {
                code: FailureCode::TokensPerMinuteExceeded,
                key: LimitKey::Tpm,
                scope: Scope::Key,
                model: None,
                standing: standing(100, 40),
                reset_at: Some(NOON.plus_micros(20_000_000)),
                retry_after_seconds: 20,
            };
            let failure = failure(refusal, remedy.map(str::to_owned), NOON, Tz::UTC);
            let mut headers = HeaderMap::new();
            refused(&failure.exceeded.expect("a limit"), &mut headers);
            let again = headers.get(SHOULD_RETRY).cloned();
            (failure.retry_after_seconds, again)
        };

        assert_eq!(told(None), (Some(20), None));
        let never = HeaderValue::from_static("false");
        assert_eq!(told(Some("send less input")), (Some(3_600), Some(never)));
    }

    #[test]
    fn money_is_told_in_dollars_and_what_never_ends_has_no_end() {
        let refusal = Refusal {
            code: FailureCode::TotalSpendExceeded,
            key: LimitKey::TotalUsd,
            scope: Scope::Tenant,
            model: Some("m".into()),
            standing: standing(1_500_000_000, 3),
            reset_at: None,
            retry_after_seconds: 1,
        };

        let failure = failure(refusal, None, NOON, Tz::UTC);

        assert_eq!(
            failure.message,
            "Tenant total spend limit for the model 'm' exceeded"
        );
        assert_eq!(failure.retry_after_seconds, Some(3_600));
        let exceeded = serde_json::to_value(failure.exceeded).expect("json");
        assert_eq!(
            exceeded,
            serde_json::json!({
                "limit": "1.500000000", "current": "1.499999997", "remaining": "0.000000003",
                "scope": "per_tenant", "reset_at": null,
            })
        );
    }

    #[test]
    fn who_cannot_be_asked_is_no_limit() {
        let refusal = Refusal {
            code: FailureCode::StoreUnavailable,
            key: LimitKey::DailyUsd,
            scope: Scope::Key,
            model: None,
            standing: standing(1, 0),
            reset_at: None,
            retry_after_seconds: 1,
        };

        let failure = failure(refusal, None, NOON, Tz::UTC);

        assert_eq!((failure.status, failure.exceeded), (503, None));
    }
}
