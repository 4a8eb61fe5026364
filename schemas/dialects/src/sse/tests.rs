//! The framer over recorded streams, all line endings, and every way to cut them.

use proptest::prelude::*;

use super::*;

const CAP: usize = 1 << 20;

const RECORDED: [&[u8]; 6] = [
    include_bytes!("../../tests/transcripts/llama.cpp/chat_stream_usage.sse"),
    include_bytes!("../../tests/transcripts/llama.cpp/chat_stream_nousage.sse"),
    include_bytes!("../../tests/transcripts/llama.cpp/chat_tool_stream.sse"),
    include_bytes!("../../tests/transcripts/vllm/chat_stream_usage.sse"),
    include_bytes!("../../tests/transcripts/vllm/chat_stream_continuous_usage.sse"),
    include_bytes!("../../tests/transcripts/vllm/chat_tool_required_stream.sse"),
];

/// A stream with everything a stream can have.
const ODD: &str = "\u{FEFF}: opening comment\n\nevent: note\ndata: first\ndata:second\ndata\nid: 7\nretry: 10\n\n\n\
    unknown: field\n\ndata:  two spaces é 漢 🙂\n\n: keepalive\n\nevent:end\ndata: {\"a\":\"b\"}";

fn frame(pieces: impl IntoIterator<Item = Bytes>, cap: usize) -> Result<Vec<Event>, Error> {
    let mut framer = Framer::new(cap);
    let mut events = Vec::new();
    for piece in pieces {
        framer.push(piece);
        while let Some(event) = framer.next()? {
            events.push(event);
        }
    }
    while let Some(event) = framer.finish()? {
        events.push(event);
    }
    Ok(events)
}

fn whole(stream: &Bytes) -> Vec<Event> {
    frame([stream.clone()], CAP).expect("below the cap")
}

fn one_byte_each(stream: &Bytes) -> Vec<Event> {
    frame((0..stream.len()).map(|at| stream.slice(at..=at)), CAP).expect("below the cap")
}

fn raw_of(events: &[Event]) -> Vec<u8> {
    events
        .iter()
        .flat_map(|event| event.raw.iter().copied())
        .collect()
}

fn data_of(events: &[Event]) -> Vec<String> {
    let data = events.iter().filter(|event| event.kind == Kind::Data);
    data.map(|event| String::from_utf8(event.data.to_vec()).expect("UTF-8"))
        .collect()
}

/// The stream with other line endings, and perhaps a byte order mark.
fn variants(stream: &[u8]) -> Vec<Bytes> {
    let text = std::str::from_utf8(stream).expect("UTF-8");
    let mut variants = Vec::new();
    for ending in ["\n", "\r\n", "\r"] {
        let text = text.replace('\n', ending);
        variants.push(Bytes::from(format!("\u{FEFF}{text}")));
        variants.push(Bytes::from(text));
    }
    variants
}

#[test]
fn a_recorded_stream_is_read_event_by_event() {
    let stream = Bytes::from_static(RECORDED[3]);

    let events = whole(&stream);

    assert_eq!(events.len(), 5);
    assert!(
        events
            .iter()
            .all(|event| event.kind == Kind::Data && event.name.is_none())
    );
    assert!(events[0].data.starts_with(br#"{"id":"chatcmpl-"#));
    assert_eq!(events[4].data, b"[DONE]".as_slice());
    assert_eq!(events[4].raw, b"data: [DONE]\n\n".as_slice());
}

#[test]
fn an_event_within_one_piece_is_a_slice_of_it() {
    let stream = Bytes::from_static(b"data: a\n\n");

    let events = whole(&stream);

    assert_eq!(events[0].raw.as_ptr(), stream.as_ptr());
    assert_eq!(events[0].data.as_ptr().addr(), stream.as_ptr().addr() + 6);
    assert_eq!(events[0].data_start, Some(6));
}

#[test]
fn recorded_streams_give_the_same_events_cut_at_any_byte() {
    for stream in RECORDED
        .iter()
        .flat_map(|stream| variants(&stream[..stream.len().min(1_300)]))
    {
        let expected = whole(&stream);
        for at in 0..=stream.len() {
            let cut = frame([stream.slice(..at), stream.slice(at..)], CAP);
            assert_eq!(cut.as_ref(), Ok(&expected), "cut at {at}");
        }
    }
}

#[test]
fn recorded_streams_give_the_same_events_byte_by_byte() {
    for stream in RECORDED.iter().flat_map(|stream| variants(stream)) {
        let expected = whole(&stream);

        assert_eq!(one_byte_each(&stream), expected);
        assert_eq!(raw_of(&expected), stream);
    }
}

#[test]
fn line_endings_and_byte_order_mark_make_no_difference_to_the_data() {
    for stream in RECORDED {
        let expected = data_of(&whole(&Bytes::from_static(stream)));
        for variant in variants(stream) {
            assert_eq!(data_of(&whole(&variant)), expected);
        }
    }
}

#[test]
fn fields_comments_and_blank_lines_are_told_apart() {
    let stream = Bytes::from_static(ODD.as_bytes());

    let events = whole(&stream);

    let data = ["first\nsecond\n", " two spaces é 漢 🙂", "{\"a\":\"b\"}"];
    assert_eq!(data_of(&events), data);
    let named: Vec<_> = events.iter().filter_map(|event| event.name.clone()).collect();
    assert_eq!(named, ["note", "end"]);
    let comments: Vec<_> = events.iter().map(Event::is_comment).collect();
    assert_eq!(comments, [true, false, true, true, false, true, false]);
    assert_eq!(raw_of(&events), ODD.as_bytes());
}

#[test]
fn an_odd_stream_gives_the_same_events_cut_at_any_two_bytes() {
    for stream in variants(&ODD.as_bytes()["\u{FEFF}".len()..]) {
        let expected = whole(&stream);
        for first in 0..=stream.len() {
            for second in (first..=stream.len()).step_by(7) {
                let pieces = [
                    stream.slice(..first),
                    stream.slice(first..second),
                    stream.slice(second..),
                ];
                assert_eq!(
                    frame(pieces, CAP).as_ref(),
                    Ok(&expected),
                    "cut at {first} and {second}"
                );
            }
        }
    }
}

#[test]
fn an_event_is_delivered_with_its_last_byte() {
    for stream in ["data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", ": c\n\n", "\n"] {
        let mut framer = Framer::new(CAP);
        let last = stream.len() - 1;
        framer.push(Bytes::from_static(&stream.as_bytes()[..last]));
        assert_eq!(framer.next(), Ok(None), "{stream:?}");

        framer.push(Bytes::from_static(&stream.as_bytes()[last..]));

        let event = framer.next().expect("below the cap").expect("an event");
        assert_eq!(event.raw, stream.as_bytes());
        assert_eq!(framer.next(), Ok(None));
        assert_eq!(framer.finish(), Ok(None));
    }
}

#[test]
fn a_carriage_return_at_the_end_of_a_piece_waits_for_its_line_feed() {
    let mut framer = Framer::new(CAP);
    framer.push(Bytes::from_static(b"data: a\r\n\r"));
    assert_eq!(framer.next(), Ok(None));

    framer.push(Bytes::from_static(b"\ndata: b\r\n\r\n"));

    let first = framer.next().expect("below the cap").expect("an event");
    let second = framer.next().expect("below the cap").expect("an event");
    assert_eq!(
        (&first.raw[..], &first.data[..]),
        (&b"data: a\r\n\r\n"[..], &b"a"[..])
    );
    assert_eq!(
        (&second.raw[..], &second.data[..]),
        (&b"data: b\r\n\r\n"[..], &b"b"[..])
    );
}

#[test]
fn the_last_event_needs_no_blank_line() {
    for (stream, data) in [
        ("data: a", "a"),
        ("data: a\n", "a"),
        ("data: a\r\n\r", "a"),
        ("data: a\r", "a"),
    ] {
        let events = whole(&Bytes::from_static(stream.as_bytes()));

        assert_eq!(data_of(&events), [data], "{stream:?}");
        assert_eq!(raw_of(&events), stream.as_bytes());
    }
    assert_eq!(whole(&Bytes::new()), []);
}

#[test]
fn an_event_of_exactly_the_cap_passes_and_one_byte_more_does_not() {
    let stream = Bytes::from_static(b"data: abc\n\ndata: abcd\n\n");
    for at in 0..stream.len() {
        let pieces = || [stream.slice(..at), stream.slice(at..)];
        assert_eq!(frame(pieces(), 12).map(|events| events.len()), Ok(2));

        let refused = frame(pieces(), 11);

        assert_eq!(
            refused,
            Err(Error::EventTooLong { event_bytes_max: 11 }),
            "cut at {at}"
        );
    }
}

#[test]
fn an_endless_line_is_refused_without_being_kept() {
    let piece = Bytes::from(vec![b'x'; 1_000]);
    let mut framer = Framer::new(10_000);
    let mut pushed = 0;

    let error = loop {
        framer.push(piece.clone());
        pushed += piece.len();
        match framer.next() {
            Ok(None) => assert!(framer.held.capacity() <= 10_000, "{}", framer.held.capacity()),
            Ok(Some(event)) => panic!("no event can be complete: {event:?}"),
            Err(error) => break error,
        }
    };

    assert_eq!(
        (pushed, error),
        (
            11_000,
            Error::EventTooLong {
                event_bytes_max: 10_000
            }
        )
    );
    assert_eq!(framer.held.capacity(), 0);
    framer.push(Bytes::from_static(b"\n\ndata: a\n\n"));
    assert_eq!(framer.next(), Err(error));
    assert_eq!(framer.finish(), Err(error));
}

#[test]
fn a_long_event_may_come_byte_by_byte() {
    let stream = Bytes::from(format!("data: {}\n\n", "x".repeat(300_000)));

    let events = one_byte_each(&stream);

    assert_eq!(events.len(), 1);
    assert_eq!(events[0].data.len(), 300_000);
}

#[test]
fn pieces_may_be_pushed_before_events_are_taken() {
    let mut framer = Framer::new(CAP);
    for piece in ["da", "ta: a\n", "\ndata", ": b\n\n"] {
        framer.push(Bytes::from_static(piece.as_bytes()));
    }

    let mut data = Vec::new();
    while let Some(event) = framer.next().expect("below the cap") {
        data.push(event.data);
    }

    assert_eq!(data, ["a", "b"]);
}

/// A second, slower reading of the format: whole lines at once. Only events with data.
fn plain_reading(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(BYTE_ORDER_MARK).unwrap_or(stream);
    let text: String = stream.iter().map(|&byte| char::from(byte)).collect();
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut events = Vec::new();
    let mut data: Option<String> = None;
    for line in text.split('\n').chain([""]) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if line.is_empty() {
            events.extend(data.take());
        } else if name == "data" {
            let value = value.strip_prefix(' ').unwrap_or(value);
            data = Some(data.map_or_else(|| value.to_owned(), |lines| format!("{lines}\n{value}")));
        }
    }
    let bytes = |event: String| {
        event
            .chars()
            .map(|letter| u8::try_from(letter).expect("one byte"))
            .collect()
    };
    events.into_iter().map(bytes).collect()
}

fn streams() -> impl Strategy<Value = Vec<u8>> {
    let parts: Vec<&'static [u8]> = vec![
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"data",
        b":",
        b" ",
        b"data: x",
        b"event",
        b"id: 1",
        b": note",
        b"\xEF",
        b"\xBB\xBF",
        b"\xF0\x9F",
        b"y",
    ];
    let part = proptest::sample::select(parts).prop_map(<[u8]>::to_vec);
    (any::<bool>(), proptest::collection::vec(part, 0..40)).prop_map(|(marked, parts)| {
        let mark: &[u8] = if marked { BYTE_ORDER_MARK } else { b"" };
        [mark, &parts.concat()].concat()
    })
}

fn pieces(stream: &Bytes, cuts: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    places.extend([0, stream.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|pair| stream.slice(pair[0]..pair[1]))
        .collect()
}

proptest! {
    #[test]
    fn any_stream_gives_the_same_events_however_it_is_cut(
        stream in streams(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        cap in prop_oneof![Just(CAP), 1_usize..40],
    ) {
        let stream = Bytes::from(stream);
        let expected = frame([stream.clone()], cap);

        prop_assert_eq!(frame(pieces(&stream, &cuts), cap), expected.clone());
        prop_assert_eq!(frame((0..stream.len()).map(|at| stream.slice(at..=at)), cap), expected.clone());
        if let Ok(events) = expected {
            prop_assert_eq!(raw_of(&events), stream);
        }
    }

    #[test]
    fn any_stream_gives_the_data_that_a_plain_reading_gives(stream in streams()) {
        let events = whole(&Bytes::from(stream.clone()));

        let data: Vec<Vec<u8>> =
            events.iter().filter(|event| event.kind == Kind::Data).map(|event| event.data.to_vec()).collect();
        prop_assert_eq!(data, plain_reading(&stream));
    }

    #[test]
    fn arbitrary_bytes_are_framed_without_loss(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let stream = Bytes::from(bytes);

        let events = one_byte_each(&stream);

        prop_assert_eq!(&events, &whole(&stream));
        prop_assert_eq!(raw_of(&events), stream);
    }
}
