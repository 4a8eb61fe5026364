//! Tests of what a router knows of backends by others.

use std::sync::atomic::AtomicU64;

use bus::Change;
use schemas::balance::Algorithm;
use schemas::catalog::endpoint_key;
use schemas::catalog::policy::Inference;
use schemas::catalog::registered::Registered;
use schemas::circuit::Parameters;
use schemas::health::{Accelerator, host_key, recovered_key};
use schemas::id::EndpointId;
use schemas::subject::CATALOG_BUCKET;
use schemas::subject::catalog::INFERENCE;
use schemas::time::Timestamp;
use tokio::time::sleep;

use super::*;
use crate::circuit::Surroundings;
use crate::metrics::Metrics;
use crate::testing::{Bucket, endpoint};

/// A clock that stands where it is set.
#[derive(Default)]
struct At(AtomicU64);

impl At {
    fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for At {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

struct Stage {
    signs: Signs,
    circuits: Circuits,
    clock: Arc<At>,
    told: Arc<Mutex<Vec<EndpointChanged>>>,
}

fn stage() -> Stage {
    stage_of(CatalogView::default(), None)
}

fn stage_of(catalog: CatalogView, hot_c: Option<u32>) -> Stage {
    let clock = Arc::new(At::default());
    let told: Arc<Mutex<Vec<EndpointChanged>>> = Arc::default();
    let heard = Arc::clone(&told);
    let healed: Healed = Box::new(move |changed| heard.lock().push(changed.clone()));
    let place = Place {
        node: NodeId::from("n"),
        catalog,
        hot_c,
    };
    let surroundings = Surroundings {
        node: NodeId::from("n"),
        boot: "boot".into(),
        shared: false,
        clock: clock.clone(),
        metrics: Metrics::default(),
        witness: Box::new(|_| {}),
    };
    Stage {
        signs: Signs::new(place, clock.clone(), healed),
        circuits: Circuits::new(Parameters::default(), surroundings),
        clock,
        told,
    }
}

impl Stage {
    fn tell(&self, revision: u64, key: &str, value: Option<Vec<u8>>) {
        let entry = Entry {
            key: key.to_owned(),
            value: value.map(Bytes::from),
            revision,
        };
        self.signs.take(Told::Entry(entry), &self.circuits);
    }
}

fn backend() -> BackendId {
    BackendId::from("e#0")
}

fn probed(out: bool) -> Vec<u8> {
    encode(&Probed {
        backend: backend(),
        endpoint_id: EndpointId::from("e"),
        out,
        failures: 3,
        changed_by: NodeId::from("other"),
        changed_at: Timestamp::default(),
    })
    .expect("plain data")
}

fn host(temperature_c: f64) -> Vec<u8> {
    encode(&Host {
        host: "gpu-1".into(),
        gpus: vec![Accelerator {
            index: 0,
            temperature_c,
            utilization: None,
        }],
    })
    .expect("plain data")
}

fn sample_key() -> String {
    schemas::engine::record_key(&backend())
}

#[test]
fn a_sample_counts_as_long_as_this_router_has_known_it_for_fifteen_seconds() {
    let stage = stage();
    stage.clock.set(100_000);
    // The clock of whoever read it is far ahead.
    stage.tell(
        1,
        &sample_key(),
        Some(br#"{"waiting":4,"at_ms":1900000000000}"#.to_vec()),
    );

    let sample = stage.signs.sample(&backend()).expect("a sample");
    assert_eq!((sample.waiting, sample.at_ms), (Some(4), 100_000));
    stage.clock.set(115_000);
    assert!(stage.signs.sample(&backend()).is_some());
    stage.clock.set(115_001);
    assert_eq!(stage.signs.sample(&backend()), None);
    stage.tell(2, &sample_key(), Some(br#"{"waiting":5,"at_ms":0}"#.to_vec()));
    assert_eq!(stage.signs.sample(&backend()).expect("a sample").waiting, Some(5));
    stage.tell(3, &sample_key(), None);
    assert_eq!(stage.signs.sample(&backend()), None);
}

#[test]
fn who_is_left_out_is_spared_until_he_is_back() {
    let stage = stage();
    assert_eq!(stage.signs.spared(&backend()), None);
    stage.tell(1, &probed_key(&backend()), Some(probed(true)));
    assert_eq!(stage.signs.spared(&backend()), Some(Spared::Unhealthy));
    assert_eq!(stage.signs.spared(&BackendId::from("e#1")), None);
    stage.tell(2, &probed_key(&backend()), Some(probed(false)));
    assert_eq!(stage.signs.spared(&backend()), None);
}

/// A catalogue in which the backend runs on a host, and hosts are spared from a temperature on.
async fn catalog(threshold: Option<u32>) -> CatalogView {
    let mut placed = endpoint("e", &["http://u", "http://v"]);
    placed.registered = Some(Arc::new(Registered {
        name: "e".into(),
        kind: "vllm".into(),
        hosts: vec![Some("gpu-1".into()), None],
        algorithm: Algorithm::RoundRobin,
        health_check: None,
        created_at: Timestamp::default(),
    }));
    let inference = Inference {
        gpu_temperature_threshold: threshold,
        ..Inference::default()
    };
    let kv: Arc<dyn Kv> = Arc::new(Bucket::new(Duration::ZERO));
    let records = [
        (endpoint_key(&placed.id), encode(&placed).expect("plain data")),
        (INFERENCE.to_owned(), encode(&inference).expect("plain data")),
    ];
    for (key, bytes) in records {
        let put = kv.put(CATALOG_BUCKET, &key, Bytes::from(bytes), Expected::Any);
        put.await.expect("put");
    }
    let (view, ready) = (CatalogView::default(), CancellationToken::new());
    tokio::select! {
        _ = bus::follow::run(kv, view.clone(), ready.clone(), CancellationToken::new()) => panic!("it ended"),
        () = ready.cancelled() => {}
    }
    view
}

#[tokio::test(start_paused = true)]
async fn a_hot_host_is_spared_as_long_as_its_temperatures_count() {
    let stage = stage_of(catalog(Some(85)).await, Some(200));
    let spared = || stage.signs.spared(&backend());
    assert_eq!(spared(), None);
    stage.tell(1, &host_key("gpu-1"), Some(host(85.0)));
    assert_eq!(spared(), Some(Spared::HotGpu));
    assert_eq!(
        stage.signs.spared(&BackendId::from("e#1")),
        None,
        "nobody said where it is"
    );
    stage.tell(2, &host_key("gpu-1"), Some(host(84.5)));
    assert_eq!(spared(), None);
    stage.tell(3, &host_key("gpu-1"), Some(host(99.0)));
    stage.clock.set(60_000);
    assert_eq!(spared(), Some(Spared::HotGpu));
    stage.clock.set(60_001);
    assert_eq!(spared(), None, "old news");

    for (hot_c, meant) in [(None, None), (Some(90), Some(Spared::HotGpu)), (Some(91), None)] {
        let stage = stage_of(catalog(None).await, hot_c);
        stage.tell(1, &host_key("gpu-1"), Some(host(90.0)));
        assert_eq!(stage.signs.spared(&backend()), meant, "{hot_c:?}");
    }
}

#[test]
fn what_another_watch_does_not_tell_is_there_no_more() {
    let stage = stage();
    stage.tell(1, &probed_key(&backend()), Some(probed(true)));
    stage.tell(2, &sample_key(), Some(br#"{"waiting":4,"at_ms":0}"#.to_vec()));
    stage.signs.take(Told::Begin, &stage.circuits);
    assert!(stage.signs.spared(&backend()).is_some(), "until all was told");
    stage.signs.take(Told::Current, &stage.circuits);

    assert_eq!(stage.signs.spared(&backend()), None);
    assert_eq!(stage.signs.sample(&backend()), None);
}

#[test]
fn what_is_too_old_goes_when_another_comes() {
    let stage = stage();
    stage.tell(1, &sample_key(), Some(br#"{"waiting":4,"at_ms":0}"#.to_vec()));
    stage.tell(2, &host_key("gpu-1"), Some(host(1.0)));
    stage.clock.set(60_001);
    let other = schemas::engine::record_key(&BackendId::from("e#1"));
    stage.tell(3, &other, Some(br#"{"waiting":4,"at_ms":0}"#.to_vec()));
    stage.tell(4, &host_key("gpu-2"), Some(host(1.0)));

    let known = stage.signs.state.read();
    assert_eq!((known.samples.len(), known.hosts.len()), (1, 1));
}

#[test]
fn what_cannot_be_read_is_not_there() {
    let stage = stage();
    for key in [
        sample_key(),
        probed_key(&backend()),
        host_key("gpu-1"),
        recovered_key(&backend()),
        "other".into(),
    ] {
        stage.tell(1, &key, Some(b"{".to_vec()));
    }
    // What is another's does not count under this key.
    stage.tell(2, &probed_key(&BackendId::from("e#1")), Some(probed(true)));
    assert_eq!(stage.signs.sample(&backend()), None);
    assert_eq!(stage.signs.spared(&BackendId::from("e#1")), None);
}

#[tokio::test]
async fn a_recovery_makes_the_circuit_half_open() {
    let stage = stage();
    let endpoint = EndpointId::from("e");
    for _ in 0..3 {
        let claim = stage
            .circuits
            .begin(&endpoint, &backend(), false)
            .await
            .expect("closed");
        claim.settle(schemas::circuit::Verdict::Faulty, None);
    }
    assert!(stage.circuits.begin(&endpoint, &backend(), false).await.is_none());
    let opening = schemas::circuit::record::Opening {
        number: 1,
        by: "boot".into(),
    };
    let news = Recovered {
        backend: backend(),
        endpoint_id: endpoint.clone(),
        opening,
    };

    stage.tell(
        1,
        &recovered_key(&backend()),
        Some(encode(&news).expect("plain data")),
    );

    let claim = stage
        .circuits
        .begin(&endpoint, &backend(), false)
        .await
        .expect("half-open");
    claim.settle(schemas::circuit::Verdict::Healthy, Some(200));
    assert!(stage.circuits.begin(&endpoint, &backend(), false).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_succeeds_brings_a_backend_back_for_all() {
    let stage = stage();
    let kv: Arc<dyn Kv> = Arc::new(Bucket::new(Duration::ZERO));
    let key = probed_key(&backend());
    let put = kv.put(HEALTH_BUCKET, &key, Bytes::from(probed(true)), Expected::Absent);
    put.await.expect("put");
    let scene = async {
        while stage.signs.spared(&backend()).is_none() {
            sleep(Duration::from_millis(1)).await;
        }
        stage.signs.succeeded(&BackendId::from("e#1"));
        stage.signs.succeeded(&backend());
        while stage.told.lock().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        while stage.signs.spared(&backend()).is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = stage.signs.run(Arc::clone(&kv), &stage.circuits, CancellationToken::new()) => panic!("it ended"),
        () = scene => {}
    }

    {
        let told = stage.told.lock();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].healthy, told[0].cause, &told[0].backend),
            (true, Cause::Call, &backend())
        );
    }
    let mut watch = kv.watch(HEALTH_BUCKET).await.expect("watch");
    let Some(Change::Entry(entry)) = watch.recv().await else {
        panic!("nothing is written");
    };
    let written: Probed = decode(&entry.value.expect("a value")).expect("a record");
    assert!(!written.out);
}
