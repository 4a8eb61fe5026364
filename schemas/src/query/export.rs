//! Rows of the request log as files: one line each, as JSON or as values with commas between them.

use serde_json::Value;

use super::Row;

/// The columns of a table, in their order: the members of a row. Later ones come at the end.
pub const COLUMNS: [&str; 47] = [
    "request_id",
    "client_request_id",
    "tenant",
    "user",
    "key_id",
    "key_name",
    "job_id",
    "end_user",
    "surface",
    "model",
    "served_model",
    "provider",
    "endpoint_id",
    "backend",
    "attempts",
    "outcome",
    "status",
    "error_code",
    "stream",
    "started_at",
    "ended_at",
    "ttft_ms",
    "latency_ms",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "images",
    "usage_source",
    "usage_flags",
    "price_version",
    "prices",
    "cost_nano_usd",
    "cost_usd",
    "upstream_cost_nano_usd",
    "absorbed_nano_usd",
    "session_id",
    "affinity",
    "idempotency",
    "node",
    "config_revision",
    "waybill_day",
    "billing_day",
    "billing_month",
    "source",
    "source_sequence",
];

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ExportFormat")]
pub enum Format {
    /// A JSON object on each line, as the request log shows a row.
    Ndjson,
    /// A table by RFC 4180, with a line of names first.
    Csv,
}

impl Format {
    /// The content type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// What stands before the rows.
    pub fn head(self) -> String {
        match self {
            Self::Ndjson => String::new(),
            Self::Csv => format!("{}\r\n", COLUMNS.join(",")),
        }
    }

    /// Writes one row with its line's end.
    pub fn write(self, row: &Row, text: &mut String) -> Result<(), serde_json::Error> {
        match self {
            Self::Ndjson => {
                text.push_str(&serde_json::to_string(row)?);
                text.push('\n');
            }
            Self::Csv => {
                let row = serde_json::to_value(row)?;
                for (index, column) in COLUMNS.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    write_cell(row.get(column).unwrap_or(&Value::Null), text);
                }
                text.push_str("\r\n");
            }
        }
        Ok(())
    }
}

/// Writes a value: nothing for null, lists and objects as JSON. Text that a spreadsheet would take for a formula begins
/// with an apostrophe: names and ids of callers are their own words.
fn write_cell(value: &Value, text: &mut String) {
    let cell = match value {
        Value::Null => return,
        Value::String(word) if word.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{word}"),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    if cell.contains([',', '"', '\r', '\n']) {
        text.push('"');
        text.push_str(&cell.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(&cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(change: impl FnOnce(&mut Value)) -> Row {
        let text = include_str!("../../tests/golden/v1/request.settled.json");
        let event: Value = serde_json::from_str(text).expect("JSON");
        let mut row = event["data"].clone();
        row["source"] = "/waybill/default/1".into();
        row["source_sequence"] = 42.into();
        change(&mut row);
        serde_json::from_value(row).expect("a row")
    }

    fn written(format: Format, row: &Row) -> String {
        let mut text = String::new();
        format.write(row, &mut text).expect("a row");
        text
    }

    /// The cells of a line, by RFC 4180.
    fn cells(line: &str) -> Vec<String> {
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        let mut letters = line
            .strip_suffix("\r\n")
            .expect("a line's end")
            .chars()
            .peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(std::mem::take(&mut cell)),
                other => cell.push(other),
            }
        }
        cells.push(cell);
        cells
    }

    #[test]
    fn a_table_has_every_member_of_a_row_but_what_the_event_alone_has() {
        let row = row(|row| row["job_id"] = "job-1".into());
        let shown = serde_json::to_value(row).expect("JSON");
        let mut members: Vec<&str> = shown
            .as_object()
            .expect("a row")
            .keys()
            .map(String::as_str)
            .collect();
        members.retain(|member| !["quotas", "decision", "auto"].contains(member));
        let mut columns = COLUMNS.to_vec();
        columns.sort_unstable();
        members.sort_unstable();

        assert_eq!(columns, members);
        assert_eq!(cells(&Format::Csv.head()), COLUMNS);
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        let row = row(|row| {
            row["end_user"] = "a \"b\",\r\nc".into();
            row["client_request_id"] = Value::Null;
        });
        let shown = serde_json::to_value(&row).expect("JSON");

        let line = written(Format::Csv, &row);
        let cells = cells(&line);
        assert_eq!(cells.len(), COLUMNS.len());
        for (column, cell) in COLUMNS.iter().zip(cells) {
            let value = shown.get(column).cloned().unwrap_or_default();
            let expected = match value {
                Value::Null => String::new(),
                Value::String(word) => word,
                other => other.to_string(),
            };
            assert_eq!(cell, expected, "{column}");
        }
        let line = written(Format::Ndjson, &row);
        assert_eq!(line.lines().count(), 1);
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), shown);
    }

    #[test]
    fn no_word_of_a_caller_is_a_formula() {
        for word in ["=1+1", "+1", "-1", "@sum", "\tx"] {
            let row = row(|row| row["end_user"] = word.into());
            let line = written(Format::Csv, &row);
            assert!(cells(&line).contains(&format!("'{word}")), "{line}");
        }
        let plain = row(|row| row["end_user"] = "a=b".into());
        assert!(written(Format::Csv, &plain).contains(",a=b,"));
    }
}
