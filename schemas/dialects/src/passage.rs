//! Streams whose dialect is the same on both sides: each event is looked at once, where it stands, and passes as it
//! came but for its model's name.

use std::ops::Range;

use crate::chat::error::UpstreamError;
use crate::chat::usage::UsageFacts;

/// What an event of a passing stream says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The JSON string value of the model's name, quotes included, in bytes of the event's data.
    pub model_span: Option<Range<usize>>,
    /// Something generated is in it.
    pub content: bool,
    /// Bytes of generated text in it.
    pub output_bytes: usize,
    /// Usage, the last figures of every class merged with those of earlier events.
    pub usage: Option<UsageFacts>,
    /// The upstream says that it failed.
    pub error: Option<UpstreamError>,
    /// The answer has ended: only its end mark may follow.
    pub finished: bool,
    /// It is the end mark: nothing follows.
    pub end: bool,
    /// Choices that ended in it, where there may be several (chat, completions); else 0.
    pub choices_ended: usize,
    /// The upstream says that generation was aborted, and no more.
    pub aborted: bool,
    /// It carries usage and nothing else: it is for callers who asked for that.
    pub usage_alone: bool,
}

/// The event is not of the dialect, or breaks its order: it is not for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the event is not of the dialect")]
pub struct Foreign;
