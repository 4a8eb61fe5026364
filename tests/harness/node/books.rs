//! Reads a node's books through its API.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::config::OPERATOR_KEY;
use super::{LOOK_EVERY, Node};
use crate::books::Books;

/// How long a row may take to appear.
const ROW_MAX: Duration = Duration::from_secs(5);
/// The same over a bus and a database of their own.
const CLUSTER_ROW_MAX: Duration = Duration::from_secs(15);
/// Pages that are read at most.
const PAGES_MAX: usize = 1000;

impl Node {
    /// Rows of `GET /api/v1/logs` with this query (without `?`), newest first, all pages.
    pub async fn logs_api(&self, query: &str) -> Vec<Value> {
        self.try_logs_api(query).await.expect("the request log")
    }

    /// The same; what was said instead, when the books cannot be read.
    pub async fn try_logs_api(&self, query: &str) -> Result<Vec<Value>, String> {
        let mut rows = Vec::new();
        let mut after = String::new();
        for _ in 0..PAGES_MAX {
            let mut page = self
                .read(&format!("/api/v1/logs?limit=1000&{query}{after}"))
                .await?;
            rows.append(page["data"].as_array_mut().expect("a list of rows"));
            match page["next"].as_str() {
                Some(cursor) => after = format!("&after={cursor}"),
                None => return Ok(rows),
            }
        }
        panic!("the request log has no last page");
    }

    /// Sums of `GET /api/v1/usage` with this query (without `?`).
    pub async fn usage_api(&self, query: &str) -> Vec<Value> {
        self.try_usage_api(query).await.expect("sums of usage")
    }

    /// The same; what was said instead, when the books cannot be read.
    pub async fn try_usage_api(&self, query: &str) -> Result<Vec<Value>, String> {
        let page = self.read(&format!("/api/v1/usage?{query}")).await?;
        Ok(page["data"].as_array().expect("a list of sums").clone())
    }

    async fn read(&self, path: &str) -> Result<Value, String> {
        let answer = self
            .client(&self.reader_key())
            .call("GET", path, bytes::Bytes::new())
            .await
            .map_err(|error| format!("{path}: {error:?}"))?;
        if answer.status == 200 {
            Ok(answer.json())
        } else {
            Err(format!("{path}: {} {}", answer.status, answer.text()))
        }
    }

    /// The row of a request, read with the operator's key; panics when it does not appear soon.
    pub async fn wait_row(&self, request_id: &str) -> Value {
        self.wait_row_as(OPERATOR_KEY, request_id).await
    }

    /// The row of a request, read with `key`.
    pub async fn wait_row_as(&self, key: &str, request_id: &str) -> Value {
        assert!(!request_id.is_empty(), "the answer had no request id");
        let client = self.client(key);
        let deadline = Instant::now() + self.row_max();
        loop {
            let answer = client.get(&format!("/api/v1/logs/{request_id}")).await;
            if answer.status == 200
                && let Some(row) = row_of(answer.json())
            {
                return row;
            }
            assert!(
                Instant::now() < deadline,
                "no row of {request_id}: {} {}\n{}",
                answer.status,
                answer.text(),
                self.logs().join("\n")
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until `GET /api/v1/logs` has `count` rows for this query; gives them. Thousands of rows take their time on a
    /// busy machine: no new one must be long in coming.
    pub async fn wait_rows(&self, query: &str, count: usize) -> Vec<Value> {
        let mut deadline = Instant::now() + self.row_max();
        let mut known = 0;
        // All rows are read at each look: who reads thousands all the time keeps the node from writing them.
        let pause = LOOK_EVERY.max(Duration::from_micros(100) * u32::try_from(count).unwrap_or(u32::MAX));
        loop {
            let rows = self.try_logs_api(query).await;
            match rows {
                Ok(rows) if rows.len() >= count => return rows,
                Ok(rows) if rows.len() > known => {
                    known = rows.len();
                    deadline = Instant::now() + self.row_max();
                }
                _ if Instant::now() < deadline => {}
                Ok(rows) => panic!("{} rows instead of {count} for {query:?}", rows.len()),
                Err(told) => panic!("no rows for {query:?}: {told}"),
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn row_max(&self) -> Duration {
        match self.books() {
            Books::Sqlite(_) => ROW_MAX,
            Books::Postgres(_) => CLUSTER_ROW_MAX,
        }
    }

    /// The metrics page.
    pub async fn metrics(&self) -> String {
        self.client("").get("/metrics").await.text()
    }

    /// The sum of a metric over its series; 0 when there is none.
    pub async fn metric(&self, name: &str) -> f64 {
        sum_of(&self.metrics().await, name).unwrap_or(0.0)
    }
}

/// The row in an answer about one request: the object itself or what it holds as `row`.
fn row_of(mut body: Value) -> Option<Value> {
    for field in ["row", "data"] {
        if body[field].is_object() {
            body = body[field].take();
        }
    }
    body["request_id"].is_string().then_some(body)
}

/// The sum of the series of a metric in a text page.
pub(crate) fn sum_of(page: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    page.lines()
        .filter_map(value)
        .fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::sum_of;

    #[test]
    fn the_series_of_a_metric_are_summed() {
        let page = "# TYPE a gauge\na{b=\"x y\"} 2\na{b=\"z\"} 3\nab 7\nc 0\n";

        assert_eq!(sum_of(page, "a"), Some(5.0));
        assert_eq!(sum_of(page, "c"), Some(0.0));
        assert_eq!(sum_of(page, "d"), None);
    }
}
