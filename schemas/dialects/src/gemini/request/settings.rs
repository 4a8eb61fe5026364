//! How tokens are drawn, how many, in which form, and how much is thought before.

use serde::Serialize;
use serde_json::value::RawValue;

use super::draft::Draft;
use crate::gemini::wire::generation;
use crate::superset::request::{Conversation, Effort, Format, Unmappable};

/// Most texts that end an answer.
const STOPS_MAX: usize = 5;
/// Least thoughts of a model that cannot do without, in tokens.
const BUDGET_MIN: u64 = 128;
/// Most thoughts of such a model, in tokens.
const BUDGET_MAX: u64 = 32_768;
/// Most thoughts of all others, in tokens.
const OTHERS_BUDGET_MAX: u64 = 24_576;
/// Least thoughts of the smallest models, where they think, in tokens.
const LITE_BUDGET_MIN: u64 = 512;
/// Most tokens of thoughts that are few, where a model thinks in levels.
const LOW_TOKENS_MAX: u64 = 4_096;
/// Most that are neither few nor many.
const MEDIUM_TOKENS_MAX: u64 = 16_384;
/// The first generation that thinks in levels.
const LEVELS: u32 = 3;

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Settings<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<Depth>,
}

#[derive(Serialize, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Depth {
    #[serde(skip_serializing_if = "Option::is_none")]
    include_thoughts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

/// Writes `generationConfig`.
pub(super) fn put(conversation: &Conversation, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    let sampling = &conversation.sampling;
    if sampling.min_p.is_some() {
        draft.refuse("min_p", "its provider draws tokens in other ways")?;
    }
    if conversation.stop.len() > STOPS_MAX {
        draft.refuse("stop", "its provider takes fewer texts")?;
    }
    let seed = match sampling.seed.map(i32::try_from) {
        Some(Err(_)) => {
            draft.refuse("seed", "its provider takes numbers of 32 bits")?;
            None
        }
        seed => seed.and_then(Result::ok),
    };
    let mut settings = Settings {
        temperature: sampling.temperature.as_deref(),
        top_p: sampling.top_p.as_deref(),
        top_k: sampling.top_k,
        max_output_tokens: conversation.max_tokens,
        stop_sequences: conversation.stop.get(..STOPS_MAX).unwrap_or(&conversation.stop),
        seed,
        frequency_penalty: sampling.frequency_penalty.as_deref(),
        presence_penalty: sampling.presence_penalty.as_deref(),
        thinking_config: thinking(conversation, draft),
        ..Settings::default()
    };
    match &conversation.format {
        Format::Text => {}
        Format::JsonObject => settings.response_mime_type = Some("application/json"),
        Format::JsonSchema {
            description, schema, ..
        } => {
            if description.is_some() {
                draft.drop("response_format.json_schema.description");
            }
            settings.response_mime_type = Some("application/json");
            settings.response_json_schema = Some(schema);
        }
    }
    draft.put("generationConfig", &settings);
    Ok(())
}

/// How much to think, by what the model's generation takes.
fn thinking(conversation: &Conversation, draft: &mut Draft<'_>) -> Option<Depth> {
    let reasoning = &conversation.reasoning;
    let (effort, model) = (reasoning.effort, draft.model());
    let generation = generation(model);
    let asked = effort.is_some_and(|effort| effort != Effort::Off);
    if generation.is_some_and(|generation| generation < 2) || model.contains("gemini-2.0") {
        if asked {
            draft.drop("reasoning_effort");
        }
        return None;
    }
    let shown = reasoning.shown.unwrap_or(asked) && effort != Some(Effort::Off);
    let mut thinking = Depth {
        include_thoughts: shown.then_some(true),
        ..Depth::default()
    };
    let is_pro = model.contains("-pro");
    match effort {
        None => {}
        Some(Effort::Adaptive) => thinking.thinking_budget = (!levels(generation)).then_some(-1),
        Some(effort) if levels(generation) => {
            thinking.thinking_level = Some(draft.effort(level(effort, is_pro)));
        }
        Some(effort) => thinking.thinking_budget = i64::try_from(budget(effort, model)).ok(),
    }
    (thinking != Depth::default()).then_some(thinking)
}

fn levels(generation: Option<u32>) -> bool {
    generation.is_some_and(|generation| generation >= LEVELS)
}

/// The word for how much to think, budgets by bands. The large models think at least a little.
const fn level(effort: Effort, is_pro: bool) -> &'static str {
    match effort {
        Effort::Off | Effort::Minimal if !is_pro => "minimal",
        Effort::Off | Effort::Minimal | Effort::Low | Effort::Budget(0..=LOW_TOKENS_MAX) => "low",
        Effort::Medium | Effort::Budget(..=MEDIUM_TOKENS_MAX) => "medium",
        _ => "high",
    }
}

/// Tokens of thoughts for how much to think, within what the model takes: more and less are refused by it.
fn budget(effort: Effort, model: &str) -> u64 {
    let asked = match effort {
        Effort::Off => 0,
        Effort::Budget(tokens) => tokens,
        Effort::Minimal => 512,
        Effort::Low => 1_024,
        Effort::Medium => 8_192,
        _ => 24_576,
    };
    if model.contains("-pro") {
        asked.clamp(BUDGET_MIN, BUDGET_MAX)
    } else if model.contains("-lite") && asked > 0 {
        asked.clamp(LITE_BUDGET_MIN, OTHERS_BUDGET_MAX)
    } else {
        asked.min(OTHERS_BUDGET_MAX)
    }
}
