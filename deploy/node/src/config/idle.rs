//! Settings that load and do nothing in this version: each that is set to something is named, so that nobody
//! relies on it.

use super::{ADMIT_WAIT_SECONDS, STALE_SECONDS_MAX};
use crate::settings::Settings;
use crate::yaml::{Document, Problem};

/// What is set without effect. With a `shared` bus the settings of a cluster have theirs; who writes down a default
/// asks for nothing.
pub(super) fn problems(settings: &Settings, document: &Document, shared: bool) -> Vec<Problem> {
    let bus = settings.bus.as_ref();
    let set = [
        (
            "auth.stale_seconds_max",
            !shared
                && settings
                    .auth
                    .stale_seconds_max
                    .is_some_and(|seconds| seconds != STALE_SECONDS_MAX),
        ),
        (
            "admit_wait_seconds",
            !shared
                && settings
                    .admit_wait_seconds
                    .is_some_and(|seconds| seconds != ADMIT_WAIT_SECONDS),
        ),
        ("trusted_proxies", !settings.trusted_proxies.is_empty()),
        ("alerts_path", settings.alerts_path.is_some()),
        ("bus.url", !shared && bus.is_some_and(|bus| bus.url.is_some())),
        (
            "bus.replicas",
            !shared && bus.is_some_and(|bus| bus.replicas.is_some()),
        ),
        ("bus.creds", !shared && bus.is_some_and(|bus| bus.creds.is_some())),
        ("bus.tls", !shared && bus.is_some_and(|bus| bus.tls.is_some())),
    ];
    let tell = |path: &str| {
        document.problem(
            path,
            "this version reads it without effect",
            "nothing, or remove it",
        )
    };
    set.iter()
        .filter(|(_, set)| *set)
        .map(|(path, _)| tell(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    fn places(text: &str) -> Vec<(String, u64)> {
        let document = Document::parse("waybill.yaml", text, &Environment::default()).expect("parse");
        let settings: Settings = document.read().expect("read");
        let problems = problems(&settings, &document, false);
        problems
            .into_iter()
            .map(|problem| (problem.path, problem.line))
            .collect()
    }

    #[test]
    fn what_is_set_without_effect_is_named_with_its_line() {
        let text =
            "trusted_proxies: [10.0.0.0/8]\nauth: { stale_seconds_max: 5 }\nkeys:\n  - name: a\n    key: k\n";

        assert_eq!(
            places(text),
            [
                ("auth.stale_seconds_max".to_owned(), 2),
                ("trusted_proxies".to_owned(), 1),
            ]
        );
    }

    #[test]
    fn defaults_that_are_written_down_are_no_problem() {
        let text = "auth: { stale_seconds_max: 300 }\nadmit_wait_seconds: 12\ntrusted_proxies: []\n\
                    egress: { allow: [] }\ngpu_temperature_threshold: null\npool: default\nroles: all\n";

        assert_eq!(places(text), []);
    }
}
