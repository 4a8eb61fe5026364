//! What makes sessions stay on a backend, by the variables that operators of the field know and some of our own.

use std::time::Duration;

use router_worker::AffinitySettings;
use schemas::affinity::Policy;
use schemas::affinity::choice::Margins;
use schemas::affinity::prefill::Terms;

use super::{Error, Resolver};
use crate::yaml::Problem;

/// Whether callers of models from files stay where they were.
const CALLERS: &str = "ROUTING_AFFINITY_ENABLED";
/// Seconds that anything may stay at all; 0 for ever.
const AGE: &str = "ROUTING_AFFINITY_MAX_AGE_SEC";
/// Seconds that a session stays after its last call.
const SESSION: &str = "ROUTING_AFFINITY_SESSION_TTL_SEC";
/// Seconds that a caller stays after his last call.
const CALLER: &str = "ROUTING_AFFINITY_CALLER_TTL_SEC";
/// By how many calls the backend of a session exceeds the least before it is moved.
const ABSOLUTE: &str = "ROUTING_AFFINITY_OVERLOAD_ABS";
/// How many times the least its calls are.
const RELATIVE: &str = "ROUTING_AFFINITY_OVERLOAD_REL";
/// Milliseconds that a call waits to hear where its session is, and for others to hear it.
const WAIT: &str = "ROUTING_AFFINITY_WAIT_MS";
/// Whether prompts that are being read decide.
const PREFILL: &str = "ROUTING_PREFILL_AWARE_ENABLED";
/// Tokens that backends have to read before anything is done about it.
const INTERVENE: &str = "ROUTING_PREFILL_INTERVENE_TOKENS";
/// Tokens of an elephant.
const ELEPHANT: &str = "ROUTING_PREFILL_ELEPHANT_TOKENS";
/// Elephants that a backend reads at a time.
const ELEPHANTS: &str = "ROUTING_PREFILL_ELEPHANT_LIMIT";
/// Tokens that a backend has to read above which no session stays; 0 for never.
const CEILING: &str = "ROUTING_PREFILL_AFFINITY_CEILING";
/// Seconds that what a backend has read counts as cached.
const HINT: &str = "ROUTING_PREFILL_HINT_TTL_SEC";

/// Longest wait, in milliseconds.
const WAIT_MS_MAX: u64 = 10_000;
/// The bucket forgets what is older.
const SESSION_SECONDS_MAX: u64 = bus::layout::SESSION_AGE_MAX.as_secs();

impl Resolver<'_> {
    /// What makes sessions stay.
    pub(super) fn affinity(&self) -> Result<AffinitySettings, Error> {
        let default = AffinitySettings::default();
        Ok(AffinitySettings {
            callers: self.switch(CALLERS)?.unwrap_or(default.callers),
            policy: self.policy(default.policy)?,
            margins: self.margins(default.margins)?,
            prefill: self.prefill()?,
            wait: self
                .number::<u64>(WAIT)?
                .map_or(default.wait, |wait| Duration::from_millis(wait.min(WAIT_MS_MAX))),
            ..default
        })
    }

    fn policy(&self, default: Policy) -> Result<Policy, Error> {
        let life = |variable, default_ms: u64| -> Result<u64, Error> {
            match self.number::<u64>(variable)? {
                Some(0) => Err(wrong(variable, "nothing stays for no time", "write 1 or more")),
                Some(seconds @ ..=SESSION_SECONDS_MAX) => Ok(seconds * 1_000),
                Some(_) => Err(wrong(
                    variable,
                    "nothing is remembered for longer than half an hour after its last call",
                    "write 1800 or less",
                )),
                None => Ok(default_ms),
            }
        };
        Ok(Policy {
            session_ms: life(SESSION, default.session_ms)?,
            caller_ms: life(CALLER, default.caller_ms)?,
            age_ms_max: self
                .number::<u64>(AGE)?
                .map_or(default.age_ms_max, |seconds| seconds.saturating_mul(1_000)),
            ..default
        })
    }

    fn margins(&self, default: Margins) -> Result<Margins, Error> {
        let relative_permille = match self.number::<f64>(RELATIVE)? {
            None => default.relative_permille,
            Some(factor) => permille(factor).ok_or_else(|| {
                wrong(
                    RELATIVE,
                    "it is no factor by which a load may exceed another",
                    "write a number from 1 to 1000",
                )
            })?,
        };
        Ok(Margins {
            absolute: self.number(ABSOLUTE)?.unwrap_or(default.absolute),
            relative_permille,
            backlog_tokens_max: self.number(CEILING)?.unwrap_or(default.backlog_tokens_max),
        })
    }

    fn prefill(&self) -> Result<Option<Terms>, Error> {
        let default = Terms::default();
        let terms = Terms {
            intervene_tokens: self.number(INTERVENE)?.unwrap_or(default.intervene_tokens),
            elephant_tokens: self.number(ELEPHANT)?.unwrap_or(default.elephant_tokens),
            elephants_max: self.number(ELEPHANTS)?.unwrap_or(default.elephants_max),
            memory_ms: self
                .number::<u64>(HINT)?
                .map_or(default.memory_ms, |seconds| seconds.saturating_mul(1_000)),
        };
        Ok(self.switch(PREFILL)?.unwrap_or(true).then_some(terms))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded just before"
)]
fn permille(factor: f64) -> Option<u64> {
    (1.0..=1_000.0)
        .contains(&factor)
        .then(|| (factor * 1_000.0).round() as u64)
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

    fn of(variables: &[(&str, &str)]) -> Result<AffinitySettings, Error> {
        let environment = Environment::from_pairs(variables.iter().copied());
        super::super::load(&Flags::default(), &environment).map(|config| config.affinity)
    }

    #[test]
    fn sessions_stay_as_operators_know_it_until_it_is_set() {
        assert_eq!(of(&[]).ok(), Some(AffinitySettings::default()));
        let set = [
            (CALLERS, "0"),
            (AGE, "0"),
            (SESSION, "60"),
            (CALLER, "5"),
            (ABSOLUTE, "2"),
            (RELATIVE, "1.25"),
            (INTERVENE, "10"),
            (ELEPHANT, "20"),
            (ELEPHANTS, "3"),
            (CEILING, "40"),
            (WAIT, "75"),
            (HINT, "50"),
        ];

        let expected = AffinitySettings {
            callers: false,
            policy: Policy {
                session_ms: 60_000,
                caller_ms: 5_000,
                age_ms_max: 0,
                ..Policy::default()
            },
            margins: Margins {
                absolute: 2,
                relative_permille: 1_250,
                backlog_tokens_max: 40,
            },
            prefill: Some(Terms {
                intervene_tokens: 10,
                elephant_tokens: 20,
                elephants_max: 3,
                memory_ms: 50_000,
            }),
            wait: Duration::from_millis(75),
            ..AffinitySettings::default()
        };
        assert_eq!(of(&set).ok(), Some(expected));
        let off = of(&[(PREFILL, "false")]).ok();
        assert_eq!(off.and_then(|settings| settings.prefill), None);
    }

    #[test]
    fn what_keeps_nothing_or_for_longer_than_it_is_remembered_is_refused() {
        for (variable, value) in [
            (SESSION, "0"),
            (CALLER, "1801"),
            (RELATIVE, "0.5"),
            (RELATIVE, "NaN"),
            (ABSOLUTE, "-1"),
            (CALLERS, "perhaps"),
        ] {
            let refused = of(&[(variable, value)]).expect_err("nothing that can be kept");

            assert!(refused.to_string().contains(variable), "{refused}");
        }
    }
}
