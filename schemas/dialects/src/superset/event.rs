//! One event of a streamed answer.
//!
//! What every decoder guarantees and every encoder may rely on: [`Event::Begin`] comes once, first; a call is begun
//! before it gets arguments, its number counts from 0 without gaps, its id and name are not empty and no other call
//! has its id; once a later call has begun, an earlier one may still get arguments; [`Event::Finish`] comes once,
//! after all content; [`Event::Usage`] may come anywhere after the beginning, the last one counts; nothing is empty.
//! That the stream is over is no event: the decoder's `finish` says whether it may be.

use super::answer::Finish;
use super::request::ProofMaker;
use crate::chat::usage::UsageFacts;

/// What is new in a streamed answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The upstream has begun to answer.
    Begin,
    /// A piece of a thought.
    Thinking(&'a str),
    /// What proves the thought so far. With `redacted`, a whole thought that only its maker can read.
    Proof {
        /// Who made it.
        maker: ProofMaker,
        /// It.
        text: &'a str,
        /// It is a thought of its own.
        redacted: bool,
    },
    /// A piece of the answer's text.
    Text(&'a str),
    /// A piece of a refusal.
    Refusal(&'a str),
    /// A call begins.
    Call {
        /// Its number, from 0.
        call: u32,
        /// Its id.
        id: &'a str,
        /// The tool's name.
        name: &'a str,
        /// The group the tool belongs to.
        namespace: Option<&'a str>,
        /// The tool takes free text: its arguments are that text.
        custom: bool,
    },
    /// A piece of the arguments of a call.
    Arguments {
        /// The call's number.
        call: u32,
        /// The piece.
        piece: &'a str,
    },
    /// The upstream wants to see this again with the call.
    CallProof {
        /// The call's number.
        call: u32,
        /// Who made it.
        maker: ProofMaker,
        /// It.
        text: &'a str,
    },
    /// What the upstream reports; the last one counts.
    Usage(UsageFacts),
    /// The answer has ended.
    Finish {
        /// Why.
        finish: Finish,
        /// The text that ended it, where the upstream tells.
        stop_sequence: Option<&'a str>,
    },
}

impl Event<'_> {
    /// True for what a caller sees as generated: nothing may be tried elsewhere after it.
    pub const fn is_content(&self) -> bool {
        !matches!(self, Self::Begin | Self::Usage(_) | Self::Finish { .. })
    }

    /// Bytes of generated text in it.
    pub const fn output_bytes(&self) -> usize {
        match self {
            Self::Thinking(text) | Self::Text(text) | Self::Refusal(text) => text.len(),
            Self::Call { name, .. } => name.len(),
            Self::Arguments { piece, .. } => piece.len(),
            _ => 0,
        }
    }
}

/// Where decoders put events.
pub trait Sink {
    /// Takes the next one.
    fn event(&mut self, event: Event<'_>);
}

impl<F: FnMut(Event<'_>)> Sink for F {
    fn event(&mut self, event: Event<'_>) {
        self(event);
    }
}

/// What an encoder of answers must know of the request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The request's id as 32 hexadecimal digits: ids of answers and items are made of it.
    pub id: String,
    /// When it was admitted, seconds since the epoch.
    pub created: i64,
    /// The model's name as the caller wrote it.
    pub model: String,
    /// The caller asked for usage on his stream.
    pub include_usage: bool,
    /// The caller wants no thoughts.
    pub hides_thinking: bool,
    /// Estimated tokens of the prompt, for dialects that tell usage before they know it.
    pub prompt_tokens: u64,
    /// The caller's own request body, for dialects whose answers repeat some of it.
    pub request: bytes::Bytes,
}
