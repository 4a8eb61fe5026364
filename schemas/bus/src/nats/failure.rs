//! What servers and the client say when something fails, in the words of the ports.

use std::error::Error;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{RequestError, RequestErrorKind};

use crate::BusError;

/// The server or the account has no room left.
const NO_ROOM: [ErrorCode; 3] = [
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::MEMORY_RESOURCES_EXCEEDED,
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
];
/// What will be refused however often it is tried.
const HOPELESS: [ErrorCode; 5] = [
    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM,
    ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM,
    ErrorCode::MESSAGE_INCR_DISABLED,
    ErrorCode::MESSAGE_INCR_INVALID,
    ErrorCode::MESSAGE_COUNTER_BROKEN,
];

/// An answer that nobody expects.
#[derive(Debug, thiserror::Error)]
pub(super) enum Strange {
    /// It cannot be read.
    #[error("the server's answer cannot be read")]
    Unreadable,
    /// The consumer ended: its status.
    #[error("the consumer ended with status {0}")]
    Ended(u16),
    /// Messages of a consumer are missing.
    #[error("messages got lost on their way")]
    Gap,
    /// Nothing came, not even a sign of life.
    #[error("the server has fallen silent")]
    Silent,
    /// The subscription ended.
    #[error("the subscription ended")]
    Unsubscribed,
}

impl From<Strange> for BusError {
    fn from(strange: Strange) -> Self {
        Self::Unavailable(Box::new(strange))
    }
}

/// The server's own error inside an error of the client.
pub(super) fn server_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a jetstream::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<jetstream::Error>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// True when the server cannot say yet whether it has this id: ask again.
pub(super) fn is_undecided(error: &PublishError) -> bool {
    server_error(error)
        .is_some_and(|error| error.error_code() == ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT)
}

/// Why a publish failed.
pub(super) fn of_publish(error: PublishError) -> BusError {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => return BusError::Conflict,
        // The pipe breaks when the connection ends while the answer is awaited.
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => return BusError::Timeout,
        PublishErrorKind::MaxPayloadExceeded => {
            return BusError::Refused {
                reason: "the message is larger than the server's max_payload; raise it or send less"
                    .to_owned(),
            };
        }
        _ => {}
    }
    let Some(said) = server_error(&error) else {
        return away(error);
    };
    match said.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => BusError::Conflict,
        ErrorCode::STREAM_STORE_FAILED if is_limit(said) => BusError::Full,
        code if NO_ROOM.contains(&code) => BusError::Full,
        code if HOPELESS.contains(&code) => BusError::Refused {
            reason: said.to_string(),
        },
        _ => away(error),
    }
}

/// A store fails by one code when it is full and when its disk fails; only its words tell which.
fn is_limit(said: &jetstream::Error) -> bool {
    said.to_string().contains("maximum")
}

/// Why a question on `subject` failed.
pub(super) fn of_request(subject: &str, error: RequestError) -> BusError {
    match error.kind() {
        RequestErrorKind::NoResponders => BusError::NoResponder {
            subject: subject.to_owned(),
        },
        RequestErrorKind::TimedOut => BusError::Timeout,
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => BusError::Refused {
            reason: error.to_string(),
        },
        RequestErrorKind::Other => BusError::Unavailable(Box::new(error)),
    }
}

/// Any other failure: the bus is away.
pub(super) fn away(error: impl Error + Send + Sync + 'static) -> BusError {
    BusError::Unavailable(Box::new(error))
}
