//! How a request ended that holds a key and is not heard of any more: asked of the books, where only what the spool of
//! its own gateway said counts. What somebody else declares lost may still have an answer and a price; it counts once
//! an operator has said that its source will not come back. Of what the books do not know, a later run on the same spool
//! can say that it had not begun.

use std::time::Duration;

use schemas::id::SpoolId;
use schemas::idempotency::Scope;
use schemas::idempotency::claim::End;
use schemas::idempotency::record::Running;
use schemas::query::{LogAnswer, LogQuery};
use schemas::subject::QUERY_LOG;

use crate::manage;
use crate::peers;
use crate::state::Shared;

/// How long the books may take. While they do not answer the request counts as running.
const WITHIN: Duration = Duration::from_secs(2);

/// How the request of a lock ended.
pub(super) async fn end_of(state: &Shared, scope: &Scope, held: &Running) -> End {
    // Before the question: what the books have then, they had already.
    let is_known = peers::recovered(state, &held.spool, &held.boot).await;
    let query = LogQuery {
        request_id: held.request_id,
        tenant: Some(scope.tenant.clone()),
        key: Some(scope.key_id.clone()),
    };
    let answered = manage::ask::<_, LogAnswer>(state, QUERY_LOG, &query, WITHIN).await;
    let Ok(LogAnswer { row, .. }) = answered else {
        return End::Open;
    };
    match row {
        Some(row) if is_of(&row.source, &held.spool) => End::of(&row.settled),
        Some(_) | None if state.ports.nodes.forgotten(&held.spool) => End::Void,
        None if is_known => End::Void,
        Some(_) | None => End::Open,
    }
}

/// True for the source of a spool's events.
fn is_of(source: &str, spool: &SpoolId) -> bool {
    source
        .rsplit_once('/')
        .is_some_and(|(_, named)| named == spool.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_by_its_spool_and_by_nothing_less() {
        let spool = SpoolId::from("01ab");

        assert!(is_of("/waybill/local/01ab", &spool));
        assert!(!is_of("/waybill/local/x01ab", &spool));
        assert!(!is_of("/waybill/01ab/cd", &spool));
        assert!(!is_of("01ab", &spool));
    }
}
