//! The grammar of a streamed answer of Responses: `response.created` first, numbers from 0 without gaps, items opened
//! once and closed once with all that their deltas said, and one of three ends that repeats them.

use serde_json::Value;

use super::item::Item;
use super::reading::{
    Checked, Fault, Reading, Stop, Used, arguments_hold, bad, count, events, filled, must, object, text,
};

/// Reads a whole stream.
pub(crate) fn check(bytes: &[u8]) -> Checked<Reading> {
    let mut machine = Machine::default();
    for (number, said) in events(bytes)?.iter().enumerate() {
        let event = object(&said.data)?;
        must(
            said.name.as_deref() == event["type"].as_str(),
            Fault::Framing,
            format_args!("the name is not the type: {event}"),
        )?;
        must(!machine.ended, Fault::AfterEnd, &event)?;
        let sequence = count(&event, "sequence_number")?;
        must(
            usize::try_from(sequence) == Ok(number),
            Fault::WrongIndex,
            format_args!("event {number}: {event}"),
        )?;
        machine.event(&event)?;
    }
    must(machine.ended, Fault::EndMissing, "no end")?;
    Ok(machine.reading)
}

#[derive(Default)]
struct Machine {
    reading: Reading,
    /// Its id, model and time.
    same: Option<[Value; 3]>,
    in_progress: bool,
    items: Vec<Item>,
    ended: bool,
}

impl Machine {
    fn event(&mut self, event: &Value) -> Checked<()> {
        let kind = text(event, "type")?;
        if kind == "response.created" {
            must(self.same.is_none(), Fault::StartTwice, event)?;
            let response = &event["response"];
            self.skeleton(response)?;
            must(response["status"] == "in_progress", Fault::Shape, response)?;
            return must(
                response["output"].as_array().is_some_and(Vec::is_empty),
                Fault::Shape,
                response,
            );
        }
        must(self.same.is_some(), Fault::StartMissing, event)?;
        match kind {
            "response.in_progress" => {
                must(
                    !self.in_progress && self.items.is_empty(),
                    Fault::StartTwice,
                    event,
                )?;
                self.in_progress = true;
                self.skeleton(&event["response"])
            }
            "response.output_item.added" => {
                must(self.place(event)? == self.items.len(), Fault::WrongIndex, event)?;
                let item = Item::added(&event["item"])?;
                must(
                    self.items.iter().all(|other| other.id != item.id),
                    Fault::DoubleId,
                    &item.id,
                )?;
                let call_id = item.call_id.as_ref();
                let fresh = self
                    .items
                    .iter()
                    .all(|other| call_id.is_none() || other.call_id.as_ref() != call_id);
                must(fresh, Fault::DoubleId, event)?;
                self.items.push(item);
                Ok(())
            }
            "response.output_item.done" => {
                let at = self.place(event)?;
                self.item(at, event)?.done(&event["item"])
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.end(kind, &event["response"])
            }
            _ => {
                let at = self.place(event)?;
                let item = self.item(at, event)?;
                must(event["item_id"] == item.id.as_str(), Fault::ChangedId, event)?;
                item.event(kind, event)
            }
        }
    }

    fn place(&self, event: &Value) -> Checked<usize> {
        let at = count(event, "output_index")?;
        Ok(usize::try_from(at)
            .unwrap_or(usize::MAX)
            .min(self.items.len() + 1))
    }

    fn item(&mut self, at: usize, event: &Value) -> Checked<&mut Item> {
        match self.items.get_mut(at) {
            Some(item) if item.closed => bad(Fault::AfterStop, event),
            Some(item) => Ok(item),
            None => bad(Fault::Unopened, event),
        }
    }

    fn skeleton(&mut self, response: &Value) -> Checked<()> {
        filled(response, "id")?;
        filled(response, "model")?;
        count(response, "created_at")?;
        must(response["object"] == "response", Fault::Shape, response)?;
        let compulsory = [
            "status",
            "output",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "error",
            "incomplete_details",
        ];
        for member in compulsory {
            must(
                response.get(member).is_some(),
                Fault::Shape,
                format_args!("no '{member}' in {response}"),
            )?;
        }
        let now = ["id", "model", "created_at"].map(|member| response[member].clone());
        let same = self.same.get_or_insert_with(|| now.clone());
        must(*same == now, Fault::ChangedId, response)
    }

    fn end(&mut self, kind: &str, response: &Value) -> Checked<()> {
        self.ended = true;
        self.skeleton(response)?;
        let status = text(response, "status")?;
        must(
            kind.strip_prefix("response.") == Some(status),
            Fault::WrongStop,
            response,
        )?;
        for item in &self.items {
            item.read_into(&mut self.reading);
        }
        if status == "failed" {
            filled(&response["error"], "message")?;
            self.reading.failed = Some(filled(&response["error"], "code")?.to_owned());
            return Ok(());
        }
        must(
            self.items.iter().all(|item| item.closed),
            Fault::Unclosed,
            "an item is open at the end",
        )?;
        let output = response["output"].as_array().map_or(&[][..], Vec::as_slice);
        let whole: Vec<&Value> = self.items.iter().map(|item| &item.whole).collect();
        must(
            output.iter().collect::<Vec<_>>() == whole,
            Fault::Lost,
            format_args!("the output differs: {response}"),
        )?;
        self.reading.usage = Some(usage(&response["usage"])?);
        let calls = &self.reading.calls;
        self.reading.stop = Some(if status == "completed" {
            must(
                response["incomplete_details"].is_null(),
                Fault::WrongStop,
                response,
            )?;
            calls.iter().try_for_each(arguments_hold)?;
            if calls.is_empty() { Stop::End } else { Stop::Calls }
        } else {
            match text(&response["incomplete_details"], "reason")? {
                "max_output_tokens" => Stop::Length,
                "content_filter" => Stop::Refused,
                other => return bad(Fault::WrongStop, other),
            }
        });
        Ok(())
    }
}

pub(super) fn usage(usage: &Value) -> Checked<Used> {
    must(usage.is_object(), Fault::Usage, "usage is compulsory")?;
    let used = Used {
        input: count(usage, "input_tokens")?,
        cached: count(&usage["input_tokens_details"], "cached_tokens")?,
        written: count(&usage["input_tokens_details"], "cache_write_tokens")?,
        output: count(usage, "output_tokens")?,
        reasoning: count(&usage["output_tokens_details"], "reasoning_tokens")?,
    };
    must(
        count(usage, "total_tokens")? == used.input + used.output,
        Fault::Usage,
        usage,
    )?;
    Ok(used)
}
