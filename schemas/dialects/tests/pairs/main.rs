//! Every dialect against every other: what an upstream says comes to a caller whole and in order, whatever the two
//! speak, however it is cut into pieces. Streams are judged by checkers that know nothing of the code that writes them.
#![expect(clippy::expect_used, reason = "a test suite")]

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
mod answers;
mod asked;
mod callers;
mod cut;
mod dice;
mod faults;
mod gemini_reader;
mod hostile;
mod passages;
mod plan;
mod planted;
mod readers;
mod requests;
mod speakers;
mod streams;
mod upstream {
    //! How upstreams write what they mean to say.
    mod chat;
    mod gemini;
    mod messages;
    mod responses;
    pub(crate) mod whole;
    pub(crate) mod written;
}
