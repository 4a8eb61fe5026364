//! `GET /api/v1/logs/export`: the rows of the request log that a filter selects, all of them, as one file.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use schemas::failure::Failure;
use schemas::id::RequestId;
use schemas::query::export::Format;
use schemas::query::{LogFilter, LogsAnswer, LogsQuery, PAGE_ROWS_MAX, Row};
use schemas::subject::QUERY_LOGS;

use super::super::again::Again;
use super::super::openapi::Operation;
use super::super::{Parameters, READ_WITHIN, ask, filtered, invalid, narrow, parameters, word};
use super::OF_FILES;
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::Shared;

/// What the path does.
pub(crate) const EXPORT: Operation = Operation::read::<Row>(
    "Gives all rows of the request log that a filter selects as one file, the newest first, each on a line of its own",
)
.taking(OF_FILES)
.writing(&["application/x-ndjson", "text/csv"])
.of_callers();

/// All rows that are asked for, page by page as they are taken.
pub(crate) async fn export(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
    request: Request,
) -> Response {
    let asked = parameters(given).and_then(|given| asked(&given));
    let (format, filter) = match asked {
        Ok(asked) => asked,
        Err(failure) => return arrival.refuse(&failure),
    };
    let mut rows = Rows {
        again: Again::new(state, &arrival, request),
        filter,
        format,
        head: format.head(),
        place: Place::Start,
    };
    // What fails at once is told as a failure, and not as a file that breaks off.
    match rows.page(&caller).await {
        Ok(first) => rows.told(first),
        Err(failure) => arrival.refuse(&failure),
    }
}

fn asked(given: &[(String, String)]) -> Result<(Format, LogFilter), Failure> {
    let mut filter = LogFilter::default();
    let mut format = Format::Ndjson;
    for (name, value) in given {
        match name.as_str() {
            "format" => format = word(name, value)?,
            _ => filtered(&mut filter, name, value)
                .unwrap_or_else(|| Err(invalid(name, "there is no such parameter")))?,
        }
    }
    Ok((format, filter))
}

/// Where the next page begins.
#[derive(Clone, Copy)]
enum Place {
    Start,
    After(RequestId),
    End,
}

/// The rows that are still to be told.
struct Rows {
    again: Again,
    filter: LogFilter,
    format: Format,
    /// What stands before the rows.
    head: String,
    place: Place,
}

impl Rows {
    /// The text of the next page.
    async fn page(&mut self, caller: &Caller) -> Result<Bytes, Failure> {
        let mut filter = self.filter.clone();
        narrow(&mut filter, caller)?;
        let query = LogsQuery {
            filter,
            limit: PAGE_ROWS_MAX,
            after: match self.place {
                Place::After(after) => Some(after),
                Place::Start | Place::End => None,
            },
        };
        let answer: LogsAnswer = ask(&self.again.state, QUERY_LOGS, &query, READ_WITHIN).await?;
        self.place = answer.next.map_or(Place::End, Place::After);
        let mut text = std::mem::take(&mut self.head);
        for row in &answer.data {
            self.format
                .write(row, &mut text)
                .map_err(|_| super::super::internal())?;
        }
        Ok(text.into())
    }

    /// The same as a part of the file; `None` after the last. A page that cannot be had breaks the file off, so that
    /// nobody takes a part of it for the whole.
    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        if matches!(self.place, Place::End) {
            return None;
        }
        let page = match self.again.caller().await {
            Ok(caller) => self.page(&caller).await,
            Err(failure) => Err(failure),
        };
        Some(page.map_err(|_| {
            self.place = Place::End;
            Broken
        }))
    }

    fn told(self, first: Bytes) -> Response {
        let format = self.format;
        let rest = stream::unfold(self, async |mut rows| Some((rows.next().await?, rows)));
        let pages = futures_util::StreamExt::chain(stream::iter([Ok(first)]), rest);
        let mut response = Response::new(Body::from_stream(pages));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let name = match format {
            Format::Ndjson => "attachment; filename=\"waybills.ndjson\"",
            Format::Csv => "attachment; filename=\"waybills.csv\"",
        };
        headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(name));
        response
    }
}

/// The rest cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the rows cannot be read")]
struct Broken;
