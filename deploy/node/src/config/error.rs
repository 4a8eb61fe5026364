//! Why a configuration cannot be used.

use std::path::PathBuf;

use crate::yaml::Problem;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error("{0}")]
    Wrong(Problem),
    /// The configuration is understood and refused, because it would be unsafe to go on.
    #[error("{0}")]
    Refused(Problem),
    /// A file cannot be read.
    #[error("cannot read {path}; check that it exists and may be read", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    /// The same as a problem of a file.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Wrong(problem) | Self::Refused(problem) => problem.clone(),
            Self::Unreadable { path, source } => Problem {
                file: path.display().to_string(),
                line: 0,
                path: String::new(),
                message: format!("the file cannot be read: {source}"),
                remedy: "check that it exists and may be read".into(),
            },
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Wrong(problem)
    }
}
