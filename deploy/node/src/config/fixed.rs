//! Settings that a node reads at its start and not again. What the file says of them later is told, and waits for the
//! next start.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use crate::yaml::{Document, Problem};

/// Keys of the file whose change is in force at once.
const FOLLOWED: [&str; 8] = [
    "tenants",
    "users",
    "role_limits",
    "keys",
    "models_path",
    "routing_path",
    "demo",
    "discover",
];
/// Most settings that are told of.
const TOLD_MAX: usize = 32;

/// What the file says of each setting that is read once, as digests: an address may have a password in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Fixed {
    file: String,
    /// By path: the line, and the digest of what stands there.
    settings: BTreeMap<String, (u64, [u8; 32])>,
}

impl Fixed {
    /// Those of a file.
    pub(super) fn of(document: &Document) -> Self {
        let leaves = document.leaves();
        let fixed = leaves.into_iter().filter(|(path, _)| !is_followed(path));
        let settings = fixed.map(|(path, text)| {
            let line = document.problem(&path, "", "").line;
            (path, (line, Sha256::digest(text).into()))
        });
        Self {
            file: document.problem("", "", "").file,
            settings: settings.collect(),
        }
    }

    /// Settings of which the file says something else than it said when the node started.
    pub(super) fn changed_since(&self, start: &Self) -> Vec<Problem> {
        let paths: BTreeSet<&String> = self.settings.keys().chain(start.settings.keys()).collect();
        let digest = |fixed: &Self, path: &str| fixed.settings.get(path).map(|(_, digest)| *digest);
        let changed = paths
            .into_iter()
            .filter(|path| digest(self, path) != digest(start, path));
        let problem = |path: &String| Problem {
            file: self.file.clone(),
            line: self.settings.get(path).map_or(0, |(line, _)| *line),
            path: path.clone(),
            message: "the node still has what the file said at its start".into(),
            remedy: "start the node again".into(),
        };
        changed.take(TOLD_MAX).map(problem).collect()
    }
}

fn is_followed(path: &str) -> bool {
    let end = path.find(['.', '[']).unwrap_or(path.len());
    path.get(..end).is_some_and(|name| FOLLOWED.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn only_what_is_read_once_waits_for_a_start() {
        let document =
            |text: &str| Document::parse("waybill.yaml", text, &Environment::default()).expect("a document");
        let before = document("attempts_max: 4\ncors: { origins: [a] }\nkeys: [{ name: a }]\n");
        let after = document("cors:\n  origins: [b]\nkeys: []\ntenants: [{ id: t }]\ndrain_seconds: 5\n");

        let problems = Fixed::of(&after).changed_since(&Fixed::of(&before));

        let told: Vec<_> = problems
            .iter()
            .map(|problem| (problem.path.as_str(), problem.line))
            .collect();
        assert_eq!(
            told,
            [("attempts_max", 0), ("cors.origins[0]", 2), ("drain_seconds", 5)]
        );
        assert_eq!(Fixed::of(&after).changed_since(&Fixed::of(&after)), []);
    }
}
