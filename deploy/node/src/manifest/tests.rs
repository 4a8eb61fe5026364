//! Tests of which files are chosen where there is a manifest, and what is told of it.

use std::fs;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::*;
use crate::files::hex;

const MODELS: &str = "models: []\n";

struct Place(TempDir);

impl Place {
    fn new(manifest: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("models.yaml"), MODELS).expect("write");
        fs::write(directory.path().join("manifest.yaml"), manifest).expect("write");
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn resolve(&self, mode: Option<&str>) -> Resolved {
        let manifest = self.path("manifest.yaml").display().to_string();
        let mode = mode.map(|mode| (MODE.to_owned(), mode.to_owned()));
        let pairs = [(PATH.to_owned(), manifest)].into_iter().chain(mode);
        resolve(&Environment::from_pairs(pairs), &Files::default())
    }
}

fn manifest(rest: &str) -> String {
    format!("schema_version: 1\ndistribution: {{ id: d, release: r1 }}\n{rest}")
}

fn named() -> String {
    manifest("paths: { models: models.yaml, mcp: nowhere.yaml }\n")
}

#[test]
fn without_a_manifest_files_are_chosen_as_ever() {
    let none = resolve(&Environment::default(), &Files::default());
    let path = |name: &str| Some(PathBuf::from(name));

    assert_eq!(none.choose(Kind::Models, path("a"), path("b")).path, path("a"));
    assert_eq!(none.choose(Kind::Models, None, path("b")).path, path("b"));
    assert!(!none.is_unloadable() && none.mode.is_none());
}

#[test]
fn an_active_manifest_wins_over_what_is_configured_and_an_explicit_variable_over_it() {
    let place = Place::new(&named());
    let active = place.resolve(Some("active"));
    let path = |name: &str| Some(PathBuf::from(name));
    assert_eq!(active.broken, None);
    assert_eq!(active.distribution.release, "r1");

    let mine = active.choose(Kind::Models, None, path("b"));
    let explicit = active.choose(Kind::Models, path("a"), path("b"));
    let unnamed = active.choose(Kind::Routing, None, path("b"));

    assert_eq!(
        (mine.path, mine.of_manifest),
        (Some(place.path("models.yaml")), true)
    );
    assert_eq!((explicit.path, explicit.of_manifest), (path("a"), false));
    let told = explicit.told.expect("a line");
    assert!(told.contains("explicit env override") && told.contains("wins over manifest value"));
    assert_eq!((unnamed.path, unnamed.of_manifest), (path("b"), false));
}

#[test]
fn a_dark_manifest_is_read_and_compared_and_nothing_of_it_counts() {
    let place = Place::new(&named());
    let files = Files::default();
    let other = place.path("other.yaml");
    fs::write(&other, "models: [] # other\n").expect("write");
    files.read(&other).expect("read");
    for mode in [None, Some("dark"), Some("bright")] {
        let dark = place.resolve(mode);
        let choice = dark.choose(Kind::Models, None, Some(other.clone()));

        assert_eq!((choice.path, choice.of_manifest), (Some(other.clone()), false));
        assert_eq!(dark.warnings.len(), usize::from(mode == Some("bright")));
        assert!(dark.site.is_none() && !dark.is_unloadable());
        files.read(&place.path("models.yaml")).expect("read");
        let told = dark.compared(Kind::Models, Some(&other), &files).expect("a line");
        assert!(
            told.starts_with("[distribution dark mode] models config stays") && told.ends_with("DIFFERENT"),
            "{told}"
        );
        assert!(told.contains(&hex(&Sha256::digest(MODELS))[..12]), "{told}");
        let same = dark.compared(Kind::Models, Some(&place.path("models.yaml")), &files);
        assert!(same.is_some_and(|told| told.ends_with("identical")));
    }
}

#[test]
fn digests_are_compared_with_what_is_in_the_files() {
    let digest = hex(&Sha256::digest(MODELS));
    let with = |digest: &str| format!("{}digests: {{ models: \"{digest}\" }}\n", named());
    for (digest, wrong) in [
        (digest.clone(), None),
        (format!("sha256:{digest}"), None),
        (digest.to_uppercase(), None),
        (digest.replace(&digest[..2], "zz"), Some("no SHA-256")),
        ("0".repeat(64), Some("not the file that the manifest speaks of")),
    ] {
        let resolved = Place::new(&with(&digest)).resolve(Some("active"));
        match (&resolved.broken, wrong) {
            (None, None) => assert!(!resolved.is_unloadable()),
            (Some(problem), Some(text)) => {
                assert!(problem.message.contains(text), "{problem}");
                assert_eq!((problem.path.as_str(), problem.line), ("digests.models", 4));
            }
            other => panic!("{digest}: {other:?}"),
        }
    }
}

#[test]
fn an_active_manifest_that_cannot_be_used_leaves_no_models() {
    for (text, key) in [
        (manifest("paths: { models: gone.yaml }\n"), "paths.models"),
        (manifest("colour: red\n"), "colour"),
        ("schema_version: 2\n".to_owned(), "schema_version"),
        ("schema_version: [\n".to_owned(), ""),
        (manifest("digests: { models: aa }\n"), "digests.models"),
    ] {
        let place = Place::new(&text);
        let active = place.resolve(Some("active"));
        let problem = active.broken.clone().expect("a problem");

        assert_eq!(problem.path, key, "{problem}");
        assert!(active.is_unloadable());
        let otherwise = Some(PathBuf::from("b"));
        assert_eq!(active.choose(Kind::Models, None, otherwise.clone()).path, None);
        let explicit = Some(PathBuf::from("a"));
        assert_eq!(active.choose(Kind::Models, explicit.clone(), None).path, explicit);
        let dark = place.resolve(None);
        assert!(dark.broken.is_some() && !dark.is_unloadable());
        assert_eq!(dark.choose(Kind::Models, None, otherwise.clone()).path, otherwise);
    }
}
