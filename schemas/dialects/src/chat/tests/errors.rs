//! Errors of upstreams, read from their recorded bodies.

use serde_json::json;

use crate::chat::error::{
    ErrorCode, MESSAGE_CHARS_MAX, UpstreamError, is_context_overflow, parse_upstream_error,
};

const LLAMA_OVERFLOW: &[u8] =
    include_bytes!("../../../tests/transcripts/llama.cpp/err_context_overflow.json");
const VLLM_OVERFLOW: &[u8] = include_bytes!("../../../tests/transcripts/vllm/err_context_overflow.json");
const VLLM_DEAD: &[u8] = include_bytes!("../../../tests/transcripts/vllm/err_engine_dead.json");
const VLLM_NO_PATH: &[u8] = include_bytes!("../../../tests/transcripts/vllm/embeddings_404.json");
const VLLM_NO_MODEL: &[u8] = include_bytes!("../../../tests/transcripts/vllm/err_unknown_model.json");
const LLAMA_NO_IMAGE: &[u8] =
    include_bytes!("../../../tests/transcripts/llama.cpp/err_image_unsupported.json");

fn parse(body: &str) -> Option<UpstreamError> {
    parse_upstream_error(body.as_bytes())
}

fn message(body: &str) -> Option<String> {
    parse(body).and_then(|error| error.message)
}

#[test]
fn recorded_errors_are_read() {
    let overflow = parse_upstream_error(LLAMA_OVERFLOW).expect("an error");
    assert_eq!(overflow.kind.as_deref(), Some("exceed_context_size_error"));
    assert_eq!(
        (overflow.code, overflow.status),
        (Some(ErrorCode::Number(400)), Some(400))
    );
    let dead = parse_upstream_error(VLLM_DEAD).expect("an error");
    assert_eq!(
        (dead.kind.as_deref(), dead.status),
        (Some("InternalServerError"), Some(500))
    );
    let model = parse_upstream_error(VLLM_NO_MODEL).expect("an error");
    assert_eq!((model.param.as_deref(), model.status), (Some("model"), Some(404)));
    let path = parse_upstream_error(VLLM_NO_PATH).expect("an error");
    assert_eq!(path.message.as_deref(), Some("Not Found"));
}

#[test]
fn errors_of_other_shapes_are_read() {
    assert_eq!(message(r#"{"error":"plain"}"#).as_deref(), Some("plain"));
    assert_eq!(message(r#"{"message":"flat"}"#).as_deref(), Some("flat"));
    assert_eq!(
        message(r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#).as_deref(),
        Some("field required")
    );
    assert_eq!(
        message(r#"{"detail":{"message":"inner"}}"#).as_deref(),
        Some("inner")
    );
    assert_eq!(
        message(r#"{"type":"error","error":{"type":"x","message":"m"}}"#).as_deref(),
        Some("m")
    );
    let listed = parse(r#"[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]"#)
        .expect("an error");
    assert_eq!(
        (listed.kind.as_deref(), listed.status),
        (Some("RESOURCE_EXHAUSTED"), Some(429))
    );
    let coded = parse(r#"{"error":{"message":"m","code":"429","status":503}}"#).expect("an error");
    assert_eq!(
        (coded.code, coded.status),
        (Some(ErrorCode::Text("429".into())), Some(503))
    );
}

#[test]
fn a_moderators_refusal_is_known_by_its_reasons() {
    let moderated = |metadata: &str| {
        let body = format!(r#"{{"error":{{"code":403,"message":"m","metadata":{metadata}}}}}"#);
        parse(&body).map(|error| (error.moderated, error.amounts_to()))
    };
    let reasons = r#"{"reasons":["violence",{}],"flagged_input":"x","provider_name":"p"}"#;
    assert_eq!(moderated(reasons), Some((true, Some(400))));
    for other in [
        r#"{"reasons":[]}"#,
        r#"{"reasons":null}"#,
        r#"{"raw":"x"}"#,
        "[]",
        "7",
    ] {
        assert_eq!(moderated(other), Some((false, Some(403))), "{other}");
    }
}

#[test]
fn bodies_of_no_known_shape_are_no_errors() {
    for body in [
        "",
        "<html>502</html>",
        "[]",
        "[1]",
        "null",
        "{}",
        r#"{"error":null}"#,
        r#"{"ok":true}"#,
        r#"{"message":1}"#,
    ] {
        assert_eq!(parse(body), None, "{body}");
    }
    assert_eq!(parse_upstream_error(b"{\"error\":\"\xFF\"}"), None);
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let body = json!({ "error": { "message": "é".repeat(3_000), "code": "c".repeat(3_000) } }).to_string();

    let error = parse(&body).expect("an error");

    assert_eq!(error.message, Some("é".repeat(MESSAGE_CHARS_MAX)));
    assert_eq!(error.code, Some(ErrorCode::Text("c".repeat(100))));
}

#[test]
fn a_prompt_that_is_too_long_is_recognized_by_the_words_of_engines() {
    assert!(is_context_overflow(400, LLAMA_OVERFLOW));
    assert!(is_context_overflow(400, VLLM_OVERFLOW));
    for body in [
        r#"{"error":{"code":"context_length_exceeded"}}"#,
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's Maximum Context Length is 8192 tokens",
        "The input token count (40000) exceeds the maximum number of tokens allowed",
        "maximum prompt length is 1",
    ] {
        for status in [400, 404, 413, 422] {
            assert!(is_context_overflow(status, body.as_bytes()), "{body}");
        }
        for status in [200, 401, 429, 500, 503] {
            assert!(!is_context_overflow(status, body.as_bytes()), "{body}");
        }
    }
    for other in [
        VLLM_DEAD,
        VLLM_NO_MODEL,
        VLLM_NO_PATH,
        LLAMA_NO_IMAGE,
        b"",
        b"exceeds the input token count",
    ] {
        assert!(!is_context_overflow(400, other));
    }
}
