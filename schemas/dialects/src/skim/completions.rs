//! The members of a request of OpenAI's older completions.

use schemas::parameter::Parameters;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::Error;
use super::body::{Count, Draft, Members, members};
use super::prompt::Inputs;
use crate::passage::request::embedded;

members! {
    Model = "model",
    Prompt = "prompt",
    PromptEmbeds = "prompt_embeds",
    Suffix = "suffix",
    Stream = "stream",
    StreamOptions = "stream_options",
    Temperature = "temperature",
    TopP = "top_p",
    MaxTokens = "max_tokens",
    NPredict = "n_predict",
    N = "n",
    NCmpl = "n_cmpl",
    BestOf = "best_of",
    Echo = "echo",
    TopK = "top_k",
    MinP = "min_p",
    Stop = "stop",
    Seed = "seed",
    FrequencyPenalty = "frequency_penalty",
    PresencePenalty = "presence_penalty",
    RepetitionPenalty = "repetition_penalty",
    LogitBias = "logit_bias",
    Logprobs = "logprobs",
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
            Self::PromptEmbeds => {
                let count = embedded(map.next_value::<&RawValue>()?);
                draft.prompts_embedded = u64::try_from(count).unwrap_or(u64::MAX);
            }
            Self::Suffix => draft.read_text(map)?,
            Self::Stream => draft.read_stream(map)?,
            Self::StreamOptions => draft.stream_options = Some(map.next_value()?),
            Self::Temperature => draft.read_share(Parameters::TEMPERATURE, 2.0, map)?,
            Self::TopP => draft.read_share(Parameters::TOP_P, 1.0, map)?,
            // None at all is asked for to have a prompt weighed.
            Self::MaxTokens => draft.max_tokens = map.next_value::<Option<u64>>()?,
            Self::N => draft.choices = map.next_value::<Option<Count>>()?.map(|count| count.0),
            Self::NPredict => draft.read_max_tokens_otherwise(map)?,
            Self::BestOf | Self::NCmpl => draft.read_choices_otherwise(map)?,
            Self::TopK => draft.read_ask(Parameters::TOP_K, &["0", "-1"], map)?,
            Self::MinP => draft.read_ask(Parameters::MIN_P, &["0", "0.0"], map)?,
            Self::Stop => draft.read_ask(Parameters::STOP, &["[]"], map)?,
            Self::Seed => draft.read_ask(Parameters::SEED, &[], map)?,
            Self::FrequencyPenalty => draft.read_ask(Parameters::FREQUENCY_PENALTY, &["0", "0.0"], map)?,
            Self::PresencePenalty => draft.read_ask(Parameters::PRESENCE_PENALTY, &["0", "0.0"], map)?,
            Self::RepetitionPenalty => draft.read_ask(Parameters::REPETITION_PENALTY, &["1", "1.0"], map)?,
            Self::LogitBias => draft.read_ask(Parameters::LOGIT_BIAS, &["{}"], map)?,
            Self::Logprobs => draft.read_ask(Parameters::LOGPROBS, &[], map)?,
            Self::User => draft.user = Some(map.next_value()?),
            Self::Echo => draft.echoes = !matches!(map.next_value::<&RawValue>()?.get(), "false" | "null"),
            Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("prompt", Self::missing("prompt"))
    }
}
