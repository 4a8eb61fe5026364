//! generateContent as Gemini writes it: parts in chunks, several in one, whole calls, cumulative usage, an empty last
//! part, no end mark.

use serde_json::json;

use super::written::Written;
use crate::dice::Dice;
use crate::grammar::reading::Stop;
use crate::plan::{Plan, Segment};

/// The same as one body.
pub(super) fn whole(plan: &Plan, dice: &mut Dice) -> String {
    chunk(plan, &parts(plan), Some(finish(plan, dice)))
}

pub(super) fn write(plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    let mut chunks: Vec<(Vec<String>, Option<&str>)> = Vec::new();
    for text in parts(plan) {
        match chunks.last_mut().filter(|_| dice.once_in(3)) {
            Some((parts, _)) => parts.push(text),
            None => chunks.push((vec![text], None)),
        }
    }
    let finish = finish(plan, dice);
    match chunks.last_mut().filter(|_| dice.once_in(2)) {
        Some((_, last)) => *last = Some(finish),
        None => chunks.push((vec!["{\"text\":\"\"}".to_owned()], Some(finish))),
    }
    chunks
        .iter()
        .map(|(parts, finish)| (None, chunk(plan, parts, *finish)))
        .collect()
}

fn finish(plan: &Plan, dice: &mut Dice) -> &'static str {
    match plan.stop {
        Stop::Length => "MAX_TOKENS",
        Stop::Refused => dice.pick::<&str>(&["SAFETY", "RECITATION", "PROHIBITED_CONTENT"]),
        _ => "STOP",
    }
}

/// The parts, each as JSON.
fn parts(plan: &Plan) -> Vec<String> {
    let mut parts = Vec::new();
    for segment in &plan.segments {
        match segment {
            Segment::Thinking(pieces) => {
                parts.extend(
                    pieces
                        .iter()
                        .map(|piece| json!({"text": piece, "thought": true}).to_string()),
                );
            }
            Segment::Text(pieces) | Segment::Refusal(pieces) => {
                parts.extend(pieces.iter().map(|piece| json!({"text": piece}).to_string()));
            }
            Segment::Call { name, arguments, .. } => {
                // Written by hand: what stands in `args` must arrive as it is written.
                let args = serde_json::value::RawValue::from_string(arguments.concat()).expect("an object");
                let call = Part {
                    function_call: Function { name, args: &args },
                };
                parts.push(serde_json::to_string(&call).expect("JSON"));
            }
        }
    }
    parts
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    function_call: Function<'a>,
}

#[derive(serde::Serialize)]
struct Function<'a> {
    name: &'a str,
    args: &'a serde_json::value::RawValue,
}

fn chunk(plan: &Plan, parts: &[String], finish: Option<&str>) -> String {
    let finish = finish.map_or(String::new(), |finish| format!(",\"finishReason\":\"{finish}\""));
    let usage = plan.usage.map_or(String::new(), |used| {
        let usage = json!({"promptTokenCount": used.input, "cachedContentTokenCount": used.cached,
            "candidatesTokenCount": used.output - used.reasoning, "thoughtsTokenCount": used.reasoning,
            "totalTokenCount": used.input + used.output});
        format!(",\"usageMetadata\":{usage}")
    });
    format!(
        "{{\"candidates\":[{{\"content\":{{\"parts\":[{}],\"role\":\"model\"}}{finish},\"index\":0}}]{usage},\"modelVersion\":\"u\"}}",
        parts.join(",")
    )
}
