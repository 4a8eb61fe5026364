//! Tests of accounts.

use super::*;

const MONTH: u64 = 30 * 86_400;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros((1_796_000_000 + seconds) * 1_000_000)
}

fn account() -> Account {
    let email = Email::parse("ann@example.com").expect("an address");
    Account::new(TenantId::from("acme"), UserId::from("ann"), email)
}

fn next(account: &Account, presented: (&str, u32), seconds: i64) -> (Account, u32) {
    match account.turned(presented, at(seconds), MONTH) {
        Turned::Next(account, turn) => (account, turn),
        other => panic!("{presented:?}: {other:?}"),
    }
}

#[test]
fn each_refresh_token_is_good_once_and_one_that_comes_twice_ends_its_session() {
    let one = account().signed_in("s1".into(), at(0), MONTH);
    let both = one.signed_in("s2".into(), at(1), MONTH);

    let (after, turn) = next(&both, ("s1", 0), 10);
    assert_eq!(turn, 1);
    let (after, turn) = next(&after, ("s1", 1), 20);
    assert_eq!(turn, 2);

    for used in [0, 1, 3] {
        let Turned::Reused(ended) = after.turned(("s1", used), at(30), MONTH) else {
            panic!("{used} is good again");
        };
        assert_eq!(ended.session("s1", at(30)), None);
        assert!(ended.session("s2", at(30)).is_some(), "the other goes on");
        assert_eq!(ended.turned(("s1", 2), at(31), MONTH), Turned::Over);
    }
    assert_eq!(after.turned(("s3", 0), at(30), MONTH), Turned::Over);
}

#[test]
fn the_token_before_the_newest_gives_the_newest_for_ten_seconds_and_no_older_one_does() {
    let made = account().signed_in("s1".into(), at(0), MONTH);
    let (first, _) = next(&made, ("s1", 0), 10);
    let (second, _) = next(&first, ("s1", 1), 20);

    for (seconds, gives_again) in [(-41, false), (-40, true), (20, true), (29, true), (30, false)] {
        let turned = second.turned(("s1", 1), at(seconds), MONTH);
        assert_eq!(turned == Turned::Again(2), gives_again, "{seconds}: {turned:?}");
        assert!(gives_again || matches!(turned, Turned::Reused(_)), "{seconds}");
    }
    assert!(matches!(
        second.turned(("s1", 0), at(21), MONTH),
        Turned::Reused(_)
    ));
    assert!(matches!(
        first.turned(("s1", 2), at(11), MONTH),
        Turned::Reused(_)
    ));
    assert!(matches!(made.turned(("s1", 1), at(1), MONTH), Turned::Reused(_)));
    // It counts from the rotation, not from when it was presented last.
    let Turned::Again(_) = first.turned(("s1", 0), at(19), MONTH) else {
        panic!("it gives the newest again");
    };
    assert!(matches!(
        first.turned(("s1", 0), at(20), MONTH),
        Turned::Reused(_)
    ));
}

#[test]
fn a_session_ends_when_it_is_not_refreshed_in_time() {
    let account = account().signed_in("s1".into(), at(0), 100);

    assert!(account.session("s1", at(99)).is_some());
    assert_eq!(account.session("s1", at(100)), None);
    assert_eq!(account.turned(("s1", 0), at(100), 100), Turned::Over);
    let Turned::Next(account, _) = account.turned(("s1", 0), at(99), 100) else {
        panic!("it was refreshed in time");
    };
    assert!(account.session("s1", at(198)).is_some());
}

#[test]
fn the_longest_idle_session_goes_when_there_are_too_many() {
    let mut account = account();
    for number in 0..SESSIONS_MAX {
        account = account.signed_in(format!("s{number}").into(), at(0), MONTH);
    }
    let (account, _) = next(&account, ("s0", 0), 1);

    let account = account.signed_in("new".into(), at(2), MONTH);

    assert_eq!(account.sessions.len(), SESSIONS_MAX);
    assert!(account.session("s0", at(2)).is_some(), "it was refreshed");
    assert_eq!(account.session("s1", at(2)), None);
}

#[test]
fn another_password_signs_out_everywhere_else_and_takes_the_reset_away() {
    let mut account = account()
        .signed_in("s1".into(), at(0), MONTH)
        .signed_in("s2".into(), at(0), MONTH);
    let digest = Digest([7; 32]);
    account.reset = Some(Reset {
        digest,
        ends_at: at(60),
    });
    assert!(account.is_reset_by(&digest, at(59)));
    assert!(!account.is_reset_by(&digest, at(60)));
    assert!(!account.is_reset_by(&Digest([8; 32]), at(0)));

    let kept = account.with_password(Hash::new("$new".to_owned()), Some("s2"));
    assert_eq!(kept.session("s1", at(1)), None);
    assert!(kept.session("s2", at(1)).is_some());
    assert!(!kept.is_reset_by(&digest, at(1)));
    let none = account.with_password(Hash::new("$new".to_owned()), None);
    assert_eq!(none.sessions, []);
}

#[test]
fn of_letters_that_were_asked_for_one_after_another_each_is_good_until_one_is_used() {
    let reset = |n: u8| Reset {
        digest: Digest([n; 32]),
        ends_at: at(60 + i64::from(n)),
    };
    let good = |account: &Account, seconds| {
        let all = (0..=40).filter(|n| account.is_reset_by(&Digest([*n; 32]), at(seconds)));
        all.collect::<Vec<u8>>()
    };
    let mut account = account().with_reset(reset(0));
    for n in 1..4 {
        account = account.with_another_reset(reset(n), at(0));
    }

    assert_eq!(good(&account, 1), [0, 1, 2, 3]);
    assert_eq!(good(&account, 61), [2, 3]);
    let later = account.with_another_reset(reset(4), at(62));
    assert_eq!(
        (good(&later, 0), later.earlier.len()),
        (vec![3, 4], 1),
        "what is over is not kept"
    );
    let text = serde_json::to_string(&account).expect("serialize");
    assert_eq!(serde_json::from_str::<Account>(&text).expect("read"), account);
    // An administrator's is the only one, and a password that is chosen ends them all.
    assert_eq!(good(&account.with_reset(reset(9)), 1), [9]);
    let hash = || Hash::new("$new".to_owned());
    assert_eq!(good(&account.with_chosen_password(hash()), 1), Vec::<u8>::new());
    assert_eq!(good(&account.with_password(hash(), None), 1), Vec::<u8>::new());
    for n in 10..40 {
        account = account.with_another_reset(reset(n), at(0));
    }
    assert_eq!(good(&account, 1), (24..40).collect::<Vec<u8>>());
}

#[test]
fn keys_tell_whose_account_they_are_and_passwords_are_not_shown() {
    let mut account = account();
    account.password = Some(Hash::new("$argon2id$canary".to_owned()));

    assert_eq!(
        owner_of_key(&account.key()),
        Some((TenantId::from("acme"), UserId::from("ann")))
    );
    assert_eq!(owner_of_key(&email_key(Digest([1; 32]))), None);
    assert_eq!(owner_of_key(subject::account::SETUP), None);
    assert!(!format!("{account:?}").contains("canary"));
    let text = serde_json::to_string(&account).expect("serialize");
    assert_eq!(serde_json::from_str::<Account>(&text).expect("read"), account);
}

#[test]
fn who_is_known_to_a_provider_keeps_no_way_in_of_before_and_a_chosen_password_lets_go_of_him() {
    let mut account = account().signed_in("s1".into(), at(0), MONTH);
    account.password = Some(Hash::new("$old".to_owned()));
    account.reset = Some(Reset {
        digest: Digest([7; 32]),
        ends_at: at(60),
    });
    let identity = Identity {
        issuer: "https://login.example.com".to_owned(),
        subject: "person-1".to_owned(),
    };

    let known = account.of_identity(identity.clone());
    assert_eq!(
        (&known.password, &known.reset, known.sessions.len()),
        (&None, &None, 0)
    );
    assert_eq!(known.identity, Some(identity.clone()));
    let text = serde_json::to_string(&known).expect("serialize");
    assert_eq!(serde_json::from_str::<Account>(&text).expect("read"), known);

    let again = known.signed_in("s2".into(), at(1), MONTH);
    let changed = again.with_password(Hash::new("$new".to_owned()), Some("s2"));
    assert_eq!(changed.identity, Some(identity), "he changed it himself");
    let chosen = again.with_chosen_password(Hash::new("$new".to_owned()));
    assert_eq!((chosen.identity, chosen.sessions.len()), (None, 0));
}
