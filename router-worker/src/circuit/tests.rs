//! Claims, and what is told of changes, by a router without a fleet.

use bus::clock::SystemClock;

use super::*;

fn circuits(told: &Arc<Mutex<Vec<CircuitChanged>>>, cooldown_ms: u64) -> Circuits {
    let told = Arc::clone(told);
    Circuits::new(
        Parameters {
            cooldown_ms,
            ..Parameters::default()
        },
        Surroundings {
            node: NodeId::from("node-1"),
            boot: "boot-1".into(),
            shared: false,
            clock: Arc::new(SystemClock::new()),
            metrics: Metrics::default(),
            witness: Box::new(move |changed| told.lock().push(changed.clone())),
        },
    )
}

fn ids() -> (EndpointId, BackendId) {
    (EndpointId::from("e"), BackendId::from("e#0"))
}

#[tokio::test]
async fn a_hundred_faults_of_callers_change_nothing() {
    let told = Arc::default();
    let circuits = circuits(&told, 0);
    let (endpoint, backend) = ids();

    for _ in 0..100 {
        let claim = circuits.begin(&endpoint, &backend, false).await.expect("closed");
        claim.settle(Verdict::Neutral, Some(400));
    }

    assert!(told.lock().is_empty());
    let (availability, health) = circuits.health(&backend).expect("known");
    assert_eq!(health.consecutive_failures, 0);
    assert!(availability > 0.99);
}

#[tokio::test]
async fn a_probe_that_is_dropped_gives_its_slot_back_and_a_bystander_does_not() {
    let told = Arc::default();
    let circuits = circuits(&told, 40);
    let (endpoint, backend) = ids();
    for _ in 0..3 {
        let claim = circuits.begin(&endpoint, &backend, false).await.expect("closed");
        claim.settle(Verdict::Faulty, None);
    }
    let bystander = circuits.begin(&endpoint, &backend, true).await.expect("bypass");
    while circuits.admits(&backend).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    let probe = circuits.begin(&endpoint, &backend, false).await;
    let probe = probe.expect("half-open");
    bystander.settle(Verdict::Neutral, Some(400));
    assert!(circuits.admits(&backend).is_err(), "the slot is taken");
    drop(probe);

    assert!(circuits.admits(&backend).is_ok(), "and free again");
}

#[tokio::test]
async fn a_change_is_told_once() {
    let told = Arc::default();
    let circuits = circuits(&told, 60_000);
    let (endpoint, backend) = ids();

    let mut claims = Vec::new();
    for _ in 0..5 {
        claims.extend(circuits.begin(&endpoint, &backend, false).await);
    }
    for claim in claims {
        claim.settle(Verdict::Faulty, Some(503));
    }

    let told = told.lock();
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].from, told[0].to),
        (CircuitState::Closed, CircuitState::Open)
    );
    assert_eq!(told[0].consecutive_failures, 3);
    assert_eq!(told[0].last_error_status, Some(503));
    assert_eq!(told[0].node.as_str(), "node-1");
}

#[test]
fn a_backend_nobody_asked_admits_and_has_no_health() {
    let circuits = circuits(&Arc::default(), 0);
    let (_, backend) = ids();

    assert!(circuits.admits(&backend).is_ok());
    assert!(circuits.health(&backend).is_none());
}
