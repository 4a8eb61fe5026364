//! Ten faults planted in streams that the encoders really wrote: each turns the checker of its dialect red, wherever in
//! whatever stream it is planted. A fault that a dialect cannot have, or a stream has no place for, is counted apart,
//! and every fault is planted often enough in every dialect that can have it.

use std::fmt::Write;

use dialects::dialect::Dialect;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::grammar::reading::{Fault, Reading, Said, Used, compare, events};
use crate::plan::Plan;
use crate::speakers::UPSTREAMS;
use crate::streams::{check, expected, limits, translate, usage_holds};
use crate::upstream::written;

/// Streams per dialect.
const STREAMS: u64 = 150;
/// Times that a fault must have been planted in a dialect that can have it.
const PLANTED_MIN: usize = 15;

/// What an encoder could do wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    MissingStart,
    DoubleStart,
    WrongIndex,
    DeltaAfterStop,
    UnopenedItem,
    ChangedId,
    LostArgumentByte,
    WrongStopReason,
    UsageTwice,
    NoEnd,
}

const ALL: [Planted; 10] = [
    Planted::MissingStart,
    Planted::DoubleStart,
    Planted::WrongIndex,
    Planted::DeltaAfterStop,
    Planted::UnopenedItem,
    Planted::ChangedId,
    Planted::LostArgumentByte,
    Planted::WrongStopReason,
    Planted::UsageTwice,
    Planted::NoEnd,
];

/// A stream as a list of events, with their data as values where it is JSON.
#[derive(Clone)]
struct Script {
    dialect: Dialect,
    events: Vec<(Option<String>, Value)>,
}

impl Script {
    fn of(dialect: Dialect, stream: &[u8]) -> Self {
        let events = events(stream).expect("an event stream").into_iter();
        let value = |said: Said| {
            (
                said.name,
                serde_json::from_str(&said.data).unwrap_or(json!("[DONE]")),
            )
        };
        Self {
            dialect,
            events: events.map(value).collect(),
        }
    }

    /// The stream, its numbers counted anew: a fault is not to be found by a number that it happens to shift.
    fn bytes(mut self) -> Vec<u8> {
        let mut stream = String::new();
        for (number, (name, data)) in self.events.iter_mut().enumerate() {
            if data.get("sequence_number").is_some() {
                data["sequence_number"] = json!(number);
            }
            if let Some(name) = name {
                writeln!(stream, "event: {name}").expect("text");
            }
            let data = if data == "[DONE]" {
                "[DONE]".to_owned()
            } else {
                data.to_string()
            };
            write!(stream, "data: {data}\n\n").expect("text");
        }
        stream.into_bytes()
    }

    /// Places of events of which this holds.
    fn places(&self, holds: impl Fn(&Value) -> bool) -> Vec<usize> {
        (0..self.events.len())
            .filter(|&at| holds(&self.events[at].1))
            .collect()
    }

    /// Plants a fault; `None` where there is no place for it.
    fn plant(&mut self, planted: Planted, dice: &mut Dice) -> Option<()> {
        match self.dialect {
            Dialect::Messages => messages(self, planted, dice),
            Dialect::Responses => responses(self, planted, dice),
            Dialect::Completions => completions(self, planted, dice),
            _ => chat(self, planted, dice),
        }
    }

    fn repeat(&mut self, from: usize, to: usize) {
        let event = self.events[from].clone();
        self.events.insert(to, event);
    }
}

fn some<'a>(dice: &mut Dice, places: &'a [usize]) -> Option<&'a usize> {
    (!places.is_empty()).then(|| dice.pick(places))
}

/// True for a piece of which something is left when a character is lost.
fn is_longer(piece: &str) -> bool {
    piece.chars().count() > 1
}

/// Takes one character out of a text.
fn shorten(value: &mut Value, dice: &mut Dice) -> Option<()> {
    let text = value.as_str()?;
    let at = dice.below(text.chars().count());
    let kept = text.chars().enumerate().filter(|(number, _)| *number != at);
    *value = json!(kept.map(|(_, letter)| letter).collect::<String>());
    Some(())
}

fn chat(script: &mut Script, planted: Planted, dice: &mut Dice) -> Option<()> {
    let delta = |event: &Value| event["choices"][0]["delta"].clone();
    let starts = script.places(|event| !delta(event)["tool_calls"][0]["id"].is_null());
    let pieces = script.places(|event| {
        let piece = &delta(event)["tool_calls"][0];
        piece["id"].is_null() && piece["function"]["arguments"].as_str().is_some_and(is_longer)
    });
    let finish = *script
        .places(|event| event["choices"][0]["finish_reason"].is_string())
        .first()?;
    let deltas = script.places(|event| {
        ["content", "reasoning_content", "refusal"]
            .iter()
            .any(|member| delta(event)[*member].is_string())
    });
    let usage = script.places(|event| event["usage"].is_object());
    match planted {
        Planted::MissingStart => drop(script.events.remove(0)),
        Planted::DoubleStart => script.repeat(0, 1 + dice.below(finish)),
        Planted::WrongIndex => {
            let at = *some(dice, &starts)?;
            let index = &mut script.events[at].1["choices"][0]["delta"]["tool_calls"][0]["index"];
            *index = json!(index.as_u64()? + 1);
        }
        Planted::DeltaAfterStop => script.repeat(*some(dice, &deltas)?, finish + 1),
        Planted::UnopenedItem => drop(script.events.remove(*some(dice, &starts)?)),
        Planted::ChangedId => {
            let at = 1 + dice.below(finish);
            script.events[at].1["id"] = json!("chatcmpl-other");
        }
        Planted::LostArgumentByte => {
            let at = *some(dice, &pieces)?;
            let call = &mut script.events[at].1["choices"][0]["delta"]["tool_calls"][0];
            shorten(&mut call["function"]["arguments"], dice)?;
        }
        Planted::WrongStopReason => {
            let reason = &mut script.events[finish].1["choices"][0]["finish_reason"];
            *reason = json!(if reason == "length" { "stop" } else { "length" });
        }
        Planted::UsageTwice => script.repeat(*usage.first()?, *usage.first()?),
        Planted::NoEnd => drop(script.events.pop()),
    }
    Some(())
}

fn completions(script: &mut Script, planted: Planted, dice: &mut Dice) -> Option<()> {
    let finish = *script
        .places(|event| event["choices"][0]["finish_reason"].is_string())
        .first()?;
    let texts = script.places(|event| {
        event["choices"][0]["text"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    });
    let usage = script.places(|event| event["usage"].is_object());
    match planted {
        // A stream of this dialect has no start, no items and no calls.
        Planted::MissingStart | Planted::DoubleStart | Planted::UnopenedItem | Planted::LostArgumentByte => {
            return None;
        }
        Planted::WrongIndex => script.events[*some(dice, &texts)?].1["choices"][0]["index"] = json!(1),
        Planted::DeltaAfterStop => script.repeat(*some(dice, &texts)?, finish + 1),
        Planted::ChangedId => {
            // The first id is the one that all others are compared with.
            let at = dice.below(finish) + 1;
            script
                .events
                .get(at)
                .filter(|(_, event)| event["id"].is_string())?;
            script.events[at].1["id"] = json!("cmpl-other");
        }
        Planted::WrongStopReason => {
            let reason = &mut script.events[finish].1["choices"][0]["finish_reason"];
            *reason = json!(if reason == "length" { "stop" } else { "length" });
        }
        Planted::UsageTwice => script.repeat(*usage.first()?, *usage.first()?),
        Planted::NoEnd => drop(script.events.pop()),
    }
    Some(())
}

fn messages(script: &mut Script, planted: Planted, dice: &mut Dice) -> Option<()> {
    let of = |script: &Script, kind: &str| script.places(|event| event["type"] == kind);
    let starts = of(script, "content_block_start");
    let deltas = of(script, "content_block_delta");
    let stops = of(script, "content_block_stop");
    let told = *of(script, "message_delta").first()?;
    let calls = script.places(|event| event["content_block"]["type"] == "tool_use");
    let pieces = script.places(|event| event["delta"]["partial_json"].as_str().is_some_and(is_longer));
    match planted {
        Planted::MissingStart => drop(script.events.remove(0)),
        Planted::DoubleStart => script.repeat(0, 1 + dice.below(told)),
        Planted::WrongIndex => {
            let all = [starts, deltas, stops].concat();
            let index = &mut script.events[*some(dice, &all)?].1["index"];
            *index = json!(index.as_u64()? + 1);
        }
        Planted::DeltaAfterStop => {
            // Behind the stop of its own block, or behind the end of all of them.
            let delta = *some(dice, &deltas)?;
            let stop = *stops.iter().find(|&&stop| stop > delta)?;
            let at = if dice.once_in(2) { stop + 1 } else { told + 1 };
            script.repeat(delta, at);
        }
        Planted::UnopenedItem => drop(script.events.remove(*some(dice, &starts)?)),
        Planted::ChangedId => {
            // Ids are told once in this dialect: one that changes is that of another call.
            let [first, .., last] = calls.as_slice() else {
                return None;
            };
            script.events[*last].1["content_block"]["id"] =
                script.events[*first].1["content_block"]["id"].clone();
        }
        Planted::LostArgumentByte => {
            let at = *some(dice, &pieces)?;
            shorten(&mut script.events[at].1["delta"]["partial_json"], dice)?;
        }
        Planted::WrongStopReason => {
            let reason = &mut script.events[told].1["delta"]["stop_reason"];
            let limited = reason == "max_tokens" || reason == "model_context_window_exceeded";
            *reason = json!(if limited { "end_turn" } else { "max_tokens" });
        }
        Planted::UsageTwice => script.repeat(told, told),
        Planted::NoEnd => drop(script.events.pop()),
    }
    Some(())
}

fn responses(script: &mut Script, planted: Planted, dice: &mut Dice) -> Option<()> {
    let of = |script: &Script, kind: &str| script.places(|event| event["type"] == kind);
    let ends = |script: &Script, end: &str| {
        script.places(|event| event["type"].as_str().is_some_and(|kind| kind.ends_with(end)))
    };
    let added = of(script, "response.output_item.added");
    let done = of(script, "response.output_item.done");
    let deltas = ends(script, ".delta");
    let inside = script.places(|event| event["item_id"].is_string());
    let pieces = script.places(|event| {
        event["type"] == "response.function_call_arguments.delta"
            && event["delta"].as_str().is_some_and(is_longer)
    });
    let last = script.events.len().checked_sub(1)?;
    match planted {
        Planted::MissingStart => drop(script.events.remove(0)),
        Planted::DoubleStart => script.repeat(0, 1 + dice.below(last)),
        Planted::WrongIndex => {
            let all = [added, done, inside].concat();
            let index = &mut script.events[*some(dice, &all)?].1["output_index"];
            *index = json!(index.as_u64()? + 1);
        }
        Planted::DeltaAfterStop => {
            let delta = *some(dice, &deltas)?;
            let index = script.events[delta].1["output_index"].clone();
            let stop = *done
                .iter()
                .find(|&&stop| script.events[stop].1["output_index"] == index)?;
            script.repeat(delta, stop + 1);
        }
        Planted::UnopenedItem => drop(script.events.remove(*some(dice, &added)?)),
        Planted::ChangedId => script.events[*some(dice, &inside)?].1["item_id"] = json!("fc_other"),
        Planted::LostArgumentByte => {
            let at = *some(dice, &pieces)?;
            shorten(&mut script.events[at].1["delta"], dice)?;
        }
        Planted::WrongStopReason => {
            let (name, event) = &mut script.events[last];
            let other = if event["type"] == "response.completed" {
                event["response"]["incomplete_details"] = json!({"reason": "max_output_tokens"});
                "incomplete"
            } else {
                event["response"]["incomplete_details"] = Value::Null;
                "completed"
            };
            event["response"]["status"] = json!(other);
            event["type"] = json!(format!("response.{other}"));
            *name = event["type"].as_str().map(str::to_owned);
        }
        // Usage is in the last event alone: to be told twice, that must be.
        Planted::UsageTwice => script.repeat(last, last),
        Planted::NoEnd => drop(script.events.pop()),
    }
    Some(())
}

/// The faults that a planted one may be found as.
fn names(planted: Planted, dialect: Dialect) -> &'static [Fault] {
    match planted {
        Planted::MissingStart => &[Fault::StartMissing],
        Planted::DoubleStart => &[Fault::StartTwice],
        Planted::WrongIndex => &[
            Fault::WrongIndex,
            Fault::Unopened,
            Fault::AfterStop,
            Fault::ChangedId,
            Fault::Unclosed,
        ],
        Planted::DeltaAfterStop => &[Fault::AfterStop, Fault::Unopened],
        // What stands behind the item that was not opened has a number too many.
        Planted::UnopenedItem => &[
            Fault::Unopened,
            Fault::WrongIndex,
            Fault::ChangedId,
            Fault::AfterStop,
        ],
        Planted::ChangedId => &[Fault::ChangedId, Fault::DoubleId],
        Planted::LostArgumentByte => &[Fault::Lost],
        Planted::WrongStopReason => &[Fault::WrongStop],
        Planted::UsageTwice if dialect == Dialect::Responses => &[Fault::AfterEnd],
        Planted::UsageTwice => &[Fault::UsageTwice],
        Planted::NoEnd => &[Fault::EndMissing],
    }
}

/// A stream that an encoder wrote, and what it says.
fn stream(caller: Dialect, dice: &mut Dice) -> (Vec<u8>, Reading, Plan) {
    let from = *dice.pick(UPSTREAMS);
    let mut plan = Plan::throw(dice, limits(from, caller));
    // Zeros would be no figures.
    plan.usage.get_or_insert(Used {
        input: 7,
        output: 3,
        ..Used::default()
    });
    let events = written::write(from, &plan, dice);
    let bytes = written::stream(&events, dice);
    let (sent, over) = translate(from, caller, written::cut(&bytes, dice));
    assert_eq!(over, Ok(()), "{from:?} -> {caller:?}");
    let meant = expected(from, caller, &plan);
    (sent, meant, plan)
}

fn plant_all(caller: Dialect, absent: &[Planted]) {
    let mut planted = [0_usize; ALL.len()];
    for seed in 0..STREAMS {
        let mut dice = Dice::of(seed * 31 + 7);
        let (sent, meant, plan) = stream(caller, &mut dice);
        let judge = |bytes: &[u8]| {
            let reading = check(caller, bytes)?;
            compare(&reading, &meant)?;
            usage_holds(caller, reading.usage, plan.usage)
        };
        let whole = Script::of(caller, &sent);
        // The same stream written by the same hand, without a fault.
        assert_eq!(judge(&whole.clone().bytes()), Ok(()), "{caller:?}");
        for (count, wrong) in planted.iter_mut().zip(ALL) {
            let mut script = whole.clone();
            if script.plant(wrong, &mut dice).is_none() {
                continue;
            }
            *count += 1;
            let bytes = script.bytes();
            let found = judge(&bytes).err().map(|violation| violation.fault);
            assert!(
                found.is_some_and(|fault| names(wrong, caller).contains(&fault)),
                "{caller:?}, {wrong:?} is found as {found:?}\n{}",
                String::from_utf8_lossy(&bytes)
            );
        }
    }
    for (count, wrong) in planted.into_iter().zip(ALL) {
        if absent.contains(&wrong) {
            assert_eq!(count, 0, "{caller:?}: {wrong:?}");
        } else {
            assert!(
                count >= PLANTED_MIN,
                "{caller:?}: {wrong:?} was planted {count} times"
            );
        }
    }
}

#[test]
fn ten_faults_planted_in_emitted_streams_of_chat_are_found() {
    plant_all(Dialect::Chat, &[]);
}

#[test]
fn ten_faults_planted_in_emitted_streams_of_messages_are_found() {
    plant_all(Dialect::Messages, &[]);
}

#[test]
fn ten_faults_planted_in_emitted_streams_of_responses_are_found() {
    plant_all(Dialect::Responses, &[]);
}

#[test]
fn faults_planted_in_emitted_streams_of_completions_are_found() {
    let absent = [
        Planted::MissingStart,
        Planted::DoubleStart,
        Planted::UnopenedItem,
        Planted::LostArgumentByte,
    ];
    plant_all(Dialect::Completions, &absent);
}
