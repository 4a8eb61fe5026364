//! Usage as Responses tell it, to and from the facts that all dialects share.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::chat::usage::UsageFacts;

type Told<'a> = Option<&'a RawValue>;

/// The members of a usage object.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    input_tokens: Told<'a>,
    input_tokens_details: Told<'a>,
    output_tokens: Told<'a>,
    output_tokens_details: Told<'a>,
    total_tokens: Told<'a>,
    cost: Told<'a>,
    cost_details: Told<'a>,
    is_byok: Told<'a>,
}

/// Reads the JSON of a `usage` member. `None` when it tells neither input nor output. Engines that tell it in the
/// words of chat are understood too.
pub(super) fn read(text: &str) -> Option<UsageFacts> {
    let members: Members<'_> = serde_json::from_str(text).ok()?;
    let word = |raw: Told<'_>| raw.map_or("null".to_owned(), |raw| raw.get().to_owned());
    // The same figures under the names of chat: one reading of odd numbers for all.
    let renamed = format!(
        r#"{{"prompt_tokens":{},"prompt_tokens_details":{},"completion_tokens":{},"completion_tokens_details":{},"total_tokens":{},"cost":{},"cost_details":{},"is_byok":{}}}"#,
        word(members.input_tokens),
        word(members.input_tokens_details),
        word(members.output_tokens),
        word(members.output_tokens_details),
        word(members.total_tokens),
        word(members.cost),
        word(members.cost_details),
        word(members.is_byok),
    );
    UsageFacts::read(&renamed).or_else(|| UsageFacts::read(text))
}

/// A usage object as it is written: all members are compulsory.
#[derive(Debug, Serialize)]
pub(super) struct Usage {
    input_tokens: u64,
    input_tokens_details: InputDetails,
    output_tokens: u64,
    output_tokens_details: OutputDetails,
    total_tokens: u64,
}

#[derive(Debug, Serialize)]
struct InputDetails {
    cached_tokens: u64,
    cache_write_tokens: u64,
}

#[derive(Debug, Serialize)]
struct OutputDetails {
    reasoning_tokens: u64,
}

impl Usage {
    /// Of what an upstream told. What it did not tell is estimated: of a prompt of about `prompt_tokens`, and
    /// `output_bytes` of text that were generated.
    pub(super) fn of(facts: Option<UsageFacts>, prompt_tokens: u64, output_bytes: u64) -> Self {
        let facts = facts.unwrap_or_default();
        let (usage, _) = facts.completed(prompt_tokens, output_bytes).normalize();
        let input_tokens = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens;
        Self {
            input_tokens,
            input_tokens_details: InputDetails {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: usage.cache_write_tokens,
            },
            output_tokens: usage.output_tokens,
            output_tokens_details: OutputDetails {
                reasoning_tokens: usage.reasoning_tokens,
            },
            total_tokens: input_tokens + usage.output_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_by_its_own_names_and_by_those_of_chat() {
        let own = read(
            r#"{"input_tokens":17,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":22}"#,
        );
        let chat = read(
            r#"{"prompt_tokens":17,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":2},"total_tokens":22}"#,
        );

        assert_eq!(own, chat);
        assert_eq!(own.and_then(|facts| facts.cache_write_tokens), Some(3));
        assert_eq!(read(r#"{"total_tokens":1}"#), None);
        assert_eq!(read("null"), None);
    }

    #[test]
    fn what_a_call_costs_us_is_read_and_not_written() {
        let facts = read(r#"{"input_tokens":9,"output_tokens":1,"cost":0.000000001}"#).expect("usage");

        assert_eq!(facts.cost_nano_usd, Some(1));
        let written = serde_json::to_string(&Usage::of(Some(facts), 0, 0)).expect("json");
        assert!(!written.contains("cost"), "{written}");
    }

    #[test]
    fn usage_that_was_not_told_is_estimated() {
        let facts = read(r#"{"input_tokens":9}"#);

        let written = serde_json::to_value(Usage::of(facts, 1, 24)).expect("json");

        assert_eq!(
            (&written["input_tokens"], &written["output_tokens"]),
            (&9.into(), &7.into())
        );
        assert_eq!(written["total_tokens"], 16);
    }
}
