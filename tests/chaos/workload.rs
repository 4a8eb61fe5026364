//! The calls of a run: at a steady pace, half of them streamed, with keys of every kind of limit. What became of each is
//! written down beside the client's own log.

use std::sync::Arc;
use std::time::Duration;

use harness::client::Error;
use harness::{Client, End, chat, chat_streamed};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The key of calls that nothing but their idempotency key and wide limits bound.
pub(crate) const WIDE_KEY: &str = "sk-chaos-wide-0a1b2c3d4e5f";
/// The key that may run [`SLOTS`] calls at once.
pub(crate) const SLOTS_KEY: &str = "sk-chaos-slots-1b2c3d4e5f6a";
/// The key that may spend [`BUDGET_USD`] in all.
pub(crate) const BUDGET_KEY: &str = "sk-chaos-budget-2c3d4e5f6a7b";
/// The key that may make [`RATE`] calls a minute.
pub(crate) const RATE_KEY: &str = "sk-chaos-rate-3d4e5f6a7b8c";
/// Calls at once with [`SLOTS_KEY`].
pub(crate) const SLOTS: u64 = 6;
/// Calls a minute with [`RATE_KEY`].
pub(crate) const RATE: u64 = 60;
/// Dollars in all with [`BUDGET_KEY`].
pub(crate) const BUDGET_USD: &str = "0.05";
/// The model whose streams take their time, for [`SLOTS_KEY`].
pub(crate) const SLOW: &str = "slow";
/// After how long callers leave who do.
const LEAVE_AFTER: Duration = Duration::from_millis(60);
/// How long a caller waits for the next byte.
const PATIENCE: Duration = Duration::from_secs(45);

/// What a call is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Limits so wide that they refuse nothing.
    Wide,
    /// The same, and the caller leaves.
    Leaver,
    /// One of two with the same idempotency key, at two gateways at once.
    Keyed,
    /// Of a key that may run few at once.
    Slots,
    /// Of a key that may spend little.
    Budget,
    /// Of a key that may make few a minute.
    Rate,
}

/// What became of a call.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// What it is of.
    pub(crate) class: Class,
    /// When it began and ended, from the start of the load.
    pub(crate) from: Duration,
    /// When it ended.
    pub(crate) to: Duration,
    /// What it was answered, `None` without the head of an answer.
    pub(crate) status: Option<u16>,
    /// The code of an error.
    pub(crate) code: String,
    /// All of the answer came, and it said so.
    pub(crate) whole: bool,
    /// It was told when to come again.
    pub(crate) retry_after: bool,
    /// The id that its answer had.
    pub(crate) request_id: String,
    /// What went wrong, for people.
    pub(crate) told: String,
}

/// Calls under way.
pub(crate) struct Workload {
    caller: JoinSet<()>,
    end: CancellationToken,
    made: Arc<Mutex<Vec<Made>>>,
}

impl Workload {
    /// Begins to call, once in `every`.
    pub(crate) fn start(client: &Client, every: Duration) -> Self {
        let (end, made) = (CancellationToken::new(), Arc::default());
        let mut caller = JoinSet::new();
        let pace = Pace {
            client: client.patience(PATIENCE),
            start: Instant::now(),
            made: Arc::clone(&made),
        };
        caller.spawn(pace.run(every, end.clone()));
        Self { caller, end, made }
    }

    /// Makes no more calls and waits for the answers of those that were made.
    pub(crate) async fn end(mut self) -> Vec<Made> {
        self.end.cancel();
        while self.caller.join_next().await.is_some() {}
        std::mem::take(&mut *self.made.lock())
    }
}

#[derive(Clone)]
struct Pace {
    client: Client,
    start: Instant,
    made: Arc<Mutex<Vec<Made>>>,
}

impl Pace {
    async fn run(self, every: Duration, end: CancellationToken) {
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
            for call in self.calls(number) {
                calls.spawn(call);
            }
            while let Some(ended) = calls.try_join_next() {
                self.note(ended);
            }
        }
        while let Some(ended) = calls.join_next().await {
            self.note(ended);
        }
    }

    /// A caller that objects to what it was sent panics: that is a call gone wrong, too.
    fn note(&self, ended: Result<(), JoinError>) {
        let Err(problem) = ended else {
            return;
        };
        let now = self.start.elapsed();
        self.made.lock().push(Made {
            class: Class::Wide,
            from: now,
            to: now,
            status: Some(0),
            code: String::new(),
            whole: false,
            retry_after: false,
            request_id: String::new(),
            told: format!("its caller objects: {problem}"),
        });
    }

    /// What comes at a turn: streamed or not in turns, of each class with a rhythm of its own.
    fn calls(&self, number: u64) -> Vec<impl Future<Output = ()> + Send + use<>> {
        let (class, key) = match number % 20 {
            3 | 11 | 17 => (Class::Slots, SLOTS_KEY),
            5 => (Class::Budget, BUDGET_KEY),
            7 | 15 => (Class::Rate, RATE_KEY),
            9 => (Class::Leaver, WIDE_KEY),
            13 => (Class::Keyed, WIDE_KEY),
            _ => (Class::Wide, WIDE_KEY),
        };
        let client = self.client.with_key(key);
        let streamed = class == Class::Slots || class == Class::Leaver || number.is_multiple_of(2);
        let clients = match class {
            Class::Keyed => {
                let keyed = client.with_header("idempotency-key", &format!("chaos-{number}"));
                vec![keyed.clone(), keyed]
            }
            _ => vec![client],
        };
        let one = |client: Client| {
            let pace = self.clone();
            async move { pace.call(&client, (class, streamed), number).await }
        };
        clients.into_iter().map(one).collect()
    }

    async fn call(&self, client: &Client, (class, streamed): (Class, bool), number: u64) {
        let model = if class == Class::Slots { SLOW } else { "m" };
        let mut body = if streamed {
            chat_streamed(model)
        } else {
            chat(model)
        };
        if class == Class::Keyed {
            // By this its rows are found.
            body["user"] = format!("chaos-{number}").into();
        }
        let mut made = Made {
            class,
            from: self.start.elapsed(),
            to: Duration::ZERO,
            status: None,
            code: String::new(),
            whole: false,
            retry_after: false,
            request_id: String::new(),
            told: String::new(),
        };
        if class == Class::Leaver {
            client.leave_chat_after(&body, LEAVE_AFTER).await;
            return;
        }
        let answered = if streamed {
            stream(client, &body, &mut made).await
        } else {
            plain(client, &body, &mut made).await
        };
        if let Err(error) = answered {
            made.told = format!("{error:?}");
        }
        made.to = self.start.elapsed();
        self.made.lock().push(made);
    }
}

async fn plain(client: &Client, body: &Value, made: &mut Made) -> Result<(), Error> {
    let answer = client.try_post_chat(body).await?;
    made.status = Some(answer.status);
    made.whole = answer.status == 200;
    made.retry_after = !answer.header("retry-after").is_empty();
    answer.request_id().clone_into(&mut made.request_id);
    if answer.status != 200 {
        made.code = answer.error_code();
        made.told = answer.text();
    }
    Ok(())
}

async fn stream(client: &Client, body: &Value, made: &mut Made) -> Result<(), Error> {
    let stream = client.try_stream_chat(body).await?;
    made.retry_after = !stream.header("retry-after").is_empty();
    stream.request_id().clone_into(&mut made.request_id);
    let transcript = stream.collect().await;
    made.status = Some(transcript.status);
    made.whole = transcript.status == 200 && transcript.end == End::Done;
    if !made.whole {
        let error = transcript.error();
        error["code"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut made.code);
        made.told = format!("{:?} {error}", transcript.end);
    }
    Ok(())
}
