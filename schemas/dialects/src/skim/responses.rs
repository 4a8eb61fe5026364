//! The members of a request of OpenAI's Responses.

use schemas::parameter::Parameters;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Draft, Format, Members, members};
use super::prompt::Items;

members! {
    Model = "model",
    Input = "input",
    Instructions = "instructions",
    PreviousResponseId = "previous_response_id",
    Conversation = "conversation",
    Prompt = "prompt",
    Store = "store",
    Background = "background",
    Stream = "stream",
    StreamOptions = "stream_options",
    Temperature = "temperature",
    TopP = "top_p",
    MaxOutputTokens = "max_output_tokens",
    Tools = "tools",
    ToolChoice = "tool_choice",
    Text = "text",
    TopK = "top_k",
    MinP = "min_p",
    Stop = "stop",
    Seed = "seed",
    FrequencyPenalty = "frequency_penalty",
    PresencePenalty = "presence_penalty",
    TopLogprobs = "top_logprobs",
    LogitBias = "logit_bias",
    Reasoning = "reasoning",
    User = "user",
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    format: Option<Format<'a>>,
}

#[derive(Deserialize)]
struct Reasoning<'a> {
    #[serde(borrow)]
    effort: Option<&'a RawValue>,
}

impl<'a> Members<'a> for Field {
    fn name(self) -> &'static str {
        self.text()
    }

    fn place(self) -> Option<u32> {
        self.bit()
    }

    fn read<M: MapAccess<'a>>(self, draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Model => draft.model = Some(map.next_value()?),
            Self::Input => map.next_value_seed(Items(&mut draft.prompt))?,
            Self::Instructions => draft.read_text(map)?,
            Self::Store | Self::Background => drop(map.next_value::<Option<bool>>()?),
            Self::Stream => draft.read_stream(map)?,
            Self::Temperature => draft.read_share(Parameters::TEMPERATURE, 2.0, map)?,
            Self::TopP => draft.read_share(Parameters::TOP_P, 1.0, map)?,
            Self::MaxOutputTokens => draft.read_max_tokens(map)?,
            Self::Tools => draft.read_tools(map)?,
            Self::ToolChoice => {
                let choice: &RawValue = map.next_value()?;
                draft.tools |= matches!(choice.get(), "\"required\"") || choice.get().starts_with('{');
            }
            Self::Text => {
                let text: Option<Text<'_>> = map.next_value()?;
                let format = text.and_then(|text| text.format);
                draft.structured = format.is_some_and(|format| format.is_structured());
            }
            Self::TopK => draft.read_ask(Parameters::TOP_K, &["0", "-1"], map)?,
            Self::MinP => draft.read_ask(Parameters::MIN_P, &["0", "0.0"], map)?,
            Self::Stop => draft.read_ask(Parameters::STOP, &["[]"], map)?,
            Self::Seed => draft.read_ask(Parameters::SEED, &[], map)?,
            Self::FrequencyPenalty => draft.read_ask(Parameters::FREQUENCY_PENALTY, &["0", "0.0"], map)?,
            Self::PresencePenalty => draft.read_ask(Parameters::PRESENCE_PENALTY, &["0", "0.0"], map)?,
            Self::TopLogprobs => draft.read_ask(Parameters::LOGPROBS, &["0"], map)?,
            Self::LogitBias => draft.read_ask(Parameters::LOGIT_BIAS, &["{}"], map)?,
            Self::Reasoning => {
                let reasoning: Option<Reasoning<'_>> = map.next_value()?;
                let effort = reasoning.and_then(|reasoning| reasoning.effort);
                if effort.is_some_and(|effort| effort.get() != "\"none\"") {
                    draft.asks = draft.asks | Parameters::EFFORT;
                }
            }
            Self::User => draft.user = Some(map.next_value()?),
            Self::PreviousResponseId
            | Self::Conversation
            | Self::Prompt
            | Self::StreamOptions
            | Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        draft.tells_usage = true;
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        let elsewhere = [Self::PreviousResponseId, Self::Conversation, Self::Prompt];
        if elsewhere.iter().any(|field| draft.has(*field)) {
            return Ok(());
        }
        draft.check_prompt("input", Self::missing("input"))
    }
}
