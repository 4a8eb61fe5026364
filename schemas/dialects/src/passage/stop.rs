//! How a passing stream is ended before its upstream ends it: as an answer that ran into its maximum of tokens, in the
//! words of its dialect. What had begun is closed, nothing is said that was not said before.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Skimmer;
use crate::chat::ends::Called;
use crate::dialect::Dialect;
use crate::responses::passage::follow::Follower;

/// What is told of an answer that is ended at its maximum.
#[derive(Debug, Clone, Copy)]
pub struct Stop<'a> {
    /// What the caller speaks.
    pub dialect: Dialect,
    /// The model's public name, as a JSON string.
    pub model_json: &'a [u8],
    /// Choices that were asked for.
    pub choices: usize,
    /// Tokens of the prompt and of what was said.
    pub tokens: (u64, u64),
    /// The caller asked for usage.
    pub include_usage: bool,
    /// The data of an event that passed.
    pub last: &'a [u8],
    /// What was said so far, in Responses.
    pub followed: Option<&'a Follower>,
}

/// The end of such a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// What leaves at once.
    pub events: Vec<u8>,
    /// The end mark.
    pub mark: Bytes,
}

impl Skimmer {
    /// Ends a stream where it is; `None` where that cannot be said.
    pub fn stop(&self, stop: &Stop<'_>) -> Option<Ending> {
        match self {
            Self::Chat { ended, .. } => chat(stop, *ended),
            Self::Messages(skimmer) => {
                let mut events = Vec::new();
                for index in skimmer.open_blocks() {
                    events.extend_from_slice(
                        format!(
                            "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
                        )
                        .as_bytes(),
                    );
                }
                events.extend_from_slice(
                    format!(
                        "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\
                         \"max_tokens\",\"stop_sequence\":null}},\"usage\":{{\"output_tokens\":{}}}}}\n\n",
                        stop.tokens.1
                    )
                    .as_bytes(),
                );
                let mark = super::end_mark(Dialect::Messages).unwrap_or_default();
                let mark = Bytes::from_static(mark);
                Some(Ending { events, mark })
            }
            Self::Responses(_) => stop.followed?.stop(stop.tokens),
        }
    }
}

/// What all chunks of one answer have in common.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    object: Option<&'a RawValue>,
    created: Option<&'a RawValue>,
    system_fingerprint: Option<&'a RawValue>,
}

fn chat(stop: &Stop<'_>, ended: Called) -> Option<Ending> {
    use std::fmt::Write as _;

    let head: Head<'_> = serde_json::from_slice(stop.last).ok()?;
    let mut open = String::from("{");
    for (name, value) in [
        ("id", head.id),
        ("object", head.object),
        ("created", head.created),
        ("system_fingerprint", head.system_fingerprint),
    ] {
        if let Some(value) = value {
            open.push_str(&format_member(name, value.get()));
        }
    }
    open.push_str(&format_member(
        "model",
        std::str::from_utf8(stop.model_json).unwrap_or("null"),
    ));
    let said = match stop.dialect {
        Dialect::Completions => "\"text\":\"\"",
        _ => "\"delta\":{}",
    };
    // Writing to a String cannot fail.
    let mut events = String::new();
    let choices = u64::try_from(stop.choices).unwrap_or(u64::MAX);
    for index in (0..choices).filter(|index| !ended.contains(*index)) {
        let _ = write!(
            events,
            "data: {open}\"choices\":[{{\"index\":{index},{said},\"logprobs\":null,\"finish_reason\":\"length\"}}]}}\n\n"
        );
    }
    if stop.include_usage {
        let (prompt, said) = stop.tokens;
        let _ = write!(
            events,
            "data: {open}\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{said},\
             \"total_tokens\":{}}}}}\n\n",
            prompt.saturating_add(said)
        );
    }
    let mark = Bytes::from_static(super::end_mark(Dialect::Chat).unwrap_or_default());
    Some(Ending {
        events: events.into_bytes(),
        mark,
    })
}

fn format_member(name: &str, value: &str) -> String {
    format!("\"{name}\":{value},")
}

#[cfg(test)]
mod tests;
