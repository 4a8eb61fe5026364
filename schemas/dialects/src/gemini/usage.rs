//! Usage as Gemini counts it: the prompt includes what was cached, the output excludes what was thought, and what is
//! zero may be left out.

use serde::Deserialize;

use crate::chat::usage::{Told, UsageFacts};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_field_names, reason = "names of the wire")]
struct Members<'a> {
    #[serde(borrow)]
    prompt_token_count: Told<'a>,
    tool_use_prompt_token_count: Told<'a>,
    cached_content_token_count: Told<'a>,
    candidates_token_count: Told<'a>,
    thoughts_token_count: Told<'a>,
    total_token_count: Told<'a>,
}

/// Reads the JSON of `usageMetadata`. `None` when it tells neither input nor output.
pub(crate) fn read(text: &str) -> Option<UsageFacts> {
    let members: Members<'_> = serde_json::from_str(text).ok()?;
    let mut facts = UsageFacts::default();
    let prompt = facts.count(&[members.prompt_token_count]);
    let tools = facts.count(&[members.tool_use_prompt_token_count]);
    let candidates = facts.count(&[members.candidates_token_count]);
    let thoughts = facts.count(&[members.thoughts_token_count]);
    let total = facts.count(&[members.total_token_count]);
    let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (None, None) => None,
        (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
    };
    facts.prompt_tokens = sum(prompt, tools);
    facts.cached_tokens = facts.count(&[members.cached_content_token_count]);
    facts.reasoning_tokens = thoughts;
    facts.total_tokens = total;
    let rest = || total?.checked_sub(facts.prompt_tokens?);
    facts.completion_tokens = match candidates {
        Some(_) => sum(candidates, thoughts),
        None if facts.malformed => None,
        None => rest().or(thoughts),
    };
    facts.if_telling()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> (Option<u64>, Option<u64>, Option<u64>, Option<u64>) {
        let facts = read(text).expect("usage");
        (
            facts.prompt_tokens,
            facts.completion_tokens,
            facts.cached_tokens,
            facts.reasoning_tokens,
        )
    }

    #[test]
    fn thoughts_are_a_part_of_the_output_and_results_of_tools_of_the_input() {
        let text = r#"{"promptTokenCount":10,"toolUsePromptTokenCount":2,"cachedContentTokenCount":4,
            "candidatesTokenCount":3,"thoughtsTokenCount":7,"totalTokenCount":22,"promptTokensDetails":[{}]}"#;
        assert_eq!(told(text), (Some(12), Some(10), Some(4), Some(7)));
    }

    #[test]
    fn what_is_left_out_follows_from_the_total() {
        let text = r#"{"promptTokenCount":10,"totalTokenCount":10}"#;
        assert_eq!(told(text), (Some(10), Some(0), None, None));
        let text = r#"{"promptTokenCount":10,"thoughtsTokenCount":5,"totalTokenCount":15}"#;
        assert_eq!(told(text), (Some(10), Some(5), None, Some(5)));
    }

    #[test]
    fn an_odd_count_is_not_believed() {
        let facts =
            read(r#"{"promptTokenCount":1,"candidatesTokenCount":-4,"totalTokenCount":9}"#).expect("usage");
        assert_eq!((facts.completion_tokens, facts.malformed), (None, true));
        assert_eq!(read("{}"), None);
    }
}
