//! Event types: written in one file, each with a frozen example.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The only source file with the names of event types.
const SUBJECTS: &str = "schemas/src/subject.rs";

/// Which of the types have a payload; a name kept for later has no example yet.
const EVENTS: &str = "schemas/src/event.rs";

/// Where the examples lie, one folder per version.
const GOLDEN: &str = "schemas/tests/golden";

/// Findings over the event types that the contract names and the golden files that are there.
pub(crate) fn check(files: &[File]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().flat_map(strays).collect();
    let read = |path: &str| {
        files
            .iter()
            .find(|file| file.path == path)
            .map_or("", |file| file.text.as_str())
    };
    let events = read(EVENTS);
    let built = |line: &&str| constant(line).is_some_and(|name| events.contains(&format!("subject::{name}")));
    let present: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for (fact, version) in read(SUBJECTS).lines().filter(built).flat_map(event_types) {
        let path = format!("{GOLDEN}/{version}/{fact}.json");
        if !present.contains(path.as_str()) {
            findings.push(Finding {
                place: path,
                rule: format!("the event {fact} of version {version} has no golden file"),
                remedy: "add one example of the event; once released it is never changed",
            });
        }
    }
    findings
}

/// Event types that stand in a source file other than [`SUBJECTS`]; tests may spell them out.
fn strays(file: &File) -> Vec<Finding> {
    let judged = file.rust()
        && file.path != SUBJECTS
        && file.path.contains("src/")
        && !file.path.contains("tests")
        && !file.path.starts_with("deploy/xtask/");
    if !judged {
        return Vec::new();
    }
    let code = file
        .text
        .lines()
        .take_while(|line| line.trim() != "mod tests {")
        .enumerate();
    code.filter(|(_, line)| !event_types(line).is_empty())
        .map(|(index, _)| Finding {
            place: format!("{}:{}", file.path, index + 1),
            rule: "spells out an event type".to_owned(),
            remedy: "use the constant of schemas::subject",
        })
        .collect()
}

/// The name that a line declares as a constant.
fn constant(line: &str) -> Option<&str> {
    line.trim().strip_prefix("pub const ")?.split(':').next()
}

/// The (fact, version) of each string literal `"waybill.<fact>.v<n>"` in a line.
fn event_types(line: &str) -> Vec<(&str, &str)> {
    line.split('"')
        .skip(1)
        .step_by(2)
        .filter_map(|literal| literal.strip_prefix("waybill.")?.rsplit_once('.'))
        .filter(|(_, version)| {
            version
                .strip_prefix('v')
                .is_some_and(|n| n.parse::<u32>().is_ok())
        })
        .collect()
}
