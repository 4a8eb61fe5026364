//! The wire formats, and which of them pass to which.

use schemas::event::request::Surface;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI's older completions.
    Completions,
    /// OpenAI embeddings.
    Embeddings,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Gemini's generateContent, spoken by upstreams only.
    Gemini,
}

impl Dialect {
    /// What callers of a surface speak.
    pub const fn of_surface(surface: Surface) -> Self {
        match surface {
            Surface::Completions => Self::Completions,
            Surface::Embeddings => Self::Embeddings,
            Surface::Responses => Self::Responses,
            Surface::Messages => Self::Messages,
            // What passes as it is is read by its path: see [`crate::raw::dialect`].
            Surface::Chat | Surface::Proxy => Self::Chat,
        }
    }
}
