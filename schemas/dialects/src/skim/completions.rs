//! The members of a request of OpenAI's older completions.

use serde::de::{IgnoredAny, MapAccess};

use super::Error;
use super::body::{Count, Draft, Members, in_range, members};
use super::prompt::Inputs;

members! {
    Model = "model",
    Prompt = "prompt",
    Suffix = "suffix",
    Stream = "stream",
    StreamOptions = "stream_options",
    Temperature = "temperature",
    TopP = "top_p",
    MaxTokens = "max_tokens",
    N = "n",
    BestOf = "best_of",
    Echo = "echo",
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
            Self::Prompt => map.next_value_seed(Inputs(&mut draft.prompt))?,
            Self::Suffix => draft.read_text(map)?,
            Self::Stream => draft.read_stream(map)?,
            Self::StreamOptions => draft.stream_options = Some(map.next_value()?),
            Self::Temperature => in_range(map.next_value()?, 2.0)?,
            Self::TopP => in_range(map.next_value()?, 1.0)?,
            // None at all is asked for to have a prompt weighed.
            Self::MaxTokens => draft.max_tokens = map.next_value::<Option<u64>>()?,
            Self::N => draft.choices = map.next_value::<Option<Count>>()?.map(|count| count.0),
            Self::User => draft.user = Some(map.next_value()?),
            Self::BestOf | Self::Echo | Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("prompt", Self::missing("prompt"))
    }
}
