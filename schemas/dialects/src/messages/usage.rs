//! Usage in the words of Messages: its input excludes what was read from or written to a cache, and a stream tells
//! it in two places, the later figure of a class replacing the earlier one.

use serde::{Deserialize, Serialize};

use crate::chat::usage::{Told, UsageFacts};
use crate::superset::event::Reply;

/// What an upstream told so far, class by class.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    /// The prompt is what was neither read from a cache nor written to one.
    told: UsageFacts,
    /// What the start of a stream told of the output: a small number that says nothing of what follows.
    provisional: Option<u64>,
}

/// The members of a usage object that count.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Members<'a> {
    #[serde(borrow)]
    input_tokens: Told<'a>,
    cache_read_input_tokens: Told<'a>,
    cache_creation_input_tokens: Told<'a>,
    output_tokens: Told<'a>,
    output_tokens_details: Told<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details<'a> {
    #[serde(borrow)]
    thinking_tokens: Told<'a>,
}

impl Tally {
    /// Takes in the usage object of a stream that begins. Its figure of the output holds only if the end of the stream
    /// tells no other: a stream that is left before is not paid for by it.
    pub(super) fn start(&mut self, usage: Told<'_>) -> Option<UsageFacts> {
        self.read(usage)?;
        self.provisional = self.told.completion_tokens.take();
        self.told.prompt_tokens.is_some().then(|| self.facts())
    }

    /// Takes in a usage object; `None` when it tells nothing, else everything known so far.
    pub(super) fn read(&mut self, usage: Told<'_>) -> Option<UsageFacts> {
        let members: Members<'_> = serde_json::from_str(usage?.get()).ok()?;
        let details: Details<'_> = members
            .output_tokens_details
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        let told = &mut self.told;
        told.prompt_tokens = told.count(&[members.input_tokens]).or(told.prompt_tokens);
        told.cached_tokens = told
            .count(&[members.cache_read_input_tokens])
            .or(told.cached_tokens);
        told.cache_write_tokens = told
            .count(&[members.cache_creation_input_tokens])
            .or(told.cache_write_tokens);
        told.completion_tokens = match (members.output_tokens, told.count(&[members.output_tokens])) {
            // What was told of less is not what a figure that cannot be believed means.
            (Some(_), count) => {
                self.provisional = None;
                count
            }
            (None, _) => told.completion_tokens.or(self.provisional),
        };
        told.reasoning_tokens = told.count(&[details.thinking_tokens]).or(told.reasoning_tokens);
        (told.prompt_tokens.is_some() || told.completion_tokens.is_some()).then(|| self.facts())
    }

    fn facts(&self) -> UsageFacts {
        let told = self.told;
        let parts = [told.cached_tokens, told.cache_write_tokens].map(|count| count.unwrap_or(0));
        UsageFacts {
            prompt_tokens: told.prompt_tokens.map(|fresh| fresh + parts.iter().sum::<u64>()),
            ..told
        }
    }
}

/// Usage as callers see it: every figure a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_details: Option<Thinking>,
}

/// Part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Thinking {
    thinking_tokens: u64,
}

impl Figures {
    /// Before anything is known but the size of the prompt.
    pub(super) const fn provisional(reply: &Reply) -> Self {
        Self {
            input_tokens: reply.prompt_tokens,
            cache_creation_input_tokens: 0,
            cache_read_input_tokens: 0,
            output_tokens: 0,
            output_tokens_details: None,
        }
    }

    /// At the end. What was not told is estimated; `output_bytes` of text were generated.
    pub(super) fn of(facts: Option<UsageFacts>, reply: &Reply, output_bytes: usize) -> Self {
        let output_bytes = u64::try_from(output_bytes).unwrap_or(u64::MAX);
        let facts = facts.unwrap_or_default();
        let (usage, _) = facts.completed(reply.prompt_tokens, output_bytes).normalize();
        Self {
            input_tokens: usage.input_tokens,
            cache_creation_input_tokens: usage.cache_write_tokens,
            cache_read_input_tokens: usage.cached_tokens,
            output_tokens: usage.output_tokens,
            output_tokens_details: (usage.reasoning_tokens > 0).then_some(Thinking {
                thinking_tokens: usage.reasoning_tokens,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).expect("json")
    }

    #[test]
    fn the_output_that_a_stream_begins_with_counts_only_where_its_end_tells_no_other() {
        let start = raw(r#"{"input_tokens":50,"output_tokens":1}"#);
        let begun = Tally::default().start(Some(&start)).expect("usage");
        let ended = |usage: &str| {
            let mut tally = Tally::default();
            tally.start(Some(&start));
            tally.read(Some(&raw(usage))).expect("usage").completion_tokens
        };

        assert_eq!((begun.prompt_tokens, begun.completion_tokens), (Some(50), None));
        assert_eq!(ended(r#"{"output_tokens":20}"#), Some(20));
        assert_eq!(ended("{}"), Some(1));
    }

    #[test]
    fn output_beyond_belief_is_left_to_an_estimate() {
        for absurd in ["99999999999", "-4", "\"many\""] {
            let mut tally = Tally::default();
            tally.start(Some(&raw(r#"{"input_tokens":50,"output_tokens":1}"#)));
            let told = tally.read(Some(&raw(&format!(r#"{{"output_tokens":{absurd}}}"#))));
            let facts = told.expect("the input");
            assert_eq!(
                (facts.prompt_tokens, facts.completion_tokens, facts.malformed),
                (Some(50), None, true),
                "{absurd}"
            );
            let after = tally.read(Some(&raw("{}"))).expect("the input");
            assert_eq!(after.completion_tokens, None, "{absurd}");
        }
    }
}
