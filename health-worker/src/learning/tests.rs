//! What is learned from a log, and told.

use bus::Message;
use bus::follow::{self, CatalogView};
use schemas::catalog::model_key;
use schemas::health::decode;
use schemas::subject::{self, CATALOG_BUCKET};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::Stage;

/// Long enough on any machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The model of the waybill that is the example of its type, and that waybill.
const MODEL: &str = "qwen/qwen3-8b";
const WAYBILL: &str = include_str!("../../../schemas/tests/golden/v1/request.settled.json");

/// A waybill of now that says otherwise what `changed` says.
fn waybill(ports: &Ports, number: u64, changed: &[(&str, serde_json::Value)]) -> Message {
    let mut event: serde_json::Value = serde_json::from_str(WAYBILL).expect("JSON");
    let data = event["data"].as_object_mut().expect("an object");
    data.insert("ended_at".to_owned(), ports.clock.now().to_string().into());
    for (name, value) in changed {
        data.insert((*name).to_owned(), value.clone());
    }
    Message {
        subject: subject::event(subject::REQUEST_SETTLED, "acme"),
        id: format!("event-{number}"),
        payload: serde_json::to_vec(&event).expect("JSON").into(),
    }
}

/// The catalogue with the model, its legs chosen by `router`.
async fn catalogue(stage: &Stage, router: Option<Router>) {
    let model = serde_json::json!({
        "id": MODEL, "name": "M", "aliases": [], "position": 0, "input_modalities": 1, "output_modalities": 1,
        "quantization": "", "context_length": 8192, "max_output_length": 4096, "supports_tools": false,
        "supports_structured_output": false, "supported_params": [], "required_role": "free", "tenants": null,
        "pricing": [], "created_at": "2026-11-30T00:00:00Z", "origin": "file", "router": router,
        "routes": [{
            "endpoint_id": "qwen/qwen3-8b:local", "upstream_model": "m", "priority": 0, "weight_micro": 1_000_000,
            "pool": "default", "context_length": 8192, "input_modalities": 1, "price": null,
        }],
    });
    let bytes = serde_json::to_vec(&model).expect("JSON");
    let key = model_key(&ModelName::from(MODEL));
    let put = stage.kv.put(CATALOG_BUCKET, &key, bytes.into(), Expected::Any);
    put.await.expect("put");
}

/// What a process is given, and what keeps its catalogue up to date.
fn following(stage: &Stage, boot: &str) -> (Ports, JoinSet<Result<(), BusError>>) {
    let view = CatalogView::default();
    let ports = Ports {
        catalog: view.clone(),
        ..stage.ports(boot)
    };
    let (ready, end) = (CancellationToken::new(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow::run(Arc::clone(&stage.kv), view, ready, end));
    (ports, tasks)
}

async fn told(stage: &Stage) -> Option<Profile> {
    let key = profile_key(&ModelName::from(MODEL));
    let entry = stage.kv.get(HEALTH_BUCKET, &key).await.expect("a bucket")?;
    decode(&entry.value?)
}

/// What is told once it is as it should be.
async fn until(stage: &Stage, is: impl Fn(&Profile) -> bool) -> Profile {
    let began = Instant::now();
    loop {
        let profile = told(stage).await;
        if let Some(profile) = profile.filter(|profile| is(profile)) {
            return profile;
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", told(stage).await);
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_the_log_says_of_a_model_is_learned_and_told_and_known_to_whoever_takes_over() {
    let stage = Stage::new();
    let leg = EndpointId::from("qwen/qwen3-8b:local");
    let (ports, _end) = following(&stage, "one");
    let publish = async |number, changed: &[(&str, serde_json::Value)]| {
        let message = waybill(&ports, number, changed);
        stage.bus.publish(&[message]).await.expect("publish");
    };
    publish(1, &[]).await;
    publish(2, &[("model", "another".into())]).await;
    {
        let learning = run(&ports);
        let check = async {
            // Nothing is learned of a model whose legs are not chosen by it.
            sleep(Duration::from_millis(50)).await;
            assert_eq!(told(&stage).await, None);
            catalogue(&stage, Some(Router::Routewise(RouteWise::default()))).await;
            let first = until(&stage, |profile| profile.answers.count == 1).await;
            // The mean of an attempt that failed and counts as 5 s, and of one that took 193 ms less the 12 ms before it.
            let times = first.times(&leg, true);
            assert_eq!((times.count, times.mean), (2, 2_590_500));
            assert_eq!((first.answers.mean, first.legs.len()), (25, 1));

            publish(3, &[("output_tokens", 75.into()), ("stream", false.into())]).await;
            let second = until(&stage, |profile| profile.answers.count == 2).await;
            assert_eq!(second.answers.mean, 50);
            assert_eq!(
                second.times(&leg, false).count,
                2,
                "how long the whole answer took"
            );
        };
        tokio::select! {
            () = learning => panic!("it ended"),
            () = check => {}
        }
    }
    let (other, _end) = following(&stage, "other");
    publish(4, &[]).await;
    tokio::select! {
        () = run(&other) => panic!("it ended"),
        known = until(&stage, |profile| profile.answers.count == 3) => assert_eq!(known.times(&leg, true).count, 4),
    }
}
