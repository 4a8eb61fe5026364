//! Shape of source files: length, module doc, names, where re-exports and HTTP clients may stand.

use super::{File, Finding};

/// Lines a source file may have; aim for 400.
const LINES_MAX: usize = 600;

/// Folders that may lie between `src` and a file.
const DEPTH_MAX: usize = 2;

/// Endings of the files that [`LINES_MAX`] holds for.
const SOURCE_ENDINGS: &[&str] = &["rs", "py", "mjs", "sh"];

/// Names that say nothing of what is inside.
const VAGUE_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

/// Where code that opens connections to other servers may stand.
const CLIENT_PLACES: &[&str] = &[
    "router-worker/src/",
    "health-worker/src/",
    "tests/",
    "gateway/src/sign_in/oidc/wire.rs",
];

/// Findings about one file.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |line: Option<usize>, rule: String, remedy: &'static str| {
        let place = line.map_or(file.path.clone(), |line| format!("{}:{line}", file.path));
        findings.push(Finding { place, rule, remedy });
    };
    let lines = file.text.lines().count();
    if lines > LINES_MAX && SOURCE_ENDINGS.iter().any(|ending| file.has_ending(ending)) {
        report(
            None,
            format!("has {lines} lines, {LINES_MAX} is the ceiling"),
            "split it by what its parts are about",
        );
    }
    if !file.rust() {
        return findings;
    }
    if !file.text.starts_with("//!") {
        report(
            None,
            "does not start with a module doc".to_owned(),
            "say in the first lines, after //!, what it is for",
        );
    }
    if file.name() == "mod.rs" {
        report(
            None,
            "is a mod.rs".to_owned(),
            "name it after its folder, beside the folder",
        );
    }
    if let Some(part) = vague_part(&file.path) {
        report(None, format!("is named {part}"), "name it after what it is about");
    }
    if depth(&file.path) > DEPTH_MAX {
        report(
            None,
            format!("lies deeper than {DEPTH_MAX} folders below src"),
            "flatten the module tree",
        );
    }
    for (index, line) in file.text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("pub use ") && file.name() != "lib.rs" {
            report(
                Some(index + 1),
                "re-exports outside lib.rs".to_owned(),
                "import it where it is used",
            );
        }
        let client = !code.starts_with("//") && names_http_client(code);
        if client && !CLIENT_PLACES.iter().any(|place| file.path.starts_with(place)) {
            report(
                Some(index + 1),
                "uses an HTTP client".to_owned(),
                "only the router-worker calls upstreams, and only the health-worker asks how they are",
            );
        }
    }
    findings
}

/// The first part of `path` whose stem is a vague name.
fn vague_part(path: &str) -> Option<&str> {
    path.split('/')
        .map(|part| part.strip_suffix(".rs").unwrap_or(part))
        .find(|part| VAGUE_NAMES.contains(part))
}

/// Folders between `src` and the file; 0 for files that lie elsewhere. A module's `tests` beside it are at its depth.
fn depth(path: &str) -> usize {
    let mut below = path.split('/').skip_while(|part| *part != "src").skip(1);
    let parts = below.by_ref().filter(|part| *part != "tests").count();
    parts.saturating_sub(1)
}

/// Whether a line of code names hyper's client side.
fn names_http_client(code: &str) -> bool {
    [concat!("hyper::", "client"), concat!("hyper_util::", "client")]
        .iter()
        .any(|path| code.contains(path))
}
