//! The members of a request of Anthropic's Messages, and of the one that only asks for its size.

use schemas::parameter::Parameters;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Draft, Format, Members, members};
use super::prompt::Messages;

members! {
    Model = "model",
    Messages = "messages",
    System = "system",
    Stream = "stream",
    MaxTokens = "max_tokens",
    Tools = "tools",
    ToolChoice = "tool_choice",
    Thinking = "thinking",
    Temperature = "temperature",
    TopP = "top_p",
    TopK = "top_k",
    StopSequences = "stop_sequences",
    LogitBias = "logit_bias",
    RepetitionPenalty = "repetition_penalty",
    Metadata = "metadata",
    OutputConfig = "output_config",
    OutputFormat = "output_format",
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OutputConfig<'a> {
    #[serde(borrow)]
    effort: Option<&'a RawValue>,
    format: Option<Format<'a>>,
}

impl Field {
    fn read<'a, M: MapAccess<'a>>(self, draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error> {
        match self {
            Self::Model => draft.model = Some(map.next_value()?),
            Self::Messages => map.next_value_seed(Messages(&mut draft.prompt))?,
            Self::System => draft.read_text(map)?,
            Self::Stream => draft.read_stream(map)?,
            Self::MaxTokens => draft.read_max_tokens(map)?,
            Self::Tools => draft.read_tools(map)?,
            Self::Metadata => {
                let metadata: Option<Metadata<'_>> = map.next_value()?;
                draft.user = metadata.and_then(|metadata| metadata.user_id);
            }
            Self::OutputConfig => {
                let config: Option<OutputConfig<'_>> = map.next_value()?;
                if config.as_ref().is_some_and(|config| config.effort.is_some()) {
                    draft.asks = draft.asks | Parameters::EFFORT;
                }
                let format = config.and_then(|config| config.format);
                draft.structured |= format.is_some_and(|format| format.is_structured());
            }
            Self::OutputFormat => {
                let format: Option<Format<'_>> = map.next_value()?;
                draft.structured |= format.is_some_and(|format| format.is_structured());
            }
            Self::Temperature => draft.read_ask(Parameters::TEMPERATURE, &["1", "1.0"], map)?,
            Self::TopP => draft.read_ask(Parameters::TOP_P, &["1", "1.0"], map)?,
            Self::TopK => draft.read_ask(Parameters::TOP_K, &["0"], map)?,
            Self::StopSequences => draft.read_ask(Parameters::STOP, &["[]"], map)?,
            Self::LogitBias => draft.read_ask(Parameters::LOGIT_BIAS, &["{}"], map)?,
            Self::RepetitionPenalty => draft.read_ask(Parameters::REPETITION_PENALTY, &["1", "1.0"], map)?,
            Self::Thinking => draft.read_thinking(map)?,
            Self::ToolChoice | Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        draft.tells_usage = true;
        Ok(())
    }

    /// Clients of the dialect look for these words.
    const fn missing(param: &'static str) -> Error {
        Error::MissingField { param }
    }
}

impl<'a> Members<'a> for Field {
    fn name(self) -> &'static str {
        self.text()
    }

    fn place(self) -> Option<u32> {
        self.bit()
    }

    fn read<M: MapAccess<'a>>(self, draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error> {
        self.read(draft, map)
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("messages", Self::missing("messages"))?;
        draft.max_tokens.map(drop).ok_or(Self::missing("max_tokens"))
    }

    fn missing(param: &'static str) -> Error {
        Self::missing(param)
    }
}

/// The same, of a request to be counted: nothing is generated, so no limit is needed.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(super) struct Counted(Field);

impl<'a> Members<'a> for Counted {
    fn name(self) -> &'static str {
        self.0.text()
    }

    fn place(self) -> Option<u32> {
        self.0.bit()
    }

    fn read<M: MapAccess<'a>>(self, draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error> {
        self.0.read(draft, map)
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("messages", Field::missing("messages"))
    }

    fn missing(param: &'static str) -> Error {
        Field::missing(param)
    }
}
