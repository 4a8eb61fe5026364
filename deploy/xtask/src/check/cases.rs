//! The pages of known faults and of promises name the tests that hold them: a row without a test, or a test that is not
//! there, is reported.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The pages, from the root of the checkout.
const PAGES: [&str; 2] = ["docs/cases.md", "docs/reliability.md"];
/// What the rule below the head of a table begins with.
const RULE: &str = "|---";

/// Findings over the pages that name tests; none where the tree has no such page.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let tests: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.rust())
        .flat_map(|file| tests(&file.text))
        .collect();
    let pages = files.iter().filter(|file| PAGES.contains(&file.path.as_str()));
    pages
        .flat_map(|page| {
            let rows = rows(&page.text);
            rows.flat_map(|(number, line)| wrong((&page.path, number), line, &tests))
        })
        .collect()
}

/// The rows of the tables of a page, with the numbers of their lines; neither heads nor the rules below them.
fn rows(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let below = text.lines().skip(1).chain(std::iter::once(""));
    let lines = text.lines().zip(below).enumerate();
    lines
        .filter(|(_, (line, below))| line.starts_with("| ") && !below.starts_with(RULE))
        .map(|(index, (line, _))| (index + 1, line))
}

/// What is wrong with a row of a page.
fn wrong((page, number): (&str, usize), line: &str, tests: &BTreeSet<&str>) -> Vec<Finding> {
    let finding = |rule: String, remedy| Finding {
        place: format!("{page}:{number}"),
        rule,
        remedy,
    };
    let named: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        let remedy = "write the test that holds it, and its name into the row";
        return vec![finding("a row without a test".to_owned(), remedy)];
    }
    let missing = named.into_iter().filter(|name| !tests.contains(name));
    missing
        .map(|name| {
            finding(
                format!("names {name}"),
                "there is no such test: write what it is called now",
            )
        })
        .collect()
}

/// Names of the functions of a Rust file that an attribute makes a test.
fn tests(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(name) = function(line) {
            if marked {
                names.push(name);
            }
            marked = false;
        }
    }
    names
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split('(').next()
}
