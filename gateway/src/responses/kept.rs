//! What is kept of a response, and what a later request makes of it, pure. A response is kept with everything that was
//! said before it, so that going on from it needs nothing else.

use std::borrow::Cow;
use std::ops::Range;

use bus::layout::RESPONSE_AGE_MAX;
use bytes::Bytes;
use schemas::failure::{Failure, FailureCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::object::{self, Object};

/// Items of a page when the caller does not say.
const LIMIT_DEFAULT: usize = 20;
/// Most items of a page.
const LIMIT_MAX: usize = 100;
/// What ids of responses begin with.
const RESPONSE: &str = "resp_";
/// What ids begin with of items that are listed and have none of their own.
const LISTED: &str = "item_";

/// A response as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// Its id.
    pub(super) id: String,
    /// When it was kept, in seconds since the epoch.
    pub(super) at_seconds: i64,
    /// Everything that was said: the history's items, those of its own request, then its output.
    items: Vec<Box<RawValue>>,
    /// Where those of its own request stand.
    own: Range<usize>,
    /// The response as its caller got it.
    pub(super) response: Box<RawValue>,
}

impl Kept {
    /// How many items were said up to its end.
    pub(super) fn items(&self) -> usize {
        self.items.len()
    }

    /// The item of an id, of all that was said. One that was sent without an id is found by the one that it is listed
    /// with.
    pub(super) fn item(&self, id: &str) -> Option<&RawValue> {
        let mut items = self.items.iter().map(AsRef::<RawValue>::as_ref);
        let named = items.rfind(|item| {
            let told = Object::read(item.get().as_bytes());
            told.is_some_and(|told| told.text("id").as_deref() == Some(id))
        });
        named.or_else(|| {
            let number = listed(id).filter(|(response, _)| *response == self.id)?.1;
            self.items.get(self.own.clone())?.get(number).map(AsRef::as_ref)
        })
    }

    /// The ids of the items that it said itself.
    pub(super) fn said_ids(&self) -> Vec<String> {
        let said = self.items.get(self.own.end..).unwrap_or_default();
        let objects = said.iter().filter_map(|item| Object::read(item.get().as_bytes()));
        objects
            .filter_map(|item| item.text("id").map(Cow::into_owned))
            .collect()
    }

    /// Whether it is not too old to be there.
    pub(super) fn is_there_at(&self, now_seconds: i64) -> bool {
        let age_max = i64::try_from(RESPONSE_AGE_MAX.as_secs()).unwrap_or(i64::MAX);
        now_seconds.saturating_sub(self.at_seconds) <= age_max
    }
}

/// What a request says of what is to be kept, and what was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asks {
    /// It goes on from this response.
    pub(super) previous: Option<String>,
    /// Its own response is to be kept.
    pub(super) store: bool,
}

/// Reads it.
pub(super) fn asks(body: &[u8]) -> Result<Asks, Failure> {
    let object = Object::read(body).ok_or_else(no_object)?;
    let is = |name: &str, word: &str| object.get(name).is_some_and(|value| value.get() == word);
    let previous = object
        .get("previous_response_id")
        .filter(|value| value.get() != "null");
    let id = |value: &RawValue| match object::text(value) {
        Some(id) => Ok(id.into_owned()),
        None => Err(invalid("previous_response_id", "must be the id of a response")),
    };
    if is("background", "true") {
        return Err(unsupported(
            "background",
            "responses in the background are not supported",
        ));
    }
    if object.count("previous_response_id") > 1 {
        return Err(invalid("previous_response_id", "must be there once"));
    }
    if object.count("input") > 1 {
        return Err(invalid("input", "must be there once"));
    }
    if object.get("prompt").is_some_and(|value| value.get() != "null") {
        return Err(unsupported(
            "prompt",
            "what an upstream keeps by itself cannot be used",
        ));
    }
    Ok(Asks {
        previous: previous.map(id).transpose()?,
        store: !is("store", "false"),
    })
}

/// The request with what was said before it in front of its own input. Instructions are each request's own.
pub(super) fn chained(body: &[u8], kept: &Kept) -> Result<Bytes, Failure> {
    let object = Object::read(body).ok_or_else(no_object)?;
    let own = own_items(&object)?;
    let history = kept.items.iter().map(|item| item.get());
    let items: Vec<&str> = history.chain(own.iter().map(|item| item.get())).collect();
    let input = format!("[{}]", items.join(","));
    let changed = object.with(&[("input", &input), ("previous_response_id", "")]);
    Ok(changed.into())
}

/// What a request was given, as items.
pub(super) fn own_items(object: &Object<'_>) -> Result<Vec<Box<RawValue>>, Failure> {
    let must = || invalid("input", "must be text or a list of items");
    match object.get("input").map(RawValue::get) {
        None | Some("null") => Ok(Vec::new()),
        Some(text) if text.starts_with('"') => {
            let item = format!(
                r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":{text}}}]}}"#
            );
            let item = RawValue::from_string(item).map_err(|_| must())?;
            Ok(vec![item])
        }
        Some(list) => serde_json::from_str(list).map_err(|_| must()),
    }
}

/// What is to be kept of a response. `body` is the request as it was run, with the history in it; `None` for what is
/// no response.
pub(super) fn keep(body: &[u8], previous: Option<&Kept>, response: &[u8], now_seconds: i64) -> Option<Kept> {
    let told = Object::read(response)?;
    let output: Vec<Box<RawValue>> = serde_json::from_str(told.get("output")?.get()).ok()?;
    let mut items = own_items(&Object::read(body)?).ok()?;
    let own = previous.map_or(0, |previous| previous.items.len())..items.len();
    items.extend(output);
    Some(Kept {
        id: told.text("id")?.into_owned(),
        at_seconds: now_seconds,
        items,
        own,
        response: RawValue::from_string(std::str::from_utf8(response).ok()?.to_owned()).ok()?,
    })
}

#[derive(Serialize)]
struct Page<'a> {
    object: &'static str,
    data: Vec<Box<RawValue>>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

/// What the request of a response was given, as a list in pages: newest first, unless `order=asc`.
pub(super) fn input_items(kept: &Kept, query: &str) -> Result<Vec<u8>, Failure> {
    let (mut limit, mut after, mut ascending) = (LIMIT_DEFAULT, None, false);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match (name, value) {
            ("limit", _) => {
                let told = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                limit = told.ok_or_else(|| invalid("limit", "must be an integer from 1 to 100"))?;
            }
            ("after", _) => after = Some(value),
            ("order", "asc" | "desc") => ascending = value == "asc",
            ("order", _) => return Err(invalid("order", "must be asc or desc")),
            _ => {}
        }
    }
    let own = kept.items.get(kept.own.clone()).unwrap_or_default();
    let mut items: Vec<_> = own
        .iter()
        .enumerate()
        .filter_map(|(number, item)| identified(&kept.id, number, item))
        .collect();
    if !ascending {
        items.reverse();
    }
    if let Some(after) = after {
        let place = items.iter().position(|(id, _)| id == after);
        items.drain(..place.map_or(items.len(), |at| at + 1));
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let (ids, data): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    let page = Page {
        object: "list",
        data,
        first_id: ids.first().map(String::as_str),
        last_id: ids.last().map(String::as_str),
        has_more,
    };
    // Text and JSON always serialize.
    Ok(serde_json::to_vec(&page).unwrap_or_default())
}

/// The response, and the place in what its request was given, of an item that is listed with an id of ours.
pub(super) fn listed(id: &str) -> Option<(String, usize)> {
    let (response, number) = id.strip_prefix(LISTED)?.rsplit_once('_')?;
    Some((format!("{RESPONSE}{response}"), number.parse().ok()?))
}

/// An item with an id and a type: callers may leave both out.
fn identified(response: &str, number: usize, item: &RawValue) -> Option<(String, Box<RawValue>)> {
    let object = Object::read(item.get().as_bytes())?;
    let id = match object.text("id") {
        Some(id) => id.into_owned(),
        None => format!("{LISTED}{}_{number}", response.trim_start_matches(RESPONSE)),
    };
    let kind = object.get("type").map_or("\"message\"", RawValue::get);
    let item = object.with(&[("id", &object::quoted(&id)), ("type", kind)]);
    let item = RawValue::from_string(String::from_utf8(item).ok()?).ok()?;
    Some((id, item))
}

fn unsupported(param: &'static str, text: &'static str) -> Failure {
    Failure::new(FailureCode::UnsupportedParameter, text).param(param)
}

fn no_object() -> Failure {
    Failure::new(
        FailureCode::InvalidRequest,
        "the request body must be a JSON object",
    )
}

fn invalid(param: &'static str, problem: &str) -> Failure {
    Failure::new(
        FailureCode::InvalidRequest,
        format!("the parameter '{param}' {problem}"),
    )
    .param(param)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TOLD: &str = r#"{"id":"resp_1","object":"response","output":[{"type":"message","id":"msg_1","role":"assistant","content":[]}]}"#;

    fn kept(body: &str, previous: Option<&Kept>) -> Kept {
        keep(body.as_bytes(), previous, TOLD.as_bytes(), 7).expect("a response")
    }

    fn input(body: &[u8]) -> Value {
        serde_json::from_slice::<Value>(body).expect("JSON")["input"].clone()
    }

    #[test]
    fn a_request_goes_on_with_all_that_was_said_and_its_own_input_last() {
        let first = kept(r#"{"model":"m","instructions":"x","input":"one"}"#, None);

        let body =
            br#"{"model":"m","previous_response_id":"resp_1","input":[{"role":"user","content":"two"}]}"#;
        let second = chained(body, &first).expect("a body");

        let items = input(&second);
        assert_eq!(items[0]["content"][0]["text"], "one");
        assert_eq!(items[1]["id"], "msg_1");
        assert_eq!(items[2]["content"], "two");
        let whole: Value = serde_json::from_slice(&second).expect("JSON");
        assert_eq!(whole.get("previous_response_id"), None);
        assert_eq!(whole.get("instructions"), None);
        let third = keep(&second, Some(&first), TOLD.as_bytes(), 8).expect("a response");
        assert_eq!((third.items.len(), third.own), (4, 2..3));
    }

    #[test]
    fn what_is_kept_survives_its_writing() {
        let first = kept(r#"{"model":"m","input":"\u0022"}"#, None);
        let written = serde_json::to_vec(&first).expect("JSON");

        let read: Kept = serde_json::from_slice(&written).expect("what was kept");

        assert_eq!(read.response.get(), TOLD);
        assert_eq!((read.id.as_str(), read.own), ("resp_1", 0..1));
    }

    #[test]
    fn items_are_found_by_their_id_and_its_own_are_named() {
        let body = r#"{"input":[{"type":"message","id":"msg_0","role":"user","content":"a"},{"role":"user","content":"b"}]}"#;
        let kept = kept(body, None);

        assert_eq!(kept.said_ids(), ["msg_1"]);
        let item = kept.item("msg_1").map(RawValue::get);
        assert!(item.is_some_and(|item| item.contains("assistant")), "{item:?}");
        assert!(kept.item("msg_0").is_some());
        assert!(kept.item("msg_2").is_none());
        let item = kept.item("item_1_1").map(RawValue::get);
        assert_eq!(item, Some(r#"{"role":"user","content":"b"}"#), "as it is listed");
        for id in ["item_2_1", "item_1_2", "item_1_", "item_1"] {
            assert!(kept.item(id).is_none(), "{id}");
        }
    }

    #[test]
    fn a_response_is_there_for_thirty_days() {
        let kept = kept(r#"{"input":"x"}"#, None);
        let thirty_days = 30 * 24 * 3_600;

        assert!(kept.is_there_at(7 + thirty_days));
        assert!(!kept.is_there_at(8 + thirty_days));
    }

    #[test]
    fn responses_are_kept_unless_the_caller_says_no() {
        let ask = |body: &str| asks(body.as_bytes());
        let store = |body| ask(body).map(|asks| asks.store);

        assert_eq!(store("{}"), Ok(true));
        assert_eq!(store(r#"{"store":null}"#), Ok(true));
        assert_eq!(store(r#"{"store":false}"#), Ok(false));
        let previous = ask(r#"{"previous_response_id":"resp_1"}"#).map(|asks| asks.previous);
        assert_eq!(previous, Ok(Some("resp_1".to_owned())));
        let code = |body| ask(body).map_err(|failure| (failure.code, failure.param)).err();
        let refused = |code, param: &'static str| Some((code, Some(param.into())));
        assert_eq!(
            code(r#"{"background":true}"#),
            refused(FailureCode::UnsupportedParameter, "background")
        );
        assert_eq!(
            code(r#"{"prompt":null,"prompt":{"id":"pmpt_1"}}"#),
            refused(FailureCode::UnsupportedParameter, "prompt")
        );
        assert_eq!(
            code(r#"{"previous_response_id":null,"previous_response_id":"resp_1"}"#),
            refused(FailureCode::InvalidRequest, "previous_response_id")
        );
        assert_eq!(
            code(r#"{"previous_response_id":7}"#),
            refused(FailureCode::InvalidRequest, "previous_response_id")
        );
        assert_eq!(
            code(r#"{"input":[{"id":"msg_1"}],"input":"x"}"#),
            refused(FailureCode::InvalidRequest, "input")
        );
    }

    #[test]
    fn input_items_come_in_pages_with_ids_of_their_own() {
        let body = r#"{"input":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"type":"function_call","id":"fc_1"}]}"#;
        let kept = kept(body, None);
        let page = |query: &str| -> Value {
            serde_json::from_slice(&input_items(&kept, query).expect("a page")).expect("JSON")
        };

        let newest = page("limit=1");
        assert_eq!(
            (&newest["first_id"], &newest["has_more"]),
            (&json!("fc_1"), &json!(true))
        );
        let oldest = page("order=asc&after=item_1_0&limit=5");
        assert_eq!(oldest["data"][0]["type"], "message");
        assert_eq!(
            (&oldest["first_id"], &oldest["last_id"]),
            (&json!("item_1_1"), &json!("fc_1"))
        );
        assert_eq!(page("after=nothing")["data"], json!([]));
        assert!(input_items(&kept, "limit=0").is_err());
        assert!(input_items(&kept, "order=up").is_err());
    }
}
