//! What the grammar checkers of all dialects share: a strict reader of event streams, what a stream says once it is
//! put together, and the names of what can be wrong with one. Written from the dialects' descriptions alone, apart from
//! the code that writes streams, and used by tests that must not trust that code.

use std::fmt;

use serde_json::Value;

/// A stream put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The answer's text.
    pub(crate) text: String,
    /// The thoughts.
    pub(crate) thinking: String,
    /// The refusal, in dialects that tell it apart from text.
    pub(crate) refusal: String,
    /// The calls, in order.
    pub(crate) calls: Vec<Call>,
    /// Why it ended; `None` for a stream that failed.
    pub(crate) stop: Option<Stop>,
    /// The text that ended it, where the dialect tells.
    pub(crate) stop_sequence: Option<String>,
    /// What was used, where it was told.
    pub(crate) usage: Option<Used>,
    /// The type of the error that ended it visibly.
    pub(crate) failed: Option<String>,
    /// Proofs of thoughts, redacted thoughts among them, where the dialect carries them.
    pub(crate) proofs: Vec<String>,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The id that its result must name.
    pub(crate) id: String,
    /// The tool.
    pub(crate) name: String,
    /// All pieces of its arguments.
    pub(crate) arguments: String,
    /// It takes free text.
    pub(crate) custom: bool,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At its end.
    End,
    /// At a text of the caller's.
    Sequence,
    /// At a limit.
    Length,
    /// For calls to be made.
    Calls,
    /// A filter or the model refused.
    Refused,
    /// A pause.
    Paused,
}

/// Tokens, with all input in `input`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// All input, cached parts included.
    pub(crate) input: u64,
    /// Of it, read from a cache.
    pub(crate) cached: u64,
    /// Of it, written to a cache.
    pub(crate) written: u64,
    /// All output.
    pub(crate) output: u64,
    /// Of it, reasoning.
    pub(crate) reasoning: u64,
}

/// What can be wrong with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The bytes are no event stream.
    Framing,
    /// An event is not of the dialect.
    Shape,
    /// Something comes before the start, or there is none.
    StartMissing,
    /// It starts again.
    StartTwice,
    /// A number is not the next one, or not that of what is open.
    WrongIndex,
    /// Something comes after what ended it.
    AfterStop,
    /// Something is added to what was not opened.
    Unopened,
    /// Something was opened and never closed.
    Unclosed,
    /// An id, a name or a model is not what it was.
    ChangedId,
    /// Two things have one id.
    DoubleId,
    /// Arguments or texts are not what they were meant to be.
    Lost,
    /// The stop reason does not fit the turn.
    WrongStop,
    /// Usage is told twice.
    UsageTwice,
    /// Usage is missing where it is compulsory, or its sums are wrong.
    Usage,
    /// There is no end.
    EndMissing,
    /// Something comes after the end.
    AfterEnd,
}

/// A fault and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Its name.
    pub(crate) fault: Fault,
    /// What was found.
    pub(crate) found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.fault, self.found)
    }
}

/// A result that names its violation.
pub(crate) type Checked<T> = Result<T, Violation>;

/// A violation.
pub(crate) fn bad<T>(fault: Fault, found: impl fmt::Display) -> Checked<T> {
    Err(Violation {
        fault,
        found: found.to_string(),
    })
}

/// A violation unless `holds`.
pub(crate) fn must(holds: bool, fault: Fault, found: impl fmt::Display) -> Checked<()> {
    if holds { Ok(()) } else { bad(fault, found) }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    /// The value of its `event:` line.
    pub(crate) name: Option<String>,
    /// Its data.
    pub(crate) data: String,
}

/// The events of a whole stream. What a gateway writes has one form: `event: `, `data: `, comments and blank lines, each
/// ended by a line feed, and a blank line after the last event.
pub(crate) fn events(bytes: &[u8]) -> Checked<Vec<Said>> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return bad(Fault::Framing, "not UTF-8");
    };
    let mut said = Vec::new();
    let (mut name, mut data) = (None, None::<String>);
    must(
        text.is_empty() || text.ends_with("\n\n"),
        Fault::Framing,
        "the last event is not ended",
    )?;
    for line in text.split_terminator('\n') {
        if line.is_empty() {
            if let Some(data) = data.take() {
                said.push(Said {
                    name: name.take(),
                    data,
                });
            } else {
                must(name.is_none(), Fault::Framing, "an event without data")?;
            }
        } else if let Some(value) = line.strip_prefix("data: ") {
            match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            }
        } else if let Some(value) = line.strip_prefix("event: ") {
            must(
                name.is_none() && data.is_none(),
                Fault::Framing,
                "an event with two names",
            )?;
            name = Some(value.to_owned());
        } else {
            must(line.starts_with(':'), Fault::Framing, line)?;
        }
    }
    Ok(said)
}

/// The JSON object of an event.
pub(crate) fn object(data: &str) -> Checked<Value> {
    match serde_json::from_str::<Value>(data) {
        Ok(value) if value.is_object() => Ok(value),
        _ => bad(Fault::Shape, format_args!("no JSON object: {data}")),
    }
}

/// A member that must be text.
pub(crate) fn text<'a>(value: &'a Value, member: &str) -> Checked<&'a str> {
    match value[member].as_str() {
        Some(text) => Ok(text),
        None => bad(Fault::Shape, format_args!("'{member}' is no text in {value}")),
    }
}

/// A member that must be text with something in it.
pub(crate) fn filled<'a>(value: &'a Value, member: &str) -> Checked<&'a str> {
    let found = text(value, member)?;
    must(
        !found.is_empty(),
        Fault::Shape,
        format_args!("'{member}' is empty in {value}"),
    )?;
    Ok(found)
}

/// A member that must be a whole number that is not negative.
pub(crate) fn count(value: &Value, member: &str) -> Checked<u64> {
    match value[member].as_u64() {
        Some(count) => Ok(count),
        None => bad(Fault::Shape, format_args!("'{member}' is no count in {value}")),
    }
}

/// A member that may be absent or null, and else must be a count.
pub(crate) fn count_if_told(value: &Value, member: &str) -> Checked<u64> {
    if value[member].is_null() {
        Ok(0)
    } else {
        count(value, member)
    }
}

/// Only these members may be there.
pub(crate) fn only(value: &Value, members: &[&str]) -> Checked<()> {
    let Some(object) = value.as_object() else {
        return bad(Fault::Shape, format_args!("no object: {value}"));
    };
    match object.keys().find(|name| !members.contains(&name.as_str())) {
        Some(name) => bad(
            Fault::Shape,
            format_args!("'{name}' is not of the dialect in {value}"),
        ),
        None => Ok(()),
    }
}

/// The usage object of the older OpenAI dialects.
pub(crate) fn openai_usage(usage: &Value) -> Checked<Used> {
    let used = Used {
        input: count(usage, "prompt_tokens")?,
        cached: count_if_told(&usage["prompt_tokens_details"], "cached_tokens")?,
        written: count_if_told(&usage["prompt_tokens_details"], "cache_write_tokens")?,
        output: count(usage, "completion_tokens")?,
        reasoning: count_if_told(&usage["completion_tokens_details"], "reasoning_tokens")?,
    };
    let total = count(usage, "total_tokens")?;
    must(
        total == used.input + used.output,
        Fault::Usage,
        format_args!("the total is no sum: {usage}"),
    )?;
    must(
        used.cached + used.written <= used.input,
        Fault::Usage,
        format_args!("more cached than input: {usage}"),
    )?;
    Ok(used)
}

/// Arguments of a call that ended well must be an object.
pub(crate) fn arguments_hold(call: &Call) -> Checked<()> {
    let holds =
        call.custom || serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value.is_object());
    must(
        holds,
        Fault::Lost,
        format_args!("arguments are no object: {:?}", call.arguments),
    )
}

/// What a stream was meant to say, compared to what it says: nothing may be lost on the way.
pub(crate) fn compare(reading: &Reading, meant: &Reading) -> Checked<()> {
    must(
        reading.text == meant.text,
        Fault::Lost,
        format_args!("text {:?}, meant {:?}", reading.text, meant.text),
    )?;
    let (thinking, wanted) = (&reading.thinking, &meant.thinking);
    must(
        thinking == wanted,
        Fault::Lost,
        format_args!("thinking {thinking:?}, meant {wanted:?}"),
    )?;
    let (refusal, wanted) = (&reading.refusal, &meant.refusal);
    must(
        refusal == wanted,
        Fault::Lost,
        format_args!("refusal {refusal:?}, meant {wanted:?}"),
    )?;
    let calls = |reading: &Reading| -> Vec<(String, String)> {
        reading
            .calls
            .iter()
            .map(|call| (call.name.clone(), call.arguments.clone()))
            .collect()
    };
    must(
        calls(reading) == calls(meant),
        Fault::Lost,
        format_args!("{:?}, meant {:?}", reading.calls, meant.calls),
    )?;
    must(
        reading.stop == meant.stop,
        Fault::WrongStop,
        format_args!("{:?}, meant {:?}", reading.stop, meant.stop),
    )
}
