//! Questions about a passing request that are asked before anything is parsed, or only when something went wrong.

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use memchr::memmem;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::chat::signed::MARK;
use crate::dialect::Dialect;
use crate::estimate::text_tokens;
use crate::scan::Word;
use crate::skim::{Limits, skim_chat};

/// What stands in ids that carry signatures.
static SIGNATURE: Word = Word::new(MARK);

/// The name of the member that says who speaks.
const ROLE: &str = "\"role\"";
/// A word of which it may be the value.
const DEVELOPER: &str = "\"developer\"";
/// The name of the member with what a tool was called with.
const ARGUMENTS: &str = "\"arguments\"";
/// What names of members about tools have in them.
const TOOLS: [&str; 2] = ["tool", "function"];
/// All that is looked for in a request, in one pass.
const WORDS: [&str; 5] = [ROLE, DEVELOPER, ARGUMENTS, TOOLS[0], TOOLS[1]];
/// What finds them; nothing where the processor has no instructions for it.
static FINDER: LazyLock<Option<Searcher>> = LazyLock::new(|| Searcher::new(WORDS));

/// What of a request may need mending: a guess that costs one pass over the body and is never too small, but for words
/// that are written with escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one request"
)]
pub struct Suspicion {
    /// Instructions may stand elsewhere than at the start, or under their newer name.
    pub systems: bool,
    /// There may be instructions under their newer name.
    pub developer: bool,
    /// There may be calls in the history.
    pub arguments: bool,
    /// Something may be said of tools or functions.
    pub tools: bool,
}

/// Looks through the body of a request.
pub fn suspicion(body: &[u8]) -> Suspicion {
    let mut found = Found::default();
    match FINDER.as_ref() {
        Some(finder) => {
            for at in finder.find_iter(body) {
                if let Some(word) = WORDS.get(at.pattern().as_usize()) {
                    found.see(word, at.end(), body);
                }
            }
        }
        None => {
            for word in WORDS {
                for at in memmem::find_iter(body, word) {
                    found.see(word, at + word.len(), body);
                }
            }
        }
    }
    found.suspicion()
}

/// What was found so far.
#[derive(Debug, Default)]
struct Found {
    suspicion: Suspicion,
    /// Roles.
    roles: usize,
    /// Somebody answered before.
    answered: bool,
}

impl Found {
    /// `word` ends at `end`.
    fn see(&mut self, word: &str, end: usize, body: &[u8]) {
        match word {
            ROLE => {
                match role(body.get(end..).unwrap_or_default()) {
                    Some(b"developer") => self.suspicion.systems = true,
                    Some(b"system") => self.suspicion.systems |= self.roles > 0,
                    Some(b"assistant") => self.answered = true,
                    _ => {}
                }
                self.roles += 1;
            }
            DEVELOPER => self.suspicion.developer = true,
            ARGUMENTS => self.suspicion.arguments = true,
            _ => self.suspicion.tools = true,
        }
    }

    fn suspicion(self) -> Suspicion {
        Suspicion {
            arguments: self.answered && self.suspicion.arguments,
            ..self.suspicion
        }
    }
}

/// True when ids of calls may carry signatures of Gemini's: for another server they are longer than ids are.
pub fn may_carry_signatures(body: &[u8]) -> bool {
    SIGNATURE.is_in(body)
}

/// The text of the string that follows a colon.
fn role(rest: &[u8]) -> Option<&[u8]> {
    let value = rest.trim_ascii_start().strip_prefix(b":")?;
    let value = value.trim_ascii_start().strip_prefix(b"\"")?;
    // No role that matters is longer.
    let end = value.iter().take(16).position(|&byte| byte == b'"')?;
    value.get(..end)
}

#[derive(Deserialize)]
struct Completions<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    /// Prompts of vLLM that are no text, beside the others and answered before them.
    prompt_embeds: Option<&'a RawValue>,
    /// Whole, but perhaps written with a fraction of 0.
    n: Option<f64>,
}

/// The prompts of a request and the answers that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Tokens of each prompt, estimated where they are not told.
    pub prompt_tokens: Vec<u64>,
    /// Choices that are asked for of each prompt, at least 1. Those of a prompt stand together.
    pub choices_each: usize,
}

impl Asked {
    /// What a request asks for. Read anew, because it is rarely needed. `prompt_tokens` are those of its whole prompt.
    pub fn read(dialect: Dialect, body: &[u8], prompt_tokens: u64) -> Self {
        let of_one = |choices_each| Self {
            prompt_tokens: vec![prompt_tokens],
            choices_each,
        };
        if dialect != Dialect::Completions {
            return of_one(choices_asked(dialect, body));
        }
        let Ok(request) = serde_json::from_slice::<Completions<'_>>(body) else {
            return of_one(1);
        };
        let prompts = request.prompts();
        let choices_each = request.choices_each();
        // Nothing tells how long those are that are no text.
        let mut each = vec![0; request.embedded()];
        if prompts.is_empty() {
            each.push(prompt_tokens);
        } else {
            each.extend(prompts.into_iter().map(tokens));
        }
        Self {
            prompt_tokens: each,
            choices_each,
        }
    }
}

impl<'a> Completions<'a> {
    fn choices_each(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count that was read before; beyond the range it is the most there is"
        )]
        let each = self.n.unwrap_or(1.0) as usize;
        each.max(1)
    }

    /// Prompts that are no text.
    fn embedded(&self) -> usize {
        self.prompt_embeds.map_or(0, embedded)
    }

    /// The prompts where they stand in a list, else none. A list of numbers is one prompt.
    fn prompts(&self) -> Vec<&'a RawValue> {
        let list = self.prompt.map_or("", RawValue::get);
        let first = list.strip_prefix('[').map(str::trim_ascii_start);
        if !first.is_some_and(|first| first.starts_with(['"', '['])) {
            return Vec::new();
        }
        serde_json::from_str(list).unwrap_or_default()
    }
}

/// Tokens of a prompt: its length where it is a list of them, else an estimate.
fn tokens(prompt: &RawValue) -> u64 {
    let text = prompt.get();
    if let Ok(list) = serde_json::from_str::<Vec<IgnoredAny>>(text) {
        return u64::try_from(list.len()).unwrap_or(u64::MAX);
    }
    serde_json::from_str::<Cow<'_, str>>(text).map_or(0, |text| text_tokens(&text))
}

/// Prompts in a member that holds such as are no text: one, or a list.
pub(crate) fn embedded(raw: &RawValue) -> usize {
    match raw.get() {
        "null" => 0,
        text => serde_json::from_str::<Vec<IgnoredAny>>(text).map_or(1, |list| list.len()),
    }
}

/// Choices that a request asks for, at least 1. Read anew, because it is rarely needed.
pub fn choices_asked(dialect: Dialect, body: &[u8]) -> usize {
    let asked = match dialect {
        Dialect::Chat => skim_chat(body, &Limits::default()).map_or(1, |skim| skim.n),
        Dialect::Completions => {
            return serde_json::from_slice::<Completions<'_>>(body).map_or(1, |request| {
                let prompts = request.prompts().len().max(1).saturating_add(request.embedded());
                prompts.saturating_mul(request.choices_each())
            });
        }
        _ => 1,
    };
    usize::try_from(asked).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspects(messages: &str) -> (bool, bool) {
        let found = suspicion(format!(r#"{{"model":"m","messages":[{messages}]}}"#).as_bytes());
        (found.systems, found.arguments)
    }

    #[test]
    fn one_system_message_at_the_start_is_no_reason_to_look_closer() {
        let plain = r#"{"role":"system","content":"s"},{"role": "user","content":"say \"role\":\"system\""}"#;

        assert_eq!(suspects(plain), (false, false));
        assert_eq!(suspects(r#"{"role":"user","content":"hi"}"#), (false, false));
    }

    #[test]
    fn late_repeated_and_renamed_instructions_are() {
        for messages in [
            r#"{"role":"user","content":"hi"},{"role" : "system","content":"s"}"#,
            r#"{"role":"system","content":"s"},{"role":"system","content":"s"}"#,
            r#"{"role":"developer","content":"s"}"#,
        ] {
            assert_eq!(suspects(messages), (true, false), "{messages}");
        }
    }

    #[test]
    fn calls_in_the_history_are() {
        let called = r#"{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]}"#;

        assert_eq!(suspects(called), (false, true));
    }

    #[test]
    fn words_are_found_wherever_they_stand() {
        for (body, developer, tools) in [
            (
                r#"{"messages":[{"role":"developer","content":"s"}]}"#,
                true,
                false,
            ),
            (r#"{"parallel_tool_calls":true}"#, false, true),
            (r#"{"functions":[]}"#, false, true),
            (
                r#"{"messages":[{"role":"user","content":"a developer"}]}"#,
                false,
                false,
            ),
        ] {
            let found = suspicion(body.as_bytes());
            assert_eq!((found.developer, found.tools), (developer, tools), "{body}");
        }
        // Around the widths in which it is searched.
        for before in 0..130 {
            let body = format!("{}\"developer\"{}", " ".repeat(before), "x".repeat(130 - before));
            assert!(suspicion(body.as_bytes()).developer, "{before}");
        }
    }

    #[test]
    fn ids_that_carry_signatures_are_found() {
        assert!(may_carry_signatures(
            br#"{"tool_calls":[{"id":"call_1__sig_c2ln"}]}"#
        ));
        assert!(!may_carry_signatures(br#"{"tool_calls":[{"id":"call_1"}]}"#));
    }

    #[test]
    fn choices_are_counted_over_prompts() {
        let asked = |body: &str| choices_asked(Dialect::Completions, body.as_bytes());

        assert_eq!(asked(r#"{"prompt":"a"}"#), 1);
        assert_eq!(asked(r#"{"prompt":["a","b"],"n":3}"#), 6);
        assert_eq!(asked(r#"{"prompt":[1,2,3],"n":2}"#), 2);
        assert_eq!(asked(r#"{"prompt":[[1],[2]]}"#), 2);
        assert_eq!(asked(r#"{"prompt":["a","b"],"n":3.0}"#), 6);
        assert_eq!(asked(r#"{"prompt":"","prompt_embeds":["YQ==","YQ=="],"n":2}"#), 6);
        assert_eq!(asked(r#"{"prompt":["a","b"],"prompt_embeds":"YQ=="}"#), 3);
        assert_eq!(asked(r#"{"prompt":["a","b"],"prompt_embeds":null}"#), 2);
        assert_eq!(asked("{"), 1);
        assert_eq!(
            choices_asked(
                Dialect::Chat,
                br#"{"model":"m","n":3,"messages":[{"role":"user","content":"x"}]}"#
            ),
            3
        );
    }

    #[test]
    fn each_prompt_is_weighed_and_a_list_of_numbers_is_as_long_as_it_is() {
        let asked = |body: &str| {
            let asked = Asked::read(Dialect::Completions, body.as_bytes(), 42);
            (asked.prompt_tokens, asked.choices_each)
        };

        assert_eq!(asked(r#"{"prompt":"a"}"#), (vec![42], 1));
        assert_eq!(asked(r#"{"prompt":[7,8,9],"n":2}"#), (vec![42], 2));
        assert_eq!(
            asked(r#"{"prompt":["One two three","Hi"],"n":2}"#),
            (vec![4, 1], 2)
        );
        assert_eq!(asked(r#"{"prompt":[[7,8,9],"\u0048i"]}"#), (vec![3, 1], 1));
        assert_eq!(
            asked(r#"{"prompt":"a","prompt_embeds":["YQ=="]}"#),
            (vec![0, 42], 1)
        );
        assert_eq!(asked("{"), (vec![42], 1));
    }
}
