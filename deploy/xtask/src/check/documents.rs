//! Documents name files of the tree: a path that is not there (any more) is reported, so that the code map stays true.

use std::collections::BTreeSet;

use super::{File, Finding};

/// Findings over every Markdown file at the root of the checkout.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let tree = places(files);
    let documents = files
        .iter()
        .filter(|file| !file.path.contains('/') && file.has_ending("md"));
    documents.flat_map(|document| missing(document, &tree)).collect()
}

/// Every file and every folder of the tree, without a slash at the end.
fn places(files: &[File]) -> BTreeSet<&str> {
    let mut places = BTreeSet::new();
    for file in files {
        places.insert(file.path.as_str());
        places.extend(
            file.path
                .match_indices('/')
                .filter_map(|(at, _)| file.path.get(..at)),
        );
    }
    places
}

fn missing(document: &File, tree: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        let quoted = quoted(line).filter(|path| in_tree(path, tree));
        for path in quoted.chain(linked(line)).filter(|path| !tree.contains(path)) {
            findings.push(Finding {
                place: format!("{}:{}", document.path, index + 1),
                rule: format!("names {path}"),
                remedy: "there is no such file or folder: write where it is now",
            });
        }
    }
    findings
}

/// What stands between backticks and looks like a path.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter(|it| it.contains('/'))
        .map(|it| it.trim_end_matches('/'))
        .filter(|it| it.chars().all(|c| c.is_alphanumeric() || "/._-".contains(c)))
}

/// Targets of links to places of the checkout.
fn linked(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|it| it.split(')').next())
        .map(|it| it.trim_end_matches('/'))
        .filter(|it| !it.contains("://") && !it.starts_with('#'))
}

/// Whether a path begins with a folder at the root of the tree.
fn in_tree(path: &str, tree: &BTreeSet<&str>) -> bool {
    path.split('/').next().is_some_and(|first| tree.contains(first))
}
