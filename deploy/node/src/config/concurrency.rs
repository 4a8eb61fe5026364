//! How many calls run at once with one credential of a provider, by the variables that operators of the field know.

use std::time::Duration;

use router_worker::Concurrency;

use super::{Error, Resolver};
use crate::yaml::Problem;

/// Whether there is a limit at all.
const ENABLED: &str = "UPSTREAM_CONCURRENCY_ENABLED";
/// Calls at once, at first.
const INITIAL: &str = "UPSTREAM_CONCURRENCY_INITIAL_LIMIT";
/// Calls at once, at most.
const MAX: &str = "UPSTREAM_CONCURRENCY_MAX_LIMIT";
/// Successes until one more call may run.
const RAISE_AFTER: &str = "UPSTREAM_CONCURRENCY_PROBE_SUCCESS_INTERVAL";
/// Seconds that a request waits for its turn.
const WAIT: &str = "UPSTREAM_CONCURRENCY_ACQUIRE_TIMEOUT_SEC";
/// Whether engines in one's own network have the limit too.
const LOCAL: &str = "UPSTREAM_CONCURRENCY_LOCAL";
/// Longest wait, in seconds.
const WAIT_SECONDS_MAX: f64 = 3_600.0;

impl Resolver<'_> {
    /// The limits of concurrent calls; `None` where they are switched off.
    pub(super) fn concurrency(&self) -> Result<Option<Concurrency>, Error> {
        let default = Concurrency::default();
        let initial = self.positive(INITIAL)?.unwrap_or(default.initial);
        let wait = self.number::<f64>(WAIT)?.map(|seconds| {
            let seconds = seconds.clamp(0.0, WAIT_SECONDS_MAX);
            Duration::try_from_secs_f64(seconds).unwrap_or(default.wait)
        });
        let limits = Concurrency {
            initial,
            max: self.positive(MAX)?.unwrap_or(default.max).max(initial),
            raise_after: self.positive(RAISE_AFTER)?.unwrap_or(default.raise_after),
            wait: wait.unwrap_or(default.wait),
            local: self.switch(LOCAL)?.unwrap_or(default.local),
        };
        Ok(self.switch(ENABLED)?.unwrap_or(true).then_some(limits))
    }

    fn positive(&self, variable: &str) -> Result<Option<u32>, Error> {
        match self.number::<u32>(variable)? {
            Some(0) => Err(wrong(variable, "0 is no limit", "write 1 or more")),
            number => Ok(number),
        }
    }

    pub(super) fn switch(&self, variable: &str) -> Result<Option<bool>, Error> {
        let Some(text) = self.environment.get(variable) else {
            return Ok(None);
        };
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Some(true)),
            "false" | "0" | "no" | "off" => Ok(Some(false)),
            _ => Err(wrong(
                variable,
                "it is neither true nor false",
                "write true or false",
            )),
        }
    }
}

fn wrong(variable: &str, message: &str, remedy: &str) -> Error {
    Error::Wrong(Problem {
        file: "environment".into(),
        line: 0,
        path: variable.to_owned(),
        message: message.to_owned(),
        remedy: remedy.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::Flags;
    use crate::environment::Environment;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Concurrency>, Error> {
        let environment = Environment::from_pairs(variables.iter().copied());
        super::super::load(&Flags::default(), &environment).map(|config| config.concurrency)
    }

    #[test]
    fn the_limits_are_those_that_operators_know_until_they_are_set() {
        let default = Concurrency::default();
        assert_eq!(of(&[]).ok(), Some(Some(default)));
        let set = [
            (INITIAL, "2"),
            (MAX, "16"),
            (RAISE_AFTER, "5"),
            (WAIT, "0.25"),
            (LOCAL, "true"),
        ];

        let expected = Concurrency {
            initial: 2,
            max: 16,
            raise_after: 5,
            wait: Duration::from_millis(250),
            local: true,
        };
        assert_eq!(of(&set).ok(), Some(Some(expected)));
        assert_eq!(of(&[(ENABLED, "false"), (INITIAL, "2")]).ok(), Some(None));
        let higher = of(&[(INITIAL, "100")]).ok().flatten();
        assert_eq!(higher.map(|limits| limits.max), Some(100));
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for (variable, value) in [
            (INITIAL, "0"),
            (MAX, "-1"),
            (RAISE_AFTER, "0"),
            (WAIT, "soon"),
            (LOCAL, "perhaps"),
            (ENABLED, "2"),
        ] {
            let refused = of(&[(variable, value)]).expect_err("no limit");

            assert!(refused.to_string().contains(variable), "{refused}");
        }
    }
}
