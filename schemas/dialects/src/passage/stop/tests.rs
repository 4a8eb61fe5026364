//! Tests of streams that are ended at their length, in each dialect.

use serde_json::{Value, json};

use super::*;
use crate::sse::Framer;

/// Reads a stream as far as it goes, then ends it.
fn stopped(dialect: Dialect, hides: bool, events: &[Value], include_usage: bool) -> Vec<Value> {
    let mut skimmer = Skimmer::new(dialect);
    if hides {
        skimmer = skimmer.without_thoughts();
    }
    let mut follower = Follower::default();
    let mut last = Bytes::new();
    for event in events {
        let mut framer = Framer::new(1 << 20);
        let name = event["type"]
            .as_str()
            .map_or(String::new(), |name| format!("event: {name}\n"));
        framer.push(Bytes::from(format!("{name}data: {event}\n\n")));
        let read = framer.next().expect("framed").expect("an event");
        skimmer.skim(&read).expect("of the dialect");
        follower.event(&read.raw);
        last = read.data.clone();
    }
    let stop = Stop {
        dialect,
        model_json: b"\"public\"",
        choices: 2,
        tokens: (7, 20),
        include_usage,
        last: &last,
        followed: Some(&follower),
    };
    let ending = skimmer.stop(&stop).expect("an ending");
    let mut framer = Framer::new(1 << 20);
    framer.push(Bytes::from(ending.events));
    framer.push(ending.mark);
    let mut told = Vec::new();
    while let Some(event) = framer.next().expect("framed") {
        let data: Value = serde_json::from_slice(&event.data).unwrap_or_else(|_| {
            assert_eq!(&event.data[..], b"[DONE]");
            json!("[DONE]")
        });
        if let Some(name) = event.name {
            assert_eq!(data["type"].as_str().map(str::as_bytes), Some(&name[..]));
        }
        told.push(data);
    }
    told
}

#[test]
fn choices_of_chat_that_run_end_at_their_length() {
    let chunk = |index: u64, finish: Value| {
        json!({"id":"c1","object":"chat.completion.chunk","created":5,"model":"theirs","provider":"secret",
               "choices":[{"index":index,"delta":{"content":"x"},"finish_reason":finish}]})
    };

    let told = stopped(
        Dialect::Chat,
        false,
        &[chunk(0, Value::Null), chunk(1, json!("stop"))],
        true,
    );

    assert_eq!(
        told,
        [
            json!({"id":"c1","object":"chat.completion.chunk","created":5,"model":"public",
                   "choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}),
            json!({"id":"c1","object":"chat.completion.chunk","created":5,"model":"public","choices":[],
                   "usage":{"prompt_tokens":7,"completion_tokens":20,"total_tokens":27}}),
            json!("[DONE]"),
        ]
    );
}

#[test]
fn usage_that_nobody_asked_for_is_not_told() {
    let chunk = json!({"id":"c1","object":"text_completion","created":5,"model":"m",
                       "choices":[{"index":1,"text":"x","finish_reason":"stop"}]});

    let told = stopped(Dialect::Completions, false, &[chunk], false);

    assert_eq!(told.len(), 2);
    assert_eq!(
        told[0]["choices"],
        json!([{"index":0,"text":"","logprobs":null,"finish_reason":"length"}])
    );
}

#[test]
fn blocks_of_messages_are_closed_before_the_message_is() {
    let events = [
        json!({"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m",
               "content":[],"usage":{"input_tokens":3,"output_tokens":1}}}),
        json!({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}),
        json!({"type":"content_block_stop","index":0}),
        json!({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}),
        json!({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"hello"}}),
    ];

    for (hides, index) in [(false, 1), (true, 0)] {
        assert_eq!(
            stopped(Dialect::Messages, hides, &events, true),
            [
                json!({"type":"content_block_stop","index":index}),
                json!({"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},
                       "usage":{"output_tokens":20}}),
                json!({"type":"message_stop"}),
            ]
        );
    }
}

#[test]
fn items_of_a_response_are_closed_and_it_is_incomplete() {
    let events = [
        json!({"type":"response.created","sequence_number":0,
               "response":{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[]}}),
        json!({"type":"response.output_item.added","sequence_number":1,"output_index":0,
               "item":{"type":"reasoning","id":"rs_1","summary":[]}}),
        json!({"type":"response.output_item.done","sequence_number":2,"output_index":0,
               "item":{"type":"reasoning","id":"rs_1","summary":[]}}),
        json!({"type":"response.output_item.added","sequence_number":3,"output_index":1,
               "item":{"type":"message","id":"msg_1","status":"in_progress","role":"assistant","content":[]}}),
        json!({"type":"response.content_part.added","sequence_number":4,"output_index":1,"content_index":0,
               "item_id":"msg_1","part":{"type":"output_text","text":"","annotations":[]}}),
        json!({"type":"response.output_text.delta","sequence_number":5,"output_index":1,"content_index":0,
               "item_id":"msg_1","delta":"Hel"}),
        json!({"type":"response.output_text.delta","sequence_number":6,"output_index":1,"content_index":0,
               "item_id":"msg_1","delta":"lo"}),
    ];
    let text = json!({"type":"output_text","text":"Hello","annotations":[]});
    let item =
        json!({"type":"message","id":"msg_1","status":"incomplete","role":"assistant","content":[text]});

    assert_eq!(
        stopped(Dialect::Responses, false, &events, true),
        [
            json!({"type":"response.output_text.done","sequence_number":7,"item_id":"msg_1","output_index":1,
                   "content_index":0,"text":"Hello","logprobs":[]}),
            json!({"type":"response.content_part.done","sequence_number":8,"item_id":"msg_1","output_index":1,
                   "content_index":0,"part":text}),
            json!({"type":"response.output_item.done","sequence_number":9,"output_index":1,"item":item}),
            json!({"type":"response.incomplete","sequence_number":10,"response":{
                "id":"resp_1","object":"response","status":"incomplete","model":"m",
                "incomplete_details":{"reason":"max_output_tokens"},
                "output":[{"type":"reasoning","id":"rs_1","summary":[]}, item],
                "usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":0},"output_tokens":20,
                         "output_tokens_details":{"reasoning_tokens":0},"total_tokens":27}}}),
        ]
    );
}

#[test]
fn a_call_under_way_ends_with_what_of_its_arguments_came() {
    let events = [
        json!({"type":"response.created","sequence_number":0,"response":{"id":"resp_1","output":[]}}),
        json!({"type":"response.output_item.added","sequence_number":1,"output_index":0,
               "item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"look","arguments":"",
                       "status":"in_progress"}}),
        json!({"type":"response.function_call_arguments.delta","sequence_number":2,"output_index":0,
               "item_id":"fc_1","delta":"{\"a\":"}),
    ];

    let told = stopped(Dialect::Responses, false, &events, true);

    assert_eq!(told[0]["type"], "response.function_call_arguments.done");
    assert_eq!(told[0]["arguments"], "{\"a\":");
    assert_eq!(told[1]["item"]["arguments"], "{\"a\":");
    assert_eq!(told[1]["item"]["status"], "incomplete");
    assert_eq!(told[2]["response"]["output"][0], told[1]["item"]);
}
