//! Books that answer what they are asked, as a ledger's would: of every tenant, unless the question says of which.

use bus::Bus as _;
use bytes::Bytes;
use schemas::event::audit::Audited;
use schemas::event::request::RequestSettled;
use schemas::query::audit::{AuditAnswer, AuditQuery};
use schemas::query::{
    LogAnswer, LogFilter, LogQuery, LogsAnswer, LogsQuery, QueryError, Row, UsageQuery, UsageRow,
};
use schemas::subject::{QUERY_AUDIT, QUERY_LOG, QUERY_LOGS, QUERY_USAGE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::scene::Scene;

/// What they hold.
#[derive(Clone)]
pub(super) struct Books {
    pub(super) rows: Vec<RequestSettled>,
    pub(super) changes: Vec<Audited>,
}

impl Books {
    /// Has questions answered from now on.
    pub(super) async fn open(self, scene: &mut Scene) {
        let books = self.clone();
        answer(scene, QUERY_LOGS, move |query: LogsQuery| {
            let rows = books.rows_of(&query.filter).into_iter();
            let data = rows
                .take(usize::try_from(query.limit).expect("few"))
                .map(row)
                .collect();
            LogsAnswer {
                data,
                next: None,
                adjustments: std::collections::BTreeMap::new(),
            }
        })
        .await;
        let books = self.clone();
        answer(scene, QUERY_LOG, move |query: LogQuery| {
            let filter = LogFilter {
                tenant: query.tenant,
                key: query.key,
                request_id: Some(query.request_id),
                ..LogFilter::default()
            };
            let found = books.rows_of(&filter).into_iter().next();
            let event = found.map(|found| json!({"data": found}).to_string());
            LogAnswer {
                row: found.map(row),
                event: event.and_then(|text| serde_json::value::RawValue::from_string(text).ok()),
            }
        })
        .await;
        let books = self.clone();
        answer(scene, QUERY_USAGE, move |query: UsageQuery| {
            let rows = books.rows_of(&query.filter);
            let sums = rows.into_iter().map(|settled| UsageRow {
                tenant: Some(settled.tenant.to_string()),
                key: Some(settled.key_id.to_string()),
                ..UsageRow::default()
            });
            json!({"data": sums.collect::<Vec<_>>()})
        })
        .await;
        answer(scene, QUERY_AUDIT, move |query: AuditQuery| {
            let admitted = self.changes.iter().filter(|change| query.filter.admits(change));
            let data = admitted
                .take(usize::try_from(query.limit).expect("few"))
                .cloned()
                .collect();
            AuditAnswer { data, next: None }
        })
        .await;
    }

    fn rows_of(&self, filter: &LogFilter) -> Vec<&RequestSettled> {
        let is = |row: &&RequestSettled| {
            filter.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
                && filter
                    .user
                    .as_ref()
                    .is_none_or(|user| Some(user) == row.user.as_ref())
                && filter.key.as_ref().is_none_or(|key| *key == row.key_id)
                && filter.model.as_ref().is_none_or(|model| *model == row.model)
                && filter.request_id.is_none_or(|id| id == row.request_id)
        };
        self.rows.iter().filter(is).collect()
    }
}

fn row(settled: &RequestSettled) -> Row {
    Row {
        settled: settled.clone(),
        source: "/waybill/test/spool".to_owned(),
        source_sequence: 1,
    }
}

/// Answers the questions of a subject for as long as the gateway runs.
async fn answer<Q, A>(scene: &mut Scene, subject: &'static str, answered: impl Fn(Q) -> A + Send + 'static)
where
    Q: DeserializeOwned,
    A: Serialize,
{
    let mut questions = scene.bus.serve(subject).await.expect("serve");
    scene.tasks.spawn(async move {
        while let Some(question) = questions.recv().await {
            let asked: Q = serde_json::from_slice(&question.payload).expect("a question");
            let answer: Result<A, QueryError> = Ok(answered(asked));
            let answer = serde_json::to_vec(&answer).expect("JSON");
            drop(question.reply.send(Bytes::from(answer)));
        }
    });
}
