//! The process environment as a value: read once, in one place, and passed on.

use std::collections::BTreeMap;
#[cfg(debug_assertions)]
use std::time::Duration;

use bus::clock::SystemClock;
#[cfg(debug_assertions)]
use schemas::limit::planted::Bug;
use schemas::limit::planted::Planted;

use crate::UsageError;

/// The variable by which tests set the clock of a node ahead, in seconds.
#[cfg(debug_assertions)]
const CLOCK_AHEAD: &str = "WAYBILL_TEST_CLOCK_AHEAD_SECONDS";
/// The variable by which tests plant a fault in the limits of a node, by its name.
#[cfg(debug_assertions)]
const PLANTED_BUG: &str = "WAYBILL_TEST_PLANTED_BUG";
/// The variable by which tests have one of so many limited calls panic.
#[cfg(debug_assertions)]
const PANIC_EVERY: &str = "WAYBILL_TEST_PANIC_EVERY";

/// Environment variables. A variable that is set to nothing counts as not set.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        Self::from_pairs(std::env::vars())
    }

    /// An environment of given variables.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self {
            variables: pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        }
    }

    /// A variable that is set to something.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.trim().is_empty())
    }

    /// The first of several spellings that is set.
    pub fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Names of every variable that is set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    /// The clock of the process: the machine's own. A build with debug assertions, which no release is, can be told how
    /// many seconds its wall time is ahead of that.
    pub fn clock(&self) -> SystemClock {
        #[cfg(debug_assertions)]
        if let Some(Ok(seconds)) = self.get(CLOCK_AHEAD).map(str::parse) {
            return SystemClock::ahead(Duration::from_secs(seconds));
        }
        SystemClock::new()
    }

    /// What is wrong with the limits of this node on purpose: nothing, but in a build with debug assertions, which no
    /// release is, that was told so.
    #[cfg(debug_assertions)]
    pub fn planted(&self) -> Result<Planted, UsageError> {
        let bug = self.get(PLANTED_BUG).map(|name| {
            let found = Bug::ALL.into_iter().find(|bug| bug.name() == name);
            found.ok_or_else(|| UsageError(format!("{PLANTED_BUG}: there is no fault called \"{name}\"")))
        });
        let planted = bug.transpose()?.map_or_else(Planted::default, Planted::with);
        let every = self.get(PANIC_EVERY).map(|text| {
            let number = text.parse();
            number.map_err(|_| UsageError(format!("{PANIC_EVERY}: \"{text}\" is no number")))
        });
        Ok(planted.panicking(every.transpose()?.unwrap_or(0)))
    }

    /// What is wrong with the limits of this node on purpose: nothing.
    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "builds with debug assertions need it")]
    pub fn planted(&self) -> Result<Planted, UsageError> {
        Ok(Planted::default())
    }

    /// Expands `${VAR}` and `${VAR:-default}` anywhere in `text`; `None` when there is nothing to expand.
    /// An unclosed `${` stays as it is.
    pub fn expand(&self, text: &str) -> Option<String> {
        if !text.contains("${") {
            return None;
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start + 2..].find('}') else {
                break;
            };
            let inner = &rest[start + 2..start + 2 + length];
            let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
            out.push_str(&rest[..start]);
            out.push_str(self.get(name.trim()).unwrap_or(default));
            rest = &rest[start + 3 + length..];
        }
        out.push_str(rest);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use bus::clock::Clock as _;

    use super::*;

    #[test]
    fn only_builds_with_debug_assertions_have_a_clock_that_is_ahead() {
        let told = Environment::from_pairs([("WAYBILL_TEST_CLOCK_AHEAD_SECONDS", "3600")]);
        let now = Environment::default().clock().now();

        let ahead_ms = told.clock().now().millis_since(now);

        assert_eq!(ahead_ms >= 3_600_000, cfg!(debug_assertions), "{ahead_ms}");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn faults_are_planted_by_their_names_and_others_are_refused() {
        let of = |name: &str, value: &str| Environment::from_pairs([(name, value)]).planted();

        for bug in Bug::ALL {
            assert_eq!(of(PLANTED_BUG, bug.name()).ok(), Some(Planted::with(bug)));
        }
        assert!(of(PLANTED_BUG, "a-fault-of-nobody").is_err());
        assert!(of(PANIC_EVERY, "often").is_err());
        assert_eq!(of(PANIC_EVERY, "7").ok(), Some(Planted::default().panicking(7)));
        assert_eq!(Environment::default().planted().ok(), Some(Planted::default()));
    }

    #[test]
    fn blank_variables_count_as_unset() {
        let environment = Environment::from_pairs([("A", " "), ("B", "b")]);
        assert_eq!(environment.expand("${A:-x}-${B}-${C}"), Some("x-b-".into()));
        assert_eq!(environment.expand("plain"), None);
        assert_eq!(environment.expand("${B"), Some("${B".into()));
        assert_eq!(environment.first(&["A", "B"]), Some("b"));
    }
}
