//! The grammar of whole answers, one reader per dialect of callers. Written from the dialects' descriptions alone, as
//! the readers of streams are.

use serde_json::Value;
use serde_json::value::RawValue;

use super::messages::usage as messages_usage;
use super::reading::{
    Call, Checked, Fault, Reading, Stop, arguments_hold, bad, count, filled, must, object, only,
    openai_usage, text,
};
use super::responses::usage as responses_usage;

fn whole(bytes: &[u8]) -> Checked<Value> {
    match std::str::from_utf8(bytes) {
        Ok(text) => object(text),
        Err(_) => bad(Fault::Framing, "not UTF-8"),
    }
}

fn list(value: &Value) -> Checked<&[Value]> {
    match value.as_array() {
        Some(list) => Ok(list),
        None => bad(Fault::Shape, format_args!("no list: {value}")),
    }
}

/// The only choice of an answer of the older dialects.
fn only_choice<'a>(body: &'a Value, object: &str) -> Checked<&'a Value> {
    must(body["object"] == object, Fault::Shape, body)?;
    filled(body, "id")?;
    filled(body, "model")?;
    count(body, "created")?;
    match list(&body["choices"])? {
        [choice] => {
            must(count(choice, "index")? == 0, Fault::WrongIndex, choice)?;
            Ok(choice)
        }
        _ => bad(Fault::WrongIndex, body),
    }
}

/// Text, or nothing at all.
fn text_if_told<'a>(value: &'a Value, member: &str) -> Checked<&'a str> {
    if value[member].is_null() {
        Ok("")
    } else {
        text(value, member)
    }
}

/// Reads an answer in chat.
pub(crate) fn chat(bytes: &[u8]) -> Checked<Reading> {
    let body = whole(bytes)?;
    let choice = only_choice(&body, "chat.completion")?;
    let message = &choice["message"];
    must(message["role"] == "assistant", Fault::Shape, message)?;
    must(message.get("content").is_some(), Fault::Shape, message)?;
    let mut reading = Reading {
        text: text_if_told(message, "content")?.to_owned(),
        thinking: text_if_told(message, "reasoning_content")?.to_owned(),
        refusal: text_if_told(message, "refusal")?.to_owned(),
        ..Reading::default()
    };
    if !message["tool_calls"].is_null() {
        for call in list(&message["tool_calls"])? {
            let form = text(call, "type")?;
            let member = if form == "custom" { "input" } else { "arguments" };
            reading.calls.push(Call {
                id: filled(call, "id")?.to_owned(),
                name: filled(&call[form], "name")?.to_owned(),
                arguments: text(&call[form], member)?.to_owned(),
                custom: form == "custom",
            });
        }
        must(!reading.calls.is_empty(), Fault::Shape, "an empty list of calls")?;
    }
    reading.stop = Some(match text(choice, "finish_reason")? {
        "stop" => Stop::End,
        "length" => Stop::Length,
        "tool_calls" => Stop::Calls,
        "content_filter" => Stop::Refused,
        other => return bad(Fault::WrongStop, other),
    });
    if !body["usage"].is_null() {
        reading.usage = Some(openai_usage(&body["usage"])?);
    }
    fits(reading)
}

/// Reads an answer of the older completions.
pub(crate) fn completions(bytes: &[u8]) -> Checked<Reading> {
    let body = whole(bytes)?;
    let choice = only_choice(&body, "text_completion")?;
    let stop = match text(choice, "finish_reason")? {
        "stop" => Stop::End,
        "length" => Stop::Length,
        "content_filter" => Stop::Refused,
        other => return bad(Fault::WrongStop, other),
    };
    let usage = if body["usage"].is_null() {
        None
    } else {
        Some(openai_usage(&body["usage"])?)
    };
    Ok(Reading {
        text: text(choice, "text")?.to_owned(),
        stop: Some(stop),
        usage,
        ..Reading::default()
    })
}

/// Reads an answer in Messages.
pub(crate) fn messages(bytes: &[u8]) -> Checked<Reading> {
    let body = whole(bytes)?;
    must(
        body["type"] == "message" && body["role"] == "assistant",
        Fault::Shape,
        &body,
    )?;
    must(filled(&body, "id")?.starts_with("msg_"), Fault::Shape, &body)?;
    filled(&body, "model")?;
    let mut reading = Reading::default();
    let inputs = inputs(bytes);
    for (at, block) in list(&body["content"])?.iter().enumerate() {
        match text(block, "type")? {
            "text" => reading.text.push_str(filled(block, "text")?),
            "thinking" => {
                only(block, &["type", "thinking", "signature"])?;
                reading.thinking.push_str(text(block, "thinking")?);
                reading.proofs.push(text(block, "signature")?.to_owned());
            }
            "redacted_thinking" => reading.proofs.push(filled(block, "data")?.to_owned()),
            "tool_use" => {
                must(block["input"].is_object(), Fault::Lost, block)?;
                reading.calls.push(Call {
                    id: filled(block, "id")?.to_owned(),
                    name: filled(block, "name")?.to_owned(),
                    arguments: inputs.get(at).cloned().flatten().unwrap_or_default(),
                    custom: false,
                });
            }
            _ => return bad(Fault::Shape, block),
        }
    }
    must(body.get("stop_sequence").is_some(), Fault::Shape, &body)?;
    reading.stop = Some(match text(&body, "stop_reason")? {
        "end_turn" => Stop::End,
        "stop_sequence" => Stop::Sequence,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "tool_use" => Stop::Calls,
        "refusal" => Stop::Refused,
        "pause_turn" => Stop::Paused,
        other => return bad(Fault::WrongStop, other),
    });
    count(&body["usage"], "input_tokens")?;
    reading.usage = Some(messages_usage(&body["usage"])?);
    fits(reading)
}

/// The input of each block, as it was written.
fn inputs(bytes: &[u8]) -> Vec<Option<String>> {
    #[derive(serde::Deserialize)]
    struct Body {
        content: Vec<Block>,
    }
    #[derive(serde::Deserialize)]
    struct Block {
        input: Option<Box<RawValue>>,
    }

    let read: Option<Body> = serde_json::from_slice(bytes).ok();
    let blocks = read.map(|body| body.content).unwrap_or_default();
    let inputs = blocks.into_iter().map(|block| block.input);
    inputs
        .map(|input| input.map(|input| input.get().to_owned()))
        .collect()
}

/// Reads an answer in Responses.
pub(crate) fn responses(bytes: &[u8]) -> Checked<Reading> {
    let body = whole(bytes)?;
    must(body["object"] == "response", Fault::Shape, &body)?;
    filled(&body, "id")?;
    filled(&body, "model")?;
    count(&body, "created_at")?;
    let mut reading = Reading::default();
    for item in list(&body["output"])? {
        filled(item, "id")?;
        responses_item(item, &mut reading)?;
    }
    reading.usage = Some(responses_usage(&body["usage"])?);
    reading.stop = Some(match text(&body, "status")? {
        "completed" if reading.calls.is_empty() => Stop::End,
        "completed" => Stop::Calls,
        "incomplete" => match text(&body["incomplete_details"], "reason")? {
            "max_output_tokens" => Stop::Length,
            "content_filter" => Stop::Refused,
            other => return bad(Fault::WrongStop, other),
        },
        other => return bad(Fault::WrongStop, other),
    });
    fits(reading)
}

fn responses_item(item: &Value, reading: &mut Reading) -> Checked<()> {
    match text(item, "type")? {
        "message" => {
            must(item["role"] == "assistant", Fault::Shape, item)?;
            for part in list(&item["content"])? {
                match text(part, "type")? {
                    "output_text" => reading.text.push_str(text(part, "text")?),
                    "refusal" => reading.refusal.push_str(text(part, "refusal")?),
                    _ => return bad(Fault::Shape, part),
                }
            }
        }
        "reasoning" => {
            for part in list(&item["summary"])? {
                reading.thinking.push_str(text(part, "text")?);
            }
            if let Some(proof) = item["encrypted_content"].as_str() {
                reading.proofs.push(proof.to_owned());
            }
        }
        kind @ ("function_call" | "custom_tool_call") => {
            let custom = kind == "custom_tool_call";
            let member = if custom { "input" } else { "arguments" };
            reading.calls.push(Call {
                id: filled(item, "call_id")?.to_owned(),
                name: filled(item, "name")?.to_owned(),
                arguments: text(item, member)?.to_owned(),
                custom,
            });
        }
        _ => return bad(Fault::Shape, item),
    }
    Ok(())
}

/// The stop reason is that of the whole turn, and calls that are to be made can be.
fn fits(reading: Reading) -> Checked<Reading> {
    let mut ids: Vec<&str> = reading.calls.iter().map(|call| call.id.as_str()).collect();
    ids.sort_unstable();
    must(
        ids.windows(2).all(|pair| pair[0] != pair[1]),
        Fault::DoubleId,
        "two calls of one id",
    )?;
    let calls = !reading.calls.is_empty();
    match reading.stop {
        Some(Stop::Calls) => {
            must(calls, Fault::WrongStop, "ended for calls that are not there")?;
            reading.calls.iter().try_for_each(arguments_hold)?;
        }
        Some(Stop::End) => must(
            !calls,
            Fault::WrongStop,
            "there are calls, and it did not end for them",
        )?,
        _ => {}
    }
    Ok(reading)
}
