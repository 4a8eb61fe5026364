//! The paths on which a model is asked for something. A request is told by its path alone, so that calls need not go
//! through the router; the router knows the same paths for the methods that they do not take.

use axum::extract::{Request, State};
use axum::response::Response;
use schemas::event::request::Surface;

use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::dispatch;
use crate::state::Shared;

/// What a path asks of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// An answer on a surface.
    On(Surface),
    /// Of chat when there are messages in the body, of completions otherwise.
    ByBody,
}

impl Call {
    /// Every path with what it asks.
    pub(crate) const PATHS: [(&'static str, Self); 7] = [
        ("/v1/chat/completions", Self::On(Surface::Chat)),
        ("/v1/messages", Self::On(Surface::Messages)),
        ("/v1/responses", Self::On(Surface::Responses)),
        ("/v1/embeddings", Self::On(Surface::Embeddings)),
        ("/v1/completions", Self::On(Surface::Completions)),
        ("/anthropic/v1/messages", Self::On(Surface::Messages)),
        ("/completion", Self::ByBody),
    ];

    /// What `path` asks, `None` when it asks nothing of a model.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let found = Self::PATHS.iter().find(|(own, _)| *own == path);
        found.map(|(_, call)| *call)
    }

    /// The surface, as far as the path tells it.
    pub(crate) const fn surface(self) -> Surface {
        match self {
            Self::On(surface) => surface,
            Self::ByBody => Surface::Completions,
        }
    }
}

/// Answers a call, streamed or whole.
pub(crate) async fn create(
    State(state): State<Shared>,
    arrival: Arrival,
    caller: Caller,
    request: Request,
) -> Response {
    match arrival.call {
        Some(call) => dispatch::run(state, (arrival, call), caller, request).await,
        None => arrival.refuse(&crate::layers::no_path()),
    }
}
