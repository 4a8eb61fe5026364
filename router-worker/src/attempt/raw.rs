//! An answer that passes as it is, whatever its status: its bytes leave as they come, and are read on the side for what
//! they tell of usage. What says that the endpoint's own credential is not accepted is the gateway's affair and not the
//! caller's.
//!
//! What an upstream answers on a path that is no call of a model says nothing about it or about its credential: else a
//! caller could have either taken out of use by asking for odd things.

mod flow;
mod head;

use bus::dispatch::Frame;
use bytes::Bytes;
use dialects::dialect::Dialect;
use dialects::passage::request::Asked;
use dialects::raw;
use dialects::raw::hearing::Heard;
use http::StatusCode;
use schemas::command::Raw;
use schemas::frame::Head;
use tokio::time::Instant;

use crate::fault::{Fault, Refusal};
use crate::upstream::Answer;

use super::clocks::{Interruption, Timer, deadline, earlier, wait};
use super::{Call, Ending, Meter, Told};

use flow::Flow;

/// Statuses by which an upstream says something about the credential.
const OF_CREDENTIAL: [u16; 4] = [401, 402, 403, 407];
/// The status by which it limits its rate.
const LIMITED: u16 = 429;
const NOT_MODIFIED: u16 = 304;

/// An answer, and what is known of its request.
struct Passage<'a> {
    call: &'a Call<'a>,
    raw: &'a Raw,
    dialect: Option<Dialect>,
    /// The endpoint's credential went with the request.
    is_keyed: bool,
}

/// Passes an answer on. `whole`: when it must have ended.
pub(super) async fn relay(
    call: &Call<'_>,
    (raw, is_keyed): (&Raw, bool),
    answer: Answer,
    meter: &mut Meter,
    (timer, whole): (&mut Timer, Option<Instant>),
) -> Ending {
    let passage = Passage {
        call,
        raw,
        dialect: raw::dialect(&raw.method, path(raw)),
        is_keyed,
    };
    let status = answer.status.as_u16();
    match status {
        300..=399 if status != NOT_MODIFIED => Ending::Failed(Fault::Redirected),
        LIMITED if is_keyed && passage.dialect.is_some() => call.refused(answer, timer).await,
        400.. => passage.refused(answer, meter, (timer, whole)).await,
        _ => passage.pass(answer, meter, (timer, whole)).await,
    }
}

/// Whether what is answered to a request says anything about its backend.
pub(crate) fn tells_of_backend(raw: &Raw) -> bool {
    raw::dialect(&raw.method, path(raw)).is_some()
}

fn path(raw: &Raw) -> &str {
    raw.target.split('?').next().unwrap_or_default()
}

impl Passage<'_> {
    fn is_bodiless(&self, status: StatusCode) -> bool {
        self.raw.method.as_ref() == "HEAD" || matches!(status.as_u16(), 204 | NOT_MODIFIED)
    }

    /// A failure: the upstream's own words, unless they are about its credential.
    async fn refused(
        &self,
        mut answer: Answer,
        meter: &mut Meter,
        (timer, whole): (&mut Timer, Option<Instant>),
    ) -> Ending {
        timer.set(whole);
        let body = if self.is_bodiless(answer.status) {
            Bytes::new()
        } else {
            match self.call.collect(&mut answer.body, timer, |_| ()).await {
                Ok(body) => body,
                Err(broken) => return broken.into(),
            }
        };
        meter.first_byte_ms.get_or_insert(self.call.elapsed_ms(meter));
        let status = answer.status.as_u16();
        let refusal = Refusal::of_answer(status, &answer.headers, &body);
        let disowns = self.is_keyed && OF_CREDENTIAL.contains(&refusal.status);
        let fault = Fault::from(refusal);
        if disowns && self.dialect.is_some() {
            return Ending::Failed(fault);
        }
        Ending::Told(Box::new(Told {
            head: (!disowns).then(|| self.head(&answer)),
            tail: if disowns { Bytes::new() } else { body },
            passes: !disowns,
            fault,
        }))
    }

    /// The head that leaves.
    fn head(&self, answer: &Answer) -> Head {
        let mut headers = head::passing(&answer.headers, self.raw.method.as_ref() == "HEAD");
        headers.extend(self.call.told_headers());
        Head {
            status: answer.status.as_u16(),
            headers,
        }
    }

    /// An answer as it comes.
    async fn pass(
        &self,
        answer: Answer,
        meter: &mut Meter,
        (timer, whole): (&mut Timer, Option<Instant>),
    ) -> Ending {
        let mut head = Some(self.head(&answer));
        if self.is_bodiless(answer.status) {
            self.call.deliver(meter, true, 0);
            return Ending::Whole {
                head,
                tail: Bytes::new(),
            };
        }
        let config = &self.call.shared.config;
        let mut flow = Flow::new(
            (self.dialect, raw::streams(path(self.raw))),
            &answer.headers,
            (config.answer_bytes_max, config.event_bytes_max),
        );
        let Answer {
            mut body, headers, ..
        } = answer;
        drop(headers);
        timer.set(earlier(deadline(Instant::now(), config.clocks.request), whole));
        let ended = loop {
            let next = wait(self.call.relay, timer, |context| body.poll_next(context)).await;
            match next {
                Ok(Ok(Some(piece))) => {
                    meter.first_byte_ms.get_or_insert(self.call.elapsed_ms(meter));
                    let leaves = flow.push(piece);
                    self.hand_over(leaves, (&flow, &mut head), meter).await;
                    let idle = deadline(Instant::now(), config.clocks.stream_idle);
                    timer.set(earlier(idle, whole));
                }
                Ok(Ok(None)) => break None,
                Ok(Err(error)) => break Some(Ending::Failed(self.call.body_fault(&error))),
                Err(Interruption::Stopped(stop)) => break Some(Ending::Stopped(stop)),
                Err(Interruption::TimedOut) => break Some(Ending::Failed(Fault::TimedOut)),
            }
        };
        let is_whole = ended.is_none();
        let (tail, said) = flow.end(is_whole, || self.asked());
        meter.usage = said.usage;
        meter.delivered.output_bytes = said.output_bytes;
        ended.unwrap_or_else(|| self.ended((head, tail), said, meter))
    }

    async fn hand_over(&self, leaves: Bytes, (flow, head): (&Flow, &mut Option<Head>), meter: &mut Meter) {
        if leaves.is_empty() {
            return;
        }
        if let Some(head) = head.take() {
            meter.committed = true;
            self.call.send_frame(Frame::Head(head)).await;
        }
        self.call.deliver(meter, flow.has_spoken(), 0);
        self.call.send_frame(Frame::Chunk(leaves)).await;
    }

    /// The end of an answer that came whole.
    fn ended(&self, (head, tail): (Option<Head>, Bytes), said: Heard, meter: &mut Meter) -> Ending {
        let Some(error) = said.error else {
            self.call.deliver(meter, true, 0);
            return Ending::Whole { head, tail };
        };
        let fault = Fault::from(Refusal::inside(error));
        Ending::Told(Box::new(Told {
            head,
            tail,
            passes: true,
            fault,
        }))
    }

    fn asked(&self) -> Asked {
        let call = self.call;
        Asked::read(
            self.dialect.unwrap_or(Dialect::Chat),
            call.caller_body,
            call.offer.requirements.prompt_tokens,
        )
    }
}
