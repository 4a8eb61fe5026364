//! One event of a Messages stream as it is on the wire, its values where they stand.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A member that may be anything.
pub(super) type Told<'a> = Option<&'a RawValue>;

/// An event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Told<'a>,
    pub(super) message: Option<Message<'a>>,
    pub(super) index: Option<u64>,
    pub(super) content_block: Option<Block<'a>>,
    pub(super) delta: Option<Delta<'a>>,
    pub(super) usage: Told<'a>,
    pub(super) error: Told<'a>,
}

/// What `message_start` holds, or a whole answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Told<'a>,
    pub(super) id: Told<'a>,
    pub(super) model: Told<'a>,
    pub(super) content: Option<Vec<Block<'a>>>,
    pub(super) stop_reason: Told<'a>,
    pub(super) stop_sequence: Told<'a>,
    pub(super) usage: Told<'a>,
    pub(super) error: Told<'a>,
}

/// A block of content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Told<'a>,
    pub(super) text: Told<'a>,
    pub(super) thinking: Told<'a>,
    pub(super) signature: Told<'a>,
    pub(super) data: Told<'a>,
    pub(super) id: Told<'a>,
    pub(super) name: Told<'a>,
    pub(super) input: Told<'a>,
}

/// What is new in a block, or how the answer ended.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Told<'a>,
    pub(super) text: Told<'a>,
    pub(super) thinking: Told<'a>,
    pub(super) signature: Told<'a>,
    pub(super) partial_json: Told<'a>,
    pub(super) stop_reason: Told<'a>,
    pub(super) stop_sequence: Told<'a>,
}

/// An event of which nothing but its type is read.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
}

/// Types whose members must have the shapes above.
const KNOWN: [&str; 8] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "error",
];

impl<'a> Frame<'a> {
    /// Reads the data of an event; `None` for what is not of the dialect. Of an event whose type is not known nothing
    /// else is read.
    pub(super) fn read(data: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        if let Ok(frame) = serde_json::from_str(text) {
            return Some(frame);
        }
        let bare: Bare<'_> = serde_json::from_str(text).ok()?;
        let kind = bare.kind.filter(|_| !KNOWN.contains(&word(bare.kind)))?;
        Some(Self {
            kind: Some(kind),
            ..Self::default()
        })
    }
}

/// A word without escapes, which all words of the dialect are; empty for anything else.
pub(super) fn word<'a>(raw: Told<'a>) -> &'a str {
    let inner = |raw: &'a RawValue| raw.get().strip_prefix('"')?.strip_suffix('"');
    raw.and_then(inner).unwrap_or_default()
}

/// A string, empty for one that is not told; `None` for what is no string.
pub(super) fn text(raw: Told<'_>) -> Option<Cow<'_, str>> {
    let Some(raw) = raw else {
        return Some(Cow::Borrowed(""));
    };
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}
