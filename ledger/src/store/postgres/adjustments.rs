//! Reads of adjustments.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::NaiveDate;
use schemas::id::RequestId;
use schemas::query::Adjustments;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

use super::read::Clause;
use super::session::sort;
use super::write::capped_sum;
use crate::record::Adjustment;
use crate::store::StoreError;
use crate::store::adjustment::{self, TOGETHER};
use crate::store::row::{self, Fields as _};

/// How far requests were adjusted.
pub(super) async fn adjusted(
    connection: &mut PgConnection,
    ids: &[RequestId],
) -> Result<BTreeMap<RequestId, Adjustments>, StoreError> {
    let sum = capped_sum("sum(amount_nano_usd)");
    let text = format!(
        "SELECT {TOGETHER}, {sum} AS amount_nano_usd FROM adjustments WHERE request_id = ANY($1) GROUP BY request_id"
    );
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let query = sqlx::query(AssertSqlSafe(text)).bind(ids);
    let found = query.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(adjustment::together).collect()
}

/// How many adjustments there are by day and tenant.
pub(super) async fn days(
    connection: &mut PgConnection,
) -> Result<Vec<(NaiveDate, Arc<str>, u64)>, StoreError> {
    let text =
        "SELECT day, tenant, count(*) AS requests FROM adjustments GROUP BY day, tenant ORDER BY day, tenant";
    let found = sqlx::query(text).fetch_all(connection).await.map_err(sort)?;
    let counted = |found: &PgRow| {
        Ok((
            found.day("day")?,
            Arc::from(row::text(found, "tenant")?),
            row::count(found, "requests")?,
        ))
    };
    found.iter().map(counted).collect()
}

/// Adjustments of a tenant's rows of a day beyond a place.
pub(super) async fn of_day(
    connection: &mut PgConnection,
    (tenant, day): (&str, NaiveDate),
    (after, most): (Option<(RequestId, u32)>, usize),
) -> Result<Vec<Adjustment>, StoreError> {
    let mut clause = Clause::default();
    clause.add("day =", day);
    clause.add_text("tenant =", Some(tenant));
    if let Some((id, number)) = after {
        clause.fragment("(request_id, number) > (");
        clause.place(id.0);
        clause.text.push(',');
        clause.place(i64::from(number));
        clause.text.push(')');
    }
    clause.text.push_str(" ORDER BY request_id, number LIMIT");
    clause.place(i64::try_from(most).unwrap_or(i64::MAX));
    let statement = format!("SELECT {} FROM adjustments{}", adjustment::columns(), clause.text);
    let found = sqlx::query_with(AssertSqlSafe(statement), clause.finish()?);
    let found = found.fetch_all(connection).await.map_err(sort)?;
    found.iter().map(adjustment::read).collect()
}
