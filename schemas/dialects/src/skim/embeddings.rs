//! The members of a request for embeddings.

use std::borrow::Cow;

use schemas::parameter::Parameters;
use serde::de::{Error as _, IgnoredAny, MapAccess};

use super::Error;
use super::body::{Count, Draft, Members, members};
use super::embedded::Embedded;

members! {
    Model = "model",
    Input = "input",
    EncodingFormat = "encoding_format",
    Dimensions = "dimensions",
    Stream = "stream",
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
            Self::Input => read_input(draft, map)?,
            Self::EncodingFormat => {
                let form: Option<Cow<'a, str>> = map.next_value()?;
                if form.is_some_and(|form| form != "float" && form != "base64") {
                    return Err(M::Error::custom("not an encoding"));
                }
            }
            Self::Dimensions => {
                if map.next_value::<Option<Count>>()?.is_some() {
                    draft.asks = draft.asks | Parameters::DIMENSIONS;
                }
            }
            Self::Stream => {
                draft.read_stream(map)?;
                if draft.stream {
                    return draft.refuse(Error::NotStreamed);
                }
            }
            Self::User => draft.user = Some(map.next_value()?),
            Self::Other => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn check(draft: &Draft<'a>) -> Result<(), Error> {
        draft.check_prompt("input", Self::missing("input"))
    }
}

/// Reads what is embedded.
fn read_input<'a, M: MapAccess<'a>>(draft: &mut Draft<'a>, map: &mut M) -> Result<(), M::Error> {
    let mut fault = None;
    let read = map.next_value_seed(Embedded {
        prompt: &mut draft.prompt,
        fault: &mut fault,
    });
    match fault {
        Some(fault) => draft.refuse(Error::InvalidInput { fault }),
        None => read,
    }
}
