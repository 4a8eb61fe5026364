//! Streams cut anywhere give the caller the same bytes.

use std::sync::Arc;

use dialects::chat::usage::UsageFacts;
use dialects::superset::event::Reply;

use super::*;

mod calls;

const MODEL_JSON: &[u8] = b"\"m\"";

fn manner(caller: Dialect) -> Manner<'static> {
    Manner {
        caller,
        way: None,
        model_json: MODEL_JSON,
        include_usage: false,
        hides_thinking: false,
        names_providers: false,
        event_bytes_max: 64 * 1024,
        output_tokens_held: None,
        prompt_tokens: 0,
        asked: b"{}",
        request_bytes: 0,
    }
}

/// Of a stream of chat that passes.
fn reading() -> Reading<'static> {
    Reading::new(manner(Dialect::Chat))
}

/// Of a stream that is written anew.
fn translated(way: &Way) -> Reading<'_> {
    Reading::new(Manner {
        way: Some(way),
        ..manner(way.caller)
    })
}

fn way(upstream: Dialect, caller: Dialect) -> Way {
    Way {
        upstream,
        caller,
        processor: None,
        tools: Arc::default(),
        names: dialects::superset::tool::Names::default(),
        reply: Reply {
            id: "07".to_owned(),
            created: 5,
            model: "m".to_owned(),
            include_usage: false,
            hides_thinking: false,
            prompt_tokens: 9,
            request: Bytes::from_static(b"{}"),
        },
    }
}

/// An event without a name.
fn event(data: impl std::fmt::Display) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

/// Reads the pieces and gives all that the caller gets, with its bytes of generated text.
fn read(pieces: &[&[u8]]) -> (String, u64, Option<UsageFacts>, bool) {
    let mut reading = reading();
    let (mut sent, mut output_bytes) = (Vec::new(), 0);
    let mut gather = |reading: &mut Reading<'_>| {
        if let Some((bytes, count)) = reading.take() {
            sent.extend_from_slice(&bytes);
            output_bytes += count;
        }
    };
    for piece in pieces {
        reading.push(Bytes::copy_from_slice(piece)).expect("readable");
        gather(&mut reading);
    }
    reading.finish().expect("readable");
    gather(&mut reading);
    (
        String::from_utf8(sent).expect("text"),
        output_bytes,
        reading.usage(),
        reading.done(),
    )
}

fn transcript(line_end: &str) -> String {
    [
        ": waiting",
        "",
        r#"data: {"id":"1","model":"org/m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}"#,
        "",
        r#"data:{"id":"1","model":"org/m","choices":[{"index":0,"delta":{"content":"你好 🙂"},"finish_reason":null}]}"#,
        "",
        r#"data: {"id":"1","model":"m","choices":[{"index":0,"#,
        r#"data: "delta":{"content":"!"},"finish_reason":null}]}"#,
        "",
        r#"data: {"id":"1","model":"org/m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
        "",
        r#"data: {"id":"1","model":"org/m","choices":[],"usage":{"prompt_tokens":700,"completion_tokens":30,"total_tokens":730}}"#,
        "",
        "data: [DONE]",
        "",
        "",
    ]
    .join(line_end)
}

const EXPECTED: &str = concat!(
    r#"data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"你好 🙂"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"1","model":"m","choices":[{"index":0, "delta":{"content":"!"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#,
    "\n\n",
);

#[test]
fn a_stream_cut_at_any_byte_gives_the_same() {
    for line_end in ["\n", "\r\n", "\r"] {
        let text = transcript(line_end);
        let bytes = text.as_bytes();
        for cut in 0..=bytes.len() {
            let (sent, output_bytes, usage, done) = read(&[&bytes[..cut], &bytes[cut..]]);

            assert_eq!(sent, EXPECTED, "cut at {cut} of {line_end:?}");
            assert_eq!(output_bytes, 14);
            assert_eq!(usage.and_then(|usage| usage.prompt_tokens), Some(700));
            assert!(done);
        }
    }
}

#[test]
fn a_stream_of_single_bytes_behind_a_byte_order_mark_gives_the_same() {
    let text = format!("\u{feff}{}", transcript("\n"));
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(1).collect();

    let (sent, _, _, done) = read(&pieces);

    assert_eq!(sent, EXPECTED);
    assert!(done);
}

#[test]
fn an_end_mark_without_a_blank_line_counts() {
    let text = transcript("\n");
    let (_, _, _, done) = read(&[text.trim_end().as_bytes()]);

    assert!(done);
}

#[test]
fn an_event_that_needs_no_change_is_passed_without_a_copy() {
    let mut reading = reading();
    let came = event(r#"{"model":"m","choices":[{"index":0,"delta":{"content":"x"}}]}"#);

    reading.push(came.clone()).expect("readable");

    let (sent, _) = reading.take().expect("content");
    assert_eq!(sent.as_ptr(), came.as_ptr());
}

#[test]
fn nothing_is_sent_before_content_and_what_is_held_is_bounded() {
    let mut reading = reading();
    let role = event(r#"{"model":"m","choices":[{"index":0,"delta":{"role":"assistant"}}]}"#);

    let overflow = (0..20_000).find_map(|_| {
        let pushed = reading.push(role.clone());
        assert!(reading.take().is_none());
        pushed.err()
    });

    assert_eq!(overflow, Some(Fault::Unusable(Unusable::TooLarge)));
}

#[test]
fn a_line_without_an_end_is_bounded() {
    let mut reading = reading();
    let piece = Bytes::from(vec![b'x'; 8 * 1024]);

    let overflow = (0..20).find_map(|_| reading.push(piece.clone()).err());

    assert_eq!(overflow, Some(Fault::Unusable(Unusable::TooLarge)));
}

#[test]
fn an_error_that_is_null_is_none() {
    let mut reading = reading();

    let chunk = r#"{"error":null,"choices":[{"index":0,"delta":{"content":"x"}}]}"#;
    let pushed = reading.push(event(chunk));

    assert_eq!(pushed, Ok(()));
    assert!(reading.take().is_some());
}

#[test]
fn an_object_that_is_no_chunk_never_reaches_the_caller() {
    let text = concat!(
        "data: {}\n\n",
        "data: {\"message\":\"of the upstream alone\"}\n\n",
        "data: {\"model\":\"m\",\"choices\":null,\"note\":\"of the upstream alone\"}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[]}\n\n",
        "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    );

    let (sent, _, usage, done) = read(&[text.as_bytes()]);

    assert_eq!(
        sent,
        concat!(
            "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
            "data: {\"model\":\"m\",\"choices\":[]}\n\n",
        )
    );
    assert_eq!(usage.and_then(|usage| usage.prompt_tokens), Some(7));
    assert!(done);
}

#[test]
fn an_event_named_error_ends_the_reading_whatever_its_data() {
    for data in [
        r#"{"message":"out of memory"}"#,
        "out of memory",
        r#"{"code":429}"#,
    ] {
        let mut reading = reading();
        let text = format!("event: error\ndata: {data}\n\n");

        let fault = reading.push(Bytes::from(text)).expect_err("a failure");

        assert!(
            matches!(fault, Fault::Refused(refusal) if refusal.inside),
            "{data}"
        );
        assert!(reading.take().is_none());
    }
}

/// A chunk of a choice: its delta and its reason, as JSON.
fn part(index: u32, delta: &str, reason: &str) -> String {
    let choice = format!(r#"{{"index":{index},"delta":{delta},"finish_reason":{reason}}}"#);
    format!("data: {{\"id\":\"1\",\"model\":\"m\",\"choices\":[{choice}]}}\n\n")
}

#[test]
fn a_choice_that_called_tools_is_not_said_to_have_just_stopped() {
    let call = r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}"#;
    let (text, nothing) = (r#"{"content":"a"}"#, "{}");
    let cases = [
        (
            vec![part(0, call, "null"), part(0, nothing, "\"stop\"")],
            vec!["tool_calls"],
        ),
        (vec![part(0, call, "\"stop\"")], vec!["tool_calls"]),
        (
            vec![part(0, call, "null"), part(0, nothing, "\"length\"")],
            vec!["length"],
        ),
        (
            vec![part(0, text, "null"), part(0, nothing, "\"stop\"")],
            vec!["stop"],
        ),
        (
            vec![
                part(0, text, "null"),
                part(1, call, "null"),
                part(0, nothing, "\"stop\""),
                part(1, nothing, "\"stop\""),
            ],
            vec!["stop", "tool_calls"],
        ),
    ];
    for (parts, reasons) in cases {
        let came = parts.concat();
        for cut in 0..came.len() {
            let (head, tail) = came.as_bytes().split_at(cut);
            let (sent, ..) = read(&[head, tail]);

            let found: Vec<&str> = sent
                .split(r#""finish_reason":""#)
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .collect();
            assert_eq!(found, reasons, "{came}");
            assert_eq!(sent.replace("\"tool_calls\"}", "\"stop\"}"), came);
        }
    }
}

#[test]
fn name_and_reasons_are_replaced_in_one_event() {
    let call = r#""delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}"#;
    let event = |model: &str, reason: &str| {
        let choice = |index: u32| format!(r#"{{"index":{index},{call},"finish_reason":"{reason}"}}"#);
        let (first, second) = (choice(0), choice(1));
        [
            format!("data: {{\"model\":\"{model}\",\"choices\":[{first},{second}]}}\n\n"),
            format!("data: {{\"choices\":[{first},{second}],\"model\":\"{model}\"}}\n\n"),
        ]
    };
    for (came, expected) in event("org/m", "stop").iter().zip(event("m", "tool_calls")) {
        assert_eq!(read(&[came.as_bytes()]).0, expected);
    }
}

#[test]
fn an_event_that_is_no_json_is_passed_over_where_events_are_written_anew_too() {
    let way = way(Dialect::Messages, Dialect::Chat);
    let mut reading = translated(&way);
    let delta = |text: &str| {
        let delta = format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
        format!(r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#)
    };
    let stream = [
        r#"{"type":"message_start","message":{"id":"a"}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text"}}"#,
        &delta("one "),
        r#"{"type":"brok"#,
        &delta("two"),
    ];

    let stream: Vec<Bytes> = stream.iter().map(event).collect();
    reading.push(Bytes::from(stream.concat())).expect("readable");
    let sent = reading
        .take()
        .map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned());
    let odd = reading.push(event(r#"{"type":"message_start"}"#));

    let sent = sent.expect("content");
    assert!(
        sent.contains(r#""content":"one ""#) && sent.contains(r#""content":"two""#),
        "{sent}"
    );
    assert_eq!(reading.take_dropped(), 1);
    assert!(
        odd.is_err(),
        "what can be read and is out of order breaks the answer"
    );
}

#[test]
fn a_choice_that_ends_twice_does_not_stand_in_for_another() {
    let chunk = |index: u64, finish: &str| {
        event(format!(
            r#"{{"choices":[{{"index":{index},"delta":{{"content":"a"}},"finish_reason":{finish}}}]}}"#
        ))
    };
    let ends = |pieces: &[Bytes]| {
        let mut reading = reading();
        for piece in pieces {
            reading.push(piece.clone()).expect("readable");
        }
        (reading.finished_choices(), reading.may_end(|| 2))
    };
    let stop = r#""stop""#;

    let twice = ends(&[chunk(0, stop), chunk(1, "null"), chunk(0, stop)]);
    let both = ends(&[chunk(0, stop), chunk(0, stop), chunk(1, stop)]);

    assert_eq!(twice, (1, Err(Fault::Cut)));
    assert_eq!(both, (2, Ok(())));
}

#[test]
fn what_repeats_the_request_may_be_held_and_no_more_than_that() {
    let instructions = "x".repeat(600_000);
    let opening = |kind: &str| {
        event(format!(
            r#"{{"type":"response.{kind}","response":{{"status":"in_progress","instructions":"{instructions}"}}}}"#
        ))
    };
    let held = |request_bytes: usize, openings: usize| {
        let mut reading = Reading::new(Manner {
            event_bytes_max: 1 << 20,
            request_bytes,
            ..manner(Dialect::Responses)
        });
        reading.push(opening("created"))?;
        (1..openings).try_for_each(|_| reading.push(opening("in_progress")))
    };

    assert_eq!(held(instructions.len() + 50, 2), Ok(()));
    assert_eq!(held(50, 2), Err(Fault::Unusable(Unusable::TooLarge)));
    assert_eq!(
        held(instructions.len() + 50, 6),
        Err(Fault::Unusable(Unusable::TooLarge))
    );
}

#[test]
fn a_zero_for_usage_is_none() {
    let usage = |figures: &str| {
        let mut reading = reading();
        let chunk = format!(r#"{{"choices":[],"usage":{figures}}}"#);
        reading.push(event(chunk)).expect("readable");
        reading.usage()
    };

    assert_eq!(usage(r#"{"prompt_tokens":0,"completion_tokens":0}"#), None);
    let told = usage(r#"{"prompt_tokens":1,"completion_tokens":0}"#).expect("usage");
    assert_eq!((told.prompt_tokens, told.completion_tokens), (Some(1), Some(0)));
}

#[test]
fn an_answer_of_gemini_may_end_while_its_connection_stays_open() {
    let way = way(Dialect::Gemini, Dialect::Chat);
    let mut reading = translated(&way);
    let piece = |reason: &str| {
        event(format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"a"}}]}}{reason}}}],"usageMetadata":{{"promptTokenCount":4,"candidatesTokenCount":1}}}}"#
        ))
    };

    reading.push(piece("")).expect("readable");
    assert_eq!(reading.finished_choices(), 0);
    assert_eq!(reading.may_end(|| 1), Err(Fault::Cut));

    let mut reading = translated(&way);
    reading.push(piece("")).expect("readable");
    reading
        .push(piece(r#","finishReason":"STOP""#))
        .expect("readable");
    assert_eq!(reading.finished_choices(), 1);
    assert_eq!(reading.may_end(|| 1), Ok(()));
    let usage = reading.usage().expect("usage");
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(4), Some(1)));
}

#[test]
fn an_answer_that_is_repeated_at_its_end_breaks_where_it_is_more_than_a_whole_one_may_be() {
    let text = "x".repeat(8 << 20);
    let chunk = event(format!(
        r#"{{"choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]}}"#
    ));
    let readable = |caller: Dialect| {
        let way = way(Dialect::Chat, caller);
        let mut reading = Reading::new(Manner {
            way: Some(&way),
            event_bytes_max: 16 << 20,
            ..manner(caller)
        });
        let pushed = (0..6).map_while(|_| {
            let pushed = reading.push(chunk.clone());
            reading.take();
            pushed.ok()
        });
        pushed.count()
    };

    assert_eq!(readable(Dialect::Responses), 4);
    assert_eq!(readable(Dialect::Messages), 6);
}

#[test]
fn half_a_character_breaks_a_translated_answer_in_sight() {
    let way = way(Dialect::Responses, Dialect::Chat);
    let mut reading = translated(&way);
    let delta = |text: &str| {
        event(format!(
            r#"{{"type":"response.output_text.delta","output_index":0,"item_id":"a","delta":"{text}"}}"#
        ))
    };

    reading.push(delta("one ")).expect("readable");
    let half = reading.push(delta(r"\ud83d"));

    assert_eq!(half, Err(Fault::Unusable(Unusable::Malformed)));
    assert_eq!(reading.take_dropped(), 0);
}

/// Reads an event of a passing stream, after others.
fn passed(caller: Dialect, before: &[&str], last: &str) -> Result<String, Fault> {
    let mut reading = Reading::new(manner(caller));
    for data in before {
        reading.push(event(data)).expect("readable");
    }
    reading.take();
    reading.push(event(last))?;
    let taken = reading.take().map(|(bytes, _)| bytes.to_vec());
    Ok(String::from_utf8(taken.unwrap_or_default()).expect("text"))
}

#[test]
fn half_a_character_passes_where_bytes_pass_and_with_it_what_else_is_to_be_changed() {
    let text = |model: &str, delta: &str| {
        format!(r#"{{"model":"{model}","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
    };
    for delta in [
        r#"{"content":"a\ud83c"}"#,
        r#"{"content":"\udf89b"}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"x\uD83C"}}]}"#,
        r#"{"reasoning_content":"\udf89"}"#,
    ] {
        let told = passed(Dialect::Chat, &[], &text("org/m", delta));

        assert_eq!(told, Ok(format!("data: {}\n\n", text("m", delta))));
    }
    let completion = r#"{"model":"m","choices":[{"index":0,"text":"\ud83c"}]}"#;
    assert_eq!(
        passed(Dialect::Completions, &[], completion),
        Ok(format!("data: {completion}\n\n"))
    );
}

#[test]
fn what_was_generated_and_no_client_understands_breaks_a_passing_answer() {
    let (start, block, over) = (
        r#"{"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
    );
    let text = r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"x"}}"#;
    let broken: [(Dialect, &[&str], &str); 5] = [
        (
            Dialect::Chat,
            &[],
            r#"{"choices":{"0":{"delta":{"content":"x"}}}}"#,
        ),
        (Dialect::Completions, &[], r#"{"choices":"x"}"#),
        (Dialect::Messages, &[start, block], text),
        (Dialect::Messages, &[start, block], block),
        (Dialect::Messages, &[start, over], text),
    ];
    for (caller, before, event) in broken {
        let read = passed(caller, before, event);
        assert_eq!(read, Err(Fault::Unusable(Unusable::Malformed)), "{event}");
    }
    for (caller, event) in [
        (Dialect::Chat, r#"{"detail":"x"}"#),
        (Dialect::Chat, "3"),
        (Dialect::Messages, r#"{"type":"content_block_stop","index":4}"#),
        (Dialect::Responses, r#"{"choices":[]}"#),
    ] {
        assert_eq!(passed(caller, &[], event), Ok(String::new()), "{event}");
    }
}
