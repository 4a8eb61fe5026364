//! From one dialect to another: picks the codecs, and gives tools their names back.

use bytes::{Bytes, BytesMut};

use crate::chat::usage::UsageFacts;
use crate::dialect::Dialect;
use crate::processor::{Kind, Processor};
use crate::superset::answer::{Answer, Broken};
use crate::superset::event::{Event, Reply, Sink};
use crate::superset::request::{Conversation, Encoded, Refusal, Target, Unmappable};
use crate::superset::tool::{Names, Tool};
use crate::{chat, completions, gemini, messages, responses, sse};

mod arguments;
pub mod names;
mod order;
pub mod stream;

/// The way of one answer.
#[derive(Debug, Clone)]
pub struct Way {
    /// What the upstream speaks.
    pub upstream: Dialect,
    /// What the caller speaks.
    pub caller: Dialect,
    /// What the model writes as text and means otherwise.
    pub processor: Option<Kind>,
    /// The tools of the request.
    pub tools: std::sync::Arc<[Tool]>,
    /// Tools that the upstream was told of under other names.
    pub names: Names,
    /// What the encoder must know of the request.
    pub reply: Reply,
}

impl Way {
    fn processor(&self) -> Option<Processor> {
        let kind = self.processor?;
        Some(Processor::new(kind, &self.tools, &self.reply.id))
    }
}

/// A whole answer in the caller's dialect, and what is in it.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The body for the caller.
    pub body: Bytes,
    /// Something was generated.
    pub content: bool,
    /// Bytes of generated text.
    pub output_bytes: usize,
    /// What the upstream reported; what it left out is estimated.
    pub usage: Option<UsageFacts>,
}

/// Translates a whole answer.
pub fn whole(way: &Way, body: &[u8]) -> Result<Whole, Broken> {
    let mut answer = decode_answer(way.upstream, body)?;
    if let Some(processor) = way.processor() {
        answer = processor.answer(answer);
    }
    names::renamed(&mut answer, &way.names);
    let output_bytes = answer.output_bytes();
    let told = answer.usage.and_then(UsageFacts::counted);
    let written = u64::try_from(output_bytes).unwrap_or(u64::MAX);
    let usage = told
        .unwrap_or_default()
        .completed(way.reply.prompt_tokens, written);
    answer.usage = Some(usage);
    Ok(Whole {
        body: encode_answer(way.caller, &answer, &way.reply),
        content: answer.has_content(),
        output_bytes,
        usage: told.map(|_| usage),
    })
}

/// Reads a caller's request.
pub fn decode_request(caller: Dialect, body: &[u8]) -> Result<Conversation, Refusal> {
    let mut conversation = match caller {
        Dialect::Chat => chat::request::decode(body),
        Dialect::Completions => completions::request::decode(body),
        Dialect::Responses => responses::request::decode(body),
        Dialect::Messages => messages::request::decode(body),
        Dialect::Embeddings | Dialect::Gemini => Err(Refusal::InvalidJson),
    }?;
    order::results_follow(&mut conversation.turns);
    Ok(conversation)
}

/// Writes a request for an upstream.
pub fn encode_request(
    upstream: Dialect,
    conversation: &Conversation,
    target: &Target<'_>,
) -> Result<Encoded, Unmappable> {
    let choice = conversation.tool_choice.as_ref();
    if choice.is_some_and(|choice| choice.demands_the_impossible(&conversation.tools)) {
        return Err(Unmappable {
            param: "tool_choice".into(),
            problem: "there is no tool that could be called".into(),
        });
    }
    match upstream {
        Dialect::Chat => chat::request::encode(conversation, target),
        Dialect::Responses => responses::request::encode(conversation, target),
        Dialect::Messages => messages::request::encode(conversation, target),
        Dialect::Gemini => gemini::request::encode(conversation, target),
        Dialect::Completions | Dialect::Embeddings => Err(Unmappable {
            param: "model".into(),
            problem: "it is served by no provider that takes conversations".into(),
        }),
    }
}

/// Reads an upstream's whole answer.
pub fn decode_answer(upstream: Dialect, body: &[u8]) -> Result<Answer, Broken> {
    match upstream {
        Dialect::Chat => chat::response::decode(body),
        Dialect::Responses => responses::response::decode(body),
        Dialect::Messages => messages::response::decode(body),
        Dialect::Gemini => gemini::response::decode(body),
        Dialect::Completions | Dialect::Embeddings => Err(Broken::Malformed),
    }
}

/// Writes a whole answer for a caller.
pub fn encode_answer(caller: Dialect, answer: &Answer, reply: &Reply) -> Bytes {
    match caller {
        Dialect::Completions => completions::response::encode(answer, reply),
        Dialect::Responses => responses::response::encode(answer, reply),
        Dialect::Messages => messages::response::encode(answer, reply),
        Dialect::Chat | Dialect::Embeddings | Dialect::Gemini => chat::response::encode(answer, reply),
    }
}

/// Reads an upstream's stream.
#[derive(Debug)]
pub enum Decoder {
    /// Of chat.
    Chat(Box<chat::stream::Decoder>),
    /// Of Responses.
    Responses(Box<responses::stream::Decoder>),
    /// Of Messages.
    Messages(Box<messages::stream::Decoder>),
    /// Of Gemini.
    Gemini(Box<gemini::stream::Decoder>),
}

impl Decoder {
    /// For one stream. An upstream that takes no conversations is read as chat.
    pub fn new(upstream: Dialect) -> Self {
        match upstream {
            Dialect::Responses => Self::Responses(Box::default()),
            Dialect::Messages => Self::Messages(Box::default()),
            Dialect::Gemini => Self::Gemini(Box::default()),
            Dialect::Chat | Dialect::Completions | Dialect::Embeddings => Self::Chat(Box::default()),
        }
    }

    /// Reads one event that is no comment. After an error nothing more is read.
    pub fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        match self {
            Self::Chat(decoder) => decoder.event(event, sink),
            Self::Responses(decoder) => decoder.event(event, sink),
            Self::Messages(decoder) => decoder.event(event, sink),
            Self::Gemini(decoder) => decoder.event(event, sink),
        }
    }

    /// True once the stream's own end mark was read.
    pub fn ended(&self) -> bool {
        match self {
            Self::Chat(decoder) => decoder.ended(),
            Self::Responses(decoder) => decoder.ended(),
            Self::Messages(decoder) => decoder.ended(),
            Self::Gemini(decoder) => decoder.ended(),
        }
    }

    /// True once the answer is over for all that is known, of a dialect that has no end mark and tells its end only when
    /// the stream is over.
    pub const fn finished(&self) -> bool {
        match self {
            Self::Gemini(decoder) => decoder.finished(),
            Self::Chat(_) | Self::Responses(_) | Self::Messages(_) => false,
        }
    }

    /// The stream is over: whether the answer is whole.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Broken> {
        match self {
            Self::Chat(decoder) => decoder.finish(sink),
            Self::Responses(decoder) => decoder.finish(sink),
            Self::Messages(decoder) => decoder.finish(sink),
            Self::Gemini(decoder) => decoder.finish(sink),
        }
    }
}

/// Writes a stream for a caller.
#[derive(Debug)]
pub enum Encoder {
    /// Of chat.
    Chat(Box<chat::stream::Encoder>),
    /// Of completions.
    Completions(Box<completions::stream::Encoder>),
    /// Of Responses.
    Responses(Box<responses::stream::Encoder>),
    /// Of Messages.
    Messages(Box<messages::stream::Encoder>),
}

impl Encoder {
    /// For one answer. A caller of a dialect without streams is answered in chat.
    pub fn new(caller: Dialect, reply: Reply) -> Self {
        match caller {
            Dialect::Completions => Self::Completions(Box::new(completions::stream::Encoder::new(reply))),
            Dialect::Responses => Self::Responses(Box::new(responses::stream::Encoder::new(reply))),
            Dialect::Messages => Self::Messages(Box::new(messages::stream::Encoder::new(reply))),
            Dialect::Chat | Dialect::Embeddings | Dialect::Gemini => {
                Self::Chat(Box::new(chat::stream::Encoder::new(reply)))
            }
        }
    }

    /// Appends whole events of the dialect, none where nothing is to be said yet.
    pub fn event(&mut self, event: Event<'_>, out: &mut BytesMut) {
        match self {
            Self::Chat(encoder) => encoder.event(event, out),
            Self::Completions(encoder) => encoder.event(event, out),
            Self::Responses(encoder) => encoder.event(event, out),
            Self::Messages(encoder) => encoder.event(event, out),
        }
    }

    /// Bytes of generated text that are kept until the answer has ended.
    pub const fn kept_bytes(&self) -> u64 {
        match self {
            Self::Responses(encoder) => encoder.kept_bytes(),
            Self::Chat(_) | Self::Completions(_) | Self::Messages(_) => 0,
        }
    }

    /// The last events of a whole answer, its end mark included. Called once, after [`Event::Finish`].
    pub fn end(&mut self) -> Bytes {
        match self {
            Self::Chat(encoder) => encoder.end(),
            Self::Completions(encoder) => encoder.end(),
            Self::Responses(encoder) => encoder.end(),
            Self::Messages(encoder) => encoder.end(),
        }
    }
}

#[cfg(test)]
mod tests;
