//! The durable log is one stream. Publishing keeps a window of messages under way, each with its id; reading goes
//! through consumers that are kept while readers go on where they stopped, and made anew when one begins elsewhere.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use parking_lot::Mutex;
use schemas::subject;
use tokio::time::Instant;

use super::api::{Api, NoStream, is_subject};
use super::failure;
use super::link::Touched;
use super::pull::{Event, Pull, Pulled, Start};
use crate::{BATCH_MESSAGES_MAX, BusError, LogState, Message, Stored};

/// Messages that are under way to the log at once.
const WINDOW_MESSAGES: usize = 256;
/// Readers that may be at different places without losing their consumers.
const READERS_MAX: usize = 4;
/// How long after its time a request for messages is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// The log.
pub(super) struct Log {
    api: Api,
    readers: Mutex<Vec<Reader>>,
}

/// A consumer that goes on at `next`.
struct Reader {
    pull: Pull,
    next: u64,
}

impl Log {
    pub(super) fn new(api: Api) -> Self {
        Self {
            api,
            readers: Mutex::default(),
        }
    }

    /// See [`crate::Bus::publish`].
    pub(super) async fn publish(&self, messages: &[Message]) -> Result<Vec<u64>, BusError> {
        if let Some(strange) = messages.iter().find(|message| !is_subject(&message.subject)) {
            return Err(BusError::Refused {
                reason: format!("{:?} is no subject", strange.subject),
            });
        }
        let until = Instant::now() + self.api.deadline;
        let publish = self.store(messages, until);
        let prefix = subject::EVENTS.trim_end_matches('>');
        self.api
            .link
            .call(Touched::Prefix(prefix), self.api.deadline, publish)
            .await
    }

    async fn store(&self, messages: &[Message], until: Instant) -> Result<Vec<u64>, BusError> {
        let mut places = vec![0; messages.len()];
        let mut first_of_id: HashMap<&str, usize> = HashMap::with_capacity(messages.len());
        let mut again = Vec::new();
        let mut window = VecDeque::with_capacity(WINDOW_MESSAGES);
        for (index, message) in messages.iter().enumerate() {
            let first = *first_of_id.entry(&message.id).or_insert(index);
            if first != index {
                again.push((index, first));
                continue;
            }
            if window.len() == WINDOW_MESSAGES
                && let Some((index, ack)) = window.pop_front()
            {
                places[index] = self.stored(&messages[index], ack, until).await?;
            }
            let sent = self
                .api
                .context
                .send_publish(message.subject.clone(), envelope(message));
            window.push_back((index, sent.await.map_err(failure::of_publish)?));
        }
        for (index, ack) in window {
            places[index] = self.stored(&messages[index], ack, until).await?;
        }
        for (index, first) in again {
            places[index] = places[first];
        }
        Ok(places)
    }

    /// Where a message was stored, now or earlier.
    async fn stored(
        &self,
        message: &Message,
        ack: PublishAckFuture,
        until: Instant,
    ) -> Result<u64, BusError> {
        let acked = match ack.await {
            Err(problem) if failure::is_undecided(&problem) => {
                self.api
                    .publish_undecided(&message.subject, || envelope(message), until)
                    .await
            }
            acked => acked,
        };
        acked.map(|ack| ack.sequence).map_err(failure::of_publish)
    }

    /// See [`crate::Bus::state`].
    pub(super) async fn state(&self) -> Result<LogState, BusError> {
        let info = self.api.stream_info(subject::EVENTS_STREAM).await?;
        let info = info.ok_or_else(|| failure::away(NoStream(subject::EVENTS_STREAM.to_owned())))?;
        let last = info.state.last_sequence;
        let micros = info.created.unix_timestamp_nanos() / 1_000;
        Ok(LogState {
            created_at_micros: i64::try_from(micros).unwrap_or_default(),
            first: match info.state.messages {
                0 => last + 1,
                _ => info.state.first_sequence,
            },
            last,
        })
    }

    /// See [`crate::Bus::read`].
    pub(super) async fn read(
        &self,
        from: u64,
        messages_max: usize,
        wait: Duration,
    ) -> Result<Vec<Stored>, BusError> {
        let messages_max = messages_max.min(BATCH_MESSAGES_MAX);
        let until = Instant::now() + wait;
        if let Some(reader) = self.take(from) {
            let read = self.read_on(reader, messages_max, until).await;
            if matches!(read, Ok(_) | Err(BusError::Trimmed { .. })) {
                return read;
            }
            // Its consumer has gone, or messages were lost: a new one reads them again.
        }
        self.check_begin(from).await?;
        let pull = Pull::open(
            &self.api,
            subject::EVENTS_STREAM,
            subject::EVENTS,
            Start::At(from),
        )
        .await?;
        let reader = Reader { pull, next: from };
        self.read_on(reader, messages_max, until).await
    }

    fn take(&self, from: u64) -> Option<Reader> {
        let mut readers = self.readers.lock();
        let index = readers.iter().position(|reader| reader.next == from)?;
        Some(readers.remove(index))
    }

    /// Keeps a reader for whoever goes on there; the one that was used longest ago makes room.
    fn put_back(&self, reader: Reader) {
        let mut readers = self.readers.lock();
        if readers.len() >= READERS_MAX {
            readers.remove(0);
        }
        readers.push(reader);
    }

    /// [`BusError::Trimmed`] when the log begins after `from`.
    async fn check_begin(&self, from: u64) -> Result<(), BusError> {
        let first = self.state().await?.first;
        if from < first {
            return Err(BusError::Trimmed { first });
        }
        Ok(())
    }

    async fn read_on(
        &self,
        mut reader: Reader,
        messages_max: usize,
        until: Instant,
    ) -> Result<Vec<Stored>, BusError> {
        let mut all = Vec::new();
        if messages_max > 0 {
            reader.collect(messages_max, &mut all).await?;
        }
        if all.is_empty() && reader.wait(until, &mut all).await? && messages_max > 1 {
            reader.collect(messages_max - 1, &mut all).await?;
        }
        let expected = reader.next;
        if all.first().is_none_or(|first| first.sequence != expected) {
            self.check_begin(expected).await?;
        }
        if let Some(last) = all.last() {
            reader.next = last.sequence + 1;
        }
        self.put_back(reader);
        Ok(all)
    }
}

impl Reader {
    /// What is there.
    async fn collect(&mut self, messages_max: usize, all: &mut Vec<Stored>) -> Result<(), BusError> {
        self.pull.ask_now(messages_max).await?;
        loop {
            match self.pull.next(GRACE).await? {
                Event::Message(pulled) => self.keep(pulled, all),
                Event::Done => return Ok(()),
                Event::Alive => {}
            }
        }
    }

    /// The next message; `false` when none comes in time.
    async fn wait(&mut self, until: Instant, all: &mut Vec<Stored>) -> Result<bool, BusError> {
        loop {
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Ok(false);
            }
            self.pull.ask_within(1, wait, None).await?;
            loop {
                match self.pull.next(wait + GRACE).await? {
                    Event::Message(pulled) => self.keep(pulled, all),
                    Event::Done => break,
                    Event::Alive => {}
                }
            }
            if !all.is_empty() {
                return Ok(true);
            }
        }
    }

    /// A consumer that was made for a place beyond the end begins at the end: what is before the place is not asked for.
    fn keep(&self, pulled: Pulled, all: &mut Vec<Stored>) {
        let Pulled {
            sequence, message, ..
        } = pulled;
        if sequence < self.next {
            return;
        }
        let id = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get(NATS_MESSAGE_ID));
        all.push(Stored {
            sequence,
            message: Message {
                subject: message.subject.to_string(),
                id: id.map(ToString::to_string).unwrap_or_default(),
                payload: message.payload,
            },
        });
    }
}

fn envelope(message: &Message) -> PublishMessage {
    PublishMessage::build()
        .message_id(&message.id)
        .payload(message.payload.clone())
}
