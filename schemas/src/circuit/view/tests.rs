//! One node alone, and one node before a bucket that does as told.

use super::finding::PENDING_MAX;
use super::writing::{Outcome, Write};
use super::*;
use crate::id::{BackendId, EndpointId};

fn empty() -> Record {
    Record::new(EndpointId::from("e"), BackendId::from("e#0"))
}

fn circuit(shared: bool) -> Circuit {
    Circuit::new(Parameters::default(), empty(), "boot-1".into(), shared)
}

fn fail(circuit: &mut Circuit, times: u32, now_ms: u64) {
    for _ in 0..times {
        circuit.settle(Pass::Plain, Verdict::Faulty, Some(500), now_ms);
    }
}

fn open_circuit() -> Circuit {
    let mut circuit = circuit(false);
    fail(&mut circuit, 3, 0);
    circuit
}

fn probe(circuit: &mut Circuit, now_ms: u64) -> Pass {
    match circuit.begin(now_ms, false) {
        Begin::Pass(pass @ Pass::Probe { .. }) => pass,
        other => panic!("{other:?}"),
    }
}

/// Has a write applied as the next revision.
fn win(circuit: &mut Circuit, revision: u64, now_ms: u64) -> Write {
    let write = circuit.write(now_ms).expect("something to write");
    circuit.wrote(Outcome::Won(revision), now_ms);
    write
}

/// A circuit that the fleet opened, asked for its probe at 30 s.
fn asking() -> (Circuit, u64) {
    let mut circuit = circuit(true);
    fail(&mut circuit, 3, 0);
    win(&mut circuit, 1, 0);
    match circuit.begin(30_000, false) {
        Begin::Asking { id } => (circuit, id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn three_failures_in_a_row_open_it_for_a_cooldown() {
    let mut circuit = open_circuit();

    assert_eq!(circuit.view().state, CircuitState::Open);
    assert_eq!(circuit.begin(29_999, false), Begin::Refused);
    assert_eq!(circuit.retry_in_ms(10_000), 20_000);
    assert!(circuit.admits(30_000));
}

#[test]
fn exactly_one_of_many_probes_a_half_open_circuit() {
    let mut circuit = open_circuit();

    let begun: Vec<_> = (0..8).map(|_| circuit.begin(30_000, false)).collect();

    let Begin::Pass(pass) = begun[0] else {
        panic!("{begun:?}");
    };
    assert!(begun[1..].iter().all(|begin| *begin == Begin::Refused));
    assert_eq!(circuit.view().state, CircuitState::HalfOpen);
    circuit.settle(pass, Verdict::Healthy, None, 30_100);
    assert_eq!(circuit.begin(30_100, false), Begin::Pass(Pass::Plain));
    let told: Vec<_> = circuit.transitions().iter().map(|change| change.to).collect();
    assert_eq!(
        told,
        [CircuitState::Open, CircuitState::HalfOpen, CircuitState::Closed]
    );
}

#[test]
fn a_failed_probe_restarts_the_cooldown() {
    let mut circuit = open_circuit();
    let probe = probe(&mut circuit, 30_000);

    circuit.settle(probe, Verdict::Faulty, None, 30_500);

    assert!(!circuit.admits(60_499));
    assert!(circuit.admits(60_500));
}

#[test]
fn a_backend_that_answers_probes_may_be_tried_at_once_by_one_call_in_that_opening_alone() {
    let mut circuit = open_circuit();
    let opening = circuit.view().opening.clone();
    assert_eq!(circuit.state(), CircuitState::Open);

    circuit.recover(opening.clone());

    assert_eq!(
        (circuit.state(), circuit.retry_in_ms(100)),
        (CircuitState::HalfOpen, 0)
    );
    let first = probe(&mut circuit, 100);
    assert_eq!(circuit.begin(100, false), Begin::Refused, "one call alone");
    circuit.settle(first, Verdict::Faulty, None, 200);
    assert_eq!(circuit.state(), CircuitState::Open);
    assert!(
        !circuit.admits(30_199) && circuit.admits(30_200),
        "the next opening is waited out"
    );
    circuit.recover(opening);
    assert!(!circuit.admits(30_199), "old news says nothing of it");
    let latest = circuit.view().opening.clone();
    circuit.recover(latest);
    let second = probe(&mut circuit, 300);
    circuit.settle(second, Verdict::Healthy, None, 400);
    assert!(circuit.view().is_closed());
}

#[test]
fn news_of_a_recovery_may_come_before_the_opening_it_is_about() {
    let mut fleet = circuit(true);
    let mut record = empty();
    record.fold(&Finding::Tripped, &"boot-2".into(), &Parameters::default());
    fleet.recover(record.opening.clone());
    assert!(fleet.admits(0) && fleet.view().is_closed());

    fleet.observe(1, Some(record), false, 10);

    assert!(fleet.admits(10));
    assert!(
        matches!(fleet.begin(10, false), Begin::Asking { .. }),
        "the fleet is asked for the probe"
    );
}

#[test]
fn the_probe_slot_belongs_to_its_claim_and_expires_after_a_cooldown() {
    let mut circuit = open_circuit();
    let first = probe(&mut circuit, 30_000);

    circuit.settle(Pass::Plain, Verdict::Neutral, None, 30_000);
    circuit.settle(Pass::Plain, Verdict::Healthy, None, 30_001);

    assert!(!circuit.admits(59_999), "a straggler neither frees nor closes");
    assert!(circuit.may_send(first, 56_999));
    assert!(!circuit.may_send(first, 57_000), "unused from nine tenths on");
    let second = probe(&mut circuit, 60_000);
    circuit.settle(first, Verdict::Neutral, None, 60_000);
    assert!(!circuit.admits(60_001), "an expired claim frees nothing");
    circuit.settle(second, Verdict::Neutral, None, 60_001);
    assert!(circuit.admits(60_001));
}

#[test]
fn an_answer_longer_than_the_lease_still_closes_the_circuit_that_it_probed() {
    let mut circuit = open_circuit();
    let first = probe(&mut circuit, 30_000);
    probe(&mut circuit, 60_000);

    circuit.settle(first, Verdict::Healthy, None, 61_000);

    assert!(circuit.view().is_closed());
}

#[test]
fn a_late_answer_to_a_probe_of_an_earlier_opening_closes_nothing() {
    let mut circuit = open_circuit();
    let first = probe(&mut circuit, 30_000);
    let second = probe(&mut circuit, 60_000);
    circuit.settle(second, Verdict::Faulty, None, 60_001);

    circuit.settle(first, Verdict::Healthy, None, 90_002);

    assert!(!circuit.view().is_closed());
}

#[test]
fn a_cooldown_of_zero_never_gates() {
    let parameters = Parameters {
        cooldown_ms: 0,
        ..Parameters::default()
    };
    let mut circuit = Circuit::new(parameters, empty(), "boot-1".into(), true);
    for _ in 0..10 {
        let Begin::Pass(pass) = circuit.begin(5, false) else {
            panic!("gated");
        };
        assert!(circuit.may_send(pass, 5));
        circuit.settle(pass, Verdict::Faulty, None, 5);
    }
}

#[test]
fn availability_below_the_floor_opens_it_without_a_run_of_failures() {
    let mut circuit = circuit(false);
    let mut calls = 0;
    while circuit.view().is_closed() {
        let verdict = if calls % 3 == 2 {
            Verdict::Healthy
        } else {
            Verdict::Faulty
        };
        circuit.settle(Pass::Plain, verdict, Some(503), 0);
        calls += 1;
    }
    assert!(calls > 3);
}

#[test]
fn a_failure_counts_at_once_and_failures_meanwhile_are_one_write() {
    let mut circuit = circuit(true);
    fail(&mut circuit, 1, 0);
    let first = circuit.write(0).expect("a write");
    fail(&mut circuit, 2, 1);

    assert_eq!(circuit.view().state, CircuitState::Open, "nothing was waited for");
    assert_eq!(circuit.write(1), None, "one write at a time");
    circuit.wrote(Outcome::Won(1), 2);
    let second = circuit.write(2).expect("a write");

    assert_eq!((first.record.consecutive_failures, first.expected), (1, None));
    assert_eq!(
        (second.record.consecutive_failures, second.expected),
        (3, Some(1))
    );
    assert_eq!(
        (second.record.state, second.record.opening.number),
        (CircuitState::Open, 1)
    );
}

#[test]
fn a_success_is_written_only_after_a_failure_that_others_may_see() {
    let mut circuit = circuit(true);
    circuit.settle(Pass::Plain, Verdict::Healthy, Some(200), 0);
    assert!(!circuit.is_dirty());
    fail(&mut circuit, 2, 0);
    circuit.settle(Pass::Plain, Verdict::Healthy, Some(200), 0);
    assert!(!circuit.is_dirty(), "nobody saw those failures");

    fail(&mut circuit, 1, 0);
    win(&mut circuit, 1, 0);
    circuit.settle(Pass::Plain, Verdict::Healthy, Some(200), 0);

    let write = circuit.write(0).expect("a write");
    assert_eq!(write.record.consecutive_failures, 0);
}

#[test]
fn a_worn_availability_is_corrected_once_the_backend_has_recovered() {
    let mut circuit = circuit(true);
    fail(&mut circuit, 1, 0);
    win(&mut circuit, 1, 0);
    assert_eq!(circuit.view().availability_permille, 900);
    circuit.settle(Pass::Plain, Verdict::Healthy, None, 0);
    win(&mut circuit, 2, 0);

    let mut writes = 0;
    for _ in 0..100 {
        circuit.settle(Pass::Plain, Verdict::Healthy, None, 0);
        if circuit.is_dirty() {
            writes += 1;
            win(&mut circuit, 2 + writes, 0);
        }
    }

    assert_eq!((writes, circuit.view().availability_permille), (1, AVAILABLE));
}

#[test]
fn a_lost_race_is_run_again_on_top_of_the_winner() {
    let mut circuit = circuit(true);
    fail(&mut circuit, 1, 0);
    circuit.write(0).expect("a write");
    let mut other = empty();
    other.consecutive_failures = 2;

    circuit.wrote(Outcome::Lost, 1);
    circuit.observe(7, Some(other), false, 1);

    let write = circuit.write(1).expect("a write");
    assert_eq!(
        (write.record.state, write.expected),
        (CircuitState::Open, Some(7))
    );
    circuit.wrote(Outcome::Won(8), 1);
    assert_eq!(circuit.transitions().len(), 1);
}

#[test]
fn a_write_whose_answer_was_lost_counts_once_and_is_told_once() {
    let mut circuit = circuit(true);
    fail(&mut circuit, 3, 0);
    let write = circuit.write(0).expect("a write");
    circuit.wrote(Outcome::Unknown, 1);
    assert!(circuit.is_dirty() && circuit.transitions().is_empty());

    let mut later = write.record;
    later.last_error_status = Some(418);
    circuit.observe(2, Some(later), false, 2);

    assert!(!circuit.is_dirty());
    assert_eq!(circuit.view().opening.number, 1);
    assert_eq!(circuit.transitions().len(), 1);
}

#[test]
fn the_fleet_grants_the_probe_with_the_write() {
    let (mut circuit, id) = asking();
    assert_eq!(circuit.claim(id), Claim::Waiting);
    assert_eq!(
        circuit.begin(30_000, false),
        Begin::Refused,
        "one question at a time"
    );

    win(&mut circuit, 2, 30_010);

    let Claim::Granted(pass) = circuit.claim(id) else {
        panic!("not granted");
    };
    assert!(circuit.may_send(pass, 57_000));
    circuit.settle(pass, Verdict::Healthy, Some(200), 31_000);
    assert_eq!(win(&mut circuit, 3, 31_000).record.state, CircuitState::Closed);
    let told: Vec<_> = circuit.transitions().iter().map(|change| change.to).collect();
    assert_eq!(
        told,
        [CircuitState::Open, CircuitState::HalfOpen, CircuitState::Closed]
    );
}

#[test]
fn a_claim_that_somebody_else_won_is_refused() {
    let (mut circuit, id) = asking();
    let mut other = circuit.write(30_000).expect("the claim").record;
    other.probe.as_mut().expect("a claim").owner = "boot-2".into();

    circuit.wrote(Outcome::Lost, 30_001);
    circuit.observe(2, Some(other), false, 30_001);

    assert_eq!(circuit.write(30_001), None);
    assert_eq!(circuit.claim(id), Claim::Refused);
    assert!(!circuit.admits(60_000), "the lease counts from when it was seen");
    assert!(circuit.admits(60_001), "its holder is taken for dead");
}

#[test]
fn a_claim_whose_request_was_refused_is_given_back_when_it_turns_up() {
    let (mut circuit, id) = asking();
    let write = circuit.write(30_000).expect("the claim");
    circuit.wrote(Outcome::Unknown, 30_500);
    circuit.refuse(30_500);
    assert_eq!(circuit.claim(id), Claim::Refused);

    circuit.observe(2, Some(write.record), false, 31_000);

    assert_eq!(win(&mut circuit, 3, 31_000).record.probe, None);
    assert!(circuit.admits(31_000));
}

#[test]
fn without_the_bus_a_node_probes_alone_and_takes_its_claim_over_later() {
    let (mut circuit, id) = asking();
    let write = circuit.write(30_000).expect("the claim");
    circuit.wrote(Outcome::Unknown, 30_500);

    circuit.decide_alone(30_500);
    let Claim::Granted(pass) = circuit.claim(id) else {
        panic!("not granted");
    };
    circuit.observe(2, Some(write.record), false, 31_000);

    assert!(circuit.may_send(pass, 31_000));
    assert!(circuit.view().is_probed_by("boot-1", 1));
    circuit.settle(pass, Verdict::Healthy, None, 31_100);
    assert!(win(&mut circuit, 3, 31_100).record.is_closed());
}

#[test]
fn what_a_node_found_while_it_was_away_is_merged_and_open_wins() {
    let away = |verdicts: &[Verdict]| {
        let mut circuit = circuit(true);
        let mut now_ms = 0;
        for verdict in verdicts.iter().cycle().take(verdicts.len() * 20) {
            now_ms += 31_000;
            if let Begin::Pass(pass) = circuit.begin(now_ms, true) {
                circuit.settle(pass, *verdict, None, now_ms);
            }
            if circuit.write(now_ms).is_some() {
                circuit.wrote(Outcome::Unknown, now_ms);
            }
        }
        assert!(circuit.pending.len() <= PENDING_MAX);
        (circuit, now_ms)
    };
    let mut open = empty();
    open.fold(&Finding::Tripped, &"boot-2".into(), &Parameters::default());

    let (mut ill, now_ms) = away(&[Verdict::Faulty]);
    ill.observe(9, Some(empty()), false, now_ms);
    assert_eq!(ill.view().state, CircuitState::Open);
    assert_eq!(win(&mut ill, 10, now_ms).record.state, CircuitState::Open);

    let (mut well, now_ms) = away(&[Verdict::Faulty, Verdict::Healthy]);
    assert!(well.view().is_closed());
    well.observe(9, Some(open), false, now_ms);
    assert_eq!(well.view().state, CircuitState::Open);
    assert_eq!(well.retry_in_ms(now_ms), 30_000, "it is new to this node");
}

#[test]
fn what_is_no_record_is_not_read_and_a_lease_has_a_bound() {
    let mut record = empty();
    record.claim(&"boot-9".into(), u64::MAX);
    let written = record.encode().expect("JSON");

    assert_eq!(Record::decode(&written), Some(record.clone()));
    let long = String::from_utf8(written)
        .expect("text")
        .replace("3600000", "18446744073709551615");
    assert_eq!(Record::decode(long.as_bytes()), Some(record));
    for other in [&b""[..], b"null", b"{}", b"[1]", b"\xff"] {
        assert_eq!(Record::decode(other), None);
    }
}
