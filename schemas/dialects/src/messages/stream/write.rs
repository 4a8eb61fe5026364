//! The events of a Messages stream in bytes.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use serde::Serialize;

use crate::messages::usage::Figures;
use crate::superset::event::Reply;

#[derive(Serialize)]
struct Start<'a> {
    r#type: &'static str,
    message: Message<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: &'a str,
    content: [(); 0],
    stop_reason: Option<&'a str>,
    stop_sequence: Option<&'a str>,
    usage: Figures,
}

#[derive(Serialize)]
struct End<'a> {
    r#type: &'static str,
    delta: Ending<'a>,
    usage: &'a Figures,
}

#[derive(Serialize)]
struct Ending<'a> {
    stop_reason: &'a str,
    stop_sequence: Option<&'a str>,
}

/// The first event.
pub(super) fn message_start(reply: &Reply, out: &mut BytesMut) {
    let start = Start {
        r#type: "message_start",
        message: Message {
            id: format!("msg_{}", reply.id),
            r#type: "message",
            role: "assistant",
            model: &reply.model,
            content: [],
            stop_reason: None,
            stop_sequence: None,
            usage: Figures::provisional(reply),
        },
    };
    out.put_slice(b"event: message_start\ndata: ");
    json(&start, out);
    out.put_slice(b"\n\n");
}

/// The last two events.
pub(super) fn message_end(reason: &str, stop_sequence: Option<&str>, usage: &Figures, out: &mut BytesMut) {
    let end = End {
        r#type: "message_delta",
        delta: Ending {
            stop_reason: reason,
            stop_sequence,
        },
        usage,
    };
    out.put_slice(b"event: message_delta\ndata: ");
    json(&end, out);
    out.put_slice(b"\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

/// What a block is when it opens.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Opening<'a> {
    /// A text.
    Text {
        /// None yet.
        text: &'a str,
    },
    /// A thought.
    Thinking {
        /// None yet.
        thinking: &'a str,
        /// None yet.
        signature: &'a str,
    },
    /// A thought that only its maker can read.
    RedactedThinking {
        /// It.
        data: &'a str,
    },
    /// A call.
    ToolUse {
        /// Its id.
        id: &'a str,
        /// The tool's name.
        name: &'a str,
        /// None yet.
        input: Empty,
    },
}

/// An object without members.
#[derive(Serialize)]
pub(super) struct Empty {}

/// A block opens.
pub(super) fn block_start(index: u64, opening: &Opening<'_>, out: &mut BytesMut) {
    out.put_slice(b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
    number(index, out);
    out.put_slice(b",\"content_block\":");
    json(opening, out);
    out.put_slice(b"}\n\n");
}

/// What a block gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delta {
    /// Text.
    Text,
    /// Words of a thought.
    Thinking,
    /// What proves the thought.
    Signature,
    /// Arguments of a call.
    Arguments,
}

/// A block gets more.
pub(super) fn block_delta(index: u64, delta: Delta, text: &str, out: &mut BytesMut) {
    let before: &[u8] = match delta {
        Delta::Text => b",\"delta\":{\"type\":\"text_delta\",\"text\":",
        Delta::Thinking => b",\"delta\":{\"type\":\"thinking_delta\",\"thinking\":",
        Delta::Signature => b",\"delta\":{\"type\":\"signature_delta\",\"signature\":",
        Delta::Arguments => b",\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":",
    };
    out.put_slice(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    number(index, out);
    out.put_slice(before);
    json(text, out);
    out.put_slice(b"}}\n\n");
}

/// A block closes.
pub(super) fn block_stop(index: u64, out: &mut BytesMut) {
    out.put_slice(b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":");
    number(index, out);
    out.put_slice(b"}\n\n");
}

fn number(number: u64, out: &mut BytesMut) {
    let written = write!(out, "{number}");
    debug_assert!(written.is_ok(), "the buffer grows");
}

fn json<T: Serialize + ?Sized>(value: &T, out: &mut BytesMut) {
    let written = serde_json::to_writer(out.writer(), value);
    debug_assert!(written.is_ok(), "text and numbers always serialize");
}
