//! Streams of Messages: a small grammar of the dialect, random answers through the encoder and back, and transcripts.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::superset::request::ProofMaker;
use crate::testing::{self, framed};

mod transcripts;

fn reply() -> Reply {
    Reply {
        id: "0123456789abcdef0123456789abcdef".to_owned(),
        created: 1,
        model: "public".to_owned(),
        prompt_tokens: 7,
        ..testing::reply()
    }
}

/// Checks a whole stream by the grammar of the dialect; its events as JSON.
fn checked(bytes: &[u8]) -> Vec<Value> {
    let mut seen = Vec::new();
    let mut open: Option<(u64, String)> = None;
    let mut next = 0;
    for event in framed(&[bytes]) {
        let data: Value = serde_json::from_slice(&event.data).expect("JSON");
        let kind = data["type"].as_str().expect("a type").to_owned();
        assert_eq!(event.name.as_deref(), Some(kind.as_bytes()));
        assert_eq!(seen.is_empty(), kind == "message_start", "{kind}");
        let last = seen.last().map(|last: &Value| last["type"].clone());
        assert_ne!(last, Some("message_stop".into()), "{kind} after the end");
        match kind.as_str() {
            "message_start" => assert!(data["message"]["usage"]["input_tokens"].is_u64()),
            "content_block_start" => {
                assert_eq!(open, None, "two blocks are open");
                assert_eq!(data["index"], next);
                let kind = data["content_block"]["type"].as_str().expect("a type");
                open = Some((next, kind.to_owned()));
                next += 1;
            }
            "content_block_delta" => {
                let (index, block) = open.as_ref().expect("an open block");
                assert_eq!(data["index"], *index);
                let fits = matches!(
                    (block.as_str(), data["delta"]["type"].as_str()),
                    ("text", Some("text_delta"))
                        | ("thinking", Some("thinking_delta" | "signature_delta"))
                        | ("tool_use", Some("input_json_delta"))
                );
                assert!(fits, "{data} in {block}");
            }
            "content_block_stop" => {
                let (index, _) = open.take().expect("an open block");
                assert_eq!(data["index"], index);
            }
            "message_delta" => {
                assert_eq!(open, None, "a block is open");
                assert!(data["delta"]["stop_reason"].is_string());
                assert!(data["usage"]["input_tokens"].is_u64() && data["usage"]["output_tokens"].is_u64());
            }
            "message_stop" => assert_eq!(last, Some("message_delta".into())),
            other => panic!("{other}"),
        }
        seen.push(data);
    }
    assert_eq!(
        seen.last().map(|last| last["type"].clone()),
        Some("message_stop".into())
    );
    seen
}

/// Encodes a whole answer.
fn encoded(reply: Reply, events: &[Event<'_>]) -> Vec<u8> {
    let mut encoder = Encoder::new(reply);
    let mut out = BytesMut::new();
    for event in events {
        encoder.event(*event, &mut out);
    }
    out.extend_from_slice(&encoder.end());
    assert!(encoder.end().is_empty(), "a second end");
    out.to_vec()
}

/// An answer as it arrives.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
struct Arrived {
    text: String,
    thinking: String,
    proofs: Vec<String>,
    /// Id, name, arguments.
    calls: Vec<(String, String, String)>,
    usage: Option<UsageFacts>,
    finish: Option<(Finish, Option<String>)>,
}

impl Arrived {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Begin | Event::CallProof { .. } => {}
            Event::Thinking(text) => self.thinking.push_str(text),
            Event::Proof { text, .. } => self.proofs.push(text.to_owned()),
            Event::Text(text) | Event::Refusal(text) => self.text.push_str(text),
            Event::Call { call, id, name, .. } => {
                assert_eq!(usize::try_from(call), Ok(self.calls.len()));
                self.calls.push((id.to_owned(), name.to_owned(), String::new()));
            }
            Event::Arguments { call, piece } => {
                let call = usize::try_from(call).expect("small");
                self.calls[call].2.push_str(piece);
            }
            Event::Usage(facts) => self.usage = Some(facts),
            Event::Finish {
                finish,
                stop_sequence,
            } => {
                assert_eq!(self.finish, None);
                self.finish = Some((finish, stop_sequence.map(ToOwned::to_owned)));
            }
        }
    }
}

/// Decodes a stream: what arrived, and whether it was whole.
fn decoded(bytes: &[u8]) -> (Arrived, Result<(), Broken>) {
    let mut decoder = Decoder::default();
    let mut arrived = Arrived::default();
    let mut sink = |event: Event<'_>| arrived.take(event);
    for event in framed(&[bytes]) {
        if event.is_comment() {
            continue;
        }
        if let Err(broken) = decoder.event(&event, &mut sink) {
            return (arrived, Err(broken));
        }
    }
    let whole = decoder.finish(&mut sink);
    (arrived, whole)
}

/// One thing that a model says.
#[derive(Debug, Clone)]
enum Said {
    Text(String),
    Thinking(String),
    Proof(String),
    Call,
    /// More of the arguments of some call.
    More(usize),
    Usage(u64),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        3 => ".{1,5}".prop_map(Said::Text),
        2 => ".{1,5}".prop_map(Said::Thinking),
        1 => "[a-z]{1,4}".prop_map(Said::Proof),
        2 => Just(Said::Call),
        6 => any::<usize>().prop_map(Said::More),
        1 => (0..1000_u64).prop_map(Said::Usage),
    ]
}

/// Arguments, cut into pieces.
fn arguments() -> impl Strategy<Value = Vec<String>> {
    let member = r#"(-?[1-9][0-9]{0,3}|"[a-z {}]{0,4}\\n\\"\\\\[}{]*"|\[\{\},\[1\]\]|null)"#;
    proptest::collection::vec(member, 0..3).prop_flat_map(|values| {
        let members: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(index, value)| format!(r#""k{index}": {value}"#))
            .collect();
        let whole: Vec<char> = format!("{{{}}}", members.join(",")).chars().collect();
        proptest::collection::vec(1..6_usize, whole.len()).prop_map(move |lengths| {
            let mut rest = &whole[..];
            let mut pieces = Vec::new();
            for length in lengths {
                let (piece, after) = rest.split_at(length.min(rest.len()));
                if !piece.is_empty() {
                    pieces.push(piece.iter().collect());
                }
                rest = after;
            }
            pieces
        })
    })
}

/// Tells a script to an encoder, calls interleaved: the bytes, and what should arrive.
fn told(script: &[Said], calls: &[Vec<String>]) -> (Vec<u8>, Arrived) {
    let mut encoder = Encoder::new(reply());
    let mut out = BytesMut::new();
    let mut expected = Arrived::default();
    let mut left: Vec<std::slice::Iter<'_, String>> = Vec::new();
    let mut tell = |event: Event<'_>| {
        if !matches!(event, Event::Usage(_)) {
            expected.take(event);
        }
        encoder.event(event, &mut out);
    };
    tell(Event::Begin);
    let number = |index: usize| u32::try_from(index).expect("few");
    for said in script {
        match said {
            Said::Text(text) => tell(Event::Text(text)),
            Said::Thinking(text) => tell(Event::Thinking(text)),
            Said::Proof(text) => tell(Event::Proof {
                maker: ProofMaker::Anthropic,
                text,
                redacted: false,
            }),
            Said::Call if left.len() < calls.len() => {
                tell(Event::Call {
                    call: number(left.len()),
                    id: &format!("t{}", left.len()),
                    name: "look",
                    namespace: None,
                    custom: false,
                });
                left.push(calls[left.len()].iter());
            }
            Said::More(which) if !left.is_empty() => {
                let index = which % left.len();
                if let Some(piece) = left[index].next() {
                    tell(Event::Arguments {
                        call: number(index),
                        piece,
                    });
                }
            }
            Said::Usage(output) => tell(Event::Usage(UsageFacts {
                prompt_tokens: Some(9),
                completion_tokens: Some(*output),
                ..UsageFacts::default()
            })),
            Said::Call | Said::More(_) => {}
        }
    }
    for (index, pieces) in left.into_iter().enumerate() {
        for piece in pieces {
            tell(Event::Arguments {
                call: number(index),
                piece,
            });
        }
    }
    tell(Event::Finish {
        finish: Finish::Stop,
        stop_sequence: None,
    });
    out.extend_from_slice(&encoder.end());
    (out.to_vec(), expected)
}

proptest! {
    #[test]
    fn whatever_order_things_come_in_the_stream_is_legal_and_nothing_is_lost(
        script in proptest::collection::vec(said(), 0..40),
        calls in proptest::collection::vec(arguments(), 0..4),
    ) {
        let (bytes, mut expected) = told(&script, &calls);

        checked(&bytes);
        let (mut arrived, whole) = decoded(&bytes);

        prop_assert_eq!(whole, Ok(()));
        let calls = !expected.calls.is_empty();
        expected.finish = Some((if calls { Finish::ToolCalls } else { Finish::Stop }, None));
        arrived.proofs.retain(|proof| proof != proof::UNPROVED);
        arrived.usage = None;
        prop_assert_eq!(arrived, expected);
    }

    #[test]
    fn no_upstream_can_make_the_decoder_panic(
        lines in proptest::collection::vec(
            prop_oneof![
                Just(r#"{"type":"message_start","message":{}}"#.to_owned()),
                Just(r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":[]}}"#.to_owned()),
                Just(r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"x"}}"#.to_owned()),
                Just(r#"{"type":"content_block_stop","index":0}"#.to_owned()),
                Just(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":-1}}"#.to_owned()),
                Just(r#"{"type":"message_stop"}"#.to_owned()),
                ".{0,20}",
            ],
            0..10,
        ),
    ) {
        let stream = format!("data: {}\n\n", lines.join("\n\ndata: "));

        let _ = decoded(stream.as_bytes());
    }
}
