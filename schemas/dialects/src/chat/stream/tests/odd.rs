//! Servers that are odd, one oddity each.

use super::*;

fn calls(choices: &[&str]) -> Vec<(String, String, String)> {
    let heard = heard(choices);
    assert_eq!(heard.broken, None, "{heard:?}");
    assert_eq!(heard.said.last(), Some(&Said::Finish(Finish::ToolCalls, None)));
    let mut calls: Vec<(String, String, String)> = Vec::new();
    for said in heard.said {
        match said {
            Said::Call(call, id, name, ..) => {
                assert_eq!(usize::try_from(call), Ok(calls.len()));
                calls.push((id, name, String::new()));
            }
            Said::Arguments(call, piece) => calls[call as usize].2.push_str(&piece),
            _ => {}
        }
    }
    calls
}

fn owned(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.to_owned(), name.to_owned(), arguments.to_owned())
}

#[test]
fn a_name_in_pieces_is_put_together() {
    let calls = calls(&[
        &delta(r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"get_"}}]}"#),
        &delta(r#"{"tool_calls":[{"index":0,"function":{"name":"weather"}}]}"#),
        &delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}"#),
        &delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\"Boston\"}"}}]}"#),
        &end("stop"),
    ]);

    assert_eq!(calls, [owned("c", "get_weather", r#"{"city":"Boston"}"#)]);
}

#[test]
fn calls_without_numbers_are_told_apart_by_their_ids() {
    let calls = calls(&[
        &delta(r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}"#),
        &delta(r#"{"tool_calls":[{"id":"a","function":{"arguments":"1}"}}]}"#),
        &delta(r#"{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]}"#),
        &end("tool_calls"),
    ]);

    assert_eq!(calls, [owned("a", "f", r#"{"x":1}"#), owned("b", "f", "{}")]);
}

#[test]
fn calls_of_one_id_that_is_repeated_with_each_piece_are_told_apart_by_their_numbers() {
    let piece = |call: u32, arguments: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":{call},"id":"same","function":{{"name":"f{call}","arguments":"{arguments}"}}}}]}}"#
        ))
    };
    let calls = calls(&[
        &piece(0, r#"{\"a\":"#),
        &piece(1, r#"{\"b\":"#),
        &piece(0, "1}"),
        &piece(1, "2}"),
        &end("tool_calls"),
    ]);

    let said: Vec<(&str, &str)> = calls
        .iter()
        .map(|call| (call.1.as_str(), call.2.as_str()))
        .collect();
    assert_eq!(said, [("f0", r#"{"a":1}"#), ("f1", r#"{"b":2}"#)]);
    assert_eq!(calls[0].0, "same");
    assert_ne!(calls[1].0, "same");
}

#[test]
fn calls_without_numbers_and_ids_are_told_apart_by_their_names() {
    let calls = calls(&[
        &delta(
            r#"{"tool_calls":[{"function":{"name":"f","arguments":{"x": 1.0}}},{"function":{"name":"g","arguments":{}}}]}"#,
        ),
        &end("stop"),
    ]);

    assert_eq!((calls[0].1.as_str(), calls[0].2.as_str()), ("f", r#"{"x":1.0}"#));
    assert_eq!((calls[1].1.as_str(), calls[1].2.as_str()), ("g", "{}"));
    assert!(calls[0].0 != calls[1].0 && calls[0].0.starts_with("call_"));
}

#[test]
fn calls_that_all_have_the_number_0_are_told_apart() {
    let calls = calls(&[
        &delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#),
        &delta(r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#),
        &end("tool_calls"),
    ]);

    assert_eq!(calls, [owned("a", "f", "{}"), owned("b", "g", "{}")]);
}

#[test]
fn ids_and_names_that_are_repeated_are_read_once() {
    let piece = |arguments: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"f","arguments":"{arguments}"}}}}]}}"#
        ))
    };

    let calls = calls(&[&piece(""), &piece("{"), &piece("}"), &end("tool_calls")]);

    assert_eq!(calls, [owned("a", "f", "{}")]);
}

#[test]
fn calls_in_turns_keep_their_arguments_apart() {
    let calls = calls(&[
        &delta(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}"#,
        ),
        &delta(r#"{"tool_calls":[{"index":1,"function":{"arguments":"{\"b\":"}}]}"#),
        &delta(
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}},{"index":1,"function":{"arguments":"2}"}}]}"#,
        ),
        &delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}"#),
        &end("tool_calls"),
    ]);

    assert_eq!(
        calls,
        [owned("a", "f", r#"{"a":1}"#), owned("b", "g", r#"{"b":2}"#)]
    );
}

#[test]
fn an_id_that_another_call_has_is_replaced() {
    let calls = calls(&[
        &delta(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"a","function":{"name":"g","arguments":"{}"}}]}"#,
        ),
        &end("tool_calls"),
    ]);

    assert_eq!(calls[0].0, "a");
    assert!(calls[1].0.starts_with("call_"));
}

#[test]
fn arguments_that_are_an_object_only_by_intention_are_mended_and_others_break_the_answer() {
    let with = |arguments: &str, reason: &str| {
        heard(&[
            &delta(&format!(
                r#"{{"tool_calls":[{{"index":0,"id":"a","function":{{"name":"f","arguments":{arguments}}}}}]}}"#
            )),
            &end(reason),
        ])
    };
    let arguments = |heard: &Heard| {
        heard.said.iter().find_map(|said| match said {
            Said::Arguments(_, text) => Some(text.clone()),
            _ => None,
        })
    };

    assert_eq!(arguments(&with("null", "stop")), None);
    assert_eq!(arguments(&with(r#""null""#, "stop")).as_deref(), Some("{}"));
    assert_eq!(
        arguments(&with(r#""\"{\\\"a\\\":1}\"""#, "stop")).as_deref(),
        Some(r#"{"a":1}"#)
    );
    assert_eq!(
        arguments(&with(r#"" {\"a\":""#, "length")).as_deref(),
        Some(r#" {"a":"#)
    );
    assert_eq!(with(r#""true""#, "tool_calls").broken, Some(Broken::Malformed));
    assert_eq!(with(r#""[1]""#, "stop").broken, Some(Broken::Malformed));
}

#[test]
fn the_older_form_of_a_call_is_a_call() {
    let calls = calls(&[
        &delta(r#"{"function_call":{"name":"f","arguments":""}}"#),
        &delta(r#"{"function_call":{"arguments":"{}"}}"#),
        &end("function_call"),
    ]);

    assert_eq!((calls[0].1.as_str(), calls[0].2.as_str()), ("f", "{}"));
}

#[test]
fn a_chunk_may_have_text_and_the_end_and_thoughts_have_many_names() {
    let heard = heard(&[
        &delta(r#"{"role":"assistant","content":null,"reasoning":"h"}"#),
        &delta(
            r#"{"reasoning_content":"m","reasoning":"m","reasoning_details":[{"type":"reasoning.text","text":"m"}]}"#,
        ),
        &delta(
            r#"{"reasoning_details":[{"type":"reasoning.text","text":".","signature":"s","format":"anthropic-claude-v1"}]}"#,
        ),
        &delta(
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"!"}]},{"type":"text","text":"y"}]}"#,
        ),
        r#"{"delta":{"content":"es\n"},"finish_reason":"stop","stop_reason":"END"}"#,
    ]);

    assert_eq!(
        heard.said,
        [
            Said::Begin,
            Said::Thinking("hm.".to_owned()),
            Said::Proof(ProofMaker::Anthropic, "s".to_owned(), false),
            Said::Thinking("!".to_owned()),
            Said::Text("yes\n".to_owned()),
            Said::Finish(Finish::StopSequence, Some("END".to_owned())),
        ]
    );
    assert!(heard.ended && heard.broken.is_none());
}

#[test]
fn the_end_fits_the_turn() {
    let text = delta(r#"{"content":"x"}"#);
    let call = delta(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#);
    let finish = |choices: &[&str]| match heard(choices).said.pop() {
        Some(Said::Finish(finish, _)) => Some(finish),
        _ => None,
    };

    assert_eq!(finish(&[&text, &end("tool_calls")]), Some(Finish::Stop));
    assert_eq!(finish(&[&call, &end("stop")]), Some(Finish::ToolCalls));
    assert_eq!(finish(&[&call, &end("length")]), Some(Finish::Length));
    assert_eq!(finish(&[&text, &end("content_filter")]), Some(Finish::Refused));
    assert_eq!(finish(&[&text, &end("something")]), Some(Finish::Stop));
}

#[test]
fn a_failure_is_never_an_end() {
    let text = delta(r#"{"content":"x"}"#);
    let after = |frame: &str| {
        let stream = format!("data: {{\"choices\":[{text}]}}\n\n{frame}\n\n");
        decoded(&framed(&[stream.as_bytes()])).broken
    };
    let told = |broken: Option<Broken>| match broken {
        Some(Broken::Told(error)) => error.message,
        _ => None,
    };

    assert_eq!(
        told(after(r#"data: {"error":{"message":"full","code":403}}"#)).as_deref(),
        Some("full")
    );
    assert_eq!(
        told(after(
            r#"data: {"error":{"message":"gone"},"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}"#
        ))
        .as_deref(),
        Some("gone")
    );
    assert_eq!(
        told(after("event: error\ndata: {\"message\":\"no\"}")).as_deref(),
        Some("no")
    );
    assert_eq!(
        after(&format!("data: {{\"choices\":[{}]}}", end("abort"))),
        Some(Broken::Aborted)
    );
    assert_eq!(after("data: [DONE]"), Some(Broken::Cut));
    assert_eq!(after(": nothing"), Some(Broken::Cut));
    assert_eq!(after("data: {\"choices\":[{"), Some(Broken::Malformed));
    assert_eq!(
        after(&format!("data: {{\"error\":null,\"choices\":[{}]}}", end("stop"))),
        None
    );
    assert_eq!(decoded(&framed(&[b"data: {}\n\n"])).broken, Some(Broken::Empty));
    assert_eq!(decoded(&framed(&[])).broken, Some(Broken::Empty));
}

#[test]
fn content_after_the_end_breaks_the_answer_and_a_second_end_does_not() {
    let text = delta(r#"{"content":"x"}"#);
    let nothing = delta(r#"{"content":""}"#);

    assert_eq!(heard(&[&text, &end("stop"), &nothing, &end("stop")]).broken, None);
    assert_eq!(
        heard(&[&text, &end("stop"), &text]).broken,
        Some(Broken::Malformed)
    );
}

#[test]
fn usage_counts_wherever_it_is_told_and_the_last_one_does() {
    let of = |frames: &[&str]| {
        let mut stream = vec![format!("data: {{\"choices\":[{}]}}\n\n", end("stop"))];
        for frame in frames {
            stream.push(format!("data: {{\"choices\":[],{frame}}}\n\n"));
        }
        let stream = stream.concat();
        decoded(&framed(&[stream.as_bytes()])).usage
    };

    assert_eq!(
        of(&[r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#]),
        Some((3, 4))
    );
    assert_eq!(
        of(&[r#""x_groq":{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#]),
        Some((3, 4))
    );
    assert_eq!(
        of(&[r#""timings":{"prompt_n":2,"cache_n":1,"predicted_n":4}"#]),
        Some((3, 4))
    );
    assert_eq!(
        of(&[
            r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#,
            r#""usage":{"prompt_tokens":3,"completion_tokens":5}"#,
            r#""usage":null,"timings":{"prompt_n":9,"predicted_n":9}"#,
        ]),
        Some((3, 5))
    );
}

#[test]
fn an_answer_has_a_bounded_number_of_calls() {
    let call = delta(r#"{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}"#);
    let many = vec![call.as_str(); 1025];

    assert_eq!(heard(&many).broken, Some(Broken::Malformed));
}

#[test]
fn a_signature_of_a_call_is_told() {
    let heard = heard(&[
        &delta(
            r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig"}}}]}"#,
        ),
        &end("stop"),
    ]);

    assert!(
        heard
            .said
            .contains(&Said::CallProof(0, ProofMaker::Gemini, "sig".to_owned()))
    );
}
