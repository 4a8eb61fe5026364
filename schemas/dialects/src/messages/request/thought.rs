//! How much to think, in the form that the model takes: newer ones an effort, older ones a budget of tokens.

use serde::Serialize;

use super::encode::Draft;
use crate::superset::request::{Conversation, Effort, Part, ProofMaker, Role, Target, Unmappable};

/// Smallest budget that is taken.
const BUDGET_MIN: u64 = 1024;
/// Tokens that an answer is left with at least, where nothing else limits it.
const ANSWER_TOKENS_MIN: u64 = 1024;

/// The member `thinking`.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    /// As the model likes.
    Adaptive {
        /// Whether thoughts are told.
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
    },
    /// At most so much.
    Enabled {
        /// Tokens.
        budget_tokens: u64,
    },
    /// Not at all.
    Disabled,
}

/// How much to think, and how long the answer may be.
#[derive(Debug)]
pub(super) struct Thought {
    /// `thinking`.
    pub(super) thinking: Option<Thinking>,
    /// `output_config.effort`.
    pub(super) effort: Option<&'static str>,
    /// `max_tokens`.
    pub(super) max_tokens: u64,
}

impl Thought {
    /// The model thinks.
    pub(super) const fn thinks(&self) -> bool {
        matches!(
            self.thinking,
            Some(Thinking::Adaptive { .. } | Thinking::Enabled { .. })
        )
    }
}

/// Finds the form. `forced`: a call must be made, which excludes thinking.
pub(super) fn of(
    conversation: &Conversation,
    forced: bool,
    draft: &mut Draft<'_>,
) -> Result<Thought, Unmappable> {
    let most = draft.target.max_tokens_limit.unwrap_or(u64::MAX);
    if conversation.max_tokens.is_some_and(|asked| asked > most) {
        draft.refuse("max_tokens", "its model answers with fewer tokens at most")?;
    }
    let asked = conversation.max_tokens.unwrap_or(draft.target.max_tokens_default);
    let mut thought = Thought {
        thinking: None,
        effort: None,
        max_tokens: asked.min(most).max(1),
    };
    let generation = generation(draft.target.model);
    match conversation.reasoning.effort {
        None => {}
        Some(Effort::Off) => thought.thinking = Some(Thinking::Disabled),
        Some(effort) if generation.is_some_and(|generation| generation >= (4, 6)) => {
            let finer = generation.is_some_and(|generation| generation >= (4, 7));
            by_effort(&mut thought, effort, (draft.target, finer));
            adapt(&mut thought, conversation, forced, draft);
        }
        Some(effort) => by_budget(&mut thought, (conversation.max_tokens, most), effort),
    }
    // Models that think by budget want their last thoughts before the results of the calls that followed from them.
    let enabled = matches!(thought.thinking, Some(Thinking::Enabled { .. }));
    if enabled && (forced || lacks_thoughts(conversation)) {
        thought.thinking = Some(Thinking::Disabled);
        draft.drop("reasoning_effort");
    }
    let budgeted = matches!(conversation.reasoning.effort, Some(effort) if effort != Effort::Adaptive);
    if budgeted && thought.thinking.is_none() && thought.effort.is_none() {
        draft.drop("reasoning_effort");
    }
    Ok(thought)
}

/// The effort of a model that knows the word. `finer`: it knows `xhigh`.
fn by_effort(thought: &mut Thought, effort: Effort, (target, finer): (&Target<'_>, bool)) {
    thought.thinking = Some(Thinking::Adaptive { display: None });
    let word = match effort {
        Effort::Off | Effort::Adaptive => None,
        Effort::ExtraHigh if finer => Some("xhigh"),
        Effort::Max => Some("max"),
        Effort::Budget(tokens) if !finer => {
            let budget_tokens = tokens.max(BUDGET_MIN).min(thought.max_tokens.saturating_sub(1));
            thought.thinking = (budget_tokens >= BUDGET_MIN).then_some(Thinking::Enabled { budget_tokens });
            None
        }
        Effort::Minimal | Effort::Low | Effort::Budget(..=4096) => Some("low"),
        Effort::Medium | Effort::Budget(..=16384) => Some("medium"),
        Effort::High | Effort::ExtraHigh | Effort::Budget(_) => Some("high"),
    };
    thought.effort = word.map(|word| target.effort(word));
}

/// What goes with thinking as the model likes.
fn adapt(thought: &mut Thought, conversation: &Conversation, forced: bool, draft: &mut Draft<'_>) {
    let Some(Thinking::Adaptive { display }) = &mut thought.thinking else {
        return;
    };
    *display = conversation
        .reasoning
        .shown
        .map(|shown| if shown { "summarized" } else { "omitted" });
    if forced {
        thought.thinking = None;
        draft.drop("reasoning_effort");
    }
}

/// The budget of a model that knows no effort. The caller's limit of the whole answer is his: a budget fits into it, or
/// the model does not think. So is the model's own, `most`.
fn by_budget(thought: &mut Thought, (limit, most): (Option<u64>, u64), effort: Effort) {
    let wanted = match effort {
        Effort::Off | Effort::Adaptive => return,
        Effort::Minimal | Effort::Low => 1024,
        Effort::Medium => 4096,
        Effort::High => 16_384,
        Effort::ExtraHigh | Effort::Max => 32_768,
        Effort::Budget(tokens) => tokens.max(BUDGET_MIN),
    };
    let limit = limit.map(|limit| limit.min(most));
    let budget_tokens = match (limit, effort) {
        (None, _) => {
            let needed = wanted.saturating_add(ANSWER_TOKENS_MIN).min(most);
            thought.max_tokens = thought.max_tokens.max(needed);
            wanted.min(thought.max_tokens.saturating_sub(ANSWER_TOKENS_MIN))
        }
        (Some(limit), Effort::Budget(_)) => wanted.min(limit.saturating_sub(1)),
        (Some(limit), _) => wanted.min(limit / 4 * 3),
    };
    if budget_tokens >= BUDGET_MIN {
        thought.thinking = Some(Thinking::Enabled { budget_tokens });
    }
}

/// True when the conversation goes on with results of calls whose turn has no thought that Anthropic proved.
fn lacks_thoughts(conversation: &Conversation) -> bool {
    let last = conversation
        .turns
        .iter()
        .rev()
        .take_while(|turn| turn.role != Role::User);
    let mut calls = false;
    for turn in last.filter(|turn| turn.role == Role::Assistant) {
        for part in &turn.parts {
            match part {
                Part::ToolCall(_) => calls = true,
                Part::Thinking {
                    proof: Some(proof), ..
                } if proof.maker == ProofMaker::Anthropic => return false,
                _ => {}
            }
        }
    }
    calls
}

/// The generation in a model's name: `claude-opus-4-8` is (4, 8), `claude-sonnet-4-20250514` is (4, 0). `None` for a
/// name that tells none.
fn generation(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude")?;
    let mut words = name.split(['-', '@', '.', ':', '/', '_']);
    let number = |word: &str| word.parse::<u32>().ok().filter(|_| word.len() <= 2);
    let major = words.by_ref().find_map(number)?;
    let minor = words.next().and_then(number).unwrap_or(0);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_read_from_names() {
        let names = [
            ("claude-opus-4-8", Some((4, 8))),
            ("anthropic/claude-sonnet-4.6", Some((4, 6))),
            ("claude-haiku-4-5-20251001", Some((4, 5))),
            ("claude-haiku-4-5@20251001", Some((4, 5))),
            ("claude-sonnet-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("claude-next-5", Some((5, 0))),
            ("claude-x", None),
            ("my-model-4-8", None),
        ];
        for (name, expected) in names {
            assert_eq!(generation(name), expected, "{name}");
        }
    }
}
