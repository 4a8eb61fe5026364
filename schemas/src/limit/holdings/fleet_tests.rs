//! Several nodes before one bus: what one leaves the others can have, to the last nano-dollar.

use super::steps::{Answer, Ask};
use super::tests::{Bus, OK, at, bound, demand, holdings, used};
use super::*;
use crate::limit::layers::Scope;
use crate::limit::limits::LimitKey;
use crate::limit::shared::Step;

/// A dollar, a thousand streams at once on two nodes, as many again as fit; how much of what each reserved it uses is
/// up to `used_of`. Returns what was charged, what was absorbed, and what the record counts.
fn spend_a_dollar(used_of: impl Fn(u64) -> u64) -> (u64, u64, u128) {
    let mut bus = Bus::default();
    let mut nodes = ["a", "b"].map(|source| {
        Holdings::new(
            SpoolId::from(source),
            source.into(),
            BTreeMap::new(),
            Planted::default(),
        )
    });
    let bounds = [
        bound(LimitKey::MonthlyUsd, Scope::Tenant, 5_000_000_000),
        bound(LimitKey::TotalUsd, Scope::Key, 1_000_000_000),
    ];
    let (mut charged, mut absorbed, mut sequence, mut now_ms) = (0, 0, 0, 0);
    for round in 0..48 {
        now_ms += 2_000;
        let now = at(now_ms);
        for node in &mut nodes {
            // What the others wrote is told.
            for (name, found) in bus.quotas.clone() {
                node.answer(Answer::QuotaIs(name, Some(found)), now);
            }
            node.tick(now);
            bus.serve(node, now);
        }
        let mut open = Vec::new();
        for request in 0..if round == 0 { 1_000 } else { 60_u64 } {
            let index = usize::from(request % 2 == 1);
            // Big at first, then smaller and smaller, as long as something is left.
            let nano_usd = (7_000_000 >> (round / 2)).max(1);
            let demand = Demand {
                nano_usd,
                ..demand(&bounds, now)
            };
            if let Admission::Granted(grant) = bus.admit(&mut nodes[index], demand, now) {
                open.push((index, grant, nano_usd));
            }
        }
        for (index, grant, reserved) in open {
            let charge = nodes[index]
                .charge(grant, used(0, used_of(reserved)))
                .expect("it runs");
            (charged, absorbed) = (charged + charge.nano_usd, absorbed + charge.absorbed_nano_usd);
            sequence += 1;
            nodes[index].settle(grant, OK, sequence, now);
            assert!(charged <= 1_000_000_000);
        }
    }
    for round in 1..5 {
        for node in &mut nodes {
            let now = at(now_ms + round * 70_000);
            node.tick(now);
            bus.serve(node, now);
        }
    }
    let (taken, counted) = bus.counted("acme.per_api_key.total_usd.total");
    assert_eq!(taken, counted, "nothing is held at rest");
    (charged, absorbed, counted)
}

#[test]
fn a_dollar_is_spent_to_the_last_and_never_more() {
    let (charged, absorbed, counted) = spend_a_dollar(|reserved| reserved);
    assert_eq!((charged, absorbed, counted), (1_000_000_000, 0, 1_000_000_000));

    let (charged, absorbed, counted) = spend_a_dollar(|reserved| reserved - reserved / 3);
    assert_eq!((absorbed, counted), (0, u128::from(charged)));
    assert!(charged > 990_000_000, "{charged}");

    let (charged, absorbed, counted) = spend_a_dollar(|reserved| reserved * 2);
    assert_eq!((charged, counted), (1_000_000_000, 1_000_000_000));
    assert!(absorbed > 0, "an upstream that does not keep to its maximum");
}

#[test]
fn what_a_killed_process_held_is_free_once_its_successor_is_told_of_it() {
    let mut bus = Bus::default();
    let mut node = holdings("first");
    let bounds = [bound(LimitKey::DailyUsd, Scope::Key, 100)];
    bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    let settled = bus.granted(&mut node, demand(&bounds, at(0)), at(0));
    let charge = node.charge(settled, used(0, 15)).expect("it runs");
    node.settle(settled, OK, 3, at(0));
    let name = Name::from("acme.per_api_key.daily_usd.2026-11-30");
    drop(node);

    let replay = charge
        .quotas
        .into_iter()
        .map(|(name, amount)| (name, vec![Replayed { sequence: 3, amount }]));
    let mut node = Holdings::new(
        SpoolId::from("spool"),
        "second".into(),
        replay.collect(),
        Planted::default(),
    );
    bus.serve(&mut node, at(0));
    assert_eq!(bus.counted(name.as_str()), (15, 15));

    let mut other = Holdings::new(
        SpoolId::from("other"),
        "other".into(),
        BTreeMap::new(),
        Planted::default(),
    );
    bus.granted(&mut other, demand(&bounds, at(0)), at(0));
    drop(other);
    let mut other = Holdings::new(
        SpoolId::from("other"),
        "again".into(),
        BTreeMap::new(),
        Planted::default(),
    );
    assert_eq!(other.steps(at(0)), [], "it knows of nothing");
    other.answer(
        Answer::QuotaIs(name.clone(), bus.quotas.get(&name).cloned()),
        at(0),
    );
    bus.serve(&mut other, at(0));
    assert_eq!(
        bus.counted(name.as_str()),
        (15, 15),
        "it has nothing in its spool"
    );
}

#[test]
fn the_slots_of_a_killed_node_are_free_a_lease_after_they_were_told_of() {
    let mut bus = Bus::default();
    let (mut killed, mut node) = (holdings("killed"), holdings("node"));
    let bounds = [bound(LimitKey::Concurrency, Scope::Key, 1)];
    bus.granted(&mut killed, demand(&bounds, at(0)), at(0));
    let told = bus.apply(Ask::Slots(bounds[0].name.clone(), Step::Read));
    node.answer(told, at(100));
    node.tick(at(200));

    let refusal = bus.refused(&mut node, demand(&bounds, at(15_000)), at(15_000));
    assert_eq!(refusal.key, LimitKey::Concurrency);
    bus.granted(&mut node, demand(&bounds, at(15_100)), at(15_100));
}
