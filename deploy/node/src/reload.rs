//! `waybill reload`: has the node of a data directory read its models again.

use std::io::ErrorKind;

use crate::config::Config;
use crate::{UsageError, control};

/// The models of a node could not be read again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No node runs on the data directory, or it takes no commands.
    #[error("no node takes commands in {directory}; is it running, and is this its data directory?")]
    Deaf {
        /// The data directory.
        directory: String,
        /// What the socket says.
        #[source]
        source: std::io::Error,
    },
}

/// Asks the node and returns what to print. What is wrong with the files is an error of their author's.
pub async fn run(config: &Config) -> anyhow::Result<String> {
    let answer = control::reload(&config.data_dir).await;
    let deaf = |source| Error::Deaf {
        directory: config.data_dir.display().to_string(),
        source,
    };
    match answer {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(problem)) => {
            let text = format!("nothing was changed: {}", problem.trim_end());
            Err(UsageError(text).into())
        }
        // A node of a version before this command closes the connection.
        Err(problem) if problem.kind() == ErrorKind::UnexpectedEof => {
            let text = "the node that runs does not know this command: it is older, or it is ending";
            Err(UsageError(text.to_owned()).into())
        }
        Err(problem) => Err(deaf(problem).into()),
    }
}
