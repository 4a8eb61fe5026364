//! Streamed answers of Gemini's generateContent, to the superset. Calls come whole; usage comes with each piece, and
//! the last counts; there is no end mark, so a stream is whole once it has said why it ended.

use std::borrow::Cow;

use super::usage;
use super::wire::{Called, Candidate, Chunk, Piece, finish};
use crate::chat::error::{ErrorCode, UpstreamError, parse_upstream_error};
use crate::chat::mint;
use crate::chat::usage::UsageFacts;
use crate::sse;
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Sink};
use crate::superset::request::ProofMaker;

/// Reads an upstream's stream.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one stream")]
pub struct Decoder {
    begun: bool,
    /// What tells this answer from others: ids of calls are made of it.
    answer: String,
    /// The ids of the calls so far.
    ids: Vec<String>,
    finish: Option<Finish>,
    /// Something was said.
    said: bool,
    /// What was said first came with a reason to end and with usage, or something was said after a reason to end: some
    /// upstreams give one with each piece.
    with_each: bool,
    usage: Option<UsageFacts>,
    over: bool,
}

impl Decoder {
    /// Reads one event. Comments are not given to it. After an error nothing more is read.
    pub fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.piece(&event.data, sink)
    }

    /// True once the stream's own end mark was read: it has none.
    pub const fn ended(&self) -> bool {
        false
    }

    /// True once the upstream has said why it ended and what it counted: nothing more is to come, though some leave the
    /// connection open. Where it may say that with each piece, only the end of the stream tells.
    pub const fn finished(&self) -> bool {
        self.finish.is_some() && self.usage.is_some() && !self.with_each
    }

    /// The stream is over: whether the answer is whole.
    pub fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.over {
            return Ok(());
        }
        if self.finish.is_none() {
            return Err(Broken::Cut);
        }
        self.end(sink);
        Ok(())
    }

    /// Tells the end, whether or not the upstream did.
    pub(super) fn end(&mut self, sink: &mut dyn Sink) {
        self.over = true;
        let finish = match self.finish.unwrap_or_default() {
            Finish::Stop if !self.ids.is_empty() => Finish::ToolCalls,
            finish => finish,
        };
        sink.event(Event::Finish {
            finish,
            stop_sequence: None,
        });
    }

    /// Reads a piece of the answer, or the whole.
    pub(super) fn piece(&mut self, data: &[u8], sink: &mut dyn Sink) -> Result<(), Broken> {
        let text = std::str::from_utf8(data).map_err(|_| Broken::Malformed)?;
        if text.trim_ascii_start().starts_with('[') {
            // Where a stream fails without `alt=sse`, the error is in a list.
            let told = parse_upstream_error(data).ok_or(Broken::Malformed)?;
            return Err(Broken::Told(Box::new(told)));
        }
        let chunk: Chunk<'_> = serde_json::from_str(text).map_err(|_| Broken::Malformed)?;
        if chunk.error.is_some_and(|error| error.get() != "null") {
            let told = parse_upstream_error(data).unwrap_or_default();
            return Err(Broken::Told(Box::new(told)));
        }
        self.chunk(&chunk, sink)
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let candidates = chunk.candidates.as_deref().unwrap_or_default();
        if candidates.is_empty()
            && self.finish.is_none()
            && let Some(reason) = chunk
                .prompt_feedback
                .as_ref()
                .and_then(|feedback| feedback.block_reason.as_ref())
        {
            return Err(blocked(&reason.0));
        }
        if !self.begun {
            self.begun = true;
            self.answer = name_of(chunk);
            sink.event(Event::Begin);
        }
        // Before what may end the answer: also one that failed has cost something.
        if let Some(told) = chunk.usage_metadata.and_then(|raw| usage::read(raw.get()))
            && self.usage != Some(told)
        {
            self.usage = Some(told);
            sink.event(Event::Usage(told));
        }
        let first = candidates
            .iter()
            .find(|candidate| candidate.index.unwrap_or(0) == 0);
        let is_first = !self.said;
        if let Some(candidate) = first {
            self.candidate(candidate, sink)?;
        }
        self.with_each |= is_first && self.said && self.finish.is_some() && chunk.usage_metadata.is_some();
        Ok(())
    }

    fn candidate(&mut self, candidate: &Candidate<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let content = candidate.content.as_ref();
        let parts = content.and_then(|content| content.parts.as_deref());
        for part in parts.unwrap_or_default() {
            self.said = true;
            self.with_each |= self.finish.is_some();
            self.part(part, sink)?;
        }
        if let Some(reason) = &candidate.finish_reason {
            self.finish = finish(&reason.0)?.or(self.finish);
        }
        Ok(())
    }

    fn part(&mut self, part: &Piece<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        if part.is_foreign() {
            return Err(Broken::Malformed);
        }
        let signature = part
            .thought_signature
            .as_ref()
            .map(|signature| signature.0.as_ref())
            .filter(|signature| !signature.is_empty());
        if let Some(called) = &part.function_call {
            return self.call(called, signature, sink);
        }
        let text = part.text.as_ref().map_or("", |text| text.0.as_ref());
        let is_thought = part.thought == Some(true);
        if is_thought && !text.is_empty() {
            sink.event(Event::Thinking(text));
        }
        if let Some(text) = signature {
            sink.event(Event::Proof {
                maker: ProofMaker::Gemini,
                text,
                redacted: false,
            });
        }
        if !is_thought && !text.is_empty() {
            sink.event(Event::Text(text));
        }
        Ok(())
    }

    fn call(
        &mut self,
        called: &Called<'_>,
        signature: Option<&str>,
        sink: &mut dyn Sink,
    ) -> Result<(), Broken> {
        let name = called.name.as_ref().map_or("", |name| name.0.as_ref());
        let arguments = match called.args.map_or("null", |args| args.get()) {
            "null" => "{}",
            object if object.starts_with('{') => object,
            _ => return Err(Broken::Malformed),
        };
        if name.is_empty() || called.is_partial() {
            return Err(Broken::Malformed);
        }
        let call = u32::try_from(self.ids.len()).map_err(|_| Broken::Malformed)?;
        let told = called.id.as_ref().map_or("", |id| id.0.as_ref());
        let id = self.id(told, call, (name, arguments));
        sink.event(Event::Call {
            call,
            id: &id,
            name,
            namespace: None,
            custom: false,
        });
        self.ids.push(id);
        if let Some(text) = signature {
            sink.event(Event::CallProof {
                call,
                maker: ProofMaker::Gemini,
                text,
            });
        }
        sink.event(Event::Arguments {
            call,
            piece: arguments,
        });
        Ok(())
    }

    /// The id that the upstream gives, or one that no other call of the conversation has.
    fn id(&self, told: &str, call: u32, (name, arguments): (&str, &str)) -> String {
        let taken = |id: &str| id.is_empty() || self.ids.iter().any(|known| known == id);
        let mut id = Cow::Borrowed(told);
        let mut salt = String::new();
        while taken(&id) {
            let number = call.to_string();
            id = mint::call_id(&[&self.answer, &number, name, arguments, &salt]).into();
            salt.push('.');
        }
        id.into_owned()
    }
}

/// What tells an answer from others: its id, and where it has none, what it counted.
fn name_of(chunk: &Chunk<'_>) -> String {
    let id = chunk.response_id.as_ref().map_or("", |id| id.0.as_ref());
    let counted = chunk.usage_metadata.map_or("", |raw| raw.get());
    if id.is_empty() { counted } else { id }.to_owned()
}

/// The prompt was not let through.
fn blocked(reason: &str) -> Broken {
    let known = reason.len() <= 64
        && reason
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let reason = if known { reason } else { "OTHER" };
    Broken::Told(Box::new(UpstreamError {
        message: Some(format!("the prompt was blocked: {reason}")),
        kind: Some("content_filter".to_owned()),
        code: Some(ErrorCode::Text("content_filter".to_owned())),
        status: Some(400),
        ..UpstreamError::default()
    }))
}

#[cfg(test)]
mod tests;
