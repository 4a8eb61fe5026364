//! The grammar of a streamed answer of Messages: `message_start` with usage, blocks one after the other with numbers
//! from 0, one `message_delta` with a stop reason that fits the turn and usage, `message_stop`. Or a visible error.

use serde_json::Value;

use super::reading::{
    Call, Checked, Fault, Reading, Stop, Used, arguments_hold, bad, count, count_if_told, events, filled,
    must, object, only, text,
};

/// Reads a whole stream.
pub(crate) fn check(bytes: &[u8]) -> Checked<Reading> {
    let mut machine = Machine::default();
    for said in events(bytes)? {
        let event = object(&said.data)?;
        must(
            said.name.as_deref() == event["type"].as_str(),
            Fault::Framing,
            format_args!("the name is not the type: {event}"),
        )?;
        must(machine.state != State::Ended, Fault::AfterEnd, &event)?;
        machine.event(&event)?;
    }
    must(
        machine.state == State::Ended,
        Fault::EndMissing,
        "no message_stop",
    )?;
    Ok(machine.reading)
}

#[derive(Default, PartialEq, Eq, Clone, Copy)]
enum State {
    #[default]
    Fresh,
    Begun,
    Told,
    Ended,
}

#[derive(PartialEq, Eq)]
enum Block {
    Text { empty: bool },
    Thinking { empty: bool, signed: bool },
    Redacted,
    Tool,
}

#[derive(Default)]
struct Machine {
    reading: Reading,
    state: State,
    /// The block that is open.
    open: Option<Block>,
    /// Blocks begun so far.
    blocks: u64,
    start_usage: Used,
}

impl Machine {
    fn event(&mut self, event: &Value) -> Checked<()> {
        let kind = text(event, "type")?;
        match (kind, self.state) {
            ("error", _) => {
                only(event, &["type", "error", "request_id"])?;
                filled(&event["error"], "message")?;
                self.reading.failed = Some(filled(&event["error"], "type")?.to_owned());
                self.reading.stop = None;
                self.state = State::Ended;
                Ok(())
            }
            ("message_start", State::Fresh) => self.start(event),
            ("message_start", _) => bad(Fault::StartTwice, event),
            (_, State::Fresh) => bad(Fault::StartMissing, event),
            ("ping", _) => only(event, &["type"]),
            ("content_block_start" | "content_block_delta" | "content_block_stop", State::Told) => {
                bad(Fault::AfterStop, event)
            }
            ("content_block_start", _) => self.block_start(event),
            ("content_block_delta", _) => self.block_delta(event),
            ("content_block_stop", _) => self.block_stop(event),
            ("message_delta", State::Told) => bad(Fault::UsageTwice, event),
            ("message_delta", _) => self.told(event),
            ("message_stop", State::Told) => {
                only(event, &["type"])?;
                self.state = State::Ended;
                Ok(())
            }
            ("message_stop", _) => bad(Fault::EndMissing, "message_stop without message_delta"),
            _ => bad(Fault::Shape, event),
        }
    }

    fn start(&mut self, event: &Value) -> Checked<()> {
        only(event, &["type", "message"])?;
        let message = &event["message"];
        let members = [
            "id",
            "type",
            "role",
            "model",
            "content",
            "stop_reason",
            "stop_sequence",
            "usage",
            "container",
            "stop_details",
        ];
        only(message, &members)?;
        must(filled(message, "id")?.starts_with("msg_"), Fault::Shape, message)?;
        filled(message, "model")?;
        must(
            message["type"] == "message" && message["role"] == "assistant",
            Fault::Shape,
            message,
        )?;
        must(
            message["content"].as_array().is_some_and(Vec::is_empty),
            Fault::Shape,
            message,
        )?;
        let null = |member| message.get(member).is_some_and(Value::is_null);
        must(
            null("stop_reason") && null("stop_sequence"),
            Fault::Shape,
            message,
        )?;
        self.start_usage = usage(&message["usage"])?;
        count(&message["usage"], "input_tokens")?;
        self.state = State::Begun;
        Ok(())
    }

    fn block_start(&mut self, event: &Value) -> Checked<()> {
        only(event, &["type", "index", "content_block"])?;
        must(self.open.is_none(), Fault::Unclosed, event)?;
        must(count(event, "index")? == self.blocks, Fault::WrongIndex, event)?;
        self.blocks += 1;
        let block = &event["content_block"];
        self.open = Some(match text(block, "type")? {
            "text" => {
                must(text(block, "text")?.is_empty(), Fault::Shape, block)?;
                Block::Text { empty: true }
            }
            "thinking" => {
                only(block, &["type", "thinking", "signature"])?;
                must(text(block, "thinking")?.is_empty(), Fault::Shape, block)?;
                Block::Thinking {
                    empty: true,
                    signed: false,
                }
            }
            "redacted_thinking" => {
                self.reading.proofs.push(filled(block, "data")?.to_owned());
                Block::Redacted
            }
            "tool_use" => {
                only(block, &["type", "id", "name", "input"])?;
                let id = filled(block, "id")?;
                let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                must(
                    id.bytes().all(legal),
                    Fault::Shape,
                    format_args!("an id no caller may send back: {id}"),
                )?;
                must(
                    self.reading.calls.iter().all(|call| call.id != id),
                    Fault::DoubleId,
                    id,
                )?;
                must(
                    block["input"].as_object().is_some_and(serde_json::Map::is_empty),
                    Fault::Shape,
                    block,
                )?;
                let name = filled(block, "name")?.to_owned();
                self.reading.calls.push(Call {
                    id: id.to_owned(),
                    name,
                    ..Call::default()
                });
                Block::Tool
            }
            _ => return bad(Fault::Shape, block),
        });
        Ok(())
    }

    fn block_delta(&mut self, event: &Value) -> Checked<()> {
        only(event, &["type", "index", "delta"])?;
        let Some(open) = &mut self.open else {
            return bad(Fault::Unopened, event);
        };
        must(
            count(event, "index")? + 1 == self.blocks,
            Fault::WrongIndex,
            event,
        )?;
        let delta = &event["delta"];
        match (text(delta, "type")?, open) {
            ("text_delta", Block::Text { empty }) => {
                self.reading.text.push_str(filled(delta, "text")?);
                *empty = false;
            }
            ("thinking_delta", Block::Thinking { empty, signed }) => {
                must(!*signed, Fault::AfterStop, "a thought after its signature")?;
                self.reading.thinking.push_str(filled(delta, "thinking")?);
                *empty = false;
            }
            ("signature_delta", Block::Thinking { signed, .. }) => {
                must(!*signed, Fault::AfterStop, "a second signature")?;
                self.reading.proofs.push(filled(delta, "signature")?.to_owned());
                *signed = true;
            }
            ("input_json_delta", Block::Tool) => {
                let piece = text(delta, "partial_json")?;
                if let Some(call) = self.reading.calls.last_mut() {
                    call.arguments.push_str(piece);
                }
            }
            _ => return bad(Fault::Shape, format_args!("a delta of another block: {event}")),
        }
        Ok(())
    }

    fn block_stop(&mut self, event: &Value) -> Checked<()> {
        only(event, &["type", "index"])?;
        let Some(open) = self.open.take() else {
            return bad(Fault::Unopened, event);
        };
        must(
            count(event, "index")? + 1 == self.blocks,
            Fault::WrongIndex,
            event,
        )?;
        let empty = matches!(
            open,
            Block::Text { empty: true }
                | Block::Thinking {
                    empty: true,
                    signed: false
                }
        );
        must(
            !empty,
            Fault::Shape,
            "a block with nothing in it cannot be sent back",
        )
    }

    fn told(&mut self, event: &Value) -> Checked<()> {
        only(event, &["type", "delta", "usage", "context_management"])?;
        must(self.open.is_none(), Fault::Unclosed, event)?;
        let delta = &event["delta"];
        only(
            delta,
            &["stop_reason", "stop_sequence", "container", "stop_details"],
        )?;
        must(delta.get("stop_sequence").is_some(), Fault::Shape, event)?;
        let calls = &self.reading.calls;
        self.reading.stop = Some(match text(delta, "stop_reason")? {
            "end_turn" => Stop::End,
            "stop_sequence" => Stop::Sequence,
            "max_tokens" | "model_context_window_exceeded" => Stop::Length,
            "tool_use" => Stop::Calls,
            "refusal" => Stop::Refused,
            "pause_turn" => Stop::Paused,
            other => return bad(Fault::WrongStop, other),
        });
        match self.reading.stop {
            Some(Stop::Calls) => {
                must(
                    !calls.is_empty(),
                    Fault::WrongStop,
                    "ended for calls that are not there",
                )?;
                for call in &mut self.reading.calls {
                    // No piece at all stands for no arguments.
                    if call.arguments.is_empty() {
                        call.arguments.push_str("{}");
                    }
                    arguments_hold(call)?;
                }
            }
            Some(Stop::End) => must(
                calls.is_empty(),
                Fault::WrongStop,
                "there are calls, and it did not end for them",
            )?,
            _ => {}
        }
        self.reading.stop_sequence = delta["stop_sequence"].as_str().map(str::to_owned);
        let sequence = self.reading.stop == Some(Stop::Sequence);
        must(
            sequence || self.reading.stop_sequence.is_none(),
            Fault::WrongStop,
            event,
        )?;
        let mut told = usage(&event["usage"])?;
        if event["usage"]["input_tokens"].is_null() {
            let Used {
                input,
                cached,
                written,
                ..
            } = self.start_usage;
            told = Used {
                input,
                cached,
                written,
                ..told
            };
        }
        self.reading.usage = Some(told);
        self.state = State::Told;
        Ok(())
    }
}

pub(super) fn usage(usage: &Value) -> Checked<Used> {
    must(usage.is_object(), Fault::Usage, "usage is compulsory")?;
    let cached = count_if_told(usage, "cache_read_input_tokens")?;
    let written = count_if_told(usage, "cache_creation_input_tokens")?;
    Ok(Used {
        input: count_if_told(usage, "input_tokens")? + cached + written,
        cached,
        written,
        output: count(usage, "output_tokens")?,
        reasoning: count_if_told(&usage["output_tokens_details"], "thinking_tokens")?,
    })
}
