//! Calls of a stream, put together from their pieces. Servers differ in all of it: numbers are left out or always 0,
//! ids and names are repeated or come in pieces, arguments are an object or come at once.

use crate::chat::response::wire::{Call, Extra, Function, Text};
use crate::chat::{arguments, mint};
use crate::superset::answer::Broken;
use crate::superset::event::{Event, Sink};

/// Most calls of one answer.
const CALLS_MAX: usize = 1024;

/// The calls so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    /// Those that were told of.
    begun: u32,
}

/// One call.
#[derive(Debug, Default)]
struct Slot {
    /// The upstream's number.
    index: Option<u64>,
    /// The upstream's id.
    id: String,
    name: String,
    custom: bool,
    /// The number under which it was told of.
    call: Option<u32>,
    /// The id under which it was told of.
    given: String,
    /// Its arguments begin as an object does, or are free text: they are given on as they come.
    flowing: bool,
    /// Arguments that were not given on.
    held: String,
    /// What proves it, not given on yet.
    proof: Option<crate::superset::request::Proof>,
}

impl Calls {
    /// True when a call was made.
    pub(super) fn any(&self) -> bool {
        self.slots.iter().any(|slot| !slot.name.is_empty())
    }

    /// Reads a piece of a call.
    pub(super) fn piece(
        &mut self,
        call: &Call<'_>,
        answer_id: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), Broken> {
        let nothing = Text::default();
        let (name, arguments, custom) = match (&call.function, &call.custom) {
            (Some(function), _) => (&function.name, &function.arguments, false),
            (None, Some(custom)) => (&custom.name, &custom.input, true),
            (None, None) => (&nothing, &nothing, false),
        };
        let at = self.slot(call.index, &call.id.0, &name.0);
        if at >= CALLS_MAX {
            return Err(Broken::Malformed);
        }
        // Earlier calls are not told of after this one.
        for earlier in 0..at {
            self.begin(earlier, answer_id, sink);
        }
        let Some(slot) = self.slots.get_mut(at) else {
            return Err(Broken::Malformed);
        };
        slot.custom |= custom;
        if slot.call.is_none() {
            if slot.id.is_empty() {
                slot.id.push_str(&call.id.0);
            }
            if slot.name != name.0 {
                slot.name.push_str(&name.0);
            }
        }
        if let Some(proof) = call.extra_content.as_ref().and_then(Extra::proof) {
            slot.proof = Some(proof);
        }
        slot.held.push_str(&arguments.0);
        if !slot.held.is_empty() || slot.proof.is_some() || slot.call.is_some() {
            self.begin(at, answer_id, sink);
        }
        self.flow(at, sink);
        Ok(())
    }

    /// Reads a piece of the only call of the older form.
    pub(super) fn function(&mut self, function: &Function<'_>, answer_id: &str, sink: &mut dyn Sink) {
        if self.slots.is_empty() {
            self.slots.push(Slot::default());
        }
        let Some(slot) = self.slots.first_mut() else {
            return;
        };
        if slot.call.is_none() && slot.name != function.name.0 {
            slot.name.push_str(&function.name.0);
        }
        slot.held.push_str(&function.arguments.0);
        if !slot.held.is_empty() {
            self.begin(0, answer_id, sink);
        }
        self.flow(0, sink);
    }

    /// The slot that a piece belongs to.
    fn slot(&mut self, index: Option<u64>, id: &str, name: &str) -> usize {
        let found = match index {
            Some(index) => self.slots.iter().rposition(|slot| slot.index == Some(index)),
            None => self.slots.len().checked_sub(1),
        };
        let other = |slot: &Slot| {
            let begins = !id.is_empty() && !name.is_empty() && !slot.id.is_empty() && slot.id != id;
            // Without numbers and ids a name opens a call, once the last one has arguments.
            let unnumbered = index.is_none() && id.is_empty() && !name.is_empty();
            begins || (unnumbered && (slot.call.is_some() || !slot.held.is_empty()))
        };
        if let Some(at) = found
            && self.slots.get(at).is_some_and(|slot| !other(slot))
        {
            return at;
        }
        self.slots.push(Slot {
            index,
            ..Slot::default()
        });
        self.slots.len() - 1
    }

    /// Tells of a call, unless its name is not known or it was told of.
    fn begin(&mut self, at: usize, answer_id: &str, sink: &mut dyn Sink) {
        let taken = |id: &str, slots: &[Slot]| {
            id.is_empty() || slots.iter().any(|slot| slot.call.is_some() && slot.given == id)
        };
        let Some(slot) = self
            .slots
            .get(at)
            .filter(|slot| slot.call.is_none() && !slot.name.is_empty())
        else {
            return;
        };
        let id = if taken(&slot.id, &self.slots) {
            let number = self.begun.to_string();
            Some(mint::call_id(&[answer_id, &slot.id, &slot.name, &number]))
        } else {
            None
        };
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        slot.given = id.unwrap_or_else(|| slot.id.clone());
        slot.call = Some(self.begun);
        sink.event(Event::Call {
            call: self.begun,
            id: &slot.given,
            name: &slot.name,
            namespace: None,
            custom: slot.custom,
        });
        self.begun += 1;
    }

    /// Gives on what may be given on.
    fn flow(&mut self, at: usize, sink: &mut dyn Sink) {
        let Some(slot) = self.slots.get_mut(at) else {
            return;
        };
        let Some(call) = slot.call else {
            return;
        };
        if let Some(proof) = slot.proof.take() {
            sink.event(Event::CallProof {
                call,
                maker: proof.maker,
                text: &proof.text,
            });
        }
        slot.flowing |= slot.custom || slot.held.trim_ascii_start().starts_with('{');
        if slot.flowing && !slot.held.is_empty() {
            sink.event(Event::Arguments {
                call,
                piece: &slot.held,
            });
            slot.held.clear();
        }
    }

    /// The answer has ended: gives on what was held. Arguments that are no object are of no use in an answer that
    /// ended to have its calls made, as `whole` says.
    pub(super) fn close(&mut self, whole: bool, answer_id: &str, sink: &mut dyn Sink) -> Result<(), Broken> {
        for at in 0..self.slots.len() {
            self.begin(at, answer_id, sink);
            self.flow(at, sink);
            let Some(slot) = self.slots.get_mut(at) else {
                continue;
            };
            let held = std::mem::take(&mut slot.held);
            let Some(call) = slot.call else {
                // A piece that says nothing is none.
                if held.is_empty() && slot.id.is_empty() {
                    continue;
                }
                return Err(Broken::Malformed);
            };
            if held.is_empty() {
                continue;
            }
            let piece = match arguments::repaired(&held) {
                Some(repaired) => repaired,
                None if whole => return Err(Broken::Malformed),
                None => held,
            };
            sink.event(Event::Arguments { call, piece: &piece });
        }
        Ok(())
    }
}
