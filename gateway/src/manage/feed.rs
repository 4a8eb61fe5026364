//! `GET /api/v1/usage/events`: waybills in the order in which they were booked, from a place on. Whoever accepts
//! `text/event-stream` is kept and told each event as it is booked; everybody else gets a page. A place stays what it is,
//! so that a reader who goes on from the last one he has misses nothing.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::failure::{Failure, FailureCode};
use schemas::query::LogFilter;
use schemas::query::feed::{Booked, FEED_EVENTS_MAX, FeedAnswer, FeedFilter, FeedQuery};
use schemas::subject::QUERY_FEED;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::again::Again;
use super::logs::told_to;
use super::openapi::{Operation, Parameter};
use super::{Parameters, READ_WITHIN, answered, ask, filtered, invalid, narrow, parameters};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::state::{Phase, Shared};

/// Readers that a node keeps at once.
pub(crate) const READERS_MAX: usize = 256;
/// Seconds after which a reader who was not kept may try again.
const RETRY_SECONDS: u64 = 5;
/// How long a reader who has everything waits before it is looked for more.
const LOOK: Duration = Duration::from_millis(500);
/// How long nothing is said on a stream at most.
const SILENCE: Duration = Duration::from_secs(15);
/// Milliseconds after which a client that lost its stream opens another.
const RECONNECT_MS: u64 = 2_000;
/// Events of a page unless another number is asked for.
const EVENTS_DEFAULT: u32 = 100;
const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const PARAMETERS: &[Parameter] = &[
    Parameter::new::<String>("tenant", "Of this tenant."),
    Parameter::new::<String>("user", "Of this member."),
    Parameter::new::<String>("key", "Of this key, by id."),
    Parameter::new::<u64>(
        "after",
        "Booked after this place. Left out, a page begins with the oldest event, and a stream with the next one.",
    ),
    Parameter::new::<u32>("limit", "Events of the page; no part of a stream.").like(page_size),
];

fn page_size(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": FEED_EVENTS_MAX, "default": EVENTS_DEFAULT})
}

/// What the path does.
pub(crate) const LIST: Operation = Operation::read::<Page>(
    "Tells waybills in the order in which they were booked: a page, or a stream for who accepts text/event-stream",
)
.taking(PARAMETERS)
.writing(&["application/json", EVENT_STREAM])
.of_callers();

/// A page of events.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UsageEvents")]
struct Page {
    /// The events, the one that was booked first at the front.
    data: Vec<Told>,
    /// What to ask for as `after` next.
    next: u64,
    /// Whether there may be more right now.
    more: bool,
}

/// An event with its place.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UsageEvent")]
struct Told {
    /// Its place in the books: rising, not dense.
    place: u64,
    /// The envelope as it stands in the log: `waybill.request.settled.v1` or `waybill.request.lost.v1`. For those who
    /// do not operate the platform without what others did at the backends.
    event: Box<RawValue>,
}

impl Told {
    fn new(booked: Booked, caller: &Caller) -> Self {
        Self {
            place: booked.place,
            event: told_to(booked.envelope, caller.operates()),
        }
    }
}

/// Events from a place on.
pub(crate) async fn list(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    given: Parameters,
    request: Request,
) -> Response {
    let asked = parameters(given).and_then(|given| asked(&given, request.headers()));
    let followed = follows(request.headers());
    match asked {
        Ok(asked) if followed => match Reader::open(state, &arrival, request, asked).await {
            Ok(reader) => streamed(reader),
            Err(failure) => arrival.refuse(&failure),
        },
        Ok(asked) => answered(&arrival, page(&state, &caller, asked).await),
        Err(failure) => arrival.refuse(&failure),
    }
}

/// What a URL asks for, before it is narrowed to what its caller may read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    filter: LogFilter,
    after: Option<u64>,
    limit: u32,
}

fn asked(given: &[(String, String)], headers: &HeaderMap) -> Result<Asked, Failure> {
    let mut asked = Asked {
        filter: LogFilter::default(),
        after: None,
        limit: EVENTS_DEFAULT,
    };
    for (name, value) in given {
        match name.as_str() {
            "after" => asked.after = Some(place(name, value)?),
            "limit" => asked.limit = super::number(name, value, 1, FEED_EVENTS_MAX)?,
            "tenant" | "user" | "key" => {
                filtered(&mut asked.filter, name, value).unwrap_or(Ok(()))?;
            }
            _ => return Err(invalid(name, "there is no such parameter")),
        }
    }
    // A client that lost its stream says where it was; the URL still says where it once began.
    if let Some(last) = headers.get(LAST_EVENT_ID) {
        let last = last.to_str().unwrap_or_default();
        asked.after = Some(place("Last-Event-ID", last)?);
    }
    Ok(asked)
}

fn place(name: &str, value: &str) -> Result<u64, Failure> {
    let read = value.parse().ok().filter(|place| i64::try_from(*place).is_ok());
    read.ok_or_else(|| {
        invalid(
            name,
            "expected a place: what an answer said as `next`, or an event as its id",
        )
    })
}

/// True for who accepts a stream by its name.
fn follows(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let kind = range.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case(EVENT_STREAM)
    })
}

/// The filter as far as a caller may read.
fn within(asked: &Asked, caller: &Caller) -> Result<FeedFilter, Failure> {
    let mut filter = asked.filter.clone();
    narrow(&mut filter, caller)?;
    Ok(FeedFilter {
        tenant: filter.tenant,
        user: filter.user,
        key: filter.key,
    })
}

async fn page(state: &Shared, caller: &Caller, asked: Asked) -> Result<Page, Failure> {
    let query = FeedQuery {
        filter: within(&asked, caller)?,
        after: Some(asked.after.unwrap_or(0)),
        limit: asked.limit,
    };
    let answer: FeedAnswer = ask(state, QUERY_FEED, &query, READ_WITHIN).await?;
    let told = |booked| Told::new(booked, caller);
    Ok(Page {
        data: answer.events.into_iter().map(told).collect(),
        next: answer.place,
        more: answer.more,
    })
}

fn streamed(reader: Reader) -> Response {
    let told = stream::unfold(reader, async |mut reader| {
        let text = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), reader))
    });
    let mut response = Response::new(Body::from_stream(told));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// One who is told events as they are booked. Whether he still may is asked before each look at the books, so that a
/// credential that is revoked ends its streams.
struct Reader {
    again: Again,
    asked: Asked,
    place: u64,
    /// The place that the client has been told.
    known: Option<u64>,
    spoke: Instant,
    /// When the books are looked at next.
    look: Instant,
    _seat: tokio::sync::OwnedSemaphorePermit,
}

impl Reader {
    async fn open(state: Shared, arrival: &Arrival, request: Request, asked: Asked) -> Result<Self, Failure> {
        let seat = state.readers.clone().try_acquire_owned().map_err(|_| {
            let text = "the node has as many readers of events as it keeps; try again, or read pages";
            Failure::new(FailureCode::StoreUnavailable, text).retry_after(RETRY_SECONDS)
        })?;
        let now = Instant::now();
        let mut reader = Self {
            again: Again::new(state, arrival, request),
            place: asked.after.unwrap_or(0),
            asked,
            known: None,
            spoke: now,
            look: now,
            _seat: seat,
        };
        if reader.asked.after.is_none() {
            // Whoever does not say where begins with what is booked from now on.
            let caller = reader.again.caller().await?;
            reader.place = reader.read(&caller, None).await?.place;
        }
        Ok(reader)
    }

    /// What is sent next; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if self.known.is_none() {
            let hello = format!("retry: {RECONNECT_MS}\n");
            return Some(self.tell(&hello));
        }
        loop {
            if self.again.state.phase() != Phase::Serving {
                return None;
            }
            let caller = self.again.caller().await.ok()?;
            let mut text = String::new();
            match self.read(&caller, Some(self.place)).await {
                Ok(answer) => {
                    self.place = answer.place;
                    self.look = Instant::now();
                    if !answer.more {
                        self.look += LOOK;
                    }
                    for booked in answer.events {
                        write_event(&mut text, booked, caller.operates());
                    }
                }
                Err(failure) if failure.code == FailureCode::StoreUnavailable => {
                    // The books come back, and nothing is missed meanwhile.
                    self.look = Instant::now() + LOOK;
                }
                Err(_) => return None,
            }
            if !text.is_empty() || self.spoke.elapsed() >= SILENCE {
                return Some(self.tell(&text));
            }
            sleep(self.look.saturating_duration_since(Instant::now())).await;
        }
    }

    /// The text with the place that has been reached behind it, which is a comment where the client knows it.
    fn tell(&mut self, text: &str) -> Bytes {
        self.spoke = Instant::now();
        let known = self.known.replace(self.place) == Some(self.place);
        let reached = if known {
            ":\n\n".to_owned()
        } else {
            format!("id: {}\n\n", self.place)
        };
        format!("{text}{reached}").into()
    }

    async fn read(&self, caller: &Caller, after: Option<u64>) -> Result<FeedAnswer, Failure> {
        let query = FeedQuery {
            filter: within(&self.asked, caller)?,
            after,
            limit: FEED_EVENTS_MAX,
        };
        ask(&self.again.state, QUERY_FEED, &query, READ_WITHIN).await
    }
}

/// Writes an event as a client of server-sent events reads it.
fn write_event(text: &mut String, booked: Booked, operates: bool) {
    let Booked {
        place,
        kind,
        envelope,
    } = booked;
    let event = told_to(envelope, operates);
    // JSON is written without line ends; what was published with some says the same without them.
    let data = match event.get() {
        data if data.contains(['\n', '\r']) => Cow::Owned(data.replace(['\n', '\r'], " ")),
        data => Cow::Borrowed(data),
    };
    for (field, value) in [
        ("id", place.to_string().as_str()),
        ("event", &kind),
        ("data", &data),
    ] {
        text.push_str(field);
        text.push_str(": ");
        text.push_str(value);
        text.push('\n');
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manage::tests::pairs;

    fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
        given
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).expect("a value");
                (HeaderName::from_static(name), value)
            })
            .collect()
    }

    #[test]
    fn a_reader_goes_on_where_he_was_and_not_where_he_once_began() {
        let given = pairs(&[("after", "7"), ("tenant", "acme"), ("limit", "3")]);
        let begun = asked(&given, &headers(&[])).expect("a question");
        assert_eq!((begun.after, begun.limit), (Some(7), 3));
        assert_eq!(begun.filter.tenant.expect("a tenant").as_str(), "acme");

        let again = asked(&given, &headers(&[("last-event-id", "12")])).expect("a question");
        assert_eq!(again.after, Some(12));
    }

    #[test]
    fn what_is_no_place_is_refused_by_name() {
        for (name, value) in [
            ("after", "x"),
            ("after", "-1"),
            ("after", "18446744073709551615"),
            ("limit", "0"),
            ("limit", "501"),
            ("model", "m"),
        ] {
            let refused = asked(&pairs(&[(name, value)]), &headers(&[])).expect_err("refused");
            assert_eq!(refused.param.as_deref(), Some(name), "{value}");
        }
        let refused = asked(&[], &headers(&[("last-event-id", "ten")])).expect_err("refused");
        assert_eq!(refused.param.as_deref(), Some("Last-Event-ID"));
    }

    #[test]
    fn a_stream_is_for_who_asks_for_one_by_name() {
        let follows = |accept| follows(&headers(&[("accept", accept)]));

        assert!(follows("text/event-stream"));
        assert!(follows("application/json, Text/Event-Stream;q=0.9"));
        assert!(!follows("*/*") && !follows("text/*") && !follows("application/json"));
    }

    #[test]
    fn an_event_is_one_line_whatever_was_published() {
        let booked = Booked {
            place: 9,
            kind: "waybill.request.settled.v1".to_owned(),
            envelope: RawValue::from_string("{\"a\":\r\n1}".to_owned()).expect("JSON"),
        };
        let mut text = String::new();
        write_event(&mut text, booked, true);

        assert_eq!(
            text,
            "id: 9\nevent: waybill.request.settled.v1\ndata: {\"a\":  1}\n\n"
        );
    }
}
