//! The members of a chat request.

use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Count, Draft, Format, Members, in_range, members};
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
    N = "n",
    Tools = "tools",
    Functions = "functions",
    ToolChoice = "tool_choice",
    FunctionCall = "function_call",
    ResponseFormat = "response_format",
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
            Self::Temperature => in_range(map.next_value()?, 2.0)?,
            Self::TopP => in_range(map.next_value()?, 1.0)?,
            Self::MaxTokens | Self::MaxCompletionTokens => draft.read_max_tokens(map)?,
            Self::N => draft.choices = map.next_value::<Option<Count>>()?.map(|count| count.0),
            Self::Tools | Self::Functions => draft.read_tools(map)?,
            Self::ToolChoice | Self::FunctionCall => {
                let choice: &RawValue = map.next_value()?;
                draft.tools |= !matches!(choice.get(), "null" | "\"none\"");
            }
            Self::ResponseFormat => {
                let format: Option<Format<'_>> = map.next_value()?;
                draft.structured = format.is_some_and(|format| format.is_structured());
            }
            Self::User => draft.user = Some(map.next_value()?),
            Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("messages", Self::missing("messages"))
    }
}
