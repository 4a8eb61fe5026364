//! Levels and policies.

use super::*;

#[test]
fn levels_have_the_words_of_headers_and_metrics_in_the_order_of_look_up() {
    let words = Level::ALL.map(Level::as_str);

    assert_eq!(
        words,
        ["header", "hint", "cache_key", "user", "l2", "l1", "caller"]
    );
    assert!(Level::ALL.is_sorted());
}

#[test]
fn nothing_stays_unless_it_is_made_to() {
    let policy = Policy::default();

    assert!(Level::ALL.iter().all(|level| !policy.uses(*level)));
    assert_eq!(policy.life_ms(Level::L1), 1_800_000);
    assert_eq!(policy.life_ms(Level::Caller), 300_000);
    assert_eq!(policy.age_ms_max, 86_400_000);
}

#[test]
fn sessions_and_callers_are_made_to_stay_apart_from_each_other() {
    let sessions = Policy {
        sessions: true,
        ..Policy::default()
    };
    let caller = Policy {
        caller: true,
        ..Policy::default()
    };

    for level in Level::ALL {
        assert_eq!(sessions.uses(level), level != Level::Caller, "{level:?}");
        assert_eq!(caller.uses(level), level == Level::Caller, "{level:?}");
    }
}
