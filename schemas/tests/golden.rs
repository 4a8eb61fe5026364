//! The golden files hold each event as its first version wrote it. Whatever is added later, they are read and
//! written again without a difference: what is in somebody's log today can be read for ever.

#![expect(clippy::expect_used, reason = "a test that cannot read its file has failed")]

use std::path::Path;

use schemas::envelope::Envelope;
use schemas::event::audit::Audited;
use schemas::event::health::{Cause, CircuitChanged, CredentialChanged, EndpointChanged, WakeEnded};
use schemas::event::ledger::{Adjusted, Sealed};
use schemas::event::limit::LimitRefused;
use schemas::event::request::{RequestAccepted, RequestLost, RequestSettled};
use schemas::event::spool::{SpoolFilled, SpoolLost};
use schemas::event::{Event, Fact};
use schemas::outcome::Charge;
use schemas::subject;
use serde_json::Value;
use serde_json::value::RawValue;

fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/v1")
        .join(name);
    std::fs::read_to_string(path).expect("golden file")
}

/// Reads the file as an envelope around `F`, and asserts that writing it gives the same.
fn keeps<F: Fact>(name: &str) -> F {
    let text = golden(name);
    let envelope: Envelope<F> = serde_json::from_str(&text).expect("the file is of today's form");
    let written = serde_json::to_value(&envelope).expect("serialize");
    let golden: Value = serde_json::from_str(&text).expect("the file is JSON");
    assert_eq!(written, golden, "{name}");
    assert_eq!(envelope.kind, F::KIND, "{name}");
    envelope.data
}

#[test]
fn an_accepted_request_keeps_its_form() {
    keeps::<RequestAccepted>("request.accepted.json");
}

#[test]
fn a_waybill_keeps_its_form() {
    let settled = keeps::<RequestSettled>("request.settled.json");
    assert_eq!(settled.cost_usd, settled.cost_nano_usd.usd());
    assert_eq!(settled.attempts.len(), 2);
}

#[test]
fn a_waybill_of_a_job_keeps_its_form() {
    let settled = keeps::<RequestSettled>("request.settled.granted.json");
    assert_eq!(settled.job_id.as_deref(), Some("nightly-42"));
}

#[test]
fn a_waybill_with_its_figures_keeps_its_form() {
    let settled = keeps::<RequestSettled>("request.settled.metered.json");
    let metering = settled.metering.expect("figures");
    assert_eq!(
        (metering.counted_output_tokens, metering.delivered_bytes),
        (3, 11)
    );
    assert_eq!((metering.reported, metering.charge), (None, Charge::Usage));
}

#[test]
fn a_waybill_with_a_decision_keeps_its_form_and_is_decided_again() {
    let settled = keeps::<RequestSettled>("request.settled.decided.json");
    let decision = settled.decision.expect("a decision");
    assert_eq!(decision.replay().1, decision.order.first());
    assert_eq!(decision.excluded.len(), 2);
}

#[test]
fn a_lost_request_keeps_its_form() {
    let lost = keeps::<RequestLost>("request.lost.json");
    assert_eq!(lost.accepted, keeps::<RequestAccepted>("request.accepted.json"));
}

#[test]
fn counted_refusals_keep_their_form() {
    assert_eq!(keeps::<LimitRefused>("limit.refused.json").count, 117);
}

#[test]
fn a_changed_circuit_keeps_its_form() {
    keeps::<CircuitChanged>("health.circuit.json");
}

#[test]
fn a_backend_that_is_left_out_keeps_its_form() {
    let changed = keeps::<EndpointChanged>("health.endpoint.json");
    assert_eq!(
        (changed.healthy, changed.cause, changed.failures),
        (false, Cause::Probe, 3)
    );
}

#[test]
fn a_changed_credential_keeps_its_form() {
    assert_eq!(
        keeps::<CredentialChanged>("health.credential.json").status,
        Some(401)
    );
}

#[test]
fn how_a_service_was_woken_keeps_its_form() {
    assert_eq!(keeps::<WakeEnded>("health.wake.json").took_ms, 41_250);
}

#[test]
fn a_change_of_the_catalogue_keeps_its_form() {
    let audited = keeps::<Audited>("audit.json");
    assert_eq!(audited.change.fields["disabled"].to, Value::Bool(true));
}

#[test]
fn a_seal_keeps_its_form() {
    let sealed = keeps::<Sealed>("ledger.sealed.json");
    assert_eq!((sealed.format, sealed.part, sealed.rows), (1, 1, 979));
}

#[test]
fn a_seal_over_adjustments_keeps_its_form() {
    let sealed = keeps::<Sealed>("ledger.sealed.adjusted.json");
    assert_eq!((sealed.format, sealed.part, sealed.adjustments), (2, 2, 3));
}

#[test]
fn an_adjustment_keeps_its_form() {
    let adjusted = keeps::<Adjusted>("request.adjusted.json");
    assert_eq!(
        adjusted.was_nano_usd.0 + adjusted.amount_nano_usd.0,
        adjusted.cost_nano_usd.0
    );
}

#[test]
fn a_spool_that_is_nearly_full_keeps_its_form() {
    assert!(keeps::<SpoolFilled>("spool.filled.json").nearly_full);
}

#[test]
fn a_hole_in_a_spool_keeps_its_form() {
    let lost = keeps::<SpoolLost>("spool.lost.json");
    assert_eq!((lost.from, lost.to), (31, 33));
}

#[test]
fn every_golden_file_is_understood_by_its_type_name() {
    let mut kinds = Vec::new();
    for entry in
        std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")).expect("list")
    {
        let name = entry.expect("entry").file_name();
        let text = golden(name.to_str().expect("a plain name"));
        let envelope: Envelope<Box<RawValue>> = serde_json::from_str(&text).expect("an envelope");
        let event = Event::read(&envelope.kind, envelope.data.get()).expect("a fact");
        assert_ne!(event, Event::Unknown, "{name:?}");
        kinds.push(envelope.kind);
    }
    // A type that grew has an example of each form.
    kinds.sort();
    kinds.dedup();
    let known = [
        subject::AUDIT,
        subject::HEALTH_CIRCUIT,
        subject::HEALTH_CREDENTIAL,
        subject::HEALTH_ENDPOINT,
        subject::HEALTH_WAKE,
        subject::LEDGER_SEALED,
        subject::LIMIT_REFUSED,
        subject::REQUEST_ACCEPTED,
        subject::REQUEST_ADJUSTED,
        subject::REQUEST_LOST,
        subject::REQUEST_SETTLED,
        subject::SPOOL_FILLED,
        subject::SPOOL_LOST,
    ];
    assert_eq!(kinds, known);
}
