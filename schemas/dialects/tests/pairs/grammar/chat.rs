//! The grammar of a streamed chat answer of one choice: a first chunk with the role, deltas, exactly one finish reason
//! that fits the turn, at most one usage chunk after it, the end mark. Ids, model and time never change.

use serde_json::Value;

use super::reading::{
    Call, Checked, Fault, Reading, Stop, arguments_hold, bad, count, events, filled, must, object, only,
    openai_usage, text,
};

const DELTA: &[&str] = &[
    "role",
    "content",
    "refusal",
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "tool_calls",
    "extra_content",
];
const CHUNK: &[&str] = &[
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "service_tier",
    "system_fingerprint",
    "obfuscation",
];

/// Reads a whole stream.
pub(crate) fn check(bytes: &[u8]) -> Checked<Reading> {
    let mut machine = Machine::default();
    for said in events(bytes)? {
        must(said.name.is_none(), Fault::Framing, "chat names no events")?;
        must(!machine.ended, Fault::AfterEnd, &said.data)?;
        if said.data == "[DONE]" {
            must(
                machine.reading.stop.is_some(),
                Fault::EndMissing,
                "an end mark without a finish reason",
            )?;
            machine.ended = true;
        } else {
            machine.chunk(&object(&said.data)?)?;
        }
    }
    must(machine.ended, Fault::EndMissing, "no end mark")?;
    machine.close()
}

#[derive(Default)]
struct Machine {
    reading: Reading,
    /// What stands in every chunk: id, model, time.
    same: Option<(String, String, u64)>,
    role: bool,
    ended: bool,
}

impl Machine {
    fn chunk(&mut self, chunk: &Value) -> Checked<()> {
        if chunk.get("error").is_some() {
            only(chunk, &["error"])?;
            filled(&chunk["error"], "message")?;
            self.reading.failed = Some(filled(&chunk["error"], "type")?.to_owned());
            self.reading.stop = None;
            self.ended = true;
            return Ok(());
        }
        only(chunk, CHUNK)?;
        must(chunk["object"] == "chat.completion.chunk", Fault::Shape, chunk)?;
        let same = (
            filled(chunk, "id")?.to_owned(),
            filled(chunk, "model")?.to_owned(),
            count(chunk, "created")?,
        );
        let first = self.same.get_or_insert_with(|| same.clone());
        must(*first == same, Fault::ChangedId, chunk)?;
        let Some(choices) = chunk["choices"].as_array() else {
            return bad(Fault::Shape, chunk);
        };
        must(choices.len() <= 1, Fault::WrongIndex, "more than one choice")?;
        if let Some(choice) = choices.first() {
            self.choice(choice)?;
        }
        if chunk["usage"].is_null() {
            return must(!choices.is_empty(), Fault::Shape, "an empty chunk");
        }
        must(self.reading.usage.is_none(), Fault::UsageTwice, chunk)?;
        must(
            choices.is_empty() && self.reading.stop.is_some(),
            Fault::Usage,
            "usage before the end",
        )?;
        self.reading.usage = Some(openai_usage(&chunk["usage"])?);
        Ok(())
    }

    fn choice(&mut self, choice: &Value) -> Checked<()> {
        only(
            choice,
            &["index", "delta", "finish_reason", "logprobs", "stop_reason"],
        )?;
        must(count(choice, "index")? == 0, Fault::WrongIndex, choice)?;
        let delta = &choice["delta"];
        only(delta, DELTA)?;
        let content = ["content", "refusal", "reasoning_content", "tool_calls"]
            .iter()
            .any(|member| {
                delta
                    .get(member)
                    .is_some_and(|value| !value.is_null() && value != "")
            });
        must(
            self.reading.stop.is_none() || (!content && choice["finish_reason"].is_null()),
            Fault::AfterStop,
            choice,
        )?;
        if delta.get("role").is_some() {
            must(delta["role"] == "assistant", Fault::Shape, delta)?;
            must(!self.role, Fault::StartTwice, choice)?;
            self.role = true;
        }
        must(self.role, Fault::StartMissing, choice)?;
        self.delta(delta)?;
        if choice["finish_reason"].is_null() {
            return Ok(());
        }
        self.reading.stop = Some(match text(choice, "finish_reason")? {
            "stop" => Stop::End,
            "length" => Stop::Length,
            "tool_calls" => Stop::Calls,
            "content_filter" => Stop::Refused,
            other => return bad(Fault::WrongStop, other),
        });
        Ok(())
    }

    fn delta(&mut self, delta: &Value) -> Checked<()> {
        let into = [
            ("content", &mut self.reading.text),
            ("reasoning_content", &mut self.reading.thinking),
            ("refusal", &mut self.reading.refusal),
        ];
        for (member, whole) in into {
            if !delta[member].is_null() {
                whole.push_str(text(delta, member)?);
            }
        }
        if delta["tool_calls"].is_null() {
            return Ok(());
        }
        let Some(calls) = delta["tool_calls"].as_array() else {
            return bad(Fault::Shape, delta);
        };
        must(!calls.is_empty(), Fault::Shape, "no calls in a delta of calls")?;
        calls.iter().try_for_each(|call| self.call(call))
    }

    fn call(&mut self, call: &Value) -> Checked<()> {
        only(
            call,
            &["index", "id", "type", "function", "custom", "extra_content"],
        )?;
        let index = usize::try_from(count(call, "index")?).unwrap_or(usize::MAX);
        let (form, member) = if call["custom"].is_null() {
            ("function", "arguments")
        } else {
            ("custom", "input")
        };
        let inner = &call[form];
        let calls = &mut self.reading.calls;
        let Some(open) = calls.get_mut(index) else {
            must(index == calls.len(), Fault::WrongIndex, call)?;
            must(
                call.get("id").is_some() && inner.get("name").is_some(),
                Fault::Unopened,
                call,
            )?;
            must(call["type"] == form, Fault::Shape, call)?;
            let id = filled(call, "id")?.to_owned();
            must(calls.iter().all(|other| other.id != id), Fault::DoubleId, &id)?;
            let arguments = inner[member].as_str().unwrap_or_default().to_owned();
            calls.push(Call {
                id,
                name: filled(inner, "name")?.to_owned(),
                arguments,
                custom: form == "custom",
            });
            return Ok(());
        };
        must(
            call["id"].is_null() || call["id"] == open.id.as_str(),
            Fault::ChangedId,
            call,
        )?;
        must(
            inner["name"].is_null(),
            Fault::ChangedId,
            format_args!("a name again: {call}"),
        )?;
        open.arguments.push_str(text(inner, member)?);
        Ok(())
    }

    fn close(self) -> Checked<Reading> {
        if self.reading.failed.is_some() {
            return Ok(self.reading);
        }
        let calls = !self.reading.calls.is_empty();
        match self.reading.stop {
            None => return bad(Fault::EndMissing, "no finish reason"),
            Some(Stop::Calls) => {
                must(calls, Fault::WrongStop, "ended for calls that are not there")?;
                self.reading.calls.iter().try_for_each(arguments_hold)?;
            }
            Some(Stop::End) => must(
                !calls,
                Fault::WrongStop,
                "there are calls, and it did not end for them",
            )?,
            Some(_) => {}
        }
        Ok(self.reading)
    }
}
