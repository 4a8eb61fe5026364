//! Requests that are repaired, and what stays of them.

use proptest::prelude::*;

use super::*;

fn mended(body: &str, one_system: bool, arguments: bool) -> Option<String> {
    let needs = Needs {
        one_system,
        arguments,
        ..Needs::default()
    };
    text(body, needs)
}

fn text(body: &str, needs: Needs) -> Option<String> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    mend(&body, needs).map(|mended| String::from_utf8(mended.body.to_vec()).expect("UTF-8"))
}

#[test]
fn instructions_become_one_message_at_the_front_and_nothing_else_changes() {
    let body = r#"{ "seed":1.0, "messages":[ {"role":"user","content":"a \u00e9"} , {"role":"system","content":"one"},
        {"role": "assistant","content":null }, {"content":[{"type":"text","text":"two"},{"type":"text","text":"three"}],"role":"developer"} ], "x" : 1e2 }"#;

    let expected = r#"{ "seed":1.0, "messages":[{"role":"system","content":"one\n\ntwo\n\nthree"},{"role":"user","content":"a \u00e9"},{"role": "assistant","content":null }], "x" : 1e2 }"#;
    assert_eq!(mended(body, true, true).as_deref(), Some(expected));
    assert_eq!(mended(body, false, true), None);
    assert_eq!(mended(expected, true, true), None);
}

#[test]
fn what_a_developer_says_is_the_systems_where_its_server_knows_none() {
    let needs = |profile: &str, body: &str| {
        let profile = crate::profile::named(profile).expect("a profile");
        let suspicion = crate::passage::request::suspicion(body.as_bytes());
        text(body, Needs::of(profile, suspicion, body.as_bytes()))
    };
    let body = r#"{"messages":[{"role":"developer","content":[{"type":"text","text":"x"}],"name":"d"},{"role":"user","content":"a \"developer\""}]}"#;
    let expected = body.replace(r#""role":"developer""#, r#""role":"system""#);
    for known in ["openai", "openrouter", "llama.cpp"] {
        assert_eq!(needs(known, body), None, "{known}");
    }
    for unknown in ["deepseek", "kimi", "zai", "vllm"] {
        assert_eq!(needs(unknown, body).as_ref(), Some(&expected), "{unknown}");
        assert_eq!(needs(unknown, &expected), None, "{unknown}");
    }
    let late = r#"{"messages":[{"role":"user","content":"a"},{"role":"developer","content":"x"},{"role":"system","content":"y"}]}"#;
    assert_eq!(needs("deepseek", late), Some(late.replace("developer", "system")));
    let one = r#"{"messages":[{"role":"system","content":"x\n\ny"},{"role":"user","content":"a"}]}"#;
    assert_eq!(needs("vllm", late).as_deref(), Some(one));
}

#[test]
fn instructions_that_are_more_than_text_are_left_alone() {
    let body = r#"{"messages":[{"role":"system","content":"x"},{"role":"system","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}"#;

    assert_eq!(mended(body, true, true), None);
}

#[test]
fn arguments_of_earlier_calls_become_the_text_of_an_object() {
    let call = |arguments: &str| {
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"c","function":{{"arguments": {arguments}, "name":"f"}}}}]}},{{"role":"system","content":"s"}}]}}"#
        )
    };

    for (written, read) in [
        (r#""{""#, r#""{}""#),
        (r#""""#, r#""{}""#),
        (r#""[\"x\"]""#, r#""{}""#),
        ("null", r#""{}""#),
        (r#"{ "a" : 1.0 }"#, r#""{ \"a\" : 1.0 }""#),
    ] {
        let expected = if written == "null" { None } else { Some(call(read)) };
        assert_eq!(mended(&call(written), false, true), expected);
        assert_eq!(mended(&call(written), false, false), None);
    }
    assert_eq!(mended(&call(r#""{\"a\":1}""#), false, true), None);
    let both = mended(&call(r#""{""#), true, true).expect("mended");
    assert!(both.starts_with(r#"{"messages":[{"role":"system","content":"s"},{"role":"assistant""#));
    assert!(both.contains(r#""arguments": "{}", "name""#));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic_and_what_was_mended_needs_no_more(
        roles in proptest::collection::vec((0_usize..5, "[a-z\"\\\\\n]{0,6}", 0_usize..6), 0..6),
    ) {
        const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];
        const ARGUMENTS: [&str; 6] = ["{}", "\"{}\"", "\"{\"", "[1]", "7", "null"];
        let messages: Vec<String> = roles.iter().map(|(role, text, arguments)| {
            let content = serde_json::to_string(text).expect("text");
            format!(
                r#"{{"role":"{}","content":{content},"tool_calls":[{{"function":{{"arguments":{}}}}}]}}"#,
                ROLES[*role], ARGUMENTS[*arguments],
            )
        }).collect();
        let body = format!(r#"{{"messages":[{}],"tail":0}}"#, messages.join(" , "));

        let once = mended(&body, true, true).unwrap_or(body);

        prop_assert!(serde_json::from_str::<serde_json::Value>(&once).is_ok(), "{once}");
        prop_assert_eq!(mended(&once, true, true), None);
    }
}

/// A request with these messages, as a server that wants calls and results together gets it, and what was dropped.
fn ordered(messages: &str) -> Option<(String, Vec<Cow<'static, str>>)> {
    let body = Bytes::from(format!(r#"{{"messages":[{messages}],"seed":1.0}}"#));
    let needs = Needs {
        results_follow: true,
        ..Needs::default()
    };
    let mended = mend(&body, needs)?;
    let text = String::from_utf8(mended.body.to_vec()).expect("UTF-8");
    let inner = text
        .strip_prefix(r#"{"messages":["#)?
        .strip_suffix(r#"],"seed":1.0}"#)?;
    Some((inner.to_owned(), mended.dropped))
}

fn call(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}"#)
}

fn asks(ids: &[&str], content: &str) -> String {
    let calls: Vec<String> = ids.iter().map(|id| call(id)).collect();
    format!(
        r#"{{"role":"assistant","content":{content},"tool_calls":[{}]}}"#,
        calls.join(",")
    )
}

fn gives(id: &str, content: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":{content}}}"#)
}

const USER: &str = r#"{"role":"user","content":"hi"}"#;

#[test]
fn calls_and_results_that_are_together_stay() {
    let together = [
        USER.to_owned(),
        asks(&["a", "b"], "null"),
        gives("b", "\"2\""),
        gives("a", "\"1\""),
        USER.to_owned(),
        asks(&["a"], "\"x\""),
        gives("a", "\"1\""),
    ];

    assert_eq!(ordered(&together.join(",")), None);
}

#[test]
fn calls_without_a_result_are_dropped_and_reported() {
    let none = [asks(&["a"], "null"), USER.to_owned()].join(",");
    assert_eq!(
        ordered(&none),
        Some((USER.to_owned(), vec!["messages.0.tool_calls.0".into()]))
    );

    let said = [asks(&["a"], "\"so\""), USER.to_owned()].join(",");
    let left = format!(r#"{{"role":"assistant","content":"so"}},{USER}"#);
    assert_eq!(
        ordered(&said),
        Some((left, vec!["messages.0.tool_calls.0".into()]))
    );

    let one_of_two = [USER.to_owned(), asks(&["a", "b"], "null"), gives("b", "\"2\"")].join(",");
    let left = [USER.to_owned(), asks(&["b"], "null"), gives("b", "\"2\"")].join(",");
    assert_eq!(
        ordered(&one_of_two),
        Some((left, vec!["messages.1.tool_calls.0".into()]))
    );
}

#[test]
fn results_without_a_call_are_told_by_the_user() {
    let told = |content: &str| format!(r#"{{"role":"user","content":{content}}}"#);
    for (messages, expected) in [
        (
            [USER.to_owned(), gives("a", "\"1\"")].join(","),
            [USER.to_owned(), told("\"1\"")].join(","),
        ),
        // Behind the results that follow their call, which must follow it at once.
        (
            [asks(&["a"], "null"), gives("z", "null"), gives("a", "\"1\"")].join(","),
            [asks(&["a"], "null"), gives("a", "\"1\""), told("\"\"")].join(","),
        ),
        // Too late.
        (
            [
                asks(&["a"], "null"),
                gives("a", "\"1\""),
                USER.to_owned(),
                gives("a", r#"[{"type":"text","text":"2"}]"#),
            ]
            .join(","),
            [
                asks(&["a"], "null"),
                gives("a", "\"1\""),
                USER.to_owned(),
                told(r#"[{"type":"text","text":"2"}]"#),
            ]
            .join(","),
        ),
        // Twice.
        (
            [asks(&["a"], "null"), gives("a", "\"1\""), gives("a", "\"2\"")].join(","),
            [asks(&["a"], "null"), gives("a", "\"1\""), told("\"2\"")].join(","),
        ),
    ] {
        assert_eq!(ordered(&messages), Some((expected, Vec::new())), "{messages}");
    }
}

/// The schema of a tool that takes nothing.
const EMPTY: &str = r#"{"type":"object","properties":{}}"#;

#[test]
fn tools_without_a_schema_get_an_empty_one() {
    let needs = Needs {
        parameters: true,
        ..Needs::default()
    };
    let of = |function: &str| {
        format!(r#"{{"tools":[{{"type":"function","function":{function}}}],"messages":[]}}"#)
    };
    for (function, expected) in [
        (
            r#"{"name":"f"}"#.to_owned(),
            format!(r#"{{"parameters":{EMPTY},"name":"f"}}"#),
        ),
        (
            r#"{"name":"f","parameters":null}"#.to_owned(),
            format!(r#"{{"name":"f","parameters":{EMPTY}}}"#),
        ),
        (
            r#"{"parameters": {} ,"name":"f"}"#.to_owned(),
            format!(r#"{{"parameters": {EMPTY} ,"name":"f"}}"#),
        ),
        ("{ }".to_owned(), format!(r#"{{"parameters":{EMPTY} }}"#)),
    ] {
        assert_eq!(text(&of(&function), needs), Some(of(&expected)), "{function}");
    }
    assert_eq!(text(&of(r#"{"parameters":{"type":"object"}}"#), needs), None);
}

#[test]
fn types_beside_any_of_go_into_the_branches() {
    let needs = Needs {
        types_in_branches: true,
        roles: true,
        ..Needs::default()
    };
    let body = r#"{"tools":[{"function":{"parameters":{"type":"object","anyOf":[{"required":["a"]}]}}}],"messages":[{"role":"developer","content":"d"}]}"#;

    let expected = r#"{"tools":[{"function":{"parameters":{"anyOf":[{"type":"object","required":["a"]}]}}}],"messages":[{"role":"system","content":"d"}]}"#;
    assert_eq!(text(body, needs).as_deref(), Some(expected));
    assert_eq!(text(expected, needs), None);
}

#[test]
fn names_of_speakers_are_dropped_and_those_of_functions_are_not() {
    let needs = Needs {
        names: true,
        arguments: true,
        one_system: true,
        ..Needs::default()
    };
    let body = r#"{"messages":[{"name":"a","role":"user","content":"x"},{"role":"assistant","name":"b","tool_calls":[{"function":{"name":"f","arguments":""}}]},{"role":"function","name":"f","content":"1"},{"role":"user","content":"y"}]}"#;

    let mended = mend(&Bytes::from(body), needs).expect("mended");

    let expected = r#"{"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},{"role":"function","name":"f","content":"1"},{"role":"user","content":"y"}]}"#;
    assert_eq!(mended.body, expected);
    assert_eq!(mended.dropped, ["name"]);
    assert_eq!(mend(&mended.body, needs), None);
}

#[test]
fn only_what_a_server_refuses_and_a_request_has_is_looked_for() {
    let of = |name: &str, body: &str| {
        let profile = crate::profile::named(name).expect("a profile");
        let suspicion = crate::passage::request::suspicion(body.as_bytes());
        Needs::of(profile, suspicion, body.as_bytes())
    };
    let body = r#"{"messages":[{"role":"tool"}],"tools":[{"anyOf":1}]}"#;

    assert!(of("openai", body).is_none());
    assert!(of("minimax", "{}").is_none() && of("kimi", "{}").is_none());
    let minimax = of("minimax", body);
    assert!(minimax.results_follow && minimax.parameters && !minimax.types_in_branches);
    let kimi = of("kimi", body);
    assert!(kimi.types_in_branches && !kimi.results_follow && !kimi.parameters);
}

proptest! {
    /// Whatever the order of calls and results: nothing is out of order afterwards, every kept result was there, and
    /// a second look finds nothing.
    #[test]
    fn after_all_calls_and_results_are_together(
        turns in proptest::collection::vec((0_usize..3, proptest::collection::vec(0_usize..3, 0..3)), 0..8),
    ) {
        const IDS: [&str; 3] = ["a", "b", "c"];
        let messages: Vec<String> = turns.iter().map(|(kind, ids)| match kind {
            0 => USER.to_owned(),
            1 => {
                let mut ids: Vec<&str> = ids.iter().map(|id| IDS[*id]).collect();
                ids.sort_unstable();
                ids.dedup();
                asks(&ids, "null")
            }
            _ => gives(IDS[ids.first().copied().unwrap_or(0)], "\"r\""),
        }).collect();
        let all = messages.join(",");

        let (once, _) = ordered(&all).unwrap_or((all, Vec::new()));

        prop_assert_eq!(ordered(&once), None, "{}", once);
        let list: Vec<serde_json::Value> = serde_json::from_str(&format!("[{once}]")).expect("JSON");
        let mut open: Vec<String> = Vec::new();
        for message in &list {
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().expect("an id");
                let place = open.iter().position(|known| known == id);
                prop_assert!(place.is_some(), "{}", once);
                open.remove(place.expect("checked"));
                continue;
            }
            prop_assert!(open.is_empty(), "{}", once);
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open = calls.map(|call| call["id"].as_str().expect("an id").to_owned()).collect();
        }
        prop_assert!(open.is_empty(), "{}", once);
    }
}
