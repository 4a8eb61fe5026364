//! Conversations before a router, and before two that share a bucket.

use std::time::Duration;

use bus::dispatch::Dispatch;
use schemas::catalog::Endpoint;
use schemas::id::{KeyId, TenantId};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::affinity::fleet;
use crate::config::Config;
use crate::testing::{
    Act, Bucket, Mood, PLAIN, Played, Scene, Server, chat, config, endpoint, model, response, route,
};

use super::*;

/// Longer than a write and its way to another router.
const SOON: Duration = Duration::from_millis(60);

/// An endpoint on which sessions stay.
fn staying(id: &str, servers: &[&Server]) -> Endpoint {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    Endpoint {
        session_affinity: true,
        ..endpoint(id, &urls)
    }
}

async fn servers<const N: usize>() -> [Server; N] {
    let mut all = Vec::new();
    for _ in 0..N {
        all.push(Server::always(vec![Act::Send(chat("hi"))]).await);
    }
    all.try_into().ok().expect("so many")
}

/// A call of a session of tenant `acme`.
fn named(scene: &Scene, session: &str) -> Dispatch {
    let mut dispatch = scene.offer(PLAIN);
    dispatch.offer.spoken.session = Some(session.into());
    dispatch
}

/// Who served, and how affinity decided.
fn told(played: &Played) -> (String, String) {
    let report = &played.end().report;
    let served = report.served.as_ref().map(|served| served.backend.to_string());
    let affinity = report.affinity.as_deref().unwrap_or_default().to_owned();
    (served.unwrap_or_default(), affinity)
}

fn header<'p>(played: &'p Played, name: &str) -> Option<&'p str> {
    let head = played.head.as_ref().or(played.end().head.as_ref())?;
    let line = head.headers.iter().find(|(known, _)| known == name)?;
    Some(&line.1)
}

#[tokio::test]
async fn a_named_session_stays_and_its_caller_is_told() {
    let [one, two] = servers().await;
    let scene = Scene::new(
        config(),
        &[staying("e", &[&one, &two])],
        &model(vec![route("e", 0)]),
    )
    .await;

    let first = scene.play(named(&scene, "s-1")).await;
    let (backend, verdict) = told(&first);
    assert_eq!(verdict, "miss");
    for _ in 0..9 {
        let next = scene.play(named(&scene, "s-1")).await;
        assert_eq!(told(&next), (backend.clone(), "hit:header".to_owned()));
        assert_eq!(header(&next, "x-session-id"), Some("s-1"));
        assert_eq!(header(&next, "x-session-affinity"), Some("hit:header"));
    }
}

#[tokio::test]
async fn other_tenants_have_sessions_of_their_own_under_the_same_name() {
    let [one, two] = servers().await;
    let scene = Scene::new(
        config(),
        &[staying("e", &[&one, &two])],
        &model(vec![route("e", 0)]),
    )
    .await;
    scene.play(named(&scene, "s-1")).await;

    for tenant in ["zenith", "acme-2"] {
        let mut dispatch = named(&scene, "s-1");
        dispatch.offer.tenant = TenantId::from(tenant);
        assert_eq!(told(&scene.play(dispatch).await).1, "miss", "{tenant}");
    }
    assert_eq!(told(&scene.play(named(&scene, "s-1")).await).1, "hit:header");
}

#[tokio::test]
async fn a_guessed_session_becomes_a_named_one_by_the_token_that_its_caller_is_told() {
    let [one, two] = servers().await;
    let scene = Scene::new(
        config(),
        &[staying("e", &[&one, &two])],
        &model(vec![route("e", 0)]),
    )
    .await;

    let first = scene.call(PLAIN).await;
    let token = header(&first, "x-session-id").expect("a token").to_owned();
    assert!(token.starts_with("wbs_"), "{token}");
    let second = scene.call(PLAIN).await;
    assert_eq!(told(&second).1, "hit:l1");
    let third = scene.play(named(&scene, &token)).await;

    assert_eq!(told(&third), (told(&first).0, "hit:header".to_owned()));
}

#[tokio::test]
async fn a_caller_of_a_model_from_a_file_stays_where_there_is_a_choice() {
    let [one, two] = servers().await;
    let endpoints = [endpoint("a", &[&one.url()]), endpoint("b", &[&two.url()])];
    let alike = Scene::new(config(), &endpoints, &model(vec![route("a", 0), route("b", 0)])).await;
    let first = told(&alike.call(PLAIN).await);
    assert_eq!(first.1, "miss");
    for _ in 0..9 {
        let next = alike.call(PLAIN).await;
        assert_eq!(told(&next), (first.0.clone(), "hit:caller".to_owned()));
        assert_eq!(header(&next, "x-session-id"), None);
    }
    let mut other = alike.offer(PLAIN);
    other.offer.caller = KeyId::from("key-2");
    assert_eq!(told(&alike.play(other).await).1, "miss");

    let ordered = Scene::new(config(), &endpoints, &model(vec![route("a", 0), route("b", 1)])).await;
    assert_eq!(told(&ordered.call(PLAIN).await), ("a".to_owned(), String::new()));
}

#[tokio::test]
async fn a_pinned_call_has_no_session() {
    let [one, two] = servers().await;
    let scene = Scene::new(
        config(),
        &[staying("e", &[&one, &two])],
        &model(vec![route("e", 0)]),
    )
    .await;
    let mut dispatch = named(&scene, "s-1");
    dispatch.offer.pin = Some("e".into());

    let played = scene.play(dispatch).await;

    assert_eq!(told(&played).1, "");
    assert_eq!(header(&played, "x-session-affinity"), None);
    assert_eq!(told(&scene.play(named(&scene, "s-1")).await).1, "miss");
}

#[tokio::test]
async fn a_session_whose_backend_fails_goes_elsewhere_and_stays_there() {
    let failing = Server::start(|number| {
        let broken = response("500 Internal Server Error", "application/json", b"{}");
        vec![Act::Send(if number == 0 { chat("hi") } else { broken })]
    })
    .await;
    let [well] = servers().await;
    let scene = Scene::new(
        config(),
        &[staying("e", &[&failing])],
        &model(vec![route("e", 0)]),
    )
    .await;
    scene.play(named(&scene, "s-1")).await;
    // Nobody is left to answer: the session is nowhere.
    let failed = scene.play(named(&scene, "s-1")).await;
    assert_eq!(
        (failed.code(), told(&failed).1.as_str()),
        (Some("upstream_error"), "hit:header")
    );
    let next = scene.play(named(&scene, "s-1")).await;
    assert_eq!(told(&next).1, "miss");

    let failing = Server::start(|number| {
        let broken = response("500 Internal Server Error", "application/json", b"{}");
        vec![Act::Send(if number == 1 { broken } else { chat("hi") })]
    })
    .await;
    let both = staying("e", &[&failing, &well]);
    let scene = Scene::new(config(), &[both], &model(vec![route("e", 0)])).await;
    // As many sessions as it takes until one is at the backend that fails its second call.
    let mut session = None;
    for number in 0..64 {
        let name = format!("s-{number}");
        if told(&scene.play(named(&scene, &name)).await).0 == "e#0" {
            session = Some(name);
            break;
        }
    }
    let session = session.expect("one of many");

    let moved = scene.play(named(&scene, &session)).await;
    assert_eq!(told(&moved), ("e#1".to_owned(), "stale:header".to_owned()));
    for _ in 0..3 {
        let next = scene.play(named(&scene, &session)).await;
        assert_eq!(told(&next), ("e#1".to_owned(), "hit:header".to_owned()));
    }
}

#[tokio::test]
async fn a_session_is_forgotten_when_its_life_or_its_age_is_over() {
    let [one, two] = servers().await;
    let limits = [(80, 0), (60_000, 80)];
    for (session_ms, age_ms_max) in limits {
        let mut short = config();
        short.affinity.policy.session_ms = session_ms;
        short.affinity.policy.age_ms_max = age_ms_max;
        let scene = Scene::new(short, &[staying("e", &[&one, &two])], &model(vec![route("e", 0)])).await;
        scene.play(named(&scene, "s-1")).await;
        assert_eq!(told(&scene.play(named(&scene, "s-1")).await).1, "hit:header");

        sleep(Duration::from_millis(120)).await;

        assert_eq!(told(&scene.play(named(&scene, "s-1")).await).1, "miss");
    }
}

/// Two routers that share a bucket.
struct Pair {
    bucket: Arc<Bucket>,
    scenes: [Scene; 2],
    _tasks: JoinSet<()>,
}

impl Pair {
    async fn over(config: Config, endpoint: &Endpoint) -> Self {
        let bucket = Arc::new(Bucket::new(Duration::from_millis(1)));
        let mut tasks = JoinSet::new();
        let mut scenes = Vec::new();
        let mut config = config;
        config.affinity.alone = false;
        for _ in 0..2 {
            let model = model(vec![route(endpoint.id.as_str(), 0)]);
            let mut scene = Scene::new(config.clone(), std::slice::from_ref(endpoint), &model).await;
            scene.share(Arc::clone(&bucket) as Arc<dyn Kv>);
            let shared = Arc::clone(&scene.router.shared);
            let kv = Arc::clone(&bucket) as Arc<dyn Kv>;
            tasks.spawn(async move {
                let token = CancellationToken::new();
                fleet::run(
                    (&shared.affinity, &shared.limiter),
                    kv,
                    (&shared.boot, false),
                    token,
                )
                .await;
            });
            scenes.push(scene);
        }
        sleep(SOON).await;
        Self {
            bucket,
            scenes: scenes.try_into().ok().expect("two"),
            _tasks: tasks,
        }
    }

    async fn call(&self, router: usize, session: &str) -> (String, String) {
        let scene = &self.scenes[router];
        told(&scene.play(named(scene, session)).await)
    }
}

#[tokio::test]
async fn routers_that_share_a_bucket_take_turns_with_a_session() {
    let [one, two] = servers().await;
    let pair = Pair::over(config(), &staying("e", &[&one, &two])).await;

    let first = pair.call(0, "s-1").await;
    assert_eq!(first.1, "miss");
    for turn in 1..10 {
        let next = pair.call(turn % 2, "s-1").await;
        assert_eq!(next, (first.0.clone(), "hit:header".to_owned()), "turn {turn}");
    }
    let sessions: Vec<String> = pair.bucket.keys();
    assert!(
        sessions.iter().any(|key| key.starts_with("acme.")),
        "{sessions:?}"
    );
    assert!(sessions.iter().all(|key| !key.contains("s-1")), "{sessions:?}");
}

#[tokio::test]
async fn a_plainer_name_is_read_although_a_vaguer_one_is_known() {
    let [one, two] = servers().await;
    let endpoint = staying("e", &[&one, &two]);
    let bucket = Arc::new(Bucket::new(Duration::from_millis(1)));
    let mut scene = Scene::new(config(), &[endpoint], &model(vec![route("e", 0)])).await;
    scene.share(Arc::clone(&bucket) as Arc<dyn Kv>);
    // Nobody watches the bucket for this router.
    let first = told(&scene.call(PLAIN).await);
    assert_eq!(first.1, "miss");
    let elsewhere = if first.0 == "e#0" { "e#1" } else { "e#0" };
    let mut dispatch = named(&scene, "s-1");
    let said = Looked::of(
        &keeping(
            &scene.router.shared.config.affinity,
            &scene.router.shared.catalog.peek(),
            &model(vec![route("e", 0)]),
            &dispatch.offer,
        )
        .expect("sessions are kept"),
        &dispatch.offer,
        &Facts::default(),
    );
    let name = &said.expect("a name").names[0];
    let record = Record::new(
        EndpointId::from("e"),
        BackendId::from(elsewhere),
        scene.router.shared.clock.now(),
    );
    let bytes = record.encode().expect("plain data");
    let put = bucket.put("", &name.record_key, bytes.into(), bus::Expected::Any);
    put.await.expect("written");

    dispatch.body = bytes::Bytes::from(PLAIN);
    let played = scene.play(dispatch).await;

    assert_eq!(told(&played), (elsewhere.to_owned(), "hit:header".to_owned()));
}

#[tokio::test]
async fn calls_of_another_router_count_and_move_a_session() {
    let [one, two] = servers().await;
    let pair = Pair::over(config(), &staying("e", &[&one, &two])).await;
    let first = pair.call(0, "s-1").await;
    let backend = BackendId::from(first.0.as_str());
    let other = &pair.scenes[1].router.shared.affinity;
    let busy: Vec<_> = (0..4).map(|_| other.visit(&backend, None)).collect();
    let seen = &pair.scenes[0].router.shared.affinity;
    let deadline = Instant::now() + Duration::from_secs(5);
    while seen.calls(&backend) < 4 {
        assert!(Instant::now() < deadline, "the calls were not heard of");
        sleep(Duration::from_millis(10)).await;
    }

    let moved = pair.call(0, "s-1").await;
    assert_eq!(moved.1, "overload:header");
    assert_ne!(moved.0, first.0);
    sleep(SOON).await;
    assert_eq!(pair.call(1, "s-1").await, (moved.0, "hit:header".to_owned()));

    drop(busy);
    assert_eq!(other.calls(&backend), 0);
}

#[tokio::test]
async fn a_bucket_that_is_away_or_silent_keeps_no_call_waiting_and_is_caught_up_with() {
    let [one, two] = servers().await;
    let pair = Pair::over(config(), &staying("e", &[&one, &two])).await;
    for mood in [Mood::Away, Mood::Stuck] {
        pair.bucket.set(mood);
        let session = format!("s-{mood:?}");
        let begun = Instant::now();
        let first = pair.call(0, &session).await;
        assert_eq!(first.1, "miss", "{mood:?}");
        for _ in 0..3 {
            assert_eq!(
                pair.call(0, &session).await,
                (first.0.clone(), "hit:header".to_owned()),
                "{mood:?}"
            );
        }
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{mood:?}");

        pair.bucket.set(Mood::Fine);
        // Writes that went unanswered are given up first.
        sleep(Duration::from_millis(1_900)).await;
        pair.call(0, &session).await;
        sleep(SOON).await;
        assert_eq!(
            pair.call(1, &session).await,
            (first.0, "hit:header".to_owned()),
            "{mood:?}"
        );
    }
}

#[tokio::test]
async fn an_upstream_that_schedules_is_told_how_urgent_a_call_is_and_its_caller_has_no_say() {
    let [one] = servers().await;
    let mut endpoint = endpoint("e", &[&one.url()]);
    endpoint.priority_scheduling = true;
    let scene = Scene::new(config(), &[endpoint], &model(vec![route("e", 0)])).await;
    let urgent = PLAIN.replacen('{', "{\"priority\":-9,", 1);
    for (tokens, body, priority) in [
        (10, PLAIN, "20"),
        (49_999, &urgent, "20"),
        (50_000, PLAIN, "15"),
        (200_000, PLAIN, "0"),
    ] {
        let mut dispatch = scene.offer(body);
        // Another conversation each time: nothing of it was read before.
        dispatch.offer.caller = KeyId::from(priority.repeat(tokens % 7 + 1).as_str());
        dispatch.offer.requirements.prompt_tokens = tokens.try_into().expect("few");

        let played = scene.play(dispatch).await;

        let sent = one.requests().pop().expect("a request");
        let (_, sent) = sent.split_once("\r\n\r\n").expect("a body");
        let read: serde_json::Value = serde_json::from_str(sent).expect("JSON");
        assert_eq!(read["priority"].to_string(), priority, "{tokens}: {sent}");
        assert_eq!(sent.matches("priority").count(), 1, "{sent}");
        let dropped = (body != PLAIN).then_some("priority");
        assert_eq!(header(&played, "x-waybill-dropped"), dropped, "{tokens}");
    }
}
