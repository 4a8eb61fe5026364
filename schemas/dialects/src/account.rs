//! What a request names that an upstream keeps in its account: files, stores, containers, items of earlier answers.
//! One credential serves the callers of all tenants, so that whoever learned such an id from elsewhere could read
//! what is another's. Looked for wherever an upstream would look for it, and nowhere that is the caller's own.

use schemas::event::request::Surface;
use serde_json::value::RawValue;

use crate::object::{Object, Path, shown};

/// Members whose value is the id of something kept, or a list of ids.
const IDS: [&str; 7] = [
    "file_id",
    "file_ids",
    "vector_store_ids",
    "container_id",
    "skill_id",
    "cached_content",
    "cachedContent",
];
/// Members that name something kept where their value is an id, or an object that has one.
const NAMED: [&str; 2] = ["container", "audio"];
/// Members of a request that name what was said before.
const BEFORE: [&str; 2] = ["previous_response_id", "conversation"];
/// The bytes with which any of these names begins.
static BEGINNINGS: [bool; 256] = beginnings(beginnings(beginnings([false; 256], &IDS), &NAMED), &BEFORE);

const fn beginnings(mut known: [bool; 256], mut names: &[&str]) -> [bool; 256] {
    while let [name, rest @ ..] = names {
        known[name.as_bytes()[0] as usize] = true;
        names = rest;
    }
    known
}

/// Members in which such names are a caller's own words: schemas, arguments of calls, what an answer told of itself.
const OWN: [&str; 12] = [
    "action",
    "annotations",
    "arguments",
    "citations",
    "client_metadata",
    "filters",
    "input_schema",
    "json_schema",
    "metadata",
    "parameters",
    "schema",
    "text",
];
/// The type of an item that stands for another one.
const REFERENCE: &str = "item_reference";
/// What begins the escape of a character that a name may have.
const ESCAPE: &[u8] = br"\u00";

/// Where a request names such a thing, as a path with dots; `None` where it does not. On Responses,
/// `previous_response_id` and items with a [`reference_id`] are not looked at: they name what is kept here.
pub fn named(surface: Surface, body: &[u8]) -> Option<String> {
    let responses = surface == Surface::Responses;
    if surface == Surface::Embeddings || !responses && !may_name(body) {
        return None;
    }
    let request = Object::read(std::str::from_utf8(body).ok()?)?;
    request.members().find_map(|(name, value)| {
        let path = Path::Root.member(name);
        if BEFORE.contains(&name) && !(responses && name == "previous_response_id") {
            return is_told(value).then(|| path.to_string());
        }
        match (responses, name) {
            (true, "input") => items(value, &path),
            // What is asked for, not what was said.
            (_, "audio" | "input" | "prompt") => None,
            _ => member(name, value, &Path::Root),
        }
    })
}

/// Whether there may be one: a guess that is never wrong where it says no. One search, whatever the number of names.
fn may_name(body: &[u8]) -> bool {
    let begins = |rest: &[u8]| {
        // Most words are none of them by their first letter.
        if !rest.first().is_some_and(|first| BEGINNINGS[usize::from(*first)]) {
            return false;
        }
        let mut names = IDS.iter().chain(&NAMED).chain(&BEFORE);
        names.any(|name| {
            let rest = rest.strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(b"\""))
        })
    };
    memchr::memchr2_iter(b'"', b'\\', body).any(|at| {
        let rest = body.get(at..).unwrap_or_default();
        rest.starts_with(ESCAPE) || rest.strip_prefix(b"\"").is_some_and(begins)
    })
}

/// The items of a request's input, which may stand for others.
fn items(input: &RawValue, path: &Path<'_>) -> Option<String> {
    let list: Vec<&RawValue> = serde_json::from_str(input.get()).ok()?;
    let mut items = list.into_iter().enumerate();
    items.find_map(|(number, raw)| {
        if reference_id(raw).is_some() {
            return None;
        }
        let path = path.element(number);
        let item = Object::read(raw.get())?;
        reference(&item, &path).or_else(|| walk(raw, &path))
    })
}

/// The id of the item that an item of Responses stands for, where it says that and nothing else:
/// `{"type":"item_reference","id":"msg_1"}`, of which the type may be left out. What says more, or says it twice, is
/// no such item: [`named`] tells where it names something.
pub fn reference_id(item: &RawValue) -> Option<String> {
    let item = Object::read(item.get())?;
    let (mut ids, mut types) = (Vec::new(), Vec::new());
    for (name, value) in item.members() {
        match name {
            "id" => ids.push(value),
            "type" => types.push(value),
            _ => return None,
        }
    }
    let says_so = match types.as_slice() {
        [] => true,
        [kind] => !is_told(kind) || is_text(kind, REFERENCE),
        _ => false,
    };
    let [id] = ids.as_slice() else { return None };
    let id = serde_json::from_str::<String>(id.get()).ok();
    id.filter(|id| says_so && !id.is_empty())
}

/// The place in an item that says that it stands for another one.
fn reference(item: &Object<'_>, path: &Path<'_>) -> Option<String> {
    let has = |name: &str| {
        let mut members = item.members();
        members.any(|(own, value)| own == name && is_told(value))
    };
    let is_of = |kind: &str| {
        let mut members = item.members();
        members.any(|(name, value)| name == "type" && is_text(value, kind))
    };
    if is_of(REFERENCE) {
        return Some(path.member("type").to_string());
    }
    let is_message = has("role") && has("content");
    let is_bare = !has("type") && !is_message;
    let is_image = is_of("image_generation_call") && !has("result");
    let name = if has("id") { "id" } else { "type" };
    (is_bare || is_image).then(|| path.member(name).to_string())
}

fn is_text(value: &RawValue, text: &str) -> bool {
    serde_json::from_str::<std::borrow::Cow<'_, str>>(value.get()).is_ok_and(|told| told == text)
}

/// Looks into a value that is no text.
fn walk(value: &RawValue, path: &Path<'_>) -> Option<String> {
    if value.get().starts_with('[') {
        let list: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
        let mut list = list.into_iter().enumerate();
        return list.find_map(|(number, value)| walk(value, &path.element(number)));
    }
    let object = Object::read(value.get())?;
    let is_public = object
        .members()
        .any(|(name, value)| name == "type" && is_text(value, "anthropic"));
    object
        .members()
        .filter(|(name, _)| !(is_public && *name == "skill_id"))
        .find_map(|(name, value)| match name {
            // What a tool was called with.
            "input" => None,
            _ => member(name, value, path),
        })
}

/// Looks at one member of an object.
fn member(name: &str, value: &RawValue, parent: &Path<'_>) -> Option<String> {
    let known = shown(name);
    let path = parent.member(known);
    if IDS.contains(&name) {
        return is_told(value).then(|| path.to_string());
    }
    if NAMED.contains(&name) {
        if value.get().starts_with('"') {
            return is_told(value).then(|| path.to_string());
        }
        let object = Object::read(value.get())?;
        let mut members = object.members();
        if members.any(|(name, value)| name == "id" && is_told(value)) {
            return Some(path.member("id").to_string());
        }
    }
    if OWN.contains(&name) || !value.get().starts_with(['{', '[']) {
        return None;
    }
    walk(value, &path)
}

/// Whether a value says anything.
fn is_told(value: &RawValue) -> bool {
    !matches!(value.get(), "null" | "\"\"" | "[]")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMED_THERE: &[(Surface, &str, &str)] = &[
        (
            Surface::Responses,
            r#"{"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"msg_1","status":"completed"}]}"#,
            "input.1.type",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"id":"msg_1","status":"completed"}]}"#,
            "input.0.id",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"type":null,"id":"msg_1","id":"msg_2"}]}"#,
            "input.0.id",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"type":"item\u005freference"}]}"#,
            "input.0.type",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"type":"item_reference","type":null,"id":"msg_1"}]}"#,
            "input.0.type",
        ),
        (
            Surface::Responses,
            r#"{"input":"x","input":[{"id":7}]}"#,
            "input.0.id",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"type":"image_generation_call","id":"ig_1"}]}"#,
            "input.0.id",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}"#,
            "input.0.content.0.file_id",
        ),
        (
            Surface::Responses,
            r#"{"input":"x","tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]}"#,
            "tools.0.vector_store_ids",
        ),
        (
            Surface::Responses,
            r#"{"input":"x","tools":[{"type":"code_interpreter","container":"cntr_1"}]}"#,
            "tools.0.container",
        ),
        (
            Surface::Responses,
            r#"{"input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-1"]}}]}"#,
            "tools.0.container.file_ids",
        ),
        (
            Surface::Responses,
            r#"{"input":[{"type":"code_interpreter_call","container_id":"cntr_1","code":"x"}]}"#,
            "input.0.container_id",
        ),
        (
            Surface::Messages,
            r#"{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"file","file_id":"file_1"}}]}]}"#,
            "messages.0.content.0.source.file_id",
        ),
        (Surface::Messages, r#"{"container":"container_1"}"#, "container"),
        (
            Surface::Messages,
            r#"{"container":{"id":"container_1","skills":[]}}"#,
            "container.id",
        ),
        (
            Surface::Messages,
            r#"{"container":{"skills":[{"type":"custom","skill_id":"skill_1"}]}}"#,
            "container.skills.0.skill_id",
        ),
        (
            Surface::Chat,
            r#"{"messages":[{"role":"user","content":[{"type":"file","file":{"\u0066ile_id":"file-1"}}]}]}"#,
            "messages.0.content.0.file.file_id",
        ),
        (
            Surface::Chat,
            r#"{"messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}"#,
            "messages.0.audio.id",
        ),
        (
            Surface::Chat,
            r#"{"extra_body":{"google":{"cached_content":"cachedContents/1"}}}"#,
            "extra_body.google.cached_content",
        ),
        (
            Surface::Chat,
            r#"{"conversation":{"id":"conv_1"}}"#,
            "conversation",
        ),
        (
            Surface::Completions,
            r#"{"previous_response_id":"resp_1"}"#,
            "previous_response_id",
        ),
    ];

    fn found(surface: Surface, body: &str) -> Option<String> {
        named(surface, body.as_bytes())
    }

    #[test]
    fn what_an_account_keeps_is_found_wherever_an_upstream_would_look_for_it() {
        for (surface, body, path) in NAMED_THERE {
            assert_eq!(found(*surface, body).as_deref(), Some(*path), "{body}");
        }
    }

    #[test]
    fn what_a_caller_says_himself_is_none_of_it() {
        for (surface, body) in [
            (
                Surface::Responses,
                r#"{"previous_response_id":"resp_1","conversation":null,"input":[{"role":"user","content":"file_id"},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"file_id\":\"x\"}"},{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[{"file_id":"file-1"}]}]},{"type":"reasoning","id":"rs_1","summary":[]}]}"#,
            ),
            (
                Surface::Responses,
                r#"{"input":"file_id","tools":[{"type":"code_interpreter","container":{"type":"auto"}},{"type":"function","parameters":{"properties":{"file_id":{"type":"string"}}}}]}"#,
            ),
            (
                Surface::Messages,
                r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"file_id":"x","container":"y"}}]}],"tools":[{"input_schema":{"properties":{"file_id":{}}}}],"container":{"skills":[{"type":"anthropic","skill_id":"pptx"}]}}"#,
            ),
            (
                Surface::Chat,
                r#"{"messages":[{"role":"user","content":"my container, my conversation, \u00e9"}],"audio":{"voice":"alloy","format":"wav"},"metadata":{"file_id":"x"}}"#,
            ),
            (Surface::Embeddings, r#"{"input":"x","file_id":"y"}"#),
        ] {
            assert_eq!(found(surface, body), None, "{body}");
        }
    }

    #[test]
    fn an_item_that_says_only_which_one_it_stands_for_is_told_by_its_id() {
        let id = |item: &str| reference_id(&RawValue::from_string(item.to_owned()).expect("JSON"));

        for item in [
            r#"{"type":"item_reference","id":"msg_1"}"#,
            r#"{"id":"msg_1","type":"item\u005freference"}"#,
            r#"{"type":null,"id":"msg_1"}"#,
            r#"{"id":"msg_1"}"#,
        ] {
            assert_eq!(id(item).as_deref(), Some("msg_1"), "{item}");
            let body = format!(r#"{{"input":[{item}]}}"#);
            assert_eq!(found(Surface::Responses, &body), None, "{item}");
        }
        for item in [
            r#"{"type":"item_reference","id":""}"#,
            r#"{"type":"message","id":"msg_1"}"#,
            r#"{"type":"item_reference","id":"msg_1","content":[]}"#,
            r#"{"type":"item_reference","type":"message","id":"msg_1"}"#,
            r#"{"id":"msg_1","id":"msg_2"}"#,
            r#""msg_1""#,
        ] {
            assert_eq!(id(item), None, "{item}");
        }
    }

    #[test]
    fn a_name_that_is_not_plain_is_not_repeated() {
        let body = r#"{"a\nb":{"file_id":"x"}}"#;

        assert_eq!(found(Surface::Chat, body).as_deref(), Some("unknown.file_id"));
    }
}
