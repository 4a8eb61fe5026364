//! Questions and answers are plain messages. A question that reaches a server which has just left is sent back
//! unanswered, and asked again of whoever is left.

use std::time::Duration;

use async_nats::{Client, HeaderMap, Message, Request, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::failure;
use super::link::{Link, Touched};
use crate::{BusError, Question};

/// Questions that wait for one server.
const WAITING_MAX: usize = 64;
/// Answers that are under way at once for one server.
const ANSWERS_MAX: usize = 256;
/// The servers of a subject.
const GROUP: &str = "waybill";
/// The header of a question that is sent back.
const LEFT: &str = "Waybill-Left";

/// See [`crate::Bus::ask`].
pub(super) async fn ask(
    link: &Link,
    subject: &str,
    question: Bytes,
    wait: Duration,
) -> Result<Bytes, BusError> {
    let ask = async {
        loop {
            let request = Request::new().payload(question.clone()).timeout(Some(wait));
            let asked = link.client.send_request(subject.to_owned(), request).await;
            let answer = asked.map_err(|problem| failure::of_request(subject, problem))?;
            if !is_sent_back(&answer) {
                return Ok(answer.payload);
            }
        }
    };
    link.call(Touched::Subject(subject), wait, ask).await
}

fn is_sent_back(answer: &Message) -> bool {
    answer
        .headers
        .as_ref()
        .is_some_and(|headers| headers.get(LEFT).is_some())
}

/// See [`crate::Bus::serve`].
pub(super) async fn serve(
    link: &Link,
    subject: &str,
    deadline: Duration,
    tasks: (&TaskTracker, CancellationToken),
) -> Result<mpsc::Receiver<Question>, BusError> {
    let subscribe = async {
        let group = GROUP.to_owned();
        let joined = link.client.queue_subscribe(subject.to_owned(), group).await;
        let subscriber = joined.map_err(failure::away)?;
        link.settle().await?;
        Ok(subscriber)
    };
    let subscriber = link.call(Touched::Subject(subject), deadline, subscribe).await?;
    let (sender, questions) = mpsc::channel(WAITING_MAX);
    let client = link.client.clone();
    let (tracker, shutdown) = tasks;
    tracker.spawn(hand_over(client, subscriber, sender, shutdown));
    Ok(questions)
}

/// Hands questions over until nobody takes them; then what is still under way is sent back.
async fn hand_over(
    client: Client,
    mut subscriber: Subscriber,
    questions: mpsc::Sender<Question>,
    shutdown: CancellationToken,
) {
    let mut answers = tokio::task::JoinSet::new();
    loop {
        while answers.len() >= ANSWERS_MAX || answers.try_join_next().is_some() {
            if answers.len() >= ANSWERS_MAX {
                answers.join_next().await;
            }
        }
        let message = tokio::select! {
            biased;
            () = questions.closed() => break,
            () = shutdown.cancelled() => break,
            message = subscriber.next() => message,
        };
        let Some(message) = message else {
            return;
        };
        let Some(to) = message.reply.clone() else {
            continue;
        };
        let (reply, answer) = oneshot::channel();
        let question = Question {
            payload: message.payload.clone(),
            reply,
        };
        if questions.send(question).await.is_err() {
            send_back(&client, &message).await;
            break;
        }
        let client = client.clone();
        answers.spawn(async move {
            // One that is let fall leaves the asker to his timeout.
            if let Ok(answer) = answer.await
                && let Err(problem) = client.publish(to, answer).await
            {
                warn!(
                    error = &problem as &dyn std::error::Error,
                    "an answer could not be sent"
                );
            }
        });
    }
    if subscriber.drain().await.is_ok() {
        while let Some(message) = subscriber.next().await {
            send_back(&client, &message).await;
        }
    }
    while answers.join_next().await.is_some() {}
}

async fn send_back(client: &Client, message: &Message) {
    if let Some(to) = message.reply.clone() {
        let mut headers = HeaderMap::new();
        headers.insert(LEFT, "1");
        drop(client.publish_with_headers(to, headers, Bytes::new()).await);
    }
}
