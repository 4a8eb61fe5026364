//! Reading a stream in order: a consumer of one's own that keeps no acknowledgments, asked for messages as they are
//! wanted. Its deliveries are counted, so that one that got lost is noticed. A consumer lives in one server's memory:
//! whoever uses it makes a new one when it fails.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{self, AckPolicy, DeliverPolicy, IntoConsumerConfig, pull};
use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;

use super::api::Api;
use super::failure::{self, Strange};
use super::link::Disconnected;
use crate::BusError;

/// How long a consumer lives that nobody asks.
const IDLE_MAX: Duration = Duration::from_mins(2);

/// Statuses of a request for messages.
const STATUS_ALIVE: u16 = 100;
const STATUS_NONE: u16 = 404;
const STATUS_EXPIRED: u16 = 408;

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// At this sequence.
    At(u64),
    /// With the newest message of each subject.
    Newest,
    /// The same without payloads, whose sizes are told instead.
    Sizes,
}

/// What came.
#[derive(Debug)]
pub(super) enum Event {
    /// A message.
    Message(Pulled),
    /// The request is done: all that it asked for came, or its time is over.
    Done,
    /// A sign of life.
    Alive,
}

/// A message of the stream.
#[derive(Debug)]
pub(super) struct Pulled {
    /// Its place in the stream.
    pub(super) sequence: u64,
    /// Messages that stand behind it.
    pub(super) pending: u64,
    /// The message.
    pub(super) message: Message,
}

/// A request for messages.
#[derive(Debug, Clone, Copy, Serialize)]
struct Request {
    batch: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_wait: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_heartbeat: Option<u64>,
}

#[derive(Serialize)]
struct Creation<'a> {
    stream_name: &'a str,
    config: consumer::Config,
}

/// A consumer, and the messages it sends.
pub(super) struct Pull {
    api: Api,
    stream: String,
    name: String,
    inbox: String,
    subscriber: Subscriber,
    losses: watch::Receiver<u64>,
    /// Messages that came.
    delivered: u64,
    /// Messages that are still to come for the request at the server.
    wanted: usize,
    /// Messages that stood there when the consumer was made.
    pub(super) pending: u64,
}

impl Pull {
    /// Makes a consumer of the messages of `stream` whose subject `filter` names.
    pub(super) async fn open(api: &Api, stream: &str, filter: &str, start: Start) -> Result<Self, BusError> {
        let losses = api.link.losses();
        api.link.check()?;
        let inbox = api.link.client.new_inbox();
        let name = inbox.rsplit('.').next().unwrap_or_default().to_owned();
        let subscriber = api
            .link
            .client
            .subscribe(inbox.clone())
            .await
            .map_err(failure::away)?;
        let operation = format!("CONSUMER.CREATE.{stream}.{name}.{filter}");
        let creation = Creation {
            stream_name: stream,
            config: config(&name, filter, start),
        };
        let creation = serde_json::to_vec(&creation).map_err(failure::away)?;
        let pending = match api.request(&operation, creation.into()).await? {
            Ok::<consumer::Info, _>(info) => info.num_pending,
            Err(said) => return Err(failure::away(said)),
        };
        Ok(Self {
            api: api.clone(),
            stream: stream.to_owned(),
            name,
            inbox,
            subscriber,
            losses,
            delivered: 0,
            wanted: 0,
            pending,
        })
    }

    /// Asks for what is there now, at most `messages_max`.
    pub(super) async fn ask_now(&mut self, messages_max: usize) -> Result<(), BusError> {
        let request = Request {
            batch: messages_max,
            expires: None,
            no_wait: true,
            idle_heartbeat: None,
        };
        self.ask(request).await
    }

    /// Asks for what comes within `wait`, at most `messages_max`; signs of life come every `alive`.
    pub(super) async fn ask_within(
        &mut self,
        messages_max: usize,
        wait: Duration,
        alive: Option<Duration>,
    ) -> Result<(), BusError> {
        let request = Request {
            batch: messages_max,
            expires: Some(nanos(wait)),
            no_wait: false,
            idle_heartbeat: alive.map(nanos),
        };
        self.ask(request).await
    }

    async fn ask(&mut self, request: Request) -> Result<(), BusError> {
        self.api.link.check()?;
        self.wanted = request.batch;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.name);
        let payload = serde_json::to_vec(&request).map_err(failure::away)?;
        let publish = self
            .api
            .link
            .client
            .publish_with_reply(subject, self.inbox.clone(), payload.into());
        let sent = timeout(self.api.deadline, publish).await;
        sent.map_err(|_| BusError::Timeout)?.map_err(failure::away)
    }

    /// What comes next for the request, within `wait`.
    pub(super) async fn next(&mut self, wait: Duration) -> Result<Event, BusError> {
        if self.wanted == 0 {
            return Ok(Event::Done);
        }
        let message = tokio::select! {
            biased;
            came = timeout(wait, self.subscriber.next()) => came.map_err(|_| Strange::Silent)?,
            _ = self.losses.changed() => return Err(failure::away(Disconnected)),
        };
        let message = message.ok_or(Strange::Unsubscribed)?;
        match message.status.map(|status| status.as_u16()) {
            None | Some(200) => self.delivery(message).map(Event::Message),
            Some(STATUS_ALIVE) => Ok(Event::Alive),
            Some(STATUS_NONE | STATUS_EXPIRED) => {
                self.wanted = 0;
                Ok(Event::Done)
            }
            Some(status) => Err(Strange::Ended(status).into()),
        }
    }

    fn delivery(&mut self, message: Message) -> Result<Pulled, BusError> {
        let place = message
            .reply
            .as_deref()
            .and_then(place)
            .ok_or(Strange::Unreadable)?;
        if place.delivery != self.delivered + 1 {
            return Err(Strange::Gap.into());
        }
        self.delivered = place.delivery;
        self.wanted -= 1;
        Ok(Pulled {
            sequence: place.sequence,
            pending: place.pending,
            message,
        })
    }

    /// True when the server still has the consumer.
    pub(super) async fn is_there(&self) -> Result<bool, BusError> {
        let operation = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        match self.api.request(&operation, Bytes::new()).await? {
            Ok::<consumer::Info, _>(_) => Ok(true),
            Err(said) => match said.error_code() {
                ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::STREAM_NOT_FOUND => Ok(false),
                _ => Err(failure::away(said)),
            },
        }
    }
}

fn config(name: &str, filter: &str, start: Start) -> consumer::Config {
    let deliver_policy = match start {
        Start::At(sequence) => DeliverPolicy::ByStartSequence {
            start_sequence: sequence.max(1),
        },
        Start::Newest | Start::Sizes => DeliverPolicy::LastPerSubject,
    };
    pull::Config {
        name: Some(name.to_owned()),
        deliver_policy,
        ack_policy: AckPolicy::None,
        filter_subject: filter.to_owned(),
        inactive_threshold: IDLE_MAX,
        num_replicas: 1,
        memory_storage: true,
        headers_only: start == Start::Sizes,
        ..pull::Config::default()
    }
    .into_consumer_config()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a delivery's reply subject tells.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    sequence: u64,
    delivery: u64,
    pending: u64,
}

/// `$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<delivery>.<time>.<pending>`, or with `<domain>.<account>` before the
/// stream and possibly more words behind.
fn place(reply: &str) -> Option<Place> {
    let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let skipped = match words.len() {
        7 => 3,
        9.. => 5,
        _ => return None,
    };
    let number = |index: usize| words.get(skipped + index)?.parse::<u64>().ok();
    Some(Place {
        sequence: number(0)?,
        delivery: number(1)?,
        pending: number(3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_delivery_is_read_from_both_forms_of_its_reply() {
        let expected = Some(Place {
            sequence: 20,
            delivery: 30,
            pending: 40,
        });
        assert_eq!(place("$JS.ACK.S.c.1.20.30.1700000000.40"), expected);
        assert_eq!(place("$JS.ACK._.hash.S.c.1.20.30.1700000000.40"), expected);
        assert_eq!(place("$JS.ACK.d.hash.S.c.1.20.30.1700000000.40.token"), expected);
        for strange in [
            "",
            "$JS.ACK.",
            "$JS.ACK.S.c.1.x.30.17.40",
            "$JS.ACK.S.c.1.20.30.17",
        ] {
            assert_eq!(place(strange), None, "{strange}");
        }
    }
}
