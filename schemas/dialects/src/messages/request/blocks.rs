//! Blocks of content.

use serde_json::value::RawValue;

use super::decode::Draft;
use crate::messages::proof;
use crate::object::{MISSING, Object, Path, shown};
use crate::superset::calls::Calls;
use crate::superset::request::{Call, Media, Part, Proof, Refusal};

/// Kinds of images that every provider of images reads.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A block before its members are read.
struct Block<'a> {
    kind: String,
    members: Object<'a>,
}

impl<'a> Block<'a> {
    fn read(raw: &'a RawValue, path: &Path<'_>) -> Result<Self, Refusal> {
        let mut members = Object::at(raw, path)?;
        let kind = path.member("type").required_text(members.take("type"))?;
        Ok(Self { kind, members })
    }

    /// It cannot stand there, or means nothing to another provider.
    fn refuse(&self, path: &Path<'_>) -> Refusal {
        let kind = shown(&self.kind);
        path.member("type")
            .unsupported(format!("blocks of the type '{kind}' cannot be translated here"))
    }
}

fn plain(text: String, parts: &mut Vec<Part>) {
    if !text.is_empty() {
        parts.push(Part::Text { text, cache: None });
    }
}

impl Draft {
    /// A content: the text that it is, or its blocks, one after the other. `reads` adds what a block says.
    fn content(
        &mut self,
        raw: &RawValue,
        path: &Path<'_>,
        mut reads: impl FnMut(&mut Self, Block<'_>, &Path<'_>, &mut Vec<Part>) -> Result<(), Refusal>,
    ) -> Result<Vec<Part>, Refusal> {
        let mut parts = Vec::new();
        if raw.get().starts_with('"') {
            plain(path.text(raw)?, &mut parts);
            return Ok(parts);
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(raw.get())
            .map_err(|_| path.invalid("must be a string or an array of blocks"))?;
        for (index, raw) in blocks.into_iter().enumerate() {
            let path = path.element(index);
            reads(self, Block::read(raw, &path)?, &path, &mut parts)?;
        }
        Ok(parts)
    }

    /// Texts alone: instructions.
    pub(super) fn texts(&mut self, raw: &RawValue, path: &Path<'_>) -> Result<Vec<Part>, Refusal> {
        self.content(raw, path, |draft, block, path, parts| match block.kind.as_str() {
            "text" => draft.text(block, path, parts),
            _ => Err(block.refuse(path)),
        })
    }

    /// What a user said, results of calls among it.
    pub(super) fn question(
        &mut self,
        raw: &RawValue,
        calls: &Calls,
        path: &Path<'_>,
    ) -> Result<Vec<Part>, Refusal> {
        self.content(raw, path, |draft, block, path, parts| {
            match block.kind.as_str() {
                "tool_result" => parts.push(draft.result(block, calls, path)?),
                _ => draft.material(block, path, parts)?,
            }
            Ok(())
        })
    }

    /// What the model said.
    pub(super) fn answer(
        &mut self,
        raw: &RawValue,
        calls: &mut Calls,
        path: &Path<'_>,
    ) -> Result<Vec<Part>, Refusal> {
        let mut proofs: Vec<(String, Proof)> = Vec::new();
        let mut parts = self.content(raw, path, |draft, block, path, parts| {
            match block.kind.as_str() {
                "text" => draft.text(block, path, parts)?,
                "thinking" => parts.extend(draft.thinking(block, path)?),
                "redacted_thinking" => parts.extend(draft.redacted(block, path, &mut proofs)?),
                "tool_use" => parts.push(Part::ToolCall(draft.call(block, calls, path)?)),
                _ => return Err(block.refuse(path)),
            }
            Ok(())
        })?;
        for part in &mut parts {
            if let Part::ToolCall(call) = part {
                let proof = proofs.iter().find(|(id, _)| calls.stands(id) == Some(&call.id));
                call.proof = proof.map(|(_, proof)| proof.clone());
            }
        }
        Ok(parts)
    }

    /// A text, an image or a document.
    fn material(&mut self, block: Block<'_>, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        match block.kind.as_str() {
            "text" => self.text(block, path, parts),
            "image" => {
                parts.push(self.image(block, path)?);
                Ok(())
            }
            "document" => self.document(block, path, parts),
            "search_result" => self.search_result(block, path, parts),
            _ => Err(block.refuse(path)),
        }
    }

    fn text(&mut self, block: Block<'_>, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let mut members = block.members;
        let text = path.member("text").required_text(members.take("text"))?;
        let cache = members.take("cache_control").map(ToOwned::to_owned);
        if let Some(raw) = members.take("citations")
            && raw.get() != "[]"
        {
            self.hint(path.member("citations").to_string(), raw);
        }
        self.unknown(members, path);
        if !text.is_empty() {
            parts.push(Part::Text { text, cache });
        }
        Ok(())
    }

    fn image(&mut self, block: Block<'_>, path: &Path<'_>) -> Result<Part, Refusal> {
        let mut members = block.members;
        let source_path = path.member("source");
        let Some(raw) = members.take("source") else {
            return Err(source_path.invalid(MISSING));
        };
        let mut source = Object::at(raw, &source_path)?;
        let kind = source_path.member("type").required_text(source.take("type"))?;
        let source = match kind.as_str() {
            "base64" => inline(&mut source, &IMAGE_TYPES, &source_path)?,
            _ => elsewhere(&kind, &mut source, &source_path)?,
        };
        self.cache_hint(members.take("cache_control"));
        self.unknown(members, path);
        Ok(Part::Image { source, detail: None })
    }

    fn document(&mut self, block: Block<'_>, path: &Path<'_>, parts: &mut Vec<Part>) -> Result<(), Refusal> {
        let mut members = block.members;
        let optional = |raw: Option<&RawValue>, name| match raw {
            Some(raw) => path.member(name).text(raw).map(Some),
            None => Ok(None),
        };
        let name = optional(members.take("title"), "title")?;
        let context = optional(members.take("context"), "context")?;
        self.citations(members.take("citations"), path);
        self.cache_hint(members.take("cache_control"));
        let source_path = path.member("source");
        let Some(raw) = members.take("source") else {
            return Err(source_path.invalid(MISSING));
        };
        plain(context.unwrap_or_default(), parts);
        let mut source = Object::at(raw, &source_path)?;
        let kind = source_path.member("type").required_text(source.take("type"))?;
        let source = match kind.as_str() {
            "base64" => inline(&mut source, &["application/pdf"], &source_path)?,
            "text" => Media::Text(source_path.member("data").required_text(source.take("data"))?),
            "content" => {
                plain(name.unwrap_or_default(), parts);
                let path = source_path.member("content");
                let raw = source.take("content").ok_or_else(|| path.invalid(MISSING))?;
                parts.extend(self.inner(raw, &path, false)?);
                self.unknown(members, &source_path);
                return Ok(());
            }
            _ => elsewhere(&kind, &mut source, &source_path)?,
        };
        self.unknown(members, path);
        parts.push(Part::File { source, name });
        Ok(())
    }

    /// Something found in a search of the caller's own: its title, where it is from, and its texts.
    fn search_result(
        &mut self,
        block: Block<'_>,
        path: &Path<'_>,
        parts: &mut Vec<Part>,
    ) -> Result<(), Refusal> {
        let mut members = block.members;
        let title = path.member("title").required_text(members.take("title"))?;
        let source = path.member("source").required_text(members.take("source"))?;
        self.citations(members.take("citations"), path);
        self.cache_hint(members.take("cache_control"));
        let content_path = path.member("content");
        let Some(raw) = members.take("content") else {
            return Err(content_path.invalid(MISSING));
        };
        plain(format!("{title}\n{source}"), parts);
        parts.extend(self.texts(raw, &content_path)?);
        self.unknown(members, path);
        Ok(())
    }

    /// Citations of what the caller gave: nobody but Anthropic makes them.
    fn citations(&mut self, raw: Option<&RawValue>, path: &Path<'_>) {
        let Some(raw) = raw else { return };
        let enabled = Object::read(raw.get())
            .and_then(|mut members| members.take("enabled"))
            .is_some_and(|raw| raw.get() == "true");
        if enabled {
            self.demand(path.member("citations").to_string(), raw);
        }
    }

    /// Content within a block. `documents`: they may be among it.
    fn inner(&mut self, raw: &RawValue, path: &Path<'_>, documents: bool) -> Result<Vec<Part>, Refusal> {
        self.content(raw, path, |draft, block, path, parts| match block.kind.as_str() {
            "text" | "image" => draft.material(block, path, parts),
            _ if documents => draft.material(block, path, parts),
            _ => Err(block.refuse(path)),
        })
    }

    fn result(&mut self, block: Block<'_>, calls: &Calls, path: &Path<'_>) -> Result<Part, Refusal> {
        let mut members = block.members;
        let id_path = path.member("tool_use_id");
        let id = id_path.required_text(members.take("tool_use_id"))?;
        let id = calls.answered(&id, &id_path)?;
        let failed = match members.take("is_error") {
            Some(raw) => path.member("is_error").flag(raw)?,
            None => false,
        };
        let parts = match members.take("content") {
            Some(raw) => self.inner(raw, &path.member("content"), true)?,
            None => Vec::new(),
        };
        self.cache_hint(members.take("cache_control"));
        self.unknown(members, path);
        Ok(Part::ToolResult { id, parts, failed })
    }

    fn thinking(&mut self, block: Block<'_>, path: &Path<'_>) -> Result<Option<Part>, Refusal> {
        let mut members = block.members;
        let text = path.member("thinking").required_text(members.take("thinking"))?;
        let signature = match members.take("signature") {
            Some(raw) => path.member("signature").text(raw)?,
            None => String::new(),
        };
        self.cache_hint(members.take("cache_control"));
        self.unknown(members, path);
        let proof = match proof::read(&signature, false) {
            proof::Read::Thought(proof) => Some(proof),
            proof::Read::Call(..) | proof::Read::Unproved => None,
        };
        let tells = !text.is_empty() || proof.is_some();
        Ok(tells.then_some(Part::Thinking { text, proof }))
    }

    /// A thought that only its maker can read, or the proof of a call that travels as one.
    fn redacted(
        &mut self,
        block: Block<'_>,
        path: &Path<'_>,
        proofs: &mut Vec<(String, Proof)>,
    ) -> Result<Option<Part>, Refusal> {
        let mut members = block.members;
        let data = path.member("data").required_text(members.take("data"))?;
        self.cache_hint(members.take("cache_control"));
        self.unknown(members, path);
        Ok(match proof::read(&data, true) {
            proof::Read::Thought(proof) => Some(Part::Thinking {
                text: String::new(),
                proof: Some(proof),
            }),
            proof::Read::Call(id, proof) => {
                proofs.push((id.to_owned(), proof));
                None
            }
            proof::Read::Unproved => None,
        })
    }

    fn call(&mut self, block: Block<'_>, calls: &mut Calls, path: &Path<'_>) -> Result<Call, Refusal> {
        let mut members = block.members;
        let id_path = path.member("id");
        let id = id_path.required_text(members.take("id"))?;
        let name_path = path.member("name");
        let name = name_path.required_text(members.take("name"))?;
        if name.is_empty() {
            return Err(name_path.invalid("must not be empty"));
        }
        let input = members.take("input");
        let arguments = input.map_or_else(|| Some("{}".to_owned()), arguments);
        if let (None, Some(raw)) = (&arguments, input) {
            self.hint(path.member("input").to_string(), raw);
        }
        self.caller(&mut members, path);
        self.cache_hint(members.take("cache_control"));
        self.unknown(members, path);
        Ok(Call {
            id: calls.begin(id, &id_path)?,
            name,
            namespace: None,
            arguments: arguments.unwrap_or_else(|| "{}".to_owned()),
            custom: false,
            proof: None,
        })
    }

    /// Who made a call: the model itself is meant anyway.
    fn caller(&mut self, members: &mut Object<'_>, path: &Path<'_>) {
        let Some(raw) = members.take("caller") else { return };
        let direct = Object::read(raw.get())
            .and_then(|mut members| members.take("type"))
            .is_some_and(|kind| kind.get() == r#""direct""#);
        if !direct {
            self.demand(path.member("caller").to_string(), raw);
        }
    }
}

/// The arguments that an input is: an object as it was written, or the object that a string begins with, which
/// broken clients send. `None` for what holds no object.
fn arguments(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    if text.starts_with('{') {
        return Some(text.to_owned());
    }
    let text: String = serde_json::from_str(text).ok()?;
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>();
    let first = values.next()?.ok()?;
    first.get().starts_with('{').then(|| first.get().to_owned())
}

/// Bytes that are in the request.
fn inline(source: &mut Object<'_>, types: &[&str], path: &Path<'_>) -> Result<Media, Refusal> {
    let type_path = path.member("media_type");
    let media_type = type_path.required_text(source.take("media_type"))?;
    if !types.contains(&media_type.as_str()) {
        return Err(type_path.invalid(format!("must be one of {}", types.join(", "))));
    }
    let data = path.member("data").required_text(source.take("data"))?;
    Ok(Media::Inline { media_type, data })
}

/// Bytes that are not.
fn elsewhere(kind: &str, source: &mut Object<'_>, path: &Path<'_>) -> Result<Media, Refusal> {
    match kind {
        "url" => Ok(Media::Url(path.member("url").required_text(source.take("url"))?)),
        "file" => Ok(Media::Id(
            path.member("file_id").required_text(source.take("file_id"))?,
        )),
        _ => Err(path
            .member("type")
            .invalid("is no kind of source that this block has")),
    }
}
