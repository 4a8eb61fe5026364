//! Rounds over servers on sockets: what is written of them, and told.

use std::sync::Arc;

use bus::follow::{self, CatalogView};
use schemas::catalog::registered::HealthCheck;
use schemas::catalog::{Endpoint, endpoint_key};
use schemas::circuit::record::Record;
use schemas::circuit::{CircuitState, record_key};
use schemas::egress::Egress;
use schemas::health::{Probed, decode};
use schemas::id::NodeId;
use schemas::subject::{CATALOG_BUCKET, CIRCUIT_BUCKET};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::target::tests::{endpoint, registered};
use crate::testing::{Server, Stage, answer, tls};

const FIGURES: &str =
    "vllm:num_requests_running 2\nvllm:num_requests_waiting 3\nvllm:kv_cache_usage_perc 0.5\n";
/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn config() -> Config {
    Config {
        node: NodeId::from("n"),
        version: "0".to_owned(),
        alone: true,
        engines: true,
        egress: Egress::default(),
        tls: tls(),
        thermometers: Vec::new(),
    }
}

async fn put(stage: &Stage, (bucket, key): (&str, &str), bytes: Vec<u8>) {
    let put = stage.kv.put(bucket, key, Bytes::from(bytes), Expected::Any);
    put.await.expect("put");
}

async fn catalogue(stage: &Stage, endpoint: &Endpoint) {
    let bytes = encode(endpoint).expect("plain data");
    put(stage, (CATALOG_BUCKET, &endpoint_key(&endpoint.id)), bytes).await;
}

async fn written<T: DeserializeOwned>(stage: &Stage, key: &str) -> Option<T> {
    let entry = stage.kv.get(HEALTH_BUCKET, key).await.expect("a bucket")?;
    decode(&entry.value?)
}

/// Waits until what is written is as it should be, and says how long that took.
async fn until<T: DeserializeOwned>(stage: &Stage, key: &str, is: impl Fn(Option<T>) -> bool) -> Duration {
    let began = Instant::now();
    while !is(written(stage, key).await) {
        assert!(began.elapsed() < PATIENCE, "{key} is not as it should be");
        sleep(Duration::from_millis(10)).await;
    }
    began.elapsed()
}

/// Goes round while `scene` lasts; returns the events of it.
async fn rounds(stage: &Stage, config: Config, scene: impl Future<Output = ()>) -> u64 {
    let mut ports = stage.ports("boot");
    ports.catalog = CatalogView::default();
    let (view, ready) = (ports.catalog.clone(), CancellationToken::new());
    let follow = follow::run(
        Arc::clone(&ports.kv),
        view,
        ready.clone(),
        CancellationToken::new(),
    );
    let client = Client::new(config.egress.clone(), config.tls.clone(), &config.version);
    let rounds = Rounds::new(&config, &ports, client);
    let run = async {
        ready.cancelled().await;
        rounds.run().await;
    };
    tokio::select! {
        _ = follow => panic!("it ended"),
        () = run => panic!("it ended"),
        () = scene => {}
    }
    ports.spool.appended()
}

fn checked(url: &str, threshold: u32) -> Endpoint {
    let mut checked = endpoint("e", schemas::catalog::ProviderKind::OpenaiCompat, &[url]);
    checked.registered = Some(registered(
        "vllm",
        Some(HealthCheck {
            path: "/up".into(),
            interval_seconds: 1,
            threshold,
            start_period_seconds: 0,
        }),
    ));
    checked
}

fn backend() -> BackendId {
    BackendId::from("e#0")
}

fn probed_out(probed: Option<Probed>) -> bool {
    probed.is_some_and(|probed| probed.out)
}

#[tokio::test]
async fn an_engine_that_wants_to_know_who_asks_is_asked_by_a_router() {
    let stage = Stage::new();
    let engine = Server::start(|path| match path {
        "/metrics" => Some(answer(401, "{}")),
        _ => Some(answer(200, "")),
    })
    .await;
    let mut closed = checked(&engine.url(), 3);
    closed.credentials = vec![schemas::catalog::CredentialRef("k1".to_owned())];
    catalogue(&stage, &closed).await;
    let mut questions = stage.bus.serve(QUERY_FIGURES).await.expect("served");
    let router = async {
        loop {
            let question = questions.recv().await.expect("a question");
            let query: FiguresQuery = decode(&question.payload).expect("JSON");
            assert_eq!((query.endpoint.as_str(), query.backend), ("e", backend()));
            let answer = FiguresAnswer {
                text: Some(FIGURES.to_owned()),
            };
            let bytes = encode(&answer).expect("plain data");
            question.reply.send(Bytes::from(bytes)).expect("heard");
        }
    };

    let key = engine::record_key(&backend());
    let told = until(&stage, &key, |sample: Option<engine::Sample>| {
        sample.is_some_and(|sample| sample.waiting == Some(3))
    });
    rounds(&stage, config(), async {
        tokio::select! {
            () = router => {}
            _ = told => {}
        }
    })
    .await;

    assert!(engine.heads().iter().all(|head| !head.contains("authorization")));
}

#[tokio::test]
async fn what_engines_say_is_written_and_what_others_say_is_not() {
    let stage = Stage::new();
    let engine = Server::start(|path| match path {
        "/metrics" => Some(answer(200, FIGURES)),
        _ => Some(answer(200, "")),
    })
    .await;
    let other = Server::start(|_| Some(answer(404, ""))).await;
    let urls = [engine.url(), other.url()];
    let kind = schemas::catalog::ProviderKind::OpenaiCompat;
    catalogue(&stage, &endpoint("e", kind, &[&urls[0], &urls[1]])).await;

    let events = rounds(&stage, config(), async {
        let key = engine::record_key(&backend());
        until(&stage, &key, |sample: Option<engine::Sample>| {
            sample.is_some_and(|sample| {
                (sample.running, sample.waiting, sample.kv_percent_milli) == (Some(2), Some(3), Some(50_000))
            })
        })
        .await;
        while other.asked("/metrics") == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    let key = engine::record_key(&BackendId::from("e#1"));
    assert_eq!(written::<engine::Sample>(&stage, &key).await, None);
    assert_eq!(
        (events, engine.asked("/health"), other.asked("/health")),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn a_backend_that_dies_is_left_out_and_is_back_when_it_answers() {
    let stage = Stage::new();
    let server = Server::start(|_| Some(answer(200, ""))).await;
    catalogue(&stage, &checked(&server.url(), 2)).await;
    let key = probed_key(&backend());

    let events = rounds(&stage, config(), async {
        while server.asked("/up") == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        server.script(|_| Some(answer(503, "")));
        until(&stage, &key, probed_out).await;
        server.script(|_| Some(answer(200, "")));
        until(&stage, &key, |probed: Option<Probed>| {
            probed.is_some_and(|probed| !probed.out)
        })
        .await;
        sleep(Duration::from_millis(300)).await;
    })
    .await;

    assert_eq!(events, 2);
}

#[tokio::test]
async fn whoever_takes_over_brings_back_who_was_left_out_and_forgets_whom_nobody_asks() {
    let stage = Stage::new();
    let server = Server::start(|_| Some(answer(200, ""))).await;
    catalogue(&stage, &checked(&server.url(), 3)).await;
    for backend in ["e#0", "gone#0"] {
        let out = Probed {
            backend: BackendId::from(backend),
            endpoint_id: EndpointId::from("e"),
            out: true,
            failures: 3,
            changed_by: NodeId::from("before"),
            changed_at: schemas::time::Timestamp::default(),
        };
        let bytes = encode(&out).expect("plain data");
        put(&stage, (HEALTH_BUCKET, &probed_key(&out.backend)), bytes).await;
    }

    let events = rounds(&stage, config(), async {
        let key = probed_key(&backend());
        until(&stage, &key, |probed: Option<Probed>| {
            probed.is_some_and(|probed| !probed.out)
        })
        .await;
        let gone = probed_key(&BackendId::from("gone#0"));
        until(&stage, &gone, |probed: Option<Probed>| probed.is_none()).await;
        sleep(Duration::from_millis(300)).await;
    })
    .await;

    assert_eq!(events, 1, "whom nobody knows nobody is told of");
}

#[tokio::test]
async fn a_backend_whose_circuit_is_open_is_asked_and_its_recovery_told() {
    let stage = Stage::new();
    let server = Server::start(|_| Some(answer(503, ""))).await;
    let plain = endpoint(
        "e",
        schemas::catalog::ProviderKind::OpenaiCompat,
        &[&server.url()],
    );
    catalogue(&stage, &plain).await;
    let mut record = Record::new(EndpointId::from("e"), backend());
    record.state = CircuitState::Open;
    record.opening.number = 4;
    record.opening.by = "router".into();
    let bytes = record.encode().expect("plain data");
    put(&stage, (CIRCUIT_BUCKET, &record_key(&backend())), bytes).await;

    rounds(&stage, config(), async {
        while server.asked("/health") < 2 {
            sleep(Duration::from_millis(10)).await;
        }
        let key = recovered_key(&backend());
        assert_eq!(written::<Recovered>(&stage, &key).await, None);
        server.script(|_| Some(answer(200, "")));
        let took = until(&stage, &key, |recovered: Option<Recovered>| {
            recovered.is_some_and(|recovered| recovered.opening == record.opening)
        })
        .await;
        assert!(took < Duration::from_secs(2), "{took:?}");
    })
    .await;
}

#[tokio::test]
async fn exporters_tell_how_hot_hosts_are() {
    let stage = Stage::new();
    let exporter = Server::start(|_| Some(answer(200, "DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 91\n"))).await;
    let mut config = config();
    config.thermometers.push(Thermometer {
        host: "gpu-1".into(),
        url: format!("{}/metrics", exporter.url()).into(),
    });

    rounds(&stage, config, async {
        until(&stage, &host_key("gpu-1"), |host: Option<Host>| {
            host.is_some_and(|host| host.is_hot(91) && !host.is_hot(92))
        })
        .await;
    })
    .await;
}
