//! Reads of adjustments.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::id::RequestId;
use schemas::query::Adjustments;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::read::Clause;
use super::sort;
use super::statement::Values;
use crate::record::Adjustment;
use crate::store::StoreError;
use crate::store::adjustment::{self, TOGETHER};
use crate::store::row::{self, Fields as _};

/// Requests asked about in one statement.
const IDS: usize = 64;

/// How far requests were adjusted.
pub(super) async fn adjusted(
    connection: &mut SqliteConnection,
    ids: &[RequestId],
) -> Result<BTreeMap<RequestId, Adjustments>, StoreError> {
    let mut adjusted = BTreeMap::new();
    for chunk in ids.chunks(IDS) {
        let places = vec!["?"; chunk.len()].join(",");
        let text = format!(
            "SELECT {TOGETHER}, sum(amount_nano_usd) AS amount_nano_usd FROM adjustments \
             WHERE request_id IN ({places}) GROUP BY request_id"
        );
        let mut values = Values::default();
        for id in chunk {
            values.put(id.to_string());
        }
        let query = sqlx::query_with(AssertSqlSafe(text), values.finish().map_err(sort)?);
        for found in query.fetch_all(&mut *connection).await.map_err(sort)? {
            let (id, adjustments) = adjustment::together(&found)?;
            adjusted.insert(id, adjustments);
        }
    }
    Ok(adjusted)
}

/// How many adjustments there are by day and tenant.
pub(super) async fn days(
    connection: &mut SqliteConnection,
) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError> {
    let text =
        "SELECT day, tenant, count(*) AS requests FROM adjustments GROUP BY day, tenant ORDER BY day, tenant";
    let rows = sqlx::query(text).fetch_all(connection).await.map_err(sort)?;
    let counted = |row| -> Result<_, StoreError> {
        let row: &sqlx::sqlite::SqliteRow = row;
        Ok((
            row.day("day")?,
            Arc::from(row::text(row, "tenant")?),
            row::count(row, "requests")?,
        ))
    };
    rows.iter().map(counted).collect()
}

/// Adjustments of a tenant's rows of a day beyond a place.
pub(super) async fn of_day(
    connection: &mut SqliteConnection,
    (tenant, day): (&str, NaiveDate),
    (after, most): (Option<(RequestId, u32)>, usize),
) -> Result<Vec<Adjustment>, StoreError> {
    let mut clause = Clause::default();
    clause.add("day = ?", day.to_string());
    clause.add("tenant = ?", tenant.to_owned());
    if let Some((id, number)) = after {
        clause.add("(request_id, number) > (?, ?)", id.to_string());
        clause.values.put(i64::from(number));
    }
    let text = format!(
        "SELECT * FROM adjustments{} ORDER BY request_id, number LIMIT ?",
        clause.text
    );
    clause.values.put(i64::try_from(most).unwrap_or(i64::MAX));
    let values = clause.values.finish().map_err(sort)?;
    let rows = sqlx::query_with(AssertSqlSafe(text), values);
    let rows = rows.fetch_all(connection).await.map_err(sort)?;
    rows.iter().map(adjustment::read).collect()
}
