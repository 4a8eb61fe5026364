//! What was said: instructions in a place of their own, turns of `user` and `model`, each call's result under the name
//! of the tool that was called. Signatures of Gemini's go back where they came from; other models' thoughts do not.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::draft::{Draft, unmappable};
use crate::chat::request::renamed::Renamed;
use crate::gemini::wire::generation;
use crate::superset::request::{
    Call, Conversation, Media, Part, Proof, ProofMaker, Role, THOUGHTS, Turn, Unmappable,
};

/// What stands for the signature of a call that another model made, where one is demanded.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// The first generation of models that demands signatures of calls.
const SIGNING: u32 = 3;
/// Addresses that Gemini itself can read, and everybody else: not those of files that its account keeps.
const READABLE: [&str; 3] = [
    "https://www.youtube.com/",
    "https://youtube.com/",
    "https://youtu.be/",
];

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Said<'a>>,
}

/// A part of what was said: one of its members but for the signature.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Said<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<Inline<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<There<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<Called<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<Answered<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct There<'a> {
    file_uri: &'a str,
}

#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    name: String,
    args: Arguments<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Given(&'a RawValue),
    Text { input: &'a str },
    Empty {},
}

#[derive(Serialize)]
struct Answered<'a> {
    id: &'a str,
    name: String,
    response: Outcome<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Given(Box<RawValue>),
    Failed { error: Cow<'a, str> },
    Text { result: Cow<'a, str> },
}

/// Writes `systemInstruction` and `contents`.
pub(super) fn put<'a>(
    conversation: &'a Conversation,
    renamed: &Renamed<'a>,
    draft: &mut Draft<'_>,
) -> Result<(), Unmappable> {
    let instructs = |turn: &&Turn| matches!(turn.role, Role::System | Role::Developer);
    let mut instructions = Vec::new();
    for turn in conversation.turns.iter().filter(instructs) {
        name_of(turn, draft);
        said(&turn.parts, &mut instructions, draft)?;
    }
    let mut writing = Writing {
        contents: Vec::with_capacity(conversation.turns.len()),
        called: HashMap::new(),
        renamed,
        signs: generation(draft.model()).is_some_and(|generation| generation >= SIGNING),
    };
    for turn in conversation.turns.iter().filter(|turn| !instructs(turn)) {
        name_of(turn, draft);
        match turn.role {
            Role::Tool => writing.results(turn, draft)?,
            Role::Assistant => writing.answer(turn, draft)?,
            _ => {
                let mut parts = Vec::with_capacity(turn.parts.len());
                said(&turn.parts, &mut parts, draft)?;
                writing.user(parts);
            }
        }
    }
    if writing.contents.is_empty() {
        // There has to be something to answer.
        writing.user(std::mem::take(&mut instructions));
    }
    if !instructions.is_empty() {
        let instruction = Content {
            role: None,
            parts: instructions,
        };
        draft.put("systemInstruction", &instruction);
    }
    if writing.contents.iter().all(|content| content.parts.is_empty()) {
        return Err(unmappable("messages", "its provider answers no empty prompt"));
    }
    draft.put("contents", &writing.contents);
    Ok(())
}

fn name_of(turn: &Turn, draft: &mut Draft<'_>) {
    if turn.name.is_some() {
        draft.drop("name");
    }
}

/// The turns as far as they are written.
struct Writing<'a, 'r> {
    contents: Vec<Content<'a>>,
    /// The tool of each call, by the call's id.
    called: HashMap<&'a str, String>,
    renamed: &'r Renamed<'a>,
    /// The model wants to see signatures of its calls.
    signs: bool,
}

impl<'a> Writing<'a, '_> {
    fn user(&mut self, parts: Vec<Said<'a>>) {
        self.push("user", parts);
    }

    /// Adds to the last turn of the same side. Results of calls are a turn of their own.
    fn push(&mut self, role: &'static str, parts: Vec<Said<'a>>) {
        if parts.is_empty() {
            return;
        }
        let responds = |parts: &[Said<'_>]| parts.iter().any(|part| part.function_response.is_some());
        match self.contents.last_mut() {
            Some(last) if last.role == Some(role) && responds(&last.parts) == responds(&parts) => {
                last.parts.extend(parts);
            }
            _ => self.contents.push(Content {
                role: Some(role),
                parts,
            }),
        }
    }

    /// What the model said, with the signatures it wants to see again.
    fn answer(&mut self, turn: &'a Turn, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
        let mut parts: Vec<Said<'a>> = Vec::with_capacity(turn.parts.len());
        let mut signature = None;
        let mut calls = 0;
        for part in &turn.parts {
            match part {
                // Thoughts in words are not read again, but by what proves them.
                Part::Thinking { proof, .. } => match proof.as_ref().and_then(of_gemini) {
                    Some(own) => signature = Some(own),
                    None => draft.drop(THOUGHTS),
                },
                Part::ToolCall(call) => {
                    let first = calls == 0;
                    calls += 1;
                    parts.push(self.call(call, first)?);
                }
                other => {
                    let before = parts.len();
                    said(std::slice::from_ref(other), &mut parts, draft)?;
                    if let Some(part) = parts.get_mut(before) {
                        part.thought_signature = signature.take();
                    }
                }
            }
        }
        if signature.is_some() {
            parts.push(Said {
                text: Some(""),
                thought_signature: signature,
                ..Said::default()
            });
        }
        self.push("model", parts);
        Ok(())
    }

    fn call(&mut self, call: &'a Call, first: bool) -> Result<Said<'a>, Unmappable> {
        let name = self.renamed.sent(call.namespace.as_deref(), &call.name);
        self.called.insert(&call.id, name.clone());
        let text = call.arguments.trim();
        let args = match text {
            _ if call.custom => Arguments::Text {
                input: &call.arguments,
            },
            "" => Arguments::Empty {},
            text if text.starts_with('{') => {
                let raw: &RawValue = serde_json::from_str(text).map_err(|_| arguments())?;
                Arguments::Given(raw)
            }
            _ => return Err(arguments()),
        };
        let signed = call.proof.as_ref().and_then(of_gemini);
        let unsigned = (first && self.signs).then_some(UNSIGNED);
        Ok(Said {
            function_call: Some(Called {
                id: &call.id,
                name,
                args,
            }),
            thought_signature: signed.or(unsigned),
            ..Said::default()
        })
    }

    fn results(&mut self, turn: &'a Turn, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
        let (mut parts, mut shown) = (Vec::with_capacity(turn.parts.len()), Vec::new());
        for part in &turn.parts {
            let Part::ToolResult {
                id,
                parts: told,
                failed,
            } = part
            else {
                continue;
            };
            let Some(name) = self.called.get(id.as_str()) else {
                return Err(unmappable(
                    "messages",
                    "a result of a tool answers no earlier call",
                ));
            };
            let (words, media): (Vec<&Part>, Vec<&Part>) = told.iter().partition(|part| is_words(part));
            for part in media {
                said(std::slice::from_ref(part), &mut shown, draft)?;
            }
            parts.push(Said {
                function_response: Some(Answered {
                    id,
                    name: name.clone(),
                    response: outcome(words, *failed, draft),
                }),
                ..Said::default()
            });
        }
        self.push("user", parts);
        // What a result shows comes behind all results: they have no place for it.
        self.push("user", shown);
        Ok(())
    }
}

fn arguments() -> Unmappable {
    unmappable("messages", "the arguments of a call are no JSON object")
}

const fn is_words(part: &Part) -> bool {
    matches!(part, Part::Text { .. } | Part::Refusal(_))
}

fn outcome<'a>(words: Vec<&'a Part>, failed: bool, draft: &mut Draft<'_>) -> Outcome<'a> {
    let mut text = Cow::Borrowed("");
    for part in words {
        let more = match part {
            Part::Text { text, cache } => {
                if cache.is_some() {
                    draft.drop("cache_control");
                }
                text.as_str()
            }
            Part::Refusal(text) => text.as_str(),
            _ => continue,
        };
        if text.is_empty() {
            text = Cow::Borrowed(more);
        } else if !more.is_empty() {
            let whole = text.to_mut();
            whole.push('\n');
            whole.push_str(more);
        }
    }
    if failed {
        return Outcome::Failed { error: text };
    }
    if text.trim_start().starts_with('{')
        && let Ok(object) = RawValue::from_string(text.clone().into_owned())
    {
        return Outcome::Given(object);
    }
    Outcome::Text { result: text }
}

/// A signature, if Gemini made it.
fn of_gemini(proof: &Proof) -> Option<&str> {
    (proof.maker == ProofMaker::Gemini).then_some(proof.text.as_str())
}

/// Appends texts and media.
fn said<'a>(parts: &'a [Part], out: &mut Vec<Said<'a>>, draft: &mut Draft<'_>) -> Result<(), Unmappable> {
    for part in parts {
        match part {
            Part::Text { text, cache } => {
                if cache.is_some() {
                    draft.drop("cache_control");
                }
                push_text(text, out);
            }
            Part::Refusal(text) => push_text(text, out),
            Part::Image { source, detail } => {
                if detail.as_deref().is_some_and(|detail| detail != "auto") {
                    draft.drop("detail");
                }
                out.push(media(source, "image_url")?);
            }
            Part::File { source, name } => {
                if name.is_some() {
                    draft.drop("filename");
                }
                if let Media::Text(text) = source {
                    push_text(text, out);
                } else {
                    out.push(media(source, "file")?);
                }
            }
            Part::Audio { format, data } => out.push(inline(sound(format)?, data)),
            Part::Thinking { .. } | Part::ToolCall(_) | Part::ToolResult { .. } => {
                return Err(unmappable(
                    "messages",
                    "a part stands in a turn where it cannot be",
                ));
            }
        }
    }
    Ok(())
}

fn push_text<'a>(text: &'a str, out: &mut Vec<Said<'a>>) {
    if !text.is_empty() {
        out.push(Said {
            text: Some(text),
            ..Said::default()
        });
    }
}

fn inline<'a>(mime_type: &'a str, data: &'a str) -> Said<'a> {
    Said {
        inline_data: Some(Inline { mime_type, data }),
        ..Said::default()
    }
}

fn sound(format: &str) -> Result<&'static str, Unmappable> {
    Ok(match format {
        "wav" => "audio/wav",
        "mp3" => "audio/mp3",
        "flac" => "audio/flac",
        "aac" => "audio/aac",
        "ogg" => "audio/ogg",
        "aiff" => "audio/aiff",
        _ => return Err(unmappable("input_audio", "its provider does not know the format")),
    })
}

fn media<'a>(source: &'a Media, param: &str) -> Result<Said<'a>, Unmappable> {
    match source {
        Media::Inline { media_type, data } => Ok(inline(media_type, data)),
        Media::Url(url) if READABLE.iter().any(|start| url.starts_with(start)) => Ok(Said {
            file_data: Some(There { file_uri: url }),
            ..Said::default()
        }),
        Media::Url(_) => Err(unmappable(
            param,
            "its provider fetches nothing: give the bytes as a data URL",
        )),
        Media::Id(_) => Err(unmappable(param, "its provider does not have the file")),
        Media::Text(text) => Ok(Said {
            text: Some(text),
            ..Said::default()
        }),
    }
}
