//! The machine that reads a stream of Responses as events. Items are told apart by their number or, where a server gives
//! none, by their id; what was said of an item in pieces is not said again when it is told whole.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::chat::arguments;
use crate::chat::error::parse_upstream_error;
use crate::responses::told::{self, BETWEEN, Item, Kind, Response, Told, text, words};
use crate::responses::{proof, usage};
use crate::sse;
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Sink};

/// Most items of one answer.
const ITEMS_MAX: usize = 4096;
/// What some servers send at the end although it is no event of the dialect.
const DONE: &[u8] = b"[DONE]";

/// Reads one answer.
#[derive(Debug, Default)]
pub(super) struct Reader {
    begun: bool,
    ended: bool,
    items: Vec<Open>,
    /// The ids of its calls as they were told.
    calls: Vec<String>,
    refused: bool,
}

/// An item, and how much of it was told.
#[derive(Debug)]
struct Open {
    id: String,
    index: u64,
    kind: Kind,
    /// Bytes of its text, thought or arguments that were told.
    told: usize,
    /// Bytes of its refusal that were told.
    refused: usize,
    /// Of thoughts: whether the sum or the thought itself is told, and which part of it.
    thought: Option<(bool, u64)>,
    /// Of calls: the number, once the call was told.
    call: Option<u32>,
    /// Of calls of functions: the arguments began as no object does, so that they are told when they are whole.
    waits: bool,
    done: bool,
}

/// An event, as far as it is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Frame<'a> {
    #[serde(borrow, rename = "type")]
    kind: Told<'a>,
    response: Told<'a>,
    item: Told<'a>,
    item_id: Told<'a>,
    output_index: Option<u64>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    delta: Told<'a>,
    error: Told<'a>,
}

impl Reader {
    pub(super) const fn ended(&self) -> bool {
        self.ended
    }

    pub(super) fn event(&mut self, event: &sse::Event, sink: &mut dyn Sink) -> Result<(), Broken> {
        if self.ended || event.data.trim_ascii() == DONE {
            return Ok(());
        }
        let frame: Frame<'_> = serde_json::from_slice(&event.data).map_err(|_| Broken::Malformed)?;
        let named = event
            .name
            .as_deref()
            .and_then(|name| std::str::from_utf8(name).ok());
        let kind = text(frame.kind).or(named.map(Cow::Borrowed)).unwrap_or_default();
        let Some(kind) = kind.strip_prefix("response.") else {
            return match &*kind {
                "error" => Err(broken(&event.data)),
                _ if frame.error.is_some() => Err(broken(&event.data)),
                _ => Ok(()),
            };
        };
        match kind {
            "created" | "in_progress" | "queued" => self.begin(sink),
            "output_item.added" => self.added(&frame, sink)?,
            "output_item.done" => {
                let item = item(&frame)?;
                self.whole(&item, frame.output_index, sink)?;
            }
            "completed" | "incomplete" => self.end(kind, &frame, sink)?,
            "failed" => {
                let raw = frame.response.map_or("", RawValue::get);
                if let Ok(response) = serde_json::from_str(raw) {
                    count(&response, sink);
                }
                return Err(broken(raw.as_bytes()));
            }
            "cancelled" => return Err(Broken::Aborted),
            _ => {
                if let Some(kind) = kind.strip_suffix(".delta") {
                    self.delta(kind, &frame, sink)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, sink: &mut dyn Sink) {
        if !self.begun {
            self.begun = true;
            sink.event(Event::Begin);
        }
    }

    /// Where an item is: by its number, else by its id.
    fn known(&self, index: Option<u64>, id: Option<&str>) -> Option<usize> {
        match (index, id) {
            (Some(index), _) => self.items.iter().rposition(|item| item.index == index),
            (None, Some(id)) => self.items.iter().rposition(|item| item.id == id),
            (None, None) => None,
        }
    }

    /// An item; a new one when it was not heard of. One of which nothing is said but its kind is the last of that kind.
    fn place(&mut self, index: Option<u64>, id: Option<&str>, kind: Kind) -> Result<&mut Open, Broken> {
        let last = || match (index, id) {
            (None, None) => self.items.iter().rposition(|item| item.kind == kind),
            _ => None,
        };
        match self.known(index, id).or_else(last) {
            Some(at) => {
                let found = self.items.get_mut(at);
                // What is said of an item of one kind is not said of one of another.
                found.filter(|found| found.kind == kind).ok_or(Broken::Malformed)
            }
            None => self.open(index, id, kind),
        }
    }

    fn open(&mut self, index: Option<u64>, id: Option<&str>, kind: Kind) -> Result<&mut Open, Broken> {
        if self.items.len() >= ITEMS_MAX {
            return Err(Broken::Malformed);
        }
        self.items.push(Open {
            id: id.unwrap_or_default().to_owned(),
            index: index.unwrap_or_else(|| self.next_index()),
            kind,
            told: 0,
            refused: 0,
            thought: None,
            call: None,
            waits: false,
            done: false,
        });
        self.items.last_mut().ok_or(Broken::Malformed)
    }

    /// The number of an item that has none.
    fn next_index(&self) -> u64 {
        let last = self.items.iter().map(|item| item.index).max();
        last.map_or(0, |last| last.saturating_add(1))
    }

    fn added(&mut self, frame: &Frame<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.begin(sink);
        let item = item(frame)?;
        let id = text(item.id);
        match self.known(frame.output_index, id.as_deref()) {
            Some(_) => return Err(Broken::Malformed),
            None => self.open(frame.output_index, id.as_deref(), item.kind())?,
        };
        if let Kind::Call { custom } = item.kind()
            && item.name.is_some()
        {
            self.call(&item, frame.output_index, custom, sink)?;
        }
        Ok(())
    }

    /// Tells a call, unless it was told.
    fn call(
        &mut self,
        item: &Item<'_>,
        index: Option<u64>,
        custom: bool,
        sink: &mut dyn Sink,
    ) -> Result<u32, Broken> {
        let number = u32::try_from(self.calls.len()).map_err(|_| Broken::Malformed)?;
        let item_id = text(item.id);
        let place = self.place(index, item_id.as_deref(), Kind::Call { custom })?;
        if let Some(call) = place.call {
            return Ok(call);
        }
        place.call = Some(number);
        let name = text(item.name).ok_or(Broken::Malformed)?;
        let told_id = text(item.call_id).or(item_id).unwrap_or_default();
        let id = if told_id.is_empty() || self.calls.iter().any(|id| *id == *told_id) {
            format!("call_{number}_{told_id}")
        } else {
            told_id.into_owned()
        };
        sink.event(Event::Call {
            call: number,
            id: &id,
            name: &name,
            namespace: text(item.namespace).as_deref(),
            custom,
        });
        self.calls.push(id);
        Ok(number)
    }

    fn delta(&mut self, kind: &str, frame: &Frame<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let of = match kind {
            "output_text" | "refusal" => Kind::Message,
            "reasoning_summary_text" | "reasoning_text" => Kind::Reasoning,
            "function_call_arguments" => Kind::Call { custom: false },
            "custom_tool_call_input" => Kind::Call { custom: true },
            _ => return Ok(()),
        };
        let delta = words(frame.delta)?;
        if delta.is_empty() {
            return Ok(());
        }
        self.begin(sink);
        self.refused |= kind == "refusal";
        let place = self.place(frame.output_index, text(frame.item_id).as_deref(), of)?;
        if place.done {
            return Err(Broken::Malformed);
        }
        match kind {
            "refusal" => {
                place.refused += delta.len();
                sink.event(Event::Refusal(&delta));
            }
            "output_text" => {
                place.told += delta.len();
                sink.event(Event::Text(&delta));
            }
            "reasoning_summary_text" => place.thinking((true, frame.summary_index), &delta, sink),
            "reasoning_text" => place.thinking((false, frame.content_index), &delta, sink),
            _ => {
                let custom = of == (Kind::Call { custom: true });
                place.waits |= place.told == 0 && !custom && !begins_object(&delta);
                // Without a name it is no call yet: its arguments come with the whole of it.
                if let Some(call) = place.call.filter(|_| !place.waits) {
                    place.told += delta.len();
                    sink.event(Event::Arguments { call, piece: &delta });
                }
            }
        }
        Ok(())
    }

    /// An item told whole: whatever of it was not told is.
    fn whole(&mut self, item: &Item<'_>, index: Option<u64>, sink: &mut dyn Sink) -> Result<(), Broken> {
        self.begin(sink);
        let kind = item.kind();
        let place = self.place(index, text(item.id).as_deref(), kind)?;
        if std::mem::replace(&mut place.done, true) {
            return Ok(());
        }
        match kind {
            Kind::Message => {
                let (said, refused) = item.said()?;
                if let Some(piece) = rest(&said, place.told) {
                    sink.event(Event::Text(piece));
                }
                if let Some(piece) = rest(&refused, place.refused) {
                    sink.event(Event::Refusal(piece));
                }
                self.refused |= !refused.is_empty();
            }
            Kind::Reasoning => {
                let in_sum = place.thought.map(|(in_sum, _)| in_sum);
                let thought = match in_sum {
                    Some(true) => item.summary(),
                    Some(false) => item.thought(),
                    None => item.any_thought(),
                }?;
                if let Some(piece) = rest(&thought, place.told) {
                    sink.event(Event::Thinking(piece));
                }
                let alone = thought.is_empty() && place.told == 0;
                self.proof(item, alone, sink);
            }
            Kind::Call { custom } => {
                let told = place.told;
                let call = self.call(item, index, custom, sink)?;
                let all = item.arguments(custom)?;
                let all = if custom || told > 0 { all } else { whole(all)? };
                if let Some(piece) = rest(&all, told) {
                    sink.event(Event::Arguments { call, piece });
                }
            }
            Kind::Other => {}
        }
        Ok(())
    }

    fn proof(&self, item: &Item<'_>, redacted: bool, sink: &mut dyn Sink) {
        let Some(told) = text(item.encrypted_content) else {
            return;
        };
        match proof::told(&told) {
            proof::Told::Thought(maker, text) => sink.event(Event::Proof {
                maker,
                text,
                redacted,
            }),
            proof::Told::Call(id, proof) => {
                let place = self.calls.iter().position(|call| call == id);
                if let Some(call) = place.and_then(|place| u32::try_from(place).ok()) {
                    sink.event(Event::CallProof {
                        call,
                        maker: proof.maker,
                        text: &proof.text,
                    });
                }
            }
            proof::Told::Nothing => {}
        }
    }

    /// The number of an item of the whole response: servers may leave some out, or name them anew.
    fn index_of(&self, item: &Item<'_>, number: usize) -> u64 {
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let (id, kind) = (text(item.id), item.kind());
        let of_kind = || self.items.iter().filter(|known| known.kind == kind);
        of_kind()
            .find(|known| id.as_deref().is_some_and(|id| known.id == id))
            .or_else(|| of_kind().find(|known| known.index == number))
            .map_or_else(|| self.next_index(), |known| known.index)
    }

    fn end(&mut self, kind: &str, frame: &Frame<'_>, sink: &mut dyn Sink) -> Result<(), Broken> {
        let raw = frame.response.ok_or(Broken::Malformed)?.get();
        let response: Response<'_> = serde_json::from_str(raw).map_err(|_| Broken::Malformed)?;
        if text(response.status).as_deref() == Some("failed") {
            count(&response, sink);
            return Err(broken(raw.as_bytes()));
        }
        self.begin(sink);
        for (number, item) in response.output.iter().flatten().enumerate() {
            let index = self.index_of(item, number);
            self.whole(item, Some(index), sink)?;
        }
        if self.items.iter().any(|item| item.waits && !item.done) {
            return Err(Broken::Malformed);
        }
        count(&response, sink);
        let finish = told::finish(&response, Some(kind), !self.calls.is_empty(), self.refused)?;
        self.ended = true;
        sink.event(Event::Finish {
            finish,
            stop_sequence: None,
        });
        Ok(())
    }
}

impl Open {
    fn thinking(&mut self, (in_sum, part): (bool, Option<u64>), piece: &str, sink: &mut dyn Sink) {
        let part = part.unwrap_or(0);
        let (told_in_sum, told_part) = *self.thought.get_or_insert((in_sum, part));
        // Where both are told, one is enough.
        if told_in_sum != in_sum {
            return;
        }
        if told_part != part {
            self.thought = Some((in_sum, part));
            self.told += BETWEEN.len();
            sink.event(Event::Thinking(BETWEEN));
        }
        self.told += piece.len();
        sink.event(Event::Thinking(piece));
    }
}

/// Tells what a response has used, also one that failed.
fn count(response: &Response<'_>, sink: &mut dyn Sink) {
    if let Some(usage) = response.usage.and_then(|raw| usage::read(raw.get())) {
        sink.event(Event::Usage(usage));
    }
}

fn item<'a>(frame: &Frame<'a>) -> Result<Item<'a>, Broken> {
    let raw = frame.item.ok_or(Broken::Malformed)?;
    serde_json::from_str(raw.get()).map_err(|_| Broken::Malformed)
}

/// True for a piece of arguments with which an object begins.
fn begins_object(piece: &str) -> bool {
    piece.trim_ascii_start().starts_with('{')
}

/// Arguments that came whole, as the object that they are or mean; those of another kind are of no use to anybody.
pub(in crate::responses) fn whole(arguments: Cow<'_, str>) -> Result<Cow<'_, str>, Broken> {
    if arguments.is_empty() || begins_object(&arguments) {
        return Ok(arguments);
    }
    arguments::repaired(&arguments)
        .map(Cow::Owned)
        .ok_or(Broken::Malformed)
}

/// What of a text was not told.
fn rest(text: &str, told: usize) -> Option<&str> {
    text.get(told..).filter(|rest| !rest.is_empty())
}

fn broken(error: &[u8]) -> Broken {
    Broken::Told(Box::new(parse_upstream_error(error).unwrap_or_default()))
}
