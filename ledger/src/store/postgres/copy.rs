//! Rows for `COPY … FROM STDIN (FORMAT binary)`: the cheapest way in, as nothing is parsed or planned per row.

use chrono::NaiveDate;
use schemas::id::RequestId;
use schemas::time::Timestamp;
use sqlx::postgres::PgConnection;

use super::{row, text};
use crate::store::row::Sink;

/// What a binary copy begins with: the signature, no flags, no extension.
const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// The length of NULL.
const NULL: i32 = -1;
/// Bytes of a row to make room for.
const ROW_BYTES: usize = 1_024;
/// Most bytes handed to the connection at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// Longest value, far more than a column can hold.
const VALUE_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Rows on their way into a table.
#[derive(Debug)]
pub(super) struct Copy {
    buffer: Vec<u8>,
}

impl Copy {
    /// No rows, with room for `rows`.
    pub(super) fn new(rows: usize) -> Self {
        let mut buffer = Vec::with_capacity(HEADER.len() + rows.saturating_mul(ROW_BYTES));
        buffer.extend_from_slice(HEADER);
        Self { buffer }
    }

    /// Begins a row of `columns` values.
    pub(super) fn row(&mut self, columns: usize) {
        let columns = i16::try_from(columns).unwrap_or(i16::MAX);
        self.buffer.extend_from_slice(&columns.to_be_bytes());
    }

    /// Sends the rows with `statement` and returns how many the table took.
    pub(super) async fn send(
        mut self,
        connection: &mut PgConnection,
        statement: &str,
    ) -> Result<u64, sqlx::Error> {
        self.buffer.extend_from_slice(&TRAILER);
        let mut copy = connection.copy_in_raw(statement).await?;
        for piece in self.buffer.chunks(PIECE_BYTES) {
            copy.send(piece).await?;
        }
        copy.finish().await
    }

    /// Adds bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.value(bytes);
    }

    fn value(&mut self, bytes: &[u8]) {
        match i32::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= VALUE_BYTES_MAX => {
                self.buffer.extend_from_slice(&length.to_be_bytes());
                self.buffer.extend_from_slice(bytes);
            }
            _ => self.null(),
        }
    }

    fn null(&mut self) {
        self.buffer.extend_from_slice(&NULL.to_be_bytes());
    }
}

impl Sink for Copy {
    fn text(&mut self, value: Option<&str>) {
        match value {
            Some(value) => self.value(text::kept(value).as_bytes()),
            None => self.null(),
        }
    }

    fn json(&mut self, value: Option<String>) {
        match value {
            Some(value) => self.value(value.as_bytes()),
            None => self.null(),
        }
    }

    fn integer(&mut self, value: Option<i64>) {
        match value {
            Some(value) => self.value(&value.to_be_bytes()),
            None => self.null(),
        }
    }

    fn truth(&mut self, value: bool) {
        self.value(&[u8::from(value)]);
    }

    fn time(&mut self, value: Timestamp) {
        self.value(&row::micros(value).to_be_bytes());
    }

    fn day(&mut self, value: NaiveDate) {
        self.value(&row::days(value).to_be_bytes());
    }

    fn id(&mut self, value: RequestId) {
        self.value(value.0.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_column_count_and_values_with_their_lengths() {
        let mut copy = Copy::new(1);
        copy.row(3);
        copy.text(Some("a\0"));
        copy.integer(None);
        copy.truth(true);

        let rows = &copy.buffer[HEADER.len()..];
        assert_eq!(
            rows,
            b"\x00\x03\x00\x00\x00\x03a\x1a0\xff\xff\xff\xff\x00\x00\x00\x01\x01"
        );
    }
}
