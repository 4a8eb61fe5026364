//! What providers say they serve, in the three shapes of such lists: OpenAI's, Anthropic's and Gemini's. Pure.

use std::collections::BTreeMap;

use schemas::catalog::ProviderKind;
use schemas::money::Price;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use schemas::catalog::pricing as price;

/// Models of one page, as many as any of the lists gives at once.
const PAGE_MODELS: &str = "1000";
/// What a model of Gemini's can do when it can be asked for answers.
const GENERATES: &str = "generateContent";

/// A model of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Listed {
    /// The provider's name for it.
    pub(super) id: String,
    /// The name people read, where there is another.
    pub(super) name: Option<String>,
    /// Tokens of prompt and answer together.
    pub(super) context_length: Option<u64>,
    /// Tokens of an answer.
    pub(super) max_output_length: Option<u64>,
    /// What it costs, where the list tells.
    pub(super) price: Option<Price>,
}

/// A page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) models: Vec<Listed>,
    /// Entries that are not understood, and left out.
    pub(super) skipped: usize,
    /// Where the next one begins; `None` for the last.
    pub(super) next: Option<String>,
}

/// The parameters that ask for a page.
pub(super) fn query(kind: ProviderKind, from: Option<&str>) -> Vec<(&'static str, String)> {
    let (size, place) = match kind {
        ProviderKind::Anthropic => ("limit", "after_id"),
        ProviderKind::Gemini => ("pageSize", "pageToken"),
        // One page is all.
        _ => return Vec::new(),
    };
    let more = from.map(|from| (place, from.to_owned()));
    std::iter::once((size, PAGE_MODELS.to_owned()))
        .chain(more)
        .collect()
}

/// Reads a page; `None` when it is none.
pub(super) fn page(kind: ProviderKind, body: &[u8]) -> Option<Page> {
    match kind {
        ProviderKind::Anthropic => anthropic(body),
        ProviderKind::Gemini => gemini(body),
        _ => openai(body),
    }
}

/// The entries that are understood, and how many are not; `None` where there are some and none is.
fn readable<T: DeserializeOwned>(entries: Vec<Value>) -> Option<(Vec<T>, usize)> {
    let all = entries.len();
    let read: Vec<T> = entries
        .into_iter()
        .filter_map(|entry| serde_json::from_value(entry).ok())
        .collect();
    let skipped = all - read.len();
    (skipped == 0 || !read.is_empty()).then_some((read, skipped))
}

fn openai(body: &[u8]) -> Option<Page> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Value>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        context_length: Option<u64>,
        #[serde(default)]
        max_model_len: Option<u64>,
        #[serde(default)]
        pricing: Option<Map<String, Value>>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let listed = |entry: Entry| Listed {
        context_length: entry.context_length.or(entry.max_model_len),
        price: entry.pricing.as_ref().and_then(price_per_token),
        id: entry.id,
        ..Listed::default()
    };
    let (entries, skipped) = readable(list.data)?;
    Some(Page {
        models: entries.into_iter().map(listed).collect(),
        skipped,
        next: None,
    })
}

fn anthropic(body: &[u8]) -> Option<Page> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Value>,
        #[serde(default)]
        has_more: bool,
        #[serde(default)]
        last_id: Option<String>,
    }
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        display_name: Option<String>,
        #[serde(default)]
        max_input_tokens: Option<u64>,
        #[serde(default)]
        max_tokens: Option<u64>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let listed = |entry: Entry| Listed {
        id: entry.id,
        name: entry.display_name,
        context_length: entry.max_input_tokens,
        max_output_length: entry.max_tokens,
        price: None,
    };
    let (entries, skipped) = readable(list.data)?;
    Some(Page {
        models: entries.into_iter().map(listed).collect(),
        skipped,
        next: list.last_id.filter(|_| list.has_more),
    })
}

fn gemini(body: &[u8]) -> Option<Page> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct List {
        models: Vec<Value>,
        #[serde(default)]
        next_page_token: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        name: String,
        #[serde(default)]
        display_name: Option<String>,
        #[serde(default)]
        input_token_limit: Option<u64>,
        #[serde(default)]
        output_token_limit: Option<u64>,
        #[serde(default)]
        supported_generation_methods: Vec<String>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let generates = |entry: &Entry| {
        let mut methods = entry.supported_generation_methods.iter();
        methods.any(|method| method == GENERATES)
    };
    let listed = |entry: Entry| Listed {
        id: entry
            .name
            .strip_prefix("models/")
            .unwrap_or(&entry.name)
            .to_owned(),
        name: entry.display_name,
        context_length: entry.input_token_limit,
        max_output_length: entry.output_token_limit,
        price: None,
    };
    let (entries, skipped) = readable(list.models)?;
    Some(Page {
        models: entries.into_iter().filter(generates).map(listed).collect(),
        skipped,
        next: list.next_page_token.filter(|token| !token.is_empty()),
    })
}

/// OpenRouter lists dollars per token; a price that cannot be kept exactly is no price.
fn price_per_token(pricing: &Map<String, Value>) -> Option<Price> {
    let per_million = |key: &str| -> Option<Option<String>> {
        match pricing.get(key).and_then(Value::as_str) {
            None => Some(None),
            Some(text) => shift_point(text, 6).map(Some),
        }
    };
    let mut block = BTreeMap::new();
    for (ours, theirs) in [
        ("prompt", "prompt"),
        ("completion", "completion"),
        ("input_cache_reads", "input_cache_read"),
        ("input_cache_writes", "input_cache_write"),
    ] {
        if let Some(text) = per_million(theirs)? {
            block.insert(ours.to_owned(), Value::String(text));
        }
    }
    for key in ["request", "image"] {
        if let Some(text) = pricing.get(key).and_then(Value::as_str) {
            block.insert(key.to_owned(), Value::String(text.to_owned()));
        }
    }
    price::read(&block).ok().flatten()
}

/// Moves the decimal point of a plain decimal number to the right.
fn shift_point(text: &str, places: usize) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let padded = format!("{fraction:0<places$}");
    let (moved, rest) = padded.split_at(places);
    let whole = format!("{whole}{moved}");
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if rest.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_per_token_become_dollars_per_million_exactly() {
        assert_eq!(shift_point("0.00000015", 6), Some("0.15".into()));
        assert_eq!(shift_point("0.0000025", 6), Some("2.5".into()));
        assert_eq!(shift_point("0", 6), Some("0".into()));
        assert_eq!(shift_point("1", 6), Some("1000000".into()));
        assert_eq!(shift_point("-1", 6), None);
    }

    #[test]
    fn a_list_of_openai_s_kind_tells_contexts_and_prices_where_it_does() {
        let body = br#"{"object":"list","data":[{"id":"a","max_model_len":4096},
            {"id":"b","context_length":8192,"pricing":{"prompt":"0.000002","completion":"0.000008"}}]}"#;

        let page = page(ProviderKind::OpenaiCompat, body).expect("a page");

        assert_eq!(page.next, None);
        assert_eq!(page.models[0].context_length, Some(4_096));
        let price = page.models[1].price.expect("a price");
        assert_eq!((price.input, price.output), (2_000_000_000, 8_000_000_000));
    }

    #[test]
    fn a_list_of_anthropic_s_goes_on_behind_its_last_id() {
        let body = br#"{"data":[{"type":"model","id":"claude-x","display_name":"Claude X","created_at":"2026-01-01T00:00:00Z",
            "max_input_tokens":200000,"max_tokens":64000}],"has_more":true,"first_id":"claude-x","last_id":"claude-x"}"#;

        let page = page(ProviderKind::Anthropic, body).expect("a page");

        let expected = Listed {
            id: "claude-x".into(),
            name: Some("Claude X".into()),
            context_length: Some(200_000),
            max_output_length: Some(64_000),
            price: None,
        };
        assert_eq!(page.models, [expected]);
        assert_eq!(page.next.as_deref(), Some("claude-x"));
        assert_eq!(
            query(ProviderKind::Anthropic, page.next.as_deref()),
            [("limit", "1000".to_owned()), ("after_id", "claude-x".to_owned())]
        );
    }

    #[test]
    fn of_gemini_s_models_those_are_served_that_generate() {
        let body = br#"{"models":[
            {"name":"models/gemini-x","displayName":"Gemini X","inputTokenLimit":1048576,"outputTokenLimit":65536,
             "supportedGenerationMethods":["generateContent","countTokens"]},
            {"name":"models/embedding-x","supportedGenerationMethods":["embedContent"]}],"nextPageToken":""}"#;

        let page = page(ProviderKind::Gemini, body).expect("a page");

        assert_eq!(page.models.len(), 1);
        assert_eq!(page.models[0].id, "gemini-x");
        assert_eq!(page.models[0].max_output_length, Some(65_536));
        assert_eq!(page.next, None);
        assert_eq!(
            query(ProviderKind::Gemini, Some("t")),
            [("pageSize", "1000".to_owned()), ("pageToken", "t".to_owned())]
        );
    }

    #[test]
    fn an_entry_that_is_not_understood_leaves_the_others() {
        let of = |kind, body: &str| {
            let page = page(kind, body.as_bytes()).expect("a page");
            let ids: Vec<String> = page.models.into_iter().map(|listed| listed.id).collect();
            (ids, page.skipped)
        };
        let both = |ids: [&str; 2]| (ids.map(str::to_owned).to_vec(), 3);

        let data = r#"{"data":[{"id":"a"},{"id":7},null,{"name":"x"},{"id":"b"}],"last_id":"b"}"#;
        assert_eq!(of(ProviderKind::OpenaiCompat, data), both(["a", "b"]));
        assert_eq!(of(ProviderKind::Anthropic, data), both(["a", "b"]));
        let generates = r#""supportedGenerationMethods":["generateContent"]"#;
        let models = format!(
            r#"{{"models":[{{"name":"models/a",{generates}}},{{"name":"c","inputTokenLimit":-1}},5,{{}},{{"name":"b",{generates}}}]}}"#
        );
        assert_eq!(of(ProviderKind::Gemini, &models), both(["a", "b"]));
    }

    #[test]
    fn what_is_no_list_is_none() {
        for kind in [
            ProviderKind::OpenaiCompat,
            ProviderKind::Anthropic,
            ProviderKind::Gemini,
        ] {
            for body in [&b"{}"[..], b"[]", b"", b"{\"data\":[{}]}"] {
                assert_eq!(page(kind, body), None);
            }
        }
    }
}
