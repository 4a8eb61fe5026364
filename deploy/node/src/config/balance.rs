//! What decides among backends: section `balance` of the file, and its variables, which win over it.

use std::time::Duration;

use router_worker::BalanceSettings;

use super::{Error, Resolver};

/// Longest time for which a backend is asked last.
const SOFT_BAN_SECONDS_MAX: u64 = 3_600;
/// Largest weight: scores stay far below what a number holds.
const WEIGHT_MAX: u64 = 1_000_000;

/// Where a setting stands: its key, and its variable.
type Place = (&'static str, &'static str);

const SOFT_BAN: Place = ("balance.soft_ban_seconds", "ROUTING_SOFT_BAN_SECONDS");
const WAITING: Place = ("balance.engine_waiting_weight", "ROUTING_ENGINE_WAITING_WEIGHT");
const CACHE: Place = ("balance.engine_cache_weight", "ROUTING_ENGINE_CACHE_WEIGHT");

impl Resolver<'_> {
    /// What decides among backends.
    pub(super) fn balance(&self) -> Result<BalanceSettings, Error> {
        let (default, file) = (BalanceSettings::default(), &self.settings.balance);
        let told = |(path, variable): Place, file: Option<u64>, max: u64| -> Result<Option<u64>, Error> {
            let told = self.number(variable)?.or(file);
            if told.is_some_and(|told| told > max) {
                let (message, remedy) = ("it is more than makes sense", format!("write {max} or less"));
                return Err(self.given((path, None, variable), message.to_owned(), &remedy));
            }
            Ok(told)
        };
        let soft_ban = told(SOFT_BAN, file.soft_ban_seconds, SOFT_BAN_SECONDS_MAX)?;
        let waiting_weight = told(WAITING, file.engine_waiting_weight, WEIGHT_MAX)?;
        let kv_weight = told(CACHE, file.engine_cache_weight, WEIGHT_MAX)?;
        Ok(BalanceSettings {
            soft_ban: soft_ban.map_or(default.soft_ban, Duration::from_secs),
            waiting_weight: waiting_weight.unwrap_or(default.waiting_weight),
            kv_weight: kv_weight.unwrap_or(default.kv_weight),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing;

    fn read(yaml: &str, variables: &[(&str, &str)]) -> Result<BalanceSettings, Error> {
        testing::loaded(yaml, variables).map(|config| config.balance)
    }

    #[test]
    fn what_decides_is_as_it_is_known_until_it_is_set() {
        let set = BalanceSettings {
            soft_ban: Duration::ZERO,
            waiting_weight: 50,
            kv_weight: 2,
        };
        assert_eq!(read("", &[]).ok(), Some(BalanceSettings::default()));
        let file = "balance: { soft_ban_seconds: 0, engine_waiting_weight: 50, engine_cache_weight: 2 }";
        assert_eq!(read(file, &[]).ok(), Some(set));
        let variables = [(SOFT_BAN.1, "0"), (WAITING.1, "50"), (CACHE.1, "2")];
        assert_eq!(read("", &variables).ok(), Some(set));
        let both = read(file, &[(SOFT_BAN.1, "7")]).ok();
        assert_eq!(both.map(|both| both.soft_ban), Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_where_it_stands() {
        for (place, value) in [(SOFT_BAN, "3601"), (WAITING, "1000001"), (CACHE, "-1")] {
            let refused = read("", &[(place.1, value)]).expect_err("refused");
            assert!(refused.to_string().contains(place.1), "{refused}");
            let key = place.0.trim_start_matches("balance.");
            let refused = read(&format!("balance: {{ {key}: {value} }}"), &[]).expect_err("refused");
            assert!(refused.to_string().contains(place.0), "{refused}");
        }
        let unknown = read("balance: { algorithm: x }", &[]).expect_err("no such key");
        assert!(unknown.to_string().contains("balance.algorithm"), "{unknown}");
    }
}
