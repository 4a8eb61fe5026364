//! The promises of the Dispatch port, over the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::{Router, Stage, stream, text};
use crate::conformance::dispatch::{self as promise, Answer, Scene};
use crate::conformance::script::{Act, dispatch};
use crate::dispatch::{Dispatch, Dispatcher};

struct Remote {
    stage: Stage,
    router: Router,
    numbers: AtomicU64,
}

impl Remote {
    async fn new() -> Self {
        let mut stage = Stage::new().await;
        let router = stage
            .router(|dispatch| match dispatch.offer.model.as_str() {
                "endless" => vec![Act::Head, Act::Chunk(Bytes::from_static(b"first")), Act::Stay],
                "whole" => vec![Act::Whole(Bytes::from_static(b"{\"whole\":1}"))],
                "failure" => vec![Act::Fail],
                _ => stream(40, Duration::from_millis(3)),
            })
            .await;
        Self {
            stage,
            router,
            numbers: AtomicU64::new(1),
        }
    }
}

impl Scene for Remote {
    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.stage.dispatcher.clone())
    }

    fn dispatch(&self, answer: Answer) -> Dispatch {
        let model = match answer {
            Answer::Stream => "stream",
            Answer::Endless => "endless",
            Answer::Whole => "whole",
            Answer::Failure => "failure",
        };
        dispatch(model, self.numbers.fetch_add(1, Ordering::Relaxed).into())
    }

    fn text(&self, answer: Answer) -> Bytes {
        match answer {
            Answer::Whole => Bytes::from_static(b"{\"whole\":1}"),
            _ => text(40),
        }
    }

    fn upstreams(&self) -> usize {
        self.router.script.open()
    }
}

/// Declares a test for each promise.
macro_rules! promises {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            promise::$name(&Remote::new().await).await.expect("kept");
        }
    )*};
}

promises!(
    a_stream_is_a_head_chunks_and_an_end,
    a_whole_answer_is_one_frame,
    a_failure_before_content_is_an_end_alone,
    nothing_goes_upstream_before_the_first_poll,
    a_cancel_closes_the_upstream_and_reports,
    an_interrupt_closes_the_upstream_and_reports,
    the_first_reason_to_stop_stays,
    a_session_canceled_before_its_first_poll_reports,
    a_dropped_session_closes_its_upstream,
);
