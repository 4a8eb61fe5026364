//! Usage in the places and forms it is told in, and its normal form.

use proptest::prelude::*;
use schemas::usage::UsageFlag as Flag;

use super::*;
use crate::chat::chunk;

fn read(usage: &str) -> UsageFacts {
    UsageFacts::read(usage).unwrap_or_else(|| panic!("nothing told: {usage}"))
}

fn in_chunk(members: &str) -> Option<UsageFacts> {
    chunk::skim(format!("{{{members}}}").as_bytes())
        .expect("a chunk")
        .usage
}

fn normal(usage: &str) -> ([u64; 5], Vec<Flag>) {
    let (usage, flags) = read(usage).normalize();
    let counts = [
        usage.input_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    ];
    (counts, flags)
}

#[test]
fn figures_that_were_told_in_part_and_completed_are_marked() {
    let facts = UsageFacts {
        partial: true,
        ..read(r#"{"prompt_tokens":17}"#)
    };

    assert_eq!(facts.normalize().1, [Flag::Partial]);
    assert_eq!(normal(r#"{"prompt_tokens":17}"#).1, []);
}

#[test]
fn what_was_not_told_is_estimated_and_a_count_of_nothing_was_not_told() {
    let completed = |usage: &str, output_bytes| {
        let (usage, flags) = read(usage).completed(8, output_bytes).normalize();
        ((usage.input_tokens, usage.output_tokens), flags)
    };
    let partial = || vec![Flag::Partial];

    for (told, expected) in [
        (
            r#"{"prompt_tokens":17,"completion_tokens":5,"total_tokens":22}"#,
            ((17, 5), vec![]),
        ),
        (r#"{"prompt_tokens":17,"total_tokens":22}"#, ((17, 7), partial())),
        (
            r#"{"completion_tokens":5,"total_tokens":22}"#,
            ((8, 5), partial()),
        ),
        (
            r#"{"prompt_tokens":17,"completion_tokens":0,"total_tokens":17}"#,
            ((17, 7), partial()),
        ),
        (
            r#"{"prompt_tokens":0,"completion_tokens":5,"total_tokens":5}"#,
            ((8, 5), partial()),
        ),
        (
            r#"{"prompt_tokens":17,"completion_tokens":-2,"total_tokens":22}"#,
            ((17, 7), vec![Flag::Malformed]),
        ),
    ] {
        assert_eq!(completed(told, 24), expected, "{told}");
    }
    let silent = r#"{"prompt_tokens":17,"completion_tokens":0,"total_tokens":17}"#;
    assert_eq!(completed(silent, 0), ((17, 0), vec![]));
    let once = read(silent).completed(8, 24);
    assert_eq!(once.completed(9, 99), once);
}

#[test]
fn classes_of_input_are_disjoint() {
    let told = r#"{"prompt_tokens":17,"completion_tokens":5,"total_tokens":22,
        "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},
        "completion_tokens_details":{"reasoning_tokens":2}}"#;

    assert_eq!(normal(told), ([10, 4, 3, 5, 2], vec![]));
}

#[test]
fn figures_are_found_under_the_names_of_all_providers() {
    for (told, expected) in [
        (
            r#"{"prompt_tokens":9,"completion_tokens":20,"reasoning_tokens":7}"#,
            [9, 0, 0, 20, 7],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":20,"cached_tokens":4}"#,
            [5, 4, 0, 20, 0],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":20,"cache_read_tokens":4,"cache_write_tokens":1}"#,
            [4, 4, 1, 20, 0],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}"#,
            [3, 6, 0, 1, 0],
        ),
        (
            r#"{"completion_tokens":1,"prompt_cache_hit_tokens":6,"prompt_cache_miss_tokens":3}"#,
            [3, 6, 0, 1, 0],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":null,"cached_tokens":null}"#,
            [9, 0, 0, 1, 0],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":[],"completion_tokens_details":"x"}"#,
            [9, 0, 0, 1, 0],
        ),
        (
            r#"{"prompt_tokens":9,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2},"cached_tokens":8}"#,
            [7, 2, 0, 1, 0],
        ),
    ] {
        assert_eq!(normal(told), (expected, vec![]), "{told}");
    }
}

#[test]
fn the_place_of_usage_is_found_and_the_nearest_one_counts() {
    let usage = r#"{"prompt_tokens":1,"completion_tokens":2}"#;
    let other = r#"{"prompt_tokens":5,"completion_tokens":6}"#;
    let timings = r#""timings":{"prompt_n":7,"cache_n":2,"predicted_n":8,"prompt_ms":1.5}"#;
    let found = |members: &str| in_chunk(members).map(|facts| (facts.prompt_tokens, facts.completion_tokens));
    assert_eq!(found(&format!(r#""usage":{usage}"#)), Some((Some(1), Some(2))));
    assert_eq!(
        found(&format!(r#""x_groq":{{"id":"r","usage":{usage}}}"#)),
        Some((Some(1), Some(2)))
    );
    assert_eq!(found(timings), Some((Some(9), Some(8))));
    assert_eq!(
        found(&format!(
            r#"{timings},"x_groq":{{"usage":{other}}},"usage":{usage}"#
        )),
        Some((Some(1), Some(2)))
    );
    assert_eq!(
        found(&format!(r#""usage":{usage},"usage":null,{timings}"#)),
        Some((Some(1), Some(2)))
    );
    assert_eq!(
        found(&format!(r#""usage":null,{timings}"#)),
        Some((Some(9), Some(8)))
    );
    for nothing in [
        r#""usage":null"#,
        r#""usage":{}"#,
        r#""usage":[1,2]"#,
        r#""usage":5"#,
        r#""x_groq":null,"timings":[]"#,
    ] {
        assert_eq!(found(nothing), None, "{nothing}");
    }
}

#[test]
fn odd_counts_are_made_whole_or_left_out_and_marked() {
    for (count, expected) in [
        ("7.0", (Some(7), false, false)),
        ("7.9", (Some(7), true, false)),
        ("7e0", (Some(7), false, false)),
        ("-3", (None, false, true)),
        ("-0.5", (None, false, true)),
        ("\"7\"", (Some(7), true, false)),
        ("\" 7 \"", (Some(7), true, false)),
        ("10000000", (Some(TOKENS_MAX), false, false)),
        ("10000001", (None, false, true)),
        ("99999999999999999999999", (None, false, true)),
        ("1e999", (None, false, true)),
        ("-1e999", (None, false, true)),
        ("null", (None, false, false)),
        ("\"many\"", (None, false, true)),
        ("\"\"", (None, false, true)),
        ("\"inf\"", (None, false, true)),
        ("true", (None, false, true)),
        ("[7]", (None, false, true)),
        ("{}", (None, false, true)),
    ] {
        let facts = in_chunk(&format!(
            r#""usage":{{"prompt_tokens":1,"completion_tokens":{count}}}"#
        ))
        .expect("told");
        assert_eq!(
            (facts.completion_tokens, facts.clamped, facts.malformed),
            expected,
            "{count}"
        );
    }
}

#[test]
fn usage_without_a_single_count_tells_nothing() {
    assert_eq!(
        UsageFacts::read(r#"{"prompt_tokens":"many","completion_tokens":[]}"#),
        None
    );
    assert_eq!(UsageFacts::read(r#"{"total_tokens":5}"#), None);
    assert_eq!(UsageFacts::read("[1,2,3]"), None);
    assert_eq!(UsageFacts::read("{"), None);
}

#[test]
fn contradictions_are_settled_and_flagged() {
    let cached = r#"{"prompt_tokens":5,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}"#;
    assert_eq!(normal(cached), ([0, 9, 0, 1, 0], vec![Flag::CacheExceedsPrompt]));
    let reasoning = r#"{"prompt_tokens":5,"completion_tokens":1,"reasoning_tokens":9}"#;
    assert_eq!(
        normal(reasoning),
        ([5, 0, 0, 1, 1], vec![Flag::ReasoningExceedsOutput])
    );
    let total = r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":7}"#;
    assert_eq!(normal(total), ([5, 0, 0, 1, 0], vec![Flag::TotalMismatch]));
    let all = r#"{"prompt_tokens":0.5,"completion_tokens":"x","reasoning_tokens":9,"cached_tokens":1,"total_tokens":1}"#;
    let flags = [
        Flag::Clamped,
        Flag::Malformed,
        Flag::CacheExceedsPrompt,
        Flag::ReasoningExceedsOutput,
        Flag::TotalMismatch,
    ];
    assert_eq!(normal(all), ([0, 1, 0, 0, 0], flags.to_vec()));
}

proptest! {
    #[test]
    fn normal_usage_is_always_in_range(counts in proptest::collection::vec(proptest::option::of(any::<u64>()), 6)) {
        let facts = UsageFacts {
            prompt_tokens: counts[0],
            completion_tokens: counts[1],
            total_tokens: counts[2],
            cached_tokens: counts[3],
            cache_write_tokens: counts[4],
            reasoning_tokens: counts[5],
            ..UsageFacts::default()
        };

        let (usage, _) = facts.normalize();

        let counts = [usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens];
        prop_assert!(counts.iter().all(|&count| count <= TOKENS_MAX));
        prop_assert!(usage.reasoning_tokens <= usage.output_tokens);
    }

    #[test]
    fn no_usage_makes_a_chunk_fail(number in "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,4})?(e[+-]?[0-9]{1,4})?") {
        let facts = in_chunk(&format!(r#""usage":{{"prompt_tokens":{number},"completion_tokens":1}}"#));

        let facts = facts.expect("the output is told");
        prop_assert!(facts.prompt_tokens.is_none_or(|count| count <= TOKENS_MAX));
    }
}

#[test]
fn what_an_upstream_charges_is_read_exactly_and_a_key_of_our_own_behind_it_counts() {
    let cost = |members: &str| {
        read(&format!(
            r#"{{"prompt_tokens":1,"completion_tokens":1,{members}}}"#
        ))
        .cost_nano_usd
    };

    assert_eq!(cost(r#""cost":0.00014"#), Some(140_000));
    let details = r#""cost":0.01,"cost_details":{"upstream_inference_cost":0.2}"#;
    assert_eq!(cost(details), Some(10_000_000));
    assert_eq!(cost(&format!(r#"{details},"is_byok":true"#)), Some(210_000_000));
    assert_eq!(cost(r#""cost":null"#), None);
    assert_eq!(cost(r#""cost":"free""#), None);
}

#[test]
fn figures_told_apart_are_put_together_and_of_each_the_last_counts() {
    let after = |told: &[&str]| {
        let told = told.iter().map(|usage| read(usage));
        told.fold(None, UsageFacts::after).expect("usage")
    };
    let figures = |facts: UsageFacts| (facts.prompt_tokens, facts.completion_tokens, facts.cached_tokens);

    let split = after(&[
        r#"{"prompt_tokens":10,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}"#,
        r#"{"completion_tokens":2}"#,
        r#"{"completion_tokens":7}"#,
    ]);
    assert_eq!(figures(split), (Some(10), Some(7), Some(4)));
    assert_eq!(split.normalize().1, vec![]);
    // Once it is told whole, what was odd before is past.
    let whole = after(&[
        r#"{"prompt_tokens":"9","completion_tokens":-1}"#,
        r#"{"prompt_tokens":10,"completion_tokens":3}"#,
    ]);
    assert_eq!(figures(whole), (Some(10), Some(3), None));
    assert!(!whole.clamped && !whole.malformed);
    // Output beyond belief is not what it was when there was less of it.
    let absurd = after(&[
        r#"{"prompt_tokens":10,"completion_tokens":1}"#,
        r#"{"prompt_tokens":10,"completion_tokens":99999999999}"#,
    ]);
    assert_eq!(
        (figures(absurd), absurd.malformed),
        ((Some(10), None, None), true)
    );
}

#[test]
fn figures_that_are_all_zero_are_none_and_leave_those_before_them() {
    let zero = read(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#);
    let told = read(r#"{"prompt_tokens":10,"completion_tokens":3}"#);
    let charged = read(r#"{"prompt_tokens":0,"completion_tokens":0,"cost":0.5}"#);

    assert_eq!(zero.counted(), None);
    assert_eq!(UsageFacts::after(Some(told), zero), Some(told));
    let charged = charged.counted().expect("a cost");
    assert_eq!(
        (
            charged.prompt_tokens,
            charged.completion_tokens,
            charged.cost_nano_usd
        ),
        (None, None, Some(500_000_000))
    );
    let embedded = read(r#"{"prompt_tokens":3,"completion_tokens":0}"#);
    assert_eq!(embedded.counted(), Some(embedded));
}
