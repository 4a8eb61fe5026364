//! What the calls of a window came to.

use std::time::Duration;

use crate::call::{Error, Times};
use crate::measure::{Measurement, Percentiles};
use tokio::time::Instant;

/// Latencies and errors; counts only while open.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    open: bool,
    errors: u32,
    first_error: Option<String>,
    latency: Vec<Duration>,
    first_byte: Vec<Duration>,
}

impl Tally {
    /// Starts to count.
    pub(crate) fn open(&mut self) {
        self.open = true;
    }

    /// Stops to count.
    pub(crate) fn close(&mut self) {
        self.open = false;
    }

    /// Notes a call that began, or was due, at `begin`.
    pub(crate) fn note(&mut self, begin: Instant, result: Result<Times, Error>) {
        match result {
            Ok(times) if self.open => {
                self.latency.push(times.end.duration_since(begin));
                self.first_byte.push(times.first_byte.duration_since(begin));
            }
            Ok(_) => {}
            Err(error) => {
                self.errors += u32::from(self.open);
                self.first_error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    /// The result of a window of this length, without the watched processes.
    pub(crate) fn measurement(&mut self, elapsed: Duration, streamed: bool) -> Measurement {
        let requests = u32::try_from(self.latency.len()).unwrap_or(u32::MAX);
        Measurement {
            seconds: elapsed.as_secs_f64(),
            requests,
            errors: self.errors,
            first_error: self.first_error.clone(),
            requests_per_second: f64::from(requests) / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            latency_us: percentiles(&mut self.latency),
            first_byte_us: streamed.then(|| percentiles(&mut self.first_byte)),
            processes: Vec::new(),
        }
    }
}

/// Sorts and picks; zeros without values.
fn percentiles(values: &mut [Duration]) -> Percentiles {
    values.sort_unstable();
    let at = |percent: usize| {
        let index = values.len().saturating_sub(1).saturating_mul(percent) / 100;
        values.get(index).map_or(0.0, |value| value.as_secs_f64() * 1e6)
    };
    Percentiles {
        p50: at(50),
        p90: at(90),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_picked_from_the_sorted_values() {
        let mut values: Vec<Duration> = (0..=100).rev().map(Duration::from_millis).collect();

        let picked = percentiles(&mut values);

        assert!((picked.p50 - 50_000.0).abs() < 1e-6);
        assert!((picked.p90 - 90_000.0).abs() < 1e-6);
        assert!((picked.p99 - 99_000.0).abs() < 1e-6);
    }

    #[test]
    fn no_values_give_zeros() {
        assert_eq!(percentiles(&mut []), Percentiles::default());
    }

    #[test]
    fn calls_outside_the_window_do_not_count_but_their_error_is_kept() {
        let mut tally = Tally::default();
        let begin = Instant::now();

        tally.note(begin, Err(Error::Cut));
        tally.open();
        tally.note(
            begin,
            Ok(Times {
                first_byte: begin,
                end: begin,
            }),
        );
        tally.close();
        tally.note(
            begin,
            Ok(Times {
                first_byte: begin,
                end: begin,
            }),
        );

        let measured = tally.measurement(Duration::from_secs(1), false);
        assert_eq!((measured.requests, measured.errors), (1, 0));
        assert!(measured.first_error.is_some());
    }
}
