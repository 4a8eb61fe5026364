//! What recorded decisions come out as under another policy.

use serde_json::{Value, json};

use super::*;

/// A request that went to the first of two backends in turn, while that ran more calls.
fn fact(turn: u64, went: &str) -> Value {
    json!({
        "input_tokens": 90, "cached_tokens": 10, "output_tokens": 100,
        "decision": {
            "order": [went],
            "snapshot": {
                "legs": [{"endpoint": "e", "algorithm": "round_robin", "weight_micro": 1_000_000, "turn": turn}],
                "candidates": [{"backend": "e#0", "leg": 0, "calls": 9}, {"backend": "e#1", "leg": 0, "calls": 2}],
                "draw": 5
            }
        }
    })
}

fn replayed(policy: Policy, lines: &[Value]) -> Replayed {
    let mut replay = Replay::new(policy);
    for line in lines {
        replay.line(&line.to_string()).expect("a line");
    }
    replay.end()
}

const fn by(algorithm: Option<Algorithm>) -> Policy {
    Policy {
        algorithm,
        without_sessions: false,
    }
}

#[test]
fn without_another_policy_everything_comes_out_as_it_was() {
    let lines = [
        fact(0, "e#0"),
        fact(1, "e#1"),
        json!({"decision": null}),
        json!({}),
    ];
    let replayed = replayed(by(None), &lines);

    assert_eq!((replayed.lines, replayed.without_choice), (4, 2));
    assert_eq!(
        (replayed.decisions, replayed.as_recorded, replayed.differ),
        (2, 2, 0)
    );
}

#[test]
fn under_another_policy_it_is_told_where_the_load_would_have_gone() {
    let lines = [fact(0, "e#0"), fact(1, "e#1"), fact(2, "e#0")];
    let replayed = replayed(by(Some(Algorithm::LeastConnections)), &lines);

    assert_eq!((replayed.differ, replayed.incomplete), (2, 0));
    let moved = |requests, requests_then| Moved {
        requests,
        requests_then,
        tokens: requests * 200,
        tokens_then: requests_then * 200,
    };
    let backends = BTreeMap::from([("e#0".to_owned(), moved(2, 0)), ("e#1".to_owned(), moved(1, 3))]);
    assert_eq!(replayed.backends, backends);
}

#[test]
fn an_event_that_is_not_whole_and_figures_that_were_not_recorded_are_told() {
    let replayed = replayed(by(Some(Algorithm::EngineAware)), &[fact(1, "e#0")]);

    assert_eq!((replayed.as_recorded, replayed.incomplete), (0, 1));
}

#[test]
fn turns_are_taken_anew_where_they_were_not_recorded() {
    let mut lines = vec![fact(0, "e#1"); 4];
    for line in &mut lines {
        line["decision"]["snapshot"]["legs"][0]["algorithm"] = json!("least_connections");
    }
    let replayed = replayed(by(Some(Algorithm::RoundRobin)), &lines);

    assert_eq!(replayed.as_recorded, 4);
    assert_eq!(replayed.backends["e#0"].requests_then, 2);
    assert_eq!(replayed.backends["e#1"].requests_then, 2);
}

#[test]
fn a_session_decides_unless_it_is_left_out() {
    let mut line = fact(0, "e#1");
    line["decision"]["snapshot"]["session"] = json!({"found": {"level": "header", "backend": "e#1"}});
    let kept = replayed(by(None), std::slice::from_ref(&line));
    assert_eq!((kept.as_recorded, kept.differ), (1, 0));

    let policy = Policy {
        without_sessions: true,
        ..by(None)
    };
    assert_eq!(replayed(policy, &[line]).differ, 1);
}

#[test]
fn events_and_answers_of_the_log_are_read() {
    let event = json!({"type": "waybill.request.settled.v1", "data": fact(0, "e#0")});
    let answer = json!({"request_id": "x", "event": event, "explain": null});
    let none = json!({"request_id": "y", "event": null});
    let replayed = replayed(by(None), &[event, answer, none]);
    assert_eq!(
        (replayed.decisions, replayed.as_recorded, replayed.without_choice),
        (2, 2, 1)
    );

    let error = Replay::new(by(None)).line("{").expect_err("no JSON");
    assert_eq!(error.line, 1);
}
