//! Texts of models, cut anywhere.

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

fn tools() -> Vec<Tool> {
    let schema = r#"{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}"#;
    let schema: Box<RawValue> = serde_json::from_str(schema).expect("a schema");
    vec![Tool {
        name: "weather".to_owned(),
        namespace: None,
        description: None,
        input: crate::superset::tool::Input::Schema(Some(schema)),
        strict: None,
        cache: None,
    }]
}

/// The events of a text that comes in `pieces`, like events joined.
fn read(kind: Kind, pieces: &[&str]) -> Vec<String> {
    read_until(kind, pieces, Finish::Stop)
}

/// The same of a text that ends for some reason.
fn read_until(kind: Kind, pieces: &[&str], finish: Finish) -> Vec<String> {
    let mut processor = Processor::new(kind, &tools(), "00000000000000000000000000000007");
    let mut events: Vec<String> = Vec::new();
    let mut sink = |event: Event<'_>| {
        let (word, text) = match event {
            Event::Text(text) => ("text ", text.to_owned()),
            Event::Thinking(text) => ("thought ", text.to_owned()),
            Event::Call { call, id, name, .. } => ("call ", format!("{call} {id} {name}")),
            Event::Arguments { call, piece } => ("arguments ", format!("{call} {piece}")),
            Event::Finish { finish, .. } => ("finish ", format!("{finish:?}")),
            _ => ("other", String::new()),
        };
        match events.last_mut() {
            Some(last) if last.starts_with(word) && matches!(word, "text " | "thought ") => {
                last.push_str(&text);
            }
            _ => events.push(format!("{word}{text}")),
        }
    };
    for piece in pieces {
        processor.event(Event::Text(piece), &mut sink);
    }
    let finish = Event::Finish {
        finish,
        stop_sequence: None,
    };
    processor.event(finish, &mut sink);
    events
}

#[test]
fn thoughts_and_calls_of_glm_are_events() {
    let text = "<think>hm</think>\n\nSure. <tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>7</arg_value>\n\
                <arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";

    assert_eq!(
        read(Kind::Glm, &[text]),
        [
            "thought hm",
            "text Sure. ",
            "call 0 call_70000000000000000000_0 weather",
            r#"arguments 0 {"city":"7","days":3}"#,
            "finish ToolCalls",
        ]
    );
}

#[test]
fn several_calls_of_qwen_have_ids_of_their_own_also_when_the_last_is_not_closed() {
    let text = "<tool_call>\n<function=weather>\n<parameter=city>\nBad\nEms\n</parameter>\n</function>\n</tool_call>\n\
                <tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n</function>\n";

    assert_eq!(
        read(Kind::Qwen, &[text]),
        [
            "call 0 call_70000000000000000000_0 weather",
            r#"arguments 0 {"city":"Bad\nEms"}"#,
            "call 1 call_70000000000000000000_1 weather",
            r#"arguments 1 {"days":2}"#,
            "finish ToolCalls",
        ]
    );
}

#[test]
fn a_call_that_broke_off_is_text_and_none_of_its_values_is_made_whole() {
    let qwen = [
        "<tool_call>\n<function=weather>\n<parameter=city>\npa",
        "<tool_call>\n<function=weather>\n<parameter=city>\nparis\n</parameter>",
        "<tool_call>\n<function=weather>",
        "<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"pa",
        "<tool_call><function=weather></function><function=weather><parameter=days>1",
        "<tool_call><function=weather><parameter=city>pa</function></tool_call>",
    ];
    let glm = [
        "<tool_call>weath",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>pa",
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>paris</arg_value>\n<arg_key>days",
        "<tool_call>weather<arg_key>city</arg_key><arg_value>pa</tool_call>",
    ];
    let texts = qwen.map(|text| (Kind::Qwen, text)).into_iter();
    for (kind, text) in texts.chain(glm.map(|text| (Kind::Glm, text))) {
        for finish in [Finish::Stop, Finish::ToolCalls, Finish::Length] {
            let expected = [format!("text Sure.{text}"), format!("finish {finish:?}")];
            assert_eq!(read_until(kind, &["Sure.", text], finish), expected);
        }
    }
}

#[test]
fn a_call_that_lacks_its_last_tag_alone_is_one_unless_the_answer_was_broken_off() {
    for (kind, text) in [
        (
            Kind::Qwen,
            "<tool_call>\n<function=weather>\n<parameter=city>\nparis\n</parameter>\n</function>\n",
        ),
        (
            Kind::Qwen,
            r#"<tool_call>{"name":"weather","arguments":{"city":"paris"}}"#,
        ),
        (
            Kind::Glm,
            "<tool_call>weather<arg_key>city</arg_key><arg_value>paris</arg_value>",
        ),
    ] {
        let called = [
            "call 0 call_70000000000000000000_0 weather",
            r#"arguments 0 {"city":"paris"}"#,
            "finish ToolCalls",
        ];
        assert_eq!(read(kind, &[text]), called, "{text}");
        for finish in [Finish::Length, Finish::ContextFull, Finish::Refused] {
            let expected = [format!("text {text}"), format!("finish {finish:?}")];
            assert_eq!(read_until(kind, &[text], finish), expected);
        }
    }
    // The end of the block ends the function.
    assert_eq!(
        read(
            Kind::Qwen,
            &["<tool_call><function=weather><parameter=days>2</parameter></tool_call>"]
        )[1],
        r#"arguments 0 {"days":2}"#
    );
}

#[test]
fn a_block_that_is_no_call_and_a_lonely_bracket_stay_text() {
    let text = "a < b, <tool_call>no call <b>at all</b></tool_call> end <thi";

    assert_eq!(
        read(Kind::Glm, &[text]),
        [format!("text {text}"), "finish Stop".to_owned()]
    );
}

#[test]
fn a_call_written_as_json_is_a_call() {
    let text = r#"<tool_call>{"name": "weather", "arguments": {"city": "x"}}</tool_call>"#;

    assert_eq!(
        read(Kind::Qwen, &[text]),
        [
            "call 0 call_70000000000000000000_0 weather",
            r#"arguments 0 {"city": "x"}"#,
            "finish ToolCalls",
        ]
    );
}

#[test]
fn a_function_of_an_offered_tool_is_a_call_without_a_block_around_it() {
    let function = "<function=weather>\n<parameter=city>\nx\n</parameter>\n</function>";
    let call = [
        "call 0 call_70000000000000000000_0 weather",
        r#"arguments 0 {"city":"x"}"#,
    ];

    for (before, after) in [("", ""), ("", "\n</tool_call>"), ("So: ", "\n</tool_call>\n")] {
        let mut expected: Vec<String> = call.map(str::to_owned).to_vec();
        if !before.is_empty() {
            expected.insert(0, format!("text {before}"));
        }
        expected.push("finish ToolCalls".to_owned());
        let text = format!("{before}{function}{after}");
        assert_eq!(read(Kind::Qwen, &[&text]), expected, "{text}");
    }
    let two = format!("{function}\n{function}\n</tool_call>\ndone </tool_call>");
    let events = read(Kind::Qwen, &[&two]);
    assert_eq!(events.len(), 6, "{events:?}");
    assert_eq!(events[4], "text done </tool_call>");
}

#[test]
fn what_only_begins_like_a_function_stays_text() {
    let whole = "<tool_call><function=weather></function></tool_call>";
    for text in [
        "<function=other><parameter=a>1</parameter></function>",
        "<function=weather><parameter=city>x</parameter>",
        "<function=weather>, they say, </function>",
        "write <function=NAME> and </function>",
        "<function=weather",
        "<function=",
    ] {
        assert_eq!(
            read(Kind::Qwen, &[text]),
            [format!("text {text}"), "finish Stop".to_owned()]
        );
        let before = read(Kind::Qwen, &[text, " ", whole]);
        assert_eq!(
            before.last().map(String::as_str),
            Some("finish ToolCalls"),
            "{text}"
        );
        assert_eq!(before[0], format!("text {text} "));
    }
    let glm = "<function=weather></function>";
    assert_eq!(read(Kind::Glm, &[glm])[0], format!("text {glm}"));
}

#[test]
fn a_thought_alone_leaves_tags_of_calls_in_the_text() {
    assert_eq!(
        read(Kind::ThinkBlock, &["<think>a", "b</think>\nc<tool_call>"]),
        ["thought ab", "text c<tool_call>", "finish Stop"]
    );
}

#[test]
fn calls_of_the_upstream_and_calls_in_text_are_numbered_together() {
    let mut processor = Processor::new(Kind::Qwen, &[], "7");
    let mut calls = Vec::new();
    let mut sink = |event: Event<'_>| match event {
        Event::Call { call, .. } | Event::Arguments { call, .. } => calls.push(call),
        _ => {}
    };
    processor.event(
        Event::Text("<tool_call><function=f></function></tool_call>"),
        &mut sink,
    );
    let native = Event::Call {
        call: 0,
        id: "x",
        name: "g",
        namespace: None,
        custom: false,
    };
    processor.event(native, &mut sink);
    processor.event(Event::Arguments { call: 0, piece: "{}" }, &mut sink);

    assert_eq!(calls, [0, 0, 1, 1]);
}

#[test]
fn a_whole_answer_is_read_as_its_stream_is() {
    let answer = Answer {
        parts: vec![Part::Text {
            text: "<think>hm</think>hi<tool_call>weather</tool_call>".to_owned(),
            cache: None,
        }],
        ..Answer::default()
    };

    let read = Processor::new(Kind::Glm, &[], "7").answer(answer);

    assert_eq!(read.finish, Finish::ToolCalls);
    assert!(matches!(&read.parts[..], [
        Part::Thinking { text: thought, .. },
        Part::Text { text, .. },
        Part::ToolCall(call),
    ] if thought == "hm" && text == "hi" && call.name == "weather" && call.arguments == "{}"));
}

proptest! {
    #[test]
    fn wherever_a_text_is_cut_the_same_events_leave(
        words in prop::collection::vec(prop::sample::select(vec![
            "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=weather>", "</function>", "<parameter=city>",
            "</parameter>", "weather", "<arg_key>city</arg_key>", "<arg_value>1</arg_value>", "<", "\n", "é", "text", " ",
        ]), 0..14),
        kind in prop::sample::select(vec![Kind::Glm, Kind::Qwen, Kind::ThinkBlock]),
        cuts in prop::collection::vec(1_usize..9, 0..40),
    ) {
        let text: String = words.concat();
        let whole = read(kind, &[&text]);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        for cut in cuts {
            let mut at = cut.min(rest.len());
            while !rest.is_char_boundary(at) {
                at += 1;
            }
            let (piece, after) = rest.split_at(at);
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);

        prop_assert_eq!(read(kind, &pieces), whole);
    }
}
