//! A request for an upstream of Messages. Members always come in the same order, so that caches of prompts hold.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::said::{self, Block, Message};
use super::thought::{self, Thought};
use super::{offer, said::Said};
use crate::chat::request::renamed::Renamed;
use crate::superset::request::{Conversation, Encoded, Format, Sampling, Target, Unmappable};

/// The version whose upstreams take sampling parameters.
const VERSION: &str = "2023-06-01";
/// What an upstream must be told to take instructions within the conversation.
const LATE_SYSTEM_BETA: &str = "mid-conversation-system-2026-04-07";
/// What an upstream must be told to take a schema of the answer.
const FORMAT_BETA: &str = "structured-outputs-2025-12-15";
/// What an upstream must be told to take an effort.
const EFFORT_BETA: &str = "effort-2025-11-24";
/// Most marks of a cache in one request.
const CACHE_MARKS_MAX: usize = 4;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<offer::Offered<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<offer::Choice>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<thought::Thinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Output<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

#[derive(Serialize)]
struct Output<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Schema<'a>>,
}

#[derive(Serialize)]
struct Schema<'a> {
    r#type: &'static str,
    schema: &'a RawValue,
}

#[derive(Serialize)]
struct Metadata<'a> {
    user_id: Cow<'a, str>,
}

/// What is left out of a request on its way, and what must be told beside it.
pub(super) struct Draft<'t> {
    pub(super) target: &'t Target<'t>,
    dropped: Vec<Cow<'static, str>>,
    betas: Vec<&'static str>,
    /// Marks of a cache so far.
    marks: usize,
}

impl Draft<'_> {
    /// Reports something that was left out, once.
    pub(super) fn drop(&mut self, name: impl Into<Cow<'static, str>>) {
        let name = name.into();
        if !self.dropped.contains(&name) {
            self.dropped.push(name);
        }
    }

    /// Leaves a parameter out where the route allows it, else refuses it.
    pub(super) fn refuse(
        &mut self,
        param: impl Into<Cow<'static, str>>,
        problem: &'static str,
    ) -> Result<(), Unmappable> {
        let refused = unmappable(param, problem);
        if self.target.drop_params {
            self.drop(refused.param);
            return Ok(());
        }
        Err(refused)
    }

    /// A mark of a cache, as long as there is room for one.
    pub(super) fn mark<'c>(&mut self, cache: Option<&'c RawValue>) -> Option<&'c RawValue> {
        let cache = cache?;
        if self.marks == CACHE_MARKS_MAX {
            self.drop("cache_control");
            return None;
        }
        self.marks += 1;
        Some(cache)
    }

    /// The upstream must be told of instructions within the conversation.
    pub(super) fn late_system(&mut self) {
        self.beta(LATE_SYSTEM_BETA);
    }

    fn beta(&mut self, beta: &'static str) {
        if !self.betas.contains(&beta) {
            self.betas.push(beta);
        }
    }
}

/// Something that cannot be left out.
pub(super) fn unmappable(param: impl Into<Cow<'static, str>>, problem: &'static str) -> Unmappable {
    Unmappable {
        param: param.into(),
        problem: problem.into(),
    }
}

/// Writes a request.
pub(super) fn encode(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    let mut draft = Draft {
        target,
        dropped: Vec::new(),
        betas: Vec::new(),
        marks: 0,
    };
    let renamed = Renamed::new(&conversation.tools);
    let (tools, tool_choice) = offer::of(conversation, &renamed, &mut draft)?;
    let forced = tool_choice.as_ref().is_some_and(offer::Choice::forces);
    let Said { system, messages } = said::of(conversation, &renamed, &mut draft)?;
    let thought = thought::of(conversation, forced, &mut draft)?;
    let (temperature, top_p, top_k) = sampling(&conversation.sampling, &thought, &mut draft)?;
    let format = format(&conversation.format, &mut draft)?;
    let stops = stops(&conversation.stop, &mut draft)?;
    let user_id = left_over(conversation, &mut draft)?;
    if thought.effort.is_some() {
        draft.beta(EFFORT_BETA);
    }
    let body = Body {
        model: target.model,
        max_tokens: thought.max_tokens,
        system,
        messages,
        tools,
        tool_choice,
        stop_sequences: stops,
        temperature,
        top_p,
        top_k,
        output_config: (thought.effort.is_some() || format.is_some()).then_some(Output {
            effort: thought.effort,
            format,
        }),
        thinking: thought.thinking,
        metadata: user_id.map(|user_id| Metadata { user_id }),
        stream: conversation.stream,
    };
    let body = serde_json::to_vec(&body).map_err(|_| unmappable("messages", "they cannot be written"))?;
    let mut headers = vec![("anthropic-version", VERSION.to_owned())];
    if !draft.betas.is_empty() {
        headers.push(("anthropic-beta", draft.betas.join(",")));
    }
    Ok(Encoded {
        body: body.into(),
        headers,
        dropped: draft.dropped,
        names: renamed.into_names(),
    })
}

type Drawn<'a> = (Option<&'a RawValue>, Option<&'a RawValue>, Option<u64>);

/// How tokens are drawn. Values that change nothing are left out: newer models take none at all.
fn sampling<'a>(
    sampling: &'a Sampling,
    thought: &Thought,
    draft: &mut Draft<'_>,
) -> Result<Drawn<'a>, Unmappable> {
    let unsupported = "Anthropic's models have no such parameter";
    for (param, told) in [
        ("min_p", sampling.min_p.is_some()),
        ("seed", sampling.seed.is_some()),
        ("frequency_penalty", sampling.frequency_penalty.is_some()),
        ("presence_penalty", sampling.presence_penalty.is_some()),
    ] {
        if told {
            draft.refuse(param, unsupported)?;
        }
    }
    let number = |raw: &RawValue| raw.get().parse::<f64>().unwrap_or(f64::NAN);
    let changing = |raw: &&RawValue| number(raw).to_bits() != 1.0_f64.to_bits();
    let top_p = sampling.top_p.as_deref().filter(changing);
    let temperature = sampling.temperature.as_deref().filter(changing);
    let problem = match temperature {
        Some(raw) if !(0.0..=1.0).contains(&number(raw)) => {
            Some("Anthropic's models take temperatures from 0 to 1")
        }
        Some(_) if thought.thinks() => Some("Anthropic's models take no temperature while they think"),
        _ => None,
    };
    let temperature = match problem {
        Some(problem) => {
            draft.refuse("temperature", problem)?;
            None
        }
        None => temperature,
    };
    Ok((temperature, top_p, sampling.top_k.filter(|&top_k| top_k > 0)))
}

fn format<'a>(format: &'a Format, draft: &mut Draft<'_>) -> Result<Option<Schema<'a>>, Unmappable> {
    match format {
        Format::Text => Ok(None),
        Format::JsonObject => {
            draft.refuse(
                "response_format",
                "Anthropic's models want a schema of the answer",
            )?;
            Ok(None)
        }
        Format::JsonSchema {
            description, schema, ..
        } => {
            if description.is_some() {
                draft.drop("response_format.json_schema.description");
            }
            draft.beta(FORMAT_BETA);
            Ok(Some(Schema {
                r#type: "json_schema",
                schema,
            }))
        }
    }
}

/// Texts that end the answer.
fn stops<'a>(stops: &'a [String], draft: &mut Draft<'_>) -> Result<&'a [String], Unmappable> {
    if stops.iter().any(|stop| stop.trim().is_empty()) {
        draft.refuse("stop", "Anthropic's models do not stop at mere space")?;
        return Ok(&[]);
    }
    Ok(stops)
}

/// Hints and demands: all that is carried of them is whom the caller serves, which is returned.
fn left_over<'a>(
    conversation: &'a Conversation,
    draft: &mut Draft<'_>,
) -> Result<Option<Cow<'a, str>>, Unmappable> {
    let mut user_id = conversation.user.as_deref().map(Cow::Borrowed);
    for hint in &conversation.hints {
        let customer = || serde_json::from_str::<String>(hint.value.get()).ok();
        if hint.name == "safety_identifier" && user_id.is_none() {
            user_id = customer().map(Cow::Owned);
        }
        if hint.name != "safety_identifier" || user_id.is_none() {
            draft.drop(hint.name.clone());
        }
    }
    for demand in &conversation.demands {
        draft.refuse(demand.name.clone(), "Anthropic's Messages has no such parameter")?;
    }
    Ok(user_id)
}
