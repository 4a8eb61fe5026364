//! What a node says of the files that it was configured with: what is in force, what is wrong, and what was in force
//! before. A **set** is all files that a node read at once; each set that changed the catalogue is a **revision**.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::change::Actor;
use crate::id::NodeId;
use crate::subject::catalog;
use crate::time::Timestamp;

pub mod shown;
pub mod undo;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Severity")]
pub enum Severity {
    /// The files as they are cannot be used: what was in force stays in force.
    Error,
    /// It is in force once the node is started again.
    Restart,
    /// It is odd, or without effect.
    Warning,
}

impl Severity {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Error, Self::Restart, Self::Warning];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Restart => "restart",
            Self::Warning => "warning",
        }
    }
}

/// Something that is wrong or odd in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConfigurationProblem")]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, as the operator named it, or `environment`.
    pub file: String,
    /// Its line, counted from 1; null where there is none to tell.
    pub line: Option<u64>,
    /// The key's path, such as `models[0].route[1].weight`; empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// Since when this node knows of it.
    pub since: Timestamp,
}

/// A file as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConfigurationFile")]
pub struct FileDigest {
    /// The file, as the operator named it.
    pub file: String,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// What is in force at a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The digest of all files together: equal where nodes read the same files.
    pub set: Arc<str>,
    /// Since when.
    pub since: Timestamp,
    /// The files.
    pub files: Vec<FileDigest>,
}

/// What a node says of its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What is in force.
    pub in_force: InForce,
    /// When the files were read last.
    pub read_at: Timestamp,
    /// What is wrong: the worst first.
    pub problems: Vec<Problem>,
}

impl Report {
    /// How many problems are so bad.
    pub fn count(&self, severity: Severity) -> usize {
        let of = |problem: &&Problem| problem.severity == severity;
        self.problems.iter().filter(of).count()
    }

    /// The same with other problems; those that are known keep their time.
    #[must_use]
    pub fn told(&self, mut problems: Vec<Problem>) -> Self {
        for problem in &mut problems {
            let same = |known: &&Problem| {
                let at = problem.since;
                let known = Problem {
                    since: at,
                    ..(*known).clone()
                };
                known == *problem
            };
            if let Some(known) = self.problems.iter().find(same) {
                problem.since = known.since;
            }
        }
        problems.sort_by_key(|problem| problem.severity);
        Self {
            problems,
            ..self.clone()
        }
    }
}

/// What a node tells the others of its configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConfigurationTold")]
pub struct Told {
    /// The digest of all its files together.
    pub set: Arc<str>,
    /// Since when that is in force.
    pub since: Timestamp,
    /// How many problems there are: errors.
    pub errors: usize,
    /// How many settings wait for the node's next start.
    pub restarts: usize,
    /// What is odd.
    pub warnings: usize,
}

impl From<&Report> for Told {
    fn from(report: &Report) -> Self {
        Self {
            set: Arc::clone(&report.in_force.set),
            since: report.in_force.since,
            errors: report.count(Severity::Error),
            restarts: report.count(Severity::Restart),
            warnings: report.count(Severity::Warning),
        }
    }
}

/// Why a revision came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[schemars(rename = "ConfigurationCause")]
pub enum Cause {
    /// A node started.
    Start,
    /// Files of a running node changed, or it was told to read them again.
    Reload,
    /// An operator put back what a revision had.
    Rollback {
        /// The number of that revision.
        to: u64,
        /// Sets that came after it: a node that starts with one of them leaves what the rollback made.
        overruled: Vec<Arc<str>>,
    },
}

/// A change of the catalogue that files made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Its number; the first is 1.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// The node that made it.
    pub node: NodeId,
    /// Why.
    pub cause: Cause,
    /// Who, where somebody asked for it.
    #[serde(default)]
    pub actor: Option<Actor>,
    /// The digest of all files together.
    pub set: Arc<str>,
    /// The files.
    pub files: Vec<FileDigest>,
    /// Records that it changed.
    pub changed: usize,
    /// Pieces in which what it changed is kept; 0 where that was too large to be kept.
    pub pieces: usize,
    /// The revision of the catalogue with which all of it was in force; null while it is not, and after a node that
    /// ended in between.
    pub catalog_revision: Option<u64>,
}

/// What became of a record of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordChange {
    /// Its key in the bucket.
    pub key: String,
    /// What it said; null for one that was not there.
    pub from: Option<Value>,
    /// What it says; null for one that is gone.
    pub to: Option<Value>,
}

impl RecordChange {
    /// True for a record that no rollback puts back: a key that a file gave up stays revoked.
    pub fn stays(&self) -> bool {
        self.key.starts_with(catalog::KEY)
    }
}

/// The newest revisions that are kept.
pub const REVISIONS_MAX: u64 = 32;
/// Most bytes of what one revision changed, as JSON: beyond, only its files are kept.
pub const REVISION_BYTES_MAX: usize = 1_500_000;
/// Most bytes of a piece, as JSON; a record that is larger is a piece of its own.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Packs changes into pieces, each a JSON list; nothing where they are too large to be kept.
pub fn pieces(changes: &[RecordChange]) -> Vec<Vec<u8>> {
    let texts: Vec<Vec<u8>> = changes
        .iter()
        .map(|change| serde_json::to_vec(change).unwrap_or_default())
        .collect();
    let bytes: usize = texts.iter().map(Vec::len).sum();
    if bytes > REVISION_BYTES_MAX || texts.iter().any(|text| text.len() > 2 * PIECE_BYTES_MAX) {
        return Vec::new();
    }
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    for text in texts {
        match pieces.last_mut() {
            Some(piece) if piece.len() + text.len() < PIECE_BYTES_MAX => {
                piece.push(b',');
                piece.extend(text);
            }
            _ => pieces.push([b"[", text.as_slice()].concat()),
        }
    }
    for piece in &mut pieces {
        piece.push(b']');
    }
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(key: &str, bytes: usize) -> RecordChange {
        RecordChange {
            key: key.to_owned(),
            from: None,
            to: Some(json!({"text": "x".repeat(bytes)})),
        }
    }

    #[test]
    fn changes_are_packed_and_read_back_in_their_order() {
        let changes: Vec<_> = (0..9).map(|n| change(&format!("model.{n}"), 100_000)).collect();

        let pieces = pieces(&changes);

        assert_eq!(pieces.len(), 5, "two of a hundred thousand bytes fit in one");
        let read: Vec<RecordChange> = pieces
            .iter()
            .flat_map(|piece| serde_json::from_slice::<Vec<RecordChange>>(piece).expect("a list"))
            .collect();
        assert_eq!(read, changes);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let many: Vec<_> = (0..20).map(|n| change(&format!("model.{n}"), 100_000)).collect();
        assert!(pieces(&many).is_empty());
        assert!(pieces(&[change("model.1", 600_000)]).is_empty());
        assert!(pieces(&[]).is_empty());
    }

    #[test]
    fn a_problem_that_stays_keeps_its_time() {
        let at = Timestamp::from_micros;
        let problem = |message: &str, severity, since| Problem {
            severity,
            file: "models.yaml".to_owned(),
            line: Some(3),
            key: "models[0]".to_owned(),
            message: message.to_owned(),
            remedy: "correct it".to_owned(),
            since,
        };
        let first = Report::default().told(vec![problem("a", Severity::Warning, at(1))]);

        let second = first.told(vec![
            problem("a", Severity::Warning, at(2)),
            problem("b", Severity::Error, at(2)),
        ]);

        let told: Vec<_> = second
            .problems
            .iter()
            .map(|problem| (&*problem.message, problem.since))
            .collect();
        assert_eq!(told, [("b", at(2)), ("a", at(1))], "the worst first");
        assert_eq!(second.count(Severity::Error), 1);
    }
}
