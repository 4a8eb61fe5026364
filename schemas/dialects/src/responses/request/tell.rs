//! What was said, written as items.

use std::borrow::Cow;
use std::collections::HashSet;

use super::output::Notes;
use crate::profile::Profile;
use crate::responses::item::{Item, Output, Piece};
use crate::superset::request::{Call, Media, Part, Proof, ProofMaker, Role, THOUGHTS, Turn, Unmappable};

/// Longest name of a tool.
const NAME_BYTES_MAX: usize = 64;
/// Bytes of a longer name that stay.
const NAME_BYTES_KEPT: usize = 47;
/// Longest id of a call.
const CALL_ID_BYTES_MAX: usize = 64;
/// What stands before the result of a call that failed.
const FAILED: &str = "Error: ";

/// The instructions that stand first and alone, and the turns after them.
pub(super) fn instructions(turns: &[Turn]) -> (Option<&str>, &[Turn]) {
    if let Some((first, rest)) = turns.split_first()
        && first.role == Role::System
        && let [Part::Text { text, cache: None }] = first.parts.as_slice()
        && !rest.is_empty()
    {
        return (Some(text), rest);
    }
    (None, turns)
}

/// Writes turns.
pub(super) struct Telling<'n> {
    profile: &'n Profile,
    notes: &'n mut Notes,
    /// Calls of tools that take free text, by their ids.
    custom: HashSet<String>,
}

impl<'n> Telling<'n> {
    pub(super) fn new(profile: &'n Profile, notes: &'n mut Notes) -> Self {
        Self {
            profile,
            notes,
            custom: HashSet::new(),
        }
    }

    pub(super) fn turns(mut self, turns: &[Turn]) -> Result<Vec<Item<'_>>, Unmappable> {
        let mut items = Vec::new();
        for turn in turns {
            if turn.name.is_some() {
                self.notes.drop("name");
            }
            match turn.role {
                Role::System => items.push(self.message("system", &turn.parts)?),
                Role::Developer => {
                    let role = if self.profile.developer {
                        "developer"
                    } else {
                        "system"
                    };
                    items.push(self.message(role, &turn.parts)?);
                }
                Role::User => items.push(self.message("user", &turn.parts)?),
                Role::Assistant => {
                    for part in &turn.parts {
                        self.done(part, &mut items)?;
                    }
                }
                Role::Tool => {
                    for part in &turn.parts {
                        self.result(part, &mut items)?;
                    }
                }
            }
        }
        Ok(items)
    }

    fn message<'a>(&mut self, role: &'static str, parts: &'a [Part]) -> Result<Item<'a>, Unmappable> {
        Ok(Item {
            kind: "message",
            role: Some(role),
            content: Some(self.pieces(parts)?),
            ..Item::default()
        })
    }

    fn pieces<'a>(&mut self, parts: &'a [Part]) -> Result<Vec<Piece<'a>>, Unmappable> {
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            pieces.extend(self.piece(part)?);
        }
        Ok(pieces)
    }

    /// A part of what a model is told.
    fn piece<'a>(&mut self, part: &'a Part) -> Result<Option<Piece<'a>>, Unmappable> {
        Ok(Some(match part {
            Part::Text { text, cache } => {
                self.mark(cache.is_some());
                Piece::text("input_text", text)
            }
            Part::Image { source, detail } => image(source, detail.as_deref()),
            Part::File { source, name } => file(source, name.as_deref()),
            Part::Audio { .. } => {
                self.notes.refuse("input_audio", "it takes no sound")?;
                return Ok(None);
            }
            Part::Refusal(text) => Piece::text("input_text", text),
            Part::Thinking { .. } | Part::ToolCall(_) | Part::ToolResult { .. } => return Ok(None),
        }))
    }

    fn mark(&mut self, marked: bool) {
        if marked {
            self.notes.drop("cache_control");
        }
    }

    /// A part of what the model did.
    fn done<'a>(&mut self, part: &'a Part, items: &mut Vec<Item<'a>>) -> Result<(), Unmappable> {
        let said = match part {
            Part::Text { text, cache } => {
                self.mark(cache.is_some());
                Piece {
                    annotations: Some([]),
                    ..Piece::text("output_text", text)
                }
            }
            Part::Refusal(text) => Piece::refusal(text),
            Part::Thinking { text, proof } => {
                match self.thought(text, proof.as_ref()) {
                    Some(item) => items.push(item),
                    None => self.notes.drop(THOUGHTS),
                }
                return Ok(());
            }
            Part::ToolCall(call) => {
                items.push(self.call(call));
                return Ok(());
            }
            Part::Image { .. } | Part::Audio { .. } | Part::File { .. } | Part::ToolResult { .. } => {
                return self.notes.refuse("messages", "what a model said is text");
            }
        };
        match items.last_mut() {
            Some(Item {
                role: Some("assistant"),
                content: Some(content),
                ..
            }) => content.push(said),
            _ => items.push(Item {
                kind: "message",
                role: Some("assistant"),
                content: Some(vec![said]),
                ..Item::default()
            }),
        }
        Ok(())
    }

    /// A thought goes back to who made it; to others where they want it in words.
    fn thought<'a>(&self, text: &'a str, proof: Option<&'a Proof>) -> Option<Item<'a>> {
        let own = proof.filter(|proof| proof.maker == ProofMaker::OpenAi);
        let piece = |kind| (!text.is_empty()).then(|| Piece::text(kind, text));
        let in_words = || self.profile.thoughts_back && !text.is_empty();
        match own {
            Some(proof) => Some(Item {
                kind: "reasoning",
                summary: Some(piece("summary_text").into_iter().collect()),
                encrypted_content: Some(proof.text.as_str().into()),
                ..Item::default()
            }),
            None if in_words() => Some(Item {
                kind: "reasoning",
                summary: Some(Vec::new()),
                content: Some(piece("reasoning_text").into_iter().collect()),
                ..Item::default()
            }),
            None => None,
        }
    }

    fn call<'a>(&mut self, call: &'a Call) -> Item<'a> {
        if call.custom {
            self.custom.insert(call.id.clone());
        }
        let arguments = Some(call.arguments.as_str());
        Item {
            kind: if call.custom {
                "custom_tool_call"
            } else {
                "function_call"
            },
            call_id: Some(sent_id(&call.id)),
            name: Some(sent_name(&call.name)),
            namespace: call.namespace.as_deref(),
            arguments: arguments
                .filter(|_| !call.custom)
                .map(|text| if text.is_empty() { "{}" } else { text }),
            input: arguments.filter(|_| call.custom),
            ..Item::default()
        }
    }

    fn result<'a>(&mut self, part: &'a Part, items: &mut Vec<Item<'a>>) -> Result<(), Unmappable> {
        let Part::ToolResult { id, parts, failed } = part else {
            return Ok(());
        };
        let output = match parts.as_slice() {
            [] => Output::Text(if *failed { FAILED } else { "" }.into()),
            [Part::Text { text, cache }] => {
                self.mark(cache.is_some());
                Output::Text(if *failed {
                    format!("{FAILED}{text}").into()
                } else {
                    text.as_str().into()
                })
            }
            parts => {
                let mut pieces = self.pieces(parts)?;
                if *failed {
                    pieces.insert(0, Piece::text("input_text", FAILED));
                }
                Output::Pieces(pieces)
            }
        };
        let is_custom = self.custom.contains(id);
        items.push(Item {
            kind: if is_custom {
                "custom_tool_call_output"
            } else {
                "function_call_output"
            },
            call_id: Some(sent_id(id)),
            output: Some(output),
            ..Item::default()
        });
        Ok(())
    }
}

fn image<'a>(source: &'a Media, detail: Option<&'a str>) -> Piece<'a> {
    let mut piece = Piece {
        kind: "input_image",
        detail: Some(detail.unwrap_or("auto")),
        ..Piece::default()
    };
    match source {
        Media::Inline { media_type, data } => piece.image_url = Some(data_url(media_type, data)),
        Media::Url(url) | Media::Text(url) => piece.image_url = Some(url.as_str().into()),
        Media::Id(id) => piece.file_id = Some(id),
    }
    piece
}

fn file<'a>(source: &'a Media, name: Option<&'a str>) -> Piece<'a> {
    let mut piece = Piece {
        kind: "input_file",
        filename: name,
        ..Piece::default()
    };
    match source {
        Media::Inline { media_type, data } => {
            piece.file_data = Some(data_url(media_type, data));
            // Bytes without a name are refused.
            piece.filename = Some(name.unwrap_or("file.pdf"));
        }
        Media::Url(url) => piece.file_url = Some(url),
        Media::Id(id) => piece.file_id = Some(id),
        Media::Text(text) => {
            let text = match name {
                Some(name) => format!("{name}\n\n{text}").into(),
                None => text.as_str().into(),
            };
            return Piece {
                kind: "input_text",
                text: Some(text),
                ..Piece::default()
            };
        }
    }
    piece
}

fn data_url<'a>(media_type: &str, data: &str) -> Cow<'a, str> {
    format!("data:{media_type};base64,{data}").into()
}

/// The name of a tool as it is sent: a long one, or one with other letters than the dialect allows, is made one that it
/// does, the same each time.
pub(super) fn sent_name(name: &str) -> Cow<'_, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(fits) {
        return name.into();
    }
    let plain = name.chars().map(|letter| match u8::try_from(letter) {
        Ok(byte) if fits(byte) => letter,
        _ => '_',
    });
    let kept: String = plain.take(NAME_BYTES_KEPT).collect();
    format!("{kept}_{:016x}", digest(name)).into()
}

/// The id of a call as it is sent: the same each time.
fn sent_id(id: &str) -> Cow<'_, str> {
    if id.len() <= CALL_ID_BYTES_MAX {
        return id.into();
    }
    format!(
        "call_{:016x}{:016x}",
        digest(id),
        digest(&id.chars().rev().collect::<String>())
    )
    .into()
}

/// A short digest of a text (FNV-1a).
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
