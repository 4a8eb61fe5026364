//! Responses as OpenAI and engines write them: with or without numbers, summaries or open thoughts, arguments in
//! pieces or whole at the end, a truncated answer under either event.

use serde_json::{Value, json};

use super::written::Written;
use crate::dice::Dice;
use crate::grammar::reading::Stop;
use crate::plan::{Plan, Segment};

pub(super) fn write(plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    let response = |status: &str| {
        json!({"id": "resp_1", "object": "response", "created_at": 7, "status": status, "model": "u", "output": [],
            "error": null, "incomplete_details": null, "usage": null})
    };
    let mut events = vec![json!({"type": "response.created", "response": response("in_progress")})];
    if !dice.once_in(4) {
        events.push(json!({"type": "response.in_progress", "response": response("in_progress")}));
    }
    let (mut output, mut open) = (Vec::new(), Vec::new());
    for (index, segment) in plan.segments.iter().enumerate() {
        let (item, inner) = item(index, segment, dice);
        let mut empty = item.clone();
        for (member, value) in [
            ("content", json!([])),
            ("summary", json!([])),
            ("arguments", json!("")),
        ] {
            if !empty[member].is_null() {
                empty[member] = value;
            }
        }
        let mut own =
            vec![json!({"type": "response.output_item.added", "output_index": index, "item": empty})];
        for mut event in inner {
            event["output_index"] = json!(index);
            event["item_id"] = item["id"].clone();
            own.push(event);
        }
        own.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
        // Calls that follow one another may be told in turns.
        if !matches!(segment, Segment::Call { .. }) {
            flush(&mut open, &mut events, dice);
        }
        open.push(own);
        output.push(item);
    }
    flush(&mut open, &mut events, dice);
    events.push(end(plan, response("completed"), &output, dice));
    let numbered = !dice.once_in(5);
    for (number, event) in events.iter_mut().enumerate().filter(|_| numbered) {
        event["sequence_number"] = json!(number);
    }
    events
        .into_iter()
        .map(|event| (event["type"].as_str().map(str::to_owned), event.to_string()))
        .collect()
}

/// Empties items that are open, in turns or one after the other; each begins before those that follow it.
fn flush(open: &mut Vec<Vec<Value>>, events: &mut Vec<Value>, dice: &mut Dice) {
    let turns = dice.once_in(2);
    while turns && open.iter().any(|own| !own.is_empty()) {
        let heads = open
            .iter_mut()
            .filter(|own| !own.is_empty())
            .map(|own| own.remove(0));
        events.extend(heads);
    }
    events.extend(open.drain(..).flatten());
}

/// The same as one body.
pub(super) fn whole(plan: &Plan, dice: &mut Dice) -> Value {
    let mut output = Vec::new();
    for (index, segment) in plan.segments.iter().enumerate() {
        output.push(item(index, segment, dice).0);
    }
    let response = json!({"id": "resp_1", "object": "response", "created_at": 7, "status": "completed", "model": "u",
        "error": null, "incomplete_details": null});
    end(plan, response, &output, dice)["response"].take()
}

/// An item, and the events inside it.
fn item(index: usize, segment: &Segment, dice: &mut Dice) -> (Value, Vec<Value>) {
    match segment {
        Segment::Thinking(pieces) => thinking(index, pieces, dice),
        Segment::Text(pieces) => message(index, ("output_text", "text"), pieces),
        Segment::Refusal(pieces) => message(index, ("refusal", "refusal"), pieces),
        Segment::Call { id, name, arguments } => call(index, (id, name, arguments), dice),
    }
}

fn end(plan: &Plan, mut last: Value, output: &[Value], dice: &mut Dice) -> Value {
    last["output"] = json!(output);
    if let Some(used) = plan.usage {
        last["usage"] = json!({"input_tokens": used.input, "output_tokens": used.output, "total_tokens": used.input + used.output,
            "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.written},
            "output_tokens_details": {"reasoning_tokens": used.reasoning}});
    }
    let refused = plan
        .segments
        .iter()
        .any(|segment| matches!(segment, Segment::Refusal(_)));
    let reason = match plan.stop {
        Stop::Length => Some("max_output_tokens"),
        Stop::Refused if !refused => Some("content_filter"),
        _ => None,
    };
    let Some(reason) = reason else {
        return json!({"type": "response.completed", "response": last});
    };
    last["status"] = json!("incomplete");
    last["incomplete_details"] = json!({"reason": reason});
    let kind = if dice.once_in(4) {
        "response.completed"
    } else {
        "response.incomplete"
    };
    json!({"type": kind, "response": last})
}

fn thinking(index: usize, pieces: &[String], dice: &mut Dice) -> (Value, Vec<Value>) {
    let whole = pieces.concat();
    let (kind, place, part_kind) = if dice.once_in(3) {
        ("reasoning_text", "content_index", "reasoning_text")
    } else {
        ("reasoning_summary_text", "summary_index", "summary_text")
    };
    let part = json!({"type": part_kind, "text": whole});
    let open = part_kind == "reasoning_text";
    let (summary, content) = if open {
        (json!([]), json!([part]))
    } else {
        (json!([part]), Value::Null)
    };
    let mut item = json!({"type": "reasoning", "id": format!("rs_{index}"), "summary": summary});
    if open {
        item["content"] = content;
    }
    let around = if open {
        "content_part"
    } else {
        "reasoning_summary_part"
    };
    let empty = json!({"type": part_kind, "text": ""});
    let mut inner = vec![json!({"type": format!("response.{around}.added"), place: 0, "part": empty})];
    inner.extend(
        pieces
            .iter()
            .map(|piece| json!({"type": format!("response.{kind}.delta"), place: 0, "delta": piece})),
    );
    inner.push(json!({"type": format!("response.{kind}.done"), place: 0, "text": whole}));
    inner.push(json!({"type": format!("response.{around}.done"), place: 0, "part": part}));
    (item, inner)
}

fn message(index: usize, (kind, member): (&str, &str), pieces: &[String]) -> (Value, Vec<Value>) {
    let whole = pieces.concat();
    let part = |text: &str| {
        let mut part = json!({"type": kind, member: text});
        if kind == "output_text" {
            part["annotations"] = json!([]);
        }
        part
    };
    let item = json!({"type": "message", "id": format!("msg_{index}"), "role": "assistant", "status": "completed",
        "content": [part(&whole)]});
    let mut inner =
        vec![json!({"type": "response.content_part.added", "content_index": 0, "part": part("")})];
    inner.extend(
        pieces.iter().map(
            |piece| json!({"type": format!("response.{kind}.delta"), "content_index": 0, "delta": piece}),
        ),
    );
    inner.push(json!({"type": format!("response.{kind}.done"), "content_index": 0, member: whole}));
    inner.push(json!({"type": "response.content_part.done", "content_index": 0, "part": part(&whole)}));
    (item, inner)
}

fn call(
    index: usize,
    (id, name, arguments): (&str, &str, &[String]),
    dice: &mut Dice,
) -> (Value, Vec<Value>) {
    let whole = arguments.concat();
    let item = json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": id, "name": name,
        "arguments": whole, "status": "completed"});
    let mut inner = Vec::new();
    // Some engines tell the arguments at the end alone.
    if !dice.once_in(4) {
        let delta =
            |piece: &String| json!({"type": "response.function_call_arguments.delta", "delta": piece});
        inner.extend(arguments.iter().map(delta));
    }
    inner.push(json!({"type": "response.function_call_arguments.done", "arguments": whole, "name": name}));
    (item, inner)
}
