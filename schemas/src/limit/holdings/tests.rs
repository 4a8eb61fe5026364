//! Admission by all layers or none, and the ways out of it.

use chrono::Utc;

use super::demand::{Exit, Used};
use super::steps::{Answer, Ask};
use super::*;
use crate::limit::layers::Scope;
use crate::limit::limits::LimitKey;
use crate::limit::shared::{Outcome as Written, Step};
use crate::limit::window::Calendar;
use crate::limit::{quota, slots};
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// 2026-11-30T23:59:50Z.
const BEGINS_MICROS: i64 = 1_796_083_190_000_000;

pub(super) fn at(mono_ms: u64) -> Now {
    Now {
        wall: Timestamp::from_micros(BEGINS_MICROS)
            .plus_micros(i64::try_from(mono_ms * 1_000).expect("a time")),
        mono_ms,
        nodes: 1,
    }
}

pub(super) fn bound(key: LimitKey, scope: Scope, limit: u64) -> Bound {
    Bound {
        key,
        scope,
        model: None,
        limit,
        name: Name::from(format!("acme.{}.{key}", scope.as_str()).as_str()),
    }
}

pub(super) fn demand(bounds: &[Bound], now: Now) -> Demand {
    Demand {
        bounds: bounds.to_vec().into(),
        tokens: 100,
        nano_usd: 40,
        calendar: Calendar::at(&Utc, now.wall),
    }
}

pub(super) fn holdings(boot: &str) -> Holdings {
    Holdings::new(
        SpoolId::from("spool"),
        boot.into(),
        BTreeMap::new(),
        Planted::default(),
    )
}

/// What all nodes share.
#[derive(Default)]
pub(super) struct Bus {
    revision: u64,
    counters: BTreeMap<String, u64>,
    slots: BTreeMap<Name, (u64, slots::record::Record)>,
    pub(super) quotas: BTreeMap<Name, (u64, quota::record::Record)>,
}

impl Bus {
    pub(super) fn apply(&mut self, ask: Ask) -> Answer {
        let revision = self.revision + 1;
        let answer = match ask {
            Ask::Add(name, add) => {
                let counter = self.counters.entry(name.slice(add.index)).or_default();
                *counter += add.amount;
                return Answer::Added(name, *counter);
            }
            Ask::Slots(name, Step::Read) => {
                return Answer::SlotsAre(name.clone(), self.slots.get(&name).cloned());
            }
            Ask::Quota(name, Step::Read) => {
                return Answer::QuotaIs(name.clone(), self.quotas.get(&name).cloned());
            }
            Ask::Slots(name, Step::Write(write)) => {
                if self.slots.get(&name).map(|(revision, _)| *revision) != write.expected {
                    return Answer::Wrote(name, Written::Lost);
                }
                self.slots.insert(name.clone(), (revision, write.record));
                Answer::Wrote(name, Written::Won(revision))
            }
            Ask::Quota(name, Step::Write(write)) => {
                if self.quotas.get(&name).map(|(revision, _)| *revision) != write.expected {
                    return Answer::Wrote(name, Written::Lost);
                }
                self.quotas.insert(name.clone(), (revision, write.record));
                Answer::Wrote(name, Written::Won(revision))
            }
        };
        self.revision = revision;
        answer
    }

    pub(super) fn serve(&mut self, holdings: &mut Holdings, now: Now) {
        for _ in 0..20 {
            let asks = holdings.steps(now);
            if asks.is_empty() {
                return;
            }
            for ask in asks {
                holdings.answer(self.apply(ask), now);
            }
        }
    }

    /// Admits a request, answering all that is asked.
    pub(super) fn admit(&mut self, holdings: &mut Holdings, demand: Demand, now: Now) -> Admission {
        let mut admission = holdings.admit(demand, now);
        while let Admission::Waiting(id) = admission {
            self.serve(holdings, now);
            assert!(holdings.ready().contains(&id), "an answer lets it go on");
            admission = holdings.resume(id, now).expect("it waits");
        }
        admission
    }

    pub(super) fn granted(&mut self, holdings: &mut Holdings, demand: Demand, now: Now) -> u64 {
        match self.admit(holdings, demand, now) {
            Admission::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn refused(&mut self, holdings: &mut Holdings, demand: Demand, now: Now) -> Refusal {
        match self.admit(holdings, demand, now) {
            Admission::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// What is taken and spent of a quota.
    pub(super) fn counted(&self, name: &str) -> (u128, u128) {
        let record = self.quotas.get(&Name::from(name));
        record.map_or((0, 0), |(_, record)| (record.total(), record.spent()))
    }
}

pub(super) fn used(tokens: u64, nano_usd: u64) -> Used {
    Used {
        calls: 1,
        tokens,
        nano_usd,
    }
}

pub(super) const OK: Exit = Exit::Settled(Outcome::Ok);

#[test]
fn without_limits_nothing_is_asked() {
    let mut node = holdings("boot");

    assert_eq!(node.admit(demand(&[], at(0)), at(0)), Admission::Granted(1));
    assert_eq!(node.steps(at(0)), []);
    assert_eq!(
        node.charge(1, used(5, 70))
            .map(|charge| (charge.nano_usd, charge.absorbed_nano_usd)),
        Some((70, 0))
    );
}

#[test]
fn what_earlier_layers_granted_goes_back_when_a_later_one_refuses() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Qps, Scope::Key, 2),
        bound(LimitKey::Concurrency, Scope::Key, 1),
        bound(LimitKey::DailyUsd, Scope::Tenant, 100),
        bound(LimitKey::DailyUsd, Scope::Key, 39),
    ];

    let refusal = bus.refused(&mut node, demand(&bounds, at(0)), at(0));
    assert_eq!((refusal.key, refusal.scope), (LimitKey::DailyUsd, Scope::Key));

    assert_eq!(node.reserved().count(), 0);
    assert_eq!(node.slots_in_use().map(|(_, in_use)| in_use).sum::<u64>(), 0);
    let others = &bounds[..3];
    bus.granted(&mut node, demand(others, at(1)), at(1));
    let refusal = bus.refused(&mut node, demand(others, at(2)), at(2));
    assert_eq!(
        refusal.key,
        LimitKey::Concurrency,
        "the permit of the refused request was used again"
    );
    bus.granted(&mut node, demand(&bounds[..1], at(3)), at(3));
    let refusal = bus.refused(&mut node, demand(&bounds[..1], at(4)), at(4));
    assert_eq!(refusal.key, LimitKey::Qps, "two were granted");
}

#[test]
fn a_refusal_says_all_that_a_429_has_to_say() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let tokens = [bound(LimitKey::DailyTokens, Scope::User, 250)];
    bus.granted(&mut node, demand(&tokens, at(0)), at(0));
    bus.granted(&mut node, demand(&tokens, at(0)), at(0));

    let refusal = bus.refused(&mut node, demand(&tokens, at(0)), at(0));

    let midnight = Timestamp::from_micros(BEGINS_MICROS + 10_000_000);
    assert_eq!(
        refusal,
        Refusal {
            code: FailureCode::DailyTokensExceeded,
            key: LimitKey::DailyTokens,
            scope: Scope::User,
            model: None,
            standing: Standing {
                limit: 250,
                current: 200,
                remaining: 50,
            },
            reset_at: Some(midnight),
            retry_after_seconds: 10,
        }
    );
}

#[test]
fn rates_reset_with_their_slice_and_slots_at_any_time() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let rate = [bound(LimitKey::Rpm, Scope::Key, 1)];
    bus.granted(&mut node, demand(&rate, at(2_500)), at(2_500));
    let refusal = bus.refused(&mut node, demand(&rate, at(2_500)), at(2_500));
    assert_eq!(refusal.code, FailureCode::RpmExceeded);
    assert_eq!(
        refusal.reset_at,
        Some(Timestamp::from_micros(BEGINS_MICROS + 10_000_000))
    );
    assert_eq!(refusal.retry_after_seconds, 8, "7.5 s, rounded up");

    let slots = [bound(LimitKey::Concurrency, Scope::Key, 1)];
    bus.granted(&mut node, demand(&slots, at(2_500)), at(2_500));
    let refusal = bus.refused(&mut node, demand(&slots, at(2_500)), at(2_500));
    assert_eq!(refusal.code, FailureCode::ConcurrencyExceeded);
    assert_eq!((refusal.reset_at, refusal.retry_after_seconds), (None, 1));
    let (limit, current) = (refusal.standing.limit, refusal.standing.current);
    assert_eq!((limit, current), (1, 1));
}

#[test]
fn a_layer_that_refuses_keeps_later_ones_from_being_asked() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Qps, Scope::Key, 1),
        bound(LimitKey::DailyUsd, Scope::Key, 1_000),
    ];
    bus.granted(&mut node, demand(&bounds[..1], at(0)), at(0));

    let refusal = bus.refused(&mut node, demand(&bounds, at(0)), at(0));

    assert_eq!(refusal.key, LimitKey::Qps);
    assert!(bus.quotas.is_empty());
}

#[test]
fn a_request_that_is_given_up_while_it_waits_leaves_nothing_behind() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Concurrency, Scope::Key, 1),
        bound(LimitKey::DailyUsd, Scope::Key, 40),
    ];
    let Admission::Waiting(id) = node.admit(demand(&bounds, at(0)), at(0)) else {
        panic!("nothing was asked");
    };
    bus.serve(&mut node, at(0));
    assert!(
        matches!(node.resume(id, at(0)), Some(Admission::Waiting(_))),
        "the slot is had, the quota asked"
    );

    let refusal = node.abandon(id, at(1)).expect("it waited");

    assert_eq!(refusal.key, LimitKey::DailyUsd);
    assert_eq!(refusal.code, FailureCode::StoreUnavailable);
    assert_eq!(refusal.retry_after_seconds, 1);
    assert_eq!(node.resume(id, at(1)), None);
    assert_eq!(node.waiting(), 0);
    bus.serve(&mut node, at(1));
    bus.granted(&mut node, demand(&bounds, at(2)), at(2));
}

#[test]
fn a_request_is_settled_once_in_the_day_it_was_admitted_in() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::DailyUsd, Scope::Key, 1_000),
        bound(LimitKey::TotalUsd, Scope::Tenant, 1_000),
    ];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));

    let charge = node.charge(grant, used(10, 30)).expect("it runs");
    assert_eq!(
        charge.quotas,
        [
            (Name::from("acme.per_api_key.daily_usd.2026-11-30"), 30),
            (Name::from("acme.per_tenant.total_usd.total"), 30)
        ]
    );
    assert_eq!(node.charge(grant, used(10, 30)), None, "charged once");
    node.settle(grant, OK, 7, at(20_000));
    node.settle(grant, OK, 7, at(20_000));
    node.give_back(grant, at(20_000));

    node.tick(at(90_000));
    bus.serve(&mut node, at(90_000));
    assert_eq!(bus.counted("acme.per_api_key.daily_usd.2026-11-30"), (30, 30));
    assert_eq!(bus.counted("acme.per_tenant.total_usd.total"), (30, 30));
    assert_eq!(bus.quotas.len(), 2, "nothing on the next day");
    assert_eq!((node.open(), node.told_up_to()), (0, None));
}

#[test]
fn what_no_layer_allows_to_charge_is_absorbed() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::DailyUsd, Scope::Tenant, 1_000),
        bound(LimitKey::DailyUsd, Scope::Key, 50),
    ];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));

    while node.lacks(grant, used(0, 70), at(10)) {
        bus.serve(&mut node, at(10));
    }
    let charge = node.charge(grant, used(0, 70)).expect("it runs");

    assert_eq!((charge.nano_usd, charge.absorbed_nano_usd), (50, 20));
    assert!(
        charge.quotas.iter().all(|(_, amount)| *amount == 50),
        "all layers count the same"
    );
    node.settle(grant, OK, 1, at(20));
    let refusal = bus.refused(&mut node, demand(&bounds, at(30)), at(30));
    assert_eq!(refusal.standing, Standing::left(50, 0));
}

#[test]
fn a_waybill_that_the_spool_did_not_take_is_charged_again_later() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [bound(LimitKey::DailyUsd, Scope::Key, 1_000)];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    node.charge(grant, used(0, 25)).expect("it runs");

    node.uncharge(grant);

    assert_eq!(
        node.reserved().map(|(_, amount)| amount).collect::<Vec<_>>(),
        [25]
    );
    node.charge(grant, used(0, 25)).expect("once more");
    node.settle(grant, OK, 1, at(10));
    node.tick(at(90_000));
    bus.serve(&mut node, at(90_000));
    assert_eq!(bus.counted("acme.per_api_key.daily_usd.2026-11-30"), (25, 25));
}

#[test]
fn the_half_minute_of_a_node_that_is_cut_off_is_the_same_for_every_limit() {
    let mut node = holdings("boot");
    let bounds = [bound(LimitKey::Qps, Scope::Key, 4)];
    node.cut(at(500));

    assert!(matches!(
        node.admit(demand(&bounds, at(600)), at(600)),
        Admission::Waiting(_)
    ));
    assert!(matches!(
        node.admit(demand(&bounds, at(1_500)), at(1_500)),
        Admission::Granted(_)
    ));
    let other = [bound(LimitKey::Qps, Scope::Tenant, 4)];
    assert!(matches!(
        node.admit(demand(&other, at(30_400)), at(30_400)),
        Admission::Granted(_)
    ));
    let late = [bound(LimitKey::Qps, Scope::User, 4)];
    let Admission::Refused(refusal) = node.admit(demand(&late, at(31_000)), at(31_000)) else {
        panic!("it was cut off for longer");
    };
    assert_eq!(refusal.code, FailureCode::StoreUnavailable);
}

#[test]
fn tokens_of_a_minute_that_were_not_used_are_there_for_others() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Rpm, Scope::Key, 3),
        bound(LimitKey::Tpm, Scope::Key, 150),
    ];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    assert_eq!(
        bus.refused(&mut node, demand(&bounds, at(1)), at(1)).key,
        LimitKey::Tpm
    );

    node.charge(grant, used(30, 0)).expect("it runs");
    node.settle(grant, OK, 1, at(2));

    bus.granted(&mut node, demand(&bounds, at(3)), at(3));
    let refusal = bus.refused(&mut node, demand(&bounds[1..], at(4)), at(4));
    assert_eq!(refusal.standing, Standing::left(150, 20), "30 and 100 of 150");
    bus.granted(&mut node, demand(&bounds[..1], at(5)), at(5));
    assert_eq!(
        bus.refused(&mut node, demand(&bounds, at(6)), at(6)).key,
        LimitKey::Rpm,
        "calls do not come back"
    );
}

#[test]
fn every_exit_frees_the_slot() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [bound(LimitKey::Concurrency, Scope::Key, 1)];
    let exits = [
        Some(OK),
        Some(Exit::Settled(Outcome::ClientGone)),
        Some(Exit::Settled(Outcome::Timeout)),
        Some(Exit::Panicked),
        None,
    ];
    for exit in exits {
        let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
        match exit {
            Some(exit) => {
                node.charge(grant, used(1, 1)).expect("it runs");
                node.settle(grant, exit, 1, at(0));
            }
            None => node.give_back(grant, at(0)),
        }
        assert_eq!(
            node.slots_in_use().map(|(_, in_use)| in_use).sum::<u64>(),
            0,
            "{exit:?}"
        );
    }
}

#[test]
fn a_slot_whose_lease_ran_out_while_its_request_waited_is_asked_for_again() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Concurrency, Scope::Key, 1),
        bound(LimitKey::DailyUsd, Scope::Key, 40),
    ];
    let Admission::Waiting(id) = node.admit(demand(&bounds, at(0)), at(0)) else {
        panic!("nothing was asked");
    };
    bus.serve(&mut node, at(0));
    assert!(matches!(node.resume(id, at(0)), Some(Admission::Waiting(_))));
    bus.serve(&mut node, at(1));

    assert!(
        matches!(node.resume(id, at(14_000)), Some(Admission::Waiting(_))),
        "not on a lease of 13.5 s"
    );

    let mut admission = None;
    for _ in 0..3 {
        node.tick(at(14_000));
        bus.serve(&mut node, at(14_000));
        admission = node.resume(id, at(14_000)).or(admission);
    }
    assert_eq!(admission, Some(Admission::Granted(id)));
}

#[test]
fn a_request_that_wished_for_more_and_is_given_back_leaves_no_wish() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [bound(LimitKey::DailyUsd, Scope::Key, 100)];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    assert!(node.lacks(grant, used(0, 70), at(10)));

    node.give_back(grant, at(20));

    node.tick(at(90_000));
    bus.serve(&mut node, at(90_000));
    assert_eq!(bus.counted("acme.per_api_key.daily_usd.2026-11-30"), (0, 0));
}

#[test]
fn limits_of_which_nothing_is_held_are_forgotten() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Qps, Scope::Key, 10),
        bound(LimitKey::Concurrency, Scope::Key, 10),
        bound(LimitKey::DailyUsd, Scope::Key, 1_000),
    ];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    node.charge(grant, used(0, 5)).expect("it runs");
    node.settle(grant, OK, 1, at(0));

    for second in [1, 20, 70, 130, 200] {
        node.tick(at(second * 1_000));
        bus.serve(&mut node, at(second * 1_000));
    }
    node.tick(at(201_000));

    assert_eq!(node.shelf.entries().count(), 0);
    assert_eq!(bus.counted("acme.per_api_key.daily_usd.2026-11-30"), (5, 5));
    let again = bus.granted(&mut node, demand(&bounds[2..], at(202_000)), at(202_000));
    assert!(node.charge(again, used(0, 40)).is_some());
}

#[test]
fn standings_of_a_granted_request_are_those_of_its_layers() {
    let mut bus = Bus::default();
    let mut node = holdings("boot");
    let bounds = [
        bound(LimitKey::Rpm, Scope::Key, 100),
        bound(LimitKey::Concurrency, Scope::Key, 5),
        bound(LimitKey::DailyUsd, Scope::Tenant, 1_000),
    ];
    let grant = bus.granted(&mut node, demand(&bounds, at(0)), at(0));

    let standings = node.standings(grant, at(0), |bound| bound.key != LimitKey::Concurrency);

    let left: Vec<(LimitKey, u64)> = standings
        .map(|(bound, standing)| (bound.key, standing.remaining))
        .collect();
    assert_eq!(left, [(LimitKey::Rpm, 99), (LimitKey::DailyUsd, 960)]);
    assert_eq!(node.permits(grant).len(), 1);
    assert_eq!(node.standings(grant, at(0), |_| true).count(), 3);
    assert_eq!(node.standings(99, at(0), |_| true).count(), 0);
}
