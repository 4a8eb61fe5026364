//! Whole answers as upstreams write them, apart from every codec.

use dialects::dialect::Dialect;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{chat, gemini, messages, responses};
use crate::dice::Dice;
use crate::grammar::reading::Stop;
use crate::plan::{Plan, Segment};

/// The body of an answer.
pub(crate) fn write(dialect: Dialect, plan: &Plan, dice: &mut Dice) -> Vec<u8> {
    match dialect {
        Dialect::Responses => responses::whole(plan, dice).to_string().into_bytes(),
        Dialect::Messages => of_messages(plan),
        Dialect::Gemini => gemini::whole(plan, dice).into_bytes(),
        _ => of_chat(plan, dice).to_string().into_bytes(),
    }
}

fn of_chat(plan: &Plan, dice: &mut Dice) -> Value {
    let meant = plan.meant();
    let mut message = json!({"role": "assistant", "content": meant.text});
    if meant.text.is_empty() {
        message["content"] = dice.pick(&[Value::Null, json!("")]).clone();
    }
    if !meant.thinking.is_empty() {
        let name = *dice.pick(&["reasoning_content", "reasoning"]);
        message[name] = json!(meant.thinking);
    }
    if !meant.refusal.is_empty() {
        message["refusal"] = json!(meant.refusal);
    }
    let calls: Vec<Value> = meant
        .calls
        .iter()
        .map(|call| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
        .collect();
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    } else if dice.once_in(3) {
        // Some servers tell that there are none.
        message["tool_calls"] = json!([]);
    }
    let finish = chat::finish(plan, dice);
    let mut body = json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "u",
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}]});
    if let Some(used) = plan.usage {
        body["usage"] = chat::usage(used);
    }
    body
}

fn of_messages(plan: &Plan) -> Vec<u8> {
    let blocks = plan.segments.iter().map(|segment| match segment {
        Segment::Thinking(pieces) => {
            json!({"type": "thinking", "thinking": pieces.concat(), "signature": "sig"}).to_string()
        }
        Segment::Text(pieces) | Segment::Refusal(pieces) => {
            json!({"type": "text", "text": pieces.concat()}).to_string()
        }
        Segment::Call { id, name, arguments } => call(id, name, &arguments.concat()),
    });
    let blocks: Vec<String> = blocks.collect();
    let reason = match plan.stop {
        Stop::Length => "max_tokens",
        Stop::Refused => "refusal",
        Stop::Calls => "tool_use",
        _ => "end_turn",
    };
    let usage = plan
        .usage
        .map_or(Value::Null, |used| messages::usage(used, used.output));
    format!(
        r#"{{"id":"msg_01","type":"message","role":"assistant","model":"u","content":[{}],"stop_reason":"{reason}","stop_sequence":null,"usage":{usage}}}"#,
        blocks.join(",")
    )
    .into_bytes()
}

/// Written by hand: what stands in `input` must arrive as it is written.
fn call(id: &str, name: &str, arguments: &str) -> String {
    #[derive(serde::Serialize)]
    struct Call<'a> {
        r#type: &'a str,
        id: &'a str,
        name: &'a str,
        input: Box<RawValue>,
    }

    let call = Call {
        r#type: "tool_use",
        id,
        name,
        input: RawValue::from_string(arguments.to_owned()).expect("an object"),
    };
    serde_json::to_string(&call).expect("JSON")
}
