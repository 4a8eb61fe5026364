//! A router that says what a test scripts, and remembers what it was told.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bus::dispatch::{Dispatch, Dispatcher, End, Frame, Session};
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Head, Report, Served};
use schemas::id::{BackendId, EndpointId};
use schemas::outcome::Outcome;
use schemas::usage::Usage;
use tokio::time::{Sleep, sleep};

/// One step of a session.
pub(crate) enum Step {
    Frame(Frame),
    Wait(Duration),
    /// Silent until canceled or interrupted.
    Hang,
    Panic,
}

/// What sessions were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) dispatched: Vec<Dispatch>,
    pub(crate) canceled: usize,
    pub(crate) interrupted: usize,
}

/// The scripted router: one script per dispatch, in order.
#[derive(Default)]
pub(crate) struct Script {
    scripts: Mutex<VecDeque<Vec<Step>>>,
    told: Arc<Mutex<Told>>,
}

impl Script {
    pub(crate) fn push(&self, steps: Vec<Step>) {
        self.scripts.lock().push_back(steps);
    }

    /// Forgets what nobody has asked for.
    pub(crate) fn clear(&self) {
        self.scripts.lock().clear();
    }

    pub(crate) fn told(&self) -> parking_lot::MutexGuard<'_, Told> {
        self.told.lock()
    }
}

impl Dispatcher for Script {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        self.told.lock().dispatched.push(dispatch);
        let steps = self
            .scripts
            .lock()
            .pop_front()
            .expect("a script for each request");
        Box::new(Scripted {
            steps: steps.into(),
            told: self.told.clone(),
            timer: None,
            handed_bytes: 0,
        })
    }
}

struct Scripted {
    steps: VecDeque<Step>,
    told: Arc<Mutex<Told>>,
    timer: Option<Pin<Box<Sleep>>>,
    handed_bytes: u64,
}

impl Session for Scripted {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        loop {
            if let Some(timer) = &mut self.timer {
                std::task::ready!(timer.as_mut().poll(context));
                self.timer = None;
            }
            match self.steps.front().expect("a script ends with an end") {
                Step::Hang => return Poll::Pending,
                Step::Panic => panic!("a scripted panic"),
                Step::Wait(wait) => self.timer = Some(Box::pin(sleep(*wait))),
                Step::Frame(_) => {}
            }
            if let Some(Step::Frame(frame)) = self.steps.pop_front() {
                if let Frame::Chunk(chunk) = &frame {
                    self.handed_bytes += u64::try_from(chunk.len()).expect("a length");
                }
                return Poll::Ready(frame);
            }
        }
    }

    fn cancel(&mut self) {
        self.told.lock().canceled += 1;
        self.conclude(Outcome::ClientGone, None);
    }

    fn interrupt(&mut self) {
        self.told.lock().interrupted += 1;
        let failure = Failure::new(FailureCode::StreamInterrupted, "the node is shutting down");
        self.conclude(Outcome::Timeout, Some(failure));
    }
}

impl Scripted {
    fn conclude(&mut self, outcome: Outcome, failure: Option<Failure>) {
        self.timer = None;
        let mut report = report(outcome, failure);
        report.usage = None;
        report.delivered.content = self.handed_bytes > 0;
        report.delivered.output_bytes = self.handed_bytes;
        self.steps = [end(report, "", None)].into();
    }
}

/// A report of endpoint `m:o1` with usage 9 and 20.
pub(crate) fn report(outcome: Outcome, failure: Option<Failure>) -> Report {
    Report {
        outcome,
        failure,
        attempts: Vec::new(),
        served: Some(Served {
            endpoint_id: EndpointId::from("m:o1"),
            backend: BackendId::from("m:o1"),
            provider: "o1".into(),
            model: "up".into(),
        }),
        usage: Some(Usage {
            input_tokens: 9,
            output_tokens: 20,
            ..Usage::default()
        }),
        usage_flags: Vec::new(),
        upstream_cost_nano_usd: None,
        attempts_of_unknown_cost: 0,
        passed: None,
        session: None,
        affinity: None,
        decision: None,
        delivered: Delivered {
            content: true,
            output_bytes: 2,
            ttft_ms: Some(1),
        },
    }
}

pub(crate) fn head(content_type: &str) -> Head {
    Head {
        status: 200,
        headers: vec![("content-type".to_owned(), content_type.to_owned())],
    }
}

pub(crate) fn begin() -> Step {
    Step::Frame(Frame::Head(head("text/event-stream")))
}

pub(crate) fn chunk(text: &'static str) -> Step {
    Step::Frame(Frame::Chunk(Bytes::from_static(text.as_bytes())))
}

pub(crate) fn end(report: Report, tail: &'static str, head: Option<Head>) -> Step {
    Step::Frame(Frame::End(Box::new(End {
        report,
        tail: Bytes::from_static(tail.as_bytes()),
        head,
    })))
}

/// A whole unstreamed answer.
pub(crate) fn whole(body: &'static str) -> Vec<Step> {
    vec![end(
        report(Outcome::Ok, None),
        body,
        Some(head("application/json")),
    )]
}

/// A failure before any content.
pub(crate) fn failed(failure: Failure) -> Vec<Step> {
    let mut report = report(Outcome::UpstreamError, Some(failure));
    report.usage = None;
    report.delivered = Delivered::default();
    vec![end(report, "", None)]
}
