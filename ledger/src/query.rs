//! Answers to questions over the bus. A question and its answer are JSON of `schemas::query`; a question that
//! cannot be read is answered, too.

use std::future::Future;
use std::sync::Arc;

use bus::{Bus, BusError, Question};
use bytes::Bytes;
use futures_util::StreamExt as _;
use schemas::id::RequestId;
use schemas::query::audit::{AuditAnswer, AuditQuery};
use schemas::query::feed::{Booked, FEED_EVENTS_MAX, FeedAnswer, FeedQuery};
use schemas::query::{
    LedgerState, LogAnswer, LogQuery, LogsAnswer, LogsQuery, PAGE_ROWS_MAX, QUOTA_EVENTS_MAX, QueryError,
    QuotasAnswer, QuotasQuery, RebuildAnswer, UsageAnswer, UsageQuery,
};
use schemas::subject::{
    QUERY_AUDIT, QUERY_FEED, QUERY_LEDGER, QUERY_LOG, QUERY_LOGS, QUERY_QUOTAS, QUERY_REBUILD, QUERY_USAGE,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::audit;
use crate::record::{Fact, Record};
use crate::state::State;
use crate::store::{Store, StoreError};

/// Questions of one kind answered at the same time.
const QUESTIONS_MAX: usize = 4;
/// Most bytes of a question.
const QUESTION_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the rows of a page, unless its first is larger. A bus carries a megabyte by itself.
pub(crate) const PAGE_BYTES_MAX: usize = 512 * 1024;
/// Bytes of sums, which have no pages.
const SUMS_BYTES_MAX: usize = 896 * 1024;

/// Those who answer.
pub(crate) struct Desk {
    store: Arc<dyn Store>,
    state: Arc<State>,
    queues: Queues,
}

struct Queues {
    logs: mpsc::Receiver<Question>,
    log: mpsc::Receiver<Question>,
    feed: mpsc::Receiver<Question>,
    audit: mpsc::Receiver<Question>,
    usage: mpsc::Receiver<Question>,
    quotas: mpsc::Receiver<Question>,
    ledger: mpsc::Receiver<Question>,
    rebuild: mpsc::Receiver<Question>,
}

impl Desk {
    /// Begins to take questions.
    pub(crate) async fn open(
        bus: &dyn Bus,
        store: Arc<dyn Store>,
        state: Arc<State>,
    ) -> Result<Self, BusError> {
        let queues = Queues {
            logs: bus.serve(QUERY_LOGS).await?,
            log: bus.serve(QUERY_LOG).await?,
            feed: bus.serve(QUERY_FEED).await?,
            audit: bus.serve(QUERY_AUDIT).await?,
            usage: bus.serve(QUERY_USAGE).await?,
            quotas: bus.serve(QUERY_QUOTAS).await?,
            ledger: bus.serve(QUERY_LEDGER).await?,
            rebuild: bus.serve(QUERY_REBUILD).await?,
        };
        Ok(Self { store, state, queues })
    }

    /// Answers until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self { store, state, queues } = self;
        let (store, state) = (&*store, &*state);
        let desks = async {
            tokio::join!(
                serve(queues.logs, |query| logs(store, query)),
                serve(queues.log, |query| log(store, query)),
                serve(queues.feed, |query| feed(store, query)),
                serve(queues.audit, |query| audit(store, query)),
                serve(queues.usage, |query| usage(store, query)),
                serve(queues.quotas, |query| quotas(store, query)),
                serve(queues.ledger, |Nothing {}| ledger(store, state)),
                serve(queues.rebuild, |Nothing {}| rebuild(store, state)),
            )
        };
        tokio::select! {
            _ = desks => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// A question without content; what it may hold is not looked at.
struct Nothing {}

impl<'de> serde::Deserialize<'de> for Nothing {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

/// Answers the questions of one queue, a few at a time.
async fn serve<Q, A, F>(queue: mpsc::Receiver<Question>, answer: impl Fn(Q) -> F)
where
    Q: DeserializeOwned,
    A: Serialize,
    F: Future<Output = Result<A, QueryError>>,
{
    let answer = &answer;
    let questions = futures_util::stream::unfold(queue, async |mut queue| {
        let question = queue.recv().await?;
        Some((question, queue))
    });
    questions
        .for_each_concurrent(QUESTIONS_MAX, async |question| {
            let result = match read(&question.payload) {
                Ok(query) => answer(query).await,
                Err(problem) => Err(problem),
            };
            match serde_json::to_vec(&result) {
                // An asker who no longer waits is no problem.
                Ok(bytes) => drop(question.reply.send(Bytes::from(bytes))),
                Err(problem) => warn!(
                    error = &problem as &dyn std::error::Error,
                    "an answer cannot be written"
                ),
            }
        })
        .await;
}

fn read<Q: DeserializeOwned>(payload: &[u8]) -> Result<Q, QueryError> {
    if payload.len() > QUESTION_BYTES_MAX {
        return Err(QueryError::Invalid("the question is too long".to_owned()));
    }
    // An empty question is one without content.
    let payload = if payload.is_empty() { b"null" } else { payload };
    serde_json::from_slice(payload).map_err(|problem| QueryError::Invalid(problem.to_string()))
}

async fn logs(store: &dyn Store, query: LogsQuery) -> Result<LogsAnswer, QueryError> {
    if query.limit == 0 || query.limit > PAGE_ROWS_MAX {
        return Err(QueryError::Invalid(format!(
            "limit: expected 1 to {PAGE_ROWS_MAX}"
        )));
    }
    let mut answer = store.logs(&query).await.map_err(refuse)?;
    let fits = fitting(&answer.data, PAGE_BYTES_MAX).max(1);
    if fits < answer.data.len() {
        answer.data.truncate(fits);
        answer.next = answer.data.last().map(|row| row.settled.request_id);
    }
    let ids: Vec<RequestId> = answer.data.iter().map(|row| row.settled.request_id).collect();
    answer.adjustments = store.adjusted(&ids).await.map_err(refuse)?;
    Ok(answer)
}

/// How many of the first rows are no more than so many bytes of JSON together.
fn fitting<T: Serialize>(rows: &[T], bytes_max: usize) -> usize {
    let mut left = bytes_max;
    let fits = |row: &&T| match left.checked_sub(written(row)) {
        None => false,
        Some(rest) => {
            left = rest;
            true
        }
    };
    rows.iter().take_while(fits).count()
}

/// The bytes of a row in an answer, with the comma after it.
pub(crate) fn written<T: Serialize>(row: &T) -> usize {
    // What cannot be written is told when the answer is.
    serde_json::to_vec(row).map_or(0, |bytes| bytes.len() + 1)
}

async fn audit(store: &dyn Store, query: AuditQuery) -> Result<AuditAnswer, QueryError> {
    if query.limit == 0 || query.limit > PAGE_ROWS_MAX {
        return Err(QueryError::Invalid(format!(
            "limit: expected 1 to {PAGE_ROWS_MAX}"
        )));
    }
    audit::page(store, &query).await.map_err(refuse)
}

async fn feed(store: &dyn Store, query: FeedQuery) -> Result<FeedAnswer, QueryError> {
    if query.limit == 0 || query.limit > FEED_EVENTS_MAX {
        return Err(QueryError::Invalid(format!(
            "limit: expected 1 to {FEED_EVENTS_MAX}"
        )));
    }
    let Some(after) = query.after else {
        let place = store.last_place().await.map_err(refuse)?;
        return Ok(FeedAnswer {
            place,
            ..FeedAnswer::default()
        });
    };
    let most = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let tenant = query.filter.tenant.as_ref().map(|tenant| &*tenant.0);
    let booked = store.booked(tenant, after, most).await.map_err(refuse)?;
    Ok(fed(&query, booked))
}

/// What of a row of events is told: what is asked for, as much as an answer carries.
fn fed(query: &FeedQuery, booked: Vec<(u64, Record)>) -> FeedAnswer {
    let mut answer = FeedAnswer {
        place: query.after.unwrap_or_default(),
        more: u32::try_from(booked.len()).is_ok_and(|events| events == query.limit),
        events: Vec::new(),
    };
    let mut bytes = 0;
    for (place, record) in booked {
        if let Some(envelope) = envelope(query, &record) {
            bytes += envelope.get().len();
            if bytes > PAGE_BYTES_MAX && !answer.events.is_empty() {
                answer.more = true;
                break;
            }
            answer.events.push(Booked {
                place,
                kind: record.kind.to_string(),
                envelope,
            });
        }
        answer.place = place;
    }
    answer
}

/// The envelope of an event that is asked for.
fn envelope(query: &FeedQuery, record: &Record) -> Option<Box<RawValue>> {
    let Fact::Waybill(waybill) = &record.fact else {
        return None;
    };
    if !query.filter.admits(&waybill.row.settled) {
        return None;
    }
    let text = String::from_utf8(record.envelope.to_vec()).ok()?;
    RawValue::from_string(text).ok()
}

async fn log(store: &dyn Store, query: LogQuery) -> Result<LogAnswer, QueryError> {
    store.log(&query).await.map_err(refuse)
}

async fn usage(store: &dyn Store, query: UsageQuery) -> Result<UsageAnswer, QueryError> {
    let data = store.usage(&query).await.map_err(refuse)?;
    if fitting(&data, SUMS_BYTES_MAX) < data.len() {
        return Err(QueryError::Invalid(format!(
            "interval: the answer has more than {SUMS_BYTES_MAX} bytes; ask for less at a time"
        )));
    }
    Ok(UsageAnswer { data })
}

async fn quotas(store: &dyn Store, query: QuotasQuery) -> Result<QuotasAnswer, QueryError> {
    let places = query.upto.saturating_sub(query.after);
    if places > QUOTA_EVENTS_MAX {
        return Err(QueryError::Invalid(format!(
            "upto: expected at most {QUOTA_EVENTS_MAX} places"
        )));
    }
    // One more each for events that are kept under two ids.
    let most = usize::try_from(places.saturating_mul(2)).unwrap_or(usize::MAX);
    let events = store.events_after(&query.source, query.after, most).await;
    let mut answer = QuotasAnswer::default();
    for event in events.map_err(refuse)? {
        if event.source_sequence > query.upto {
            break;
        }
        if let Fact::Waybill(waybill) = &event.fact {
            for charge in &waybill.row.settled.quotas {
                let sum = answer.quotas.entry(charge.name.clone()).or_default();
                *sum = sum.saturating_add(charge.amount);
            }
        }
    }
    Ok(answer)
}

async fn ledger(store: &dyn Store, state: &State) -> Result<LedgerState, QueryError> {
    let mut answer = state.read();
    answer.database_connected = answer.database_connected && store.healthy().await;
    Ok(answer)
}

async fn rebuild(store: &dyn Store, state: &State) -> Result<RebuildAnswer, QueryError> {
    let answer = store.rebuild().await.map_err(refuse)?;
    // What the stream has and the books' own log has not comes in by reading the stream again.
    state.ask_reread();
    Ok(answer)
}

/// What an asker is told; the cause is for our own log.
fn refuse(problem: StoreError) -> QueryError {
    match problem {
        StoreError::TimeZone => QueryError::Invalid("tz: expected the IANA name of a time zone".to_owned()),
        StoreError::TooManySums { rows_max } => QueryError::Invalid(format!(
            "interval: the answer has more than {rows_max} sums; ask for less at a time"
        )),
        problem => {
            warn!(
                error = &problem as &dyn std::error::Error,
                "a question to the books has no answer"
            );
            QueryError::Unavailable
        }
    }
}

#[cfg(test)]
mod tests;
