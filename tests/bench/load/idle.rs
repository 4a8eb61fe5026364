//! Many streams that idle: opened a few at a time, held, and counted again before memory is read.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::arguments::Arguments;
use crate::call::{Error, Link, Target};
use crate::measure::IdleStreams;
use crate::process::rss_kib;

/// Streams that may be opening at a time.
const OPENING_MAX: usize = 64;

/// How long opening all streams may take.
const OPENING_SECONDS_MAX: u64 = 60;

#[derive(Debug, Default)]
struct State {
    opened: u32,
    failed: u32,
    first_error: Option<String>,
}

/// Opens the streams, holds them, and reads the memory of the watched processes.
pub(crate) async fn run(arguments: &Arguments, target: Arc<Target>) -> anyhow::Result<IdleStreams> {
    let hold = Duration::try_from_secs_f64(arguments.hold_secs).context("--hold-secs is no duration")?;
    let rss_before_kib = arguments.pid.iter().map(|pid| rss_kib(*pid)).sum();
    let state = Arc::new(Mutex::new(State::default()));
    let opening = Arc::new(Semaphore::new(OPENING_MAX));
    let mut streams = JoinSet::new();
    for _ in 0..arguments.idle_streams {
        streams.spawn(idle(
            Arc::clone(&target),
            Arc::clone(&opening),
            Arc::clone(&state),
        ));
    }
    let deadline = Instant::now() + Duration::from_secs(OPENING_SECONDS_MAX);
    while Instant::now() < deadline && !all_tried(&state.lock(), arguments.idle_streams) {
        sleep(Duration::from_millis(50)).await;
    }
    sleep(hold).await;

    let rss_kib = arguments.pid.iter().map(|pid| rss_kib(*pid)).sum();
    let state = state.lock();
    Ok(IdleStreams {
        open: state.opened,
        failed: state.failed,
        first_error: state.first_error.clone(),
        rss_before_kib,
        rss_kib,
    })
}

fn all_tried(state: &State, wanted: u32) -> bool {
    state.opened.saturating_add(state.failed) >= wanted
}

async fn idle(target: Arc<Target>, opening: Arc<Semaphore>, state: Arc<Mutex<State>>) {
    let mut link = Link::default();
    let opened = {
        let Ok(_permit) = opening.acquire().await else {
            return;
        };
        link.open(&target).await
    };
    let mut body = match opened {
        Ok(body) => body,
        Err(error) => return fail(&state, &error),
    };
    state.lock().opened += 1;
    while let Some(Ok(_)) = body.frame().await {}
    state.lock().opened -= 1;
    fail(&state, &Error::Early);
}

fn fail(state: &Mutex<State>, error: &Error) {
    let mut state = state.lock();
    state.failed += 1;
    state.first_error.get_or_insert_with(|| error.to_string());
}
