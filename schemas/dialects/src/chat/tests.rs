//! Chunks, answers and errors as engines were recorded sending them, and as they might.

use proptest::prelude::*;

use super::chunk::{self, Chunk, Fault, Finish};
use super::usage::UsageFacts;
use super::{answer, error};
use crate::sse::Event;
use crate::testing::framed;

mod answers;
mod errors;

const LLAMA_STREAM: &[u8] = include_bytes!("../../tests/transcripts/llama.cpp/chat_stream_usage.sse");
const LLAMA_NO_USAGE: &[u8] = include_bytes!("../../tests/transcripts/llama.cpp/chat_stream_nousage.sse");
const LLAMA_TOOLS: &[u8] = include_bytes!("../../tests/transcripts/llama.cpp/chat_tool_stream.sse");
const VLLM_STREAM: &[u8] = include_bytes!("../../tests/transcripts/vllm/chat_stream_usage.sse");
const VLLM_CONTINUOUS: &[u8] =
    include_bytes!("../../tests/transcripts/vllm/chat_stream_continuous_usage.sse");
const VLLM_TOOLS: &[u8] = include_bytes!("../../tests/transcripts/vllm/chat_tool_required_stream.sse");
const STREAMS: [&[u8]; 6] = [
    LLAMA_STREAM,
    LLAMA_NO_USAGE,
    LLAMA_TOOLS,
    VLLM_STREAM,
    VLLM_CONTINUOUS,
    VLLM_TOOLS,
];

fn events(stream: &'static [u8]) -> Vec<Event> {
    let events = framed(&[stream]).into_iter();
    events.filter(|event| !event.is_comment()).collect()
}

fn chunks(stream: &'static [u8]) -> Vec<Chunk> {
    let data = events(stream)
        .into_iter()
        .map(|event| event.data)
        .filter(|data| !chunk::is_done(data));
    data.map(|data| chunk::skim(&data).expect("a chunk")).collect()
}

fn skim(data: &str) -> Chunk {
    chunk::skim(data.as_bytes()).unwrap_or_else(|error| panic!("{error}: {data}"))
}

fn delta(members: &str) -> Chunk {
    skim(&format!(r#"{{"choices":[{{"index":0,"delta":{{{members}}}}}]}}"#))
}

fn told(prompt: u64, completion: u64, total: Option<u64>, cached: Option<u64>) -> UsageFacts {
    UsageFacts {
        prompt_tokens: Some(prompt),
        completion_tokens: Some(completion),
        total_tokens: total,
        cached_tokens: cached,
        ..UsageFacts::default()
    }
}

#[test]
fn a_recorded_stream_opens_without_content_and_ends_with_its_usage() {
    let chunks = chunks(LLAMA_STREAM);

    let content: Vec<bool> = chunks.iter().map(|chunk| chunk.content).collect();
    assert_eq!(content, [false, true, true, true, true, true, true, false, false]);
    let written: usize = chunks.iter().map(|chunk| chunk.output_bytes).sum();
    assert_eq!(written, "Say hi.<|im_".len());
    assert_eq!(chunks[7].finish, Some(Finish::Length));
    assert_eq!(chunks[8].usage, Some(told(26, 6, Some(32), Some(21))));
    let withheld: Vec<bool> = chunks.iter().map(chunk::usage_only).collect();
    assert_eq!(
        withheld,
        [false, false, false, false, false, false, false, false, true]
    );
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.grammar.is_none() && chunk.error.is_none())
    );
}

#[test]
fn timings_stand_in_for_usage_that_was_not_asked_for() {
    let chunks = chunks(LLAMA_NO_USAGE);

    let last = chunks.last().expect("a chunk");
    let usage = last.usage.expect("timings");
    assert_eq!(
        (usage.prompt_tokens, usage.completion_tokens),
        (Some(26), Some(4))
    );
    assert_eq!(usage.cached_tokens, Some(21));
    assert_eq!(last.finish, Some(Finish::Length));
    assert!(!chunk::usage_only(last));
}

#[test]
fn the_last_content_and_the_finish_may_share_a_chunk() {
    let chunks = chunks(VLLM_STREAM);

    assert_eq!(
        (chunks[2].content, chunks[2].finish),
        (true, Some(Finish::Length))
    );
    assert_eq!(chunks[2].output_bytes, 3);
    assert_eq!(chunks[3].usage, Some(told(4, 3, Some(7), None)));
}

#[test]
fn running_usage_is_in_every_chunk_and_the_last_one_counts() {
    let usage: Vec<_> = chunks(VLLM_CONTINUOUS)
        .into_iter()
        .map(|chunk| chunk.usage)
        .collect();

    let expected =
        [(0, 4), (2, 6), (3, 7), (3, 7)].map(|(output, total)| Some(told(4, output, Some(total), None)));
    assert_eq!(usage, expected);
}

#[test]
fn pieces_of_a_tool_call_are_content() {
    let chunks = chunks(VLLM_TOOLS);

    assert!(!chunks[0].content);
    assert_eq!(
        (chunks[1].content, chunks[1].output_bytes),
        (true, "get_weather".len())
    );
    assert_eq!((chunks[2].content, chunks[2].output_bytes), (true, 1));
    let finish: Vec<_> = chunks.iter().filter_map(|chunk| chunk.finish).collect();
    assert_eq!(finish, [Finish::ToolCalls]);
    assert!(chunks.iter().all(|chunk| chunk.grammar.is_none()));
}

#[test]
fn every_form_of_generated_content_is_seen() {
    for (members, bytes) in [
        (r#""content":"a\n\u00e9🙂""#, 8),
        (r#""reasoning_content":"abc""#, 3),
        (r#""reasoning":"abc""#, 3),
        (
            r#""reasoning":"abc","reasoning_content":"abc","reasoning_details":[{"type":"t","text":"abc"}]"#,
            3,
        ),
        (
            r#""reasoning_details":[{"type":"reasoning.text","text":"abc","format":"x"}]"#,
            3,
        ),
        (r#""content":"a","reasoning":"bc""#, 3),
        (r#""refusal":"no""#, 2),
        (
            r#""content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]"#,
            3,
        ),
        (
            r#""tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]"#,
            1,
        ),
        (r#""tool_calls":[{"index":0,"id":"call_1"}]"#, 0),
        (
            r#""tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]"#,
            7,
        ),
        (
            r#""tool_calls":[{"index":0,"function":{"arguments":{"city":"Paris"}}}]"#,
            5,
        ),
        (r#""function_call":{"name":"f","arguments":"{}"}"#, 3),
        (r#""audio":{"id":"a","data":"AAAA"}"#, 0),
        (r#""audio":{"id":"a","transcript":"hi"}"#, 2),
        (
            r#""images":[{"type":"image_url","image_url":{"url":"data:x"}}]"#,
            0,
        ),
    ] {
        let chunk = delta(members);
        assert_eq!((chunk.content, chunk.output_bytes), (true, bytes), "{members}");
    }
    let logprobs =
        r#"{"choices":[{"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":""}]}}]}"#;
    assert!(skim(logprobs).content);
    assert_eq!(skim(r#"{"choices":[{"index":0,"text":"abc"}]}"#).output_bytes, 3);
}

#[test]
fn roles_and_empty_members_are_no_content() {
    for members in [
        "",
        r#""role":"assistant""#,
        r#""role":"assistant","content":"","refusal":null"#,
        r#""content":null,"tool_calls":null,"function_call":null,"audio":null,"reasoning":null"#,
        r#""tool_calls":[],"reasoning_content":"","content":[]"#,
        r#""audio":{"id":"a","expires_at":1}"#,
        r#""annotations":[{"x":"y"}],"provider_specific_fields":{"a":"b"}"#,
    ] {
        let chunk = delta(members);
        assert_eq!((chunk.content, chunk.output_bytes), (false, 0), "{members}");
    }
    let chunk =
        skim(r#"{"choices":[{"index":0,"delta":null,"logprobs":{"content":[]},"finish_reason":null}]}"#);
    assert!(!chunk.content);
}

#[test]
fn finish_reasons_are_told_apart_and_failures_outweigh_them() {
    let finish = |word: &str| {
        skim(&format!(
            r#"{{"choices":[{{"index":0,"finish_reason":{word}}}]}}"#
        ))
        .finish
    };
    assert_eq!(finish("null"), None);
    assert_eq!(finish("\"\""), None);
    assert_eq!(finish("\"stop\""), Some(Finish::Stop));
    assert_eq!(finish("\"function_call\""), Some(Finish::ToolCalls));
    assert_eq!(finish("\"content_filter\""), Some(Finish::ContentFilter));
    assert_eq!(finish("\"strange\""), Some(Finish::Other));
    assert_eq!(finish("\"error\""), Some(Finish::Failed));

    let chunk = skim(
        r#"{"choices":[{"index":0,"finish_reason":"abort"},{"index":1,"finish_reason":"stop"},{"index":2}]}"#,
    );
    assert_eq!(chunk.choices, 3);
    assert!(chunk.finish.is_some_and(Finish::failed));
}

#[test]
fn an_error_within_a_stream_is_seen_in_all_its_forms() {
    let bare = skim(r#"{"error":{"message":"overloaded","type":"server_error","code":503}}"#)
        .error
        .expect("an error");
    assert_eq!(bare.message.as_deref(), Some("overloaded"));
    assert_eq!(bare.kind.as_deref(), Some("server_error"));
    assert_eq!(
        (bare.code, bare.status),
        (Some(error::ErrorCode::Number(503)), Some(503))
    );

    let beside = r#"{"error":{"code":"rate","message":"x"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}"#;
    let chunk = skim(beside);
    assert_eq!(
        chunk.error.expect("an error").code,
        Some(error::ErrorCode::Text("rate".into()))
    );
    assert_eq!(chunk.finish, Some(Finish::Failed));

    for flat in [
        r#"{"error":"boom"}"#,
        r#"{"object":"error","message":"boom","type":"X","code":400}"#,
    ] {
        let error = skim(flat).error.expect("an error");
        assert_eq!(error.message.as_deref(), Some("boom"), "{flat}");
    }
    for none in [
        r#"{"error":null}"#,
        r#"{"error":""}"#,
        r#"{"error":false}"#,
        r#"{"object":"chat.completion.chunk"}"#,
    ] {
        assert_eq!(skim(none).error, None, "{none}");
    }
    assert!(skim(r#"{"error":{}}"#).error.is_some());
}

#[test]
fn chunks_without_choices_are_allowed() {
    let filter = skim(r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}],"model":""}"#);
    assert_eq!(
        (filter.choices, filter.content, chunk::usage_only(&filter)),
        (0, false, false)
    );
    assert_eq!(skim(r#"{"choices":null}"#), Chunk::default());
    assert_eq!(skim("{}"), Chunk::default());
}

#[test]
fn breaches_of_the_dialect_are_named() {
    let grammar = |data: &str| skim(data).grammar;
    assert_eq!(
        grammar(r#"{"choices":[{"delta":{}}]}"#),
        Some(Fault::ChoiceWithoutIndex)
    );
    assert_eq!(
        grammar(r#"{"choices":[{"index":null,"delta":{}}]}"#),
        Some(Fault::ChoiceWithoutIndex)
    );
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{}}]}}]}"#;
    assert_eq!(grammar(call), Some(Fault::ToolCallWithoutIndex));
    assert_eq!(grammar(r#"{"model":"a","model":"b"}"#), Some(Fault::SecondModel));
    assert_eq!(grammar(r#"{"model":"a","choices":[{"index":0}]}"#), None);
}

#[test]
fn data_that_is_no_chunk_is_refused() {
    for data in [
        "",
        "[DONE]",
        "[]",
        "null",
        "1",
        "{",
        "{}}",
        r#"{"choices":{}}"#,
        r#"{"choices":[1]}"#,
        "<html>",
    ] {
        assert!(
            matches!(chunk::skim(data.as_bytes()), Err(chunk::Error::Malformed(_))),
            "{data}"
        );
    }
    assert!(matches!(
        chunk::skim(b"{\"a\":\"\xFF\"}"),
        Err(chunk::Error::NotUtf8)
    ));
    assert!(chunk::is_done(b"[DONE]") && chunk::is_done(b" [DONE]\r") && !chunk::is_done(b"{}"));
}

#[test]
fn hostile_nesting_is_refused_and_not_followed() {
    let arguments = format!(
        r#"{{"choices":[{{"index":0,"delta":{{"content":{}"#,
        "[".repeat(1_000_000)
    );
    assert!(chunk::skim(arguments.as_bytes()).is_err());
    let ignored = format!(r#"{{"other":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    assert!(chunk::skim(ignored.as_bytes()).is_ok());
}

#[test]
fn the_model_of_every_recorded_event_is_found() {
    for stream in STREAMS {
        for event in events(stream).iter().filter(|event| !chunk::is_done(&event.data)) {
            let chunk = chunk::skim(&event.data).expect("a chunk");

            let found = &event.data[chunk.model_span.expect("a model")];

            let whole: serde_json::Value = serde_json::from_slice(&event.data).expect("json");
            assert_eq!(found, whole["model"].to_string().as_bytes());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), status: u16) {
        let _ = (chunk::skim(&bytes), answer::skim(&bytes), error::parse_upstream_error(&bytes));
        let _ = (error::is_context_overflow(status, &bytes), chunk::is_done(&bytes));
    }

    #[test]
    fn a_recorded_chunk_with_any_byte_changed_is_read_without_a_panic(
        which in 0..STREAMS.len(), place in any::<prop::sample::Index>(), byte: u8,
    ) {
        let mut stream = STREAMS[which].to_vec();
        let at = place.index(stream.len());
        stream[at] = byte;
        for event in framed(&[&stream]) {
            let _ = (chunk::skim(&event.data), answer::skim(&event.data), error::parse_upstream_error(&event.data));
        }
    }

    #[test]
    fn any_text_is_counted_by_its_bytes(text in ".*") {
        let data = serde_json::json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();

        let chunk = skim(&data);

        prop_assert_eq!((chunk.output_bytes, chunk.content), (text.len(), !text.is_empty()));
    }
}
