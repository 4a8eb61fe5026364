//! The state machine of a request alone: what each message and each moment calls for.

use std::collections::HashMap;

use bytes::Bytes;
use schemas::frame::{Head, Report};
use schemas::outcome::Outcome;

use super::*;
use crate::remote::WINDOW_BYTES;
use crate::remote::code::Need;
use crate::remote::code::{Last, Reply};

struct Scene {
    request: Request,
    now: Now,
}

impl Scene {
    /// True when its router, of which nothing else is heard, counts as dead.
    fn look(&mut self, connected_since: Option<Instant>) -> bool {
        let lost = self.request.look(connected_since, &HashMap::new(), self.now);
        lost.is_some()
    }

    fn new() -> Self {
        let now = Now {
            at: Instant::now(),
            wall: Timestamp::from_micros(1_000_000),
        };
        let request = Request::new(Facts {
            started_at: now.wall,
            endpoint: Some(EndpointId::from("e1")),
            attempts_max: 2,
            patience: Patience {
                absent: Duration::from_secs(8),
                hindered: Duration::from_secs(8),
            },
            body_bytes: 3_000_000,
        });
        Self { request, now }
    }

    /// One that a router runs.
    fn running() -> Self {
        let mut scene = Self::new();
        scene.offer(1);
        let heard = scene.hear(1, Reply::Accepted("a".into()));
        assert!(
            heard
                .directive
                .is_some_and(|directive| directive.go && &*directive.boot == "a")
        );
        scene
    }

    fn pass(&mut self, millis: u32) {
        self.now.at += Duration::from_millis(millis.into());
        self.now.wall = self.now.wall.plus_micros(i64::from(millis) * 1_000);
    }

    fn offer(&mut self, lane: u64) {
        assert!(matches!(self.request.step(self.now), Step::Offer));
        self.request.offered(lane, self.now);
    }

    fn hear(&mut self, lane: u64, reply: Reply) -> Heard {
        self.request.hear(lane, reply, self.now)
    }

    fn frame(&mut self, sequence: u32, piece: Piece) -> Heard {
        self.hear(1, Reply::Frame(sequence, piece))
    }

    fn end(&mut self) -> Box<End> {
        match self.request.step(self.now) {
            Step::Hand(Frame::End(end), _) => end,
            other => panic!("an end: {other:?}"),
        }
    }
}

fn head() -> Piece {
    Piece::Head(Head {
        status: 200,
        headers: Vec::new(),
    })
}

fn chunk() -> Piece {
    Piece::Chunk(Bytes::from("x"))
}

fn end() -> Piece {
    let report = Report {
        outcome: Outcome::Ok,
        failure: None,
        attempts: Vec::new(),
        served: None,
        usage: None,
        usage_flags: Vec::new(),
        upstream_cost_nano_usd: None,
        attempts_of_unknown_cost: 0,
        passed: None,
        session: None,
        affinity: None,
        decision: None,
        delivered: schemas::frame::Delivered::default(),
    };
    Piece::End(Box::new(Last { report, head: None }), Bytes::from("tail"))
}

#[test]
fn the_first_router_that_accepts_gets_the_word_to_go_and_the_others_are_released() {
    let mut scene = Scene::running();

    let second = scene
        .hear(1, Reply::Accepted("b".into()))
        .directive
        .expect("told");
    let again = scene.hear(1, Reply::Accepted("a".into())).directive;

    assert_eq!(
        (&*second.boot, second.order.wish, second.go),
        ("b", Wish::Release, false)
    );
    assert!(again.is_none());
}

#[test]
fn a_head_is_held_back_until_its_content_is_there_so_that_a_loss_can_still_be_hidden() {
    let mut scene = Scene::running();
    scene.frame(0, head());
    assert!(matches!(scene.request.step(scene.now), Step::Wait(None)));

    scene.hear(1, Reply::Unknown);

    assert!(matches!(scene.request.step(scene.now), Step::Offer));
    assert_eq!(scene.request.attempts_max(), 1);
}

#[test]
fn what_a_lost_router_sent_before_anything_was_handed_on_is_forgotten() {
    let mut scene = Scene::running();
    scene.frame(0, head());
    scene.frame(1, chunk());
    scene.hear(1, Reply::Unknown);
    scene.offer(2);
    scene.hear(2, Reply::Accepted("b".into()));

    let late = scene.frame(2, chunk());

    assert!(!late.wake && late.directive.is_none());
    assert!(matches!(scene.request.step(scene.now), Step::Wait(None)));
}

#[test]
fn once_the_head_was_handed_on_what_has_arrived_is_handed_on_and_then_the_cut() {
    let mut scene = Scene::running();
    scene.frame(0, head());
    scene.frame(1, chunk());
    assert!(matches!(
        scene.request.step(scene.now),
        Step::Hand(Frame::Head(_), _)
    ));

    scene.pass(40);
    scene.hear(1, Reply::Unknown);
    assert!(matches!(
        scene.request.step(scene.now),
        Step::Hand(Frame::Chunk(_), _)
    ));
    let end = scene.end();

    assert_eq!(end.report.outcome, Outcome::UpstreamCut);
    assert!(end.report.delivered.content);
    assert_eq!(end.report.delivered.ttft_ms, Some(40));
    assert_eq!(end.report.attempts[0].endpoint_id.as_str(), "e1");
    assert_eq!(
        end.report.attempts_of_unknown_cost, 1,
        "nobody tells what it cost"
    );
}

#[test]
fn a_router_that_is_lost_after_its_end_has_arrived_loses_nothing() {
    let mut scene = Scene::running();
    scene.frame(0, head());
    scene.frame(1, chunk());
    let heard = scene.frame(2, end());
    assert_eq!(heard.directive.map(|directive| directive.order.received), Some(3));

    scene.pass(60_000);
    assert!(!scene.look(Some(scene.now.at)));
    scene.request.abandon();
    let mut frames = 0;
    let end = loop {
        match scene.request.step(scene.now) {
            Step::Hand(Frame::End(end), _) => break end,
            Step::Hand(..) => frames += 1,
            other => panic!("a frame: {other:?}"),
        }
    };

    assert_eq!((frames, &end.tail[..]), (2, &b"tail"[..]));
    assert_eq!(end.report.outcome, Outcome::Ok);
}

#[test]
fn silence_counts_only_while_connected_until_the_router_has_given_up_too() {
    let mut scene = Scene::running();
    scene.frame(0, head());
    scene.pass(2_900);
    assert!(!scene.look(None));
    assert!(!scene.look(Some(scene.now.at)));

    scene.pass(100);

    assert!(scene.look(None));
}

#[test]
fn a_connected_router_that_is_silent_for_a_second_and_a_half_is_dead() {
    let mut scene = Scene::running();
    let since = Some(scene.now.at);
    scene.pass(1_000);
    scene.request.beat(1, 0, scene.now);
    scene.pass(1_499);
    assert!(!scene.look(since));

    scene.pass(1);

    assert!(scene.look(since));
}

#[test]
fn frames_that_a_beat_shows_to_be_missing_are_asked_for() {
    let mut scene = Scene::running();
    scene.frame(0, head());

    let directive = scene.request.beat(1, 3, scene.now).expect("told");

    assert!(directive.order.resume);
    assert_eq!(directive.order.received, 1);
}

#[test]
fn a_word_to_go_that_reaches_nobody_costs_no_attempt() {
    let mut scene = Scene::running();

    assert!(scene.request.unheard(1, scene.now));
    scene.pass(5);
    scene.offer(2);

    assert_eq!(scene.request.attempts_max(), 2);
    assert!(scene.request.waits());
}

#[test]
fn an_order_that_reaches_nobody_later_is_no_loss_yet() {
    let mut scene = Scene::running();
    scene.frame(0, head());

    assert!(!scene.request.unheard(1, scene.now));
}

#[test]
fn a_canceled_request_whose_router_is_silent_ends_within_a_second() {
    let mut scene = Scene::running();
    let directive = scene.request.stop(Stop::CallerGone, scene.now).expect("told");
    assert_eq!(directive.order.wish, Wish::Cancel);
    assert!(matches!(scene.request.step(scene.now), Step::Wait(Some(_))));

    scene.pass(900);
    let end = scene.end();

    assert_eq!(end.report.outcome, Outcome::ClientGone);
    assert!(!end.report.delivered.content);
}

#[test]
fn a_router_that_accepts_after_the_caller_has_left_is_released() {
    let mut scene = Scene::new();
    scene.offer(1);
    scene.request.stop(Stop::CallerGone, scene.now);

    let directive = scene.hear(1, Reply::Accepted("a".into())).directive;

    assert_eq!(
        directive.map(|directive| directive.order.wish),
        Some(Wish::Release)
    );
    assert_eq!(scene.end().report.outcome, Outcome::ClientGone);
}

#[test]
fn of_a_body_a_router_is_sent_what_it_wants_once_and_never_more_than_the_window() {
    let mut scene = Scene::running();
    let mut want = |from, until, again| {
        let need = Need { from, until, again };
        let wanted = scene.hear(1, Reply::Need(need)).wanted;
        wanted.map(|wanted| (wanted.boot.to_string(), wanted.bytes))
    };
    let sent = |bytes| Some(("a".to_owned(), bytes));

    assert_eq!(want(0, 1_000_000, false), sent(0..1_000_000));
    assert_eq!(want(0, 1_000_000, false), None, "it is on its way");
    assert_eq!(want(600_000, 1_600_000, false), sent(1_000_000..1_600_000));
    assert_eq!(want(700_000, 1_600_000, true), sent(700_000..1_600_000));
    assert_eq!(
        want(1_000_000, u32::MAX, true),
        sent(1_000_000..1_000_000 + WINDOW_BYTES)
    );
    assert_eq!(want(2_500_000, 3_500_000, true), sent(2_500_000..3_000_000));
    assert_eq!(want(u32::MAX, u32::MAX, true), None);
}
