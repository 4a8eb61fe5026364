//! Words that no file of the project may hold: paths of one machine, hosts of registries, unfinished notes.
//!
//! The patterns are put together from halves, so that this file does not trip over itself.

use super::{File, Finding};

struct Pattern {
    text: &'static str,
    what: &'static str,
    remedy: &'static str,
}

const MACHINE: &str = "write a path from the root of the checkout, or below the home directory as ~";
const REGISTRY: &str = "name the package, not the registry that serves it";
const NOTE: &str = "finish it, or leave the note out";

const PATTERNS: &[Pattern] = &[
    Pattern {
        text: concat!("/wo", "rk/"),
        what: "a path of one machine",
        remedy: MACHINE,
    },
    Pattern {
        text: concat!("/ro", "ot/"),
        what: "a path of one machine",
        remedy: MACHINE,
    },
    Pattern {
        text: concat!("/ho", "me/"),
        what: "a path of one machine",
        remedy: MACHINE,
    },
    Pattern {
        text: concat!("/Use", "rs/"),
        what: "a path of one machine",
        remedy: MACHINE,
    },
    Pattern {
        text: concat!("crates", ".io"),
        what: "a registry's host",
        remedy: REGISTRY,
    },
    Pattern {
        text: concat!("npmjs", "."),
        what: "a registry's host",
        remedy: REGISTRY,
    },
    Pattern {
        text: concat!("pypi", ".org"),
        what: "a registry's host",
        remedy: REGISTRY,
    },
    Pattern {
        text: concat!("python", "hosted"),
        what: "a registry's host",
        remedy: REGISTRY,
    },
    Pattern {
        text: concat!("deb", ".debian"),
        what: "a registry's host",
        remedy: REGISTRY,
    },
    Pattern {
        text: concat!("TO", "DO"),
        what: "an unfinished note",
        remedy: NOTE,
    },
    Pattern {
        text: concat!("FIX", "ME"),
        what: "an unfinished note",
        remedy: NOTE,
    },
    Pattern {
        text: concat!("to", "do!("),
        what: "an unfinished note",
        remedy: NOTE,
    },
];

/// Lock files name the registry of each package.
const LOCK_FILES: &[&str] = &["Cargo.lock", "package-lock.json"];

/// Findings about the words of one file; recorded exchanges of other programs are judged too.
pub(crate) fn check(file: &File) -> Vec<Finding> {
    if LOCK_FILES.contains(&file.name()) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for pattern in PATTERNS.iter().filter(|pattern| holds(line, pattern.text)) {
            findings.push(Finding {
                place: format!("{}:{}", file.path, index + 1),
                rule: format!("holds {}: {}", pattern.what, pattern.text),
                remedy: pattern.remedy,
            });
        }
    }
    findings
}

/// Whether `line` holds `text` where a word begins: `/a/` is not in `b/a/`.
fn holds(line: &str, text: &str) -> bool {
    line.match_indices(text).any(|(at, _)| {
        let before = line.get(..at).and_then(|head| head.chars().next_back());
        let starts_word = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.' || c == '-');
        !text.starts_with(|c: char| c == '/' || c.is_uppercase()) || before.is_none_or(starts_word)
    })
}
