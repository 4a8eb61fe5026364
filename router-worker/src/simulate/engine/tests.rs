//! What a mock engine takes how long for, what it caches, and what it forgets.

use super::*;

fn kind(kv_tokens: u64) -> scenario::Engine {
    scenario::Engine {
        step_us: 1_000,
        prefill_ns_per_token: 10_000,
        decode_us_per_token: 100,
        step_tokens_max: 512,
        sequences_max: 2,
        kv_tokens,
    }
}

fn job(call: usize, blocks: &[u64], output_tokens: u64) -> Job {
    Job {
        call,
        blocks: blocks.into(),
        prompt_tokens: u64::try_from(blocks.len()).expect("few") * 100,
        output_tokens,
    }
}

/// Works until nothing is left: what was done at which microsecond.
fn work(engine: &mut Engine) -> Vec<(u64, Did)> {
    let (mut now_us, mut done) = (0, Vec::new());
    while let Some(took_us) = engine.begin() {
        now_us += took_us;
        done.extend(engine.end().into_iter().map(|did| (now_us, did)));
    }
    done
}

const fn first(call: usize, cached_tokens: u64) -> Did {
    Did::First { call, cached_tokens }
}

const fn last(call: usize) -> Did {
    Did::Last { call }
}

#[test]
fn a_prompt_is_read_in_steps_and_an_answer_said_token_by_token() {
    let mut engine = Engine::new(&kind(10_000), 100, 100);
    engine.take(job(0, &[1, 2, 3, 4, 5, 6], 3));

    // 512 tokens at 10 µs, then the other 88, each time with the step's own millisecond; two more tokens.
    let read_us = 1_000 + 5_120 + 1_000 + 880;
    assert_eq!(
        work(&mut engine),
        [(read_us, first(0, 0)), (read_us + 2 * 1_100, last(0))]
    );
}

#[test]
fn a_quarter_of_the_speed_takes_four_times_as_long() {
    let mut engine = Engine::new(&kind(10_000), 25, 100);
    engine.take(job(0, &[1, 2, 3], 1));

    assert_eq!(work(&mut engine), [(16_000, first(0, 0)), (16_000, last(0))]);
}

#[test]
fn what_was_read_is_not_read_again_but_for_the_last_token() {
    let mut engine = Engine::new(&kind(10_000), 100, 100);
    engine.take(job(0, &[1, 2, 3], 1));
    work(&mut engine);

    engine.take(job(1, &[1, 2, 9], 1));
    assert_eq!(work(&mut engine), [(2_000, first(1, 200)), (2_000, last(1))]);
    engine.take(job(2, &[1, 2, 3], 1));
    assert_eq!(work(&mut engine), [(1_010, first(2, 299)), (1_010, last(2))]);
}

#[test]
fn beyond_its_places_requests_wait_and_are_taken_in_as_they_came() {
    let mut engine = Engine::new(&kind(10_000), 100, 100);
    for call in 0..3 {
        engine.take(job(call, &[10 + u64::try_from(call).expect("few")], 2));
    }

    assert!(engine.begin().is_some());
    let sample = engine.sample();
    assert_eq!((sample.running, sample.waiting), (Some(2), Some(1)));
    assert!(engine.begin().is_none(), "one step at a time");
    engine.end();

    let calls: Vec<Did> = work(&mut engine).into_iter().map(|(_, did)| did).collect();
    assert_eq!(calls, [last(0), last(1), first(2, 0), last(2)]);
}

#[test]
fn a_full_cache_forgets_what_was_used_longest_ago_and_ends_before_beginnings() {
    // Room for six blocks; a request of two blocks with its answer takes three.
    let mut engine = Engine::new(&kind(600), 100, 100);
    for (call, blocks) in [[1, 2], [3, 4], [5, 6]].iter().enumerate() {
        engine.take(job(call, blocks, 1));
        work(&mut engine);
    }

    // 1 2 3 4 were kept when the third came and needed three: 2 is gone, then 1 would be.
    engine.take(job(3, &[1, 2], 1));
    assert_eq!(work(&mut engine)[0].1, first(3, 100));
}

#[test]
fn who_finds_no_room_waits_until_somebody_is_done() {
    let mut engine = Engine::new(&kind(500), 100, 100);
    engine.take(job(0, &[1, 2, 3], 2));
    engine.take(job(1, &[4, 5, 6], 1));

    assert!(engine.begin().is_some());
    assert_eq!(engine.sample().waiting, Some(1));
    assert_eq!(engine.sample().kv_percent_milli, Some(80_000));
    engine.end();

    let calls: Vec<Did> = work(&mut engine).into_iter().map(|(_, did)| did).collect();
    assert_eq!(calls, [last(0), first(1, 0), last(1)]);
    assert_eq!(engine.sample().kv_percent_milli, Some(0));
}
