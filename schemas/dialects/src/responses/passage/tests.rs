//! What is seen of streams and answers that pass.

use super::*;
use crate::testing::framed;

/// Everything seen of a stream, event by event, comments left out.
fn seen(stream: &str) -> Vec<Result<Seen, Foreign>> {
    let mut skimmer = Skimmer::default();
    let events = framed(&[stream.as_bytes()]).into_iter();
    events
        .filter(|event| !event.is_comment())
        .map(|event| skimmer.skim(&event))
        .collect()
}

fn one(data: &str) -> Result<Seen, Foreign> {
    seen(&format!("data: {data}\n\n")).remove(0)
}

fn told(stream: &str) -> Vec<Seen> {
    seen(stream)
        .into_iter()
        .map(|seen| seen.expect("of the dialect"))
        .collect()
}

#[test]
fn a_stream_of_a_server_is_seen_to_say_what_it_says() {
    let stream = include_str!("../../../tests/transcripts/vllm/responses_stream.sse");
    let data: Vec<&str> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();

    let all = told(stream);

    let content: Vec<bool> = all.iter().map(|seen| seen.content).collect();
    assert_eq!(
        content,
        [false, false, false, false, true, true, false, false, true, false]
    );
    let bytes: usize = all.iter().map(|seen| seen.output_bytes).sum();
    assert_eq!(bytes, " showging lib".len());
    let models: Vec<Option<&str>> = all
        .iter()
        .zip(&data)
        .map(|(seen, data)| seen.model_span.clone().map(|span| &data[span]))
        .collect();
    for at in [0, 1, 9] {
        assert_eq!(models[at], Some("\"tiny-llama\""));
    }
    assert!(models[2..9].iter().all(Option::is_none));
    let last = all.last().expect("an end");
    assert!(last.finished && last.end && last.error.is_none());
    assert!(all[..9].iter().all(|seen| !seen.finished && !seen.end));
    let usage = last.usage.expect("usage");
    assert_eq!(usage.completion_tokens, Some(3));
}

#[test]
fn a_server_without_numbers_is_seen_as_well() {
    let stream = include_str!("../../../tests/transcripts/llama.cpp/responses_tool_stream.sse");

    let all = told(stream);

    let bytes: usize = all.iter().map(|seen| seen.output_bytes).sum();
    let text = "<|e";
    assert_eq!(
        bytes,
        text.len() + "get_weather".len() + "{\"city\": \"Paris\"}".len()
    );
    assert!(all.last().is_some_and(|seen| seen.end));
}

#[test]
fn items_that_are_told_whole_count_once() {
    let item = r#"{"type":"message","content":[{"type":"output_text","text":"four"}]}"#;
    let done = format!("data: {{\"type\":\"response.output_item.done\",\"item\":{item}}}\n\n");
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"four\"}\n\n";

    let bytes = |stream: &str| -> Vec<usize> { told(stream).iter().map(|seen| seen.output_bytes).collect() };

    assert_eq!(bytes(&done), [4]);
    assert_eq!(bytes(&format!("{delta}{done}")), [4, 0]);
    assert_eq!(bytes(&format!("{delta}{done}{done}")), [4, 0, 4]);
}

#[test]
fn an_end_is_an_end_and_a_failure_is_none() {
    for kind in ["completed", "incomplete"] {
        let seen = one(&format!(
            r#"{{"type":"response.{kind}","response":{{"status":"{kind}"}}}}"#
        ))
        .expect("an end");
        assert!(
            seen.finished && seen.end && seen.error.is_none() && !seen.aborted,
            "{kind}"
        );
    }
    let failed = one(r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"too much"}}}"#).expect("seen");
    assert_eq!(
        failed.error.and_then(|error| error.message),
        Some("too much".to_owned())
    );
    assert!(!failed.finished && !failed.end);
    let hidden =
        one(r#"{"type":"response.completed","response":{"status":"failed","error":{"message":"too much"}}}"#)
            .expect("seen");
    assert!(hidden.error.is_some() && !hidden.finished && !hidden.end);
    let cancelled = one(r#"{"type":"response.cancelled","response":{}}"#).expect("seen");
    assert!(cancelled.aborted && !cancelled.finished);
    for error in [
        r#"{"type":"error","code":"x","message":"too much"}"#,
        r#"{"error":{"message":"too much"}}"#,
    ] {
        let seen = one(error).expect("seen");
        assert_eq!(
            seen.error.and_then(|error| error.message),
            Some("too much".to_owned())
        );
    }
}

#[test]
fn a_call_that_opens_is_content_and_a_thought_that_opens_is_none() {
    let opens = |item: &str| {
        let seen = one(&format!(
            r#"{{"type":"response.output_item.added","item":{item}}}"#
        ));
        let seen = seen.expect("seen");
        (seen.content, seen.output_bytes)
    };

    assert_eq!(opens(r#"{"type":"function_call","name":"f\"x"}"#), (true, 3));
    assert_eq!(opens(r#"{"type":"custom_tool_call","name":"p"}"#), (true, 1));
    assert_eq!(opens(r#"{"type":"reasoning","summary":[]}"#), (false, 0));
    assert_eq!(opens(r#"{"type":"message","content":[]}"#), (false, 0));
}

#[test]
fn what_is_new_passes_and_what_is_no_event_does_not() {
    for new in [
        r#"{"type":"response.something.new","x":1}"#,
        r#"{"type":"keepalive"}"#,
        "[DONE]",
    ] {
        assert_eq!(one(new), Ok(Seen::default()), "{new}");
    }
    for foreign in [
        "{}",
        "3",
        "{\"type\":",
        r#"{"choices":[]}"#,
        r#"{"type":"response.created","response":3}"#,
    ] {
        assert_eq!(one(foreign), Err(Foreign), "{foreign}");
    }
}

fn answer(body: &str) -> Answer {
    skim_answer(body.as_bytes()).expect("an answer")
}

#[test]
fn a_whole_answer_of_a_server_is_seen_to_say_what_it_says() {
    let body = include_str!("../../../tests/transcripts/vllm/responses.json");

    let seen = answer(body);

    assert_eq!(seen.model_span.map(|span| &body[span]), Some("\"tiny-llama\""));
    assert_eq!(seen.choices, 1);
    assert_eq!((seen.content, seen.output_bytes), (true, "TIONCHialish".len()));
    assert_eq!(seen.finish, Some(Finish::Length));
    assert!(seen.error.is_none());
    let usage = seen.usage.expect("usage");
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(3), Some(4)));

    let body = include_str!("../../../tests/transcripts/llama.cpp/responses_tool.json");
    assert_eq!(answer(body).finish, Some(Finish::ToolCalls));
}

#[test]
fn how_an_answer_ended_is_told_by_its_status() {
    let finish = |members: &str| answer(&format!(r#"{{"output":[],{members}}}"#)).finish;

    assert_eq!(finish(r#""status":"completed""#), Some(Finish::Stop));
    assert_eq!(finish(r#""model":"m""#), Some(Finish::Stop));
    let filtered = r#""status":"incomplete","incomplete_details":{"reason":"content_filter"}"#;
    assert_eq!(finish(filtered), Some(Finish::ContentFilter));
    assert_eq!(finish(r#""status":"incomplete""#), Some(Finish::Length));
    assert_eq!(finish(r#""status":"in_progress""#), Some(Finish::Failed));
    assert_eq!(finish(r#""status":"queued""#), Some(Finish::Failed));
    assert_eq!(finish(r#""status":"failed""#), Some(Finish::Failed));
    assert_eq!(finish(r#""status":"cancelled""#), Some(Finish::Failed));
}

#[test]
fn an_answer_without_output_is_none_and_one_with_an_error_says_so() {
    let nothing = answer(r#"{"id":"resp"}"#);
    assert_eq!(
        (nothing.choices, nothing.finish, nothing.content),
        (0, None, false)
    );
    let failed =
        answer(r#"{"status":"failed","output":[],"error":{"code":"server_error","message":"too much"}}"#);
    assert_eq!(
        failed.error.and_then(|error| error.message),
        Some("too much".to_owned())
    );
    assert!(skim_answer(b"\xff").is_err());
    assert_eq!(answer("[]").choices, 0);
    assert!(skim_answer(b"<html>").is_err());
}
