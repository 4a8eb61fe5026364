//! The grammar of a streamed answer of the older completions: chunks of text of one choice, exactly one finish reason,
//! at most one usage chunk after it, the end mark.

use serde_json::Value;

use super::reading::{
    Checked, Fault, Reading, Stop, bad, count, events, filled, must, object, only, openai_usage, text,
};

const CHUNK: &[&str] = &[
    "id",
    "object",
    "created",
    "model",
    "choices",
    "usage",
    "system_fingerprint",
];

/// Reads a whole stream.
pub(crate) fn check(bytes: &[u8]) -> Checked<Reading> {
    let mut reading = Reading::default();
    let (mut same, mut ended) = (None, false);
    for said in events(bytes)? {
        must(said.name.is_none(), Fault::Framing, "completions name no events")?;
        must(!ended, Fault::AfterEnd, &said.data)?;
        if said.data == "[DONE]" {
            must(
                reading.stop.is_some(),
                Fault::EndMissing,
                "an end mark without a finish reason",
            )?;
            ended = true;
            continue;
        }
        let chunk = object(&said.data)?;
        if chunk.get("error").is_some() {
            only(&chunk, &["error"])?;
            reading.failed = Some(filled(&chunk["error"], "type")?.to_owned());
            reading.stop = None;
            ended = true;
            continue;
        }
        only(&chunk, CHUNK)?;
        must(chunk["object"] == "text_completion", Fault::Shape, &chunk)?;
        let now = (
            filled(&chunk, "id")?.to_owned(),
            filled(&chunk, "model")?.to_owned(),
            count(&chunk, "created")?,
        );
        must(
            *same.get_or_insert_with(|| now.clone()) == now,
            Fault::ChangedId,
            &chunk,
        )?;
        take(&mut reading, &chunk)?;
    }
    must(ended, Fault::EndMissing, "no end mark")?;
    Ok(reading)
}

fn take(reading: &mut Reading, chunk: &Value) -> Checked<()> {
    let Some(choices) = chunk["choices"].as_array() else {
        return bad(Fault::Shape, chunk);
    };
    must(choices.len() <= 1, Fault::WrongIndex, "more than one choice")?;
    for choice in choices {
        only(
            choice,
            &["index", "text", "finish_reason", "logprobs", "stop_reason"],
        )?;
        must(count(choice, "index")? == 0, Fault::WrongIndex, choice)?;
        let piece = text(choice, "text")?;
        must(reading.stop.is_none(), Fault::AfterStop, choice)?;
        reading.text.push_str(piece);
        if !choice["finish_reason"].is_null() {
            reading.stop = Some(match text(choice, "finish_reason")? {
                "stop" => Stop::End,
                "length" => Stop::Length,
                "content_filter" => Stop::Refused,
                other => return bad(Fault::WrongStop, other),
            });
        }
    }
    if chunk["usage"].is_null() {
        return must(!choices.is_empty(), Fault::Shape, "an empty chunk");
    }
    must(reading.usage.is_none(), Fault::UsageTwice, chunk)?;
    must(reading.stop.is_some(), Fault::Usage, "usage before the end")?;
    reading.usage = Some(openai_usage(&chunk["usage"])?);
    Ok(())
}
