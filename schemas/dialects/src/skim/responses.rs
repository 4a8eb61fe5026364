//! The members of a request of OpenAI's Responses.

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Draft, Format, Members, in_range, members};
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
    User = "user",
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    format: Option<Format<'a>>,
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
            Self::Temperature => in_range(map.next_value()?, 2.0)?,
            Self::TopP => in_range(map.next_value()?, 1.0)?,
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
