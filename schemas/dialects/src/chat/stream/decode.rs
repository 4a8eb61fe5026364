//! The reader of a stream: what each chunk adds, in the order in which it was meant.

use super::calls::Calls;
use super::like::Like;
use crate::chat::chunk;
use crate::chat::error;
use crate::chat::response::told_error;
use crate::chat::response::usage;
use crate::chat::response::wire::{self, Choice, Frame, Said};
use crate::sse;
use crate::superset::answer::{Broken, Finish};
use crate::superset::event::{Event, Sink};

/// What is known of the stream so far.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one stream")]
pub(super) struct Machine {
    begun: bool,
    /// Something was said.
    content: bool,
    finished: bool,
    ended: bool,
    /// Usage was told in its own member: other figures no longer count.
    usage: bool,
    calls: Calls,
    like: Like,
}

impl Machine {
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the answer is whole, now that nothing more comes.
    pub(super) const fn whole(&self) -> Result<(), Broken> {
        match (self.finished, self.begun) {
            (true, _) => Ok(()),
            (false, true) => Err(Broken::Cut),
            (false, false) => Err(Broken::Empty),
        }
    }

    pub(super) fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.ended || event.is_comment() {
            return Ok(());
        }
        if chunk::is_done(&event.data) {
            self.whole()?;
            self.ended = true;
            return Ok(());
        }
        if self.begun
            && event.name.is_none()
            && let Some(said) = self.like.event(&event.data)
        {
            return self.tell(said, sink);
        }
        let frame = wire::read(&event.data).map_err(|_| Broken::Malformed)?;
        if frame.choices.listed && !self.begun {
            self.begun = true;
            sink.event(Event::Begin);
        }
        let error = told_error(&frame, &event.data);
        // Before what may end the answer: also one that failed has cost something.
        if self.begun || error.is_some() {
            self.usage(&frame, sink);
        }
        if let Some(error) = error {
            return Err(Broken::Told(Box::new(error)));
        }
        if event.name.as_deref() == Some(b"error") && !frame.choices.listed {
            let error = error::parse_upstream_error(&event.data).unwrap_or_default();
            return Err(Broken::Told(Box::new(error)));
        }
        if let Some(choice) = &frame.choices.first {
            self.choice(choice, &frame.id.0, sink)?;
        }
        self.like.learn(&frame, &event.data);
        Ok(())
    }

    fn usage(&mut self, frame: &Frame<'_>, sink: &mut dyn Sink) {
        let Some(facts) = usage::told(frame) else {
            return;
        };
        let told = frame.usage.is_some() || frame.x_groq.is_some();
        if told || !self.usage {
            sink.event(Event::Usage(facts));
        }
        self.usage |= told;
    }

    fn choice(&mut self, choice: &Choice<'_>, answer_id: &str, sink: &mut dyn Sink) -> Result<(), Broken> {
        // A server that streams nothing may give the whole message in one piece.
        let whole = choice.message.as_ref().filter(|_| !self.content);
        if let Some(said) = choice.delta.as_ref().or(whole) {
            self.said(said, answer_id, sink)?;
        }
        if !choice.text.is_empty() {
            self.tell(Event::Text(&choice.text.0), sink)?;
        }
        let failed = || Err(Broken::Aborted);
        let Some(finish) = usage::finish(choice, self.calls.any()) else {
            return Ok(());
        };
        let Ok(finish) = finish else {
            return failed();
        };
        if self.finished {
            return Ok(());
        }
        self.calls.close(finish == Finish::ToolCalls, answer_id, sink)?;
        self.finished = true;
        sink.event(Event::Finish {
            finish,
            stop_sequence: usage::stop_sequence(choice).filter(|_| finish == Finish::StopSequence),
        });
        Ok(())
    }

    /// Gives content on. There is none after the end: what comes late would be lost on the caller.
    fn tell(&mut self, event: Event<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.finished {
            return Err(Broken::Malformed);
        }
        self.content = true;
        sink.event(event);
        Ok(())
    }

    fn said(&mut self, said: &Said<'_>, answer_id: &str, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.thoughts(said, sink)?;
        if !said.content.text.is_empty() {
            self.tell(Event::Text(&said.content.text), sink)?;
        }
        if !said.refusal.is_empty() {
            self.tell(Event::Refusal(&said.refusal.0), sink)?;
        }
        let calls = said.tool_calls.as_deref().unwrap_or_default();
        let function = said.function_call.as_ref();
        if calls.is_empty() && function.is_none() {
            return Ok(());
        }
        if self.finished {
            return Err(Broken::Malformed);
        }
        for call in calls {
            self.content = true;
            self.calls.piece(call, answer_id, sink)?;
        }
        if let Some(function) = function {
            self.content = true;
            self.calls.function(function, answer_id, sink);
        }
        Ok(())
    }

    fn thoughts(&mut self, said: &Said<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let mut told = false;
        let words = wire::first([&said.reasoning_content, &said.reasoning]);
        for words in [words, &said.content.thoughts] {
            if !words.is_empty() && !told {
                told = true;
                self.tell(Event::Thinking(words), sink)?;
            }
        }
        for detail in said.reasoning_details.as_deref().unwrap_or_default() {
            if !told && !detail.words().is_empty() {
                self.tell(Event::Thinking(detail.words()), sink)?;
            }
            if let Some(proof) = detail.proof() {
                let event = Event::Proof {
                    maker: proof.maker,
                    text: &proof.text,
                    redacted: proof.redacted,
                };
                self.tell(event, sink)?;
            }
        }
        Ok(())
    }
}
