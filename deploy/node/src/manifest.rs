//! A distribution's manifest: `DISTRIBUTION_CONFIG_PATH` names it, `DISTRIBUTION_CONFIG_MODE` says what it is for. In
//! `dark` mode it is read, checked and compared, and nothing of it is served; in `active` mode the files that it names
//! are served, unless a variable names another, and if it cannot be used no models are.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::environment::Environment;
use crate::files::Files;
use crate::yaml::{Document, Problem};

/// The variable that names the manifest.
pub const PATH: &str = "DISTRIBUTION_CONFIG_PATH";
/// The variable that says what it is for.
pub const MODE: &str = "DISTRIBUTION_CONFIG_MODE";
/// The version of the format that is read.
const SCHEMA_VERSION: u64 = 1;
/// Characters of a digest in lines and reports.
const SHORT_CHARS: usize = 12;
/// Hexadecimal digits of a digest.
const DIGEST_CHARS: usize = 64;

/// The file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    schema_version: u64,
    #[serde(default)]
    distribution: Distribution,
    #[serde(default)]
    site: Site,
    #[serde(default)]
    features: Features,
    #[serde(default)]
    paths: BTreeMap<Kind, String>,
    /// Of each file its SHA-256, where the distribution says so.
    #[serde(default)]
    digests: BTreeMap<Kind, String>,
    #[serde(default)]
    #[expect(dead_code, reason = "a label for people")]
    deployment: BTreeMap<String, Value>,
}

/// The kinds of files that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// models.yaml.
    Models,
    /// routing.yaml.
    Routing,
    /// alerts.yaml, which nothing reads yet.
    Alerts,
    /// Accepted, and read by nothing.
    Mcp,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Models => "models",
            Self::Routing => "routing",
            Self::Alerts => "alerts",
            Self::Mcp => "mcp",
        })
    }
}

/// Which distribution it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Distribution {
    /// Its name for programs.
    pub id: String,
    /// Its name for people.
    pub display_name: String,
    /// Which release of it.
    pub release: String,
}

/// What visitors are told of the site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Where it is.
    pub public_base_url: Option<String>,
    /// Whom to write to.
    pub support_email: Option<String>,
    /// Accepted, and loaded by nothing.
    pub terms_document: Option<String>,
    /// Accepted, and loaded by nothing.
    pub privacy_document: Option<String>,
}

/// What visitors are told that there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Features {
    /// Published only.
    pub routers: Vec<String>,
    /// Whether visitors may sign up.
    pub public_signup: bool,
    /// Published only.
    pub rag: bool,
}

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// To be compared with what is served.
    Dark,
    /// To be served.
    Active,
}

/// What a manifest amounts to.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// What it is for; `None` where there is none.
    pub mode: Option<Mode>,
    /// Which distribution it is.
    pub distribution: Distribution,
    /// What visitors are told, in active mode only.
    pub site: Option<(Site, Features)>,
    /// Why it cannot be used.
    pub broken: Option<Problem>,
    /// What is odd.
    pub warnings: Vec<Problem>,
    paths: BTreeMap<Kind, PathBuf>,
}

/// Where a kind of file is, and what says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The file; `None` for none.
    pub path: Option<PathBuf>,
    /// True where the manifest says so.
    pub of_manifest: bool,
    /// What an operator is to know about it.
    pub told: Option<String>,
}

/// Reads the manifest that the environment names, and compares what it says with the files that it names.
pub fn resolve(environment: &Environment, files: &Files) -> Resolved {
    let Some(path) = environment.get(PATH) else {
        return Resolved::default();
    };
    let (mode, odd) = mode(environment);
    let mut resolved = Resolved {
        mode: Some(mode),
        warnings: odd.into_iter().collect(),
        ..Resolved::default()
    };
    match read(Path::new(path), files) {
        Ok((manifest, paths, wrong)) => {
            resolved.site = (mode == Mode::Active).then_some((manifest.site, manifest.features));
            resolved.distribution = manifest.distribution;
            resolved.paths = paths;
            resolved.broken = wrong;
        }
        Err(problem) => resolved.broken = Some(problem),
    }
    resolved
}

/// Any other word is dark, with a warning.
fn mode(environment: &Environment) -> (Mode, Option<Problem>) {
    match environment.get(MODE).map(str::trim) {
        None | Some("dark") => (Mode::Dark, None),
        Some("active") => (Mode::Active, None),
        Some(other) => {
            let problem = Problem {
                file: "environment".into(),
                line: 0,
                path: MODE.into(),
                message: format!(
                    "\"{}\" is not a mode, so the manifest is dark",
                    other.escape_debug()
                ),
                remedy: "use dark or active".into(),
            };
            (Mode::Dark, Some(problem))
        }
    }
}

type Read = (Manifest, BTreeMap<Kind, PathBuf>, Option<Problem>);

/// Reads it. A manifest has no variables in it and must hold no secrets, so nothing in it is replaced.
fn read(path: &Path, files: &Files) -> Result<Read, Problem> {
    let name = path.display().to_string();
    let text = files.read(path).map_err(|problem| Problem {
        file: name.clone(),
        line: 0,
        path: String::new(),
        message: format!("the manifest cannot be read: {problem}"),
        remedy: format!("correct {PATH}, or make the file readable"),
    })?;
    let document = Document::verbatim(&name, &text)?;
    let manifest: Manifest = document.read()?;
    if manifest.schema_version != SCHEMA_VERSION {
        let message = format!("version {} of the format is not known", manifest.schema_version);
        return Err(document.problem("schema_version", message, "write 1"));
    }
    let directory = path.parent().unwrap_or(Path::new(""));
    let paths: BTreeMap<Kind, PathBuf> = manifest
        .paths
        .iter()
        .filter(|(_, path)| !path.trim().is_empty())
        .map(|(kind, path)| (*kind, directory.join(path)))
        .collect();
    let wrong = compare(&manifest, &paths, (files, &document)).err();
    Ok((manifest, paths, wrong))
}

/// Every file is there, and is the one that the manifest speaks of.
fn compare(
    manifest: &Manifest,
    paths: &BTreeMap<Kind, PathBuf>,
    (files, document): (&Files, &Document),
) -> Result<(), Problem> {
    for (kind, path) in paths {
        if *kind == Kind::Mcp {
            continue;
        }
        files.read(path).map_err(|problem| {
            let message = format!("{} cannot be read: {problem}", path.display());
            document.problem(
                &format!("paths.{kind}"),
                message,
                "correct the path, or put the file there",
            )
        })?;
    }
    for (kind, expected) in &manifest.digests {
        let place = format!("digests.{kind}");
        let Some(path) = paths.get(kind) else {
            return Err(document.problem(&place, "there is no file of this kind", "name it under paths"));
        };
        let expected = expected
            .strip_prefix("sha256:")
            .unwrap_or(expected)
            .to_ascii_lowercase();
        let is_digest =
            expected.len() == DIGEST_CHARS && expected.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            let remedy = "write the 64 hexadecimal digits that sha256sum prints";
            return Err(document.problem(&place, "this is no SHA-256", remedy));
        }
        let found = files.digest(path).unwrap_or_default();
        if found != expected {
            let message = format!(
                "{} is not the file that the manifest speaks of: its SHA-256 begins with {}",
                path.display(),
                short(&found)
            );
            return Err(document.problem(&place, message, "put the right file there, or correct the digest"));
        }
    }
    Ok(())
}

impl Resolved {
    /// True while its files are to be served and cannot be.
    pub fn is_unloadable(&self) -> bool {
        self.mode == Some(Mode::Active) && self.broken.is_some()
    }

    /// True where it is to be served.
    pub fn is_active(&self) -> bool {
        self.mode == Some(Mode::Active)
    }

    /// The file of a kind that a dark manifest would have served.
    pub fn dark(&self, kind: Kind) -> Option<&PathBuf> {
        self.paths.get(&kind).filter(|_| self.mode == Some(Mode::Dark))
    }

    /// Which file of a kind counts: that of an explicit variable, else the manifest's in active mode, else the one that
    /// is configured otherwise.
    pub fn choose(&self, kind: Kind, explicit: Option<PathBuf>, otherwise: Option<PathBuf>) -> Choice {
        let of_manifest = self.paths.get(&kind);
        let choice = |path, of_manifest, told| Choice {
            path,
            of_manifest,
            told,
        };
        if self.mode != Some(Mode::Active) {
            return choice(explicit.or(otherwise), false, None);
        }
        match (explicit, of_manifest) {
            (Some(path), Some(manifest)) => {
                let told = format!(
                    "explicit env override for {kind}, {}, wins over manifest value {}",
                    path.display(),
                    manifest.display()
                );
                choice(Some(path), false, Some(told))
            }
            (Some(path), None) => choice(Some(path), false, None),
            (None, _) if self.broken.is_some() => choice(None, true, None),
            (None, Some(manifest)) => choice(Some(manifest.clone()), true, None),
            (None, None) => choice(otherwise, false, None),
        }
    }

    /// What dark mode has to tell of a kind of file: what is served, and what would be.
    pub fn compared(&self, kind: Kind, served: Option<&Path>, files: &Files) -> Option<String> {
        let manifest = self.dark(kind)?;
        let digest = |path: &Path| files.digest(path).unwrap_or_default();
        let would = digest(manifest);
        let (stays, now) = served.map_or(("none".to_owned(), String::new()), |path| {
            (path.display().to_string(), digest(path))
        });
        let verdict = if now == would && !now.is_empty() {
            "identical"
        } else {
            "DIFFERENT"
        };
        Some(format!(
            "[distribution dark mode] {kind} config stays {stays} (sha256={}); manifest would use {} (sha256={}) — {verdict}",
            short(&now),
            manifest.display(),
            short(&would)
        ))
    }
}

fn short(digest: &str) -> &str {
    digest.get(..SHORT_CHARS).unwrap_or("-")
}

#[cfg(test)]
mod tests;
