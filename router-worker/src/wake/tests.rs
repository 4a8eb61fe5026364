//! Rounds before a bucket: one wakes, the others hear how that goes, whoever dies or stays away.

use std::time::Duration;

use bus::Expected;
use bytes::Bytes;
use schemas::id::{EndpointId, NodeId};
use schemas::wake::record::{Record, record_key};
use schemas::wake::{Http, Sign};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::testing::{Act, Bucket, Mood, Scene, Server, config, endpoint, model, response, route};

use super::*;

/// A router that runs rounds before a bucket, an endpoint where nothing listens, and who is asked to wake it.
struct Stage {
    scene: Scene,
    bucket: Arc<Bucket>,
    boss: Server,
    candidate: Candidate,
    tasks: JoinSet<()>,
}

impl Stage {
    /// Whoever is asked to wake says that the service has to wait.
    async fn start() -> Self {
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", closed.local_addr().expect("an address"));
        drop(closed);
        Self::at(&url).await
    }

    /// The same with a service somewhere.
    async fn at(url: &str) -> Self {
        let boss = Server::always(vec![Act::Send(response("409 Conflict", "text/plain", b"busy"))]).await;
        let wake = Wake::Http(Http {
            url: format!("{}/wake", boss.url()).into(),
            method: schemas::wake::Method::Post,
            headers: std::collections::BTreeMap::new(),
            body: None,
            credential: false,
            queued_when: Sign {
                statuses: vec![409],
                contains: None,
            },
            offline_when: Sign::default(),
            timeout_seconds: 5,
        });
        let mut asleep = endpoint("e1", &[url]);
        asleep.wake = Some(Arc::new(wake));
        let mut scene = Scene::new(config(), &[asleep.clone()], &model(vec![route("e1", 0)])).await;
        let bucket = Arc::new(Bucket::new(Duration::ZERO));
        scene.share(Arc::clone(&bucket) as Arc<dyn Kv>);
        let mut tasks = JoinSet::new();
        let router = scene.router.clone();
        tasks.spawn(async move { run(&router.shared, CancellationToken::new()).await });
        Self {
            scene,
            bucket,
            boss,
            candidate: Candidate {
                endpoint: Arc::new(asleep),
                backend: Some(0),
                upstream_model: "m".into(),
                context_length: 0,
                takes: Arc::default(),
                bypass: false,
            },
            tasks,
        }
    }

    fn begin(&self) -> Heard {
        self.scene
            .router
            .shared
            .wakes
            .begin(&self.candidate, Instant::now())
    }

    async fn outcome(&self) -> Outcome {
        heard(self.begin()).await
    }

    /// Writes what another node says.
    async fn anothers(&self, outcome: Option<Outcome>, expected: Expected) {
        let record = Record {
            backend: self.candidate.backend_id(),
            endpoint_id: EndpointId::from("e1"),
            outcome,
            node: NodeId::from("another"),
        };
        let bytes = Bytes::from(record.encode().expect("serialize"));
        let key = record_key(&self.candidate.backend_id());
        let put = self.bucket.put(WAKE_BUCKET, &key, bytes, expected);
        put.await.expect("written");
    }
}

async fn heard(mut heard: Heard) -> Outcome {
    let over = heard.wait_for(Option::is_some).await.expect("told");
    over.map(|over| over.outcome).expect("an outcome")
}

#[tokio::test]
async fn many_who_ask_at_once_wake_a_service_once_and_so_do_those_who_come_right_after() {
    let stage = Stage::start().await;

    let all: Vec<Heard> = (0..20).map(|_| stage.begin()).collect();
    for one in all {
        assert_eq!(heard(one).await, Outcome::Queued);
    }
    assert!(
        stage
            .scene
            .router
            .shared
            .wakes
            .sleeps(&stage.candidate.backend_id())
    );
    assert_eq!(stage.outcome().await, Outcome::Queued);

    assert_eq!(stage.boss.calls(), 1);
    assert_eq!(stage.tasks.len(), 1);
}

#[tokio::test]
async fn who_finds_anothers_claim_waits_and_believes_what_comes_of_it() {
    let stage = Stage::start().await;
    stage.anothers(None, Expected::Absent).await;
    let waiting = stage.begin();

    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(waiting.borrow().is_none());
    stage.anothers(Some(Outcome::Offline), Expected::Any).await;

    assert_eq!((heard(waiting).await, stage.boss.calls()), (Outcome::Offline, 0));
}

#[tokio::test]
async fn that_a_service_was_awake_says_nothing_to_those_who_find_it_asleep_afterwards() {
    let service = Server::always(vec![Act::Send(response("200 OK", "text/plain", b""))]).await;
    let stage = Stage::at(&service.url()).await;
    let before = Instant::now();
    assert_eq!((stage.outcome().await, service.calls()), (Outcome::Awake, 1));

    let wakes = &stage.scene.router.shared.wakes;
    let earlier = wakes.begin(&stage.candidate, before);
    assert_eq!((heard(earlier).await, service.calls()), (Outcome::Awake, 1));
    assert_eq!(stage.outcome().await, Outcome::Awake);
    assert!(service.calls() > 1, "it was looked at again");
}

#[tokio::test]
async fn what_another_says_of_one_that_is_awake_is_not_believed_of_one_that_sleeps() {
    let stage = Stage::start().await;
    stage.anothers(Some(Outcome::Awake), Expected::Absent).await;

    assert_eq!((stage.outcome().await, stage.boss.calls()), (Outcome::Queued, 1));
}

#[tokio::test]
async fn a_claim_whose_holder_is_gone_is_taken_over() {
    let stage = Stage::start().await;
    stage.anothers(None, Expected::Absent).await;
    let waiting = stage.begin();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(stage.boss.calls(), 0);

    // What ends by its lifetime is told to nobody, which is seen no later than here.
    let key = record_key(&stage.candidate.backend_id());
    let gone = stage.bucket.delete(WAKE_BUCKET, &key, Expected::Any);
    gone.await.expect("deleted");

    assert_eq!((heard(waiting).await, stage.boss.calls()), (Outcome::Queued, 1));
}

#[tokio::test]
async fn without_a_bus_a_node_wakes_alone_and_what_nobody_can_read_is_replaced() {
    let away = Stage::start().await;
    away.bucket.set(Mood::Away);
    assert_eq!((away.outcome().await, away.boss.calls()), (Outcome::Queued, 1));

    let torn = Stage::start().await;
    let key = record_key(&torn.candidate.backend_id());
    let put = torn
        .bucket
        .put(WAKE_BUCKET, &key, Bytes::from_static(b"{"), Expected::Any);
    put.await.expect("written");
    assert_eq!((torn.outcome().await, torn.boss.calls()), (Outcome::Queued, 1));
}

#[tokio::test]
async fn nobody_waits_for_a_router_that_has_ended() {
    let mut stage = Stage::start().await;
    while stage.scene.router.shared.wakes.queued.lock().is_some() {
        tokio::task::yield_now().await;
    }
    stage.tasks.shutdown().await;

    let mut waiting = stage.begin();

    assert!(waiting.wait_for(Option::is_some).await.is_err());
    assert!(
        !stage
            .scene
            .router
            .shared
            .wakes
            .sleeps(&stage.candidate.backend_id())
    );
}
