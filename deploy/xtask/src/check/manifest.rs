//! Manifests of packages: shared lints, no publishing, versions from the root. What is a workspace of its own, because
//! another toolchain builds it, takes nothing from the root.

use super::{File, Finding};

/// Findings about one `Cargo.toml` below the root.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let alone = file.text.lines().any(|line| line.trim() == "[workspace]");
    if file.name() != "Cargo.toml" || alone {
        return findings;
    }
    let place = || file.path.clone();
    if !section(&file.text, "[lints]").contains(&"workspace = true") {
        findings.push(Finding {
            place: place(),
            rule: "does not take the workspace's lints".to_owned(),
            remedy: "add [lints] workspace = true",
        });
    }
    let pinned = ["[dependencies]", "[dev-dependencies]", "[build-dependencies]"]
        .iter()
        .flat_map(|heading| section(&file.text, heading))
        .filter(|line| !line.starts_with('#') && line.contains('=') && !line.contains("workspace"));
    findings.extend(pinned.map(|line| Finding {
        place: place(),
        rule: format!("has a version of its own: {line}"),
        remedy: "put the version in the root Cargo.toml and take it with .workspace = true",
    }));
    findings
}

/// The lines of a TOML section, trimmed, without empty ones.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    text.lines()
        .map(str::trim)
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.is_empty())
        .collect()
}
