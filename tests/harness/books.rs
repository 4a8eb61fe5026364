//! The ledger's tables as they are in its database, read and bent past the product: a file of `SQLite` or a database
//! of `PostgreSQL`, with the same tables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection, Row};

/// How long a writer may hold the file.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Tables that the log alone makes.
const TABLES: [&str; 4] = ["api_logs", "event_log", "usage_rollup", "adjustments"];
/// Columns that say when something was inserted, not what.
const INSERTION_COLUMNS: [&str; 1] = ["position"];

/// A row of any table: columns as text, `None` for null.
pub type Columns = BTreeMap<String, Option<String>>;

/// Where the tables are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Books {
    /// A file, which need not be there yet.
    Sqlite(PathBuf),
    /// The URL of a database.
    Postgres(String),
}

impl Books {
    /// Every row of a table; none when there is no such table yet.
    pub async fn table(&self, name: &str) -> Vec<Columns> {
        match self {
            Self::Sqlite(file) if !file.exists() => Vec::new(),
            Self::Sqlite(_) => {
                let mut connection = self.file(true).await;
                let rows = sqlite_table(&mut connection, name).await;
                connection.close().await.expect("the ledger's file closes");
                rows
            }
            Self::Postgres(_) => {
                let mut connection = self.database().await;
                let rows = postgres_table(&mut connection, name).await;
                connection.close().await.expect("the connection closes");
                rows
            }
        }
    }

    /// Every line of the tables as text, in a fixed order: two dumps are equal when the books are.
    pub async fn dump(&self) -> BTreeMap<String, Vec<String>> {
        let mut tables = BTreeMap::new();
        for table in TABLES {
            let rows = self.table(table).await.into_iter().map(|mut row| {
                row.retain(|column, _| !INSERTION_COLUMNS.contains(&column.as_str()));
                format!("{row:?}")
            });
            let mut lines: Vec<String> = rows.collect();
            lines.sort();
            tables.insert(table.to_owned(), lines);
        }
        tables
    }

    /// Executes a statement that must change rows.
    pub async fn change(&self, statement: &str) {
        let changed = self.execute(statement).await;
        assert!(changed > 0, "{statement} changed nothing");
    }

    /// Executes a statement that defines something.
    pub async fn define(&self, statement: &str) {
        self.execute(statement).await;
    }

    async fn execute(&self, statement: &str) -> u64 {
        match self {
            Self::Sqlite(_) => {
                let mut connection = self.file(false).await;
                let done = sqlx::query(AssertSqlSafe(statement))
                    .execute(&mut connection)
                    .await
                    .expect("a statement");
                connection.close().await.expect("the ledger's file closes");
                done.rows_affected()
            }
            Self::Postgres(_) => {
                let mut connection = self.database().await;
                let done = sqlx::query(AssertSqlSafe(statement))
                    .execute(&mut connection)
                    .await
                    .expect("a statement");
                done.rows_affected()
            }
        }
    }

    async fn file(&self, read_only: bool) -> SqliteConnection {
        let Self::Sqlite(file) = self else {
            panic!("no file holds these books")
        };
        let options = SqliteConnectOptions::new()
            .filename(file)
            .read_only(read_only)
            .busy_timeout(BUSY_MAX);
        SqliteConnection::connect_with(&options)
            .await
            .expect("the ledger's file opens")
    }

    async fn database(&self) -> PgConnection {
        let Self::Postgres(url) = self else {
            panic!("no database holds these books")
        };
        PgConnection::connect(url).await.expect("the database answers")
    }
}

async fn sqlite_table(connection: &mut SqliteConnection, name: &str) -> Vec<Columns> {
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
    let value = |row: &SqliteRow, index| row.get(index);
    rows.iter()
        .map(|row| columns(&names, |index| value(row, index)))
        .collect()
}

async fn postgres_table(connection: &mut PgConnection, name: &str) -> Vec<Columns> {
    let query = "SELECT column_name::text, data_type::text FROM information_schema.columns
        WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position";
    let described = sqlx::query(query)
        .bind(name)
        .fetch_all(&mut *connection)
        .await
        .expect("columns of a table");
    if described.is_empty() {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut texts = Vec::new();
    for row in &described {
        let (column, kind): (String, String) = (row.get(0), row.get(1));
        texts.push(match kind.as_str() {
            "bytea" => format!("convert_from(\"{column}\", 'UTF8')"),
            _ => format!("\"{column}\"::text"),
        });
        names.push(column);
    }
    let query = format!("SELECT {} FROM {name}", texts.join(", "));
    let rows = sqlx::query(AssertSqlSafe(query))
        .fetch_all(connection)
        .await
        .expect("rows of a table");
    let value = |row: &PgRow, index| row.get(index);
    rows.iter()
        .map(|row| columns(&names, |index| value(row, index)))
        .collect()
}

fn columns(names: &[String], value: impl Fn(usize) -> Option<String>) -> Columns {
    let columns = names.iter().enumerate();
    columns
        .map(|(index, name)| (name.clone(), value(index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Postgres;

    const SCRIPT: &str = "CREATE TABLE usage_rollup (position INTEGER, \"user\" TEXT, requests INTEGER);
        INSERT INTO usage_rollup VALUES (7, NULL, 2), (8, 'a', 1);";

    async fn assert_read_and_changed(books: &Books) {
        let rows = books.table("usage_rollup").await;
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["requests"].as_deref(), Some("2"));
        assert_eq!(rows[0]["user"], None);
        assert!(books.table("api_logs").await.is_empty());
        let before = books.dump().await;
        let lines = [
            r#"{"requests": Some("1"), "user": Some("a")}"#,
            r#"{"requests": Some("2"), "user": None}"#,
        ];
        assert_eq!(before["usage_rollup"], lines);

        books
            .change("UPDATE usage_rollup SET position = position + 1")
            .await;
        assert_eq!(books.dump().await, before);
        books.change("UPDATE usage_rollup SET requests = 3").await;
        assert_ne!(books.dump().await, before);
    }

    #[tokio::test]
    async fn tables_of_a_file_are_read_and_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ledger.db");
        assert!(Books::Sqlite(file.clone()).table("api_logs").await.is_empty());
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true);
        let mut connection = SqliteConnection::connect_with(&options)
            .await
            .expect("a database");
        sqlx::raw_sql(SCRIPT)
            .execute(&mut connection)
            .await
            .expect("a table");
        connection.close().await.expect("closed");

        assert_read_and_changed(&Books::Sqlite(file)).await;
    }

    #[tokio::test]
    async fn tables_of_a_database_are_read_and_changed() {
        let server = Postgres::start().await;
        let mut connection = PgConnection::connect(&server.url()).await.expect("a connection");
        sqlx::raw_sql(SCRIPT)
            .execute(&mut connection)
            .await
            .expect("a table");

        assert_read_and_changed(&Books::Postgres(server.url())).await;
    }
}
