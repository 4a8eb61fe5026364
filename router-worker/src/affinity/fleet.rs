//! What routers tell each other of sessions and loads: records of sessions are written one at a time for each, watches
//! tell what others wrote, and every router tells how many calls it runs. Nobody waits for any of it.

use std::sync::Arc;
use std::time::Duration;

use bus::watching::{Told, watch_for_good};
use bus::{Expected, Kv};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use schemas::affinity::load::{Calls, record_key};
use schemas::affinity::record::Record;
use schemas::node::BEAT_SECONDS;
use schemas::subject::{AFFINITY_BUCKET, ENGINE_BUCKET};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Affinity;
use super::places::Write;
use crate::limiter::Limiter;

/// How long one write may take.
pub(crate) const WRITE_WITHIN: Duration = Duration::from_millis(500);
/// Records that are written at once.
const WRITES_AT_ONCE: usize = 64;
/// How often a router tells its calls when they change.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// How often it tells them when they do not.
const BEAT: Duration = Duration::from_secs(BEAT_SECONDS);

/// Shares sessions and loads until `shutdown`. `boot` names this run of the router; `alone`: there is no other one, so
/// nobody is told how many calls it runs.
pub(crate) async fn run(
    (affinity, limiter): (&Affinity, &Limiter),
    kv: Arc<dyn Kv>,
    (boot, alone): (&str, bool),
    shutdown: CancellationToken,
) {
    let Some(mut queued) = affinity.queued.lock().take() else {
        return shutdown.cancelled().await;
    };
    let member = Member {
        affinity,
        limiter,
        kv,
        calls_key: record_key(boot),
    };
    let loads = async {
        if alone {
            return std::future::pending().await;
        }
        tokio::join!(member.follow_calls(), member.tell());
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = member.follow_sessions() => {}
        () = member.write(&mut queued) => {}
        () = loads => {}
    }
    if !alone {
        member.take_back().await;
    }
}

/// This router as one of its fleet.
struct Member<'a> {
    affinity: &'a Affinity,
    limiter: &'a Limiter,
    kv: Arc<dyn Kv>,
    /// The record of its own calls.
    calls_key: String,
}

impl Member<'_> {
    /// Watches where sessions go. Never returns.
    async fn follow_sessions(&self) {
        watch_for_good(&self.kv, AFFINITY_BUCKET, |told| match told {
            Told::Begin => self.affinity.places.lock().begin_anew(),
            Told::Entry(entry) => {
                let record = entry.value.as_deref().and_then(Record::decode);
                let mut places = self.affinity.places.lock();
                places.learn(&entry.key, entry.revision, record);
            }
            Told::Current => {}
        })
        .await;
    }

    /// Watches how many calls others run. Never returns.
    async fn follow_calls(&self) {
        watch_for_good(&self.kv, ENGINE_BUCKET, |told| match told {
            Told::Begin => {
                self.affinity.others.write().clear();
                self.limiter.begin_anew();
            }
            Told::Entry(entry) if self.limiter.take(&entry) => {}
            Told::Entry(entry) if entry.key != self.calls_key => {
                let now_ms = self.affinity.clock.monotonic_ms();
                let mut others = self.affinity.others.write();
                others.apply((&entry.key, entry.revision), entry.value.as_deref(), now_ms);
                self.limiter.hear_of_others(|name| others.calls(name));
            }
            Told::Entry(_) | Told::Current => {}
        })
        .await;
    }

    /// Writes what is queued. Never returns.
    async fn write(&self, queued: &mut mpsc::Receiver<Arc<str>>) {
        let mut writing = FuturesUnordered::new();
        loop {
            tokio::select! {
                key = queued.recv(), if writing.len() < WRITES_AT_ONCE => match key {
                    Some(key) => writing.push(self.write_one(key)),
                    None => return,
                },
                Some(()) = writing.next() => {}
            }
        }
    }

    /// Writes a record as often as it changes meanwhile.
    async fn write_one(&self, key: Arc<str>) {
        loop {
            let write = self.affinity.places.lock().begin(&key);
            let Some(write) = write else {
                return;
            };
            let revision = match self.affinity.bus(Some(&self.kv)) {
                Some(kv) => self.put(kv, &key, write).await,
                None => None,
            };
            if !self.affinity.places.lock().wrote(&key, revision) {
                return;
            }
        }
    }

    /// The revision of what was written; `None` when it was not, or nobody knows.
    async fn put(&self, kv: &Arc<dyn Kv>, key: &str, write: Write) -> Option<u64> {
        let written = match write {
            Write::Put { record, life_ms } => {
                let bytes = Bytes::from(record.encode().ok()?);
                let place = (AFFINITY_BUCKET, key);
                let put = kv.put_for(place, bytes, Expected::Any, Duration::from_millis(life_ms));
                timeout(WRITE_WITHIN, put).await
            }
            Write::Delete { revision } => {
                let expected = if revision == 0 {
                    Expected::Any
                } else {
                    Expected::Revision(revision)
                };
                timeout(WRITE_WITHIN, kv.delete(AFFINITY_BUCKET, key, expected)).await
            }
        };
        match written {
            Ok(Ok(revision)) => Some(revision),
            Ok(Err(problem)) => {
                debug!(
                    error = &problem as &dyn std::error::Error,
                    "others do not hear where a session is"
                );
                None
            }
            Err(_) => {
                self.affinity.is_away();
                None
            }
        }
    }

    /// Tells how many calls this router runs, and lets those go who are silent. Never returns.
    async fn tell(&self) {
        let mut ticks = interval(TELL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told: Option<(Calls, Instant)> = None;
        loop {
            ticks.tick().await;
            self.sweep().await;
            self.limiter.write(&self.kv).await;
            let mut calls = self.affinity.own_calls();
            calls.0.extend(self.limiter.counts());
            let is_known = told
                .as_ref()
                .is_some_and(|(known, at)| *known == calls && at.elapsed() < BEAT);
            if is_known {
                continue;
            }
            let Ok(bytes) = calls.encode() else {
                continue;
            };
            let put = self
                .kv
                .put(ENGINE_BUCKET, &self.calls_key, Bytes::from(bytes), Expected::Any);
            if let Ok(Ok(_)) = timeout(WRITE_WITHIN, put).await {
                told = Some((calls, Instant::now()));
            }
        }
    }

    async fn sweep(&self) {
        let now_ms = self.affinity.clock.monotonic_ms();
        let gone = {
            let mut others = self.affinity.others.write();
            let gone = others.sweep(now_ms);
            if !gone.is_empty() {
                self.limiter.hear_of_others(|name| others.calls(name));
            }
            gone
        };
        for (key, revision) in gone {
            let deletion = self.kv.delete(ENGINE_BUCKET, &key, Expected::Revision(revision));
            // Whoever else sees it takes it away, or its writer is back.
            let _ = timeout(WRITE_WITHIN, deletion).await;
        }
    }

    /// This router runs nothing any more.
    async fn take_back(&self) {
        let deletion = self.kv.delete(ENGINE_BUCKET, &self.calls_key, Expected::Any);
        // If it stays, it counts as silent soon.
        let _ = timeout(WRITE_WITHIN, deletion).await;
    }
}
