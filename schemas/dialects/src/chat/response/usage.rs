//! Usage and ends, to and from the words of the dialect.

use serde::Serialize;

use super::wire::{self, Choice, Frame};
use crate::chat::chunk;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::Finish;

/// The usage that a frame tells, wherever it stands.
pub(in crate::chat) fn told(frame: &Frame<'_>) -> Option<UsageFacts> {
    (frame.usage.and_then(|raw| UsageFacts::read(raw.get())))
        .or_else(|| frame.x_groq.and_then(|raw| UsageFacts::read_groq(raw.get())))
        .or_else(|| frame.timings.and_then(|raw| UsageFacts::read_timings(raw.get())))
}

/// Usage as it is written.
#[derive(Serialize)]
pub(crate) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: Prompt,
    completion_tokens_details: Completion,
}

#[derive(Serialize)]
struct Prompt {
    cached_tokens: u64,
    #[serde(skip_serializing_if = "is_nothing")]
    cache_write_tokens: u64,
}

#[derive(Serialize)]
struct Completion {
    reasoning_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_nothing(tokens: &u64) -> bool {
    *tokens == 0
}

impl Usage {
    /// From what was reported: classes that add up.
    pub(crate) fn of(facts: UsageFacts) -> Self {
        let (usage, _) = facts.normalize();
        let prompt_tokens = usage.input_tokens + usage.cached_tokens + usage.cache_write_tokens;
        Self {
            prompt_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: prompt_tokens + usage.output_tokens,
            prompt_tokens_details: Prompt {
                cached_tokens: usage.cached_tokens,
                cache_write_tokens: usage.cache_write_tokens,
            },
            completion_tokens_details: Completion {
                reasoning_tokens: usage.reasoning_tokens,
            },
        }
    }
}

/// How a choice ended: made of the whole turn, calls included. `None` while it goes on.
pub(in crate::chat) fn finish(choice: &Choice<'_>, calls: bool) -> Option<Result<Finish, Failed>> {
    let finish = match chunk::Finish::of_word(&choice.finish_reason.0)? {
        chunk::Finish::Failed => return Some(Err(Failed)),
        chunk::Finish::Length => Finish::Length,
        chunk::Finish::ContentFilter => Finish::Refused,
        _ if calls => Finish::ToolCalls,
        _ if stop_sequence(choice).is_some() => Finish::StopSequence,
        _ => Finish::Stop,
    };
    Some(Ok(finish))
}

/// The choice did not end well.
pub(in crate::chat) struct Failed;

/// The text that ended a choice, where the server tells.
pub(in crate::chat) fn stop_sequence<'c>(choice: &'c Choice<'_>) -> Option<&'c str> {
    // Some servers repeat another word for the reason.
    const REASONS: [&str; 7] = [
        "stop",
        "eos",
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "length",
        "tool_use",
    ];
    let text = wire::first([&choice.stop_reason, &choice.matched_stop]);
    let told = choice.finish_reason.0 == "stop" && !text.is_empty() && !REASONS.contains(&text);
    told.then_some(text)
}

/// The word for an end, which fits the calls that were made.
pub(in crate::chat) const fn word(finish: Finish, calls: bool) -> &'static str {
    match finish {
        Finish::Length | Finish::ContextFull => "length",
        Finish::Refused => "content_filter",
        Finish::Stop | Finish::StopSequence | Finish::ToolCalls | Finish::Paused => {
            if calls {
                "tool_calls"
            } else {
                "stop"
            }
        }
    }
}
