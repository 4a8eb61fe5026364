//! A streamed answer: held until its first content, then relayed piece by piece under its clocks. After
//! content it ends whole, with the end mark, or it is broken and never made to look whole.

use std::future::poll_fn;
use std::time::Duration;

use bus::dispatch::Frame;
use dialects::chat;
use dialects::dialect::Dialect;
use dialects::passage::request::choices_asked;
use dialects::superset::answer::Broken;
use dialects::translate::decode_answer;
use tokio::time::{Instant, timeout};

use crate::config::Clocks;
use crate::fault::{Fault, Unusable};
use crate::metrics::Dropped;
use crate::upstream::{Answer, Body};

use super::clocks::{Interruption, Timer, deadline, earlier, wait};
use super::reading::{Manner, Reading};
use super::{Call, Ending, Meter, is_json, unstreamed};

/// The type of every stream.
const EVENT_STREAM: &str = "text/event-stream";
/// Bytes that are gathered of events that came at once.
const BURST_BYTES_MAX: usize = 64 * 1024;
/// How long usage and the end mark are awaited once every choice has ended.
const USAGE_WAIT: Duration = Duration::from_secs(1);
/// How long they are awaited for the books alone, after the caller has left: less than his departure may
/// keep the upstream busy.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(800);

/// Relays the answer until its end.
pub(super) async fn relay(call: &Call<'_>, answer: Answer, meter: &mut Meter, started: Instant) -> Ending {
    let mut timer = Timer::default();
    let config = &call.shared.config;
    let mut patience = Patience::new(&config.clocks, started, call.stream_deadline);
    if is_json(&answer.headers) {
        timer.set(patience.deadline(Instant::now()));
        return whole_instead(call, answer, meter, &mut timer).await;
    }
    // The headers keep the connection's first read buffer alive; a stream may last for an hour.
    let Answer {
        mut body, headers, ..
    } = answer;
    drop(headers);
    let mut reading = Reading::new(manner(call));
    let ending = loop {
        timer.set(patience.deadline(Instant::now()));
        let next = wait(call.relay, &mut timer, |context| body.poll_next(context)).await;
        let (read, more) = match next {
            Ok(Ok(Some(piece))) => {
                if meter.first_byte_ms.is_none() {
                    meter.first_byte_ms = Some(call.elapsed_ms(meter));
                }
                let read = match reading.push(piece) {
                    Ok(()) => burst(call, (&mut body, &mut timer), &mut reading).await,
                    fault => fault,
                };
                let done = reading.done();
                let read = if done {
                    read.and_then(|()| ended(call, &mut reading))
                } else {
                    read
                };
                (read, !done)
            }
            Ok(Ok(None)) => (reading.finish().and_then(|()| ended(call, &mut reading)), false),
            Ok(Err(error)) => (Err(call.body_fault(&error)), false),
            Err(Interruption::Stopped(stop)) => {
                if ended(call, &mut reading).is_ok() {
                    last_words(&mut body, &mut reading).await;
                }
                break Ending::Stopped(stop);
            }
            Err(Interruption::TimedOut) => match ended(call, &mut reading) {
                Err(_) if reading.finished_choices() > 0 && patience.other_choices_run() => (Ok(()), true),
                ended => (ended.map_err(|_| Fault::TimedOut), false),
            },
        };
        hand_over(call, &mut reading, meter).await;
        match read {
            Err(fault) => break Ending::Failed(fault),
            Ok(()) if more => patience.heard(&reading),
            Ok(()) => break whole(call, &mut reading, meter),
        }
    };
    if reading.done() && !reading.stopped() {
        body.rest();
    }
    meter.usage = reading.usage();
    call.shared
        .metrics
        .dropped(Dropped::Malformed, reading.take_dropped());
    ending
}

/// How the stream is read.
fn manner<'a>(call: &'a Call<'_>) -> Manner<'a> {
    Manner {
        caller: call.caller(),
        way: call.prepared.way.as_deref(),
        model_json: call.model_json,
        include_usage: call.offer.splice.include_usage,
        hides_thinking: call.offer.told.hides_thinking,
        names_providers: call.names_providers(),
        event_bytes_max: call.shared.config.event_bytes_max,
        output_tokens_held: call.offer.requirements.output_tokens_held,
        prompt_tokens: call.offer.requirements.prompt_tokens,
        asked: call.caller_body,
        request_bytes: call.caller_body.len(),
    }
}

/// Reads what is there already behind the last pieces, so that it leaves with them: many events that came at once
/// leave at once. Nothing is waited for.
async fn burst(
    call: &Call<'_>,
    (body, timer): (&mut Body, &mut Timer),
    reading: &mut Reading<'_>,
) -> Result<(), Fault> {
    while !reading.done() && reading.bytes() < BURST_BYTES_MAX {
        let next = wait(call.relay, timer, |context| body.poll_at_hand(context)).await;
        match next {
            Ok(Ok(Some(piece))) => reading.push_more(piece)?,
            Ok(Err(error)) => return Err(call.body_fault(&error)),
            // The end, a stop and a time that is up are met again by whoever waits for the next piece.
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    Ok(())
}

/// Reads the usage of an answer that is complete but for it, when nobody is left to hear the rest.
async fn last_words(body: &mut Body, reading: &mut Reading<'_>) {
    let heard = async {
        while !reading.usage_is_whole() && !reading.done() {
            let Ok(Some(piece)) = poll_fn(|context| body.poll_next(context)).await else {
                break;
            };
            if reading.push(piece).is_err() {
                break;
            }
        }
    };
    // Without them the books hold an estimate.
    let _ = timeout(LAST_WORDS_WAIT, heard).await;
}

/// Whether the answer may end here. The choices that were asked for are read anew, because that is rarely needed.
fn ended(call: &Call<'_>, reading: &mut Reading<'_>) -> Result<(), Fault> {
    reading.may_end(|| choices_asked(call.caller(), call.caller_body))
}

/// The end of an answer that may end.
fn whole(call: &Call<'_>, reading: &mut Reading<'_>, meter: &mut Meter) -> Ending {
    if !reading.begun() {
        return Ending::Failed(Fault::Unusable(Unusable::Empty));
    }
    Ending::Whole {
        head: (!meter.committed).then(|| call.head(EVENT_STREAM)),
        tail: reading.tail(),
    }
}

/// Sends what was read, if it may go.
async fn hand_over(call: &Call<'_>, reading: &mut Reading<'_>, meter: &mut Meter) {
    let Some((bytes, output_bytes)) = reading.take() else {
        return;
    };
    if !meter.committed {
        meter.committed = true;
        call.send_frame(Frame::Head(call.head(EVENT_STREAM))).await;
    }
    call.deliver(meter, reading.content(), output_bytes);
    call.send_frame(Frame::Chunk(bytes)).await;
}

/// A JSON document where a stream was asked for: an error, or nothing that could be passed on.
async fn whole_instead(call: &Call<'_>, answer: Answer, meter: &mut Meter, timer: &mut Timer) -> Ending {
    let mut body = answer.body;
    let bytes = match call.collect(&mut body, timer, |_| ()).await {
        Ok(bytes) => bytes,
        Err(broken) => return broken.into(),
    };
    meter.usage = unstreamed::charged(call.prepared.dialect, &bytes);
    Ending::Failed(explained(call.prepared.dialect, &bytes).unwrap_or(Fault::Unusable(Unusable::Malformed)))
}

/// What a document in the place of a stream says about its failure.
fn explained(dialect: Dialect, body: &[u8]) -> Option<Fault> {
    match dialect {
        Dialect::Chat | Dialect::Completions | Dialect::Embeddings => {
            unstreamed::fault(&chat::answer::skim(body).ok()?)
        }
        Dialect::Messages | Dialect::Responses | Dialect::Gemini => match decode_answer(dialect, body) {
            Err(broken @ Broken::Told(_)) => Some(broken.into()),
            _ => None,
        },
    }
}

/// How long the next piece is waited for. Only time spent waiting for the upstream counts as its silence.
struct Patience {
    /// When the first piece must have come.
    first: Option<Instant>,
    /// The first clock runs to the first event rather than to the first byte.
    first_event: bool,
    /// When the whole must have ended.
    total: Option<Instant>,
    /// Longest silence.
    idle: Option<Duration>,
    /// What is left of it.
    idle_left: Option<Duration>,
    waiting_since: Instant,
    /// The first clock has stopped.
    opened: bool,
    /// Once a choice has ended, a short silence ends the answer.
    closing: bool,
}

impl Patience {
    fn new(clocks: &Clocks, started: Instant, total: Option<Instant>) -> Self {
        let now = Instant::now();
        let prefill = clocks
            .request
            .zip(clocks.stream_idle)
            .map(|(request, idle)| request.max(idle));
        let first = match clocks.first_byte {
            Some(first_byte) => deadline(started, Some(first_byte)),
            None => deadline(now, prefill),
        };
        Self {
            first,
            first_event: clocks.first_byte.is_some(),
            total,
            idle: clocks.stream_idle,
            idle_left: clocks.stream_idle,
            waiting_since: now,
            opened: false,
            closing: true,
        }
    }

    /// The deadline of a wait that begins now.
    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        self.waiting_since = now;
        let next = if self.opened {
            deadline(now, self.idle_left)
        } else {
            self.first
        };
        earlier(next, self.total)
    }

    /// A piece came. Comments and parts of events do not end a silence, they only shorten what is left of it.
    fn heard(&mut self, reading: &Reading<'_>) {
        if !self.opened {
            self.opened = reading.progressed() || !self.first_event;
        } else if !reading.progressed() {
            let waited = self.waiting_since.elapsed();
            self.idle_left = self.idle_left.map(|left| left.saturating_sub(waited));
            return;
        }
        self.idle_left = self.idle;
        if self.closing && reading.finished_choices() > 0 {
            let left = self.idle.unwrap_or(USAGE_WAIT);
            self.idle_left = Some(left.min(USAGE_WAIT));
        }
    }

    /// After the short silence that follows the end of a choice: other choices still run. True the first
    /// time; from then on the usual silence holds.
    fn other_choices_run(&mut self) -> bool {
        std::mem::take(&mut self.closing)
    }
}
