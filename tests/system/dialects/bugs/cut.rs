//! Events and characters cut by packet borders, on every surface and from every shape of upstream: wherever the bytes
//! are parted and however events are spelled, the caller puts together the same and pays the same. (Chat of an
//! upstream of chat, parted at every place, is in `framing`.)

use std::time::Duration;

use futures_util::future::join_all;
use harness::{Answer, Behaviour, Client, End, Scene, Surface, Told, Transcript};
use serde_json::{Value, json};

use super::super::shapes::{self, Shape, ask, pairs, stream};
use crate::rows::assert_billed;

/// Words with characters of one to four bytes.
const TEXT: &str = "漢字 é \u{1f642} ok";
const ARGUMENTS: &str = r#"{"城市":"北京 \"x\" 🏙","n":[1,2]}"#;
/// What 700 and 30 tokens cost.
const COST_NANO_USD: i64 = 1_640_000;
/// Calls at once.
const BATCH: usize = 64;
/// Of the places where bytes can be parted every so many are tried, where not all are.
const STRIDE: usize = 13;

/// Where the bytes of a pair are parted first, and how far the next place is. Each byte of a stream of each shape is
/// tried with at least one caller: of chat and Messages in tests of their own, of the others by callers who share the
/// places. That is enough, because bytes become events before anybody looks for whom they are: a place that breaks one
/// caller's stream breaks every caller's. What each pair makes of streams cut at every byte is tried in process, in the
/// dialects' own tests.
fn share((surface, shape): (Surface, Shape)) -> (usize, usize) {
    let has_own = matches!(shape, Shape::Chat | Shape::Messages);
    let place = Surface::RICH.iter().position(|rich| *rich == surface);
    match place {
        Some(place) if !has_own => (1 + place, Surface::RICH.len()),
        // Completions are told a part of what the others are told.
        _ => (1, STRIDE),
    }
}

/// The answer that is cut; completions know no calls.
fn recorded(surface: Surface) -> Behaviour {
    let text = Behaviour::chat(TEXT).usage(700, 30);
    if surface == Surface::Completions {
        text
    } else {
        text.tool_calls(&[("call_1", "weather", ARGUMENTS)])
    }
}

/// Panics unless this is what the recorded answer says.
fn assert_recorded(surface: Surface, told: &Told, case: &str) {
    assert_eq!(told.text, TEXT, "{case}");
    if surface == Surface::Completions {
        assert_eq!(told.finish, "stop", "{case}");
        return;
    }
    assert_eq!(
        (told.finish.as_str(), told.calls.len()),
        ("tool_calls", 1),
        "{case}"
    );
    let source: Value = serde_json::from_str(ARGUMENTS).expect("JSON");
    assert_eq!(
        (told.calls[0].name.as_str(), told.calls[0].input()),
        ("weather", source),
        "{case}"
    );
}

/// The same of a stream, which has one end mark and no character that was put in the place of a broken one.
fn assert_streamed(streamed: &Transcript, case: &str) {
    assert_eq!(
        streamed.status,
        200,
        "{case}: {}",
        String::from_utf8_lossy(&streamed.raw)
    );
    assert_eq!(
        streamed.end,
        End::Done,
        "{case}: {}",
        String::from_utf8_lossy(&streamed.raw)
    );
    let raw = std::str::from_utf8(&streamed.raw).expect("UTF-8");
    assert!(!raw.contains('\u{fffd}'), "{case}: {raw}");
    assert_recorded(streamed.surface, &streamed.told(), case);
}

/// The same of a plain answer.
fn assert_plain(surface: Surface, answer: &Answer, case: &str) {
    assert!(!answer.text().contains('\u{fffd}'), "{case}: {}", answer.text());
    assert_recorded(surface, &answer.told(surface), case);
}

/// Bytes of the recorded answer as it leaves the upstream for a caller of this surface.
async fn recorded_length(scene: &Scene, surface: Surface, shape: Shape, streams: bool) -> usize {
    let path = match (shape, surface, streams) {
        (Shape::Chat, Surface::Completions, _) => "/v1/completions",
        (Shape::Chat, _, _) => "/v1/chat/completions",
        (Shape::Messages, _, _) => "/v1/messages",
        (Shape::Gemini, _, true) => "/v1beta/models/gemini-3-pro:streamGenerateContent",
        (Shape::Gemini, _, false) => "/v1beta/models/gemini-3-pro:generateContent",
        (Shape::Responses, _, _) => "/v1/responses",
    };
    scene.o1.script([recorded(surface)]);
    let body = json!({"model": shape.model(), "stream": streams, "stream_options": {"include_usage": true}});
    let direct = Client::new(scene.o1.addr(), "nobody");
    let answer = direct.post_inference(path, body.to_string()).await;
    answer.expect("a whole answer").body.len()
}

/// Offsets at which the answer can be parted, from the first on and so far apart.
async fn offsets(
    scene: &Scene,
    pair: (Surface, Shape),
    streams: bool,
    (first, stride): (usize, usize),
) -> Vec<usize> {
    let length = recorded_length(scene, pair.0, pair.1, streams).await;
    (first..length).step_by(stride).collect()
}

/// Streams the recorded answer once for each of these offsets, parted there.
async fn part_streams(scene: &Scene, (surface, shape): (Surface, Shape), offsets: &[usize]) {
    for batch in offsets.chunks(BATCH) {
        scene
            .o1
            .script(batch.iter().map(|offset| recorded(surface).split_at(*offset)));
        let calls = batch.iter().map(|_| stream(scene, surface, shape.model()));
        let case = format!("{surface:?} of {shape:?}, parted from {} on", batch[0]);
        for streamed in join_all(calls).await {
            assert_streamed(&streamed, &case);
        }
    }
}

/// Waits for the rows of so many calls, and panics unless each has the one bill.
async fn assert_all_billed(scene: &Scene, calls: usize) {
    let rows = scene.node.wait_rows("", calls).await;
    assert_eq!(rows.len(), calls);
    for row in &rows {
        assert_billed(row, 700, 30, COST_NANO_USD);
    }
}

#[tokio::test]
async fn messages_of_an_upstream_of_chat_are_the_same_wherever_its_bytes_are_parted() {
    assert_same_at_every_offset(Surface::Messages, Shape::Chat).await;
}

#[tokio::test]
async fn chat_of_an_upstream_of_messages_is_the_same_wherever_its_bytes_are_parted() {
    assert_same_at_every_offset(Surface::Chat, Shape::Messages).await;
}

async fn assert_same_at_every_offset(surface: Surface, shape: Shape) {
    let scene = shapes::scene().await;
    let offsets = offsets(&scene, (surface, shape), true, (1, 1)).await;
    assert!(offsets.len() > 1_000, "{}", offsets.len());

    part_streams(&scene, (surface, shape), &offsets).await;

    assert_all_billed(&scene, offsets.len()).await;
    scene.finish().await;
}

#[tokio::test]
async fn streams_of_every_pair_are_the_same_where_their_bytes_are_parted() {
    let scene = shapes::scene().await;
    let mut calls = 0;
    for pair in pairs() {
        let offsets = offsets(&scene, pair, true, share(pair)).await;
        part_streams(&scene, pair, &offsets).await;
        calls += offsets.len();
    }
    assert_all_billed(&scene, calls).await;
    scene.finish().await;
}

#[tokio::test]
async fn plain_answers_of_every_pair_are_the_same_where_their_bytes_are_parted() {
    let scene = shapes::scene().await;
    let mut calls = 0;
    for (surface, shape) in pairs() {
        let offsets = offsets(&scene, (surface, shape), false, (1, STRIDE)).await;
        scene
            .o1
            .script(offsets.iter().map(|offset| recorded(surface).split_at(*offset)));
        let asked = offsets.iter().map(|_| ask(&scene, surface, shape.model()));
        for answer in join_all(asked).await {
            assert_plain(surface, &answer, &format!("{surface:?} of {shape:?}"));
        }
        calls += offsets.len();
    }
    assert_all_billed(&scene, calls).await;
    scene.finish().await;
}

#[tokio::test]
async fn one_byte_a_packet_makes_the_same_answers_for_every_pair() {
    let scene = shapes::scene().await;
    let scene_ref = &scene;
    let millisecond = Duration::from_millis(1);
    for surfaces in [Surface::RICH.as_slice(), &[Surface::Completions]] {
        let plainly = recorded(surfaces[0]);
        let spelled = plainly.clone().line_ending("\r").bom();
        let pairs: Vec<_> = pairs()
            .filter(|(surface, _)| surfaces.contains(surface))
            .collect();
        // In whichever order the calls come, half of them get the other spelling.
        scene.o1.script((0..2 * pairs.len()).map(|number| {
            let behaviour = if number % 2 == 0 { &plainly } else { &spelled };
            behaviour.clone().dribble(1, millisecond)
        }));
        let streams = pairs
            .iter()
            .map(|(surface, shape)| leniently(scene_ref, *surface, *shape));
        let plain = pairs
            .iter()
            .map(|(surface, shape)| async move { (*surface, ask(scene_ref, *surface, shape.model()).await) });
        let (streams, plain) = tokio::join!(join_all(streams), join_all(plain));
        for streamed in streams {
            assert_streamed(&streamed, &format!("{:?}", streamed.surface));
        }
        for (surface, answer) in plain {
            assert_plain(surface, &answer, &format!("{surface:?}"));
        }
    }
    assert_all_billed(&scene, 2 * pairs().count()).await;
    scene.finish().await;
}

#[tokio::test]
async fn every_spelling_of_events_makes_the_same_answer_for_every_pair() {
    let scene = shapes::scene().await;
    for (surface, shape) in pairs() {
        scene
            .o1
            .script((0..24).map(|number| spelled(number, recorded(surface))));
        let calls = (0..24).map(|_| leniently(&scene, surface, shape));
        for streamed in join_all(calls).await {
            assert_streamed(&streamed, &format!("{surface:?} of {shape:?}"));
        }
    }
    assert_all_billed(&scene, pairs().count() * 24).await;
    scene.finish().await;
}

/// A streamed call, read to its end in whichever spelling it comes.
async fn leniently(scene: &Scene, surface: Surface, shape: Shape) -> Transcript {
    let client = scene.client.lenient();
    let body = surface.ask_streamed(shape.model());
    client.stream(surface, &body).await.collect().await
}

/// One of 24 ways to write events: line ending, blank after the field name, data lines, byte order mark.
fn spelled(number: usize, behaviour: Behaviour) -> Behaviour {
    let mut behaviour = behaviour.line_ending(["\n", "\r\n", "\r"][number % 3]);
    if number / 3 % 2 == 1 {
        behaviour = behaviour.no_space_after_data();
    }
    if number / 6 % 2 == 1 {
        behaviour = behaviour.two_data_lines();
    }
    if number / 12 % 2 == 1 {
        behaviour = behaviour.bom();
    }
    behaviour
}
