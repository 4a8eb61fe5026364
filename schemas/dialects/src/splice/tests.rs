//! Spliced bodies, read back with a full parser.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::skim::{Limits, skim_chat, splice_facts};

fn upstream(body: &str, model: &str, inject_usage: bool) -> String {
    let skim = skim_chat(body.as_bytes(), &Limits::default()).expect("a valid request");
    let body = Bytes::from(body.to_owned());
    let spliced = chat_upstream_body(&body, &splice_facts(&skim), model, inject_usage).joined();
    String::from_utf8(spliced.to_vec()).expect("UTF-8")
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn edit(range: Range<usize>, with: &'static str) -> Edit {
    Edit {
        range,
        with: Bytes::from_static(with.as_bytes()),
    }
}

#[test]
fn without_edits_nothing_is_copied() {
    let body = Bytes::from_static(br#"{"model":"m","messages":[{}],"stream":true}"#);
    let skim = skim_chat(&body, &Limits::default()).expect("a valid request");

    let same = chat_upstream_body(&body, &splice_facts(&skim), "m", false).joined();

    assert_eq!(same.as_ptr(), body.as_ptr());
    assert_eq!(same, body);
}

#[test]
fn the_model_is_replaced_and_every_other_byte_kept() {
    let body = "{ \"model\" : \"public\" , \"messages\":[{\"content\":\"é \\ud83d\\ude42 public\"}], \"x\": 1.0e2 }\n";

    let spliced = upstream(body, "up\"stream/é", false);

    assert_eq!(spliced, body.replacen("\"public\"", r#""up\"stream/é""#, 1));
}

#[test]
fn a_model_that_is_only_spelled_otherwise_is_left_alone() {
    let body = r#"{"model":"\u006d","messages":[{}]}"#;

    assert_eq!(upstream(body, "m", false), body);
}

#[test]
fn usage_is_asked_for_on_streams_only() {
    let plain = r#"{"model":"m","messages":[{}]}"#;
    assert_eq!(upstream(plain, "m", true), plain);
    let stream = r#"{"model":"m","messages":[{}],"stream":true}"#;
    assert_eq!(upstream(stream, "m", false), stream);

    let spliced = upstream(stream, "m", true);

    let expected = json!({"model":"m","messages":[{}],"stream":true,"stream_options":{"include_usage":true}});
    assert_eq!(parsed(&spliced), expected);
}

#[test]
fn options_of_the_stream_are_kept() {
    let cases = [
        ("null", json!({"include_usage": true})),
        ("{}", json!({"include_usage": true})),
        ("{ }", json!({"include_usage": true})),
        (r#"{"include_usage":false}"#, json!({"include_usage": true})),
        (r#"{"include_usage": null }"#, json!({"include_usage": true})),
        (r#"{"a":[1]}"#, json!({"a": [1], "include_usage": true})),
        (
            r#"{ "a" : {"include_usage":false}, "include_usage" : false , "b":"\"}" }"#,
            json!({"a": {"include_usage": false}, "include_usage": true, "b": "\"}"}),
        ),
        (r#"{"include\u005fusage":false}"#, json!({"include_usage": true})),
    ];
    for (options, expected) in cases {
        for body in [
            format!(r#"{{"stream_options":{options},"model":"m","messages":[{{}}],"stream":true}}"#),
            format!(r#"{{"model":"m","messages":[{{}}],"stream":true,"stream_options": {options} }}"#),
        ] {
            let spliced = parsed(&upstream(&body, "other", true));

            assert_eq!(spliced["stream_options"], expected, "{body}");
            assert_eq!(spliced["model"], "other");
            assert_eq!(spliced["stream"], true);
        }
    }
}

#[test]
fn options_that_ask_for_usage_are_left_alone() {
    let body = r#"{"model":"m","messages":[{}],"stream":true,"stream_options":{"include_usage":true}}"#;

    assert_eq!(upstream(body, "m", true), body);
}

#[test]
fn edits_that_do_not_fit_are_left_out() {
    let body = Bytes::from_static(b"0123456789");
    assert_eq!(
        splice(&body, &[edit(2..4, "ab"), edit(4..4, "-"), edit(9..10, "")]),
        "01ab-45678"
    );
    assert_eq!(splice(&body, &[edit(2..4, "ab"), edit(3..5, "x")]), "01ab456789");
    #[expect(clippy::reversed_empty_ranges, reason = "the case at hand")]
    let backwards = edit(5..3, "x");
    assert_eq!(
        splice(&body, &[backwards, edit(8..11, "x"), edit(11..12, "x")]),
        "0123456789"
    );
}

proptest! {
    #[test]
    fn any_facts_are_applied_without_a_panic(
        body in proptest::collection::vec(any::<u8>(), 0..60),
        model in (0_usize..70, 0_usize..70),
        stream_options in proptest::option::of((0_usize..70, 0_usize..70)),
        insert_at in prop_oneof![0_usize..70, Just(usize::MAX)],
    ) {
        let facts = Splice { model, stream_options, insert_at, stream: true, include_usage: false };

        chat_upstream_body(&Bytes::from(body), &facts, "m", true).joined();
    }

    #[test]
    fn a_spliced_body_differs_in_what_was_edited_only(
        model in "[a-zé\"\\\\]{1,9}", other in "[a-zé\"\\\\]{1,9}", text in ".{0,20}", first in any::<bool>(),
    ) {
        let rest = json!({"messages": [{"content": text}], "stream": true, "n": 1}).to_string();
        let inner = &rest[1..rest.len() - 1];
        let member = format!("\"model\":{}", Value::from(model));
        let body = if first { format!("{{{member},{inner}}}") } else { format!("{{{inner},{member}}}") };
        let mut expected = parsed(&body);
        expected["model"] = Value::from(other.clone());
        expected["stream_options"] = json!({"include_usage": true});

        prop_assert_eq!(parsed(&upstream(&body, &other, true)), expected);
    }
}
