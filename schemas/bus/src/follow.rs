//! A snapshot of the catalogue that follows its bucket: every role reads its own copy in memory and never
//! the bucket. The fold is pure (`schemas::catalog`); this is the loop around it.
//!
//! How old the copy is, is known only by something that comes back: with a [`Beat`] the node puts a number of its own
//! into the bucket each two seconds, and the copy is as old as the newest of them that its watch has returned.
//!
//! Changes that count together ([`crate::passage`]) are shown together. What was shown until a moment ago stays at hand
//! for calls that were admitted with it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::catalog::Catalog;
use schemas::id::SpoolId;
use schemas::node::BEAT_SECONDS;
use schemas::subject::{self, CATALOG_BUCKET};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::passage::Marks;
use crate::{BusError, Change, Entry, Expected, Kv};

/// The first and the longest pause before the bucket is watched again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Beats that may be under way; older ones are forgotten.
const BEATS_MAX: usize = 64;
/// How long a snapshot is kept after another has taken its place: no change takes longer to count.
const RECENT: Duration = Duration::from_secs(2);
/// Most of them that are kept.
const RECENT_MAX: usize = 8;

/// The newest catalogue a node knows; cheap to clone and to read.
#[derive(Clone, Default)]
pub struct CatalogView {
    current: Arc<ArcSwap<Catalog>>,
    recent: Arc<Mutex<Recent>>,
    fresh: Arc<Fresh>,
    beat: Option<Beat>,
}

/// Snapshots that were the newest, each with when it was replaced, the oldest first.
type Recent = VecDeque<(Instant, Arc<Catalog>)>;

/// When the view was last known to be the newest.
#[derive(Default)]
struct Fresh {
    /// Milliseconds of the node's monotonic clock, plus 1; 0 while the age is not measured.
    at_ms: AtomicU64,
}

impl CatalogView {
    /// A view whose age is measured, for a bucket that is elsewhere.
    pub fn measured(beat: Beat) -> Self {
        Self {
            beat: Some(beat),
            ..Self::default()
        }
    }

    /// The newest snapshot.
    pub fn load(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// A cheap guard on the newest snapshot, for code that does not keep it.
    pub fn peek(&self) -> arc_swap::Guard<Arc<Catalog>> {
        self.current.load()
    }

    /// Snapshots that others took the place of a moment ago, the newest first.
    pub fn recent(&self) -> Vec<Arc<Catalog>> {
        let now = Instant::now();
        let recent = self.recent.lock();
        let fresh = recent.iter().rev().take_while(|(at, _)| now < *at + RECENT);
        fresh.map(|(_, catalog)| Arc::clone(catalog)).collect()
    }

    /// Puts a catalogue in the place of the newest, for a view that follows no bucket.
    pub(crate) fn tell(&self, catalog: Arc<Catalog>) {
        self.show(catalog);
    }

    fn show(&self, catalog: Arc<Catalog>) {
        let now = Instant::now();
        // Whoever does not find the old one in its place finds it here.
        let mut recent = self.recent.lock();
        let old = self.current.swap(catalog);
        recent.push_back((now, old));
        while recent.len() > RECENT_MAX || recent.front().is_some_and(|(at, _)| now >= *at + RECENT) {
            recent.pop_front();
        }
    }

    /// How old the view may be at most, in milliseconds, at `now_ms` of the monotonic clock of its [`Beat`]. 0 where
    /// the bucket is in this process.
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        match self.fresh.at_ms.load(Ordering::Relaxed) {
            0 => 0,
            at_ms => now_ms.saturating_sub(at_ms - 1),
        }
    }

    fn fresh_at(&self, at_ms: u64) {
        self.fresh.at_ms.fetch_max(at_ms + 1, Ordering::Relaxed);
    }
}

/// By what the age of a view is measured.
#[derive(Clone)]
pub struct Beat {
    /// The node's spool: its beats have a key of their own.
    pub spool: SpoolId,
    /// This run of the node.
    pub boot: Arc<str>,
    /// The clock that ages are told on.
    pub clock: Arc<dyn Clock>,
}

/// Keeps `view` at the newest catalogue until `shutdown`. `ready` is cancelled once the view holds all that was in
/// the bucket at the start. A watch that ends is made anew, and the catalogue then folded from the beginning.
pub async fn run(
    kv: Arc<dyn Kv>,
    view: CatalogView,
    ready: CancellationToken,
    shutdown: CancellationToken,
) -> Result<(), BusError> {
    let mut follower = Follower {
        beats: view.beat.as_ref().map(Beats::new),
        kv,
        view,
        ready,
    };
    if let Some(beats) = &follower.beats {
        // Before anything came back, the view is as old as this run.
        follower.view.fresh_at(beats.clock.monotonic_ms());
    }
    let _ = shutdown.run_until_cancelled(follower.follow()).await;
    follower.farewell().await;
    Ok(())
}

struct Follower {
    kv: Arc<dyn Kv>,
    view: CatalogView,
    beats: Option<Beats>,
    ready: CancellationToken,
}

impl Follower {
    /// Never returns.
    async fn follow(&mut self) {
        let mut pause = PAUSE_MIN;
        let mut away = false;
        let mut ticks = interval(Duration::from_secs(BEAT_SECONDS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            match self.kv.watch(CATALOG_BUCKET).await {
                Ok(changes) => {
                    if std::mem::take(&mut away) {
                        info!("the catalogue is watched again");
                    }
                    pause = PAUSE_MIN;
                    self.listen(changes, &mut ticks).await;
                    warn!("the catalogue's watch ended and is made anew");
                }
                Err(problem) => {
                    if !std::mem::replace(&mut away, true) {
                        warn!(
                            error = &problem as &dyn std::error::Error,
                            "the catalogue cannot be watched; the last known one is served from"
                        );
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Folds what one watch tells, until it ends.
    async fn listen(&mut self, mut changes: mpsc::Receiver<Change>, ticks: &mut Interval) {
        let mut catalog = Catalog::default();
        let mut current = false;
        let mut untold = true;
        // Keys are gone that the view has: the view stays as it is.
        let mut held = false;
        let mut marks = Marks::default();
        loop {
            let mut over = false;
            let change = tokio::select! {
                change = changes.recv() => Some(change),
                () = marks.given_up() => None,
                _ = ticks.tick(), if self.beats.is_some() => {
                    self.beat();
                    continue;
                }
            };
            match change {
                Some(Some(Change::Entry(entry))) if entry.key.starts_with(subject::catalog::BEAT) => {
                    let returned = self.beats.as_mut().and_then(|beats| beats.returned(&entry));
                    if returned.is_some() && held && !catalog.keys().is_empty() {
                        // All that is gone was told before, and not all keys were.
                        held = false;
                        untold = true;
                    }
                    if let Some(at_ms) = returned.filter(|_| !held) {
                        self.view.fresh_at(at_ms);
                    }
                }
                Some(Some(Change::Entry(entry))) => {
                    over = marks.hear(&entry, Instant::now());
                    let goes = entry.value.is_none() && entry.key.starts_with(subject::catalog::KEY);
                    held = self.hold(held, goes);
                    apply(&mut catalog, &entry);
                    untold = true;
                }
                Some(Some(Change::Current)) => {
                    current = true;
                    held = self.hold(held, catalog.keys().is_empty());
                }
                Some(None) => return,
                None => warn!("half of a change is shown: whoever wrote it did not come to its end"),
            }
            if current && untold && !held && !marks.holds() && (over || changes.is_empty()) {
                untold = false;
                self.show(&catalog);
            }
        }
    }

    fn show(&self, catalog: &Catalog) {
        self.view.show(Arc::new(catalog.clone()));
        self.ready.cancel();
    }

    /// Whether the view is held as it is: keys are revoked and never deleted, so a shared bucket in which they are
    /// missing has lost them. Who is held serves from the last known catalogue until that is too old.
    fn hold(&self, held: bool, keys_are_missing: bool) -> bool {
        if held || !keys_are_missing || self.beats.is_none() || self.view.peek().keys().is_empty() {
            return held;
        }
        warn!(
            "the catalogue has lost keys: with none left the last known one is served from; restart a gateway to have \
             it written again from its files"
        );
        true
    }

    /// Sends a beat. Nobody waits for it: one that fails is one that does not come back.
    fn beat(&mut self) {
        let Some(beats) = &mut self.beats else {
            return;
        };
        while beats.sending.try_join_next().is_some() {}
        if beats.sending.len() < BEATS_MAX {
            let (key, value) = beats.next();
            let kv = Arc::clone(&self.kv);
            beats.sending.spawn(async move {
                let _ = kv.put(CATALOG_BUCKET, &key, value, Expected::Any).await;
            });
        }
    }

    /// Takes this run's beat out of the bucket.
    async fn farewell(&mut self) {
        if let Some(beats) = &mut self.beats {
            beats.sending.shutdown().await;
            let gone = self.kv.delete(CATALOG_BUCKET, &beats.key, Expected::Any);
            let _ = tokio::time::timeout(PAUSE_MAX, gone).await;
        }
    }
}

/// The beats of this run.
struct Beats {
    key: String,
    boot: Arc<str>,
    clock: Arc<dyn Clock>,
    number: u64,
    /// When each beat was sent, by number, oldest first.
    sent: VecDeque<(u64, u64)>,
    sending: JoinSet<()>,
}

impl Beats {
    fn new(beat: &Beat) -> Self {
        Self {
            key: format!("{}{}", subject::catalog::BEAT, beat.spool),
            boot: Arc::clone(&beat.boot),
            clock: Arc::clone(&beat.clock),
            number: 0,
            sent: VecDeque::new(),
            sending: JoinSet::new(),
        }
    }

    /// The key and value of the next beat, which counts as sent now.
    fn next(&mut self) -> (String, Bytes) {
        self.number += 1;
        if self.sent.len() == BEATS_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, self.clock.monotonic_ms()));
        (
            self.key.clone(),
            Bytes::from(format!("{} {}", self.boot, self.number)),
        )
    }

    /// A beat came back: when it was sent, if it was one of this run's.
    fn returned(&mut self, entry: &Entry) -> Option<u64> {
        let value = entry.value.as_deref().filter(|_| entry.key == self.key)?;
        let (boot, number) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        let number: u64 = number.parse().ok().filter(|_| boot == &*self.boot)?;
        let at_ms = self.sent.iter().find(|(sent, _)| *sent == number)?.1;
        self.sent.retain(|(sent, _)| *sent > number);
        Some(at_ms)
    }
}

fn apply(catalog: &mut Catalog, entry: &Entry) {
    if let Err(problem) = catalog.apply(entry.revision, &entry.key, entry.value.as_deref()) {
        warn!(
            record.revision = entry.revision,
            error = &problem as &dyn std::error::Error,
            "a catalogue record is left out"
        );
    }
}

#[cfg(test)]
mod tests;
