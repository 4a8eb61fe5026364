//! Watching a bucket: what is there, then every change, for as long as somebody listens.
//!
//! A consumer that outlived a lost connection is followed by another that begins after the last change that was seen.
//! When the consumer is gone, its server restarted, and nothing is certain: the whole bucket is read again, what was
//! already told is left out, and keys that are no longer there are told as deletions.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::api::Api;
use super::kv;
use super::pull::{Event, Pull, Pulled, Start};
use crate::layout::{bucket_stream, bucket_subject};
use crate::{BusError, Change, Entry, Revision};

/// Changes that may wait for the watcher; the server keeps what comes on top.
const CHANGES_MAX: usize = 1_024;
/// Messages of one request.
const REQUEST_MESSAGES: usize = 256;
/// How long one request lasts, how often it gives a sign of life, and how long none is waited for.
const REQUEST_WAIT: Duration = Duration::from_secs(30);
const ALIVE: Duration = Duration::from_secs(1);
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long it is asked whether a consumer is still there.
const LOOK_WAIT: Duration = Duration::from_secs(1);
/// Pauses after failures.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What was told of a key: its revision, and the checksum of its value, should revisions begin again.
type Told = HashMap<String, (Revision, Option<u32>)>;

/// A watch.
pub(super) struct Watch {
    api: Api,
    bucket: String,
    /// The prefix of the keys' subjects.
    prefix: String,
    changes: mpsc::Sender<Change>,
    told: Told,
    /// The newest place that was seen.
    last: Revision,
    /// [`Change::Current`] was told.
    is_current: bool,
    /// While the bucket is read (again): the keys that are there.
    present: Option<HashSet<String>>,
}

/// Why a watch goes no further.
enum End {
    /// Nobody listens.
    Unheard,
    /// Its consumer failed.
    Failed(BusError),
}

impl From<BusError> for End {
    fn from(error: BusError) -> Self {
        Self::Failed(error)
    }
}

impl Watch {
    /// Begins to watch; the caller runs [`Watch::run`].
    pub(super) async fn open(
        api: &Api,
        bucket: &str,
    ) -> Result<(Self, Pull, mpsc::Receiver<Change>), BusError> {
        if !kv::is_bucket(bucket) {
            return Err(BusError::Refused {
                reason: format!("{bucket:?} is no name of a bucket"),
            });
        }
        let (sender, changes) = mpsc::channel(CHANGES_MAX);
        let mut watch = Self {
            api: api.clone(),
            bucket: bucket.to_owned(),
            prefix: bucket_subject(bucket),
            changes: sender,
            told: Told::new(),
            last: 0,
            is_current: false,
            present: None,
        };
        let pull = watch.read_all().await?;
        Ok((watch, pull, changes))
    }

    /// Tells changes until nobody listens or until `shutdown`.
    pub(super) async fn run(mut self, pull: Pull, shutdown: CancellationToken) {
        let changes = self.changes.clone();
        tokio::select! {
            () = self.follow_on(pull) => {}
            () = changes.closed() => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn follow_on(&mut self, mut pull: Pull) {
        let mut pause = PAUSE_MIN;
        loop {
            let before = self.last;
            match self.follow(&mut pull).await {
                End::Unheard => return,
                End::Failed(problem) => warn!(
                    bucket = self.bucket,
                    error = &problem as &dyn std::error::Error,
                    "the watch is interrupted"
                ),
            }
            if self.last != before {
                pause = PAUSE_MIN;
            }
            let mut told = false;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                match self.go_on(&pull).await {
                    Ok(next) => {
                        pull = next;
                        break;
                    }
                    // That the connection is down was told.
                    Err(_) if told || self.api.link.check().is_err() => {}
                    Err(problem) => {
                        told = true;
                        warn!(
                            bucket = self.bucket,
                            error = &problem as &dyn std::error::Error,
                            "the watch cannot go on yet"
                        );
                    }
                }
            }
            info!(bucket = self.bucket, revision = self.last, "the watch goes on");
        }
    }

    /// The consumer after `old`.
    async fn go_on(&mut self, old: &Pull) -> Result<Pull, BusError> {
        self.api.link.check()?;
        // One whose server does not answer for it counts as gone.
        let is_there = timeout(LOOK_WAIT, old.is_there()).await;
        if self.present.is_none() && matches!(is_there, Ok(Ok(true))) {
            self.consumer(Start::At(self.last + 1)).await
        } else {
            self.read_all().await
        }
    }

    async fn read_all(&mut self) -> Result<Pull, BusError> {
        let pull = self.consumer(Start::Newest).await?;
        self.present = Some(HashSet::new());
        // Places may have begun again, and nothing may be there.
        self.last = 0;
        Ok(pull)
    }

    async fn consumer(&self, start: Start) -> Result<Pull, BusError> {
        let stream = bucket_stream(&self.bucket);
        Pull::open(&self.api, &stream, &format!("{}>", self.prefix), start).await
    }

    /// Tells what a consumer sends, until it fails.
    async fn follow(&mut self, pull: &mut Pull) -> End {
        match self.try_follow(pull).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn try_follow(&mut self, pull: &mut Pull) -> Result<std::convert::Infallible, End> {
        if pull.pending == 0 {
            self.all_is_read().await?;
        }
        while self.present.is_some() {
            self.read_on(pull).await?;
        }
        loop {
            pull.ask_within(REQUEST_MESSAGES, REQUEST_WAIT, Some(ALIVE))
                .await?;
            loop {
                match pull.next(SILENCE_MAX).await? {
                    Event::Message(pulled) => self.take(pulled).await?,
                    Event::Done => break,
                    Event::Alive => {}
                }
            }
        }
    }

    /// Takes what is there now. The last message may tell of others behind it that were replaced before they were
    /// sent: that nothing more comes is what ends the reading.
    async fn read_on(&mut self, pull: &mut Pull) -> Result<(), End> {
        pull.ask_now(REQUEST_MESSAGES).await?;
        let mut came = 0;
        loop {
            match pull.next(SILENCE_MAX).await? {
                Event::Message(pulled) => {
                    came += 1;
                    self.take(pulled).await?;
                }
                Event::Done => break,
                Event::Alive => {}
            }
        }
        if came < REQUEST_MESSAGES {
            self.all_is_read().await?;
        }
        Ok(())
    }

    async fn take(&mut self, pulled: Pulled) -> Result<(), End> {
        let pending = pulled.pending;
        if let Some(entry) = self.entry(pulled) {
            if let Some(present) = &mut self.present {
                present.insert(entry.key.clone());
            }
            self.last = self.last.max(entry.revision);
            self.tell(entry).await?;
        }
        if pending == 0 && self.present.is_some() {
            self.all_is_read().await?;
        }
        Ok(())
    }

    fn entry(&self, pulled: Pulled) -> Option<Entry> {
        let Pulled {
            sequence, message, ..
        } = pulled;
        let key = message.subject.strip_prefix(&self.prefix)?.to_owned();
        let is_deletion = message.headers.as_ref().is_some_and(kv::is_deletion);
        Some(Entry {
            key,
            value: (!is_deletion).then_some(message.payload),
            revision: sequence,
        })
    }

    /// Tells an entry, unless it is what was told last of its key.
    async fn tell(&mut self, entry: Entry) -> Result<(), End> {
        let mark = (entry.revision, entry.value.as_deref().map(crc32fast::hash));
        if self.told.get(&entry.key) == Some(&mark) {
            return Ok(());
        }
        self.told.insert(entry.key.clone(), mark);
        self.send(Change::Entry(entry)).await
    }

    /// The bucket was read: keys that were told and are not there any more are deletions.
    async fn all_is_read(&mut self) -> Result<(), End> {
        let Some(present) = self.present.take() else {
            return Ok(());
        };
        let gone: Vec<Entry> = self
            .told
            .iter()
            .filter(|(key, (_, value))| value.is_some() && !present.contains(*key))
            .map(|(key, (revision, _))| Entry {
                key: key.clone(),
                value: None,
                revision: self.last.max(*revision),
            })
            .collect();
        self.told.retain(|key, _| present.contains(key));
        for entry in gone {
            self.send(Change::Entry(entry)).await?;
        }
        if !self.is_current {
            self.is_current = true;
            self.send(Change::Current).await?;
        }
        Ok(())
    }

    async fn send(&self, change: Change) -> Result<(), End> {
        self.changes.send(change).await.map_err(|_| End::Unheard)
    }
}
