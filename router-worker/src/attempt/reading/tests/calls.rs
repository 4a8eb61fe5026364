//! Calls of which a piece is damaged, and calls that cannot be made.

use super::*;

/// How an upstream tells of a call, that it is cut off, and of its end.
const CALLS: [(Dialect, [&str; 3]); 3] = [
    (
        Dialect::Chat,
        [
            r#"{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}}]}"#,
            r#"{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"a\":1"}"#,
            r#"{"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
        ],
    ),
    (
        Dialect::Messages,
        [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
        ],
    ),
    (
        Dialect::Responses,
        [
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc","delta":"{\"a"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"fc","delta":"}"}"#,
        ],
    ),
];

/// Reads events of a stream that passes, behind what opens it.
fn passing(caller: Dialect, events: &[&str]) -> (Result<(), Fault>, u64) {
    let mut reading = Reading::new(manner(caller));
    let start = r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1}}}"#;
    let start = (caller == Dialect::Messages).then_some(start);
    let read = start
        .iter()
        .chain(events)
        .try_for_each(|data| reading.push(event(data)));
    (read, reading.take_dropped())
}

#[test]
fn a_damaged_piece_of_a_call_breaks_what_passes() {
    for (dialect, [begun, damaged, rest]) in CALLS {
        let whole = passing(dialect, &[begun, rest]);
        assert_eq!(whole, (Ok(()), 0), "{dialect:?}");
        let broken = Err(Fault::Unusable(Unusable::Malformed));
        assert_eq!(passing(dialect, &[begun, damaged, rest]).0, broken, "{dialect:?}");
        // The piece itself tells of a call, whatever came before it.
        assert_eq!(passing(dialect, &[damaged]).0, broken, "{dialect:?}");
        // It may be any piece once a call has begun.
        assert_eq!(passing(dialect, &[begun, r#"{"x":"#]).0, broken, "{dialect:?}");
    }
}

#[test]
fn what_is_no_piece_of_a_call_is_dropped_as_ever() {
    for (dialect, [begun, _, rest]) in CALLS {
        assert_eq!(passing(dialect, &["{\"x\":\"text"]), (Ok(()), 1), "{dialect:?}");
        assert_eq!(
            passing(dialect, &[begun, "keep-alive", rest]),
            (Ok(()), 1),
            "{dialect:?}"
        );
    }
}

/// Reads chunks of chat on their way to a caller of Messages.
fn translated(events: &[&str]) -> (Result<(), Fault>, Result<(), Fault>, String) {
    let way = way(Dialect::Chat, Dialect::Messages);
    let mut reading = super::translated(&way);
    let read = events.iter().try_for_each(|data| reading.push(event(data)));
    let ends = reading.may_end(|| 1);
    let sent = reading.take().map(|(sent, _)| sent).unwrap_or_default();
    (read, ends, String::from_utf8(sent.to_vec()).expect("text"))
}

const CALLED: &str = r#"{"id":"1","choices":[{"index":0,"finish_reason":"tool_calls","delta":{}}]}"#;

#[test]
fn a_damaged_piece_of_a_call_breaks_what_is_translated() {
    let (_, [begun, damaged, rest]) = CALLS[0];

    let (whole, ends, _) = translated(&[begun, rest, CALLED]);
    assert_eq!((whole, ends), (Ok(()), Ok(())));
    let (broken, _, _) = translated(&[begun, damaged, rest, CALLED]);
    assert_eq!(broken, Err(Fault::Unusable(Unusable::Malformed)));
    let text = r#"{"id":"1","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let stop = r#"{"id":"1","choices":[{"index":0,"finish_reason":"stop","delta":{}}]}"#;
    let (dropped, ends, _) = translated(&[text, "{\"id\":\"1\",", stop]);
    assert_eq!((dropped, ends), (Ok(()), Ok(())));
}

#[test]
fn a_call_whose_arguments_are_no_object_does_not_end_well_unless_it_was_cut_short() {
    let (_, [begun, _, _]) = CALLS[0];

    let (broken, ends, sent) = translated(&[begun, CALLED]);

    let malformed = Err(Fault::Unusable(Unusable::Malformed));
    assert_eq!((broken, ends), (malformed.clone(), malformed));
    assert!(sent.contains("tool_use"), "{sent}");
    assert!(!sent.contains("stop_reason\":\"tool_use"), "{sent}");
    let length = r#"{"id":"1","choices":[{"index":0,"finish_reason":"length","delta":{}}]}"#;
    let (short, ends, _) = translated(&[begun, length]);
    assert_eq!((short, ends), (Ok(()), Ok(())));
}

#[test]
fn a_call_that_passes_has_a_number_and_an_id_though_its_server_gives_none() {
    let piece = |call: &str| {
        format!(
            r#"{{"model":"org/m","choices":[{{"index":0,"delta":{{"tool_calls":[{{{call}"function":{{"name":"f","arguments":"{{}}"}}}}]}},"finish_reason":"stop"}}]}}"#
        )
    };

    let told = passed(Dialect::Chat, &[], &piece("")).expect("readable");

    let id = told.split("call_").nth(1).and_then(|rest| rest.split('"').next());
    let given = format!(r#""index":0,"id":"call_{}","#, id.expect("an id"));
    let expected = piece(&given)
        .replace("org/m", "m")
        .replace(r#""stop""#, r#""tool_calls""#);
    assert_eq!(told, format!("data: {expected}\n\n"));
}
