//! The members of a request that say how to answer.

use serde_json::value::RawValue;

use super::decode::Draft;
use crate::object::{Object, Path};
use crate::superset::request::{Effort, Format, Refusal};
use crate::superset::tool::ToolChoice;

/// Reads the members that have a place in the superset.
pub(super) fn read(draft: &mut Draft, members: &mut Object<'_>) -> Result<(), Refusal> {
    draft.conversation.include_usage = true;
    if let Some(raw) = members.take("stream") {
        draft.conversation.stream = Path::Root.member("stream").flag(raw)?;
    }
    if let Some(raw) = members.take("stop_sequences") {
        draft.conversation.stop = Path::Root
            .member("stop_sequences")
            .value(raw, "must be an array of strings")?;
    }
    sampling(draft, members)?;
    tool_choice(draft, members.take("tool_choice"))?;
    output(draft, members)?;
    thinking(draft, members.take("thinking"))?;
    metadata(draft, members.take("metadata"))
}

/// Reads a whole number above 0.
pub(super) fn positive(raw: &RawValue, path: &Path<'_>) -> Result<u64, Refusal> {
    let problem = "must be a whole number of 1 or more";
    match path.value(raw, problem)? {
        0 => Err(path.invalid(problem)),
        number => Ok(number),
    }
}

fn sampling(draft: &mut Draft, members: &mut Object<'_>) -> Result<(), Refusal> {
    let share = |raw: Option<&RawValue>, path: Path<'_>| -> Result<Option<Box<RawValue>>, Refusal> {
        let Some(raw) = raw else { return Ok(None) };
        let problem = "must be a number from 0 to 1";
        let number: f64 = path.value(raw, problem)?;
        if (0.0..=1.0).contains(&number) {
            Ok(Some(raw.to_owned()))
        } else {
            Err(path.invalid(problem))
        }
    };
    let sampling = &mut draft.conversation.sampling;
    sampling.temperature = share(members.take("temperature"), Path::Root.member("temperature"))?;
    sampling.top_p = share(members.take("top_p"), Path::Root.member("top_p"))?;
    if let Some(raw) = members.take("top_k") {
        sampling.top_k = Some(
            Path::Root
                .member("top_k")
                .value(raw, "must be a whole number of 0 or more")?,
        );
    }
    Ok(())
}

fn tool_choice(draft: &mut Draft, raw: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(raw) = raw else { return Ok(()) };
    let path = Path::Root.member("tool_choice");
    let mut members = Object::at(raw, &path)?;
    let kind_path = path.member("type");
    let kind = kind_path.required_text(members.take("type"))?;
    draft.conversation.tool_choice = Some(match kind.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::Never,
        "tool" => ToolChoice::Named(path.member("name").required_text(members.take("name"))?),
        _ => return Err(kind_path.invalid("must be auto, any, tool or none")),
    });
    if let Some(raw) = members.take("disable_parallel_tool_use")
        && path.member("disable_parallel_tool_use").flag(raw)?
    {
        draft.conversation.parallel_tool_calls = Some(false);
    }
    draft.unknown(members, &path);
    Ok(())
}

/// The form of the answer and the effort, in the newer place or the older.
fn output(draft: &mut Draft, members: &mut Object<'_>) -> Result<(), Refusal> {
    if let Some(raw) = members.take("output_format") {
        format(draft, raw, &Path::Root.member("output_format"))?;
    }
    let Some(raw) = members.take("output_config") else {
        return Ok(());
    };
    let path = Path::Root.member("output_config");
    let mut members = Object::at(raw, &path)?;
    if let Some(raw) = members.take("format") {
        format(draft, raw, &path.member("format"))?;
    }
    if let Some(raw) = members.take("effort") {
        let path = path.member("effort");
        let effort = match path.text(raw)?.as_str() {
            "low" => Effort::Low,
            "medium" => Effort::Medium,
            "high" => Effort::High,
            "xhigh" => Effort::ExtraHigh,
            "max" => Effort::Max,
            _ => return Err(path.invalid("must be low, medium, high, xhigh or max")),
        };
        draft.conversation.reasoning.effort = Some(effort);
    }
    for (name, raw) in members.rest() {
        draft.demand(path.member(&name).to_string(), raw);
    }
    Ok(())
}

fn format(draft: &mut Draft, raw: &RawValue, path: &Path<'_>) -> Result<(), Refusal> {
    let mut members = Object::at(raw, path)?;
    let kind_path = path.member("type");
    if kind_path.required_text(members.take("type"))? != "json_schema" {
        return Err(kind_path.invalid("must be json_schema"));
    }
    let schema_path = path.member("schema");
    let Some(schema) = members.take("schema") else {
        return Err(schema_path.invalid(crate::object::MISSING));
    };
    Object::at(schema, &schema_path)?;
    draft.conversation.format = Format::JsonSchema {
        name: "output".to_owned(),
        description: None,
        schema: schema.to_owned(),
        strict: Some(true),
    };
    draft.unknown(members, path);
    Ok(())
}

/// How much to think. A switched-off or counted thought outweighs the effort, which then is about the answer alone;
/// an effort says more than that the model may think as it likes.
fn thinking(draft: &mut Draft, raw: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(raw) = raw else { return Ok(()) };
    let path = Path::Root.member("thinking");
    let mut members = Object::at(raw, &path)?;
    let kind_path = path.member("type");
    let kind = kind_path.required_text(members.take("type"))?;
    let reasoning = &mut draft.conversation.reasoning;
    match kind.as_str() {
        "disabled" => {
            reasoning.effort = Some(Effort::Off);
            reasoning.shown = Some(false);
        }
        "enabled" => {
            let path = path.member("budget_tokens");
            let Some(raw) = members.take("budget_tokens") else {
                return Err(path.invalid(crate::object::MISSING));
            };
            reasoning.effort = Some(Effort::Budget(positive(raw, &path)?));
        }
        "adaptive" | "between_tools" => {
            reasoning.effort.get_or_insert(Effort::Adaptive);
        }
        _ => return Err(kind_path.invalid("must be enabled, adaptive or disabled")),
    }
    if let Some(raw) = members.take("display") {
        let path = path.member("display");
        reasoning.shown = match path.text(raw)?.as_str() {
            "omitted" => Some(false),
            "summarized" => Some(true),
            _ => return Err(path.invalid("must be summarized or omitted")),
        };
    }
    draft.unknown(members, &path);
    Ok(())
}

fn metadata(draft: &mut Draft, raw: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(raw) = raw else { return Ok(()) };
    let path = Path::Root.member("metadata");
    let mut members = Object::at(raw, &path)?;
    if let Some(raw) = members.take("user_id") {
        draft.conversation.user = Some(path.member("user_id").text(raw)?);
    }
    draft.unknown(members, &path);
    Ok(())
}

/// What a member without a place means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It says what is so anyway.
    Nothing,
    /// It has no influence on the answer.
    Hint,
    /// It has.
    Demand,
}

/// Members that ask for something which only Anthropic has, or by which other dialects change an answer.
const DEMANDS: [&str; 26] = [
    "container",
    "mcp_servers",
    "fallbacks",
    "compaction",
    "inference_geo",
    "user_profile_id",
    "workspace_id",
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "seed",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "response_format",
    "stop",
    "functions",
    "function_call",
    "modalities",
    "audio",
    "prediction",
    "web_search_options",
    "reasoning_effort",
    "previous_response_id",
];

/// What a member means that no reader took. One of an unknown name is a hint: clients send new ones with every release.
pub(super) fn meaning(name: &str, raw: &RawValue) -> Meaning {
    let text = raw.get();
    match name {
        "service_tier" if matches!(text, r#""auto""# | r#""standard_only""#) => Meaning::Hint,
        "speed" if text == r#""standard""# => Meaning::Nothing,
        "context_management" if keeps_context(text) => Meaning::Hint,
        "service_tier" | "speed" | "context_management" => Meaning::Demand,
        _ if !DEMANDS.contains(&name) => Meaning::Hint,
        _ if matches!(text, "[]" | "{}" | "false") => Meaning::Nothing,
        _ => Meaning::Demand,
    }
}

/// True when all that is to be cleared from the conversation are thoughts, which no other dialect is sent.
fn keeps_context(text: &str) -> bool {
    let Some(mut members) = Object::read(text) else {
        return false;
    };
    let edits = members.take("edits").map_or("[]", RawValue::get);
    let Ok(edits) = serde_json::from_str::<Vec<&RawValue>>(edits) else {
        return false;
    };
    let clears_thinking = |raw: &&RawValue| {
        Object::read(raw.get())
            .and_then(|mut edit| edit.take("type"))
            .is_some_and(|kind| kind.get().starts_with(r#""clear_thinking_"#))
    };
    edits.iter().all(clears_thinking) && members.rest().next().is_none()
}
