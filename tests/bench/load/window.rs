//! One window of load: workers call until told to stop, calls that end between open and close of the window count.
//!
//! In the open loop a thread of its own hands out turns on time, because the runtime's timer counts whole milliseconds; a
//! worker's call then counts from the time it was due, however late a connection was free for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::arguments::Arguments;
use crate::call::{Link, Target};
use crate::measure::Measurement;
use crate::process::Watch;
use crate::tally::Tally;

/// How often the watched threads are sampled.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);

/// Rest of a worker after a failure, so that a dead system is not hammered.
const FAILURE_PAUSE: Duration = Duration::from_millis(5);

/// When workers may send.
#[derive(Debug, Clone)]
enum Loop {
    /// As soon as the last call ended.
    Closed,
    /// When a turn is due.
    Open(Arc<Turns>),
}

#[derive(Debug)]
struct Turns {
    begin: Instant,
    rate: u32,
    taken: AtomicU32,
    due: Semaphore,
}

impl Turns {
    /// When turn `number` is due.
    fn time(&self, number: u32) -> Instant {
        self.begin + Duration::from_secs_f64(f64::from(number) / f64::from(self.rate.max(1)))
    }

    /// The next turn, when it is due; `None` after the last one.
    async fn next(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        Some(self.time(self.taken.fetch_add(1, Ordering::Relaxed)))
    }

    /// Makes turns available on time until `end`, on the calling thread.
    fn hand_out(&self, end: Instant) {
        for number in 0..u32::MAX {
            let due = self.time(number);
            if due >= end {
                break;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.due.add_permits(1);
        }
        self.due.close();
    }
}

/// Runs the load of `arguments` and measures its window.
pub(crate) async fn run(arguments: &Arguments, target: Arc<Target>) -> anyhow::Result<Measurement> {
    let warmup = Duration::try_from_secs_f64(arguments.warmup).context("--warmup is no duration")?;
    let length = Duration::try_from_secs_f64(arguments.secs).context("--secs is no duration")?;
    let tally = Arc::new(Mutex::new(Tally::default()));
    let begin = Instant::now();
    let pace = pace(arguments.rate, begin, begin + warmup + length)?;
    let mut workers = JoinSet::new();
    for _ in 0..arguments.concurrency {
        workers.spawn(work(Arc::clone(&target), pace.clone(), Arc::clone(&tally)));
    }
    sleep_until(begin + warmup).await;

    let mut watch = Watch::new(&arguments.pid);
    watch.sample();
    tally.lock().open();
    let opened = Instant::now();
    while opened.elapsed() < length {
        sleep(SAMPLE_EVERY.min(length.saturating_sub(opened.elapsed()))).await;
        watch.sample();
    }
    tally.lock().close();
    let elapsed = opened.elapsed();

    workers.abort_all();
    let mut measured = tally.lock().measurement(elapsed, arguments.stream);
    measured.processes = watch.report(measured.requests);
    Ok(measured)
}

fn pace(rate: Option<u32>, begin: Instant, end: Instant) -> anyhow::Result<Loop> {
    let Some(rate) = rate else {
        return Ok(Loop::Closed);
    };
    let turns = Arc::new(Turns {
        begin,
        rate,
        taken: AtomicU32::new(0),
        due: Semaphore::new(0),
    });
    let clockwork = Arc::clone(&turns);
    std::thread::Builder::new()
        .name("turns".to_owned())
        .spawn(move || clockwork.hand_out(end))
        .context("cannot start the thread that hands out turns")?;
    Ok(Loop::Open(turns))
}

async fn work(target: Arc<Target>, pace: Loop, tally: Arc<Mutex<Tally>>) {
    let mut link = Link::default();
    loop {
        let begin = match &pace {
            Loop::Closed => Instant::now(),
            Loop::Open(turns) => match turns.next().await {
                Some(due) => due,
                None => return,
            },
        };
        let result = link.call(&target).await;
        let failed = result.is_err();
        tally.lock().note(begin, result);
        if failed {
            sleep(FAILURE_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_are_due_at_the_rate_and_end_with_the_window() {
        let begin = Instant::now();
        let turns = Turns {
            begin,
            rate: 1_000,
            taken: AtomicU32::new(0),
            due: Semaphore::new(0),
        };

        turns.hand_out(begin + Duration::from_millis(3));

        assert_eq!(turns.due.available_permits(), 3);
        assert_eq!(turns.time(2), begin + Duration::from_millis(2));
        assert!(begin.elapsed() >= Duration::from_millis(2));
    }
}
