//! Streams whose dialect is the same on both sides: each event is looked at once, where it stands, and passes as it
//! came but for its model's name.

use std::ops::Range;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::answer::{self, Answer};
use crate::chat::chunk::{self, Finish};
use crate::chat::ends::Called;
use crate::chat::error::{UpstreamError, parse_upstream_error};
use crate::chat::numbers::{self, Numbers};
use crate::chat::response::usage::Usage;
use crate::chat::usage::UsageFacts;
use crate::dialect::Dialect;
use crate::member::members;
use crate::splice::Edit;
use crate::{chat, messages, responses, sse};

pub(crate) mod hidden;
pub mod history;
pub mod private;
pub mod request;
pub mod stop;

/// Name of the event by which some upstreams of chat tell that they failed.
const ERROR_EVENT: &[u8] = b"error";

/// Words of which every event that tells of a call has one, in any dialect.
const CALL_WORDS: [&str; 6] = [
    "tool_call",
    "function_call",
    "tool_use",
    "input_json_delta",
    "functionCall",
    "partialArgs",
];

/// What an event of a passing stream says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts of one event, and any of them may hold together"
)]
pub struct Seen {
    /// The JSON string value of the model's name, quotes included, in bytes of the event's data.
    pub model_span: Option<Range<usize>>,
    /// Something generated is in it.
    pub content: bool,
    /// A tool is called in it.
    pub called: bool,
    /// Bytes of generated text in it.
    pub output_bytes: usize,
    /// Usage as the event tells it; in Messages, where events tell parts, with those that were told before.
    pub usage: Option<UsageFacts>,
    /// The usage is of one choice, also where no choice stands beside it.
    pub usage_of_one: bool,
    /// The index of the choice that it is about, where there may be several and it is about one.
    pub choice: Option<u64>,
    /// The upstream says that it failed.
    pub error: Option<UpstreamError>,
    /// The answer has ended: only its end mark may follow.
    pub finished: bool,
    /// It is the end mark: nothing follows.
    pub end: bool,
    /// Choices that ended in it and had not ended before, where there may be several (chat, completions); else 0.
    pub choices_ended: usize,
    /// The upstream says that generation was aborted, and no more.
    pub aborted: bool,
    /// It carries usage and nothing else: it is for callers who asked for that.
    pub usage_alone: bool,
    /// It is not for this caller.
    pub hidden: bool,
    /// What else has to be changed in it, in bytes of the event's data and in rising order.
    pub edits: Vec<Edit>,
}

/// The event is not of the dialect, or breaks its order: it is not for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the event is not of the dialect")]
pub struct Foreign;

/// Reads the events of one passing stream.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and there is one per stream"
)]
pub enum Skimmer {
    /// Of chat and completions.
    Chat {
        /// Reads chunks.
        chunks: chat::chunk::skimmer::Skimmer,
        /// Choices that have called tools.
        called: Called,
        /// Choices that have ended.
        ended: Called,
        /// Calls, told apart by their numbers.
        numbers: Numbers,
        /// For a caller who does not want to see thoughts.
        hides_thoughts: bool,
    },
    /// Of Messages.
    Messages(messages::passage::Skimmer),
    /// Of Responses.
    Responses(responses::passage::Skimmer),
}

impl Skimmer {
    /// For one stream of a dialect.
    pub fn new(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Messages => Self::Messages(messages::passage::Skimmer::default()),
            Dialect::Responses => Self::Responses(responses::passage::Skimmer::default()),
            Dialect::Chat | Dialect::Completions | Dialect::Embeddings | Dialect::Gemini => Self::Chat {
                chunks: chat::chunk::skimmer::Skimmer::default(),
                called: Called::default(),
                ended: Called::default(),
                numbers: Numbers::default(),
                hides_thoughts: false,
            },
        }
    }

    /// The same for a caller who does not want to see thoughts.
    #[must_use]
    pub fn without_thoughts(self) -> Self {
        match self {
            Self::Chat {
                chunks,
                called,
                ended,
                numbers,
                ..
            } => Self::Chat {
                chunks,
                called,
                ended,
                numbers,
                hides_thoughts: true,
            },
            Self::Messages(skimmer) => Self::Messages(skimmer.without_thoughts()),
            Self::Responses(skimmer) => Self::Responses(skimmer.without_thoughts()),
        }
    }

    /// Reads one event that is no comment.
    #[inline]
    pub fn skim(&mut self, event: &sse::Event) -> Result<Seen, Foreign> {
        match self {
            Self::Chat {
                chunks,
                called,
                ended,
                numbers,
                hides_thoughts,
            } => {
                let mut seen = chat_event((chunks, numbers), (called, ended), event)?;
                if *hides_thoughts {
                    seen.edits.extend(chat::thoughts::edits(&event.data));
                    seen.edits.sort_by_key(|edit| edit.range.start);
                }
                Ok(seen)
            }
            Self::Messages(skimmer) => skimmer.skim(event),
            Self::Responses(skimmer) => skimmer.skim(event),
        }
    }
}

/// True when an event that cannot be read may have told of a call.
pub fn may_call(data: &[u8]) -> bool {
    let has = |word: &&str| memmem::find(data, word.as_bytes()).is_some();
    CALL_WORDS.iter().any(has)
}

/// Events that tell of something generated, beside those whose type ends with [`DELTA`].
const SPEAKING: [&str; 3] = [
    "content_block_start",
    "content_block_delta",
    "response.output_item.done",
];
/// What types of events end with that tell of the next piece.
const DELTA: &str = ".delta";

/// True when an event that is readable, and none of its dialect where it stands, tells of something generated: without
/// it the answer would be another.
pub fn speaks(data: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Told<'a> {
        #[serde(rename = "type", default)]
        kind: serde_json::Value,
        #[serde(borrow, default)]
        choices: Option<&'a RawValue>,
    }
    let Ok(told) = serde_json::from_slice::<Told<'_>>(data) else {
        return false;
    };
    let speaking = |kind: &str| SPEAKING.contains(&kind) || kind.ends_with(DELTA);
    told.kind.as_str().is_some_and(speaking)
        || told
            .choices
            .is_some_and(|choices| !matches!(choices.get(), "null" | "[]"))
}

/// Reads an event of chat or completions.
fn chat_event(
    (skimmer, numbers): (&mut chat::chunk::skimmer::Skimmer, &mut Numbers),
    (called, ended): (&mut Called, &mut Called),
    event: &sse::Event,
) -> Result<Seen, Foreign> {
    if chunk::is_done(&event.data) {
        return Ok(Seen {
            end: true,
            ..Seen::default()
        });
    }
    if event.name.as_deref().is_some_and(|name| name == ERROR_EVENT) {
        return Ok(Seen {
            error: Some(parse_upstream_error(&event.data).unwrap_or_default()),
            ..Seen::default()
        });
    }
    let chunk = skimmer.skim(&event.data).map_err(|_| Foreign)?;
    if !chunk.listed && chunk.usage.is_none() && chunk.error.is_none() {
        // No chunk: whatever it says is not for callers.
        return Err(Foreign);
    }
    let calls = chunk.ends.called != Called::default();
    let mut edits = chunk.ends.edits(called);
    if calls || chunk.grammar.is_some() {
        edits.extend(numbers.edits(&event.data, chunk.grammar));
        edits.sort_by_key(|edit| edit.range.start);
    }
    Ok(Seen {
        hidden: false,
        called: calls,
        edits,
        usage_alone: chunk::usage_only(&chunk),
        aborted: chunk.finish.is_some_and(Finish::failed),
        finished: chunk.finish.is_some(),
        end: false,
        choices_ended: ended.add_new(chunk.ends.ended),
        model_span: chunk.model_span,
        content: chunk.content,
        output_bytes: chunk.output_bytes,
        usage: chunk.usage,
        usage_of_one: chunk.usage_of_one,
        choice: chunk.choice,
        error: chunk.error,
    })
}

/// Reads a passing answer that came whole.
pub fn answer(dialect: Dialect, body: &[u8]) -> Result<Answer, answer::Error> {
    match dialect {
        Dialect::Messages => messages::passage::skim_answer(body),
        Dialect::Responses => responses::passage::skim_answer(body),
        Dialect::Chat | Dialect::Completions | Dialect::Embeddings | Dialect::Gemini => answer::skim(body),
    }
}

/// Those edits of an answer of chat or completions that came whole, and one more by which it tells this usage in the
/// place of its own.
pub fn usage(body: &[u8], edits: Vec<Edit>, facts: UsageFacts) -> Vec<Edit> {
    let all = members(body).unwrap_or_default();
    let Some(place) = all.into_iter().rev().find(|member| member.name == "usage") else {
        return edits;
    };
    let Ok(with) = serde_json::to_vec(&Usage::of(facts)) else {
        return edits;
    };
    let range = place.value;
    let outside = |edit: &Edit| edit.range.end <= range.start || edit.range.start >= range.end;
    let mut edits: Vec<Edit> = edits.into_iter().filter(outside).collect();
    edits.push(Edit {
        range,
        with: with.into(),
    });
    edits
}

/// What gives the calls of a passing answer that came whole the ids that they lack.
pub fn ids(dialect: Dialect, body: &[u8], answer: &Answer) -> Vec<Edit> {
    match dialect {
        Dialect::Chat if answer.ends.called != Called::default() => numbers::ids(body),
        _ => Vec::new(),
    }
}

/// What takes the thoughts out of a passing answer that came whole.
pub fn thoughts(dialect: Dialect, body: &[u8]) -> Vec<Edit> {
    match dialect {
        Dialect::Messages => messages::passage::thoughts(body).into_iter().collect(),
        Dialect::Responses => responses::passage::thoughts(body).into_iter().collect(),
        Dialect::Chat | Dialect::Completions | Dialect::Embeddings | Dialect::Gemini => {
            chat::thoughts::edits(body)
        }
    }
}

/// The event that ends a stream whose answer has ended, where the upstream left it out; `None` where an answer without
/// it is not whole.
pub const fn end_mark(dialect: Dialect) -> Option<&'static [u8]> {
    match dialect {
        Dialect::Chat | Dialect::Completions => Some(b"data: [DONE]\n\n"),
        Dialect::Messages => Some(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        Dialect::Responses | Dialect::Embeddings | Dialect::Gemini => None,
    }
}
