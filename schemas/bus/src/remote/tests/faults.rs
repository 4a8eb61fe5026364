//! Messages are lost, doubled and late, connections are cut, readers are slow: answers stay whole, byte for byte.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use schemas::outcome::Outcome;
use tokio::time::{Instant, sleep};

use super::{Stage, finish, settle, stream, text, to_content};
use crate::conformance::dispatch::{Played, frame, rest};
use crate::conformance::script::Act;
use crate::dispatch::Frame;
use crate::wire::local::Fate;

/// Frames of the kind `kind` of the code.
fn is_frame(payload: &[u8], kind: u8) -> bool {
    payload.get(1) == Some(&kind)
}

const CHUNK: u8 = 17;
const END: u8 = 19;

async fn fifty(cut: impl AsyncFnOnce(&Stage, &super::Router)) -> Vec<Played> {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| stream(60, Duration::from_millis(50))).await;
    let sessions = (0..50).map(|number| finish(stage.begin(number)));
    let (played, ()) = tokio::join!(join_all(sessions), async {
        sleep(Duration::from_millis(1_013)).await;
        cut(&stage, &router).await;
    });
    assert_eq!(router.script.begun(), 50);
    played
}

fn assert_whole(played: &[Played], count: usize) {
    for played in played {
        assert_eq!(played.outcome(), Some(Outcome::Ok), "{:?}", played.end);
        assert_eq!(played.text(), text(count));
        assert_eq!(played.end().expect("an end").report.attempts.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_streams_survive_a_second_without_the_bus() {
    let played = fifty(async |stage, router| {
        stage.wire.cut(true);
        router.wire.cut(true);
        sleep(Duration::from_secs(1)).await;
        stage.wire.cut(false);
        router.wire.cut(false);
    })
    .await;

    assert_whole(&played, 60);
}

#[tokio::test(start_paused = true)]
async fn fifty_streams_survive_a_second_without_the_routers_connection() {
    let played = fifty(async |_, router| {
        router.wire.cut(true);
        sleep(Duration::from_secs(1)).await;
        router.wire.cut(false);
    })
    .await;

    assert_whole(&played, 60);
}

#[tokio::test(start_paused = true)]
async fn fifty_streams_survive_a_second_without_the_gateways_connection() {
    let played = fifty(async |stage, _| {
        stage.wire.cut(true);
        sleep(Duration::from_secs(1)).await;
        stage.wire.cut(false);
    })
    .await;

    assert_whole(&played, 60);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_request_survives_its_routers_cut_while_others_of_that_router_are_heard() {
    let mut stage = Stage::new().await;
    let begun = AtomicUsize::new(0);
    let router = stage
        .router(move |_| match begun.fetch_add(1, Ordering::Relaxed) {
            0 => stream(2, Duration::from_secs(5)),
            _ => stream(200, Duration::from_millis(50)),
        })
        .await;
    let mut quiet = stage.begin(1);
    let mut played = to_content(quiet.as_mut()).await;
    let busy = stage.begin(2);

    let (other, ()) = tokio::join!(finish(busy), async {
        // Right before a beat.
        sleep(Duration::from_millis(980)).await;
        router.wire.cut(true);
        sleep(Duration::from_millis(1_400)).await;
        router.wire.cut(false);
    });
    rest(quiet.as_mut(), &mut played).await.expect("an end");

    assert_whole(&[other], 200);
    assert_whole(&[played], 2);
}

/// Loses, doubles and delays one message in five, as `seed` decides. Who is not heard for long enough is lost, so of one
/// kind on one subject no two in a row are lost.
fn weather(seed: u64) -> impl FnMut(&str, &[u8]) -> Fate {
    let mut drawn = seed;
    let mut lost = HashSet::new();
    move |subject, payload| {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let like = (subject.to_owned(), payload.get(1).copied());
        if lost.remove(&like) {
            return Fate::Pass;
        }
        match (drawn >> 33) % 20 {
            0 | 1 => {
                lost.insert(like);
                Fate::Drop
            }
            2 => Fate::Double,
            3 => Fate::Late(Duration::from_millis(15)),
            _ => Fate::Pass,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_whole_however_messages_are_lost_doubled_and_late() {
    for seed in 1..=5 {
        let mut stage = Stage::new().await;
        let router = stage.router(|_| stream(80, Duration::from_millis(7))).await;
        stage.network.decide(weather(seed));

        let sessions = (0..20).map(|number| finish(stage.begin(number)));
        let played = join_all(sessions).await;

        assert_whole(&played, 80);
        assert_eq!(router.script.begun(), 20, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_end_is_sent_until_it_arrives_and_costs_no_report() {
    let mut stage = Stage::new().await;
    let router = stage.router(|_| stream(3, Duration::ZERO)).await;
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    stage.network.decide(move |_, payload| {
        if is_frame(payload, END) && count.fetch_add(1, Ordering::Relaxed) < 3 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });

    let played = stage.play().await;

    assert_whole(&[played], 3);
    assert!(lost.load(Ordering::Relaxed) > 3);
    settle().await;
    assert_eq!(router.script.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_the_upstream_back_and_reads_all_in_the_end() {
    let mut stage = Stage::new().await;
    let large = Bytes::from(vec![b'x'; 40 * 1024]);
    let acts = |large: &Bytes| {
        let mut acts = vec![Act::Head];
        acts.extend((0..200).map(|_| Act::Chunk(large.clone())));
        acts.push(Act::End(Bytes::from_static(b"[DONE]")));
        acts
    };
    let router = stage.router(move |_| acts(&large)).await;
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;

    sleep(Duration::from_mins(1)).await;
    let ahead = router.script.counts().acts.load(Ordering::Relaxed);
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert!(ahead <= 24, "{ahead} pieces were taken from the upstream");
    assert_eq!(played.outcome(), Some(Outcome::Ok));
    assert_eq!(played.text().len(), 200 * 40 * 1024 + 6);
}

#[tokio::test(start_paused = true)]
async fn pieces_that_are_ready_travel_together() {
    let mut stage = Stage::new().await;
    let _router = stage.router(|_| stream(400, Duration::ZERO)).await;
    let frames = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&frames);
    stage.network.decide(move |_, payload| {
        if is_frame(payload, CHUNK) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Pass
    });

    let played = stage.play().await;

    assert_eq!(played.text(), text(400));
    assert_eq!(frames.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn pieces_and_tails_that_fit_no_message_arrive_in_parts() {
    let mut stage = Stage::new().await;
    let piece: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let tail: Vec<u8> = (0..=250).cycle().take(5_000_000).collect();
    let (sent, held) = (Bytes::from(piece.clone()), Bytes::from(tail.clone()));
    let acts = vec![Act::Head, Act::Chunk(sent), Act::End(held)];
    let _router = stage.router(move |_| acts.clone()).await;

    let played = stage.play().await;

    assert!(played.chunks == piece);
    assert!(played.end().expect("an end").tail == tail);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_of_many_parts_is_one_frame_for_the_gateway() {
    let mut stage = Stage::new().await;
    let body = Bytes::from(vec![b'y'; 2_000_000]);
    let sent = body.clone();
    let _router = stage.router(move |_| vec![Act::Whole(sent.clone())]).await;
    let mut session = stage.begin(1);

    let Frame::End(end) = frame(session.as_mut()).await else {
        panic!("an answer in one piece is one frame");
    };

    assert!(end.tail == body && end.head.is_some());
}

#[tokio::test(start_paused = true)]
async fn bytes_that_make_no_sense_disturb_nobody() {
    use crate::wire::Wire as _;
    let mut stage = Stage::new().await;
    let _router = stage.router(|_| stream(100, Duration::from_millis(5))).await;
    let stranger = stage.network.connect();
    let mut session = stage.begin(1);
    let mut played = to_content(session.as_mut()).await;
    let inbox = stage.wire.inbox();
    for kind in 0..=30_u8 {
        for length in 0..40 {
            let mut bytes = vec![1, kind];
            bytes.resize(2 + length, 0xff);
            for subject in ["wb.run.default", "wb.ctl.default.boot-1"] {
                let payload = Bytes::from(bytes.clone());
                stranger
                    .send(subject, Some("a.b"), payload)
                    .await
                    .expect("a wire");
            }
            for word in ["beat", "zz", "0000000000000000", ""] {
                let payload = Bytes::from(bytes.clone());
                let subject = format!("{inbox}.{word}");
                stranger.send(&subject, None, payload).await.expect("a wire");
            }
        }
    }

    let at = Instant::now();
    rest(session.as_mut(), &mut played).await.expect("an end");

    assert_whole(&[played], 100);
    assert!(at.elapsed() < Duration::from_secs(1));
}
