//! For how long idempotency keys are kept, and their locks count.

use schemas::idempotency::{BUCKET_BYTES_MAX, KEPT_MINUTES, KEPT_MINUTES_MAX, LEASE_MS, Terms};

use super::{Error, Resolver};

/// Minutes for which the answer of a request with an idempotency key can be given again. The second name is that of
/// another gateway.
const TTL: [&str; 2] = [
    "WAYBILL_IDEMPOTENCY_TTL_MINUTES",
    "HETEROFLOW_IDEMPOTENCY_TTL_MINUTES",
];
const TTL_PATH: &str = "idempotency.ttl_minutes";
const LEASE_PATH: &str = "idempotency.lease_seconds";
const BYTES_PATH: &str = "idempotency.bytes_max";
/// Smallest and largest bucket of keys, in bytes; embedded, all of it is in memory.
const BYTES: std::ops::RangeInclusive<u64> = (1 << 20)..=(1 << 40);
/// Shortest and longest lease, in seconds: a third of it is between two renewals.
const LEASE_SECONDS: std::ops::RangeInclusive<u64> = 3..=300;

impl Resolver<'_> {
    pub(super) fn idempotency(&self) -> Result<Terms, Error> {
        let minutes = self.ttl_minutes()?;
        let terms = Terms::kept_minutes(minutes).ok_or_else(|| self.ttl_problem(&minutes.to_string()))?;
        let lease_seconds = self.settings.idempotency.lease_seconds;
        let lease_seconds = lease_seconds.unwrap_or(LEASE_MS / 1_000);
        if !LEASE_SECONDS.contains(&lease_seconds) {
            let message = format!("{lease_seconds} seconds is no lease");
            let remedy = "write 3 to 300";
            return Err(self.document.problem(LEASE_PATH, message, remedy).into());
        }
        let lease_ms = lease_seconds * 1_000;
        Ok(Terms {
            lease_ms,
            renew_ms: lease_ms / 3,
            ..terms
        })
    }

    pub(super) fn idempotency_bytes_max(&self) -> Result<u64, Error> {
        let bytes_max = self.settings.idempotency.bytes_max.unwrap_or(BUCKET_BYTES_MAX);
        if BYTES.contains(&bytes_max) {
            return Ok(bytes_max);
        }
        let message = format!("{bytes_max} bytes are no size for the bucket of idempotency keys");
        let remedy = format!("write {} to {}", BYTES.start(), BYTES.end());
        Err(self.document.problem(BYTES_PATH, message, &remedy).into())
    }

    fn ttl_minutes(&self) -> Result<u16, Error> {
        if let Some(text) = self.environment.first(&TTL) {
            return text.trim().parse().map_err(|_| self.ttl_problem(text));
        }
        let told = self.settings.idempotency.ttl_minutes;
        let minutes = told.unwrap_or_else(|| u64::from(KEPT_MINUTES));
        u16::try_from(minutes).map_err(|_| self.ttl_problem(&minutes.to_string()))
    }

    fn ttl_problem(&self, text: &str) -> Error {
        let message = format!("\"{}\" is no number of minutes", text.escape_debug());
        let remedy = format!("write 1 to {KEPT_MINUTES_MAX}");
        let named = TTL.iter().find(|name| self.environment.get(name).is_some());
        self.given((TTL_PATH, None, named.unwrap_or(&TTL[0])), message, &remedy)
    }
}

#[cfg(test)]
mod tests {
    use schemas::idempotency::Terms;

    use crate::config::testing;

    fn terms(yaml: &str, variables: &[(&str, &str)]) -> Result<Terms, String> {
        testing::loaded(yaml, variables)
            .map(|config| config.idempotency)
            .map_err(|problem| problem.to_string())
    }

    fn minutes(yaml: &str, variables: &[(&str, &str)]) -> Result<u64, String> {
        terms(yaml, variables).map(|terms| terms.done_life_ms / 60_000)
    }

    #[test]
    fn answers_are_kept_for_ten_minutes_or_as_long_as_is_said() {
        let own = ("WAYBILL_IDEMPOTENCY_TTL_MINUTES", "1440");
        let other = ("HETEROFLOW_IDEMPOTENCY_TTL_MINUTES", "1");

        assert_eq!(minutes("", &[]), Ok(10));
        assert_eq!(minutes("idempotency: { ttl_minutes: 30 }", &[]), Ok(30));
        assert_eq!(minutes("idempotency: { ttl_minutes: 30 }", &[other]), Ok(1));
        assert_eq!(minutes("", &[other, own]), Ok(1_440));
    }

    #[test]
    fn what_is_no_number_of_minutes_is_named_where_it_stands() {
        for text in ["0", "1441", "-1", "ten", "70000"] {
            let told = minutes("", &[("WAYBILL_IDEMPOTENCY_TTL_MINUTES", text)]).expect_err(text);
            assert!(told.contains("WAYBILL_IDEMPOTENCY_TTL_MINUTES"), "{told}");
            assert!(told.contains("1 to 1440"), "{told}");
        }
        let told = minutes("listen: 127.0.0.1:0\nidempotency:\n  ttl_minutes: 0\n", &[]).expect_err("0");
        assert!(
            told.contains("idempotency.ttl_minutes") && told.contains(":3"),
            "{told}"
        );
    }

    #[test]
    fn a_lease_is_renewed_three_times() {
        let terms = |seconds: u64| terms(&format!("idempotency: {{ lease_seconds: {seconds} }}"), &[]);

        let told = terms(6).expect("terms");
        assert_eq!((told.lease_ms, told.renew_ms), (6_000, 2_000));
        for seconds in [0, 2, 301] {
            let told = terms(seconds).expect_err("no lease");
            assert!(told.contains("idempotency.lease_seconds"), "{told}");
        }
    }
}
