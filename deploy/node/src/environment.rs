//! The process environment as a value: read once, in one place, and passed on.

use std::collections::BTreeMap;
#[cfg(debug_assertions)]
use std::time::Duration;

use bus::clock::SystemClock;

/// The variable by which tests set the clock of a node ahead, in seconds.
#[cfg(debug_assertions)]
const CLOCK_AHEAD: &str = "WAYBILL_TEST_CLOCK_AHEAD_SECONDS";

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
    fn blank_variables_count_as_unset() {
        let environment = Environment::from_pairs([("A", " "), ("B", "b")]);
        assert_eq!(environment.expand("${A:-x}-${B}-${C}"), Some("x-b-".into()));
        assert_eq!(environment.expand("plain"), None);
        assert_eq!(environment.expand("${B"), Some("${B".into()));
        assert_eq!(environment.first(&["A", "B"]), Some("b"));
    }
}
