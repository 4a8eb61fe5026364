//! What an upstream means to say, thrown with dice: thoughts, texts and calls in any order, in any pieces.

use crate::dice::Dice;
use crate::grammar::reading::{Call, Reading, Stop, Used};

/// An answer before it is written in any dialect.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) segments: Vec<Segment>,
    pub(crate) stop: Stop,
    pub(crate) usage: Option<Used>,
}

/// A part of an answer, in pieces.
#[derive(Debug, Clone)]
pub(crate) enum Segment {
    Thinking(Vec<String>),
    Text(Vec<String>),
    Refusal(Vec<String>),
    Call {
        id: String,
        name: String,
        arguments: Vec<String>,
    },
}

/// What an upstream's dialect can say, and what a caller's can carry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) calls: bool,
    pub(crate) refusals: bool,
    pub(crate) cache_writes: bool,
}

impl Plan {
    /// Any answer within limits.
    pub(crate) fn throw(dice: &mut Dice, limits: Limits) -> Self {
        let mut segments = Vec::new();
        if limits.refusals && dice.once_in(12) {
            let text = dice.text();
            segments.push(Segment::Refusal(dice.pieces(&text)));
            return Self {
                segments,
                stop: Stop::Refused,
                usage: Some(used(dice, limits)),
            };
        }
        for _ in 0..=dice.below(5) {
            let text = dice.text();
            let pieces = dice.pieces(&text);
            // Neighbors of one kind are one part to those who read.
            let segment = match (dice.below(3), segments.last()) {
                (0, last) if !matches!(last, Some(Segment::Thinking(_))) => Segment::Thinking(pieces),
                (1, _) if limits.calls => call(dice, segments.len()),
                (_, last) if !matches!(last, Some(Segment::Text(_))) => Segment::Text(pieces),
                _ => continue,
            };
            segments.push(segment);
        }
        let calls = segments
            .iter()
            .any(|segment| matches!(segment, Segment::Call { .. }));
        let stop = match dice.below(5) {
            0 => Stop::Length,
            1 => Stop::Refused,
            _ if calls => Stop::Calls,
            _ => Stop::End,
        };
        let usage = (!dice.once_in(6)).then(|| used(dice, limits));
        Self {
            segments,
            stop,
            usage,
        }
    }

    /// Now and then an answer that reached its limit ends within the arguments of a call.
    pub(crate) fn cut_short(&mut self, dice: &mut Dice) {
        let Some(Segment::Call { arguments, .. }) = self.segments.last_mut() else {
            return;
        };
        if self.stop == Stop::Length && arguments.len() > 1 {
            arguments.truncate(1 + dice.below(arguments.len() - 1));
        }
    }

    /// What a reader of the stream must have in the end.
    pub(crate) fn meant(&self) -> Reading {
        let mut reading = Reading {
            stop: Some(self.stop),
            usage: self.usage,
            ..Reading::default()
        };
        for segment in &self.segments {
            match segment {
                Segment::Thinking(pieces) => reading.thinking.push_str(&pieces.concat()),
                Segment::Text(pieces) => reading.text.push_str(&pieces.concat()),
                Segment::Refusal(pieces) => reading.refusal.push_str(&pieces.concat()),
                Segment::Call { id, name, arguments } => reading.calls.push(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: arguments.concat(),
                    custom: false,
                }),
            }
        }
        reading
    }
}

fn call(dice: &mut Dice, number: usize) -> Segment {
    let value = serde_json::Value::String(dice.text());
    let arguments = match dice.below(4) {
        0 => "{}".to_owned(),
        1 => format!("{{\"a\":{{\"b\":[1,-2.5e3,{value},null]}},\"c\":true}}"),
        2 => format!("{{ \"a\" : {value} }}"),
        _ => format!("{{\"city\":{value}}}"),
    };
    let arguments = dice.pieces(&arguments);
    Segment::Call {
        id: format!("call_{number}_{}", dice.below(100)),
        name: (*dice.pick(&["weather", "f", "a-b_c"])).to_owned(),
        arguments,
    }
}

fn used(dice: &mut Dice, limits: Limits) -> Used {
    let (cached, fresh) = (dice.below(50) as u64, dice.below(900) as u64 + 1);
    let written = if limits.cache_writes {
        dice.below(50) as u64
    } else {
        0
    };
    let output = dice.below(500) as u64 + 1;
    let reasoning = dice.below(usize::try_from(output).unwrap_or(1)) as u64;
    Used {
        input: fresh + cached + written,
        cached,
        written,
        output,
        reasoning,
    }
}
