//! Statements over many rows. A statement costs a hop to the database's thread, so rows go by the chunk; chunks
//! have few fixed sizes, so that each text is prepared once.

use std::sync::Arc;

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, Type};

/// Rows per statement, largest first: a batch is cut into as few as possible.
const CHUNK_ROWS: [usize; 3] = [64, 8, 1];

/// A statement that takes rows of values: one text per chunk size.
#[derive(Debug)]
pub(super) struct Bulk {
    columns: usize,
    texts: [Arc<str>; 3],
}

/// Values on their way into a statement.
#[derive(Debug, Default)]
pub(super) struct Values {
    arguments: SqliteArguments,
    failure: Option<sqlx::Error>,
}

impl Bulk {
    /// `head`, then as many times as there are rows `(?, ..)` with `columns` places, then `tail`.
    pub(super) fn new(head: &str, columns: usize, tail: &str) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let text = |rows: usize| format!("{head} {} {tail}", vec![row.as_str(); rows].join(",")).into();
        Self {
            columns,
            texts: CHUNK_ROWS.map(text),
        }
    }

    /// Runs it over `rows` and returns how many rows it changed.
    pub(super) async fn run<T>(
        &self,
        connection: &mut SqliteConnection,
        rows: &[T],
        put: impl Fn(&mut Values, &T),
    ) -> Result<u64, sqlx::Error> {
        let mut changed = 0;
        let mut rest = rows;
        for (size, text) in CHUNK_ROWS.into_iter().zip(&self.texts) {
            while rest.len() >= size {
                let (chunk, later) = rest.split_at(size);
                rest = later;
                let mut values = Values::with_room(size * self.columns);
                for row in chunk {
                    put(&mut values, row);
                }
                let query = sqlx::query_with(AssertSqlSafe(Arc::clone(text)), values.finish()?);
                changed += query.execute(&mut *connection).await?.rows_affected();
            }
        }
        Ok(changed)
    }
}

impl Values {
    fn with_room(values: usize) -> Self {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(values, 0);
        Self {
            arguments,
            failure: None,
        }
    }

    /// The next value.
    pub(super) fn put<'t, T: Encode<'t, Sqlite> + Type<Sqlite>>(&mut self, value: T) {
        if let Err(source) = self.arguments.add(value) {
            self.failure = Some(sqlx::Error::Encode(source));
        }
    }

    /// The values, or the first that could not be written.
    pub(super) fn finish(self) -> Result<SqliteArguments, sqlx::Error> {
        self.failure.map_or(Ok(self.arguments), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_statement_has_a_text_for_each_chunk_size() {
        let bulk = Bulk::new("INSERT INTO t VALUES", 2, "ON CONFLICT DO NOTHING");

        assert_eq!(
            &*bulk.texts[2],
            "INSERT INTO t VALUES (?,?) ON CONFLICT DO NOTHING"
        );
        assert_eq!(bulk.texts[0].matches("(?,?)").count(), 64);
    }
}
