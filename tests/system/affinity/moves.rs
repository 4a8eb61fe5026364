//! When sessions are moved or end: under load by both margins, when their backend fails, when their time is over, and
//! what becomes of them while the bus is away.

use std::time::Duration;

use harness::{Behaviour, Client, Plan, Scene, Stream, Surface, Upstream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{alike, body, scene, scene_with, staying, verdict};

/// Longer than it takes until every router knows what the others run.
const HEARD: Duration = Duration::from_millis(1_200);

fn hi() -> Value {
    body(Surface::Chat, &["hi".to_owned()])
}

fn named(scene: &Scene, session: &str) -> Client {
    scene.client.with_header("x-session-id", session)
}

/// A session on each upstream: the first that come to be there.
async fn one_on_each(scene: &Scene) -> [Client; 2] {
    let mut found = [None, None];
    for number in 0..64 {
        let client = named(scene, &format!("conv-{number}"));
        let before = scene.o1.calls();
        assert_eq!(verdict(&client.post_chat(&hi()).await), "miss");
        let place = usize::from(scene.o1.calls() == before);
        found[place].get_or_insert(client);
        if let [Some(one), Some(other)] = &found {
            return [one.clone(), other.clone()];
        }
    }
    panic!("64 sessions came to one upstream");
}

/// Calls of a session that go on until they are closed.
async fn occupy(client: &Client, calls: usize) -> Vec<Stream> {
    let mut body = hi();
    body["stream"] = json!(true);
    let mut streams = Vec::new();
    for _ in 0..calls {
        let stream = client.stream(Surface::Chat, &body).await;
        assert_eq!(stream.header("x-session-affinity"), "hit:header");
        streams.push(stream);
    }
    streams
}

/// Streams begin, and then say nothing.
fn slow() -> Behaviour {
    Behaviour::chat("one two three").stall_after(1)
}

/// Loads two backends until both margins are reached, and no sooner is a session moved.
pub(super) async fn moves_by_both_margins(scene: &Scene) {
    let [one, other] = one_on_each(scene).await;
    scene.o1.default(slow());
    scene.o2.default(slow());

    let mut held = Vec::new();
    // What each call finds at its own upstream and at the other one: at most 3 and 0, 7 and 4, 11 and 8 are too few;
    // 13 and 9 are four more, but not half as many again.
    for (client, calls) in [(&one, 4), (&other, 8), (&one, 8), (&other, 1), (&one, 2)] {
        held.extend(occupy(client, calls).await);
        sleep(HEARD).await;
    }

    // 14 and 9: both.
    scene.o1.default(Behaviour::chat("from the first"));
    scene.o2.default(Behaviour::chat("from the second"));
    let moved = one.post_chat(&hi()).await;
    assert_eq!(
        (verdict(&moved), moved.content()),
        ("overload:header".to_owned(), "from the second".to_owned())
    );
    assert_eq!(scene.row(moved.request_id()).await["affinity"], "overload:header");
    for _ in 0..4 {
        let next = one.post_chat(&hi()).await;
        assert_eq!(
            (verdict(&next), next.content()),
            ("hit:header".to_owned(), "from the second".to_owned())
        );
    }
    let name = "waybill_session_affinity_total{outcome=\"overload\",level=\"header\"}";
    let counted = scene.metric(name).await;
    assert!((counted - 1.0).abs() < 0.5, "{counted}");
    for stream in held {
        stream.close();
    }
}

#[tokio::test]
async fn a_session_is_moved_when_both_margins_are_reached_and_says_so() {
    let scene = scene().await;
    moves_by_both_margins(&scene).await;
    scene.finish().await;
}

#[tokio::test]
async fn the_margins_are_an_operators_choice() {
    let margins = json!({"overload_calls": 1, "overload_factor": 1});
    let scene = scene_with(staying, |node| node.setting("affinity", margins)).await;
    let [one, _] = one_on_each(&scene).await;
    scene.o1.default(slow());

    let held = occupy(&one, 1).await;
    sleep(HEARD).await;
    let moved = one.post_chat(&hi()).await;

    assert_eq!(verdict(&moved), "overload:header");
    held.into_iter().for_each(Stream::close);
    scene.finish().await;
}

#[tokio::test]
async fn a_session_whose_backend_fails_goes_elsewhere_and_stays_there() {
    let scene = scene().await;
    let [one, _] = one_on_each(&scene).await;
    scene.o1.script([Behaviour::error(500, "boom")]);
    scene.o2.default(Behaviour::chat("from the second"));

    let moved = one.post_chat(&hi()).await;
    assert_eq!(
        (verdict(&moved), moved.content()),
        ("stale:header".to_owned(), "from the second".to_owned())
    );
    let row = scene.row(moved.request_id()).await;
    assert_eq!(row["affinity"], "stale:header");
    // The first is well again, and the session stays.
    for _ in 0..6 {
        let next = one.post_chat(&hi()).await;
        assert_eq!(
            (verdict(&next), next.content()),
            ("hit:header".to_owned(), "from the second".to_owned())
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_caller_whose_backend_fails_stays_with_the_next_one() {
    let scene = scene_with(alike, |node| node).await;
    assert_eq!(verdict(&scene.client.post_chat(&hi()).await), "miss");
    let (left, next) = if scene.o1.calls() == 1 {
        (&scene.o1, &scene.o2)
    } else {
        (&scene.o2, &scene.o1)
    };
    left.script([Behaviour::error(500, "boom")]);
    next.default(Behaviour::chat("from the next"));

    let moved = scene.client.post_chat(&hi()).await;
    assert_eq!(
        (verdict(&moved), moved.content()),
        ("stale:caller".to_owned(), "from the next".to_owned())
    );
    for _ in 0..6 {
        let again = scene.client.post_chat(&hi()).await;
        assert_eq!(
            (verdict(&again), again.content()),
            ("hit:caller".to_owned(), "from the next".to_owned())
        );
    }
    scene.finish().await;
}

#[tokio::test]
async fn a_session_that_broke_off_is_nowhere_and_the_next_call_begins_anew() {
    let scene = scene().await;
    let [one, _] = one_on_each(&scene).await;
    scene
        .o1
        .script([Behaviour::chat("one two three four").cut_after_chunks(2)]);
    let mut body = hi();
    body["stream"] = json!(true);

    let cut = one.stream(Surface::Chat, &body).await;
    assert_eq!(cut.header("x-session-affinity"), "hit:header");
    cut.collect().await;
    sleep(Duration::from_millis(200)).await;

    assert_eq!(verdict(&one.post_chat(&hi()).await), "miss");
    assert_eq!(verdict(&one.post_chat(&hi()).await), "hit:header");
    scene.finish().await;
}

#[tokio::test]
async fn a_call_that_nobody_answered_tells_of_its_session_too() {
    let scene = scene().await;
    let [one, _] = one_on_each(&scene).await;
    for upstream in [&scene.o1, &scene.o2] {
        upstream.script([Behaviour::error(500, "boom")]);
    }

    let failed = one.post_chat(&hi()).await;

    assert_eq!(failed.status, 502);
    assert_eq!(failed.header("x-session-affinity"), "stale:header");
    assert!(failed.header("x-session-id").starts_with("conv-"));
    scene.finish().await;
}

#[tokio::test]
async fn a_session_is_forgotten_after_its_life_and_every_call_prolongs_it() {
    let scene = scene_with(staying, |node| node.env("ROUTING_AFFINITY_SESSION_TTL_SEC", "3")).await;
    let client = named(&scene, "conv-1");
    assert_eq!(verdict(&client.post_chat(&hi()).await), "miss");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        sleep(Duration::from_millis(700)).await;
        assert_eq!(verdict(&client.post_chat(&hi()).await), "hit:header");
    }

    sleep(Duration::from_millis(3_600)).await;

    assert_eq!(verdict(&client.post_chat(&hi()).await), "miss");
    scene.finish().await;
}

#[tokio::test]
async fn a_session_is_moved_after_its_longest_age_however_busy_it_is() {
    let scene = scene_with(staying, |node| node.env("ROUTING_AFFINITY_MAX_AGE_SEC", "2")).await;
    let client = named(&scene, "conv-1");
    assert_eq!(verdict(&client.post_chat(&hi()).await), "miss");
    assert_eq!(verdict(&client.post_chat(&hi()).await), "hit:header");
    let begun = Instant::now();
    let mut verdicts = Vec::new();
    while begun.elapsed() < Duration::from_millis(2_800) {
        sleep(Duration::from_millis(200)).await;
        verdicts.push(verdict(&client.post_chat(&hi()).await));
    }

    let misses = verdicts.iter().filter(|verdict| *verdict == "miss").count();
    assert_eq!(misses, 1, "{verdicts:?}");
    scene.finish().await;
}

#[tokio::test]
async fn a_bus_that_is_away_costs_cache_misses_and_no_call() {
    let plan = Plan {
        proxied: true,
        ..Plan::default()
    };
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let model = staying(&o1, &o2);
    let mut scene = Scene::start_cluster_on(plan, (o1, o2), |node| node.models(&[model])).await;
    scene.wait_ready().await;
    sleep(Duration::from_secs(2)).await;
    let (a, b) = (scene.node.addr(), scene.cluster().node("b").addr());
    let known = named(&scene, "known");
    assert_eq!(verdict(&known.post_chat(&hi()).await), "miss");
    assert_eq!(verdict(&known.post_chat(&hi()).await), "hit:header");

    scene.cluster().services.nats_proxy.cut();
    let new = named(&scene, "new");
    let mut took = Vec::new();
    for addr in [a, b] {
        let (known, new) = (known.at(addr), new.at(addr));
        assert_eq!(verdict(&known.post_chat(&hi()).await), "hit:header");
        for expected in ["miss", "hit:header", "hit:header"] {
            let answer = new.post_chat(&hi()).await;
            assert_eq!(verdict(&answer), expected);
            took.push(answer.took);
        }
    }
    assert!(took.iter().all(|took| *took < Duration::from_secs(1)), "{took:?}");
    scene.cluster().services.nats_proxy.heal();

    // Both nodes agree again, if not at once.
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        new.at(a).post_chat(&hi()).await;
        let pair = [
            scene.row(new.at(a).post_chat(&hi()).await.request_id()).await,
            scene.row(new.at(b).post_chat(&hi()).await.request_id()).await,
        ];
        if pair[0]["backend"] == pair[1]["backend"] {
            break;
        }
        assert!(Instant::now() < deadline, "{pair:?}");
    }
    scene.finish().await;
}
