//! Random conversations, written and read again.

use proptest::prelude::*;

use super::*;
use crate::superset::request::{Call, Effort, Media, Proof, ProofMaker, Role, Turn};
use crate::superset::tool::{Input, Tool, ToolChoice};

fn words() -> impl Strategy<Value = String> {
    "[a-z \"\\\\\n\u{1}é漢🙂]{1,8}"
}

fn say(text: String) -> Part {
    Part::Text { text, cache: None }
}

fn seen() -> impl Strategy<Value = Part> {
    prop_oneof![
        words().prop_map(say),
        Just(Part::Image {
            source: Media::Inline {
                media_type: "image/png".to_owned(),
                data: "AAAA".to_owned(),
            },
            detail: Some("low".to_owned()),
        }),
        words().prop_map(|url| Part::Image {
            source: Media::Url(url),
            detail: None,
        }),
        Just(Part::Audio {
            format: "wav".to_owned(),
            data: "AAAA".to_owned(),
        }),
        Just(Part::File {
            source: Media::Id("f".to_owned()),
            name: Some("n".to_owned()),
        }),
    ]
}

fn proof() -> impl Strategy<Value = Option<Proof>> {
    proptest::option::of(words().prop_map(|text| Proof {
        maker: ProofMaker::Gemini,
        text,
        redacted: false,
    }))
}

/// What a model said, and for each of its calls what the tool gave.
fn turn_of_model() -> impl Strategy<Value = (Vec<Part>, Vec<String>)> {
    let thought =
        proptest::option::of((words(), proof()).prop_map(|(text, proof)| Part::Thinking { text, proof }));
    let calls = proptest::collection::vec((words(), proof(), words()), 0..3);
    (thought, words(), calls).prop_map(|(thought, text, calls)| {
        let mut parts: Vec<Part> = thought.into_iter().collect();
        parts.push(say(text));
        let mut results = Vec::new();
        for (text, proof, result) in calls {
            parts.push(Part::ToolCall(Call {
                id: String::new(),
                name: "f".to_owned(),
                namespace: None,
                arguments: serde_json::json!({ "a": text }).to_string(),
                custom: false,
                proof,
            }));
            results.push(result);
        }
        (parts, results)
    })
}

/// What was asked, what the model said to it, and what its calls gave.
type Round = (Vec<Part>, (Vec<Part>, Vec<String>));

fn turns(system: Option<String>, rounds: Vec<Round>) -> Vec<Turn> {
    let turn = |role, parts| Turn {
        role,
        name: None,
        parts,
    };
    let mut turns: Vec<Turn> = system
        .map(|text| turn(Role::System, vec![say(text)]))
        .into_iter()
        .collect();
    let mut calls = 0;
    for (asked, (mut said, given)) in rounds {
        turns.push(turn(Role::User, joined(asked)));
        let mut results = Vec::new();
        for (part, given) in said
            .iter_mut()
            .filter(|part| matches!(part, Part::ToolCall(_)))
            .zip(given)
        {
            if let Part::ToolCall(call) = part {
                call.id = format!("id{calls}");
                calls += 1;
                results.push(Part::ToolResult {
                    id: call.id.clone(),
                    parts: vec![say(given)],
                    failed: false,
                });
            }
        }
        turns.push(turn(Role::Assistant, said));
        if !results.is_empty() {
            turns.push(turn(Role::Tool, results));
        }
    }
    turns
}

fn conversation() -> impl Strategy<Value = Conversation> {
    let rounds = proptest::collection::vec((proptest::collection::vec(seen(), 1..4), turn_of_model()), 1..4);
    let effort = prop_oneof![
        Just(None),
        Just(Some(Effort::Off)),
        Just(Some(Effort::Low)),
        Just(Some(Effort::ExtraHigh)),
        (1_u64..99).prop_map(|tokens| Some(Effort::Budget(tokens))),
    ];
    let choice = prop_oneof![
        Just(None),
        Just(Some(ToolChoice::Auto)),
        Just(Some(ToolChoice::Required)),
        Just(Some(ToolChoice::Named("f".to_owned()))),
    ];
    (
        proptest::option::of(words()),
        rounds,
        effort,
        choice,
        any::<(bool, Option<u32>, Option<i64>)>(),
    )
        .prop_map(|(system, rounds, effort, tool_choice, (stream, tokens, seed))| {
            let turns = turns(system, rounds);
            let mut conversation = Conversation {
                model: "theirs".to_owned(),
                stream,
                include_usage: stream,
                turns,
                tools: vec![Tool {
                    name: "f".to_owned(),
                    namespace: None,
                    description: Some("d".to_owned()),
                    input: Input::Schema(None),
                    strict: Some(false),
                    cache: None,
                }],
                tool_choice,
                parallel_tool_calls: Some(stream),
                max_tokens: tokens.map(u64::from).filter(|&tokens| tokens > 0),
                ..Conversation::default()
            };
            conversation.reasoning.effort = effort;
            conversation.sampling.seed = seed;
            conversation
        })
}

/// Texts alone are told as one.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
        return parts;
    }
    let texts: Vec<&str> = parts.iter().map(text).collect();
    vec![say(texts.join("\n\n"))]
}

proptest! {
    #[test]
    fn what_is_written_for_a_server_that_takes_everything_is_what_is_read(conversation in conversation()) {
        let encoded = encode(&conversation, &target(profile("openrouter"))).expect("mappable");

        prop_assert!(encoded.dropped.is_empty() && encoded.names.is_empty());
        let read = decode(&encoded.body).expect("a request");
        prop_assert_eq!(format!("{read:?}"), format!("{conversation:?}"));
    }

    #[test]
    fn what_is_written_for_any_server_is_a_request(conversation in conversation()) {
        for name in ["default", "openai", "deepseek", "vllm", "mistral", "groq", "zai", "ollama"] {
            let dropping = Target { drop_params: true, ..target(profile(name)) };
            let encoded = encode(&conversation, &dropping).expect("mappable");

            let read = decode(&encoded.body).expect("a request");
            let count = |turns: &[Turn], role: Role| turns.iter().filter(|turn| turn.role == role).count();
            prop_assert_eq!(count(&read.turns, Role::Tool), count(&conversation.turns, Role::Tool));
            prop_assert_eq!(count(&read.turns, Role::User), count(&conversation.turns, Role::User));
        }
    }

    #[test]
    fn nothing_makes_the_reader_panic(body in "(\\{|\\}|\\[|\\]|\"|,|:|messages|model|role|user|content|tools|type|[a-z]){0,40}") {
        drop(decode(body.as_bytes()));
    }
}
