//! Questions that others ask a router over the bus, so many at once.

use std::sync::Arc;

use bus::waiting::once_there;
use bus::{Bus, BusError, Question};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Error;

/// What is asked.
pub(crate) struct Asked<'a> {
    /// Where.
    pub(crate) subject: &'a str,
    /// How many questions are answered at once.
    pub(crate) at_once_max: usize,
    /// What is said while the bus does not let the router be asked.
    pub(crate) waiting: &'static str,
    /// What is said of a router that may not be asked.
    pub(crate) refused: &'static str,
}

/// Answers until `shutdown`; what comes beyond those that are answered at once is told so by `busy`. A router that may not
/// be asked does everything else all the same.
pub(crate) async fn serve<F>(
    bus: Arc<dyn Bus>,
    asked: Asked<'_>,
    (answer, busy): (impl Fn(Question) -> F, impl Fn(Question)),
    shutdown: CancellationToken,
) -> Result<(), Error>
where
    F: Future<Output = ()> + Send + 'static,
{
    let served = tokio::select! {
        biased;
        served = once_there(asked.waiting, || bus.serve(asked.subject)) => served,
        () = shutdown.cancelled() => return Ok(()),
    };
    let mut questions = match served {
        Ok(questions) => questions,
        Err(problem) => {
            warn!(error = &problem as &dyn std::error::Error, "{}", asked.refused);
            shutdown.cancelled().await;
            return Ok(());
        }
    };
    let mut answering = JoinSet::new();
    loop {
        let question = tokio::select! {
            question = questions.recv() => question.ok_or(BusError::Closed)?,
            Some(_) = answering.join_next(), if !answering.is_empty() => continue,
            () = shutdown.cancelled() => return Ok(()),
        };
        if answering.len() < asked.at_once_max {
            answering.spawn(answer(question));
        } else {
            busy(question);
        }
    }
}
