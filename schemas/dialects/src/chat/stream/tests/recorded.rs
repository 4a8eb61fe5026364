//! Streams that engines really sent, with every line ending, cut everywhere.

use bytes::Bytes;

use super::*;

const RECORDED: [&[u8]; 6] = [
    include_bytes!("../../../../tests/transcripts/llama.cpp/chat_stream_usage.sse"),
    include_bytes!("../../../../tests/transcripts/llama.cpp/chat_stream_nousage.sse"),
    include_bytes!("../../../../tests/transcripts/llama.cpp/chat_tool_stream.sse"),
    include_bytes!("../../../../tests/transcripts/vllm/chat_stream_usage.sse"),
    include_bytes!("../../../../tests/transcripts/vllm/chat_stream_continuous_usage.sse"),
    include_bytes!("../../../../tests/transcripts/vllm/chat_tool_required_stream.sse"),
];

fn variants(stream: &[u8]) -> [Vec<u8>; 3] {
    let text = std::str::from_utf8(stream).expect("UTF-8");
    [
        text.to_owned().into_bytes(),
        text.replace('\n', "\r\n").into_bytes(),
        format!("\u{FEFF}{}", text.replace("\n\n", "\n\n: waiting\n\n")).into_bytes(),
    ]
}

#[test]
fn what_engines_say_is_heard_whole() {
    let texts: Vec<(String, Option<(u64, u64)>)> = RECORDED
        .iter()
        .take(5)
        .map(|stream| {
            let heard = decoded(&framed(&[stream]));
            assert_eq!(heard.broken, None);
            assert!(heard.ended);
            assert_eq!(heard.said.first(), Some(&Said::Begin));
            let calls = heard.said.iter().any(|said| matches!(said, Said::Call(..)));
            let finish = if calls { Finish::ToolCalls } else { Finish::Length };
            assert_eq!(heard.said.last(), Some(&Said::Finish(finish, None)));
            let text = heard.said.iter().find_map(|said| match said {
                Said::Text(text) => Some(text.clone()),
                _ => None,
            });
            (text.expect("text"), heard.usage)
        })
        .collect();

    assert_eq!(texts[0], ("Say hi.<|im_".to_owned(), Some((26, 6))));
    assert!(
        texts
            .iter()
            .all(|(text, usage)| !text.is_empty() && usage.is_some())
    );
}

#[test]
fn arguments_that_are_no_object_are_not_given_on() {
    let heard = decoded(&framed(&[RECORDED[5]]));

    assert_eq!(heard.broken, Some(Broken::Malformed));
    assert!(
        heard
            .said
            .iter()
            .any(|said| matches!(said, Said::Call(0, _, name, _, false) if name == "get_weather"))
    );
    assert!(!heard.said.iter().any(|said| matches!(said, Said::Arguments(..))));
}

#[test]
fn however_a_stream_comes_the_same_is_heard() {
    for stream in RECORDED {
        let expected = decoded(&framed(&[stream]));
        for variant in variants(stream) {
            let whole = framed(&[&variant]);
            assert_eq!(decoded(&whole), expected);
            let data = |events: &[Framed]| -> Vec<Bytes> {
                let events = events.iter().filter(|event| !event.is_comment());
                events.map(|event| event.data.clone()).collect()
            };
            let expected = data(&whole);
            for at in 0..=variant.len() {
                let (head, tail) = variant.split_at(at);
                assert_eq!(data(&framed(&[head, tail])), expected, "cut at {at}");
            }
            let single: Vec<&[u8]> = variant.chunks(1).collect();
            assert_eq!(data(&framed(&single)), expected);
        }
    }
}

#[test]
fn a_stream_that_stops_early_is_never_whole() {
    for stream in &RECORDED[..5] {
        let marker = b"\"finish_reason\":\"";
        let end = stream
            .windows(marker.len())
            .position(|window| window == marker)
            .expect("an end");
        for at in 0..=end {
            let heard = decoded(&framed(&[&stream[..at]]));

            assert!(heard.broken.is_some(), "cut at {at}");
            assert!(
                !heard.said.iter().any(|said| matches!(said, Said::Finish(..))),
                "cut at {at}"
            );
        }
    }
}
