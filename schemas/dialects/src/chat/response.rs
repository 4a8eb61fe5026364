//! Whole answers of OpenAI chat completions, to and from the superset. Every object that servers are known to send in
//! place of an answer is told apart from one.

pub(super) mod details;
pub(crate) mod usage;
pub(super) mod wire;

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use super::{arguments, error, mint, signed};
use crate::superset::answer::{Answer, Broken, Finish};
use crate::superset::event::Reply;
use crate::superset::request::{self, Part, Proof};
use details::{Detail, Extra};
use usage::Usage;
use wire::{Call, Frame, Said};

/// Reads an upstream's answer. Arguments of calls are the text of an object afterwards, unless the answer was cut
/// short at a limit; others make it [`Broken::Malformed`].
pub fn decode(body: &[u8]) -> Result<Answer, Broken> {
    let frame = wire::read(body).map_err(|_| Broken::Malformed)?;
    if let Some(error) = told_error(&frame, body) {
        return Err(Broken::Told(Box::new(error)));
    }
    let usage = usage::told(&frame);
    let choice = frame.choices.first.ok_or(Broken::Empty)?;
    let mut parts = Vec::new();
    if let Some(said) = choice.message.as_ref().or(choice.delta.as_ref()) {
        read_said(said, &frame.id.0, &mut parts);
    }
    push_text(&mut parts, &choice.text.0);
    let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
    let finish = match usage::finish(&choice, calls) {
        None if parts.is_empty() => return Err(Broken::Empty),
        // Some servers leave it out of whole answers.
        None if calls => Finish::ToolCalls,
        None => Finish::Stop,
        Some(finish) => finish.map_err(|_| Broken::Aborted)?,
    };
    let stop_sequence = usage::stop_sequence(&choice).map(ToOwned::to_owned);
    let mut answer = Answer {
        parts,
        finish,
        stop_sequence: stop_sequence.filter(|_| finish == Finish::StopSequence),
        usage,
    };
    settle_arguments(&mut answer)?;
    Ok(answer)
}

/// The failure that a frame is.
pub(super) fn told_error(frame: &Frame<'_>, data: &[u8]) -> Option<error::UpstreamError> {
    match frame.error.and_then(|raw| error::of_member(raw.get())) {
        Some(error) => Some(error),
        None if frame.object.0 == "error" && !frame.choices.listed => {
            Some(error::parse_upstream_error(data).unwrap_or_default())
        }
        None => None,
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Text {
            text: text.to_owned(),
            cache: None,
        });
    }
}

fn read_said(said: &Said<'_>, answer_id: &str, parts: &mut Vec<Part>) {
    read_thoughts(said, parts);
    push_text(parts, &said.content.text);
    if !said.refusal.is_empty() {
        parts.push(Part::Refusal(said.refusal.0.clone().into_owned()));
    }
    let mut ids: Vec<String> = Vec::new();
    for call in said.tool_calls.as_deref().unwrap_or_default() {
        let Some(mut call) = read_call(call) else {
            continue;
        };
        if call.id.is_empty() || ids.contains(&call.id) {
            call.id = mint::call_id(&[answer_id, &call.name, &ids.len().to_string()]);
        }
        ids.push(call.id.clone());
        parts.push(Part::ToolCall(call));
    }
    if let Some(function) = said
        .function_call
        .as_ref()
        .filter(|function| !function.name.is_empty())
    {
        parts.push(Part::ToolCall(request::Call {
            id: mint::call_id(&[answer_id, &function.name.0, "function"]),
            name: function.name.0.clone().into_owned(),
            namespace: None,
            arguments: function.arguments.0.clone().into_owned(),
            custom: false,
            proof: None,
        }));
    }
}

fn read_thoughts(said: &Said<'_>, parts: &mut Vec<Part>) {
    let mut details: Vec<(String, Option<Proof>)> = Vec::new();
    for detail in said.reasoning_details.as_deref().unwrap_or_default() {
        let proof = detail.proof();
        if !detail.words().is_empty() || proof.is_some() {
            details.push((detail.words().to_owned(), proof));
        }
    }
    let words = [
        &said.reasoning_content.0,
        &said.reasoning.0,
        &said.content.thoughts,
    ];
    let words = words.into_iter().find(|words| !words.is_empty());
    if let Some(words) = words
        && details.iter().all(|(text, _)| text.is_empty())
    {
        let bare = details
            .iter_mut()
            .find(|(_, proof)| proof.as_ref().is_some_and(|proof| !proof.redacted));
        match bare {
            Some((text, _)) => words.as_ref().clone_into(text),
            None => details.insert(0, (words.clone().into_owned(), None)),
        }
    }
    parts.extend(
        details
            .into_iter()
            .map(|(text, proof)| Part::Thinking { text, proof }),
    );
}

fn read_call(call: &Call<'_>) -> Option<request::Call> {
    let (name, arguments, custom) = match (&call.function, &call.custom) {
        (Some(function), _) => (&function.name, &function.arguments, false),
        (None, Some(custom)) => (&custom.name, &custom.input, true),
        (None, None) => return None,
    };
    if name.is_empty() {
        return None;
    }
    Some(request::Call {
        id: call.id.0.clone().into_owned(),
        name: name.0.clone().into_owned(),
        namespace: None,
        arguments: arguments.0.clone().into_owned(),
        custom,
        proof: call.extra_content.as_ref().and_then(wire::Extra::proof),
    })
}

/// Makes arguments the text of an object.
fn settle_arguments(answer: &mut Answer) -> Result<(), Broken> {
    let whole = answer.finish == Finish::ToolCalls;
    for part in &mut answer.parts {
        let Part::ToolCall(call) = part else {
            continue;
        };
        if call.custom || arguments::is_object(&call.arguments) {
            continue;
        }
        match arguments::repaired(&call.arguments) {
            Some(repaired) => call.arguments = repaired,
            None if whole => return Err(Broken::Malformed),
            None => {}
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Whole<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [WholeChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct WholeChoice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Detail<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Made<'a>>,
}

/// A call as it is written.
#[derive(Serialize)]
struct Made<'a> {
    id: Cow<'a, str>,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<MadeFunction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<MadeCustom<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Extra<'a>>,
}

#[derive(Serialize)]
struct MadeFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct MadeCustom<'a> {
    name: &'a str,
    input: &'a str,
}

impl<'a> Made<'a> {
    fn of(call: &'a request::Call) -> Self {
        let arguments = match call.arguments.as_str() {
            "" if !call.custom => "{}",
            arguments => arguments,
        };
        Self {
            id: id_of(call),
            kind: if call.custom { "custom" } else { "function" },
            function: (!call.custom).then_some(MadeFunction {
                name: &call.name,
                arguments,
            }),
            custom: call.custom.then_some(MadeCustom {
                name: &call.name,
                input: arguments,
            }),
            extra_content: call.proof.as_ref().map(Extra::of),
        }
    }
}

/// The id of a call, with Gemini's signature where it can carry one.
fn id_of(call: &request::Call) -> Cow<'_, str> {
    let proof = call.proof.as_ref();
    let with_signature = proof.and_then(|proof| signed::written(&call.id, proof.maker, &proof.text));
    with_signature.map_or(Cow::Borrowed(&call.id), Cow::Owned)
}

/// Writes an answer for a caller.
pub fn encode(answer: &Answer, reply: &Reply) -> Bytes {
    let message = message_of(answer, reply);
    let calls = !message.tool_calls.is_empty();
    let whole = Whole {
        id: format!("chatcmpl-{}", reply.id),
        object: "chat.completion",
        created: reply.created,
        model: &reply.model,
        choices: [WholeChoice {
            index: 0,
            message,
            logprobs: None,
            finish_reason: usage::word(answer.finish, calls),
            stop_reason: answer.stop_sequence.as_deref(),
        }],
        usage: answer.usage.map(Usage::of),
    };
    // Text and numbers always serialize.
    serde_json::to_vec(&whole).unwrap_or_default().into()
}

fn message_of<'a>(answer: &'a Answer, reply: &Reply) -> Message<'a> {
    let (mut content, mut refusal, mut thoughts) = (String::new(), String::new(), String::new());
    let mut reasoning_details = Vec::new();
    let mut tool_calls = Vec::new();
    let proven = answer
        .parts
        .iter()
        .any(|part| matches!(part, Part::Thinking { proof: Some(_), .. }));
    for part in &answer.parts {
        match part {
            Part::Text { text, .. } => content.push_str(text),
            Part::Refusal(text) => refusal.push_str(text),
            Part::Thinking { text, proof } if !reply.hides_thinking => {
                thoughts.push_str(text);
                if proven {
                    details::push(&mut reasoning_details, text, proof.as_ref());
                }
            }
            Part::ToolCall(call) => tool_calls.push(Made::of(call)),
            _ => {}
        }
    }
    let told = |text: String| (!text.is_empty()).then_some(text);
    let silent = !tool_calls.is_empty() || !refusal.is_empty();
    Message {
        role: "assistant",
        content: if silent { told(content) } else { Some(content) },
        refusal: told(refusal),
        reasoning_content: told(thoughts),
        reasoning_details,
        tool_calls,
    }
}

#[cfg(test)]
mod tests;
