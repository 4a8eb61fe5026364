//! A provider's export: CSV whose columns are named by whoever asks.

use std::io::Read;

use csv::StringRecord;
use schemas::time::Timestamp;

use super::compare::{Figures, Key, Line};
use crate::UsageError;
use crate::decimal;

/// Decimal places from a dollar to a nano-dollar.
const PLACES_USD: i32 = 9;
/// Stands between columns that are added up.
const PLUS: char = '+';

/// Which columns are what: names as they are typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    request_id: Option<String>,
    day: Option<String>,
    model: Option<String>,
    input: Vec<String>,
    output: Vec<String>,
    cost: Vec<String>,
}

impl Mapping {
    /// Reads `FIELD=COLUMN` pairs.
    pub fn parse(pairs: &[String]) -> Result<Self, UsageError> {
        let mut mapping = Self::default();
        let mut seen = Vec::new();
        for pair in pairs {
            let (field, column) = pair
                .split_once('=')
                .filter(|(_, column)| !column.is_empty())
                .ok_or_else(|| {
                    UsageError(format!("--map {pair} is not FIELD=COLUMN, such as cost=amount"))
                })?;
            if seen.contains(&field) {
                return Err(UsageError(format!("--map names {field} twice")));
            }
            seen.push(field);
            let columns = || column.split(PLUS).map(str::to_owned).collect();
            match field {
                "request_id" => mapping.request_id = Some(column.to_owned()),
                "day" => mapping.day = Some(column.to_owned()),
                "model" => mapping.model = Some(column.to_owned()),
                "input" => mapping.input = columns(),
                "output" => mapping.output = columns(),
                "cost" => mapping.cost = columns(),
                _ => {
                    let known = "request_id, day, model, input, output, cost";
                    return Err(UsageError(format!("--map {field} is none of {known}")));
                }
            }
        }
        mapping.complete()
    }

    fn complete(self) -> Result<Self, UsageError> {
        if self.request_id.is_none() && (self.day.is_none() || self.model.is_none()) {
            let text = "--map needs request_id, or day and model, to know what belongs together";
            return Err(UsageError(text.to_owned()));
        }
        if self.input.is_empty() && self.output.is_empty() && self.cost.is_empty() {
            let text = "--map needs at least one of input, output, cost to compare";
            return Err(UsageError(text.to_owned()));
        }
        Ok(self)
    }

    /// The figures that are compared, each 0.
    pub fn figures(&self) -> Figures {
        let zero = |columns: &[String]| (!columns.is_empty()).then_some(0);
        Figures {
            input_tokens: zero(&self.input),
            output_tokens: zero(&self.output),
            cost_nano_usd: zero(&self.cost),
        }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lines {
    /// The lines of the asked days.
    pub lines: Vec<Line>,
    /// How many are of other days.
    pub outside: u64,
}

/// Where the columns stand.
struct Places<'m> {
    titles: &'m StringRecord,
    mapping: &'m Mapping,
}

/// Reads all lines; those are left out that name a day before `from`, or not before `to`.
pub fn read(source: impl Read, mapping: &Mapping, (from, to): (&str, &str)) -> Result<Lines, UsageError> {
    let wrong = |error: csv::Error| UsageError(format!("the file is no CSV: {error}"));
    let mut reader = csv::Reader::from_reader(source);
    let titles = reader.headers().map_err(wrong)?.clone();
    let places = Places {
        titles: &titles,
        mapping,
    };
    places.complete()?;
    let mut read = Lines::default();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(wrong)? {
        let number = record.position().map_or(0, csv::Position::line);
        let at_line = |text: String| UsageError(format!("line {number}: {text}"));
        let day = places.day(&record).map_err(at_line)?;
        let is_outside = day.as_deref().is_some_and(|day| day < from || day >= to);
        if is_outside {
            read.outside += 1;
            continue;
        }
        let line = places.line(&record, day).map_err(at_line)?;
        read.lines.push(line);
    }
    Ok(read)
}

impl Places<'_> {
    /// Whether every column that is named is there.
    fn complete(&self) -> Result<(), UsageError> {
        let Mapping {
            request_id,
            day,
            model,
            input,
            output,
            cost,
        } = self.mapping;
        let single = [request_id, day, model].into_iter().flatten();
        let missing = single
            .chain(input)
            .chain(output)
            .chain(cost)
            .find(|column| !self.titles.iter().any(|title| title.trim() == **column));
        missing.map_or(Ok(()), |column| {
            Err(UsageError(format!("the file has no column {column}")))
        })
    }

    fn cell<'r>(&self, record: &'r StringRecord, column: &str) -> Result<&'r str, String> {
        let place = self.titles.iter().position(|title| title.trim() == column);
        let cell = place.and_then(|place| record.get(place));
        cell.map(str::trim)
            .ok_or_else(|| format!("it has no column {column}"))
    }

    fn day(&self, record: &StringRecord) -> Result<Option<String>, String> {
        let Some(column) = &self.mapping.day else {
            return Ok(None);
        };
        let cell = self.cell(record, column)?;
        let day = cell.get(..10).filter(|day| is_day(day));
        day.map(|day| Some(day.to_owned()))
            .ok_or_else(|| format!("{column} is \"{cell}\", which begins with no day such as 2026-12-01"))
    }

    fn line(&self, record: &StringRecord, day: Option<String>) -> Result<Line, String> {
        let key = match (&self.mapping.request_id, day, &self.mapping.model) {
            (Some(column), _, _) => Key::Request {
                request_id: self.named(record, column)?,
            },
            (None, Some(day), Some(column)) => Key::Day {
                day,
                model: self.named(record, column)?,
            },
            (None, ..) => return Err("it names neither a request nor a day and a model".to_owned()),
        };
        let tokens = |text: &str| decimal::exactly(text, 0);
        let money = |text: &str| decimal::rounded(text, PLACES_USD);
        let figures = Figures {
            input_tokens: self.sum(record, &self.mapping.input, tokens)?,
            output_tokens: self.sum(record, &self.mapping.output, tokens)?,
            cost_nano_usd: self.sum(record, &self.mapping.cost, money)?,
        };
        Ok(Line { key, figures })
    }

    fn named(&self, record: &StringRecord, column: &str) -> Result<String, String> {
        let cell = self.cell(record, column)?;
        if cell.is_empty() {
            return Err(format!("{column} is empty"));
        }
        Ok(cell.to_owned())
    }

    /// Columns added up; an empty cell is nothing.
    fn sum(
        &self,
        record: &StringRecord,
        columns: &[String],
        read: impl Fn(&str) -> Option<i64>,
    ) -> Result<Option<i64>, String> {
        let mut sum: Option<i64> = None;
        for column in columns {
            let cell = self.cell(record, column)?;
            let amount = if cell.is_empty() { Some(0) } else { read(cell) };
            let added = amount.and_then(|amount| sum.unwrap_or(0).checked_add(amount));
            sum = Some(added.ok_or_else(|| format!("{column} is \"{cell}\", which is no amount"))?);
        }
        Ok(sum)
    }
}

/// Whether a text is a day such as 2026-12-01.
pub fn is_day(text: &str) -> bool {
    text.len() == 10 && start_of(text).is_some()
}

/// When a UTC day begins.
fn start_of(day: &str) -> Option<Timestamp> {
    Timestamp::parse(&format!("{day}T00:00:00Z"))
}

#[cfg(test)]
mod tests;
