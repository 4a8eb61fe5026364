//! What makes sessions stay on a backend: section `affinity` of the file, and the variables that operators of the field
//! know, which win over it.

use std::str::FromStr;
use std::time::Duration;

use router_worker::AffinitySettings;
use schemas::affinity::Policy;
use schemas::affinity::choice::Margins;
use schemas::affinity::prefill::Terms;

use super::{Error, Resolver};

/// Where a setting stands: its key, and its variable.
type Place = (&'static str, &'static str);

const CALLERS: Place = ("affinity.callers", "ROUTING_AFFINITY_ENABLED");
const SESSION: Place = ("affinity.session_seconds", "ROUTING_AFFINITY_SESSION_TTL_SEC");
const CALLER: Place = ("affinity.caller_seconds", "ROUTING_AFFINITY_CALLER_TTL_SEC");
const AGE: Place = ("affinity.age_seconds_max", "ROUTING_AFFINITY_MAX_AGE_SEC");
const ABSOLUTE: Place = ("affinity.overload_calls", "ROUTING_AFFINITY_OVERLOAD_ABS");
const RELATIVE: Place = ("affinity.overload_factor", "ROUTING_AFFINITY_OVERLOAD_REL");
const WAIT: Place = ("affinity.wait_ms", "ROUTING_AFFINITY_WAIT_MS");
const PREFILL: Place = ("affinity.prefill.enabled", "ROUTING_PREFILL_AWARE_ENABLED");
const INTERVENE: Place = (
    "affinity.prefill.intervene_tokens",
    "ROUTING_PREFILL_INTERVENE_TOKENS",
);
const ELEPHANT: Place = (
    "affinity.prefill.elephant_tokens",
    "ROUTING_PREFILL_ELEPHANT_TOKENS",
);
const ELEPHANTS: Place = ("affinity.prefill.elephants_max", "ROUTING_PREFILL_ELEPHANT_LIMIT");
const CEILING: Place = (
    "affinity.prefill.backlog_tokens_max",
    "ROUTING_PREFILL_AFFINITY_CEILING",
);
const HINT: Place = ("affinity.prefill.memory_seconds", "ROUTING_PREFILL_HINT_TTL_SEC");

/// Longest wait, in milliseconds.
const WAIT_MS_MAX: u64 = 10_000;
/// The bucket forgets what is older.
const SESSION_SECONDS_MAX: u64 = bus::layout::SESSION_AGE_MAX.as_secs();

impl Resolver<'_> {
    /// What makes sessions stay.
    pub(super) fn affinity(&self) -> Result<AffinitySettings, Error> {
        let (default, file) = (AffinitySettings::default(), &self.settings.affinity);
        let callers = self.switch(CALLERS.1)?.or(file.callers);
        let wait_ms = self.told_number(WAIT, file.wait_ms)?;
        if wait_ms.is_some_and(|wait_ms| wait_ms > WAIT_MS_MAX) {
            return Err(self.misplaced(WAIT, "no call is to wait for so long", "write 10000 or less"));
        }
        Ok(AffinitySettings {
            callers: callers.unwrap_or(default.callers),
            policy: self.policy(default.policy)?,
            margins: self.margins(default.margins)?,
            prefill: self.prefill()?,
            wait: wait_ms.map_or(default.wait, Duration::from_millis),
            ..default
        })
    }

    fn policy(&self, default: Policy) -> Result<Policy, Error> {
        let file = &self.settings.affinity;
        let life = |place: Place, file, default_ms: u64| -> Result<u64, Error> {
            match self.told_number(place, file)? {
                Some(0) => Err(self.misplaced(place, "nothing stays for no time", "write 1 or more")),
                Some(seconds @ ..=SESSION_SECONDS_MAX) => Ok(seconds * 1_000),
                Some(_) => Err(self.misplaced(
                    place,
                    "nothing is remembered for longer than half an hour after its last call",
                    "write 1800 or less",
                )),
                None => Ok(default_ms),
            }
        };
        let age = self.told_number(AGE, file.age_seconds_max)?;
        Ok(Policy {
            session_ms: life(SESSION, file.session_seconds, default.session_ms)?,
            caller_ms: life(CALLER, file.caller_seconds, default.caller_ms)?,
            age_ms_max: age.map_or(default.age_ms_max, |seconds| seconds.saturating_mul(1_000)),
            ..default
        })
    }

    fn margins(&self, default: Margins) -> Result<Margins, Error> {
        let file = &self.settings.affinity;
        let relative_permille = match self.told_number(RELATIVE, file.overload_factor)? {
            None => default.relative_permille,
            Some(factor) => permille(factor).ok_or_else(|| {
                let message = "it is no factor by which a load may exceed another";
                self.misplaced(RELATIVE, message, "write a number from 1 to 1000")
            })?,
        };
        let absolute = self.told_number(ABSOLUTE, file.overload_calls)?;
        let backlog = self.told_number(CEILING, file.prefill.backlog_tokens_max)?;
        Ok(Margins {
            absolute: absolute.unwrap_or(default.absolute),
            relative_permille,
            backlog_tokens_max: backlog.unwrap_or(default.backlog_tokens_max),
        })
    }

    fn prefill(&self) -> Result<Option<Terms>, Error> {
        let (default, file) = (Terms::default(), &self.settings.affinity.prefill);
        let told = |place, file: Option<u64>, default: u64| -> Result<u64, Error> {
            Ok(self.told_number(place, file)?.unwrap_or(default))
        };
        let memory = self.told_number(HINT, file.memory_seconds)?;
        let terms = Terms {
            intervene_tokens: told(INTERVENE, file.intervene_tokens, default.intervene_tokens)?,
            elephant_tokens: told(ELEPHANT, file.elephant_tokens, default.elephant_tokens)?,
            elephants_max: told(ELEPHANTS, file.elephants_max, default.elephants_max)?,
            memory_ms: memory.map_or(default.memory_ms, |seconds: u64| seconds.saturating_mul(1_000)),
        };
        let enabled = self.switch(PREFILL.1)?.or(file.enabled);
        Ok(enabled.unwrap_or(true).then_some(terms))
    }

    /// A number: that of the variable, else that of the file.
    fn told_number<T: FromStr>(&self, (_, variable): Place, file: Option<T>) -> Result<Option<T>, Error> {
        Ok(self.number(variable)?.or(file))
    }

    /// What is wrong with a setting, where it stands.
    fn misplaced(&self, (path, variable): Place, message: &str, remedy: &str) -> Error {
        self.given((path, None, variable), message.to_owned(), remedy)
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::config::testing;

    fn read(yaml: &str, variables: &[(Place, &str)]) -> Result<AffinitySettings, Error> {
        let named = variables.iter().map(|((_, variable), value)| (*variable, *value));
        let variables: Vec<_> = named.collect();
        testing::loaded(yaml, &variables).map(|config| config.affinity)
    }

    /// The same settings in a file.
    fn file(settings: &[(Place, &str)]) -> String {
        let (of_prefill, own): (Vec<_>, Vec<_>) = settings
            .iter()
            .map(|((path, _), value)| (path.trim_start_matches("affinity."), value))
            .partition(|(path, _)| path.starts_with("prefill."));
        let mut text = "affinity:\n".to_owned();
        for (path, value) in own {
            writeln!(text, "  {path}: {value}").expect("text");
        }
        text.push_str("  prefill:\n    enabled: true\n");
        for (path, value) in of_prefill {
            let name = path.trim_start_matches("prefill.");
            writeln!(text, "    {name}: {value}").expect("text");
        }
        text
    }

    #[test]
    fn sessions_stay_as_operators_know_it_until_it_is_set() {
        assert_eq!(read("", &[]).ok(), Some(AffinitySettings::default()));
        let set = [
            (CALLERS, "false"),
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
        assert_eq!(read("", &set).ok(), Some(expected));
        assert_eq!(read(&file(&set), &[]).ok(), Some(expected));
        let off = read(&file(&set), &[(PREFILL, "false")]).ok();
        assert_eq!(off.and_then(|settings| settings.prefill), None);
        let both = read("affinity: { overload_calls: 9 }", &[(ABSOLUTE, "7")]).ok();
        assert_eq!(both.map(|settings| settings.margins.absolute), Some(7));
    }

    #[test]
    fn what_keeps_nothing_or_for_longer_than_it_is_remembered_is_refused() {
        for (place, value) in [
            (SESSION, "0"),
            (CALLER, "1801"),
            (RELATIVE, "0.5"),
            (RELATIVE, "NaN"),
            (ABSOLUTE, "-1"),
            (CALLERS, "perhaps"),
            (WAIT, "10001"),
        ] {
            let refused = read("", &[(place, value)]).expect_err("nothing that can be kept");
            assert!(refused.to_string().contains(place.1), "{refused}");

            let refused = read(&file(&[(place, value)]), &[]).expect_err("nothing that can be kept");
            let told = refused.to_string();
            assert!(
                told.contains(place.0) && told.contains("waybill.yaml:2"),
                "{told}"
            );
        }
        let unknown = read("affinity: { margin: 4 }", &[]).expect_err("no such key");
        assert!(unknown.to_string().contains("affinity.margin"), "{unknown}");
    }
}
