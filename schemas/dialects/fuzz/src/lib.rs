//! What the fuzz targets run: the bodies of tests, which also run there on examples of their own.
#![expect(
    clippy::expect_used,
    dead_code,
    reason = "the tests, of which each target uses a part"
)]

#[path = "../../tests/pairs/dice.rs"]
mod dice;
#[path = "../../tests/pairs/gemini_reader.rs"]
mod gemini_reader;
#[path = "../../tests/pairs/hostile.rs"]
mod hostile;
#[path = "../../tests/pairs/plan.rs"]
mod plan;
#[path = "../../tests/pairs/requests.rs"]
mod requests;
#[path = "../../tests/pairs/speakers.rs"]
mod speakers;
#[path = "../../tests/pairs/streams.rs"]
mod streams;
#[path = "../../tests/pairs/grammar"]
mod grammar {
    //! Checkers of what callers are sent, one per dialect.
    pub(crate) mod chat;
    pub(crate) mod completions;
    mod item;
    pub(crate) mod messages;
    pub(crate) mod reading;
    pub(crate) mod responses;
    pub(crate) mod whole;
}
#[path = "../../tests/pairs/upstream"]
mod upstream {
    //! How upstreams write what they mean to say.
    mod chat;
    mod gemini;
    mod messages;
    mod responses;
    pub(crate) mod whole;
    pub(crate) mod written;
}

/// Any bytes as a request of every dialect, written for every upstream.
pub fn request(bytes: &[u8]) {
    hostile::request(bytes);
}

/// Any bytes as a whole answer of every dialect, written for every caller.
pub fn answer(bytes: &[u8]) {
    hostile::answer(bytes);
}

/// Any bytes as a stream of every dialect, written for every caller.
pub fn stream(bytes: &[u8]) {
    hostile::stream(bytes);
}

/// Any bytes as the choices of an answer, of two dialects, and of a way to cut the stream between them.
pub fn pair(bytes: &[u8]) {
    hostile::pair(bytes);
}
