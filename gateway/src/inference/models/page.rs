//! The listing as clients of Anthropic's API read it: in pages, before or after a model that they name.

use schemas::auto;
use schemas::catalog::Model;
use schemas::failure::{Failure, FailureCode};
use schemas::time::Timestamp;
use serde::Serialize;

/// Models of a page when the client does not say.
const LIMIT_DEFAULT: usize = 20;
/// Most models of a page.
const LIMIT_MAX: usize = 1_000;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    limit: usize,
    after_id: Option<String>,
    before_id: Option<String>,
}

/// A page.
#[derive(Debug, Serialize)]
pub(super) struct Page<'a> {
    data: Vec<Item<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

/// A model of a page.
#[derive(Debug, Serialize)]
pub(super) struct Item<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: String,
}

/// Reads the query of a URL; parameters of other names are ignored.
pub(super) fn read(query: &str) -> Result<Asked, Failure> {
    let mut asked = Asked {
        limit: LIMIT_DEFAULT,
        after_id: None,
        before_id: None,
    };
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                asked.limit = limit.ok_or_else(|| {
                    let text = "the parameter 'limit' must be an integer from 1 to 1000";
                    Failure::new(FailureCode::InvalidRequest, text).param("limit")
                })?;
            }
            "after_id" => asked.after_id = Some(unescaped(value)),
            "before_id" => asked.before_id = Some(unescaped(value)),
            _ => {}
        }
    }
    Ok(asked)
}

/// The page of `models` that is asked for. A name that is not among them has nothing before or after it.
pub(super) fn of<'a>(mut models: Vec<Item<'a>>, asked: &Asked) -> Page<'a> {
    let place = |id: &String| models.iter().position(|model| model.id == id);
    let (seen, backwards) = match (&asked.after_id, &asked.before_id) {
        (Some(id), _) => (place(id).map_or(0..0, |at| at + 1..models.len()), false),
        (None, Some(id)) => (place(id).map_or(0..0, |at| 0..at), true),
        (None, None) => (0..models.len(), false),
    };
    let left_out = seen.len().saturating_sub(asked.limit);
    let shown = if backwards {
        seen.start + left_out..seen.end
    } else {
        seen.start..seen.end - left_out
    };
    let data: Vec<Item<'a>> = models.drain(shown).collect();
    Page {
        has_more: left_out > 0,
        first_id: data.first().map(|item| item.id),
        last_id: data.last().map(|item| item.id),
        data,
    }
}

/// One model.
pub(super) fn item(model: &Model) -> Item<'_> {
    Item {
        kind: "model",
        id: model.id.as_str(),
        display_name: &model.name,
        created_at: at(model.created_at),
    }
}

/// The choice of a model by the gateway.
pub(super) fn auto() -> Item<'static> {
    Item {
        kind: "model",
        id: auto::NAME,
        display_name: "Auto",
        created_at: at(Timestamp::default()),
    }
}

fn at(time: Timestamp) -> String {
    let time = time.to_utc();
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// A value of a query without its escapes.
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = tail
            .get(..2)
            .filter(|_| byte == b'%')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = tail
            .get(if escaped.is_some() { 2 } else { 0 }..)
            .unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::gate::tests::model;

    fn page(query: &str) -> (Vec<String>, bool) {
        let names = ["a", "b/c", "d", "e"];
        let models = names.map(|name| Arc::new(model(|model| model.id = name.into())));
        let items = models.iter().map(|model| item(model)).collect();
        let page = of(items, &read(query).expect("a query"));
        let ids = page.data.iter().map(|item| item.id.to_owned()).collect();
        (ids, page.has_more)
    }

    #[test]
    fn pages_go_on_after_or_before_a_model() {
        let ids = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();

        assert_eq!(page(""), (ids(&["a", "b/c", "d", "e"]), false));
        assert_eq!(page("limit=2"), (ids(&["a", "b/c"]), true));
        assert_eq!(page("limit=2&after_id=b%2Fc"), (ids(&["d", "e"]), false));
        assert_eq!(page("limit=1&before_id=d"), (ids(&["b/c"]), true));
        assert_eq!(page("after_id=nobody"), (ids(&[]), false));
    }

    #[test]
    fn a_limit_that_is_none_is_refused() {
        for limit in ["limit=0", "limit=1001", "limit=x"] {
            assert!(read(limit).is_err(), "{limit}");
        }
    }
}
