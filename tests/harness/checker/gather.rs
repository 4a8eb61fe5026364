//! Gathers the facts of a scene: the ledger's tables straight from its file, the node's own answers, its
//! log, its data directory, and what upstreams and clients saw. Waits until the books are quiet.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::Instant;

use super::canary::{Text, canaries, find, plain_canaries};
use super::violation::Violation;
use super::{EventFacts, Facts, RowFacts, Sums, check};
use crate::client::log::ClientLog;
use crate::node::Node;
use crate::node::books::sum_of;
use crate::node::config::{OPERATOR_KEY, Price};
use crate::upstream::Upstream;

/// How long the books may take to become quiet.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// How often they are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of one file of the data directory that are searched.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is known beforehand and bent by a test.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Prices by model.
    pub prices: BTreeMap<String, Price>,
    /// Whether calls were made that the client log does not know.
    pub foreign_calls: bool,
    /// Whether upstreams may find faults in what they are sent.
    pub upstream_faults: bool,
}

/// Gathers and judges until nothing is found or five seconds have gone; gives what is found then.
pub async fn settle(
    node: &mut Node,
    upstreams: &[&Upstream],
    log: &ClientLog,
    expected: &Expected,
) -> Vec<Violation> {
    let deadline = Instant::now() + QUIET_MAX;
    loop {
        let facts = gather(node, upstreams, log, expected).await;
        let mut found = check(&facts);
        found.extend(find(&plain_canaries(), &files(&node.data_dir())));
        if found.is_empty() || Instant::now() >= deadline {
            return found;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The facts as they are now. A node that does not run is judged by its files.
pub async fn gather(node: &mut Node, upstreams: &[&Upstream], log: &ClientLog, expected: &Expected) -> Facts {
    let running = node.running();
    let mut facts = Facts {
        answered: log.answered(),
        unanswered: (!expected.foreign_calls).then(|| log.unanswered()),
        prices: expected.prices.clone(),
        canaries: canaries(),
        ..Facts::default()
    };
    read_ledger(&node.data_dir().join("ledger.db"), &mut facts).await;
    if running {
        read_node(node, &mut facts).await;
    }
    facts.texts.push(Text {
        place: "the node's log".to_owned(),
        text: node.logs().join("\n"),
    });
    for upstream in upstreams {
        facts
            .busy_connections
            .insert(upstream.addr().to_string(), upstream.busy());
        if !expected.upstream_faults {
            facts.upstream_faults.extend(upstream.faults());
        }
    }
    facts
}

async fn read_node(node: &Node, facts: &mut Facts) {
    let client = node.client(OPERATOR_KEY);
    let Ok(metrics) = client.call("GET", "/metrics", bytes::Bytes::new()).await else {
        return;
    };
    let page = metrics.text();
    facts.reservations_open = sum_of(&page, "waybill_reservations_open");
    facts.texts.push(Text {
        place: "/metrics".to_owned(),
        text: page,
    });
    let rows = node.logs_api("").await;
    let id = |row: &Value| row["request_id"].as_str().unwrap_or_default().to_owned();
    facts.listed = Some(rows.iter().map(id).collect());
    let sums = node.usage_api("group_by=model").await;
    facts.usage = Some(sums.iter().map(sums_of).fold(Sums::default(), Sums::plus));
}

fn sums_of(row: &Value) -> Sums {
    let figure = |name: &str| row[name].as_i64().unwrap_or_default();
    Sums {
        requests: figure("requests"),
        input_tokens: figure("input_tokens"),
        cached_tokens: figure("cached_tokens"),
        cache_write_tokens: figure("cache_write_tokens"),
        output_tokens: figure("output_tokens"),
        cost_nano_usd: figure("cost_nano_usd"),
    }
}

/// Reads the tables; a node that never made its file has empty books.
async fn read_ledger(file: &Path, facts: &mut Facts) {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .read_only(true)
        .busy_timeout(QUIET_MAX);
    if !file.exists() {
        return;
    }
    let mut connection = SqliteConnection::connect_with(&options)
        .await
        .expect("the ledger's file opens");
    let rows = table(&mut connection, "api_logs").await;
    facts.rows = rows.iter().map(row_facts).collect();
    let rollups = table(&mut connection, "usage_rollup").await;
    facts.rollup = rollups
        .iter()
        .map(|row| sums_in(row, None))
        .fold(Sums::default(), Sums::plus);
    let events = table(&mut connection, "event_log").await;
    facts.events = events.iter().filter_map(event_facts).collect();
    for (name, rows) in [
        ("api_logs", &rows),
        ("usage_rollup", &rollups),
        ("event_log", &events),
    ] {
        let lines: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        facts.texts.push(Text {
            place: format!("the table {name}"),
            text: lines.join("\n"),
        });
    }
    connection.close().await.expect("the ledger's file closes");
}

/// A row of any table: columns as text, `None` for null.
type Columns = BTreeMap<String, Option<String>>;

async fn table(connection: &mut SqliteConnection, name: &str) -> Vec<Columns> {
    let query = format!("SELECT name FROM pragma_table_info('{name}') ORDER BY cid");
    let names = sqlx::query(AssertSqlSafe(query))
        .fetch_all(&mut *connection)
        .await
        .expect("columns of a table");
    let names: Vec<String> = names.iter().map(|row| row.get(0)).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let texts: Vec<String> = names
        .iter()
        .map(|column| format!("CAST(\"{column}\" AS TEXT)"))
        .collect();
    let query = format!("SELECT {} FROM {name}", texts.join(", "));
    let rows = sqlx::query(AssertSqlSafe(query))
        .fetch_all(connection)
        .await
        .expect("rows of a table");
    let columns = |row: &sqlx::sqlite::SqliteRow| {
        names
            .iter()
            .enumerate()
            .map(|(index, name)| (name.clone(), row.get(index)))
            .collect()
    };
    rows.iter().map(columns).collect()
}

fn text_in(row: &Columns, name: &str) -> String {
    row.get(name).cloned().flatten().unwrap_or_default()
}

fn sums_in(row: &Columns, requests: Option<i64>) -> Sums {
    let figure = |name: &str| text_in(row, name).parse::<i64>().unwrap_or_default();
    Sums {
        requests: requests.unwrap_or_else(|| figure("requests")),
        input_tokens: figure("input_tokens"),
        cached_tokens: figure("cached_tokens"),
        cache_write_tokens: figure("cache_write_tokens"),
        output_tokens: figure("output_tokens"),
        cost_nano_usd: figure("cost_nano_usd"),
    }
}

fn row_facts(row: &Columns) -> RowFacts {
    RowFacts {
        request_id: text_in(row, "request_id"),
        model: text_in(row, "model"),
        endpoint_id: text_in(row, "endpoint_id"),
        outcome: text_in(row, "outcome"),
        status: text_in(row, "status").parse().unwrap_or_default(),
        error_code: text_in(row, "error_code"),
        usage_flags: text_in(row, "usage_flags"),
        sums: sums_in(row, Some(1)),
    }
}

/// The event of a row: whichever column holds its envelope.
fn event_facts(row: &Columns) -> Option<EventFacts> {
    let envelope = |text: &String| {
        let value: Value = serde_json::from_str(text).ok()?;
        value["specversion"].is_string().then_some(value)
    };
    let envelope = row.values().flatten().find_map(envelope)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(EventFacts {
        kind: text(&envelope["type"]),
        request_id: text(&envelope["data"]["request_id"]),
    })
}

/// The files of the data directory but for the generated secrets, as far as they can be searched.
fn files(dir: &Path) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = std::fs::read_dir(directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            if entry.file_name() == "secrets" {
                continue;
            }
            if metadata.is_dir() {
                directories.push(path);
            } else if metadata.len() <= FILE_BYTES_MAX
                && let Ok(bytes) = std::fs::read(&path)
            {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                texts.push(Text {
                    place: path.display().to_string(),
                    text,
                });
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_tables_are_read_whatever_their_other_columns_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ledger.db");
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true);
        let mut connection = SqliteConnection::connect_with(&options)
            .await
            .expect("a database");
        let script = "
            CREATE TABLE api_logs (request_id TEXT PRIMARY KEY, model TEXT, endpoint_id TEXT, outcome TEXT,
                status INTEGER, error_code TEXT, usage_flags TEXT, input_tokens INTEGER, output_tokens INTEGER,
                cost_nano_usd INTEGER, \"user\" TEXT);
            INSERT INTO api_logs VALUES ('r1', 'm', 'm:local-1', 'ok', 200, NULL, '[]', 9, 20, 178000, NULL);
            CREATE TABLE usage_rollup (bucket TEXT, requests INTEGER, input_tokens INTEGER, output_tokens INTEGER,
                cost_nano_usd INTEGER);
            INSERT INTO usage_rollup VALUES ('b', 1, 9, 20, 178000);
            CREATE TABLE event_log (source TEXT, envelope BLOB);
            INSERT INTO event_log VALUES
                ('s', '{\"specversion\":\"1.0\",\"type\":\"waybill.request.settled.v1\",\"data\":{\"request_id\":\"r1\"}}');
        ";
        sqlx::raw_sql(script)
            .execute(&mut connection)
            .await
            .expect("tables");
        connection.close().await.expect("closed");
        let mut facts = Facts::default();

        read_ledger(&file, &mut facts).await;

        let sums = Sums {
            requests: 1,
            input_tokens: 9,
            output_tokens: 20,
            cost_nano_usd: 178_000,
            ..Sums::default()
        };
        assert_eq!(
            facts.rows.first().map(|row| (row.request_id.as_str(), row.sums)),
            Some(("r1", sums))
        );
        assert_eq!(facts.rollup, sums);
        let settled = EventFacts {
            kind: "waybill.request.settled.v1".to_owned(),
            request_id: "r1".to_owned(),
        };
        assert_eq!(facts.events, [settled]);
        assert!(facts.texts.iter().any(|text| text.text.contains("178000")));
    }
}
