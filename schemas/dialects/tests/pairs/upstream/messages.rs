//! Messages as Anthropic and servers that imitate it write them: pings anywhere, empty pieces, events and members that
//! are new, usage that is told again.

use serde_json::{Value, json};

use super::written::Written;
use crate::dice::Dice;
use crate::grammar::reading::{Stop, Used};
use crate::plan::{Plan, Segment};

pub(super) fn write(plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    let mut events = vec![start(plan)];
    // Some servers close all blocks at the end.
    let (late, mut stops) = (dice.once_in(6), Vec::new());
    for (index, segment) in plan.segments.iter().enumerate() {
        if dice.once_in(5) {
            events.push(json!({"type": "ping"}));
        }
        let (block, member, deltas) = match segment {
            Segment::Thinking(pieces) => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                ("thinking_delta", "thinking"),
                pieces,
            ),
            Segment::Text(pieces) | Segment::Refusal(pieces) => (
                json!({"type": "text", "text": ""}),
                ("text_delta", "text"),
                pieces,
            ),
            Segment::Call { id, name, arguments } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                ("input_json_delta", "partial_json"),
                arguments,
            ),
        };
        let tool = matches!(segment, Segment::Call { .. });
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let delta = |(kind, name): (&str, &str), text: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}});
        if tool && dice.once_in(2) {
            events.push(delta(member, ""));
        }
        // No arguments at all are the empty object.
        let bare = tool && deltas.concat() == "{}" && dice.once_in(2);
        if !bare {
            events.extend(deltas.iter().map(|piece| delta(member, piece)));
        }
        if matches!(segment, Segment::Thinking(_)) && dice.once_in(2) {
            events.push(delta(("signature_delta", "signature"), "sig-of-a-thought"));
        }
        let stop = json!({"type": "content_block_stop", "index": index});
        if late {
            stops.push(stop);
        } else {
            events.push(stop);
        }
    }
    events.append(&mut stops);
    let reason = match plan.stop {
        Stop::Length => *dice.pick(&["max_tokens", "model_context_window_exceeded"]),
        Stop::Refused => "refusal",
        Stop::Calls => "tool_use",
        _ => "end_turn",
    };
    let mut last = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}});
    if let Some(used) = plan.usage {
        last["usage"] = if dice.once_in(2) {
            usage(used, used.output)
        } else {
            json!({"output_tokens": used.output, "output_tokens_details": {"thinking_tokens": used.reasoning}})
        };
    }
    events.push(last);
    events.push(json!({"type": "message_stop"}));
    if dice.once_in(6) {
        events.insert(1, json!({"type": "something_new", "of": "later"}));
    }
    events
        .into_iter()
        .map(|event| (event["type"].as_str().map(str::to_owned), event.to_string()))
        .collect()
}

fn start(plan: &Plan) -> Value {
    let mut message = json!({"id": "msg_01", "type": "message", "role": "assistant", "model": "u", "content": [],
        "stop_reason": null, "stop_sequence": null});
    if let Some(used) = plan.usage {
        message["usage"] = usage(used, 1);
    }
    json!({"type": "message_start", "message": message})
}

pub(super) fn usage(used: Used, output: u64) -> Value {
    json!({"input_tokens": used.input - used.cached - used.written, "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": used.written, "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": used.reasoning}})
}
