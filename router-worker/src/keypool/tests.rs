//! Which credential is used next.

use super::*;

const LIMITED: Flaw = Flaw::Limited { seconds: None };

/// All are muted, the last because of its rate.
fn limited(seconds: u64) -> Lack {
    Lack::Muted {
        refused: false,
        seconds,
    }
}

fn pool(roles: &[Role]) -> Pool {
    let mut pool = Pool::default();
    pool.declare(declared(roles));
    pool
}

fn declared(roles: &[Role]) -> Vec<Declaration> {
    let declaration = |(place, role): (usize, &Role)| Declaration {
        reference: CredentialRef(format!("k{place}")),
        secret: Arc::new(Secret::new(format!("secret-{place}"))),
        place,
        role: *role,
    };
    roles.iter().enumerate().map(declaration).collect()
}

fn asker(tenant: &str, role: Role) -> Asker {
    Asker {
        tenant: TenantId::from(tenant),
        role,
    }
}

fn free() -> Asker {
    asker("acme", Role::Free)
}

fn place(pool: &mut Pool, asker: &Asker, now_ms: u64) -> usize {
    pool.acquire(asker, &[], now_ms).expect("a credential").place
}

/// Tries credentials until none is left, each failing; gives their places and what followed.
fn request(pool: &mut Pool, flaw: Flaw, now_ms: u64) -> Vec<(usize, Consequence)> {
    let (mut tried, mut seen) = (Vec::new(), Vec::new());
    while let Ok(lease) = pool.acquire(&free(), &tried, now_ms) {
        tried.push(lease);
        let consequence = pool.failed(&free(), &tried, flaw, now_ms);
        seen.push((lease.place, consequence));
    }
    seen
}

#[test]
fn a_credential_that_failed_while_another_was_left_stays_the_first() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    for _ in 0..5 {
        let first = pool.acquire(&free(), &[], 0).expect("a credential");
        assert_eq!(first.place, 0);
        assert_eq!(pool.failed(&free(), &[first], LIMITED, 0), Consequence::Free);
        let second = pool.acquire(&free(), &[first], 0).expect("another");
        assert_eq!(second.place, 1);
        pool.succeeded(second);
    }
}

#[test]
fn only_the_last_one_is_muted_and_it_comes_back() {
    let mut pool = pool(&[Role::Free, Role::Free]);

    assert_eq!(
        request(&mut pool, LIMITED, 0),
        [(0, Consequence::Free), (1, Consequence::Muted)]
    );
    assert_eq!(request(&mut pool, LIMITED, 19_999), [(0, Consequence::Free)]);
    assert_eq!(
        request(&mut pool, LIMITED, 20_000),
        [(0, Consequence::Free), (1, Consequence::Muted)]
    );
}

#[test]
fn the_only_credential_has_two_failures_free_and_is_muted_briefly() {
    let mut pool = pool(&[Role::Free]);

    assert_eq!(request(&mut pool, LIMITED, 0), [(0, Consequence::Free)]);
    assert_eq!(request(&mut pool, LIMITED, 0), [(0, Consequence::Free)]);
    assert_eq!(request(&mut pool, LIMITED, 0), [(0, Consequence::Muted)]);
    assert_eq!(pool.acquire(&free(), &[], 14_999), Err(limited(1)));
    assert_eq!(request(&mut pool, LIMITED, 15_000), [(0, Consequence::Muted)]);
    assert_eq!(pool.acquire(&free(), &[], 30_500), Err(limited(5)));
    let back = pool.acquire(&free(), &[], 35_000).expect("a credential");
    pool.succeeded(back);
    assert_eq!(request(&mut pool, LIMITED, 35_000), [(0, Consequence::Free)]);
    assert_eq!(sole_mute_ms(u32::MAX), MUTE_MS);
}

#[test]
fn a_credential_that_is_refused_again_is_asked_last_for_a_while() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    for consequence in [Consequence::Free, Consequence::Last] {
        let lease = pool.acquire(&free(), &[], 0).expect("a credential");
        assert_eq!(lease.place, 0);
        assert_eq!(pool.failed(&free(), &[lease], Flaw::Refused, 0), consequence);
    }

    assert_eq!(place(&mut pool, &asker("b", Role::Free), 0), 1);
    assert_eq!(place(&mut pool, &free(), 0), 1);
    assert_eq!(place(&mut pool, &asker("c", Role::Free), 20_000), 0);
}

#[test]
fn a_limit_that_names_its_end_is_waited_for_while_another_credential_is_there() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    let lease = pool.acquire(&free(), &[], 0).expect("a credential");
    let named = Flaw::Limited { seconds: Some(3) };

    assert_eq!(pool.failed(&free(), &[lease], named, 0), Consequence::Last);

    assert_eq!(place(&mut pool, &asker("b", Role::Free), 2_999), 1);
    assert_eq!(place(&mut pool, &asker("c", Role::Free), 3_000), 0);
}

#[test]
fn reserved_credentials_are_seen_from_their_role_on_and_asked_first() {
    let mut pool = pool(&[Role::Free, Role::Pro, Role::Internal]);

    assert_eq!(place(&mut pool, &asker("a", Role::Free), 0), 0);
    assert_eq!(place(&mut pool, &asker("a", Role::Pro), 0), 1);
    assert_eq!(place(&mut pool, &asker("a", Role::Operator), 0), 2);
    let lease = pool.acquire(&free(), &[], 0).expect("a credential");
    assert!(
        !pool.has_other(&free(), &[lease], 0),
        "the others are kept for others"
    );
}

#[test]
fn who_may_use_none_is_told_apart_from_who_has_to_wait() {
    let mut pool = pool(&[Role::Pro]);

    for _ in 0..100 {
        assert_eq!(pool.acquire(&free(), &[], 0), Err(Lack::Reserved));
    }
    assert_eq!(place(&mut pool, &asker("a", Role::Pro), 0), 0);
}

#[test]
fn a_caller_stays_with_his_credential_for_five_minutes() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    assert_eq!(request(&mut pool, LIMITED, 0).len(), 2);
    for now_ms in [0, 0] {
        let lease = pool.acquire(&free(), &[], now_ms).expect("a credential");
        pool.failed(&free(), &[lease], LIMITED, now_ms);
    }
    // The first is muted for 15 s now, the second for 20 s: of two callers the one who comes first gets the first.
    assert_eq!(place(&mut pool, &asker("early", Role::Free), 15_000), 0);
    let lease = pool
        .acquire(&asker("x", Role::Free), &[], 15_000)
        .expect("a credential");
    assert_eq!(
        pool.failed(&asker("x", Role::Free), &[lease], LIMITED, 15_000),
        Consequence::Muted
    );
    assert_eq!(place(&mut pool, &asker("late", Role::Free), 20_000), 1);

    assert_eq!(place(&mut pool, &asker("late", Role::Free), 319_999), 1);
    assert_eq!(place(&mut pool, &asker("late", Role::Free), 320_000), 0);
}

#[test]
fn a_new_role_lets_go_of_the_callers_of_that_credential_alone() {
    let mut pool = pool(&[Role::Free, Role::Free, Role::Pro]);
    let pro = asker("a", Role::Pro);
    assert_eq!(place(&mut pool, &pro, 0), 2);
    assert_eq!(place(&mut pool, &free(), 0), 0);

    pool.declare(declared(&[Role::Free, Role::Pro, Role::Pro]));
    assert_eq!(
        place(&mut pool, &pro, 1),
        2,
        "bound, although another stands before it now"
    );
    pool.declare(declared(&[Role::Pro, Role::Pro, Role::Internal]));

    assert_eq!(place(&mut pool, &pro, 2), 0);
    assert_eq!(pool.acquire(&free(), &[], 2), Err(Lack::Reserved));
    assert_eq!(pool.bindings.len(), 1);
}

#[test]
fn what_is_reported_of_a_credential_that_is_gone_is_forgotten() {
    let mut pool = pool(&[Role::Free]);
    let lease = pool.acquire(&free(), &[], 0).expect("a credential");

    pool.declare(Vec::new());

    assert_eq!(pool.failed(&free(), &[lease], LIMITED, 0), Consequence::Free);
    pool.succeeded(lease);
    assert_eq!(pool.acquire(&free(), &[], 0), Err(Lack::Reserved));
}

#[test]
fn callers_that_are_remembered_are_bounded() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    for caller in 0..BINDINGS_MAX + 10 {
        place(&mut pool, &asker(&format!("t{caller}"), Role::Free), 0);
    }

    assert!(pool.bindings.len() <= BINDINGS_MAX);
}

#[test]
fn a_pool_without_a_usable_credential_tells_what_the_last_of_them_failed_of() {
    let mut pool = pool(&[Role::Free, Role::Free]);
    let mute = |pool: &mut Pool, flaw, now_ms| {
        for _ in 0..5 {
            request(pool, flaw, now_ms);
        }
    };

    mute(&mut pool, LIMITED, 0);
    let Err(Lack::Muted { refused: false, .. }) = pool.acquire(&free(), &[], 1) else {
        panic!("a rate is not a refusal");
    };
    mute(&mut pool, Flaw::Refused, 40_000);
    let Err(Lack::Muted { refused: true, .. }) = pool.acquire(&free(), &[], 40_001) else {
        panic!("a dead credential is not a rate");
    };
}

#[test]
fn an_operator_is_told_of_a_refused_credential_once_a_minute_and_of_its_return() {
    let mut pool = pool(&[Role::Free]);
    let lease = pool.acquire(&free(), &[], 0).expect("a credential");
    let told = |changed| {
        Some(Alarm {
            reference: CredentialRef("k0".to_owned()),
            changed,
        })
    };

    assert_eq!(pool.succeeded(lease), None);
    assert_eq!(pool.alarm(lease, 0), told(true));
    assert_eq!(pool.alarm(lease, 59_999), None);
    assert_eq!(pool.alarm(lease, 60_000), told(false));
    assert_eq!(pool.alarmed(), 1);
    assert_eq!(pool.succeeded(lease), Some(CredentialRef("k0".to_owned())));
    assert_eq!(pool.alarmed(), 0);
    assert_eq!(pool.alarm(lease, 60_001), None, "told within the minute");
    assert_eq!(pool.succeeded(lease), None);
    assert_eq!(pool.alarm(lease, 120_000), told(true));
}
