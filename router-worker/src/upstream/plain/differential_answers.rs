//! Answers made of lawful and unlawful parts, and which of them this client takes more strictly than hyper.

use proptest::prelude::*;

/// An answer as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) bytes: Vec<u8>,
    /// Where it is cut.
    pub(super) cuts: Vec<usize>,
    /// The upstream closes behind it.
    pub(super) closes: bool,
}

/// How this client is stricter with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strict {
    No,
    /// It may not use the connection again.
    Closes,
    /// It may refuse it.
    Refuses,
}

type Part = (Vec<u8>, Strict);

fn part(text: &[u8]) -> Part {
    (text.to_vec(), Strict::No)
}

/// One of `lawful`, more often than one of the others.
fn mostly(
    lawful: &'static [&'static [u8]],
    others: &'static [(&'static [u8], Strict)],
) -> BoxedStrategy<Part> {
    let lawful = proptest::sample::select(lawful).prop_map(part);
    let others = proptest::sample::select(others).prop_map(|(text, strict)| (text.to_vec(), strict));
    prop_oneof![4 => lawful, 1 => others].boxed()
}

fn status_line() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 404 \xff odd",
            b"HTTP/1.1 200",
            b"HTTP/1.1 999 ",
        ],
        &[
            (b"HTTP/1.0 200 OK", Strict::Closes),
            (b"HTTP/1.1 204 Empty", Strict::Refuses),
            (b"HTTP/1.1 304 Same", Strict::Refuses),
            (b"HTTP/1.1 101 Up", Strict::Refuses),
            (b"\r\n\nHTTP/1.1 200 OK", Strict::No),
            (b"HTTP/2 200 OK", Strict::No),
            (b"http/1.1 200 OK", Strict::No),
            (b"HTTP/1.1 20 OK", Strict::No),
            (b"HTTP/1.1 2000 OK", Strict::No),
            (b"HTTP/1.1  200 OK", Strict::No),
            (b"HTTP/1.1 +20 OK", Strict::No),
            (b"HTTP/1.1 000 OK", Strict::No),
            (b"HTTP/1.1 200 a\rb", Strict::No),
            (b"HTTP/1.1 200 a\0b", Strict::No),
            (b"ICY 200 OK", Strict::No),
            (b"SSH-2.0", Strict::No),
        ],
    )
}

fn interim() -> BoxedStrategy<Part> {
    mostly(
        &[b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"],
        &[
            (
                b"HTTP/1.1 103 Hints\r\nx: y\r\n\r\nHTTP/1.1 199 x\r\n\r\n",
                Strict::No,
            ),
            (
                b"HTTP/1.1 102 x\r\ncontent-length: 5\r\nconnection: close\r\n\r\n",
                Strict::No,
            ),
            (
                b"HTTP/1.0 100 x\r\ntransfer-encoding: chunked\r\n\r\n",
                Strict::No,
            ),
        ],
    )
}

fn header_line() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"content-type: text/x",
            b"Content-Type:a\tb ",
            b"retry-after:  7",
            b"RETRY-AFTER: \xff",
            b"x:",
            b"content-encoding: gzip",
            b"connection: keep-alive",
            b"Connection:close",
            b"connection: x,\tCLOSE ,y",
            b"connection: closed",
            b"connection: \"close\"",
        ],
        &[
            (b"x y: z", Strict::No),
            (b"x : z", Strict::No),
            (b" folded", Strict::No),
            (b"\tx: folded", Strict::No),
            (b": nothing", Strict::No),
            (b"no colon", Strict::No),
            (b"x: a\0b", Strict::No),
            (b"x: a\rb", Strict::No),
            (b"retry-after: \x7f", Strict::No),
            (b"x\xff: y", Strict::No),
        ],
    )
}

/// Lines that frame a body of five bytes.
fn with_length() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"content-length: 5\r\n",
            b"Content-Length:5 \r\n",
            b"content-length: 005\r\n",
            b"content-length: 5, 5\r\n",
            b"content-length: 5\r\ncontent-length: 5\r\n",
        ],
        &[
            (b"", Strict::No),
            (b"content-length: 3\r\n", Strict::No),
            (b"content-length: 6\r\n", Strict::No),
            (b"content-length: 0\r\n", Strict::No),
            (b"content-length: 5\r\ncontent-length: 6\r\n", Strict::No),
            (b"content-length: 5, 6\r\n", Strict::No),
            (b"content-length: 5,\r\n", Strict::No),
            (b"content-length: +5\r\n", Strict::No),
            (b"content-length: -5\r\n", Strict::No),
            (b"content-length: 0x5\r\n", Strict::No),
            (b"content-length: 5 5\r\n", Strict::No),
            (b"content-length: 5\xff\r\n", Strict::No),
            (b"content-length:\r\n", Strict::No),
            (b"content-length: 9223372036854775807\r\n", Strict::No),
            (b"content-length: 99999999999999999999\r\n", Strict::No),
        ],
    )
}

/// Lines that frame chunks.
fn with_chunks() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"transfer-encoding: chunked\r\n",
            b"Transfer-Encoding:\tChunKed \r\n",
        ],
        &[
            (
                b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                Strict::Closes,
            ),
            (
                b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
                Strict::Closes,
            ),
            (
                b"content-length: x\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (b"transfer-encoding: gzip, chunked\r\n", Strict::Refuses),
            (b"transfer-encoding: chunked, gzip\r\n", Strict::Refuses),
            (
                b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (
                b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n",
                Strict::Refuses,
            ),
            (
                b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
                Strict::Refuses,
            ),
            (b"transfer-encoding: chunked,\r\n", Strict::Refuses),
            (b"transfer-encoding: xchunked\r\n", Strict::Refuses),
            (b"transfer-encoding: identity\r\n", Strict::Refuses),
            (b"transfer-encoding:\r\n", Strict::Refuses),
            (b"transfer-encoding: \xffchunked\r\n", Strict::Refuses),
        ],
    )
}

fn chunk() -> BoxedStrategy<Part> {
    mostly(
        &[
            b"3\r\nabc\r\n",
            b"00A\r\n0123456789\r\n",
            b"a;x=y\r\n0123456789\r\n",
            b"1 ;x=\"y\" \r\n!\r\n",
            b"2\t\r\n\r\n\r\n",
        ],
        &[
            (b"3\nabc\r\n", Strict::No),
            (b"3\r\nabc\n", Strict::No),
            (b"3\r\nabcd\r\n", Strict::No),
            (b"3\r\nab\r\n", Strict::No),
            (b"3\r;x\r\nabc\r\n", Strict::No),
            (b"3\r\r\nabc\r\n", Strict::No),
            (b"3\x0c\r\nabc\r\n", Strict::No),
            (b"3;a\rb\r\nabc\r\n", Strict::No),
            (b"3;a\nb\r\nabc\r\n", Strict::No),
            (b"3 3\r\nabc\r\n", Strict::No),
            (b"+3\r\nabc\r\n", Strict::No),
            (b"0x3\r\nabc\r\n", Strict::No),
            (b" 3\r\nabc\r\n", Strict::No),
            (b"\r\nabc\r\n", Strict::No),
            (b"FFFFFFFFFFFFFFFF\r\nabc\r\n", Strict::No),
            (b"10000000000000003\r\nabc\r\n", Strict::No),
        ],
    )
}

fn last_chunk() -> BoxedStrategy<Part> {
    mostly(
        &[b"0\r\n\r\n", b"000;x\r\n\r\n", b"0\r\nx: y\r\nz:\r\n\r\n"],
        &[
            (b"", Strict::No),
            (b"0\r\n", Strict::No),
            (b"0\r\nx: y\r\n", Strict::No),
            (b"0\n\n", Strict::No),
            (b"0\r\n\n", Strict::Refuses),
            (b"0\r\nx: y\n\r\n", Strict::Refuses),
            (b"0\r\nx: a\rb\r\n\r\n", Strict::No),
            (b"0\r\nx y: z\r\n\r\n", Strict::No),
            (b"0\r\n folded\r\n\r\n", Strict::No),
            (b"0\r\nno colon\r\n\r\n", Strict::No),
            (b"0\r\nx: a\0b\r\n\r\n", Strict::No),
        ],
    )
}

fn framed() -> BoxedStrategy<Vec<Part>> {
    let length = (
        with_length(),
        prop_oneof![4 => Just(&b"12345"[..]), 1 => Just(&b"1"[..])],
    )
        .prop_map(|(lines, body)| vec![lines, part(b"\r\n"), part(body)]);
    let chunks = (
        with_chunks(),
        proptest::collection::vec(chunk(), 0..4),
        last_chunk(),
    )
        .prop_map(|(lines, chunks, last)| {
            let mut parts = vec![lines, part(b"\r\n")];
            parts.extend(chunks);
            parts.push(last);
            parts
        });
    prop_oneof![length, chunks].boxed()
}

/// Answers of all kinds, lawful ones more often.
pub(super) fn answer() -> BoxedStrategy<(Script, Strict)> {
    let line_end = prop_oneof![9 => Just(&b"\r\n"[..]), 1 => Just(&b"\n"[..])];
    let lines = proptest::collection::vec((header_line(), line_end.clone()), 0..3);
    let rest = prop_oneof![
        6 => Just(&b""[..]),
        1 => Just(&b"x"[..]),
        1 => Just(&b"\r\n"[..]),
        1 => Just(&b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..]),
    ];
    let cuts = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(0..400_usize, 1..8),
        Just((0..400).collect()),
    ];
    let all = (
        interim(),
        (status_line(), line_end),
        lines,
        framed(),
        rest,
        cuts,
        any::<bool>(),
    );
    all.prop_map(
        |(interim, (status, end), lines, framed, rest, mut cuts, closes)| {
            let mut parts = vec![interim, status, part(end)];
            for (line, end) in lines {
                parts.extend([line, part(end)]);
            }
            parts.extend(framed);
            parts.push(part(rest));
            let strict = parts.iter().map(|part| part.1).max().unwrap_or(Strict::No);
            let bytes: Vec<u8> = parts.into_iter().flat_map(|part| part.0).collect();
            cuts.retain(|cut| *cut < bytes.len());
            cuts.sort_unstable();
            (Script { bytes, cuts, closes }, strict)
        },
    )
    .boxed()
}
