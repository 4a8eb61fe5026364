//! Streams in both directions: a grammar of the dialect's events, the machines against it, and what servers send.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::chat::usage::UsageFacts;
use crate::responses::response;
use crate::superset::answer::{Answer, Finish};
use crate::superset::request::{Part, ProofMaker};

pub(in crate::responses) fn reply() -> Reply {
    Reply {
        id: "07".to_owned(),
        created: 5,
        model: "public".to_owned(),
        include_usage: true,
        hides_thinking: false,
        prompt_tokens: 3,
        request: Bytes::from_static(
            br#"{"model":"public","input":"hi","tools":[
                {"type":"function","name":"f"}],"temperature":0.70,"metadata":null,"store":false}"#,
        ),
    }
}

/// What a decoder says.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    Begin,
    Thinking(String),
    Proof(ProofMaker, String, bool),
    Text(String),
    Refusal(String),
    Call(u32, String, String, Option<String>, bool),
    Arguments(u32, String),
    CallProof(u32, ProofMaker, String),
    Usage(UsageFacts),
    Finish(Finish),
}

impl Said {
    fn of(event: Event<'_>) -> Self {
        match event {
            Event::Begin => Self::Begin,
            Event::Thinking(text) => Self::Thinking(text.to_owned()),
            Event::Proof {
                maker,
                text,
                redacted,
            } => Self::Proof(maker, text.to_owned(), redacted),
            Event::Text(text) => Self::Text(text.to_owned()),
            Event::Refusal(text) => Self::Refusal(text.to_owned()),
            Event::Call {
                call,
                id,
                name,
                namespace,
                custom,
            } => Self::Call(
                call,
                id.to_owned(),
                name.to_owned(),
                namespace.map(Into::into),
                custom,
            ),
            Event::Arguments { call, piece } => Self::Arguments(call, piece.to_owned()),
            Event::CallProof { call, maker, text } => Self::CallProof(call, maker, text.to_owned()),
            Event::Usage(usage) => Self::Usage(usage),
            Event::Finish { finish, .. } => Self::Finish(finish),
        }
    }

    fn event(&self) -> Event<'_> {
        match self {
            Self::Begin => Event::Begin,
            Self::Thinking(text) => Event::Thinking(text),
            Self::Proof(maker, text, redacted) => Event::Proof {
                maker: *maker,
                text,
                redacted: *redacted,
            },
            Self::Text(text) => Event::Text(text),
            Self::Refusal(text) => Event::Refusal(text),
            Self::Call(call, id, name, namespace, custom) => Event::Call {
                call: *call,
                id,
                name,
                namespace: namespace.as_deref(),
                custom: *custom,
            },
            Self::Arguments(call, piece) => Event::Arguments { call: *call, piece },
            Self::CallProof(call, maker, text) => Event::CallProof {
                call: *call,
                maker: *maker,
                text,
            },
            Self::Usage(usage) => Event::Usage(*usage),
            Self::Finish(finish) => Event::Finish {
                finish: *finish,
                stop_sequence: None,
            },
        }
    }
}

fn written(events: &[Said], reply: Reply) -> String {
    let mut encoder = Encoder::new(reply);
    let mut out = BytesMut::new();
    for event in events {
        encoder.event(event.event(), &mut out);
    }
    out.extend_from_slice(&encoder.end());
    String::from_utf8(out.to_vec()).expect("text")
}

fn parsed(stream: &str) -> Vec<Value> {
    let events = stream.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').expect("two lines");
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("json");
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    });
    events.collect()
}

/// The grammar: numbers without gaps; a beginning; items that open in order, whose pieces are what they close with; an
/// end that repeats them. Gives the response of the end.
fn accepted(stream: &str) -> Value {
    let events = parsed(stream);
    let mut open: Vec<(Value, Vec<(String, String)>, bool)> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let kind = event["type"].as_str().expect("a type");
        let at = event["output_index"]
            .as_u64()
            .map(|at| usize::try_from(at).expect("small"));
        match kind {
            "response.created" => assert_eq!(number, 0),
            "response.in_progress" => assert_eq!(number, 1),
            "response.completed" | "response.incomplete" => {
                assert_eq!(number + 1, events.len(), "{event}");
                let output: Vec<Value> = open.iter().map(|(item, _, _)| item.clone()).collect();
                assert!(open.iter().all(|(_, _, closed)| *closed));
                assert_eq!(event["response"]["output"], Value::Array(output));
            }
            "response.output_item.added" => {
                assert_eq!(at, Some(open.len()), "{event}");
                open.push((event["item"].clone(), Vec::new(), false));
            }
            "response.output_item.done" => {
                let (item, pieces, closed) = &mut open[at.expect("a place")];
                assert!(!std::mem::replace(closed, true), "{event}");
                assert_eq!(item["id"], event["item"]["id"]);
                *item = event["item"].clone();
                let told: String = pieces.iter().map(|(_, piece)| piece.as_str()).collect();
                assert_eq!(told, words(item), "{event}");
            }
            _ => {
                let (item, pieces, closed) = &mut open[at.expect("a place")];
                assert!(!*closed && item["id"] == event["item_id"], "{event}");
                if let Some(piece) = event["delta"].as_str() {
                    assert!(!piece.is_empty());
                    pieces.push((kind.to_owned(), piece.to_owned()));
                }
            }
        }
    }
    events.last().expect("an end")["response"].clone()
}

/// All that an item says.
fn words(item: &Value) -> String {
    let mut words = String::new();
    for list in ["content", "summary"] {
        for part in item[list].as_array().into_iter().flatten() {
            words.push_str(part["text"].as_str().or(part["refusal"].as_str()).expect("words"));
        }
    }
    for member in ["arguments", "input"] {
        words.push_str(item[member].as_str().unwrap_or_default());
    }
    words
}

/// The stream read, cut into pieces of a size.
fn read(stream: &str, size: usize) -> (Vec<Said>, Result<(), Broken>) {
    let (mut said, mut decoder) = (Vec::new(), Decoder::default());
    let mut framer = sse::Framer::new(1 << 20);
    let mut sink = |event: Event<'_>| said.push(Said::of(event));
    let stream = Bytes::from(stream.to_owned());
    let mut over = Ok(());
    for start in (0..stream.len()).step_by(size) {
        framer.push(stream.slice(start..stream.len().min(start + size)));
        while let Some(event) = framer.next().expect("short events") {
            if over.is_ok() && !event.is_comment() {
                over = decoder.event(&event, &mut sink);
            }
        }
    }
    if over.is_ok() {
        over = decoder.finish(&mut sink);
    }
    (said, over)
}

/// Neighbors of one kind as one.
fn joined(said: Vec<Said>) -> Vec<Said> {
    let mut joined: Vec<Said> = Vec::new();
    for next in said {
        match (joined.last_mut(), &next) {
            (Some(Said::Text(text)), Said::Text(piece))
            | (Some(Said::Thinking(text)), Said::Thinking(piece))
            | (Some(Said::Refusal(text)), Said::Refusal(piece)) => text.push_str(piece),
            (Some(Said::Arguments(call, text)), Said::Arguments(other, piece)) if call == other => {
                text.push_str(piece);
            }
            _ => joined.push(next),
        }
    }
    joined
}

/// The arguments of each call, whole, right behind it: several calls may have come mixed.
fn sorted(said: Vec<Said>) -> Vec<Said> {
    let (arguments, mut rest): (Vec<Said>, Vec<Said>) = said
        .into_iter()
        .partition(|said| matches!(said, Said::Arguments(..)));
    for piece in arguments {
        let Said::Arguments(call, text) = piece else {
            continue;
        };
        let at = rest.iter().rposition(
            |said| matches!(said, Said::Call(number, ..) | Said::Arguments(number, _) if *number == call),
        );
        match at.and_then(|at| rest.get_mut(at)) {
            Some(Said::Arguments(_, all)) => all.push_str(&text),
            _ => rest.insert(at.expect("its call") + 1, Said::Arguments(call, text)),
        }
    }
    joined(rest)
}

fn call(call: u32, name: &str, custom: bool) -> Said {
    Said::Call(call, format!("call_{call}"), name.to_owned(), None, custom)
}

fn text(piece: &str) -> Said {
    Said::Text(piece.to_owned())
}

fn arguments(call: u32, piece: &str) -> Said {
    Said::Arguments(call, piece.to_owned())
}

/// Any answer: contents in any order, calls whose arguments come mixed.
fn answer() -> impl Strategy<Value = Vec<Said>> {
    let piece = "[a-z\\n\" äß]{1,5}";
    let content = prop_oneof![
        3 => piece.prop_map(Said::Thinking),
        4 => piece.prop_map(Said::Text),
        1 => piece.prop_map(Said::Refusal),
        1 => ("[a-z]{3}", 0..3_usize, any::<bool>()).prop_map(|(text, maker, redacted)| {
            let makers = [ProofMaker::Anthropic, ProofMaker::Gemini, ProofMaker::OpenAi];
            Said::Proof(makers[maker], text, redacted)
        }),
        3 => (any::<bool>(), any::<bool>()).prop_map(|(custom, grouped)| {
            Said::Call(0, String::new(), "f".to_owned(), grouped.then(|| "g".to_owned()), custom)
        }),
        4 => (0..4_u32, piece).prop_map(|(call, piece)| Said::Arguments(call, piece)),
        1 => (0..4_u32, "[a-z]{3}").prop_map(|(call, text)| Said::CallProof(call, ProofMaker::Gemini, text)),
    ];
    let finish = prop_oneof![
        Just(Finish::Stop),
        Just(Finish::Length),
        Just(Finish::Refused),
        Just(Finish::ToolCalls)
    ];
    (proptest::collection::vec(content, 0..14), finish, any::<bool>()).prop_map(|(contents, finish, used)| {
        let (mut said, mut calls) = (vec![Said::Begin], 0);
        for content in contents {
            said.push(match content {
                Said::Call(_, _, name, namespace, custom) => {
                    calls += 1;
                    Said::Call(calls - 1, format!("call_{calls}"), name, namespace, custom)
                }
                Said::Arguments(..) | Said::CallProof(..) if calls == 0 => continue,
                Said::Arguments(call, piece) => Said::Arguments(call % calls, piece),
                Said::CallProof(call, maker, text) => Said::CallProof(call % calls, maker, text),
                other => other,
            });
        }
        if used {
            let usage = r#"{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16,
                "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}"#;
            said.push(Said::Usage(UsageFacts::read(usage).expect("usage")));
        }
        said.push(Said::Finish(finish));
        said
    })
}

proptest! {
    #[test]
    fn every_stream_is_of_the_grammar_and_says_what_it_was_given(said in answer(), size in 1..200_usize) {
        let stream = written(&said, reply());
        accepted(&stream);

        let (read, over) = read(&stream, size);

        prop_assert_eq!(over, Ok(()));
        let content = |said: &[Said]| {
            let words = said.iter().filter(|said| !matches!(said, Said::Usage(_) | Said::Finish(_) | Said::Proof(..)));
            let words: Vec<Said> = words.cloned().collect();
            // A call without arguments gets those of an object without members.
            sorted(words.into_iter().filter(|said| !matches!(said, Said::Arguments(_, text) if text == "{}")).collect())
        };
        prop_assert_eq!(content(&read), content(&said));
        let proofs = |said: &[Said]| {
            said.iter().filter_map(|said| match said {
                Said::Proof(maker, text, _) => Some((*maker, text.clone())),
                _ => None,
            }).collect::<Vec<_>>()
        };
        prop_assert_eq!(proofs(&read), proofs(&said));
    }

    #[test]
    fn no_stream_that_is_cut_is_taken_for_a_whole_one(said in answer(), cut in 0.0..1.0_f64) {
        let stream = written(&said, reply());
        let last = stream.trim_end().rfind("\n\n").expect("several events");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short text")]
        let mut at = (last as f64 * cut) as usize;
        while !stream.is_char_boundary(at) {
            at += 1;
        }

        prop_assert_eq!(read(&stream[..at], 50).1, Err(Broken::Cut));
    }

    #[test]
    fn hostile_events_break_no_reader(kind in "(response\\.)?(output_item\\.(added|done)|output_text\\.delta|completed|[a-z_.]{0,9})", body in "[\\[\\]{}\":,a-z0-9]{0,20}") {
        let stream = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"item\":{{\"type\":\"message\"}},\"delta\":\"x\",\"response\":{{\"output\":[]}},{body}\n\n");
        let _ = read(&stream, 7);
    }
}

#[test]
fn a_stream_opens_items_in_order_and_ends_with_all_of_them() {
    let said = [
        Said::Begin,
        Said::Thinking("hm".to_owned()),
        text("Let me "),
        text("look."),
        call(0, "f", false),
        call(1, "patch", true),
        arguments(1, "*** x"),
        arguments(0, "{\"a\""),
        arguments(0, ":1}"),
        Said::Finish(Finish::ToolCalls),
    ];

    let stream = written(&said, reply());
    let response = accepted(&stream);

    let kinds: Vec<Value> = parsed(&stream)
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    let kinds: Vec<&str> = kinds
        .iter()
        .filter_map(|kind| kind.as_str()?.strip_prefix("response."))
        .collect();
    assert_eq!(
        kinds,
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "output_item.added",
            "custom_tool_call_input.delta",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "custom_tool_call_input.done",
            "output_item.done",
            "completed",
        ]
    );
    assert_eq!(
        response["output"],
        json!([
            {"type": "reasoning", "id": "rs_07_0", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "id": "msg_07_1", "status": "completed", "role": "assistant", "content": [
                {"type": "output_text", "text": "Let me look.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_07_2", "status": "completed", "call_id": "call_0", "name": "f",
                "arguments": "{\"a\":1}"},
            {"type": "custom_tool_call", "id": "ctc_07_3", "status": "completed", "call_id": "call_1",
                "name": "patch", "input": "*** x"},
        ])
    );
}

#[test]
fn a_response_repeats_its_request_and_tells_usage_always() {
    let said = [Said::Begin, text("four letters"), Said::Finish(Finish::Stop)];

    let response = accepted(&written(&said, reply()));

    assert_eq!(
        (&response["id"], &response["model"]),
        (&json!("resp_07"), &json!("public"))
    );
    assert_eq!(
        (&response["created_at"], &response["status"]),
        (&json!(5), &json!("completed"))
    );
    assert_eq!(response["tools"], json!([{"type": "function", "name": "f"}]));
    assert_eq!(
        (&response["temperature"], &response["top_p"]),
        (&json!(0.70), &json!(1.0))
    );
    assert_eq!(
        (&response["store"], &response["metadata"]),
        (&json!(false), &json!({}))
    );
    assert_eq!(response["text"], json!({"format": {"type": "text"}}));
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 7})
    );
}

#[test]
fn how_an_answer_ended_is_told_by_the_last_event_and_by_its_items() {
    let ending = |contents: &[Said], finish| {
        let said = [&[Said::Begin], contents, &[Said::Finish(finish)]].concat();
        let response = accepted(&written(&said, reply()));
        let reason = response["incomplete_details"]["reason"]
            .as_str()
            .map(str::to_owned);
        (
            reason,
            response["output"][0]["status"].as_str().map(str::to_owned),
        )
    };
    let told = |reason: &str, status: &str| (Some(reason.to_owned()), Some(status.to_owned()));

    assert_eq!(
        ending(&[text("x")], Finish::Length),
        told("max_output_tokens", "incomplete")
    );
    assert_eq!(
        ending(&[text("x")], Finish::Refused),
        told("content_filter", "incomplete")
    );
    let refusal = Said::Refusal("no".to_owned());
    assert_eq!(
        ending(&[refusal], Finish::Refused),
        (None, Some("completed".to_owned()))
    );
    let cut = [call(0, "f", false), arguments(0, "{\"a")];
    assert_eq!(
        ending(&cut, Finish::Length),
        told("max_output_tokens", "incomplete")
    );
}

#[test]
fn hidden_thoughts_leave_no_item() {
    let hidden = Reply {
        hides_thinking: true,
        ..reply()
    };
    let said = [
        Said::Begin,
        Said::Thinking("secret".to_owned()),
        Said::Proof(ProofMaker::Anthropic, "p".to_owned(), false),
        call(0, "f", false),
        Said::CallProof(0, ProofMaker::Gemini, "q".to_owned()),
        Said::Finish(Finish::ToolCalls),
    ];

    let stream = written(&said, hidden);

    assert_eq!(accepted(&stream)["output"].as_array().map(Vec::len), Some(1));
    assert!(!stream.contains("secret") && !stream.contains("waybill."));
}

#[test]
fn a_call_of_a_group_and_a_call_without_arguments_are_told_whole() {
    let grouped = Said::Call(0, "c".to_owned(), "f".to_owned(), Some("g".to_owned()), false);

    let response = accepted(&written(
        &[Said::Begin, grouped, Said::Finish(Finish::ToolCalls)],
        reply(),
    ));

    let call = &response["output"][0];
    assert_eq!(
        (&call["namespace"], &call["arguments"]),
        (&json!("g"), &json!("{}"))
    );
}

fn sent(events: &[Value]) -> String {
    let events = events.iter().map(|event| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap_or("x")
        )
    });
    events.collect()
}

#[test]
fn a_server_without_numbers_that_mixes_items_is_understood_however_it_is_cut() {
    // The shape of llama-server's streams.
    let message = |text: &str| json!({"type": "message", "id": "msg_a", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let function = |arguments: &str| json!({"type": "function_call", "id": "fc_a", "call_id": "call_a", "name": "f", "arguments": arguments});
    let events = [
        json!({"type": "response.created", "response": {"id": "resp_a", "object": "response", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "item": {"type": "message", "id": "msg_a", "content": []}}),
        json!({"type": "response.content_part.added", "item_id": "msg_a", "part": {"type": "output_text", "text": ""}}),
        json!({"type": "response.output_text.delta", "item_id": "msg_a", "delta": "In"}),
        json!({"type": "response.output_item.added", "item": function("")}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_a", "delta": "{\"a\":"}),
        json!({"type": "response.output_text.delta", "item_id": "msg_a", "delta": "deed"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_a", "delta": "1}"}),
        json!({"type": "response.output_item.done", "item": message("Indeed")}),
        json!({"type": "response.output_item.done", "item": function("{\"a\":1}")}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [message("Indeed"), function("{\"a\":1}")],
            "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 4}}}, "timings": {}}),
    ];
    let stream = sent(&events);
    let crlf = stream.replace('\n', "\r\n");

    for (stream, size) in (1..80)
        .map(|size| (&stream, size))
        .chain((1..9).map(|size| (&crlf, size)))
    {
        let (said, over) = read(stream, size);

        assert_eq!(over, Ok(()));
        let expected = [
            Said::Begin,
            text("In"),
            Said::Call(0, "call_a".to_owned(), "f".to_owned(), None, false),
            arguments(0, "{\"a\":"),
            text("deed"),
            arguments(0, "1}"),
        ];
        assert_eq!(said[..6], expected);
        assert!(matches!(&said[6], Said::Usage(usage) if usage.cached_tokens == Some(4)));
        assert_eq!(said[7..], [Said::Finish(Finish::ToolCalls)]);
    }
}

#[test]
fn a_truncated_answer_may_end_with_completed_and_thoughts_may_be_told_as_they_were() {
    // The shape of vLLM's streams.
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": {"status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs", "summary": []}}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "item_id": "rs", "content_index": 0, "delta": "a"}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "sum"}),
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 1, "delta": "b"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "other", "summary": [],
            "content": [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": "bc"}]}}),
        json!({"type": "response.completed", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "reasoning", "id": "third", "summary": []}]}}),
    ];

    let (said, over) = read(&sent(&events), 64);

    assert_eq!(over, Ok(()));
    let expected = [
        Said::Begin,
        Said::Thinking("a\n\nbc".to_owned()),
        Said::Finish(Finish::Length),
    ];
    assert_eq!(joined(said), expected);
}

#[test]
fn a_server_that_tells_items_only_when_they_are_whole_is_understood() {
    let call = json!({"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "namespace": "g", "arguments": "{}"});
    let thought = json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "gAAA"});
    let message = json!({"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}]});
    let whole = json!({"type": "response.completed", "response": {"status": "completed", "output": [thought, message, call]}});

    let alone = read(&sent(std::slice::from_ref(&whole)), 9);
    let done = |item: &Value, index: u64| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let each = read(
        &sent(&[done(&thought, 0), done(&message, 1), done(&call, 2), whole]),
        9,
    );

    let expected = vec![
        Said::Begin,
        Said::Thinking("t".to_owned()),
        Said::Proof(ProofMaker::OpenAi, "gAAA".to_owned(), false),
        text("x"),
        Said::Refusal("no".to_owned()),
        Said::Call(0, "c".to_owned(), "f".to_owned(), Some("g".to_owned()), false),
        arguments(0, "{}"),
        Said::Finish(Finish::ToolCalls),
    ];
    assert_eq!(alone, (expected.clone(), Ok(())));
    assert_eq!(each, (expected, Ok(())));
}

#[test]
fn failures_in_a_stream_are_told_and_nothing_is_read_behind_an_end() {
    let failing = |event: Value| match read(&sent(&[event]), 99).1 {
        Err(Broken::Told(error)) => error.message,
        other => panic!("{other:?}"),
    };
    let message = Some("too much".to_owned());

    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "too much"}}});
    assert_eq!(failing(failed), message);
    let completed = json!({"type": "response.completed", "response": {"status": "failed", "error": {"message": "too much"}}});
    assert_eq!(failing(completed), message);
    assert_eq!(
        failing(json!({"type": "error", "code": "x", "message": "too much", "param": null})),
        message
    );
    assert_eq!(failing(json!({"error": {"message": "too much"}})), message);
    let cancelled = json!({"type": "response.cancelled", "response": {}});
    assert_eq!(read(&sent(&[cancelled]), 9).1, Err(Broken::Aborted));
    let end = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
    let behind = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x"});
    let (said, over) = read(&sent(&[end, behind, json!("[DONE]")]), 9);
    assert_eq!((said.len(), over), (2, Ok(())));
}

#[test]
fn calls_get_ids_that_no_other_call_has() {
    let added = |index: u64, id: &str| {
        json!({"type": "response.output_item.added", "output_index": index,
        "item": {"type": "function_call", "call_id": id, "name": "f"}})
    };

    let (said, _) = read(&sent(&[added(0, "c"), added(1, "c"), added(2, "")]), 50);

    let ids: Vec<&str> = said
        .iter()
        .filter_map(|said| match said {
            Said::Call(_, id, ..) => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["c", "call_1_c", "call_2_"]);
}

#[test]
fn a_whole_answer_is_the_object_that_ends_its_stream_and_is_read_back() {
    let said = [
        Said::Begin,
        Said::Thinking("hm".to_owned()),
        Said::Proof(ProofMaker::Anthropic, "sig".to_owned(), false),
        text("x"),
        call(0, "f", false),
        arguments(0, "{}"),
        Said::CallProof(0, ProofMaker::Gemini, "q".to_owned()),
        Said::Finish(Finish::ToolCalls),
    ];
    let end = accepted(&written(&said, reply()));

    let answer = response::decode(end.to_string().as_bytes()).expect("an answer");
    let again: Value = serde_json::from_slice(&response::encode(&answer, &reply())).expect("json");

    assert_eq!(again["output"], end["output"]);
    assert_eq!(answer.finish, Finish::ToolCalls);
    let Answer { parts, .. } = answer;
    assert!(
        matches!(&parts[0], Part::Thinking { text, proof: Some(proof) } if text == "hm" && proof.text == "sig")
    );
    assert!(
        matches!(&parts[2], Part::ToolCall(call) if call.proof.as_ref().is_some_and(|proof| proof.maker == ProofMaker::Gemini))
    );
}
