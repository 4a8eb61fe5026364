//! Streams for callers.

use proptest::prelude::*;

use super::*;
use crate::chat::usage::UsageFacts;

const STOP: Event<'_> = Event::Finish {
    finish: Finish::Stop,
    stop_sequence: None,
};

fn call<'a>(call: u32, id: &'a str, name: &'a str) -> Event<'a> {
    Event::Call {
        call,
        id,
        name,
        namespace: None,
        custom: false,
    }
}

fn usage() -> UsageFacts {
    let told = r#"{"prompt_tokens":17,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3}}"#;
    UsageFacts::read(told).expect("usage")
}

#[test]
fn a_stream_is_the_role_the_pieces_the_end_the_usage_and_the_mark() {
    let written = encoded(
        reply(),
        &[Event::Begin, Event::Text("a\n"), Event::Usage(usage()), STOP],
    );

    let head = r#"data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":["#;
    let expected = [
        format!(r#"{head}{{"index":0,"delta":{{"role":"assistant"}},"finish_reason":null}}]}}"#),
        format!(r#"{head}{{"index":0,"delta":{{"content":"a\n"}},"finish_reason":null}}]}}"#),
        format!(r#"{head}{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}"#),
        format!(
            r#"{head}],"usage":{{"prompt_tokens":17,"completion_tokens":5,"total_tokens":22,"prompt_tokens_details":{{"cached_tokens":4,"cache_write_tokens":3}},"completion_tokens_details":{{"reasoning_tokens":0}}}}}}"#
        ),
        "data: [DONE]".to_owned(),
    ];
    assert_eq!(written, format!("{}\n\n", expected.join("\n\n")));
}

#[test]
fn usage_is_for_callers_who_asked_for_it() {
    let reply = Reply {
        include_usage: false,
        ..reply()
    };

    assert!(!encoded(reply, &[Event::Begin, Event::Usage(usage()), STOP]).contains("usage"));
}

#[test]
fn thoughts_are_hidden_with_all_that_proves_them() {
    let events = [
        Event::Begin,
        Event::Thinking("hm"),
        Event::Proof {
            maker: ProofMaker::Anthropic,
            text: "sig",
            redacted: false,
        },
        Event::Text("a"),
        STOP,
    ];
    let hiding = Reply {
        hides_thinking: true,
        ..reply()
    };

    let shown = encoded(reply(), &events);

    assert!(!encoded(hiding, &events).contains("reasoning"));
    assert!(shown.contains(r#""delta":{"reasoning_content":"hm"}"#));
    assert!(shown.contains(
        r#""reasoning_details":[{"type":"reasoning.text","signature":"sig","format":"anthropic-claude-v1","index":0}]"#
    ));
}

#[test]
fn a_call_without_arguments_has_those_of_an_empty_object() {
    let written = encoded(reply(), &[Event::Begin, call(0, "a", "f"), STOP]);

    assert!(written.contains(
        r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}"#
    ));
    assert!(written.contains(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#));
    assert!(written.contains(r#""finish_reason":"tool_calls""#));
}

/// What random answers are made of.
fn pieces() -> impl Strategy<Value = Vec<Said>> {
    let text = || "[a-z\"\\\\\u{0}-\u{1f}é漢🙂]{1,8}";
    let one = prop_oneof![
        text().prop_map(Said::Thinking),
        text().prop_map(Said::Text),
        text().prop_map(Said::Refusal),
        text().prop_map(|text| Said::Proof(ProofMaker::Anthropic, text, false)),
        text().prop_map(|text| Said::Proof(ProofMaker::OpenAi, text, true)),
        Just(Said::Begin),
        (0_u32..4, text()).prop_map(|(call, text)| Said::Arguments(call, text)),
        (0_u32..4, text()).prop_map(|(call, text)| Said::CallProof(call, ProofMaker::Gemini, text)),
    ];
    proptest::collection::vec(one, 0..12)
}

/// Makes of pieces what the rules of events allow: `Begin` stands for a new call.
fn lawful(pieces: Vec<Said>) -> Vec<Said> {
    let mut calls = 0;
    let mut said = vec![Said::Begin];
    let mut opened = Vec::new();
    for piece in pieces {
        match piece {
            Said::Begin => {
                said.push(Said::Call(
                    calls,
                    format!("id{calls}"),
                    format!("f{calls}"),
                    None,
                    calls % 2 == 1,
                ));
                opened.push(false);
                calls += 1;
            }
            Said::Arguments(call, text) if call < calls => {
                let begins = !opened[call as usize] && call % 2 == 0;
                opened[call as usize] = true;
                let text = if begins { format!("{{{text}") } else { text };
                said.push(Said::Arguments(call, text));
            }
            Said::CallProof(call, ..) if call >= calls => {}
            Said::Arguments(..) => {}
            piece => said.push(piece),
        }
    }
    said
}

/// All that was said by kind, in order; when a call is told of is not compared.
fn by_kind(said: &[Said]) -> (String, String, String, Vec<Said>, Vec<(Said, String)>) {
    let (mut thoughts, mut text, mut refusal) = (String::new(), String::new(), String::new());
    let (mut others, mut calls): (Vec<Said>, Vec<(Said, String)>) = (Vec::new(), Vec::new());
    for said in said {
        match said {
            Said::Thinking(more) => thoughts.push_str(more),
            Said::Text(more) => text.push_str(more),
            Said::Refusal(more) => refusal.push_str(more),
            Said::Call(..) => calls.push((said.clone(), String::new())),
            Said::Arguments(call, more) => calls[*call as usize].1.push_str(more),
            other => others.push(other.clone()),
        }
    }
    for (call, arguments) in &mut calls {
        if arguments.is_empty() && matches!(call, Said::Call(.., false)) {
            arguments.push_str("{}");
        }
    }
    (thoughts, text, refusal, others, calls)
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(pieces in pieces(), length in any::<bool>()) {
        let mut said = lawful(pieces);
        let calls = said.iter().any(|said| matches!(said, Said::Call(..)));
        let finish = match (length, calls) {
            (true, _) => Finish::Length,
            (false, true) => Finish::ToolCalls,
            (false, false) => Finish::Stop,
        };
        said.push(Said::Finish(finish, None));
        let events: Vec<Event<'_>> = said.iter().map(Said::event).collect();

        let written = encoded(reply(), &events);
        let heard = decoded(&framed(&[written.as_bytes()]));

        prop_assert_eq!(heard.broken, None);
        prop_assert!(heard.ended);
        prop_assert_eq!(by_kind(&heard.said), by_kind(&said));
    }

    #[test]
    fn nothing_makes_the_reader_panic(stream in "(data: |\\{|\\}|\\[|\\]|\"|,|:|choices|delta|tool_calls|index|id|0|function|arguments|name|\n|[a-z]){0,60}") {
        decoded(&framed(&[stream.as_bytes()]));
    }

    #[test]
    fn chunks_are_heard_as_when_each_is_parsed(chunks in proptest::collection::vec(alike(), 1..20)) {
        let (mut apart, mut decoder) = (Vec::new(), Decoder::default());
        let mut together = Vec::new();
        let begin = r#"data: {"choices":[]}"#;
        for chunk in std::iter::once(begin.to_owned()).chain(chunks) {
            let events = framed(&[format!("{chunk}\n\n").as_bytes()]);
            let mut fresh = Decoder::default();
            let first = framed(&[format!("{begin}\n\n").as_bytes()]);
            fresh.event(&first[0], &mut |_: Event<'_>| {}).expect("a beginning");
            let alone = fresh.event(&events[0], &mut |event: Event<'_>| apart.push(format!("{event:?}")));
            let after = decoder.event(&events[0], &mut |event: Event<'_>| together.push(format!("{event:?}")));
            prop_assert_eq!(&after, &alone);
            if after.is_err() {
                break;
            }
        }
        prop_assert_eq!(&together[1..], &apart[..]);
    }
}

/// Chunks of a few shapes around a text, which may also break out of its string.
fn alike() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[a-zé ]{0,5}",
        1 => Just(r#"a\n\"b"#.to_owned()),
        1 => Just(r#"x","role":"y"#.to_owned()),
        1 => Just(r#"x","reasoning":"y"#.to_owned()),
        1 => Just(r#"x","content":"y"#.to_owned()),
        1 => Just(r#"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1},"a":[{"b":{"c":"d"#.to_owned()),
    ];
    let frame = prop_oneof![
        6 => Just((r#"{"id":"1","choices":[{"index":0,"delta":{"content":""#, r#""}}]}"#)),
        2 => Just((r#"{"choices":[{"index":0,"delta":{"reasoning_content":""#, r#""}}],"model":"m"}"#)),
        1 => Just((r#"{"choices":[{"delta":{"reasoning":"r","content":""#, r#""}}]}"#)),
        1 => Just((r#"{"choices":[{"delta":{"content":"r","reasoning":""#, r#""}}]}"#)),
        1 => Just((r#"{"choices":[{"delta":{"refusal":""#, r#""}}]}"#)),
        1 => Just((r#"{"choices":[{"index":1,"delta":{"content":""#, r#""}}]}"#)),
        1 => Just((r#"{"choices":[{"index":0,"delta":{"content":""#, r#""}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#)),
    ];
    (frame, text).prop_map(|((before, after), text)| format!("data: {before}{text}{after}"))
}
