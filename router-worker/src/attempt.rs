//! One upstream call with one credential: send, hold until content, relay, measure. An attempt either fails
//! before anything was handed over, and then another may follow, or it is the request's last.

pub(crate) mod clocks;
mod raw;
mod reading;
mod streamed;
mod unstreamed;

use std::sync::Arc;
use std::time::Duration;

use bus::dispatch::Frame;
use bytes::{Bytes, BytesMut};
use dialects::chat::usage::UsageFacts;
use dialects::dialect::Dialect;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use schemas::affinity::VERDICT_HEADER;
use schemas::affinity::choice::Verdict;
use schemas::affinity::hint::SESSION_HEADER;
use schemas::balance::Algorithm;
use schemas::catalog::ProviderKind;
use schemas::command::Offer;
use schemas::frame::{Delivered, Head};
use schemas::secret::Secret;
use tokio::time::Instant;
use tracing::debug;

use crate::affinity::Visit;
use crate::fault::{Fault, Refusal, Unusable};
use crate::plan::Candidate;
use crate::provider::call::{self, Ask};
use crate::provider::{Purpose, echo};
use crate::relay::{Relay, Stop};
use crate::session::Prepared;
use crate::state::Shared;
use crate::upstream::{Answer, Body, BodyError};

pub(crate) use raw::tells_of_backend;

use clocks::{Interruption, Timer, deadline, earlier, wait};

/// Bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of an error's body may take.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(5);

/// The header that names dropped parameters.
const DROPPED: &str = "x-waybill-dropped";

/// What an attempt needs to know.
pub(crate) struct Call<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) relay: &'a Relay,
    pub(crate) offer: &'a Offer,
    /// The caller's body.
    pub(crate) caller_body: &'a Bytes,
    /// What this candidate is sent, and how its answer is read.
    pub(crate) prepared: &'a Prepared,
    /// What the answer's `model` must say, as a JSON string.
    pub(crate) model_json: &'a [u8],
    pub(crate) candidate: &'a Candidate,
    /// The session as the caller is told it, and how affinity decided.
    pub(crate) session: Option<(Option<&'a Arc<str>>, Verdict)>,
    /// The call at the backend.
    pub(crate) visit: &'a Visit<'a>,
    /// When a streamed answer must have ended.
    pub(crate) stream_deadline: Option<Instant>,
}

/// How an attempt ended.
pub(crate) enum Ending {
    /// The answer is whole; these bytes are yet to be handed over.
    Whole {
        /// The head, where none was handed over.
        head: Option<Head>,
        /// The end mark, or the whole body.
        tail: Bytes,
    },
    /// The upstream failed, and what it says may pass as it is.
    Told(Box<Told>),
    /// It failed.
    Failed(Fault),
    /// The session was stopped.
    Stopped(Stop),
}

/// A failure in the words of an upstream.
pub(crate) struct Told {
    /// The head, where none was handed over.
    pub(crate) head: Option<Head>,
    /// What is yet to be handed over.
    pub(crate) tail: Bytes,
    /// What it means.
    pub(crate) fault: Fault,
    /// The caller is told it so; else he is told of the fault.
    pub(crate) passes: bool,
}

/// What is measured while an attempt runs.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// When it began, on the router's clock.
    pub(crate) started_ms: u64,
    /// The request went out, or part of it: it may have been taken without an answer.
    pub(crate) sent: bool,
    /// The status of the upstream's answer.
    pub(crate) status: Option<u16>,
    /// Milliseconds to the first byte of the answer's body.
    pub(crate) first_byte_ms: Option<u64>,
    /// The usage that was told, of each class the last figure.
    pub(crate) usage: Option<UsageFacts>,
    /// The head was handed over: no other attempt may follow.
    pub(crate) committed: bool,
    /// What was handed over.
    pub(crate) delivered: Delivered,
}

impl Meter {
    /// Whether an attempt that ended so may have cost something: it was not refused before it brought anything, nor kept
    /// from being sent.
    pub(crate) fn may_have_cost(&self, ending: &Ending) -> bool {
        match (ending, self.status) {
            (Ending::Failed(Fault::Refused(_)), _) if !self.committed => false,
            (_, Some(status)) => (200..300).contains(&status),
            (_, None) => self.sent,
        }
    }
}

/// Why bytes do not come.
enum Broken {
    Interrupted(Interruption),
    Fault(Fault),
}

impl From<Broken> for Ending {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Interrupted(Interruption::Stopped(stop)) => Self::Stopped(stop),
            Broken::Interrupted(Interruption::TimedOut) => Self::Failed(Fault::TimedOut),
            Broken::Fault(fault) => Self::Failed(fault),
        }
    }
}

impl Call<'_> {
    /// Makes the call with one credential, none for endpoints without.
    pub(crate) async fn run(&self, credential: Option<&Secret<String>>, meter: &mut Meter) -> Ending {
        let started = Instant::now();
        let mut timer = Timer::default();
        let clocks = &self.shared.config.clocks;
        let whole = if self.streams() || self.offer.raw.is_some() {
            self.stream_deadline
        } else {
            deadline(started, clocks.completion)
        };
        let first_byte = clocks.first_byte.filter(|_| self.streams());
        let head = earlier(deadline(started, clocks.request), deadline(started, first_byte));
        timer.set(earlier(head, whole));
        let answer = match self.send(credential, meter, &mut timer).await {
            Ok(answer) => answer,
            Err(broken) => return broken.into(),
        };
        meter.status = Some(answer.status.as_u16());
        if let Some(raw) = self.offer.raw.as_deref() {
            let raw = (raw, credential.is_some());
            return Box::pin(raw::relay(self, raw, answer, meter, (&mut timer, whole))).await;
        }
        if !answer.status.is_success() {
            return self.refused(answer, &mut timer).await;
        }
        if self.streams() {
            streamed::relay(self, answer, meter, started).await
        } else {
            timer.set(earlier(deadline(started, clocks.request), whole));
            unstreamed::read(self, answer, meter, (&mut timer, whole)).await
        }
    }

    const fn streams(&self) -> bool {
        self.offer.splice.stream
    }

    async fn send(
        &self,
        credential: Option<&Secret<String>>,
        meter: &mut Meter,
        timer: &mut Timer,
    ) -> Result<Answer, Broken> {
        if self.candidate.endpoint.kind == ProviderKind::Echo && self.offer.raw.is_none() {
            return Ok(echo::answer(self.offer, &self.prepared.body.joined()));
        }
        let ask = Ask {
            candidate: self.candidate,
            purpose: Purpose {
                dialect: self.prepared.dialect,
                stream: self.streams(),
            },
            credential,
            extra: &self.prepared.headers,
            body: &self.prepared.body,
            raw: self.offer.raw.as_deref(),
        };
        let mut sending = Box::pin(call::send(self.shared, &ask));
        let sent = wait(self.relay, timer, |context| sending.as_mut().poll(context)).await;
        meter.sent = !matches!(&sent, Ok(Err(error)) if !error.was_sent());
        sent.map_err(Broken::Interrupted)?.map_err(|error| {
            self.note(&error);
            Broken::Fault(error.fault())
        })
    }

    /// An answer whose status is not a success: reads as much of it as explains it.
    async fn refused(&self, answer: Answer, timer: &mut Timer) -> Ending {
        if !is_error(answer.status) {
            return Ending::Failed(Fault::Redirected);
        }
        let status = answer.status.as_u16();
        timer.set(deadline(Instant::now(), Some(ERROR_BODY_WAIT)));
        let mut body = answer.body;
        let mut told = BytesMut::new();
        loop {
            match wait(self.relay, timer, |context| body.poll_next(context)).await {
                Ok(Ok(Some(piece))) if told.len() + piece.len() <= ERROR_BYTES_MAX => {
                    told.extend_from_slice(&piece);
                }
                Err(Interruption::Stopped(stop)) => return Ending::Stopped(stop),
                _ => break,
            }
        }
        let refusal = Refusal::of_answer(status, &answer.headers, &told);
        debug!(
            request.id = %self.offer.request_id,
            endpoint.id = %self.candidate.endpoint.id,
            status,
            "an upstream refused a request"
        );
        Ending::Failed(Fault::from(refusal))
    }

    /// Reads a body to its end. `on_bytes` is called with the timer for each piece.
    async fn collect(
        &self,
        body: &mut Body,
        timer: &mut Timer,
        mut on_bytes: impl FnMut(&mut Timer),
    ) -> Result<Bytes, Broken> {
        let bytes_max = self.shared.config.answer_bytes_max;
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let next = wait(self.relay, timer, |context| body.poll_next(context)).await;
            let piece = match next.map_err(Broken::Interrupted)? {
                Ok(Some(piece)) => piece,
                Ok(None) if all.is_empty() => return Ok(first),
                Ok(None) => return Ok(all.freeze()),
                Err(error) => return Err(Broken::Fault(self.body_fault(&error))),
            };
            on_bytes(timer);
            if first.len() + all.len() + piece.len() > bytes_max {
                return Err(Broken::Fault(Fault::Unusable(Unusable::TooLarge)));
            }
            if first.is_empty() && all.is_empty() {
                first = piece;
            } else {
                all.extend_from_slice(&std::mem::take(&mut first));
                all.extend_from_slice(&piece);
            }
        }
    }

    fn body_fault(&self, error: &BodyError) -> Fault {
        self.note(error);
        match error {
            BodyError::Cut(_) => Fault::Cut,
            BodyError::Coding(_) => Fault::Unusable(Unusable::Coding),
            BodyError::TooLarge { .. } => Fault::Unusable(Unusable::TooLarge),
        }
    }

    /// Milliseconds since the attempt began.
    fn elapsed_ms(&self, meter: &Meter) -> u64 {
        self.shared.clock.monotonic_ms().saturating_sub(meter.started_ms)
    }

    /// Notes what is about to be handed over.
    fn deliver(&self, meter: &mut Meter, content: bool, output_bytes: u64) {
        if content {
            self.visit.first_token();
            if meter.delivered.ttft_ms.is_none() {
                self.time(meter.started_ms);
            }
        }
        let delivered = &mut meter.delivered;
        delivered.output_bytes = delivered.output_bytes.saturating_add(output_bytes);
        if content {
            delivered.content = true;
            let now = || self.shared.clock.now().millis_since(self.offer.started_at);
            delivered.ttft_ms.get_or_insert_with(now);
        }
    }

    /// Remembers how long the first token of a stream took, where backends are chosen by that.
    fn time(&self, started_ms: u64) {
        let is_wanted = self.candidate.endpoint.balancing() == Algorithm::PowerOfTwo;
        if is_wanted && self.offer.splice.stream {
            let now_ms = self.shared.clock.monotonic_ms();
            let took_us = now_ms.saturating_sub(started_ms).saturating_mul(1_000);
            let backend = self.candidate.backend_id();
            self.shared.memory.answered(&backend, took_us, now_ms);
        }
    }

    /// The head of an answer: nothing an upstream said in its own headers is in it. A gateway that answered before it
    /// had this head, to keep its caller waiting, cannot tell what was dropped.
    fn head(&self, content_type: &'static str) -> Head {
        let mut headers = vec![(CONTENT_TYPE.as_str().to_owned(), content_type.to_owned())];
        headers.extend(self.told_headers());
        Head {
            status: StatusCode::OK.as_u16(),
            headers,
        }
    }

    /// What the router itself tells in a head.
    fn told_headers(&self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        if let Some(dropped) = &self.prepared.dropped {
            headers.push((DROPPED.to_owned(), dropped.clone()));
        }
        if let Some((session, verdict)) = self.session {
            headers.push((VERDICT_HEADER.to_owned(), verdict.to_string()));
            headers.extend(session.map(|session| (SESSION_HEADER.to_owned(), session.as_ref().to_owned())));
        }
        headers
    }

    /// The upstream tells who served behind it.
    fn names_providers(&self) -> bool {
        self.candidate.endpoint.kind == ProviderKind::Openrouter
    }

    /// What the caller speaks.
    const fn caller(&self) -> Dialect {
        Dialect::of_surface(self.offer.surface)
    }

    async fn send_frame(&self, frame: Frame) {
        self.relay.send(frame).await;
    }

    fn note(&self, error: &(dyn std::error::Error + 'static)) {
        debug!(
            request.id = %self.offer.request_id,
            endpoint.id = %self.candidate.endpoint.id,
            error,
            "an attempt failed"
        );
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// True when the head says that the body is one JSON document.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let kind = kind
        .as_bytes()
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
mod tests;
