//! What holds of all ways from one dialect to another.

use super::*;
use crate::testing::{self, framed_data as event};

#[test]
fn a_call_that_is_demanded_without_a_tool_is_refused_by_every_dialect() {
    let target = Target {
        model: "theirs",
        profile: &crate::profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 9,
        max_tokens_limit: None,
        drop_params: true,
    };
    let refused = |upstream, choice: &str| {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"tool_choice":{choice}}}"#);
        let conversation = decode_request(Dialect::Chat, body.as_bytes()).expect("a request");
        encode_request(upstream, &conversation, &target)
            .map(|_| ())
            .map_err(|refused| refused.param.into_owned())
    };

    for upstream in [
        Dialect::Chat,
        Dialect::Responses,
        Dialect::Messages,
        Dialect::Gemini,
    ] {
        let named = Err("tool_choice".to_owned());
        assert_eq!(refused(upstream, r#""required""#), named, "{upstream:?}");
        assert_eq!(refused(upstream, r#""auto""#), Ok(()), "{upstream:?}");
        assert_eq!(refused(upstream, r#""none""#), Ok(()), "{upstream:?}");
    }
}

/// An answer on its way to a caller.
fn way(upstream: Dialect, caller: Dialect) -> Way {
    Way {
        upstream,
        caller,
        processor: None,
        tools: std::sync::Arc::default(),
        names: Names::default(),
        reply: Reply {
            prompt_tokens: 9,
            request: Bytes::from_static(b"{}"),
            ..testing::reply()
        },
    }
}

/// Input and output of the last usage in an answer or a stream of a caller's dialect.
fn told(caller: Dialect, text: &str) -> (u64, u64) {
    let (_, usage) = text.rsplit_once("\"usage\":").expect("usage");
    let mut values = serde_json::Deserializer::from_str(usage).into_iter::<serde_json::Value>();
    let usage = values.next().expect("a value").expect("json");
    let (input, output) = match caller {
        Dialect::Chat | Dialect::Completions => ("prompt_tokens", "completion_tokens"),
        _ => ("input_tokens", "output_tokens"),
    };
    let count = |name: &str| usage[name].as_u64().expect("a count");
    (count(input), count(output))
}

/// 24 bytes of text with a usage.
fn answer(usage: &str) -> String {
    format!(
        r#"{{"type":"message","role":"assistant","content":[{{"type":"text","text":"hello world, how are you"}}],"stop_reason":"end_turn","usage":{usage}}}"#
    )
}

/// The same as a stream.
fn events(usage: &str) -> [String; 6] {
    [
        r#"{"type":"message_start","message":{"content":[]}}"#.to_owned(),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.to_owned(),
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello world, how are you"}}"#.to_owned(),
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#),
        r#"{"type":"message_stop"}"#.to_owned(),
    ]
}

#[test]
fn what_a_stream_cost_that_failed_is_heard() {
    for (upstream, told) in [
        (
            Dialect::Chat,
            r#"{"error":{"message":"no"},"usage":{"prompt_tokens":9,"completion_tokens":4}}"#,
        ),
        (
            Dialect::Chat,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error"}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#,
        ),
        (
            Dialect::Responses,
            r#"{"type":"response.failed","response":{"status":"failed","error":{"message":"no"},"usage":{"input_tokens":9,"output_tokens":4}}}"#,
        ),
        (
            Dialect::Responses,
            r#"{"type":"response.completed","response":{"status":"failed","error":{"message":"no"},"usage":{"input_tokens":9,"output_tokens":4}}}"#,
        ),
        (
            Dialect::Gemini,
            r#"{"candidates":[{"index":0,"finishReason":"MALFORMED_FUNCTION_CALL"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":4}}"#,
        ),
    ] {
        let mut stream = stream::Translation::new(way(upstream, Dialect::Messages));

        let read = stream.event(&event(told), &mut BytesMut::new());

        assert!(read.is_err(), "{told}");
        let usage = stream
            .heard()
            .usage
            .map(|usage| (usage.prompt_tokens, usage.completion_tokens));
        assert_eq!(usage, Some((Some(9), Some(4))), "{told}");
    }
}

#[test]
fn every_caller_is_told_an_estimate_of_what_the_upstream_left_out_and_so_are_the_books() {
    let callers = [
        Dialect::Chat,
        Dialect::Completions,
        Dialect::Messages,
        Dialect::Responses,
    ];
    for (usage, expected) in [
        ("{}", (9, 7)),
        (r#"{"input_tokens":17}"#, (17, 7)),
        (r#"{"input_tokens":17,"output_tokens":-5}"#, (17, 7)),
        (r#"{"input_tokens":17,"output_tokens":0}"#, (17, 7)),
        (r#"{"output_tokens":5}"#, (9, 5)),
        (r#"{"input_tokens":17,"output_tokens":5}"#, (17, 5)),
    ] {
        for caller in callers {
            let counted = |usage: Option<UsageFacts>| {
                usage.and_then(|usage| usage.prompt_tokens.zip(usage.completion_tokens))
            };
            // What is estimated altogether, the books estimate by themselves.
            let in_books = (usage != "{}").then_some(expected);
            let whole = whole(&way(Dialect::Messages, caller), answer(usage).as_bytes()).expect("an answer");
            let mut stream = stream::Translation::new(way(Dialect::Messages, caller));
            let mut out = BytesMut::new();
            for data in events(usage) {
                let read = stream.event(&event(&data), &mut out);
                read.expect("an event of the dialect");
            }
            stream.finish(&mut out).expect("whole");
            let end = stream.end();

            let case = format!("{caller:?} {usage}");
            let text = std::str::from_utf8(&whole.body).expect("text");
            assert_eq!(told(caller, text), expected, "{case}");
            assert_eq!(counted(whole.usage), in_books, "{case}");
            let text = std::str::from_utf8(&end).expect("text");
            assert_eq!(told(caller, text), expected, "{case}, streamed");
            assert_eq!(counted(stream.heard().usage), in_books, "{case}, streamed");
        }
    }
}
