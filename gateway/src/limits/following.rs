//! What the buckets of quotas and slots tell, so that the machines know what other nodes do before they ask. Each node
//! puts a beat of its own into both, to learn how old the news are.

use std::time::Duration;

use bus::{BusError, Change, Entry, Expected};
use bytes::Bytes;
use schemas::limit::holdings::steps::Answer;
use schemas::limit::layers::Name;
use schemas::node::BEAT_SECONDS;
use schemas::subject::{QUOTA_BUCKET, SLOT_BUCKET};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::warn;

use super::{Limiter, asking};

/// Changes that are taken in at once.
const BATCH_MAX: usize = 256;
/// The first and the longest pause before a bucket is watched again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long writing a beat may take.
const BEAT_WAIT: Duration = Duration::from_secs(2);
/// Prefix of the beats' keys, which no name of a limit begins with.
const BEAT: &str = "=beat.";

/// A bucket that is followed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bucket {
    Quotas,
    Slots,
}

impl Bucket {
    pub(super) const ALL: [Self; 2] = [Self::Quotas, Self::Slots];

    const fn name(self) -> &'static str {
        match self {
            Self::Quotas => QUOTA_BUCKET,
            Self::Slots => SLOT_BUCKET,
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Quotas => 0,
            Self::Slots => 1,
        }
    }

    fn answer(self, entry: &Entry) -> Result<Answer, BusError> {
        let name = Name::from(entry.key.as_str());
        match self {
            Self::Quotas => asking::quota_is(&name, Some(entry)),
            Self::Slots => asking::slots_are(&name, Some(entry)),
        }
    }
}

/// Follows a bucket, and begins anew when a watch ends. Never returns.
pub(super) async fn follow(limiter: &Limiter, bucket: Bucket) {
    let mut pause = PAUSE_MIN;
    let mut is_told = false;
    loop {
        match limiter.0.ports.kv.watch(bucket.name()).await {
            Ok(changes) => {
                pause = PAUSE_MIN;
                is_told = false;
                listen(limiter, bucket, changes).await;
                warn!(bucket = bucket.name(), "the watch ended");
            }
            Err(problem) if !std::mem::replace(&mut is_told, true) => warn!(
                bucket = bucket.name(),
                error = &problem as &dyn std::error::Error,
                "the bucket cannot be watched"
            ),
            Err(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn listen(limiter: &Limiter, bucket: Bucket, mut changes: mpsc::Receiver<Change>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while changes.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let entries = batch.drain(..).filter_map(|change| match change {
            Change::Entry(entry) => Some(entry),
            Change::Current => None,
        });
        let mut answers = Vec::new();
        for entry in entries {
            if entry.key.starts_with(BEAT) {
                hear(limiter, bucket, &entry);
            } else {
                // What cannot be read was said.
                answers.extend(bucket.answer(&entry).ok());
            }
        }
        learn(limiter, answers);
    }
}

fn learn(limiter: &Limiter, answers: Vec<Answer>) {
    if answers.is_empty() {
        return;
    }
    let now = limiter.now();
    let mut machine = limiter.0.machine.lock();
    for answer in answers {
        machine.holdings.answer(answer, now);
    }
    drop(machine);
    limiter.0.wake.notify_one();
}

/// A beat came back: the news are as old as it.
fn hear(limiter: &Limiter, bucket: Bucket, entry: &Entry) {
    let value = entry
        .value
        .as_deref()
        .and_then(|value| std::str::from_utf8(value).ok());
    let own = value.and_then(|value| value.strip_prefix(&*limiter.0.settings.boot)?.strip_prefix(' '));
    if let Some(Ok(sent_ms)) = own.map(str::parse) {
        limiter.0.figures.fresh(bucket.place(), sent_ms);
    }
}

/// Puts a beat into both buckets each two seconds, where they are elsewhere. Never returns.
pub(super) async fn beat(limiter: &Limiter) {
    let shared = &limiter.0;
    if !shared.settings.shared {
        return std::future::pending().await;
    }
    let key = format!("{BEAT}{}", shared.ports.spool.id());
    let mut ticks = interval(Duration::from_secs(BEAT_SECONDS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for bucket in Bucket::ALL {
        // Before anything came back, the news are as old as this run.
        shared
            .figures
            .fresh(bucket.place(), shared.ports.clock.monotonic_ms());
    }
    loop {
        ticks.tick().await;
        let value = format!("{} {}", shared.settings.boot, shared.ports.clock.monotonic_ms());
        for bucket in Bucket::ALL {
            let value = Bytes::from(value.clone());
            let put = shared.ports.kv.put(bucket.name(), &key, value, Expected::Any);
            // A beat that is missed makes the news older; the next one follows.
            let _ = timeout(BEAT_WAIT, put).await;
        }
    }
}
