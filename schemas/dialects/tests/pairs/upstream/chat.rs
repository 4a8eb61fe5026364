//! Chat as servers write it: ids and names repeated, numbers of calls, whole calls in one chunk, a finish reason that
//! comes with the last text or says `stop` after calls, usage with the finish or after it.

use serde_json::{Value, json};

use super::written::Written;
use crate::dice::Dice;
use crate::grammar::reading::{Stop, Used};
use crate::plan::{Plan, Segment};

pub(super) fn write(plan: &Plan, dice: &mut Dice) -> Vec<Written> {
    let mut deltas = vec![json!({"role": "assistant", "content": dice.pick(&[Value::Null, json!("")])})];
    let thought = *dice.pick(&["reasoning_content", "reasoning"]);
    let repeats = dice.once_in(4);
    // Calls that follow one another may be told in turns.
    let mut open: Vec<(usize, Vec<Value>)> = Vec::new();
    let mut calls = 0;
    for segment in &plan.segments {
        match segment {
            Segment::Call { id, name, arguments } => {
                open.push((calls, call(calls, (id, name, arguments), repeats, dice)));
                calls += 1;
            }
            other => {
                flush(&mut open, &mut deltas, dice);
                let (member, pieces) = match other {
                    Segment::Thinking(pieces) => (thought, pieces),
                    Segment::Refusal(pieces) => ("refusal", pieces),
                    Segment::Text(pieces)
                    | Segment::Call {
                        arguments: pieces, ..
                    } => ("content", pieces),
                };
                deltas.extend(pieces.iter().map(|piece| json!({member: piece})));
            }
        }
    }
    flush(&mut open, &mut deltas, dice);
    chunks(plan, calls, deltas, dice)
}

fn call(
    number: usize,
    (id, name, arguments): (&str, &str, &[String]),
    repeats: bool,
    dice: &mut Dice,
) -> Vec<Value> {
    let entry = |function: Value| json!({"index": number, "function": function});
    let start = |arguments: &str| {
        let mut start = entry(json!({"name": name, "arguments": arguments}));
        start["id"] = json!(id);
        start["type"] = json!("function");
        start
    };
    if dice.once_in(4) {
        return vec![start(&arguments.concat())];
    }
    let mut entries = vec![start("")];
    for piece in arguments {
        let mut more = entry(json!({"arguments": piece}));
        if repeats {
            more["id"] = json!(id);
            more["type"] = json!("function");
        }
        entries.push(more);
    }
    entries
}

/// Empties the calls that are open, in turns or one after the other; each begins before those that follow it.
fn flush(open: &mut Vec<(usize, Vec<Value>)>, deltas: &mut Vec<Value>, dice: &mut Dice) {
    let turns = dice.once_in(2);
    if turns {
        for (_, entries) in open.iter_mut() {
            deltas.push(json!({"tool_calls": [entries.remove(0)]}));
        }
        while open.iter().any(|(_, entries)| !entries.is_empty()) {
            let together: Vec<Value> = open
                .iter_mut()
                .filter(|(_, entries)| !entries.is_empty())
                .map(|(_, entries)| entries.remove(0))
                .collect();
            deltas.push(json!({"tool_calls": together}));
        }
    }
    for (_, entries) in open.drain(..) {
        deltas.extend(entries.into_iter().map(|entry| json!({"tool_calls": [entry]})));
    }
}

fn chunks(plan: &Plan, calls: usize, deltas: Vec<Value>, dice: &mut Dice) -> Vec<Written> {
    let finish = finish(plan, dice);
    let chunk = |choices: Value| json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "u", "choices": choices});
    let choice = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": null}]))
    };
    let mut written: Vec<Value> = deltas
        .into_iter()
        .map(|delta| choice(delta, Value::Null))
        .collect();
    let together = dice.once_in(3) && calls == 0;
    match written.last_mut().filter(|_| together) {
        Some(last) => last["choices"][0]["finish_reason"] = json!(finish),
        None => written.push(choice(json!({}), json!(finish))),
    }
    if let Some(used) = plan.usage {
        let usage = usage(used);
        if dice.once_in(4) {
            if let Some(last) = written.last_mut() {
                last["usage"] = usage;
            }
        } else {
            let mut last = chunk(json!([]));
            last["usage"] = usage;
            written.push(last);
        }
    }
    let mut events: Vec<Written> = written
        .into_iter()
        .map(|chunk| (None, chunk.to_string()))
        .collect();
    if !dice.once_in(8) {
        events.push((None, "[DONE]".to_owned()));
    }
    events
}

/// Why it ended, in a server's words.
pub(super) fn finish(plan: &Plan, dice: &mut Dice) -> &'static str {
    match plan.stop {
        Stop::Length => "length",
        Stop::Refused => "content_filter",
        // Some servers know no other end than this one.
        Stop::Calls if dice.once_in(4) => "stop",
        Stop::Calls => "tool_calls",
        _ => "stop",
    }
}

pub(super) fn usage(used: Used) -> Value {
    json!({"prompt_tokens": used.input, "completion_tokens": used.output, "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.written},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning}})
}
