//! Whole answers of OpenAI Responses, to and from the superset.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::stream::reading::whole;
use super::stream::writing::Writer;
use super::told::{self, Item, Kind, Response, text};
use super::{proof, usage};
use crate::chat::error::parse_upstream_error;
use crate::superset::answer::{Answer, Broken};
use crate::superset::event::{Event, Reply};
use crate::superset::request::{Call, Part, Proof};

/// Reads an upstream's answer.
pub fn decode(body: &[u8]) -> Result<Answer, Broken> {
    let response: Response<'_> = serde_json::from_slice(body).map_err(|_| Broken::Malformed)?;
    let failed = text(response.status).as_deref() == Some("failed");
    let Some(output) = response.output.as_ref().filter(|_| !failed) else {
        return Err(match parse_upstream_error(body) {
            Some(error) => Broken::Told(Box::new(error)),
            None if failed => Broken::Told(Box::default()),
            None => Broken::Malformed,
        });
    };
    let mut parts = Vec::new();
    for item in output {
        read(item, &mut parts)?;
    }
    let has_calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let refused = parts.iter().any(|part| matches!(part, Part::Refusal(_)));
    Ok(Answer {
        finish: told::finish(&response, None, has_calls, refused)?,
        stop_sequence: None,
        usage: response.usage.map(RawValue::get).and_then(usage::read),
        parts,
    })
}

fn read(item: &Item<'_>, parts: &mut Vec<Part>) -> Result<(), Broken> {
    match item.kind() {
        Kind::Message => {
            let (said, refused) = item.said()?;
            if !said.is_empty() {
                parts.push(Part::Text {
                    text: said,
                    cache: None,
                });
            }
            if !refused.is_empty() {
                parts.push(Part::Refusal(refused));
            }
        }
        Kind::Reasoning => thought(item, parts)?,
        Kind::Call { custom } => {
            let number = parts
                .iter()
                .filter(|part| matches!(part, Part::ToolCall(_)))
                .count();
            let told = text(item.call_id).or(text(item.id)).unwrap_or_default();
            let is_taken = |part: &Part| matches!(part, Part::ToolCall(call) if call.id == *told);
            let id = if told.is_empty() || parts.iter().any(is_taken) {
                format!("call_{number}_{told}")
            } else {
                told.into_owned()
            };
            let arguments = item.arguments(custom)?;
            let arguments = if custom { arguments } else { whole(arguments)? };
            parts.push(Part::ToolCall(Call {
                id,
                name: text(item.name).ok_or(Broken::Malformed)?.into_owned(),
                namespace: text(item.namespace).map(Into::into),
                arguments: arguments.into_owned(),
                custom,
                proof: None,
            }));
        }
        Kind::Other => {}
    }
    Ok(())
}

fn thought(item: &Item<'_>, parts: &mut Vec<Part>) -> Result<(), Broken> {
    let words = item.any_thought()?;
    let encrypted = text(item.encrypted_content).unwrap_or_default();
    let proof = match proof::told(&encrypted) {
        proof::Told::Thought(maker, text) => Some(Proof {
            maker,
            text: text.to_owned(),
            redacted: words.is_empty(),
        }),
        proof::Told::Call(id, proof) => {
            let mut calls = parts.iter_mut().filter_map(|part| match part {
                Part::ToolCall(call) => Some(call),
                _ => None,
            });
            if let Some(call) = calls.find(|call| call.id == id) {
                call.proof = Some(proof);
            }
            None
        }
        proof::Told::Nothing => None,
    };
    if proof.is_some() || !words.is_empty() {
        parts.push(Part::Thinking { text: words, proof });
    }
    Ok(())
}

/// Writes an answer for a caller: the object that ends a stream of the same answer.
pub fn encode(answer: &Answer, reply: &Reply) -> Bytes {
    let mut writer = Writer::new(reply.clone());
    let mut calls = 0;
    for part in &answer.parts {
        say(part, &mut calls, &mut writer);
        writer.written().clear();
    }
    if let Some(usage) = answer.usage {
        writer.event(Event::Usage(usage));
    }
    writer.event(Event::Finish {
        finish: answer.finish,
        stop_sequence: None,
    });
    writer.whole().into()
}

fn say(part: &Part, calls: &mut u32, writer: &mut Writer) {
    let filled = |text: &str| !text.is_empty();
    match part {
        Part::Thinking { text, proof } => {
            if filled(text) {
                writer.event(Event::Thinking(text));
            }
            if let Some(Proof {
                maker,
                text,
                redacted,
            }) = proof
            {
                writer.event(Event::Proof {
                    maker: *maker,
                    text,
                    redacted: *redacted,
                });
            }
        }
        Part::Text { text, .. } if filled(text) => writer.event(Event::Text(text)),
        Part::Refusal(text) if filled(text) => writer.event(Event::Refusal(text)),
        Part::ToolCall(made) => {
            let call = *calls;
            *calls += 1;
            writer.event(Event::Call {
                call,
                id: &made.id,
                name: &made.name,
                namespace: made.namespace.as_deref(),
                custom: made.custom,
            });
            if filled(&made.arguments) {
                writer.event(Event::Arguments {
                    call,
                    piece: &made.arguments,
                });
            }
            if let Some(proof) = &made.proof {
                writer.event(Event::CallProof {
                    call,
                    maker: proof.maker,
                    text: &proof.text,
                });
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
