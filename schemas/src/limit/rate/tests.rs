//! A rate by itself and among nodes: exactly the limit, cut off or not.

use proptest::prelude::*;

use super::*;

/// A moment: milliseconds of the wall clock, which the monotonic one follows.
fn at(ms: u64) -> Now {
    Now {
        wall: Timestamp::from_micros(i64::try_from(ms * 1_000).expect("a time")),
        mono_ms: ms,
        nodes: 4,
    }
}

fn seconds(limit: u64) -> Rate {
    Rate::new(Slice::Second, limit)
}

fn add(index: i64, amount: u64) -> Add {
    Add {
        slice: Slice::Second,
        index,
        amount,
    }
}

#[test]
fn a_chunk_is_handed_out_without_asking_again() {
    let mut rate = seconds(160);

    assert_eq!(rate.take(1, 1, at(10_000)), Take::Waiting);
    assert_eq!(
        rate.next(at(10_000)),
        Some(add(10, 10)),
        "a sixteenth of what is left"
    );
    assert_eq!(rate.next(at(10_000)), None, "one question at a time");
    rate.added(10, at(10_001));
    for wish in 1..=10 {
        assert_eq!(rate.take(wish, 1, at(10_002)), Take::Granted);
    }
    assert_eq!(rate.take(11, 1, at(10_003)), Take::Waiting);
    assert_eq!(rate.next(at(10_003)), Some(add(10, 9)), "a sixteenth of 150");
}

#[test]
fn what_was_counted_under_a_higher_limit_is_not_handed_out_under_a_lower_one() {
    for (lower, is_ruled_out) in [(50, true), (150, false)] {
        let mut rate = seconds(1_600);
        rate.take(1, 1, at(10_000));
        rate.next(at(10_000));
        rate.added(100, at(10_001));
        assert_eq!(rate.take(1, 1, at(10_002)), Take::Granted);
        let permit = rate.permit(1);

        rate.limit_to(lower);

        // Others may have used more than that by now.
        let take = rate.take(2, 1, at(10_003));
        assert_eq!(take == Take::Refused(Shortage::Used), is_ruled_out, "{lower}");
        if !is_ruled_out {
            assert_eq!(take, Take::Waiting);
            assert_eq!(rate.next(at(10_003)), Some(add(10, 3)));
            rate.added(160, at(10_004));
            assert_eq!(rate.take(2, 1, at(10_005)), Take::Refused(Shortage::Used));
        }
        rate.give_back(permit, at(10_006));
        assert_eq!(rate.take(3, 1, at(10_007)), Take::Refused(Shortage::Used));

        assert_eq!(rate.take(4, 1, at(11_000)), Take::Waiting);
        rate.next(at(11_000));
        rate.added(10, at(11_001));
        assert_eq!(rate.take(4, 1, at(11_002)), Take::Granted);
        let permit = rate.permit(1);
        let left = rate.standing();
        rate.give_back(permit, at(11_003));
        assert_eq!(rate.standing().remaining, left.remaining + 1, "{lower}");
    }
}

#[test]
fn what_an_addition_brings_beyond_the_limit_is_not_had() {
    let mut rate = seconds(100);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.added(103, at(10_001));

    assert_eq!(rate.standing(), Standing::left(100, 3), "97 were taken before");
    for wish in 1..=3 {
        assert_eq!(rate.take(wish, 1, at(10_002)), Take::Granted);
    }
    assert_eq!(rate.take(4, 1, at(10_002)), Take::Refused(Shortage::Used));
    assert_eq!(rate.next(at(10_002)), None, "refused without asking");
    assert_eq!(rate.take(5, 1, at(11_000)), Take::Waiting, "until the slice ends");
}

#[test]
fn what_the_last_seen_value_rules_out_is_refused_without_asking() {
    let mut rate = Rate::new(Slice::Minute, 1_000);
    assert_eq!(
        rate.take(1, 1_001, at(0)),
        Take::Refused(Shortage::Used),
        "more than there ever is"
    );
    rate.take(2, 100, at(0));
    assert_eq!(rate.next(at(0)).map(|add| add.amount), Some(100));
    rate.added(950, at(1));

    assert_eq!(
        rate.take(3, 151, at(2)),
        Take::Refused(Shortage::Used),
        "50 left and 100 in hand"
    );
    assert_eq!(rate.take(2, 100, at(2)), Take::Granted);
    assert_eq!(rate.take(4, 50, at(2)), Take::Waiting);
}

#[test]
fn wishes_are_served_in_the_order_they_came() {
    let mut rate = seconds(10);
    assert_eq!(rate.take(1, 4, at(10_000)), Take::Waiting);
    rate.next(at(10_000));
    rate.added(4, at(10_001));

    assert_eq!(
        rate.take(2, 1, at(10_001)),
        Take::Waiting,
        "what there is belongs to the first"
    );
    assert_eq!(rate.take(1, 4, at(10_002)), Take::Granted);
    rate.cancel(2);
    assert_eq!(rate.next(at(10_002)), None, "nobody waits");
}

#[test]
fn an_answer_that_comes_in_another_slice_brings_nothing() {
    let mut rate = seconds(10);
    rate.take(1, 1, at(10_900));
    rate.next(at(10_900));
    rate.added(1, at(11_100));

    assert_eq!(rate.take(1, 1, at(11_100)), Take::Waiting);
    assert_eq!(rate.next(at(11_100)), Some(add(11, 1)));
    rate.failed();
    assert_eq!(
        rate.next(at(11_200)),
        Some(add(11, 1)),
        "asked again, what it may have brought is lost"
    );
}

#[test]
fn a_permit_that_was_not_used_comes_back_within_its_slice() {
    let mut rate = seconds(1);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.added(1, at(10_001));
    assert_eq!(rate.take(1, 1, at(10_002)), Take::Granted);
    let permit = rate.permit(1);
    assert_eq!(rate.take(2, 1, at(10_003)), Take::Refused(Shortage::Used));

    rate.give_back(permit, at(10_004));
    assert_eq!(rate.take(3, 1, at(10_005)), Take::Granted);
    rate.give_back(permit, at(11_000));
    assert_eq!(rate.take(4, 1, at(11_000)), Take::Waiting, "its slice is over");
}

#[test]
fn a_node_that_is_cut_off_hands_out_its_share_from_the_next_slice_on_for_half_a_minute() {
    let mut rate = seconds(10);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.cut(at(10_100));
    rate.failed();

    assert_eq!(
        rate.take(1, 1, at(10_200)),
        Take::Waiting,
        "nothing in hand in the running slice"
    );
    assert_eq!(rate.next(at(10_200)), None);
    assert_eq!(rate.take(1, 1, at(11_000)), Take::Granted, "ten over four nodes");
    assert!(rate.permit(1).share);
    assert_eq!(rate.take(2, 1, at(11_100)), Take::Granted);
    assert_eq!(rate.take(3, 1, at(11_200)), Take::Refused(Shortage::Used));
    assert_eq!(rate.take(4, 1, at(40_000)), Take::Granted);
    assert_eq!(rate.take(5, 1, at(40_101)), Take::Refused(Shortage::Away));
    rate.restore();
    assert_eq!(rate.take(6, 1, at(40_200)), Take::Waiting);
    assert_eq!(
        rate.next(at(40_200)),
        Some(add(40, 2)),
        "one to take, and one of the share to report"
    );
}

#[test]
fn a_clock_that_goes_back_brings_no_second_share() {
    let mut rate = seconds(4);
    let slice = |second: u64, mono_ms: u64| Now {
        mono_ms,
        ..at(second * 1_000)
    };
    rate.cut(slice(10, 0));

    assert_eq!(rate.take(1, 1, slice(12, 100)), Take::Granted);
    assert_eq!(rate.take(2, 1, slice(11, 200)), Take::Waiting);
    assert_eq!(rate.take(3, 1, slice(12, 300)), Take::Refused(Shortage::Used));
}

#[test]
fn counters_that_were_made_anew_are_asked_from_the_next_slice_on() {
    let mut rate = seconds(100);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.added(50, at(10_001));
    rate.sit_out(at(10_100).wall);

    for wish in 1..=6 {
        assert_eq!(rate.take(wish, 1, at(10_200)), Take::Granted, "what is in hand");
    }
    assert_eq!(rate.take(7, 1, at(10_200)), Take::Waiting);
    assert_eq!(rate.next(at(10_200)), None);
    assert_eq!(rate.next(at(11_000)), Some(add(11, 6)));
}

#[test]
fn a_counter_that_went_down_is_not_believed() {
    let mut rate = seconds(160);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.added(100, at(10_001));
    for wish in 1..=10 {
        assert_eq!(rate.take(wish, 1, at(10_002)), Take::Granted);
    }
    rate.take(11, 1, at(10_003));
    rate.next(at(10_003));

    rate.added(3, at(10_004));

    assert_eq!(rate.take(11, 1, at(10_005)), Take::Waiting);
    assert_eq!(rate.next(at(10_005)), None, "sat out");
    assert_eq!(rate.take(11, 1, at(10_800)), Take::Waiting);
}

#[test]
fn near_the_end_of_a_slice_the_next_one_is_sat_out_too() {
    let mut rate = seconds(5);

    rate.sit_out(at(10_800).wall);

    rate.take(1, 1, at(11_500));
    assert_eq!(rate.next(at(11_500)), None, "others may have been in it already");
    assert_eq!(rate.next(at(12_000)), Some(add(12, 1)));
}

#[test]
fn a_limit_that_is_lowered_holds_at_once() {
    let mut rate = seconds(100);
    rate.take(1, 1, at(10_000));
    rate.next(at(10_000));
    rate.added(60, at(10_001));
    rate.limit_to(50);

    assert_eq!(rate.next(at(10_002)), None);
    assert_eq!(rate.take(1, 1, at(10_002)), Take::Refused(Shortage::Used));
    rate.limit_to(100);
    assert_eq!(rate.take(2, 1, at(10_002)), Take::Waiting, "it has to ask again");
    assert_eq!(rate.next(at(10_002)), Some(add(10, 2)));
}

#[test]
fn eight_nodes_hand_out_a_thousand_of_five_thousand_that_are_asked_for_at_once() {
    let mut nodes: Vec<Rate> = (0..8).map(|_| Rate::new(Slice::Minute, 1_000)).collect();
    let (mut counter, mut additions) = (0, 0);
    let mut decided = [0_u32; 2];
    let mut waiting: Vec<Vec<u64>> = (0..8).map(|_| (0..625).collect()).collect();
    while waiting.iter().any(|wishes| !wishes.is_empty()) {
        let mut answers = Vec::new();
        for (rate, wishes) in nodes.iter_mut().zip(&mut waiting) {
            wishes.retain(|wish| match rate.take(*wish, 1, at(1_000)) {
                Take::Waiting => true,
                Take::Granted => {
                    decided[0] += 1;
                    false
                }
                Take::Refused(_) => {
                    decided[1] += 1;
                    false
                }
            });
            // All additions are made before any is answered.
            answers.push(rate.next(at(1_000)).map(|add| {
                counter += add.amount;
                additions += 1;
                counter
            }));
        }
        for (rate, value) in nodes.iter_mut().zip(answers) {
            if let Some(value) = value {
                rate.added(value, at(1_001));
            }
        }
    }

    assert_eq!(decided, [1_000, 4_000]);
    assert!(additions < 200, "{additions} additions");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Each node is offered more than the limit. Answers come in any order, and some additions are never answered.
    #[test]
    fn all_nodes_together_hand_out_exactly_the_limit(
        limit in 1..200_u64,
        order in prop::collection::vec((0..4_usize, 0..20_u8), 0..800),
        lossless in any::<bool>(),
    ) {
        let mut nodes: Vec<Rate> = (0..4).map(|_| seconds(limit)).collect();
        let mut counter = 0;
        let mut answers: Vec<Option<u64>> = vec![None; 4];
        let mut handed = 0;
        let mut wishes = 0;
        let mut lost = false;
        let turns = order.into_iter().chain((0..4_000).map(|turn| (turn % 4, 19)));
        for (node, what) in turns {
            let rate = &mut nodes[node];
            match what {
                0 if answers[node].is_some() && !lossless => {
                    answers[node] = None;
                    lost = true;
                    rate.failed();
                }
                0..6 if answers[node].is_some() => {
                    rate.added(answers[node].take().expect("an answer"), at(10_500));
                }
                _ => {
                    wishes += 1;
                    handed += u64::from(rate.take(wishes, 1, at(10_500)) == Take::Granted);
                    rate.cancel(wishes);
                    wishes += 1;
                    if rate.take(wishes, 1, at(10_500)) == Take::Granted {
                        handed += 1;
                    } else {
                        if let Some(value) = answers[node].take() {
                            rate.added(value, at(10_500));
                        }
                        if let Some(add) = rate.next(at(10_500)) {
                            counter += add.amount;
                            answers[node] = Some(counter);
                        }
                        rate.cancel(wishes);
                    }
                }
            }
            prop_assert!(handed <= limit, "{handed} of {limit}");
        }
        if !lost {
            prop_assert_eq!(handed, limit, "all of it, in the end");
        }
    }
}
