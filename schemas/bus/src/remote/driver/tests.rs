//! One accepted request in a router, with its gateway played by hand.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;
use crate::conformance::script::{Act, Script, dispatch};
use crate::dispatch::Dispatcher as _;
use crate::remote::code::Reply;
use crate::remote::{CREDIT_FRAMES, KEPT_FRAMES_MAX};
use crate::wire::Delivery;
use crate::wire::local::Network;

struct Scene {
    lane: Arc<Lane>,
    script: Script,
    heard: mpsc::Receiver<Delivery>,
    tasks: JoinSet<()>,
}

impl Scene {
    /// A request that plays `acts` and was given the word to go, with these credits.
    async fn new(acts: Vec<Act>, granted: u32) -> Self {
        let wire = Network::new().connect();
        let heard = wire.subscribe("inbox.1").await.expect("a wire");
        let script = Script::new(move |_| acts.clone());
        let lane = Arc::new(Lane::new(dispatch("m", 1), None, Instant::now()));
        let Ordered::Go(held) = lane.order(&order(0, granted, Wish::Run), Instant::now()) else {
            panic!("the first order is the word to go");
        };
        let session = script.dispatch(*held);
        let mut tasks = JoinSet::new();
        tasks.spawn(drive(Arc::clone(&lane), session, wire, "inbox.1".to_owned()));
        Self {
            lane,
            script,
            heard,
            tasks,
        }
    }

    fn tell(&self, received: u32, granted: u32, wish: Wish) {
        self.lane.order(&order(received, granted, wish), Instant::now());
    }

    /// The numbers of the frames that were sent so far.
    async fn numbers(&mut self) -> Vec<u32> {
        sleep(Duration::from_millis(1)).await;
        let mut numbers = Vec::new();
        while let Ok(delivery) = self.heard.try_recv() {
            let Ok(Reply::Frame(sequence, _)) = code::read_reply(delivery.payload) else {
                panic!("a frame");
            };
            numbers.push(sequence);
        }
        numbers
    }
}

fn order(received: u32, granted: u32, wish: Wish) -> Order {
    Order {
        lane: 1,
        received,
        granted,
        wish,
        resume: false,
    }
}

/// Pieces that are a frame each.
fn pieces(count: usize) -> Vec<Act> {
    let mut acts = vec![Act::Head];
    acts.extend((0..count).map(|_| Act::Chunk(Bytes::from(vec![b'x'; GATHERED_BYTES]))));
    acts.push(Act::End(Bytes::from("end")));
    acts
}

#[tokio::test(start_paused = true)]
async fn frames_are_sent_as_far_as_there_is_credit() {
    let mut scene = Scene::new(pieces(40), CREDIT_FRAMES).await;
    assert!(scene.numbers().await.into_iter().eq(0..16));

    scene.tell(8, 24, Wish::Run);

    assert!(scene.numbers().await.into_iter().eq(16..24));
    assert_eq!(scene.lane.kept(), 16);
}

#[tokio::test(start_paused = true)]
async fn no_more_frames_are_kept_than_the_limit_whatever_is_granted() {
    let mut scene = Scene::new(pieces(100), 1_000).await;

    assert_eq!(scene.numbers().await.len(), KEPT_FRAMES_MAX);
    assert_eq!(scene.lane.kept(), KEPT_FRAMES_MAX);
}

#[tokio::test(start_paused = true)]
async fn frames_are_sent_again_from_where_they_are_asked_for() {
    let mut scene = Scene::new(pieces(40), CREDIT_FRAMES).await;
    scene.numbers().await;

    let asked = Order {
        resume: true,
        ..order(5, CREDIT_FRAMES, Wish::Run)
    };
    scene.lane.order(&asked, Instant::now());

    assert!(scene.numbers().await.into_iter().eq(5..16));
}

#[tokio::test(start_paused = true)]
async fn the_end_needs_no_credit_and_is_said_again_until_it_has_arrived() {
    let mut scene = Scene::new(
        vec![Act::Head, Act::Chunk(Bytes::from("x")), Act::End(Bytes::new())],
        3,
    )
    .await;
    assert_eq!(scene.numbers().await, [0, 1, 2]);

    scene.lane.look(1, Instant::now());
    assert_eq!(scene.numbers().await, [2]);
    scene.tell(3, 16, Wish::Run);
    scene.tasks.join_next().await.expect("a task").expect("no panic");

    assert_eq!(scene.lane.kept(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_without_any_credit_closes_the_upstream_and_sends_the_report() {
    let mut scene = Scene::new(pieces(100), CREDIT_FRAMES).await;
    scene.numbers().await;
    assert_eq!(scene.script.open(), 1);

    scene.tell(0, CREDIT_FRAMES, Wish::Cancel);

    assert_eq!(scene.numbers().await, [16]);
    assert_eq!(scene.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tail_that_waits_for_credit_is_dropped_when_the_caller_leaves() {
    let tail = Bytes::from(vec![b'y'; 100 * FRAME_BYTES_MAX]);
    let mut scene = Scene::new(vec![Act::Whole(tail)], CREDIT_FRAMES).await;
    assert_eq!(scene.numbers().await.len(), 16);

    scene.tell(0, CREDIT_FRAMES, Wish::Cancel);

    assert_eq!(scene.numbers().await, [16]);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_silent_is_given_up_within_three_seconds() {
    let scene = Scene::new(vec![Act::Stay], CREDIT_FRAMES).await;
    let began = Instant::now();

    while scene.lane.look(1, Instant::now()) != Seen::Silent {
        sleep(LOOK).await;
    }

    assert!(began.elapsed() > Duration::from_millis(2_500));
    assert!(began.elapsed() <= GATEWAY_SILENCE_MAX);
}

#[tokio::test(start_paused = true)]
async fn an_order_for_a_place_that_has_expired_runs_nothing() {
    let lane = Lane::new(dispatch("m", 1), None, Instant::now());
    assert_eq!(lane.look(1, Instant::now()), Seen::Waiting);

    sleep(Duration::from_secs(1)).await;

    assert_eq!(lane.look(1, Instant::now()), Seen::Expired);
    let ordered = lane.order(&order(0, 16, Wish::Run), Instant::now());
    assert!(matches!(ordered, Ordered::Forget));
}
