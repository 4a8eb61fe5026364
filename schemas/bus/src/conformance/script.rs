//! A dispatcher that plays scripts instead of asking upstreams: for tests of what lies between a gateway and a
//! router. It counts what it was asked to do.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use schemas::affinity::hint::Spoken;
use schemas::catalog::Role;
use schemas::command::{Offer, Requirements, Splice, Told};
use schemas::event::request::{Attempt, Surface};
use schemas::failure::{Failure, FailureCode};
use schemas::frame::{Delivered, Head, Report, Served};
use schemas::id::{BackendId, EndpointId, KeyId, ModelName, RequestId, TenantId};
use schemas::outcome::Outcome;
use schemas::time::Timestamp;
use schemas::usage::Usage;
use tokio::time::{Sleep, sleep};

use crate::dispatch::{Dispatch, Dispatcher, End, Frame, Session};

/// One act of a script.
#[derive(Debug, Clone)]
pub enum Act {
    /// The head leaves.
    Head,
    /// A piece leaves.
    Chunk(Bytes),
    /// Nothing happens for a while.
    Wait(Duration),
    /// Nothing happens until the session is stopped.
    Stay,
    /// The end of a stream, with its tail.
    End(Bytes),
    /// The end of an answer in one piece.
    Whole(Bytes),
    /// The end of an answer that failed before its content.
    Fail,
    /// A defect.
    Panic,
}

/// What was asked of a [`Script`].
#[derive(Debug, Default)]
pub struct Counts {
    /// Sessions whose upstream was called.
    pub begun: AtomicUsize,
    /// Sessions whose upstream is open.
    pub open: AtomicUsize,
    /// Acts that were played.
    pub acts: AtomicUsize,
}

/// Gives the acts of a request.
type Acts = dyn Fn(&Dispatch) -> Vec<Act> + Send + Sync;

/// A dispatcher that plays scripts.
#[derive(Clone)]
pub struct Script {
    acts: Arc<Acts>,
    counts: Arc<Counts>,
}

impl Script {
    /// Plays what `acts` gives for a request.
    pub fn new(acts: impl Fn(&Dispatch) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self {
            acts: Arc::new(acts),
            counts: Arc::default(),
        }
    }

    /// What it was asked so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sessions whose upstream is open.
    pub fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    /// Sessions whose upstream was called.
    pub fn begun(&self) -> usize {
        self.counts.begun.load(Ordering::Relaxed)
    }
}

impl Dispatcher for Script {
    fn dispatch(&self, dispatch: Dispatch) -> Box<dyn Session> {
        Box::new(Playing {
            acts: (self.acts)(&dispatch).into_iter(),
            act: None,
            counts: Arc::clone(&self.counts),
            upstream: None,
            timer: None,
            stop: None,
            content: false,
        })
    }
}

struct Playing {
    acts: std::vec::IntoIter<Act>,
    act: Option<Act>,
    counts: Arc<Counts>,
    upstream: Option<Upstream>,
    timer: Option<Pin<Box<Sleep>>>,
    stop: Option<Outcome>,
    content: bool,
}

/// An upstream that is open.
struct Upstream(Arc<Counts>);

impl Drop for Upstream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Playing {
    fn call(&mut self) {
        if self.upstream.is_none() {
            self.counts.begun.fetch_add(1, Ordering::Relaxed);
            self.counts.open.fetch_add(1, Ordering::Relaxed);
            self.upstream = Some(Upstream(Arc::clone(&self.counts)));
        }
    }

    fn end(&mut self, outcome: Outcome, head: Option<Head>, tail: Bytes) -> Poll<Frame> {
        self.upstream = None;
        let failure = match outcome {
            Outcome::Ok => None,
            Outcome::ClientGone => Some(FailureCode::ClientGone),
            Outcome::Timeout => Some(FailureCode::StreamInterrupted),
            _ => Some(FailureCode::UpstreamError),
        };
        let content = self.content || (outcome == Outcome::Ok && !tail.is_empty());
        Poll::Ready(Frame::End(Box::new(End {
            report: report(outcome, failure, content),
            tail,
            head,
        })))
    }

    /// Plays the act at hand; `None` when the next one follows at once.
    fn play(&mut self, context: &mut Context<'_>) -> Option<Poll<Frame>> {
        if self.act.is_none() {
            self.act = self.acts.next();
            self.counts.acts.fetch_add(1, Ordering::Relaxed);
        }
        match self.act.clone() {
            None | Some(Act::Stay) => Some(Poll::Pending),
            Some(Act::Wait(wait)) => {
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(wait)));
                if timer.as_mut().poll(context).is_pending() {
                    return Some(Poll::Pending);
                }
                self.timer = None;
                self.act = None;
                None
            }
            Some(Act::Head) => Some(self.done(Frame::Head(head()))),
            Some(Act::Chunk(bytes)) => {
                self.content = true;
                Some(self.done(Frame::Chunk(bytes)))
            }
            Some(Act::End(tail)) => Some(self.end(Outcome::Ok, None, tail)),
            Some(Act::Whole(tail)) => Some(self.end(Outcome::Ok, Some(head()), tail)),
            Some(Act::Fail) => Some(self.end(Outcome::UpstreamError, None, Bytes::new())),
            Some(Act::Panic) => panic!("a defect on purpose"),
        }
    }

    fn done(&mut self, frame: Frame) -> Poll<Frame> {
        self.act = None;
        Poll::Ready(frame)
    }
}

impl Session for Playing {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Frame> {
        if let Some(outcome) = self.stop {
            return self.end(outcome, None, Bytes::new());
        }
        self.call();
        loop {
            if let Some(poll) = self.play(context) {
                return poll;
            }
        }
    }

    fn cancel(&mut self) {
        self.stop.get_or_insert(Outcome::ClientGone);
    }

    fn interrupt(&mut self) {
        self.stop.get_or_insert(Outcome::Timeout);
    }
}

fn head() -> Head {
    Head {
        status: 200,
        headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
    }
}

fn report(outcome: Outcome, failure: Option<FailureCode>, content: bool) -> Report {
    let endpoint_id = EndpointId::from("e1");
    let backend = BackendId::from("e1");
    Report {
        outcome,
        failure: failure.map(|code| Failure::new(code, "as the script says")),
        attempts: vec![Attempt {
            endpoint_id: endpoint_id.clone(),
            backend: backend.clone(),
            provider: "script".into(),
            status: Some(200),
            outcome,
            error_code: failure,
            started_at: Timestamp::default(),
            first_byte_ms: None,
            latency_ms: 1,
        }],
        served: content.then(|| Served {
            endpoint_id,
            backend,
            provider: "script".into(),
            model: "m".into(),
        }),
        usage: content.then_some(Usage {
            input_tokens: 3,
            output_tokens: 5,
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
            content,
            output_bytes: 20,
            ttft_ms: Some(1),
        },
    }
}

/// A request for `model`, numbered.
pub fn dispatch(model: &str, number: u128) -> Dispatch {
    Dispatch::new(
        Offer {
            request_id: RequestId(uuid::Uuid::from_u128(number)),
            tenant: TenantId::from("acme"),
            surface: Surface::Chat,
            model: ModelName::from(model),
            owner: schemas::catalog::operators(),
            public_model: model.into(),
            candidates: [EndpointId::from("e1"), EndpointId::from("e2")].into(),
            catalog_revision: 0,
            requirements: Requirements::default(),
            pin: None,
            splice: Splice {
                model: (0, 0),
                stream_options: None,
                insert_at: 0,
                stream: true,
                include_usage: false,
            },
            told: Told::default(),
            spoken: Spoken::default(),
            caller: KeyId::from("key-1"),
            role: Role::default(),
            started_at: Timestamp::default(),
            attempts_max: 3,
            attempts_before: 0,
            passes_sleepers: false,
            raw: None,
        },
        Bytes::from_static(b"{\"model\":\"m\"}"),
    )
}
