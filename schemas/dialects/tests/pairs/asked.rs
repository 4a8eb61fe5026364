//! Requests of every caller's dialect to every upstream's: written and read by hands that know no codec, and nothing
//! that was asked for is lost. What cannot be carried is refused by its name or reported, never dropped in silence.

use dialects::dialect::Dialect;
use dialects::profile;
use dialects::superset::request::{Conversation, Encoded, Format, Role, Target, Unmappable};
use dialects::translate::{decode_request, encode_request};
use serde_json::{Value, json};

use crate::callers;
use crate::dice::Dice;
use crate::readers;
use crate::requests::{Essence, conversation};
use crate::speakers::{CALLERS, UPSTREAMS};

fn translated(caller: Dialect, upstream: Dialect, body: &Value) -> Result<Encoded, Unmappable> {
    let conversation = decode_request(caller, body.to_string().as_bytes())
        .unwrap_or_else(|refused| panic!("{caller:?}: {refused}: {body}"));
    let target = Target {
        model: "upstream-model",
        profile: &profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 4096,
        max_tokens_limit: None,
        drop_params: false,
    };
    encode_request(upstream, &conversation, &target)
}

/// One throw: a conversation and a pair.
pub(crate) fn one(dice: &mut Dice) {
    let (caller, upstream) = (*dice.pick(CALLERS), *dice.pick(UPSTREAMS));
    let mut conversation = conversation(dice);
    let has_stops = ![caller, upstream].contains(&Dialect::Responses);
    if has_stops && dice.once_in(3) {
        conversation.stop = vec!["END".to_owned(), "\n##".to_owned()];
    }
    if caller == Dialect::Completions {
        conversation = prompt_of(conversation);
    }
    let body = callers::write(caller, &conversation, dice);
    let encoded = translated(caller, upstream, &body)
        .unwrap_or_else(|refused| panic!("{caller:?} -> {upstream:?}: {refused}: {body}"));
    let written = String::from_utf8_lossy(&encoded.body);
    let read = readers::read(upstream, &encoded.body);
    assert_eq!(
        read,
        Essence::of(&conversation),
        "{caller:?} -> {upstream:?}\n{body}\n{written}"
    );
    assert!(
        encoded.dropped.is_empty(),
        "{caller:?} -> {upstream:?} drops {:?}\n{body}",
        encoded.dropped
    );
}

/// What a prompt can say: one text of a user's.
fn prompt_of(mut conversation: Conversation) -> Conversation {
    conversation.turns.retain(|turn| turn.role == Role::User);
    conversation.turns.truncate(1);
    conversation
        .turns
        .iter_mut()
        .for_each(|turn| turn.parts.truncate(1));
    conversation.tools.clear();
    conversation.tool_choice = None;
    conversation.format = Format::Text;
    conversation
}

/// A small request.
fn small(caller: Dialect) -> Value {
    match caller {
        Dialect::Responses => json!({"model": "m", "input": "hi"}),
        Dialect::Messages => {
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
        }
        Dialect::Completions => json!({"model": "m", "prompt": "hi"}),
        _ => json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    }
}

/// Members without influence on the answer, each with a word in it that stands nowhere else, and the names under which
/// it may be reported.
const HINTS: [(Dialect, &str, &str, &[&str]); 16] = [
    (Dialect::Chat, "user", r#""mark""#, &["user"]),
    (Dialect::Chat, "metadata", r#"{"a":"mark"}"#, &["metadata"]),
    (
        Dialect::Chat,
        "safety_identifier",
        r#""mark""#,
        &["safety_identifier"],
    ),
    (
        Dialect::Chat,
        "prompt_cache_key",
        r#""mark""#,
        &["prompt_cache_key"],
    ),
    (Dialect::Chat, "x_vendor", r#"{"a":"mark"}"#, &["x_vendor"]),
    (Dialect::Completions, "user", r#""mark""#, &["user"]),
    (Dialect::Completions, "x_vendor", r#"{"a":"mark"}"#, &["x_vendor"]),
    (Dialect::Responses, "user", r#""mark""#, &["user"]),
    (Dialect::Responses, "metadata", r#"{"a":"mark"}"#, &["metadata"]),
    (
        Dialect::Responses,
        "safety_identifier",
        r#""mark""#,
        &["safety_identifier"],
    ),
    (
        Dialect::Responses,
        "prompt_cache_key",
        r#""mark""#,
        &["prompt_cache_key"],
    ),
    (
        Dialect::Responses,
        "client_metadata",
        r#"{"a":"mark"}"#,
        &["client_metadata"],
    ),
    (Dialect::Responses, "x_vendor", r#"{"a":"mark"}"#, &["x_vendor"]),
    (
        Dialect::Messages,
        "metadata",
        r#"{"user_id":"mark"}"#,
        &["user", "metadata.user_id"],
    ),
    (
        Dialect::Messages,
        "diagnostics",
        r#"{"a":"mark"}"#,
        &["diagnostics"],
    ),
    (Dialect::Messages, "x_vendor", r#"{"a":"mark"}"#, &["x_vendor"]),
];

#[test]
fn a_hint_is_carried_or_reported_under_its_name_whatever_the_upstream_speaks() {
    for (caller, name, value, reported) in HINTS {
        for &upstream in UPSTREAMS {
            let mut body = small(caller);
            body[name] = serde_json::from_str(value).expect("JSON");
            let encoded = translated(caller, upstream, &body).expect("a hint is no reason to refuse");
            let carried = String::from_utf8_lossy(&encoded.body).contains("mark");
            let told = encoded
                .dropped
                .iter()
                .any(|dropped| reported.contains(&&**dropped));
            assert!(
                carried != told,
                "{caller:?} -> {upstream:?}: '{name}' carried {carried}, reported {told}: {:?}",
                encoded.dropped
            );
        }
    }
}

/// Members that change the answer and that no dialect but perhaps the caller's own has.
const DEMANDS: [(Dialect, &str, &str); 22] = [
    (Dialect::Chat, "n", "2"),
    (Dialect::Chat, "logprobs", "true"),
    (Dialect::Chat, "logit_bias", r#"{"1":5}"#),
    (Dialect::Chat, "prediction", r#"{"type":"content","content":"x"}"#),
    (Dialect::Chat, "modalities", r#"["text","audio"]"#),
    (Dialect::Chat, "web_search_options", "{}"),
    (Dialect::Chat, "service_tier", r#""flex""#),
    (Dialect::Completions, "echo", "true"),
    (Dialect::Completions, "n", "2"),
    (Dialect::Completions, "best_of", "2"),
    (Dialect::Completions, "logprobs", "3"),
    (Dialect::Completions, "suffix", r#""x""#),
    (Dialect::Completions, "logit_bias", r#"{"1":5}"#),
    (Dialect::Responses, "include", r#"["file_search_call.results"]"#),
    (Dialect::Responses, "top_logprobs", "3"),
    (Dialect::Responses, "service_tier", r#""flex""#),
    (Dialect::Messages, "container", r#""c""#),
    (Dialect::Messages, "mcp_servers", r#"[{"name":"x"}]"#),
    (Dialect::Messages, "inference_geo", r#""eu""#),
    (Dialect::Messages, "service_tier", r#""priority""#),
    (Dialect::Messages, "speed", r#""fast""#),
    (
        Dialect::Messages,
        "context_management",
        r#"{"edits":[{"type":"clear_tool_uses_20250919"}]}"#,
    ),
];

#[test]
fn a_demand_is_carried_or_refused_by_its_name_whatever_the_upstream_speaks() {
    for (caller, name, value) in DEMANDS {
        for &upstream in UPSTREAMS {
            let mut body = small(caller);
            body[name] = serde_json::from_str(value).expect("JSON");
            match translated(caller, upstream, &body) {
                Err(refused) => assert_eq!(refused.param, name, "{caller:?} -> {upstream:?}"),
                Ok(encoded) => {
                    let written: Value = serde_json::from_slice(&encoded.body).expect("JSON");
                    assert_eq!(
                        written[name], body[name],
                        "{caller:?} -> {upstream:?}: '{name}' is lost"
                    );
                }
            }
        }
    }
}

#[test]
fn what_was_asked_for_comes_whole_from_every_caller_to_every_upstream() {
    crate::streams::throw_all(2000, 10, one);
}
