//! Requests of Gemini's generateContent, from the superset. The model is in the URL, and so is the wish for a stream.

mod contents;
mod draft;
mod settings;
mod tools;

use crate::chat::request::renamed::Renamed;
use crate::responses::request::SUMMARY;
use crate::superset::request::{Conversation, Encoded, Target, Unmappable};
use draft::Draft;

/// Writes a request for an upstream.
pub fn encode(conversation: &Conversation, target: &Target<'_>) -> Result<Encoded, Unmappable> {
    let mut draft = Draft::new(target);
    let renamed = Renamed::new(&conversation.tools);
    contents::put(conversation, &renamed, &mut draft)?;
    tools::put(conversation, &renamed, &mut draft)?;
    settings::put(conversation, &mut draft)?;
    for demand in &conversation.demands {
        draft.refuse(&demand.name, "its provider speaks another dialect")?;
    }
    // Thoughts are told as summaries there.
    for hint in conversation.hints.iter().filter(|hint| hint.name != SUMMARY) {
        draft.drop(hint.name.clone());
    }
    if conversation.user.is_some() {
        draft.drop("user");
    }
    Ok(draft.finish(renamed.into_names()))
}

#[cfg(test)]
mod tests;
