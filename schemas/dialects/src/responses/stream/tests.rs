//! Streams in both directions: a grammar of the dialect's events, the machines against it, and what servers send.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::chat::usage::UsageFacts;
use crate::superset::answer::Finish;
use crate::superset::request::ProofMaker;
use crate::testing::{self, Said, framed_whole, joined};

mod reads;
mod writes;

pub(in crate::responses) fn reply() -> Reply {
    Reply {
        model: "public".to_owned(),
        request: Bytes::from_static(
            br#"{"model":"public","input":"hi","tools":[
                {"type":"function","name":"f"}],"temperature":0.70,"metadata":null,"store":false}"#,
        ),
        ..testing::reply()
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

/// An item, the names and texts of its pieces, and whether it is done.
type Opened = (Value, Vec<(String, String)>, bool);

/// The grammar: numbers without gaps; a beginning; items one after another, whose pieces are what they close with; an end
/// that repeats them. Gives the response of the end.
fn accepted(stream: &str) -> Value {
    let events = parsed(stream);
    let mut open: Vec<Opened> = Vec::new();
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
                assert!(
                    open.iter().all(|(_, _, closed)| *closed),
                    "one after another: {event}"
                );
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
    let mut sink = |event: Event<'_>| said.push(Said::of(event));
    let pieces: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
    let events = framed_whole(&pieces);
    let mut events = events.iter().filter(|event| !event.is_comment());
    let read = events.try_for_each(|event| decoder.event(event, &mut sink));
    let over = read.and_then(|()| decoder.finish(&mut sink));
    (said, over)
}

/// The arguments of each call, whole, right behind it, and then what proves it: several calls may have come mixed.
fn sorted(said: Vec<Said>) -> Vec<Said> {
    let (arguments, rest): (Vec<Said>, Vec<Said>) = said
        .into_iter()
        .partition(|said| matches!(said, Said::Arguments(..)));
    let (proofs, mut rest): (Vec<Said>, Vec<Said>) = rest
        .into_iter()
        .partition(|said| matches!(said, Said::CallProof(..)));
    let number = |said: &Said| match said {
        Said::Call(number, ..) | Said::Arguments(number, _) | Said::CallProof(number, ..) => Some(*number),
        _ => None,
    };
    for piece in arguments.into_iter().chain(proofs) {
        let of = number(&piece);
        let at = rest
            .iter()
            .rposition(|said| number(said) == of)
            .expect("its call");
        match (rest.get_mut(at), &piece) {
            (Some(Said::Arguments(_, all)), Said::Arguments(_, text)) => all.push_str(text),
            _ => rest.insert(at + 1, piece),
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
        // Of each call, whether its arguments may go on with anything: those of a function are an object.
        let mut begun: Vec<bool> = Vec::new();
        for content in contents {
            said.push(match content {
                Said::Call(_, _, name, namespace, custom) => {
                    calls += 1;
                    begun.push(custom);
                    Said::Call(calls - 1, format!("call_{calls}"), name, namespace, custom)
                }
                Said::Arguments(..) | Said::CallProof(..) if calls == 0 => continue,
                Said::Arguments(call, piece) => {
                    let call = call % calls;
                    let begun = &mut begun[usize::try_from(call).expect("small")];
                    let piece = if *begun { piece } else { format!("{{{piece}") };
                    *begun = true;
                    Said::Arguments(call, piece)
                }
                Said::CallProof(call, maker, text) => Said::CallProof(call % calls, maker, text),
                other => other,
            });
        }
        if used {
            let usage = r#"{"prompt_tokens":9,"completion_tokens":7,"total_tokens":16,
                "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}"#;
            said.push(Said::Usage(UsageFacts::read(usage).expect("usage")));
        }
        said.push(Said::Finish(finish, None));
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
            let words = said.iter().filter(|said| !matches!(said, Said::Usage(_) | Said::Finish(..) | Said::Proof(..)));
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
