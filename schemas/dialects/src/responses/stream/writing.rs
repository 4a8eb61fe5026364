//! The machine that writes an answer as events of Responses. Items open in order and keep their numbers, and each is
//! closed before the next one opens: clients that follow one item at a time do not lose their place. Pieces of several
//! calls may come mixed, so what comes for another item waits until the open call is whole, or the answer has ended.

use super::open::{Call, Members, Message, Pen, Place, Said};
use super::queue::Queue;
use crate::chat::usage::UsageFacts;
use crate::messages::stream::arguments::Scan;
use crate::responses::item::{Item, Piece};
use crate::responses::object::{Frame, State};
use crate::responses::proof;
use crate::responses::usage::Usage;
use crate::superset::answer::Finish;
use crate::superset::event::{Event, Reply};
use crate::superset::request::ProofMaker;

/// Arguments of a call that came without any.
const NO_ARGUMENTS: &str = "{}";

/// Writes one answer.
#[derive(Debug)]
pub(in crate::responses) struct Writer {
    frame: Frame,
    /// The answer's id, of which those of its items are made.
    id: String,
    hides_thinking: bool,
    prompt_tokens: u64,
    pen: Pen,
    begun: bool,
    /// A place per item, empty until the item is done.
    output: Vec<Vec<u8>>,
    thought: Option<Thought>,
    message: Option<Message>,
    /// The ids of all calls so far, by their numbers.
    calls: Vec<String>,
    /// The last of them, while it is open.
    open: Option<Call>,
    /// What waits until it has closed.
    queue: Queue,
    /// The model said no in words.
    refused: bool,
    output_bytes: u64,
    usage: Option<UsageFacts>,
    finish: Finish,
}

#[derive(Debug)]
struct Thought {
    place: Place,
    text: String,
    proof: Option<String>,
}

impl Writer {
    /// For one answer.
    pub(in crate::responses) fn new(reply: Reply) -> Self {
        Self {
            frame: Frame::new(&reply),
            id: reply.id,
            hides_thinking: reply.hides_thinking,
            prompt_tokens: reply.prompt_tokens,
            pen: Pen::default(),
            begun: false,
            output: Vec::new(),
            thought: None,
            message: None,
            calls: Vec::new(),
            open: None,
            queue: Queue::default(),
            refused: false,
            output_bytes: 0,
            usage: None,
            finish: Finish::Stop,
        }
    }

    /// What was written since this was asked last.
    pub(in crate::responses) fn written(&mut self) -> &mut Vec<u8> {
        &mut self.pen.out
    }

    /// Bytes of generated text that were written.
    pub(in crate::responses) const fn output_bytes(&self) -> u64 {
        self.output_bytes
    }

    /// Writes the next event.
    pub(in crate::responses) fn event(&mut self, event: Event<'_>) {
        self.begin();
        let bytes = u64::try_from(event.output_bytes()).unwrap_or(u64::MAX);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        match event {
            Event::Begin => {}
            Event::Thinking(_) | Event::Proof { .. } | Event::CallProof { .. } if self.hides_thinking => {}
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Finish { finish, .. } => {
                self.finish = finish;
                self.close();
            }
            _ => self.tell(event),
        }
    }

    /// Writes content, or lets it wait for an open call.
    fn tell(&mut self, event: Event<'_>) {
        let last = self.calls.len().wrapping_sub(1);
        let is_last = |call: u32| usize::try_from(call).is_ok_and(|call| call == last);
        match (event, &mut self.open) {
            (Event::Arguments { call, piece }, Some(open)) if is_last(call) => {
                open.scan.read(piece);
                open.piece(piece, &mut self.pen);
                self.release();
            }
            (Event::CallProof { call, maker, text }, Some(open)) if is_last(call) => {
                open.proofs.push((maker, text.to_owned()));
            }
            (_, Some(open)) if !open.is_whole() => self.queue.push(event),
            _ => {
                self.close_call("completed");
                self.say(event);
            }
        }
    }

    /// Closes the open call if it is whole and something waits for that, and goes on with what waits.
    fn release(&mut self) {
        if self.queue.is_empty() || !self.open.as_ref().is_some_and(Call::is_whole) {
            return;
        }
        self.close_call("completed");
        for held in self.queue.take() {
            self.tell(held.event());
        }
    }

    /// Writes content while no call is open.
    fn say(&mut self, event: Event<'_>) {
        match event {
            Event::Thinking(piece) => self.thinking(piece),
            Event::Proof {
                maker,
                text,
                redacted,
            } => self.proof(maker, text, redacted),
            Event::CallProof { call, maker, text } => {
                let told = usize::try_from(call).ok().and_then(|call| self.calls.get(call));
                if let Some(call_id) = told.cloned() {
                    self.call_proof(&call_id, maker, text);
                }
            }
            Event::Text(piece) => self.said(piece, false),
            Event::Refusal(piece) => self.said(piece, true),
            Event::Call {
                id,
                name,
                namespace,
                custom,
                ..
            } => self.call((id, name, namespace), custom),
            // A call that is closed was whole.
            Event::Arguments { .. } | Event::Begin | Event::Usage(_) | Event::Finish { .. } => {}
        }
    }

    /// Writes the last event.
    pub(in crate::responses) fn end(&mut self) {
        self.begin();
        self.close();
        let (kind, state) = self.state();
        // What is done is not needed any more.
        let output = std::mem::take(&mut self.output);
        let state = State {
            output: &output,
            ..state
        };
        self.pen.response(kind, &self.frame, &state);
    }

    /// The response as a whole, after [`Event::Finish`].
    pub(in crate::responses) fn whole(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let state = State {
            output: &self.output,
            ..self.state().1
        };
        self.frame.write(&state, &mut out);
        out
    }

    /// How it ended, and the event that says so.
    fn state(&self) -> (&'static str, State<'static>) {
        let incomplete = match self.finish {
            Finish::Length | Finish::ContextFull | Finish::Paused => Some("max_output_tokens"),
            // A no in words is an answer.
            Finish::Refused if !self.refused => Some("content_filter"),
            Finish::Refused | Finish::Stop | Finish::StopSequence | Finish::ToolCalls => None,
        };
        let (kind, status) = match incomplete {
            Some(_) => ("response.incomplete", "incomplete"),
            None => ("response.completed", "completed"),
        };
        let state = State {
            status,
            incomplete,
            usage: Some(Usage::of(self.usage, self.prompt_tokens, self.output_bytes)),
            ..State::default()
        };
        (kind, state)
    }

    fn begin(&mut self) {
        if self.begun {
            return;
        }
        self.begun = true;
        for kind in ["response.created", "response.in_progress"] {
            let state = State {
                status: "in_progress",
                ..State::default()
            };
            self.pen.response(kind, &self.frame, &state);
        }
    }

    /// A place for an item that opens.
    fn place(&mut self, prefix: &str) -> Place {
        let index = self.output.len();
        self.output.push(Vec::new());
        Place {
            index,
            id: format!("{prefix}_{}_{index}", self.id),
        }
    }

    fn thinking(&mut self, piece: &str) {
        self.close_message();
        let mut thought = match self.thought.take() {
            Some(thought) => thought,
            None => self.open_thought(),
        };
        if thought.text.is_empty() {
            self.pen.say(
                "response.reasoning_summary_part.added",
                &Members {
                    summary_index: Some(0),
                    part: Some(Piece::text("summary_text", "")),
                    ..thought.place.members()
                },
            );
        }
        self.pen.say(
            "response.reasoning_summary_text.delta",
            &Members {
                summary_index: Some(0),
                delta: Some(piece),
                ..thought.place.members()
            },
        );
        thought.text.push_str(piece);
        self.thought = Some(thought);
    }

    fn open_thought(&mut self) -> Thought {
        let place = self.place("rs");
        let item = Item {
            kind: "reasoning",
            id: Some(&place.id),
            summary: Some(Vec::new()),
            ..Item::default()
        };
        self.pen.open(place.index, &item);
        Thought {
            place,
            text: String::new(),
            proof: None,
        }
    }

    /// A proof ends the thought that it proves; a redacted thought is one of its own.
    fn proof(&mut self, maker: ProofMaker, text: &str, redacted: bool) {
        self.close_message();
        if redacted {
            self.close_thought();
        }
        let mut thought = match self.thought.take() {
            Some(thought) => thought,
            None => self.open_thought(),
        };
        thought.proof = Some(proof::written(maker, text));
        self.thought = Some(thought);
        self.close_thought();
    }

    /// What proves a call has no place in it: it stands in a reasoning item of its own.
    fn call_proof(&mut self, call_id: &str, maker: ProofMaker, text: &str) {
        self.close_message();
        self.close_thought();
        let mut thought = self.open_thought();
        thought.proof = Some(proof::written_for_call(maker, call_id, text));
        self.thought = Some(thought);
        self.close_thought();
    }

    fn close_thought(&mut self) {
        let Some(Thought { place, text, proof }) = self.thought.take() else {
            return;
        };
        let part = |text| Piece::text("summary_text", text);
        if !text.is_empty() {
            self.pen.say(
                "response.reasoning_summary_text.done",
                &Members {
                    summary_index: Some(0),
                    text: Some(&text),
                    ..place.members()
                },
            );
            self.pen.say(
                "response.reasoning_summary_part.done",
                &Members {
                    summary_index: Some(0),
                    part: Some(part(&text)),
                    ..place.members()
                },
            );
        }
        let item = Item {
            kind: "reasoning",
            id: Some(&place.id),
            summary: Some(if text.is_empty() {
                Vec::new()
            } else {
                vec![part(&text)]
            }),
            encrypted_content: proof.as_deref().map(Into::into),
            ..Item::default()
        };
        let done = self.pen.close(place.index, &item);
        self.done(place.index, done);
    }

    /// Notes an item that is done.
    fn done(&mut self, index: usize, item: Vec<u8>) {
        if let Some(place) = self.output.get_mut(index) {
            *place = item;
        }
    }

    fn said(&mut self, piece: &str, refusal: bool) {
        self.close_thought();
        let mut message = match self.message.take() {
            Some(message) => message,
            None => self.open_message(),
        };
        if message.parts.last().is_none_or(|part| part.refusal != refusal) {
            message.close_part(&mut self.pen);
            message.parts.push(Said {
                refusal,
                text: String::new(),
            });
            self.pen.say(
                "response.content_part.added",
                &Members {
                    part: message.parts.last().map(Said::piece),
                    ..message.members()
                },
            );
        }
        let kind = if refusal {
            "response.refusal.delta"
        } else {
            "response.output_text.delta"
        };
        self.pen.say(
            kind,
            &Members {
                delta: Some(piece),
                logprobs: (!refusal).then_some([]),
                ..message.members()
            },
        );
        if let Some(part) = message.parts.last_mut() {
            part.text.push_str(piece);
        }
        self.refused |= refusal;
        self.message = Some(message);
    }

    fn open_message(&mut self) -> Message {
        let place = self.place("msg");
        let item = Item {
            kind: "message",
            id: Some(&place.id),
            status: Some("in_progress"),
            role: Some("assistant"),
            content: Some(Vec::new()),
            ..Item::default()
        };
        self.pen.open(place.index, &item);
        Message {
            place,
            parts: Vec::new(),
        }
    }

    fn close_message(&mut self) {
        self.end_message("completed");
    }

    fn end_message(&mut self, status: &'static str) {
        let Some(message) = self.message.take() else {
            return;
        };
        message.close_part(&mut self.pen);
        let item = Item {
            kind: "message",
            id: Some(&message.place.id),
            status: Some(status),
            role: Some("assistant"),
            content: Some(message.parts.iter().map(Said::piece).collect()),
            ..Item::default()
        };
        let done = self.pen.close(message.place.index, &item);
        self.done(message.place.index, done);
    }

    fn call(&mut self, (id, name, namespace): (&str, &str, Option<&str>), custom: bool) {
        self.close_thought();
        self.close_message();
        let call = Call {
            place: self.place(if custom { "ctc" } else { "fc" }),
            told_id: id.to_owned(),
            name: name.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            custom,
            arguments: String::new(),
            scan: Scan::default(),
            proofs: Vec::new(),
        };
        self.pen.open(call.place.index, &call.item("in_progress"));
        self.calls.push(call.told_id.clone());
        self.open = Some(call);
    }

    /// Closes the open call, if there is one.
    fn close_call(&mut self, status: &'static str) {
        let Some(mut call) = self.open.take() else {
            return;
        };
        if status == "completed" && call.arguments.is_empty() && !call.custom {
            call.piece(NO_ARGUMENTS, &mut self.pen);
        }
        let done = call.close(status, &mut self.pen);
        self.done(call.place.index, done);
        for (maker, text) in &call.proofs {
            self.call_proof(&call.told_id, *maker, text);
        }
    }

    /// Writes what waits, and closes whatever is open.
    fn close(&mut self) {
        let whole = self.state().1.incomplete.is_none();
        let status = if whole { "completed" } else { "incomplete" };
        while let Some(open) = &self.open {
            self.close_call(if open.is_whole() { "completed" } else { status });
            for held in self.queue.take() {
                self.tell(held.event());
            }
        }
        self.close_thought();
        self.end_message(status);
    }
}
