//! What is learned from calls.

use super::*;

fn leg(name: &str) -> EndpointId {
    EndpointId::from(name)
}

/// A call that one leg served, and those that failed before.
fn call(at_ms: u64, failed: &[(&str, u64)], served: (&str, u64), tokens: (u64, u64)) -> Call {
    let before = failed.iter().map(|(name, took_us)| (leg(name), Err(*took_us)));
    Call {
        model: ModelName::from("m"),
        at_ms,
        streamed: true,
        asked: before.chain([(leg(served.0), Ok(served.1))]).collect(),
        tokens: Some(tokens),
    }
}

fn learned(calls: &[Call], terms: &RouteWise) -> Learned {
    let (a, b) = (leg("a"), leg("b"));
    let mut learned = Learned::default();
    for call in calls {
        learned.take(call, terms, &[&a, &b]);
    }
    learned
}

#[test]
fn times_are_means_of_a_window_and_failures_are_slow() {
    let terms = RouteWise {
        latency_window_ms: 1_000,
        latency_unprofiled_us: 700,
        ..RouteWise::default()
    };
    let calls = [
        call(0, &[], ("a", 100), (8, 5)),
        call(600, &[("b", 90)], ("a", 300), (8, 5)),
        call(900, &[("b", 900)], ("c", 1), (8, 5)),
    ];
    let mut learned = learned(&calls, &terms);
    let times = |profile: &Profile, name| profile.times(&leg(name), true);
    let mean = |count, mean| Mean { count, mean };

    let first = learned.profile(&ModelName::from("m"), &terms, 1_000);
    assert_eq!(times(&first, "a"), mean(2, 200));
    assert_eq!(
        times(&first, "b"),
        mean(2, 800),
        "as slow as the unknown, or as it was"
    );
    assert_eq!(times(&first, "c"), mean(0, 0), "it is no leg of the model");
    assert_eq!(first.times(&leg("a"), false), mean(0, 0), "those were streams");

    let later = learned.profile(&ModelName::from("m"), &terms, 1_601);
    assert_eq!(
        (times(&later, "a"), times(&later, "b")),
        (mean(0, 0), mean(1, 900))
    );
}

#[test]
fn no_more_calls_of_a_leg_count_than_are_to_count() {
    let terms = RouteWise {
        latency_samples_max: 2,
        ..RouteWise::default()
    };
    let calls = [10, 20, 40].map(|took| call(0, &[], ("a", took), (8, 5)));
    let profile = learned(&calls, &terms).profile(&ModelName::from("m"), &terms, 0);
    assert_eq!(profile.times(&leg("a"), true), Mean { count: 2, mean: 30 });
}

#[test]
fn the_length_of_an_answer_is_that_of_answers_to_prompts_of_its_size_where_there_are_enough() {
    let terms = RouteWise {
        output_samples_min: [2, 3, 4],
        ..RouteWise::default()
    };
    let tokens = |calls: &[Call], prompt, most| {
        let profile = learned(calls, &terms).profile(&ModelName::from("m"), &terms, 0);
        profile.answer_tokens(&terms, prompt, most)
    };
    let told = |prompt, answer| call(0, &[], ("a", 1), (prompt, answer));
    assert_eq!(tokens(&[], 100, None), 512);
    assert_eq!(tokens(&[], 100, Some(60)), 60);
    assert_eq!(tokens(&[told(64, 10)], 100, None), 512, "one is too few");
    let two = [told(64, 10), told(127, 30)];
    assert_eq!(tokens(&two, 100, None), 20);
    assert_eq!(tokens(&two, 128, None), 512, "another size");
    let three = [told(64, 10), told(127, 30), told(4_000, 80)];
    assert_eq!((tokens(&three, 100, None), tokens(&three, 128, None)), (20, 40));
}

#[test]
fn what_nodes_tell_each_other_is_read_as_it_was_written() {
    let terms = RouteWise::default();
    let calls = [call(0, &[("b", 7)], ("a", 100), (8, 5))];
    let profile = learned(&calls, &terms).profile(&ModelName::from("m"), &terms, 0);
    let bytes = crate::health::encode(&profile).expect("plain data");
    assert_eq!(crate::health::decode::<Profile>(&bytes), Some(profile));
}

#[test]
fn a_waybill_tells_how_long_its_legs_took() {
    let waybill = include_bytes!("../../../tests/golden/v1/request.settled.json");
    let call = Call::read(waybill).expect("the example of its type");
    let at = EndpointId::from("qwen/qwen3-8b:local");

    // What was asked before took 12 ms of the 193.
    assert_eq!(call.asked, [(at.clone(), Err(12_000)), (at, Ok(181_000))]);
    assert!(call.streamed);
    assert_eq!(call.tokens, Some((7_500, 25)));
    assert_eq!(
        Call::read(include_bytes!("../../../tests/golden/v1/request.lost.json")),
        None
    );
    assert_eq!(Call::read(b"{"), None);
}

#[test]
fn a_call_that_left_the_choice_of_a_model_is_one_of_the_model_that_was_chosen() {
    let waybill = include_bytes!("../../../tests/golden/v1/request.settled.json");
    let mut event: serde_json::Value = serde_json::from_slice(waybill).expect("JSON");
    event["data"]["model"] = "auto".into();
    event["data"]["auto"] = serde_json::json!({
        "strategy": "latency", "purpose": "chat", "model": "chosen", "candidates": [],
    });
    let model = |event: &serde_json::Value| {
        let bytes = serde_json::to_vec(event).expect("JSON");
        Call::read(&bytes).expect("a waybill").model
    };
    assert_eq!(model(&event), ModelName::from("chosen"));
    event["data"]["auto"]["model"] = serde_json::Value::Null;
    assert_eq!(model(&event), ModelName::from("auto"));
}
