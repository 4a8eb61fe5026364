//! generateContent as Gemini writes it: parts in chunks, several in one, whole calls, cumulative usage, an empty last
//! part, no end mark.

use serde_json::{Value, json};

use super::written::Written;
use crate::dice::Dice;
use crate::grammar::reading::Stop;
use crate::plan::{Plan, Segment};

pub(super) fn write(plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    let mut parts: Vec<Value> = Vec::new();
    for segment in &plan.segments {
        match segment {
            Segment::Thinking(pieces) => {
                parts.extend(pieces.iter().map(|piece| json!({"text": piece, "thought": true})));
            }
            Segment::Text(pieces) | Segment::Refusal(pieces) => {
                parts.extend(pieces.iter().map(|piece| json!({"text": piece})));
            }
            Segment::Call { name, arguments, .. } => {
                let text = arguments.concat();
                // Written by hand: what stands in `args` must arrive as it is written.
                let args = serde_json::value::RawValue::from_string(text).expect("an object");
                let call = serde_json::to_string(&Part {
                    function_call: Function { name, args: &args },
                })
                .expect("JSON");
                parts.push(Value::String(call));
            }
        }
    }
    let mut chunks: Vec<(Vec<String>, Option<&str>)> = Vec::new();
    for part in parts {
        let text = part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        match chunks.last_mut().filter(|_| dice.once_in(3)) {
            Some((parts, _)) => parts.push(text),
            None => chunks.push((vec![text], None)),
        }
    }
    let finish = match plan.stop {
        Stop::Length => "MAX_TOKENS",
        Stop::Refused => *dice.pick(&["SAFETY", "RECITATION", "PROHIBITED_CONTENT"]),
        _ => "STOP",
    };
    match chunks.last_mut().filter(|_| dice.once_in(2)) {
        Some((_, last)) => *last = Some(finish),
        None => chunks.push((vec!["{\"text\":\"\"}".to_owned()], Some(finish))),
    }
    chunks
        .iter()
        .map(|(parts, finish)| (None, chunk(plan, parts, *finish)))
        .collect()
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
