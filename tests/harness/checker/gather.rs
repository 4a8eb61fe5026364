//! Gathers the facts of a scene: the ledger's tables straight from its database, what each node answers, their logs,
//! the directories, and what upstreams and clients saw. Waits until the books are quiet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::canary::{Canary, Text, canaries, find, plain_canaries};
use super::violation::Violation;
use super::{EventFacts, Facts, RowFacts, Sums, check_books};
use crate::books::{Books, Columns};
use crate::client::log::ClientLog;
use crate::node::Node;
use crate::node::books::sum_of;
use crate::node::config::Price;
use crate::upstream::Upstream;

/// How often the books are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of one file of a directory that are searched.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is known beforehand and bent by a test.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Prices by model.
    pub prices: BTreeMap<String, Price>,
    /// Whether calls were made that the client log does not know.
    pub foreign_calls: bool,
    /// Whether upstreams may find faults in what they are sent.
    pub upstream_faults: bool,
    /// Secrets that came up in the test.
    pub secrets: Vec<Canary>,
}

/// Where everything is that is judged.
pub struct Scope<'a> {
    /// The nodes; those that do not run are judged by their files.
    pub nodes: Vec<&'a mut Node>,
    /// The tables.
    pub books: Books,
    /// The upstreams.
    pub upstreams: Vec<&'a Upstream>,
    /// Directories of servers that hold no secret.
    pub directories: Vec<PathBuf>,
    /// What clients saw.
    pub log: ClientLog,
    /// What is known beforehand.
    pub expected: &'a Expected,
    /// How long the books may take to become quiet.
    pub quiet_max: Duration,
}

/// Gathers and judges until the books are right or the time is over, then searches for canaries; gives what is found.
pub async fn settle(mut scope: Scope<'_>) -> Vec<Violation> {
    let quiet_max = scope.quiet_max;
    let mut views = Vec::new();
    let look = async || {
        views = gather(&mut scope).await;
        views.iter().flat_map(check_books).collect()
    };
    let mut found = quiet(quiet_max, look).await;
    let told = scope.expected.secrets.iter().cloned();
    let all: Vec<Canary> = canaries().into_iter().chain(told.clone()).collect();
    for facts in &views {
        found.extend(find(&all, &facts.texts));
    }
    let plain: Vec<Canary> = plain_canaries().into_iter().chain(told).collect();
    let data = scope.nodes.iter().map(|node| node.data_dir());
    for directory in data.chain(scope.directories.iter().cloned()) {
        found.extend(find(&plain, &files(&directory)));
    }
    for node in &mut scope.nodes {
        node.checked();
    }
    found
}

/// Looks until nothing is found, at least once after `wait` is over: a look at many rows may take longer than that, and
/// then it shows how the books stood before.
async fn quiet(wait: Duration, mut look: impl AsyncFnMut() -> Vec<Violation>) -> Vec<Violation> {
    let deadline = Instant::now() + wait;
    loop {
        let began = Instant::now();
        let found = look().await;
        if found.is_empty() || began >= deadline {
            return found;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The facts as they are now: all of them, and then for each further gateway what it answers, with the tables.
pub async fn gather(scope: &mut Scope<'_>) -> Vec<Facts> {
    let expected = scope.expected;
    let mut facts = Facts {
        answered: scope.log.answered(),
        unanswered: (!expected.foreign_calls).then(|| scope.log.unanswered()),
        prices: expected.prices.clone(),
        ..Facts::default()
    };
    read_ledger(&scope.books, &mut facts).await;
    for upstream in &scope.upstreams {
        facts
            .busy_connections
            .insert(upstream.addr().to_string(), upstream.busy());
        if !expected.upstream_faults {
            facts.upstream_faults.extend(upstream.faults());
        }
    }
    let mut views = Vec::new();
    for node in &mut scope.nodes {
        let name = node.name().to_owned();
        facts.texts.push(Text {
            place: format!("the log of {name}"),
            text: node.logs().join("\n"),
        });
        if node.running() {
            let mut view = Facts {
                rows: facts.rows.clone(),
                rollup: facts.rollup,
                events: facts.events.clone(),
                ..Facts::default()
            };
            read_node(node, &mut view).await;
            views.push(view);
        }
    }
    views.insert(0, facts);
    views
}

/// What a running node says of itself and, with a gateway, of the books.
async fn read_node(node: &Node, facts: &mut Facts) {
    let name = node.name();
    let client = node.client(&node.reader_key());
    let Ok(metrics) = client.call("GET", "/metrics", bytes::Bytes::new()).await else {
        facts.silent.push(format!("{name}: /metrics"));
        return;
    };
    let page = metrics.text();
    facts.reservations_open = sum_of(&page, "waybill_reservations_open");
    facts.texts.push(Text {
        place: format!("/metrics of {name}"),
        text: page,
    });
    if !node.has_gateway() {
        return;
    }
    match (
        node.try_logs_api("").await,
        node.try_usage_api("group_by=model").await,
    ) {
        (Ok(rows), Ok(sums)) => {
            let id = |row: &Value| row["request_id"].as_str().unwrap_or_default().to_owned();
            facts.listed = Some(rows.iter().map(id).collect());
            facts.usage = Some(sums.iter().map(sums_of).fold(Sums::default(), Sums::plus));
        }
        (Err(told), _) | (_, Err(told)) => facts.silent.push(format!("{name}: {told}")),
    }
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

/// Reads the tables.
async fn read_ledger(books: &Books, facts: &mut Facts) {
    let rows = books.table("api_logs").await;
    facts.rows = rows.iter().map(row_facts).collect();
    let rollups = books.table("usage_rollup").await;
    facts.rollup = rollups
        .iter()
        .map(|row| sums_in(row, None))
        .fold(Sums::default(), Sums::plus);
    let events = books.table("event_log").await;
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
    use sqlx::Connection;
    use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

    use super::*;

    #[tokio::test]
    async fn a_look_that_took_longer_than_the_wait_is_not_the_last() {
        let mut looks = 0;
        let slow = async || {
            looks += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
            (looks < 2)
                .then(|| Violation::Silent("a row that is on its way".to_owned()))
                .into_iter()
                .collect()
        };

        assert_eq!(quiet(Duration::from_millis(10), slow).await, []);
        let wrong = async || vec![Violation::ReservationOpen(1.0)];
        let found = quiet(Duration::from_millis(10), wrong).await;

        assert_eq!(found, [Violation::ReservationOpen(1.0)]);
    }

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

        read_ledger(&Books::Sqlite(file), &mut facts).await;

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
