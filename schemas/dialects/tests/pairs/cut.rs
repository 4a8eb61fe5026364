//! Streams as servers sent them (Gemini's as it is documented), with every line end, a byte order mark, comments, and
//! without the space after the colon, cut at every byte and into single bytes: whoever the caller is, he is sent the
//! same to the byte.

use bytes::Bytes;
use dialects::dialect::Dialect;
use dialects::sse;

use crate::grammar::reading::{Reading, Stop};
use crate::speakers::CALLERS;
use crate::streams::{check, translate};

/// What a server sent, and in which dialect.
type Transcript = (Dialect, &'static [u8]);

macro_rules! transcript {
    ($dialect:ident, $path:literal) => {
        (
            Dialect::$dialect,
            include_bytes!(concat!("../transcripts/", $path)).as_slice(),
        )
    };
}

const CHAT: [Transcript; 5] = [
    transcript!(Chat, "vllm/chat_stream_usage.sse"),
    transcript!(Chat, "vllm/chat_stream_continuous_usage.sse"),
    transcript!(Chat, "llama.cpp/chat_stream_usage.sse"),
    transcript!(Chat, "llama.cpp/chat_stream_nousage.sse"),
    transcript!(Chat, "llama.cpp/chat_tool_stream.sse"),
];
const MESSAGES: [Transcript; 3] = [
    transcript!(Messages, "vllm/messages_stream.sse"),
    transcript!(Messages, "llama.cpp/messages_stream.sse"),
    transcript!(Messages, "llama.cpp/messages_tool_stream.sse"),
];
const RESPONSES: [Transcript; 3] = [
    transcript!(Responses, "llama.cpp/responses_stream.sse"),
    transcript!(Responses, "vllm/responses_stream.sse"),
    transcript!(Responses, "llama.cpp/responses_tool_stream.sse"),
];
const GEMINI: [Transcript; 2] = [
    transcript!(Gemini, "gemini/thoughts_and_text.sse"),
    transcript!(Gemini, "gemini/parallel_calls.sse"),
];

/// The forms that are cut in two at every byte: either line end, and the second with all else that may stand between
/// events. The others come in single bytes.
const CUT_FORMS: [usize; 3] = [0, 1, 5];

/// The longest transcript that is translated anew for every cut; of longer ones the events are compared, which are all
/// that a translation sees.
const TRANSLATED_BYTES_MAX: usize = 1600;

/// The same stream in all the forms that the standard allows.
fn variants(stream: &[u8]) -> Vec<Vec<u8>> {
    let text = std::str::from_utf8(stream).expect("UTF-8");
    let commented = text
        .replace("\n\n", "\n\n: waiting\n\n")
        .replace("data:", ":\nid: 7\nretry: 9\ndata:");
    let forms = [
        text.to_owned(),
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        text.replace("data: ", "data:").replace("event: ", "event:"),
        format!("\u{feff}{commented}"),
        format!("\u{feff}{}", commented.replace('\n', "\r\n")),
        // The blank line after the last event is missing.
        text.trim_end_matches('\n').to_owned() + "\n",
    ];
    forms.into_iter().map(String::into_bytes).collect()
}

fn framed(pieces: &[&[u8]]) -> Vec<(Option<Bytes>, Bytes)> {
    let mut framer = sse::Framer::new(1 << 20);
    let mut events = Vec::new();
    let mut take = |event: sse::Event| {
        if !event.is_comment() {
            events.push((event.name, event.data));
        }
    };
    for piece in pieces {
        framer.push(Bytes::copy_from_slice(piece));
        while let Some(event) = framer.next().expect("a short event") {
            take(event);
        }
    }
    while let Some(event) = framer.finish().expect("a short event") {
        take(event);
    }
    events
}

fn sent(upstream: Dialect, caller: Dialect, pieces: &[&[u8]]) -> Vec<u8> {
    let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece));
    let (sent, over) = translate(upstream, caller, pieces);
    assert_eq!(over, Ok(()), "{upstream:?} -> {caller:?}");
    sent
}

fn cut_everywhere(transcripts: &[Transcript]) {
    for (upstream, stream) in transcripts {
        let events = framed(&[stream]);
        let callers: Vec<(Dialect, Vec<u8>)> = CALLERS
            .iter()
            .map(|caller| (*caller, sent(*upstream, *caller, &[stream])))
            .collect();
        for (form, variant) in variants(stream).iter().enumerate() {
            let single: Vec<&[u8]> = variant.chunks(1).collect();
            assert_eq!(framed(&single), events, "form {form}");
            for (caller, expected) in &callers {
                assert_eq!(&sent(*upstream, *caller, &single), expected, "form {form}");
                assert_eq!(&sent(*upstream, *caller, &[variant]), expected, "form {form}");
            }
            for at in 0..=variant.len() {
                let (head, tail) = variant.split_at(at);
                if !CUT_FORMS.contains(&form) {
                    continue;
                }
                if variant.len() > TRANSLATED_BYTES_MAX {
                    assert_eq!(framed(&[head, tail]), events, "form {form} cut at {at}");
                    continue;
                }
                let (caller, expected) = &callers[at % callers.len()];
                let sent = sent(*upstream, *caller, &[head, tail]);
                assert_eq!(&sent, expected, "{caller:?}, form {form} cut at {at}");
            }
        }
    }
}

/// What every caller reads of a transcript; calls only where a dialect has them.
fn read(transcript: &Transcript) -> Vec<Reading> {
    let readings = CALLERS.iter().map(|caller| {
        let sent = sent(transcript.0, *caller, &[transcript.1]);
        check(*caller, &sent)
            .unwrap_or_else(|wrong| panic!("{caller:?}: {wrong}\n{}", String::from_utf8_lossy(&sent)))
    });
    readings.collect()
}

#[test]
fn chat_is_heard_the_same_however_it_is_cut() {
    cut_everywhere(&CHAT);
}

#[test]
fn messages_are_heard_the_same_however_they_are_cut() {
    cut_everywhere(&MESSAGES);
}

#[test]
fn responses_are_heard_the_same_however_they_are_cut() {
    cut_everywhere(&RESPONSES);
}

#[test]
fn gemini_is_heard_the_same_however_it_is_cut() {
    cut_everywhere(&GEMINI);
}

#[test]
fn every_caller_reads_the_same_text_of_what_servers_sent() {
    let texts = [
        (&CHAT[2], "Say hi.<|im_"),
        (&MESSAGES[0], " Correspondingformationitions"),
        (&RESPONSES[0], "Say hi.<|im"),
        (&RESPONSES[1], " showging lib"),
        (&GEMINI[0], "Two of them 🦀."),
    ];
    for (transcript, text) in texts {
        for reading in read(transcript) {
            assert_eq!(reading.text, text);
        }
    }
    for (transcript, stop) in [
        (&MESSAGES[0], Stop::Length),
        (&RESPONSES[1], Stop::Length),
        (&GEMINI[0], Stop::End),
    ] {
        assert!(read(transcript).iter().all(|reading| reading.stop == Some(stop)));
    }
}

#[test]
fn calls_that_servers_sent_are_read_whole_by_every_caller_that_has_calls() {
    let calls = [
        (&CHAT[4], "{\"city\": \"Paris\"}"),
        (&MESSAGES[2], "{\"city\": \"Paris\"}"),
        (&RESPONSES[2], "{\"city\": \"Paris\"}"),
        (&GEMINI[1], "{\"city\": \"Oslo\"}"),
    ];
    for (transcript, arguments) in calls {
        let readings = read(transcript);
        let with_calls = readings.iter().filter(|reading| !reading.calls.is_empty());
        let with_calls: Vec<&Reading> = with_calls.collect();
        assert_eq!(with_calls.len(), CALLERS.len() - 1);
        for reading in with_calls {
            assert_eq!(reading.calls[0].name, "get_weather");
            assert_eq!(reading.calls[0].arguments, arguments);
            assert_eq!(reading.stop, Some(Stop::Calls));
        }
    }
}
