//! How often somebody may try: the times of his last attempts, kept where all nodes see them and replaced by
//! compare-and-set, so that many nodes allow no more than one.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How often, in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Attempts within any such time; 0 allows any number.
    pub attempts_max: u32,
    /// The time, in seconds.
    pub seconds: u32,
}

/// The attempts that still count, the oldest first, in whole seconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attempts(Vec<i64>);

/// Too often: seconds after which one more is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    /// At least 1.
    pub retry_after_seconds: u64,
}

impl Attempts {
    /// The same with one more at `now`, if that is allowed. Times that are ahead of this clock count as now.
    pub fn another(&self, now: Timestamp, allowance: Allowance) -> Result<Self, TooMany> {
        let (now, seconds) = (now.micros().div_euclid(1_000_000), i64::from(allowance.seconds));
        let counted = self.0.iter().map(|at| (*at).min(now));
        let mut counted: Vec<i64> = counted.filter(|at| now - at < seconds).collect();
        let most = usize::try_from(allowance.attempts_max).unwrap_or(usize::MAX);
        if counted.len() >= most {
            // So many of the oldest have to be over before there is room for one.
            let last = counted.get(counted.len() - most).copied().unwrap_or(now);
            let left = (last + seconds - now).max(1);
            return Err(TooMany {
                retry_after_seconds: u64::try_from(left).unwrap_or(1),
            });
        }
        counted.push(now);
        Ok(Self(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWANCE: Allowance = Allowance {
        attempts_max: 3,
        seconds: 900,
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_796_000_000 + seconds) * 1_000_000)
    }

    #[test]
    fn within_any_such_time_there_are_no_more_attempts_than_allowed() {
        let mut attempts = Attempts::default();
        for seconds in [0, 10, 20] {
            attempts = attempts.another(at(seconds), ALLOWANCE).expect("allowed");
        }

        let refused = attempts.another(at(30), ALLOWANCE).expect_err("the fourth");
        assert_eq!(refused.retry_after_seconds, 870);
        assert!(attempts.another(at(899), ALLOWANCE).is_err());
        let attempts = attempts.another(at(900), ALLOWANCE).expect("the first is over");
        assert_eq!(
            attempts.another(at(901), ALLOWANCE),
            Err(TooMany {
                retry_after_seconds: 9
            })
        );
    }

    #[test]
    fn attempts_of_a_node_whose_clock_is_ahead_count_and_do_not_last_longer() {
        let mut attempts = Attempts::default();
        for _ in 0..3 {
            attempts = attempts.another(at(5_000), ALLOWANCE).expect("allowed");
        }
        let refused = attempts.another(at(0), ALLOWANCE).expect_err("they count");
        assert_eq!(refused.retry_after_seconds, 900);
    }
}
