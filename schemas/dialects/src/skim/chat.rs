//! The members of a chat request.

use schemas::parameter::Parameters;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Count, Draft, Format, Members, members};
use super::prompt::Messages;

members! {
    Model = "model",
    Messages = "messages",
    Stream = "stream",
    StreamOptions = "stream_options",
    Temperature = "temperature",
    TopP = "top_p",
    MaxTokens = "max_tokens",
    MaxCompletionTokens = "max_completion_tokens",
    NPredict = "n_predict",
    N = "n",
    NCmpl = "n_cmpl",
    Tools = "tools",
    Functions = "functions",
    ToolChoice = "tool_choice",
    FunctionCall = "function_call",
    ResponseFormat = "response_format",
    TopK = "top_k",
    MinP = "min_p",
    Stop = "stop",
    Seed = "seed",
    FrequencyPenalty = "frequency_penalty",
    PresencePenalty = "presence_penalty",
    RepetitionPenalty = "repetition_penalty",
    LogitBias = "logit_bias",
    Logprobs = "logprobs",
    TopLogprobs = "top_logprobs",
    ReasoningEffort = "reasoning_effort",
    Reasoning = "reasoning",
    Thinking = "thinking",
    EnableThinking = "enable_thinking",
    ThinkingBudget = "thinking_budget",
    User = "user",
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
            Self::Messages => map.next_value_seed(Messages(&mut draft.prompt))?,
            Self::Stream => draft.read_stream(map)?,
            Self::StreamOptions => draft.stream_options = Some(map.next_value()?),
            Self::Temperature => draft.read_share(Parameters::TEMPERATURE, 2.0, map)?,
            Self::TopP => draft.read_share(Parameters::TOP_P, 1.0, map)?,
            Self::MaxTokens | Self::MaxCompletionTokens => draft.read_max_tokens(map)?,
            Self::N => draft.choices = map.next_value::<Option<Count>>()?.map(|count| count.0),
            Self::NPredict => draft.read_max_tokens_otherwise(map)?,
            Self::NCmpl => draft.read_choices_otherwise(map)?,
            Self::Tools | Self::Functions => draft.read_tools(map)?,
            Self::ToolChoice | Self::FunctionCall => {
                let choice: &RawValue = map.next_value()?;
                draft.tools |= !matches!(choice.get(), "null" | "\"none\"" | "\"auto\"");
            }
            Self::ResponseFormat => {
                let format: Option<Format<'_>> = map.next_value()?;
                draft.structured = format.is_some_and(|format| format.is_structured());
            }
            Self::TopK => draft.read_ask(Parameters::TOP_K, &["0", "-1"], map)?,
            Self::MinP => draft.read_ask(Parameters::MIN_P, &["0", "0.0"], map)?,
            Self::Stop => draft.read_ask(Parameters::STOP, &["[]"], map)?,
            Self::Seed => draft.read_ask(Parameters::SEED, &[], map)?,
            Self::FrequencyPenalty => draft.read_ask(Parameters::FREQUENCY_PENALTY, &["0", "0.0"], map)?,
            Self::PresencePenalty => draft.read_ask(Parameters::PRESENCE_PENALTY, &["0", "0.0"], map)?,
            Self::RepetitionPenalty => draft.read_ask(Parameters::REPETITION_PENALTY, &["1", "1.0"], map)?,
            Self::LogitBias => draft.read_ask(Parameters::LOGIT_BIAS, &["{}"], map)?,
            Self::Logprobs => draft.read_ask(Parameters::LOGPROBS, &["false"], map)?,
            Self::TopLogprobs => draft.read_ask(Parameters::LOGPROBS, &["0"], map)?,
            Self::ReasoningEffort => draft.read_ask(Parameters::EFFORT, &["\"none\""], map)?,
            Self::Reasoning => draft.read_ask(Parameters::EFFORT, &["{}"], map)?,
            Self::Thinking => draft.read_thinking(map)?,
            Self::EnableThinking => draft.read_ask(Parameters::EFFORT, &["false"], map)?,
            Self::ThinkingBudget => draft.read_ask(Parameters::EFFORT, &["0"], map)?,
            Self::User => draft.user = Some(map.next_value()?),
            Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("messages", Self::missing("messages"))
    }
}
