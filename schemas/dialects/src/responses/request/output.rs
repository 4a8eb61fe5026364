//! A request, written. What the dialect cannot say is refused by name, or dropped and reported where the route says so.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::settings::SUMMARY;
use super::tell::{self, Telling};
use super::wrap::{self, Choice, Wrapped};
use crate::responses::item::Item;
use crate::superset::request::{
    Conversation, Effort, Encoded, Format, Member, Part, Proof, ProofMaker, Reasoning, Target, Unmappable,
};
use crate::superset::tool::Names;

/// Thoughts of at most so many tokens are little, some, or a moderate amount.
const BUDGETS: [(u64, &str); 3] = [(1024, "minimal"), (4096, "low"), (16_384, "medium")];
/// What of an answer is asked for beside the answer: what proves its thoughts.
const INCLUDE: [&str; 1] = ["reasoning.encrypted_content"];

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Wrapped<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_retention: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Thinking {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Form<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Form<'a> {
    JsonObject,
    JsonSchema {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        schema: &'a RawValue,
        strict: bool,
    },
}

/// What is dropped, and what other names tools have.
pub(super) struct Notes {
    drops: bool,
    dropped: Vec<Cow<'static, str>>,
    pub(super) names: Names,
}

impl Notes {
    /// Something that the dialect cannot say.
    pub(super) fn refuse(
        &mut self,
        param: impl Into<Cow<'static, str>>,
        problem: &'static str,
    ) -> Result<(), Unmappable> {
        let param = param.into();
        if self.drops {
            self.drop(param);
            return Ok(());
        }
        Err(Unmappable {
            param,
            problem: problem.into(),
        })
    }

    /// A hint without a place.
    pub(super) fn drop(&mut self, param: impl Into<Cow<'static, str>>) {
        let param = param.into();
        if !self.dropped.contains(&param) {
            self.dropped.push(param);
        }
    }
}

/// Writes it.
pub(super) fn write(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    let mut notes = Notes {
        drops: target.drop_params,
        dropped: Vec::new(),
        names: Names::default(),
    };
    let sampling = &conversation.sampling;
    unsaid(conversation, target, &mut notes)?;
    let tools = wrap::tools(&conversation.tools, &mut notes);
    let (instructions, turns) = tell::instructions(&conversation.turns);
    let input = Telling::new(target.profile, &mut notes).turns(turns)?;
    let has_top_k = target.profile.top_k;
    let mut body = Body {
        model: target.model,
        instructions,
        input,
        stream: conversation.stream.then_some(true),
        store: false,
        include: thinks(conversation).then_some(INCLUDE),
        max_output_tokens: conversation.max_tokens,
        temperature: sampling.temperature.as_deref(),
        top_p: sampling.top_p.as_deref(),
        top_k: sampling.top_k.filter(|_| has_top_k),
        min_p: sampling.min_p.as_deref().filter(|_| has_top_k),
        tool_choice: wrap::choice(conversation),
        parallel_tool_calls: conversation.parallel_tool_calls.filter(|_| !tools.is_empty()),
        tools,
        reasoning: reasoning(&conversation.reasoning, target),
        text: form(&conversation.format).map(|format| Text {
            format: Some(format),
            verbosity: None,
        }),
        user: conversation.user.as_deref(),
        metadata: None,
        safety_identifier: None,
        prompt_cache_key: None,
        prompt_cache_retention: None,
        service_tier: None,
    };
    for hint in &conversation.hints {
        // How thoughts are told stands in `reasoning`.
        if hint.name != SUMMARY && !body.takes(hint) {
            notes.drop(hint.name.clone());
        }
    }
    for demand in &conversation.demands {
        if demand.name != "service_tier" || !body.takes(demand) {
            notes.refuse(demand.name.clone(), "it has no such parameter")?;
        }
    }
    // Text and JSON always serialize.
    let written = serde_json::to_vec(&body).unwrap_or_default();
    Ok(Encoded {
        body: written.into(),
        headers: Vec::new(),
        dropped: notes.dropped,
        names: notes.names,
    })
}

/// Refuses what the dialect has no words for.
fn unsaid(conversation: &Conversation, target: &Target<'_>, notes: &mut Notes) -> Result<(), Unmappable> {
    let sampling = &conversation.sampling;
    let has_top_k = target.profile.top_k;
    let unsaid = [
        ("top_k", sampling.top_k.is_some() && !has_top_k),
        ("min_p", sampling.min_p.is_some() && !has_top_k),
        ("seed", sampling.seed.is_some()),
        ("frequency_penalty", sampling.frequency_penalty.is_some()),
        ("presence_penalty", sampling.presence_penalty.is_some()),
        ("stop", !conversation.stop.is_empty()),
    ];
    for (param, _) in unsaid.into_iter().filter(|(_, told)| *told) {
        notes.refuse(param, "it has no such parameter")?;
    }
    Ok(())
}

/// True when thoughts are asked for or sent back: models that have none refuse to prove them.
fn thinks(conversation: &Conversation) -> bool {
    let asked = &conversation.reasoning;
    let sends_back = |part: &Part| {
        matches!(
            part,
            Part::Thinking {
                proof: Some(Proof {
                    maker: ProofMaker::OpenAi,
                    ..
                }),
                ..
            }
        )
    };
    asked.effort.is_some_and(|effort| effort != Effort::Off)
        || asked.shown == Some(true)
        || conversation
            .turns
            .iter()
            .any(|turn| turn.parts.iter().any(sends_back))
}

fn reasoning(reasoning: &Reasoning, target: &Target<'_>) -> Option<Thinking> {
    let effort = reasoning.effort.and_then(|asked| effort(asked, target));
    let summary = (reasoning.shown == Some(true)).then_some("auto");
    (effort.is_some() || summary.is_some()).then_some(Thinking { effort, summary })
}

/// The word for how much to think, among those that the model takes. What is adaptive is left to it, and nothing is more
/// than `xhigh` unless it is known to take that.
fn effort(effort: Effort, target: &Target<'_>) -> Option<&'static str> {
    let word = match effort {
        Effort::Adaptive => return None,
        Effort::Off | Effort::Budget(0) => "none",
        Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Max if target.lists("max") => "max",
        Effort::ExtraHigh | Effort::Max => "xhigh",
        Effort::Budget(tokens) => BUDGETS
            .into_iter()
            .find(|(most, _)| tokens <= *most)
            .map_or("high", |(_, word)| word),
    };
    Some(target.effort(word))
}

fn form(format: &Format) -> Option<Form<'_>> {
    match format {
        Format::Text => None,
        Format::JsonObject => Some(Form::JsonObject),
        Format::JsonSchema {
            name,
            description,
            schema,
            strict,
        } => Some(Form::JsonSchema {
            name,
            description: description.as_deref(),
            schema,
            strict: strict.unwrap_or(false),
        }),
    }
}

impl<'a> Body<'a> {
    /// Takes a member that has no influence on the answer; false when there is no place for it.
    fn takes(&mut self, member: &'a Member) -> bool {
        let place = match &*member.name {
            "metadata" => &mut self.metadata,
            "safety_identifier" => &mut self.safety_identifier,
            "prompt_cache_key" => &mut self.prompt_cache_key,
            "prompt_cache_retention" => &mut self.prompt_cache_retention,
            "service_tier" => &mut self.service_tier,
            "verbosity" => {
                let text = Text {
                    format: None,
                    verbosity: None,
                };
                &mut self.text.get_or_insert(text).verbosity
            }
            _ => return false,
        };
        *place = Some(&member.value);
        true
    }
}
