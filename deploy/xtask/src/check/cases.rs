//! The page of known faults names the tests that hold them: a row without a test, or a test that is not there, is reported.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The page, from the root of the checkout.
const PAGE: &str = "docs/cases.md";

/// Findings over the page of known faults; none where the tree has no such page.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let tests: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.rust())
        .flat_map(|file| tests(&file.text))
        .collect();
    let rows = page.text.lines().enumerate().filter(|(_, line)| row(line));
    rows.flat_map(|(index, line)| wrong(index + 1, line, &tests))
        .collect()
}

/// Whether a line is a row of a table and neither its head nor the rule below that.
fn row(line: &str) -> bool {
    line.starts_with("| ") && !line.starts_with("| Fault |")
}

/// What is wrong with the row of line `number`.
fn wrong(number: usize, line: &str, tests: &BTreeSet<&str>) -> Vec<Finding> {
    let finding = |rule: String, remedy| Finding {
        place: format!("{PAGE}:{number}"),
        rule,
        remedy,
    };
    let named: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        let remedy = "write the test that holds the fault, and its name into the row";
        return vec![finding("a fault without a test".to_owned(), remedy)];
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
