//! What backends have to read, who gets the next call, and what is given back.

use proptest::prelude::*;

use super::*;

fn backend(name: &str) -> BackendId {
    BackendId::from(name)
}

fn prompt(caller: &str, tokens: u64) -> Prompt {
    Prompt {
        caller: caller.into(),
        conversation: Some([1; 16]),
        tokens,
    }
}

fn load(tokens: u64, elephants: u64) -> Load {
    Load { tokens, elephants }
}

fn prefill() -> Prefill {
    Prefill::new(Terms::default())
}

#[test]
fn a_prompt_counts_from_its_start_to_its_first_token() {
    let mut prefill = prefill();
    let a = backend("a");

    let lease = prefill.begin(prompt("k", 1_000), &a, 0);
    let other = prefill.begin(prompt("l", 200_000), &a, 0);
    assert_eq!(prefill.load(&a), load(201_000, 1));

    prefill.first_token(&lease);
    prefill.first_token(&lease);
    prefill.end(&lease, true, 10);
    prefill.end(&lease, true, 10);
    assert_eq!(prefill.load(&a), load(200_000, 1));

    prefill.end(&other, false, 20);
    assert_eq!(prefill.load(&a), Load::default());
    assert_eq!(prefill.load(&backend("b")), Load::default());
}

/// A caller whose prompt of 1,000 tokens was answered at 100.
fn answered(whole: bool) -> Prefill {
    let mut prefill = prefill();
    let lease = prefill.begin(prompt("k", 1_000), &backend("a"), 0);
    prefill.end(&lease, whole, 100);
    prefill
}

#[test]
fn what_a_backend_has_read_of_a_conversation_is_taken_off() {
    let prefill = answered(true);
    let next = prompt("k", 1_300);
    let other = Prompt {
        conversation: Some([2; 16]),
        ..next.clone()
    };
    let unknown = Prompt {
        conversation: None,
        ..next.clone()
    };

    assert_eq!(prefill.unread(&next, &backend("a"), 200), 300);
    assert_eq!(prefill.unread(&prompt("k", 900), &backend("a"), 200), 0);
    assert_eq!(prefill.unread(&next, &backend("b"), 200), 1_300);
    assert_eq!(prefill.unread(&prompt("l", 1_300), &backend("a"), 200), 1_300);
    assert_eq!(prefill.unread(&other, &backend("a"), 200), 1_300);
    assert_eq!(prefill.unread(&unknown, &backend("a"), 200), 1_300);
    assert_eq!(answered(false).unread(&next, &backend("a"), 200), 1_300);
}

#[test]
fn a_conversation_without_a_beginning_is_never_known() {
    let mut prefill = prefill();
    let nameless = Prompt {
        conversation: None,
        ..prompt("k", 1_000)
    };
    let lease = prefill.begin(nameless.clone(), &backend("a"), 0);
    prefill.end(&lease, true, 100);

    assert_eq!(prefill.unread(&nameless, &backend("a"), 200), 1_000);
}

#[test]
fn a_cache_is_believed_for_twenty_minutes_and_until_its_endpoint_fails() {
    let mut prefill = answered(true);
    let next = prompt("k", 1_300);

    assert_eq!(prefill.unread(&next, &backend("a"), 1_200_099), 300);
    assert_eq!(prefill.unread(&next, &backend("a"), 1_200_100), 1_300);
    prefill.forget(&backend("b"));
    assert_eq!(prefill.unread(&next, &backend("a"), 200), 300);
    prefill.forget(&backend("a"));
    assert_eq!(prefill.unread(&next, &backend("a"), 200), 1_300);
}

#[test]
fn elephants_do_not_queue_up_behind_each_other() {
    let mut prefill = prefill();
    let (a, b) = (backend("a"), backend("b"));
    let elephant = prompt("k", 200_000);
    assert!(!prefill.is_crowded(&elephant, &a, 0));

    prefill.begin(prompt("l", 200_000), &a, 0);
    assert!(prefill.is_crowded(&elephant, &a, 0));
    assert!(!prefill.is_crowded(&elephant, &b, 0));
    assert!(!prefill.is_crowded(&prompt("k", 199_999), &a, 0));
}

#[test]
fn an_elephant_is_one_only_where_it_is_not_cached() {
    let mut prefill = prefill();
    let (a, b) = (backend("a"), backend("b"));
    let lease = prefill.begin(prompt("k", 200_000), &a, 0);
    prefill.end(&lease, true, 100);
    for place in [&a, &b] {
        prefill.begin(prompt("l", 200_000), place, 100);
    }

    let longer = prompt("k", 210_000);
    assert!(!prefill.is_crowded(&longer, &a, 200));
    assert!(prefill.is_crowded(&longer, &b, 200));
}

#[test]
fn longer_prompts_are_less_urgent() {
    let terms = Terms::default();

    let priorities = [0, 49_999, 50_000, 199_999, 200_000, u64::MAX].map(|tokens| terms.priority(tokens));
    assert_eq!(priorities, [20, 20, 15, 15, 0, 0]);
}

#[test]
fn the_oldest_memories_go_first() {
    let mut prefill = prefill();
    let a = backend("a");
    for number in 0..=MEMORIES_MAX {
        let now_ms = number as u64;
        let lease = prefill.begin(prompt(&number.to_string(), 10), &a, now_ms);
        prefill.end(&lease, true, now_ms);
    }

    assert_eq!(prefill.memories.len(), MEMORIES_MAX);
    assert_eq!(prefill.unread(&prompt("0", 15), &a, 60_000), 15);
    assert_eq!(prefill.unread(&prompt("1", 15), &a, 60_000), 5);
}

proptest! {
    #[test]
    fn nothing_is_left_when_all_calls_are_over(acts in prop::collection::vec((0..4_u8, 0..3_usize, 0..300_000_u64), 1..80)) {
        let mut prefill = prefill();
        let backends = ["a", "b", "c"].map(backend);
        let mut open = Vec::new();
        for (act, place, tokens) in acts {
            match (act, open.is_empty()) {
                (0 | 1, _) | (_, true) => {
                    open.push(prefill.begin(prompt("k", tokens), &backends[place], tokens));
                }
                (2, false) => prefill.first_token(&open[place % open.len()]),
                _ => {
                    let lease = open.swap_remove(place % open.len());
                    prefill.end(&lease, tokens % 2 == 0, tokens);
                }
            }
        }
        for lease in &open {
            prefill.first_token(lease);
            prop_assert!(prefill.readings.contains_key(&lease.0));
        }
        prop_assert!(prefill.loads.is_empty(), "all is read");
        for lease in &open {
            prefill.end(lease, true, 0);
        }
        prop_assert!(prefill.readings.is_empty());
    }
}
