//! Bodies that are too large for an offer, and routers that are told what they must know.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::catalog::modality::Modalities;
use schemas::catalog::{Endpoint, Model, ProviderKind};
use schemas::id::{EndpointId, ModelName, PoolName};
use schemas::pool::Part;
use tokio::time::{Instant, sleep};

use super::{CatalogView, Stage, code, finish, stream, text};
use crate::conformance::dispatch::play;
use crate::conformance::script::{Act, dispatch};
use crate::dispatch::Dispatch;
use crate::remote::code::{self as message, Reply};
use crate::remote::gateway::Target;
use crate::remote::sight::Learned;
use crate::remote::{BODIES_BYTES_MAX, BODY_BYTES_MAX, INLINE_BYTES_MAX};
use crate::wire::Wire as _;
use crate::wire::local::Fate;

/// A body whose every part differs from every other.
fn body(bytes: usize) -> Bytes {
    let mut body = Vec::with_capacity(bytes + 8);
    let mut count = 0_u64;
    while body.len() < bytes {
        body.extend_from_slice(&count.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        count += 1;
    }
    body.truncate(bytes);
    body.into()
}

fn of(bytes: usize) -> Dispatch {
    let mut dispatch = dispatch("m", 1);
    dispatch.body = body(bytes);
    dispatch
}

/// A stage whose one router notes the bodies that it is given.
async fn noting() -> (Stage, super::Router, Arc<Mutex<Vec<Bytes>>>) {
    let mut stage = Stage::new().await;
    let bodies: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let noted = Arc::clone(&bodies);
    let acts = move |dispatch: &Dispatch| {
        noted.lock().push(dispatch.body.clone());
        stream(3, Duration::ZERO)
    };
    let router = stage.router(acts).await;
    (stage, router, bodies)
}

#[tokio::test(start_paused = true)]
async fn bodies_of_every_size_arrive_as_they_were_sent() {
    let (stage, _router, bodies) = noting().await;
    for bytes in [0, 1, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 3_000_001, 32 << 20] {
        let played = play(&stage.dispatcher, of(bytes)).await.expect("an end");

        assert_eq!(played.text(), text(3), "{bytes}");
        let got = bodies.lock().pop().expect("a body");
        assert!(got == body(bytes), "{bytes}: {}", got.len());
    }
    let refused = play(&stage.dispatcher, of(BODY_BYTES_MAX + 1)).await;
    assert_eq!(code(&refused.expect("an end")), Some("no_backends_available"));
    assert!(bodies.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn pieces_that_are_lost_or_doubled_change_nothing() {
    let (stage, _router, bodies) = noting().await;
    let mut number = 0;
    stage.network.decide(move |subject, _| {
        if !subject.starts_with("wb.body.") {
            return Fate::Pass;
        }
        number += 1;
        match number % 7 {
            2 => Fate::Drop,
            3 => Fate::Double,
            _ => Fate::Pass,
        }
    });

    let played = play(&stage.dispatcher, of(3_000_000)).await.expect("an end");

    assert_eq!(played.text(), text(3));
    assert!(bodies.lock().pop().expect("a body") == body(3_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_router_that_dies_while_a_body_is_on_its_way_is_replaced() {
    let (mut stage, first, bodies) = noting().await;
    let noted = Arc::clone(&bodies);
    stage.network.decide(|subject, _| {
        if subject == "wb.body.default.boot-1" {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let mut session = stage.dispatcher.dispatch_to(
        Target {
            pool: PoolName::from("default"),
            part: None,
            is_last: true,
        },
        of(1_000_000),
    );
    let mut played = crate::conformance::dispatch::Played::default();
    let first_frame = async { played.take(super::frame(session.as_mut()).await) };
    let (second, ()) = tokio::join!(
        async {
            sleep(Duration::from_millis(200)).await;
            first.kill().await;
            stage
                .router(move |dispatch| {
                    noted.lock().push(dispatch.body.clone());
                    stream(3, Duration::ZERO)
                })
                .await
        },
        first_frame
    );
    super::rest(session.as_mut(), &mut played).await.expect("an end");

    assert_eq!(played.text(), text(3));
    assert_eq!((first.script.begun(), second.script.begun()), (0, 1));
    assert!(bodies.lock().pop().expect("a body") == body(1_000_000));
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_while_his_body_is_on_its_way_ends_it() {
    let (stage, router, _bodies) = noting().await;
    stage.network.decide(|subject, _| {
        if subject.starts_with("wb.body.") {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let mut session = crate::dispatch::Dispatcher::dispatch(&stage.dispatcher, of(1_000_000));
    let waited = tokio::time::timeout(Duration::from_millis(300), super::frame(session.as_mut())).await;
    assert!(waited.is_err(), "nothing can be answered yet");
    let at = Instant::now();

    session.cancel();
    let played = finish(session).await;

    assert_eq!(code(&played), Some("client_gone"));
    assert!(at.elapsed() < Duration::from_secs(1), "{:?}", at.elapsed());
    assert_eq!(router.script.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_router_holds_no_more_of_bodies_than_it_has_room_for() {
    let mut stage = Stage::new().await;
    let _router = stage.router(|_| vec![Act::Stay]).await;
    let stranger = stage.network.connect();
    let inbox = stranger.inbox().to_owned();
    let mut replies = stranger.subscribe(&format!("{inbox}.*")).await.expect("a wire");
    let largest = vec![0; BODY_BYTES_MAX];
    let fit = BODIES_BYTES_MAX / BODY_BYTES_MAX;
    let mut accepted = 0;
    for number in 0..=fit {
        let asked = dispatch("m", 1);
        let offer = message::offer(&asked.offer, b"", &largest, false).expect("an offer");
        let lane = format!("{inbox}.{number:016x}");
        stranger
            .send("wb.run.default", Some(&lane), offer)
            .await
            .expect("a wire");
        let reply = replies.recv().await.expect("a reply").payload;
        match message::read_reply(reply).expect("a reply") {
            Reply::Accepted(_) => accepted += 1,
            Reply::Busy => assert_eq!(number, fit),
            other => panic!("{other:?}"),
        }
    }

    assert_eq!(accepted, fit);
    // Places that are not used are given back, and their room with them.
    sleep(Duration::from_secs(2)).await;
    let asked = dispatch("m", 1);
    let offer = message::offer(&asked.offer, b"", &largest, false).expect("an offer");
    let lane = format!("{inbox}.{:016x}", 99);
    stranger
        .send("wb.run.default", Some(&lane), offer)
        .await
        .expect("a wire");
    let reply = replies.recv().await.expect("a reply").payload;
    assert!(matches!(message::read_reply(reply), Ok(Reply::Accepted(_))));
}

fn part(model: &str, endpoint: &str) -> Part {
    let model = serde_json::json!({
        "id": model, "name": model, "aliases": [], "position": 0, "input_modalities": Modalities::TEXT,
        "output_modalities": Modalities::TEXT, "quantization": "", "context_length": 8, "max_output_length": 8,
        "supports_tools": true, "supports_structured_output": true, "supported_params": [], "required_role": "free",
        "tenants": null, "pricing": [], "created_at": schemas::time::Timestamp::default(), "routes": [],
        "origin": "file",
    });
    let model: Model = serde_json::from_value(model).expect("a model");
    let id = EndpointId::from(endpoint);
    Part {
        model,
        endpoints: vec![Endpoint::of_file(id, ProviderKind::OpenaiCompat, "p".into())],
    }
}

#[tokio::test(start_paused = true)]
async fn a_router_that_is_told_what_it_must_know_takes_offers_of_any_revision() {
    let mut stage = Stage::new().await;
    let view = CatalogView::default();
    let router = stage
        .router_seeing(|_| stream(3, Duration::ZERO), |_| {}, Learned::new(view.clone()))
        .await;
    let target = |part| Target {
        pool: PoolName::from("default"),
        part,
        is_last: false,
    };
    let begin = |told: Option<Part>, revision| {
        let mut asked = dispatch("m", 1);
        asked.offer.catalog_revision = revision;
        stage.dispatcher.dispatch_to(target(told.map(Arc::new)), asked)
    };

    let untold = finish(begin(None, 5)).await;
    let foreign = finish(begin(Some(part("other", "e1")), 5)).await;
    let first = finish(begin(Some(part("m", "e1")), 5)).await;
    let second = finish(begin(Some(part("m", "e2")), 6)).await;
    let late = finish(begin(Some(part("m", "e3")), 5)).await;

    assert_eq!(
        (code(&untold), code(&foreign)),
        (Some("overloaded"), Some("overloaded"))
    );
    assert!(
        [first, second, late]
            .iter()
            .all(|played| played.text() == text(3))
    );
    assert_eq!(router.script.begun(), 3);
    let catalog = view.load();
    assert!(catalog.model("m").is_some() && catalog.model("other").is_none());
    let known = |id| catalog.endpoint(&EndpointId::from(id)).is_some();
    assert!(known("e1") && known("e2") && !known("e3"));
    assert_eq!(catalog.revision, 6);
    assert_eq!(
        catalog
            .model_of(&schemas::catalog::operators(), "m")
            .map(|model| &model.id),
        Some(&ModelName::from("m"))
    );
}
