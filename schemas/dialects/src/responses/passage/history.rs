//! Thoughts of earlier answers in a request that passes.

use bytes::Bytes;
use serde::Deserialize;

use super::super::proof::{self, Told as Proved};
use super::super::told::{Item, Kind, Told, text};
use crate::passage::hidden::place;
use crate::passage::history::{Edits, Fate, left};
use crate::splice::{Edit, json_string};
use crate::superset::request::ProofMaker;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Request<'a> {
    #[serde(borrow)]
    input: Told<'a>,
}

/// The edits that take thoughts out of a request that are proved by a mark of ours. `None` where there are none.
pub(crate) fn edits(body: &[u8]) -> Option<Edits> {
    let request: Request<'_> = serde_json::from_slice(body).ok()?;
    let input = request.input?;
    let mut found = Edits::default();
    let items = left(input, |item| fate(item.get(), &mut found))?;
    found.edits.push(Edit {
        range: place(body, input)?,
        with: Bytes::from(format!("[{}]", items.join(","))),
    });
    Some(found)
}

fn fate(item: &str, found: &mut Edits) -> Fate {
    let Ok(read) = serde_json::from_str::<Item<'_>>(item) else {
        return Fate::Stays;
    };
    let encrypted = read.encrypted_content;
    let told = text(encrypted).unwrap_or_default();
    if read.kind() != Kind::Reasoning || !proof::is_ours(&told) {
        return Fate::Stays;
    }
    if let (Proved::Thought(ProofMaker::OpenAi, own), Some(at)) = (
        proof::told(&told),
        encrypted.and_then(|raw| place(item.as_bytes(), raw)),
    ) {
        let quoted = json_string(own);
        return Fate::Becomes(format!(
            "{}{}{}",
            item.get(..at.start).unwrap_or_default(),
            String::from_utf8_lossy(&quoted),
            item.get(at.end..).unwrap_or_default()
        ));
    }
    found.drop("input.reasoning");
    Fate::Goes
}
