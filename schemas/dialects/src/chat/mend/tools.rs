//! Schemas of the tools of a request that passes.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Needs, Told, edit, span};
use crate::chat::schema::{is_empty, types_in_branches};
use crate::splice::Edit;

/// The schema of a tool that takes nothing.
const EMPTY: &str = r#"{"type":"object","properties":{}}"#;

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    function: Told<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    parameters: Told<'a>,
}

/// Repairs what the server refuses of the list of tools; what cannot be read is left to it.
pub(super) fn edits(body: &Bytes, list: &RawValue, needs: Needs, edits: &mut Vec<Edit>) {
    let tools: Vec<Tool<'_>> = serde_json::from_str(list.get()).unwrap_or_default();
    for function in tools.iter().filter_map(|tool| tool.function) {
        let Ok(told) = serde_json::from_str::<Function<'_>>(function.get()) else {
            continue;
        };
        let parameters = told.parameters.filter(|parameters| parameters.get() != "null");
        match parameters {
            Some(parameters) if needs.parameters && is_empty(parameters) => {
                edits.push(edit(body, parameters, EMPTY));
            }
            Some(parameters) if needs.types_in_branches => {
                let moved = types_in_branches(parameters);
                edits.extend(moved.map(|moved| edit(body, parameters, moved.get())));
            }
            None if needs.parameters => edits.push(missing(body, function)),
            Some(_) | None => {}
        }
    }
}

/// Gives a function the schema that it lacks, in the place of a null where one stands.
fn missing(body: &Bytes, function: &RawValue) -> Edit {
    #[derive(Deserialize)]
    struct Null<'a> {
        #[serde(borrow, default, deserialize_with = "some")]
        parameters: Option<&'a RawValue>,
    }
    fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
        Deserialize::deserialize(deserializer).map(Some)
    }
    let null = serde_json::from_str::<Null<'_>>(function.get()).ok();
    if let Some(null) = null.and_then(|null| null.parameters) {
        return edit(body, null, EMPTY);
    }
    let at = span(body, function).start + 1;
    let is_bare = function
        .get()
        .get(1..)
        .is_some_and(|rest| rest.trim_start() == "}");
    let comma = if is_bare { "" } else { "," };
    Edit {
        range: at..at,
        with: Bytes::from(format!("\"parameters\":{EMPTY}{comma}")),
    }
}
