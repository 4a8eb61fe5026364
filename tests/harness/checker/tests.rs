//! The checker must see each fault that is planted, and nothing in a good scene.

use serde_json::json;

use super::canary::{Canary, Text, canaries};
use super::*;
use crate::client::{ARGUMENT_CANARY, PROMPT_CANARY};
use crate::node::config::{CALLER_KEY, EXPIRED_KEY, FALSE_KEY, NARROW_KEY, PRICE, PRO_KEY};

fn answered(id: &str, end: End) -> Answered {
    Answered {
        request_id: id.to_owned(),
        status: 200,
        code: None,
        end,
    }
}

fn row(id: &str, outcome: &str, cost_nano_usd: i64) -> RowFacts {
    RowFacts {
        request_id: id.to_owned(),
        model: "m".to_owned(),
        outcome: outcome.to_owned(),
        status: 200,
        sums: Sums {
            requests: 1,
            input_tokens: 9,
            output_tokens: 20,
            cost_nano_usd,
            ..Sums::default()
        },
        ..RowFacts::default()
    }
}

fn settled(id: &str) -> EventFacts {
    EventFacts {
        kind: "waybill.request.settled.v1".to_owned(),
        request_id: id.to_owned(),
    }
}

/// Three requests: a plain answer, a whole stream, a stream that was cut.
fn good() -> Facts {
    let rows = vec![
        row("a", "ok", 178_000),
        row("b", "ok", 178_000),
        row("c", "upstream_cut", 0),
    ];
    let sums = rows.iter().fold(Sums::default(), |sum, row| sum.plus(row.sums));
    Facts {
        answered: vec![
            answered("a", End::Whole),
            answered("b", End::Done),
            answered("c", End::ErrorEvent(json!({"error": {}}))),
        ],
        unanswered: Some(0),
        listed: Some(vec!["c".to_owned(), "b".to_owned(), "a".to_owned()]),
        rows,
        rollup: sums,
        usage: Some(sums),
        events: vec![settled("a"), settled("b"), settled("c")],
        reservations_open: Some(0.0),
        busy_connections: [("u".to_owned(), 0)].into(),
        upstream_faults: Vec::new(),
        silent: Vec::new(),
        prices: [("m".to_owned(), PRICE)].into(),
        canaries: canaries(),
        texts: vec![Text {
            place: "the node's log".to_owned(),
            text: "listening addr=…\nall is well".to_owned(),
        }],
    }
}

#[test]
fn a_good_scene_is_green() {
    assert_eq!(check(&good()), []);
}

#[test]
fn a_dropped_row_is_seen() {
    let mut facts = good();
    facts.rows.remove(0);

    let found = check(&facts);

    assert!(
        found.contains(&Violation::MissingRow(answered("a", End::Whole))),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|violation| matches!(violation, Violation::WrongSum { .. })),
        "{found:?}"
    );
}

#[test]
fn a_dropped_row_with_matching_sums_is_seen_too() {
    let mut facts = good();
    facts.rows.remove(0);
    facts.events.remove(0);
    facts.rollup = facts
        .rows
        .iter()
        .fold(Sums::default(), |sum, row| sum.plus(row.sums));
    facts.usage = Some(facts.rollup);
    facts.listed = None;

    assert_eq!(check(&facts), [Violation::MissingRow(answered("a", End::Whole))]);
}

#[test]
fn a_doubled_row_is_seen() {
    let mut facts = good();
    facts.rows.push(row("a", "ok", 178_000));
    assert!(check(&facts).contains(&Violation::DoubledRow("a".to_owned())));

    let mut facts = good();
    facts.listed = Some(["a", "a", "b", "c"].map(str::to_owned).to_vec());
    assert_eq!(check(&facts), [Violation::DoubledRow("a".to_owned())]);
}

#[test]
fn a_row_that_nobody_asked_for_is_seen() {
    let mut facts = good();
    facts.answered.pop();

    assert_eq!(
        check(&facts),
        [Violation::StrayRows {
            rows: vec!["c".to_owned()],
            calls: 0
        }]
    );

    facts.unanswered = Some(1);
    assert_eq!(check(&facts), []);
}

#[test]
fn a_wrong_sum_is_seen_in_the_rollup_and_in_the_api() {
    let mut facts = good();
    facts.rollup.cost_nano_usd += 1;
    facts.usage = Some(Sums {
        output_tokens: 0,
        ..facts.usage.expect("sums")
    });

    let found = check(&facts);

    let of: Vec<_> = found
        .iter()
        .map(|violation| match violation {
            Violation::WrongSum { of, .. } => *of,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(of, ["usage_rollup", "GET /api/v1/usage"]);
}

#[test]
fn a_wrong_cost_is_seen_even_if_the_sums_agree() {
    let mut facts = good();
    facts.rows.first_mut().expect("a row").sums.cost_nano_usd = 178_001;
    facts.rollup.cost_nano_usd += 1;
    facts.usage = Some(facts.rollup);

    let wrong = Violation::WrongCost {
        request_id: "a".to_owned(),
        is: 178_001,
        should_be: vec![178_000],
    };
    assert_eq!(check(&facts), [wrong]);
}

#[test]
fn a_caller_who_got_a_broken_answer_must_not_pay() {
    let mut facts = good();
    facts.rows.last_mut().expect("a row").sums.cost_nano_usd = 178_000;

    let found = check(&facts);

    let wrong = Violation::WrongCost {
        request_id: "c".to_owned(),
        is: 178_000,
        should_be: vec![0],
    };
    assert!(found.contains(&wrong), "{found:?}");
}

#[test]
fn a_leaked_connection_an_open_reservation_and_a_fault_are_seen() {
    let mut facts = good();
    facts.busy_connections.insert("u".to_owned(), 2);
    facts.reservations_open = Some(1.0);
    facts.upstream_faults.push("two lengths".to_owned());

    assert_eq!(
        check(&facts),
        [
            Violation::ReservationOpen(1.0),
            Violation::ConnectionLeaked {
                upstream: "u".to_owned(),
                connections: 2
            },
            Violation::UpstreamFault("two lengths".to_owned()),
        ]
    );
}

#[test]
fn each_canary_is_seen_wherever_it_stands() {
    for Canary { name, text } in canaries() {
        let mut facts = good();
        facts.texts.push(Text {
            place: "event_log".to_owned(),
            text: format!("one\n{{\"x\":\"{text}\"}}\nthree"),
        });

        let found = check(&facts);

        let line = format!("{{\"x\":\"{text}\"}}");
        let expected = Violation::CanaryFound {
            canary: name,
            place: "event_log".to_owned(),
            line,
        };
        assert_eq!(found, [expected], "{name}");
    }
}

#[test]
fn the_canaries_are_those_of_keys_their_digests_and_prompts() {
    let canaries = canaries();
    let has = |text: &str| canaries.iter().any(|canary| canary.text == text);

    assert!(has(CALLER_KEY) && has(PROMPT_CANARY) && has(ARGUMENT_CANARY));
    assert!([PRO_KEY, NARROW_KEY, EXPIRED_KEY, FALSE_KEY].into_iter().all(has));
    let digests = canaries
        .iter()
        .filter(|canary| canary.name == "the digest of a key");
    assert_eq!(
        digests.count(),
        9 * 2 * 3,
        "two digests of nine keys, each in three forms"
    );
}

#[test]
fn an_outcome_outside_the_list_and_one_that_contradicts_the_client_are_seen() {
    let mut facts = good();
    facts.rows.first_mut().expect("a row").outcome = "fine".to_owned();
    let found = check(&facts);
    let unknown = Violation::UnknownOutcome {
        request_id: "a".to_owned(),
        outcome: "fine".to_owned(),
    };
    assert!(found.contains(&unknown), "{found:?}");

    let mut facts = good();
    facts.answered.last_mut().expect("an answer").end = End::Done;
    let found = check(&facts);
    assert!(
        matches!(found.as_slice(), [Violation::Contradiction { .. }]),
        "{found:?}"
    );
}

#[test]
fn a_row_without_its_event_and_an_event_without_its_row_are_seen() {
    let mut facts = good();
    facts.events.remove(0);
    assert_eq!(check(&facts), [Violation::MissingEvent("a".to_owned())]);

    let mut facts = good();
    facts.events.push(settled("d"));
    facts.events.push(settled("b"));
    let found = check(&facts);
    assert!(
        found.contains(&Violation::DoubledEvent("b".to_owned())),
        "{found:?}"
    );
    assert!(
        found.contains(&Violation::MissingRow(answered_as("d"))),
        "{found:?}"
    );
}

fn answered_as(id: &str) -> Answered {
    Answered {
        request_id: id.to_owned(),
        status: 0,
        code: None,
        end: End::Left,
    }
}

#[test]
fn refusals_leave_rows_until_they_are_only_counted() {
    let refused = |status: u16, code: &str, id: String| Answered {
        request_id: id,
        status,
        code: Some(code.to_owned()),
        end: End::Whole,
    };
    let mut facts = Facts {
        unanswered: Some(0),
        ..Facts::default()
    };
    facts.answered = vec![
        refused(401, "invalid_api_key", "x".to_owned()),
        refused(413, "body_too_large", "y".to_owned()),
    ];
    assert_eq!(check(&facts), []);

    facts.answered = (0..12)
        .map(|n| refused(404, "model_not_found", format!("r{n}")))
        .collect();
    let row = |n: usize| RowFacts {
        request_id: format!("r{n}"),
        outcome: "rejected".to_owned(),
        status: 404,
        error_code: "model_not_found".to_owned(),
        sums: Sums {
            requests: 1,
            ..Sums::default()
        },
        ..RowFacts::default()
    };
    facts.rows = (0..10).map(row).collect();
    facts.events = (0..10).map(|n| settled(&format!("r{n}"))).collect();
    facts.rollup.requests = 10;
    assert_eq!(check(&facts), []);

    facts.rows.pop();
    facts.events.pop();
    facts.rollup.requests = 9;
    assert_eq!(
        check(&facts).len(),
        3,
        "without a full set of rows each refusal is missed"
    );
}

#[test]
fn costs_are_rounded_once_half_to_even() {
    let price = |input: i64| Price {
        input,
        cached: 0,
        cache_write: 0,
        output: 0,
    };
    let tokens = |input_tokens: i64| Sums {
        input_tokens,
        ..Sums::default()
    };

    assert_eq!(cost(&price(500_000), &tokens(1)), 0);
    assert_eq!(cost(&price(500_000), &tokens(3)), 2);
    assert_eq!(cost(&price(500_001), &tokens(1)), 1);
    let mixed = Sums {
        input_tokens: 3_000,
        cached_tokens: 500,
        cache_write_tokens: 4_000,
        output_tokens: 25,
        ..tokens(0)
    };
    assert_eq!(
        cost(
            &PRICE,
            &Sums {
                input_tokens: 3_000,
                ..mixed
            }
        ),
        16_300_000
    );
}

#[test]
fn a_node_that_runs_and_tells_nothing_is_seen() {
    let mut facts = good();
    facts.silent.push("b: /metrics".to_owned());

    assert_eq!(check(&facts), [Violation::Silent("b: /metrics".to_owned())]);
}
