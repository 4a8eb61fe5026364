//! Calls at a steady pace, whatever becomes of them: half of them streamed. How each ended is in the client's log.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::client::log::{Answered, ClientLog, End};
use crate::client::{Client, chat, chat_streamed};

/// How long a call may take when nothing is wrong with its upstream; the machine may be busy.
const SLOWEST_MAX: Duration = Duration::from_secs(5);

/// Calls under way; they stop when dropped.
pub struct Load {
    caller: JoinSet<()>,
    end: CancellationToken,
    log: ClientLog,
    slowest: Arc<Mutex<Duration>>,
}

impl Load {
    /// Begins to call model `m`, once in `every`, where `client` and its clones are turned to at the moment.
    pub fn start(client: &Client, every: Duration) -> Self {
        let end = CancellationToken::new();
        let mut caller = JoinSet::new();
        let slowest = Arc::new(Mutex::new(Duration::ZERO));
        let call = call(client.clone(), every, end.clone(), Arc::clone(&slowest));
        caller.spawn(call);
        Self {
            caller,
            end,
            log: client.log().clone(),
            slowest,
        }
    }

    /// Makes no more calls and waits for the answers of those that were made.
    pub async fn end(mut self) -> Outcome {
        self.end.cancel();
        while self.caller.join_next().await.is_some() {}
        Outcome {
            slowest: *self.slowest.lock(),
            ..Outcome::of(&self.log)
        }
    }
}

/// What a client's log says of all its calls.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Calls answered with all that belongs to a good answer.
    pub whole: usize,
    /// Calls whose answer was anything else.
    pub failed: Vec<Answered>,
    /// Calls without the head of an answer.
    pub unanswered: usize,
    /// The longest that a call of the load took, whatever its end.
    pub slowest: Duration,
}

impl Outcome {
    /// What a log says now.
    pub fn of(log: &ClientLog) -> Self {
        let good =
            |answered: &Answered| answered.status == 200 && matches!(answered.end, End::Done | End::Whole);
        let (whole, failed): (Vec<Answered>, Vec<Answered>) = log.answered().into_iter().partition(good);
        Self {
            whole: whole.len(),
            failed,
            unanswered: log.unanswered(),
            slowest: Duration::ZERO,
        }
    }

    /// Panics unless at least `count` calls were made and every one of them was answered whole and in time.
    pub fn assert_whole(&self, count: usize) {
        assert!(
            self.failed.is_empty() && self.unanswered == 0,
            "{} whole, {} without an answer, failed: {:?}",
            self.whole,
            self.unanswered,
            self.failed
        );
        assert!(self.slowest < SLOWEST_MAX, "a call took {:?}", self.slowest);
        assert!(self.whole >= count, "{} calls instead of {count}", self.whole);
    }
}

async fn call(client: Client, every: Duration, end: CancellationToken, slowest: Arc<Mutex<Duration>>) {
    let mut calls = JoinSet::new();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut number = 0_u64;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = end.cancelled() => break,
        }
        number += 1;
        let client = client.clone();
        let slowest = Arc::clone(&slowest);
        calls.spawn(async move {
            let start = Instant::now();
            // The client's log knows what became of it.
            if number.is_multiple_of(2) {
                let _ = client.try_post_chat(&chat("m")).await;
            } else if let Ok(stream) = client.try_stream_chat(&chat_streamed("m")).await {
                stream.collect().await;
            }
            let mut slowest = slowest.lock();
            *slowest = start.elapsed().max(*slowest);
        });
        while calls.try_join_next().is_some() {}
    }
    while calls.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Behaviour, Upstream};

    #[tokio::test]
    async fn calls_are_made_at_the_pace_and_their_ends_are_told_apart() {
        let upstream = Upstream::start();
        let client = Client::new(upstream.addr(), "sk-test");
        upstream.script([Behaviour::error(500, "no"), Behaviour::closed()]);

        let load = Load::start(&client, Duration::from_millis(20));
        upstream.wait_calls(6).await;
        let outcome = load.end().await;

        assert!(outcome.whole >= 4, "{outcome:?}");
        assert_eq!((outcome.failed.len(), outcome.unanswered), (1, 1), "{outcome:?}");
        assert!(upstream.recorded().iter().any(|call| call.request.streaming()));
    }
}
