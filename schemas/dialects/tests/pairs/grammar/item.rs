//! One item of a Responses stream: which parts are open, what their deltas said, and that whatever is repeated when a
//! part or the item is closed is what the deltas said.

use serde_json::Value;

use super::reading::{Call, Checked, Fault, Reading, bad, count, filled, must, text};

/// An item.
pub(super) struct Item {
    pub(super) id: String,
    pub(super) call_id: Option<String>,
    pub(super) closed: bool,
    /// As it was when it was closed.
    pub(super) whole: Value,
    kind: Kind,
    name: String,
    /// Of calls: the pieces; whether they were said to be all.
    arguments: String,
    arguments_done: bool,
    /// Of messages and thoughts.
    parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Message,
    Reasoning,
    Function,
    Custom,
}

struct Part {
    kind: &'static str,
    text: String,
    text_done: bool,
    closed: bool,
}

impl Item {
    /// An item that is opened.
    pub(super) fn added(item: &Value) -> Checked<Self> {
        let kind = match text(item, "type")? {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            "function_call" => Kind::Function,
            "custom_tool_call" => Kind::Custom,
            _ => return bad(Fault::Shape, item),
        };
        let (mut call_id, mut name) = (None, String::new());
        let empty = |member: &str| item[member].as_array().is_some_and(Vec::is_empty);
        match kind {
            Kind::Message => must(
                item["role"] == "assistant" && empty("content"),
                Fault::Shape,
                item,
            )?,
            Kind::Reasoning => must(empty("summary"), Fault::Shape, item)?,
            Kind::Function | Kind::Custom => {
                call_id = Some(filled(item, "call_id")?.to_owned());
                filled(item, "name")?.clone_into(&mut name);
                let member = if kind == Kind::Function {
                    "arguments"
                } else {
                    "input"
                };
                must(text(item, member)?.is_empty(), Fault::Shape, item)?;
            }
        }
        if kind != Kind::Reasoning {
            must(item["status"] == "in_progress", Fault::Shape, item)?;
        }
        let id = filled(item, "id")?.to_owned();
        must(
            call_id.as_ref() != Some(&id),
            Fault::DoubleId,
            "an item's id is no call's id",
        )?;
        Ok(Self {
            id,
            call_id,
            closed: false,
            whole: Value::Null,
            kind,
            name,
            arguments: String::new(),
            arguments_done: false,
            parts: Vec::new(),
        })
    }

    /// An event inside it.
    pub(super) fn event(&mut self, kind: &str, event: &Value) -> Checked<()> {
        match (kind, self.kind) {
            ("response.function_call_arguments.delta", Kind::Function)
            | ("response.custom_tool_call_input.delta", Kind::Custom) => {
                must(!self.arguments_done, Fault::AfterStop, event)?;
                self.arguments.push_str(filled(event, "delta")?);
                Ok(())
            }
            ("response.function_call_arguments.done", Kind::Function) => self.all(event, "arguments"),
            ("response.custom_tool_call_input.done", Kind::Custom) => self.all(event, "input"),
            ("response.content_part.added", Kind::Message) => {
                let part = match text(&event["part"], "type")? {
                    "output_text" => "output_text",
                    "refusal" => "refusal",
                    _ => return bad(Fault::Shape, event),
                };
                self.open(part, "content_index", event)
            }
            ("response.content_part.added", Kind::Reasoning) => {
                self.open("reasoning_text", "content_index", event)
            }
            ("response.reasoning_summary_part.added", Kind::Reasoning) => {
                self.open("summary_text", "summary_index", event)
            }
            ("response.content_part.done", _) => self.close_part("content_index", event),
            ("response.reasoning_summary_part.done", Kind::Reasoning) => {
                self.close_part("summary_index", event)
            }
            _ => self.words(kind, event),
        }
    }

    fn all(&mut self, event: &Value, member: &str) -> Checked<()> {
        must(!self.arguments_done, Fault::AfterStop, event)?;
        self.arguments_done = true;
        must(
            text(event, member)? == self.arguments,
            Fault::Lost,
            format_args!("{:?} in deltas: {event}", self.arguments),
        )
    }

    fn open(&mut self, kind: &'static str, index: &str, event: &Value) -> Checked<()> {
        let place = usize::try_from(count(event, index)?).unwrap_or(usize::MAX);
        must(place == self.parts.len(), Fault::WrongIndex, event)?;
        must(self.parts.iter().all(|part| part.closed), Fault::Unclosed, event)?;
        must(event["part"]["type"] == kind, Fault::Shape, event)?;
        must(said(&event["part"])?.is_empty(), Fault::Shape, event)?;
        self.parts.push(Part {
            kind,
            text: String::new(),
            text_done: false,
            closed: false,
        });
        Ok(())
    }

    /// The open part that an event means.
    fn part(&mut self, index: &str, event: &Value) -> Checked<&mut Part> {
        let place = usize::try_from(count(event, index)?).unwrap_or(usize::MAX);
        match self.parts.get_mut(place) {
            None => bad(Fault::Unopened, event),
            Some(part) if part.closed => bad(Fault::AfterStop, event),
            Some(part) => Ok(part),
        }
    }

    fn words(&mut self, kind: &str, event: &Value) -> Checked<()> {
        let Some((of, what)) = kind
            .strip_prefix("response.")
            .and_then(|rest| rest.rsplit_once('.'))
        else {
            return bad(Fault::Shape, event);
        };
        let (part_kind, index) = match of {
            "output_text" => ("output_text", "content_index"),
            "refusal" => ("refusal", "content_index"),
            "reasoning_text" => ("reasoning_text", "content_index"),
            "reasoning_summary_text" => ("summary_text", "summary_index"),
            _ => return bad(Fault::Shape, event),
        };
        let part = self.part(index, event)?;
        must(part.kind == part_kind, Fault::Unopened, event)?;
        must(!part.text_done, Fault::AfterStop, event)?;
        match what {
            "delta" => part.text.push_str(filled(event, "delta")?),
            "done" => {
                let member = if of == "refusal" { "refusal" } else { "text" };
                must(
                    text(event, member)? == part.text,
                    Fault::Lost,
                    format_args!("{:?} in deltas: {event}", part.text),
                )?;
                part.text_done = true;
            }
            _ => return bad(Fault::Shape, event),
        }
        Ok(())
    }

    fn close_part(&mut self, index: &str, event: &Value) -> Checked<()> {
        let part = self.part(index, event)?;
        must(
            part.text_done,
            Fault::Unclosed,
            format_args!("its text was not closed: {event}"),
        )?;
        must(said(&event["part"])? == part.text, Fault::Lost, event)?;
        part.closed = true;
        Ok(())
    }

    /// It is closed; `item` repeats it.
    pub(super) fn done(&mut self, item: &Value) -> Checked<()> {
        must(item["id"] == self.id.as_str(), Fault::ChangedId, item)?;
        must(self.parts.iter().all(|part| part.closed), Fault::Unclosed, item)?;
        let status = item["status"].as_str();
        must(
            self.kind == Kind::Reasoning || matches!(status, Some("completed" | "incomplete")),
            Fault::Shape,
            item,
        )?;
        let kind = match self.kind {
            Kind::Message => "message",
            Kind::Reasoning => "reasoning",
            Kind::Function => "function_call",
            Kind::Custom => "custom_tool_call",
        };
        must(item["type"] == kind, Fault::ChangedId, item)?;
        if let Some(call_id) = &self.call_id {
            must(
                item["call_id"] == call_id.as_str() && item["name"] == self.name.as_str(),
                Fault::ChangedId,
                item,
            )?;
            let member = if self.kind == Kind::Custom {
                "input"
            } else {
                "arguments"
            };
            must(
                self.arguments_done,
                Fault::Unclosed,
                format_args!("its arguments were not closed: {item}"),
            )?;
            must(item[member] == self.arguments.as_str(), Fault::Lost, item)?;
        } else {
            let mut told = Vec::new();
            for member in ["summary", "content"] {
                for part in item[member].as_array().map_or(&[][..], Vec::as_slice) {
                    told.push((text(part, "type")?.to_owned(), said(part)?.to_owned()));
                }
            }
            let mut meant: Vec<(String, String)> = self
                .parts
                .iter()
                .map(|part| (part.kind.to_owned(), part.text.clone()))
                .collect();
            meant.sort_by_key(|(kind, _)| kind != "summary_text");
            must(
                told == meant,
                Fault::Lost,
                format_args!("{meant:?} in deltas: {item}"),
            )?;
        }
        self.closed = true;
        self.whole = item.clone();
        Ok(())
    }

    /// Adds what it says.
    pub(super) fn read_into(&self, reading: &mut Reading) {
        for part in &self.parts {
            match part.kind {
                "output_text" => reading.text.push_str(&part.text),
                "refusal" => reading.refusal.push_str(&part.text),
                _ => reading.thinking.push_str(&part.text),
            }
        }
        if let Some(proof) = self.whole["encrypted_content"].as_str() {
            reading.proofs.push(proof.to_owned());
        }
        if let Some(id) = &self.call_id {
            let (name, arguments) = (self.name.clone(), self.arguments.clone());
            reading.calls.push(Call {
                id: id.clone(),
                name,
                arguments,
                custom: self.kind == Kind::Custom,
            });
        }
    }
}

/// The words of a part.
fn said(part: &Value) -> Checked<&str> {
    text(
        part,
        if part["type"] == "refusal" {
            "refusal"
        } else {
            "text"
        },
    )
}
