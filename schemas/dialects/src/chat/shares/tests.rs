//! One figure for each choice or one for all of them: what is paid is the same, in whatever order they come.

use proptest::prelude::*;
use schemas::usage::UsageFlag;

use super::*;
use crate::chat::answer;
use crate::dialect::Dialect;
use crate::passage::Skimmer;
use crate::sse::Framer;

/// Two prompts of llama-server, its first two ends in the order in which they came; texts and times are shortened.
const TWO_PROMPTS: [&str; 6] = [
    "null",
    r#"{"choices":[{"text":" eight","index":1,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","object":"text_completion","id":"c"}"#,
    r#"{"choices":[{"text":" the","index":0,"logprobs":null,"finish_reason":null}],"created":1,"model":"m","object":"text_completion","id":"c"}"#,
    r#"{"choices":[{"text":"","index":1,"logprobs":null,"finish_reason":"length"}],"created":1,"model":"m","object":"text_completion","usage":{"completion_tokens":6,"prompt_tokens":8,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":3}},"id":"c","timings":{"cache_n":3,"prompt_n":5,"predicted_n":6}}"#,
    r#"{"choices":[{"text":"","index":0,"logprobs":null,"finish_reason":"length"}],"created":1,"model":"m","object":"text_completion","usage":{"completion_tokens":6,"prompt_tokens":6,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":1}},"id":"c","timings":{"cache_n":1,"prompt_n":5,"predicted_n":6}}"#,
    "[DONE]",
];

/// Two choices of a chat of the same server, whose usage stands without choices right behind each end.
const TWO_ANSWERS: [&str; 6] = [
    r#"{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Say"}}],"object":"chat.completion.chunk"}"#,
    r#"{"choices":[{"finish_reason":null,"index":1,"delta":{"content":"Say"}}],"object":"chat.completion.chunk"}"#,
    r#"{"choices":[{"finish_reason":"length","index":0,"delta":{}}],"object":"chat.completion.chunk"}"#,
    r#"{"choices":[],"object":"chat.completion.chunk","usage":{"completion_tokens":4,"prompt_tokens":26,"total_tokens":30,"prompt_tokens_details":{"cached_tokens":21}},"timings":{"cache_n":21,"prompt_n":5,"predicted_n":4}}"#,
    r#"{"choices":[{"finish_reason":"length","index":1,"delta":{}}],"object":"chat.completion.chunk"}"#,
    r#"{"choices":[],"object":"chat.completion.chunk","usage":{"completion_tokens":5,"prompt_tokens":26,"total_tokens":31,"prompt_tokens_details":{"cached_tokens":21}},"timings":{"cache_n":21,"prompt_n":5,"predicted_n":5}}"#,
];

fn asked(prompt_tokens: &[u64], choices_each: usize) -> Asked {
    Asked {
        prompt_tokens: prompt_tokens.to_vec(),
        choices_each,
    }
}

fn shares(dialect: Dialect, events: &[impl AsRef<str>]) -> Shares {
    let (mut shares, mut skimmer) = (Shares::default(), Skimmer::new(dialect));
    let mut framer = Framer::new(1024 * 1024);
    for data in events {
        framer.push(format!("data: {}\n\n", data.as_ref()).into());
        let event = framer.next().expect("short").expect("an event");
        if let Ok(seen) = skimmer.skim(&event) {
            shares.hear(&seen);
        }
    }
    shares
}

/// Input, cached and output tokens, and what is said of them.
fn figures(shares: &Shares, asked: Asked) -> Option<([u64; 3], Vec<UsageFlag>)> {
    let (usage, flags) = shares.usage(|| asked)?.normalize();
    Some((
        [usage.input_tokens, usage.cached_tokens, usage.output_tokens],
        flags,
    ))
}

/// A chunk with an end or without, and the usage that is told of it.
fn chunk(index: u64, text: &str, usage: Option<(u64, u64)>) -> String {
    let usage = usage.map_or("null".to_owned(), |(prompt, output)| {
        format!(r#"{{"prompt_tokens":{prompt},"completion_tokens":{output}}}"#)
    });
    format!(r#"{{"choices":[{{"index":{index},"text":"{text}","finish_reason":null}}],"usage":{usage}}}"#)
}

fn total(prompt: u64, output: u64) -> String {
    format!(r#"{{"choices":[],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{output}}}}}"#)
}

#[test]
fn prompts_and_answers_that_are_told_apart_are_added_up() {
    let two = shares(Dialect::Completions, &TWO_PROMPTS);

    assert!(two.is_whole());
    assert_eq!(figures(&two, asked(&[5, 9], 1)), Some(([10, 4, 12], vec![])));
}

#[test]
fn choices_of_one_prompt_have_it_in_common() {
    let two = shares(Dialect::Completions, &TWO_PROMPTS);
    assert_eq!(
        figures(&two, asked(&[5], 2)),
        Some(([5, 1, 12], vec![])),
        "as its first choice tells"
    );

    let four: Vec<_> = [(3, 2), (0, 11), (1, 11), (2, 2)]
        .map(|(index, prompt)| chunk(index, "", Some((prompt, 3))))
        .into();
    let four = shares(Dialect::Completions, &four);
    assert_eq!(figures(&four, asked(&[1, 1], 2)), Some(([13, 0, 12], vec![])));
}

#[test]
fn usage_of_one_choice_that_stands_without_it_is_of_the_one_that_ended() {
    let two = shares(Dialect::Chat, &TWO_ANSWERS);
    assert_eq!(figures(&two, asked(&[9], 2)), Some(([5, 21, 9], vec![])));

    // The second was cut: 3 bytes were heard of it.
    let cut = shares(Dialect::Chat, &TWO_ANSWERS[..4]);
    assert!(!cut.is_whole());
    assert_eq!(
        figures(&cut, asked(&[9], 2)),
        Some(([5, 21, 5], vec![UsageFlag::Partial]))
    );
}

#[test]
fn a_figure_for_all_choices_stands_alone_whatever_each_was_told() {
    let told = |usage| {
        (0..3)
            .map(move |index| chunk(index, "word", usage))
            .collect::<Vec<_>>()
    };
    for mut events in [told(None), told(Some((7, 1)))] {
        events.push(total(7, 20));
        events.push(total(7, 21));
        events.push(r#"{"choices":[],"usage":null}"#.to_owned());

        let shares = shares(Dialect::Completions, &events);

        assert_eq!(figures(&shares, asked(&[9], 3)), Some(([7, 0, 21], vec![])));
    }
    let early = [
        total(7, 0),
        chunk(0, "word", Some((7, 1))),
        chunk(1, "word", Some((7, 2))),
    ];
    let early = shares(Dialect::Completions, &early);
    assert_eq!(
        figures(&early, asked(&[9], 2)),
        Some(([7, 0, 3], vec![])),
        "of nothing yet"
    );
}

#[test]
fn what_is_told_of_an_answer_of_one_choice_is_what_it_was() {
    let whole = shares(Dialect::Chat, &[chunk(0, "word", Some((7, 1))), total(7, 9)]);
    assert_eq!(figures(&whole, asked(&[1], 1)), Some(([7, 0, 9], vec![])));

    let later = shares(Dialect::Chat, &[total(7, 1), chunk(0, "word", Some((7, 9)))]);
    assert_eq!(figures(&later, asked(&[1], 1)), Some(([7, 0, 9], vec![])));

    let silent = shares(Dialect::Chat, &[chunk(0, "word", None), chunk(1, "word", None)]);
    assert_eq!(figures(&silent, asked(&[1], 1)), None);
}

#[test]
fn choices_and_prompts_that_nothing_was_told_of_are_estimated() {
    // The words have 4 bytes each, which is 2 tokens.
    let some = [
        chunk(1, "word", None),
        chunk(0, "word", Some((7, 1))),
        chunk(2, "word", Some((0, 0))),
    ];
    let some = shares(Dialect::Completions, &some);

    assert_eq!(
        figures(&some, asked(&[1, 20, 300], 1)),
        Some(([327, 0, 5], vec![UsageFlag::Partial]))
    );
}

#[test]
fn choices_beyond_those_that_are_told_apart_are_not_free() {
    let many = [
        chunk(0, "word", Some((7, 1))),
        chunk(1, "word", Some((7, 1))),
        chunk(u64::MAX, "word", Some((7, 50))),
    ];
    let many = shares(Dialect::Completions, &many);

    assert_eq!(
        figures(&many, asked(&[7], 3)),
        Some(([7, 0, 4], vec![UsageFlag::Partial]))
    );
}

#[test]
fn a_whole_answer_of_several_choices_whose_usage_is_of_the_first_is_estimated_for_the_rest() {
    // As llama-server tells it, of two prompts of 6 and 8 tokens with 6 tokens each.
    let body = r#"{"choices":[{"text":" the capital of the country of","index":0,"logprobs":null,"finish_reason":"length"},{"text":" eight nine ten eleven twelve thirteen","index":1,"logprobs":null,"finish_reason":"length"}],"object":"text_completion","usage":{"completion_tokens":6,"prompt_tokens":6,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0}},"id":"c","timings":{"cache_n":0,"prompt_n":6,"predicted_n":6}}"#;
    let figures_of = |body: &str, asked| {
        figures(
            &Shares::of_answer(&answer::skim(body.as_bytes()).expect("an answer")),
            asked,
        )
    };
    let partial = || vec![UsageFlag::Partial];

    // 38 bytes of the second text.
    assert_eq!(
        figures_of(body, asked(&[7, 9], 1)),
        Some(([15, 0, 17], partial()))
    );
    assert_eq!(figures_of(body, asked(&[7], 2)), Some(([6, 0, 17], partial())));
    let of_all = body.replace("timings", "times");
    assert_eq!(figures_of(&of_all, asked(&[7, 9], 1)), Some(([6, 0, 6], vec![])));
    let of_one = r#"{"choices":[{"text":"a","index":0}],"usage":{"completion_tokens":6,"prompt_tokens":6},"timings":{}}"#;
    assert_eq!(figures_of(of_one, asked(&[7], 1)), Some(([6, 0, 6], vec![])));
    let silent = r#"{"choices":[{"text":"a","index":0},{"text":"a","index":1}]}"#;
    assert_eq!(figures_of(silent, asked(&[7], 2)), None);
}

/// Prompts, choices of each, tokens of every choice, and an order in which they are told.
fn told() -> impl Strategy<Value = (Vec<u64>, usize, Vec<u64>, Vec<usize>)> {
    (1..4_usize, 1..4_usize).prop_flat_map(|(prompts, each)| {
        let choices = prompts * each;
        (
            proptest::collection::vec(1..1_000_u64, prompts),
            Just(each),
            proptest::collection::vec(1..1_000_u64, choices),
            Just((0..choices).collect::<Vec<_>>()).prop_shuffle(),
        )
    })
}

proptest! {
    #[test]
    fn the_sum_is_right_in_every_order((prompts, each, outputs, order) in told(), repeated in any::<bool>(), is_told in any::<bool>()) {
        let mut events = Vec::new();
        for &place in &order {
            let index = u64::try_from(place).unwrap();
            let prompt = prompts[place / each];
            if repeated {
                events.push(chunk(index, "", Some((prompt, 1))));
            }
            events.push(chunk(index, "", Some((prompt, outputs[place]))));
        }
        let sum = (prompts.iter().sum::<u64>(), outputs.iter().sum::<u64>());
        if is_told {
            events.push(total(sum.0, sum.1));
        }

        let shares = shares(Dialect::Completions, &events);

        let estimates = vec![5_000; prompts.len()];
        prop_assert_eq!(figures(&shares, asked(&estimates, each)), Some(([sum.0, 0, sum.1], vec![])));
    }
}
