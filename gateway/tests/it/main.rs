//! The whole gateway over real sockets, the embedded bus and a scripted router: what callers see, and what the spool
//! holds afterwards.

#![expect(clippy::expect_used, reason = "a test suite")]

mod answers;
mod bent;
mod catalog;
mod credentials;
mod ends;
mod http2;
mod idempotency;
mod import;
mod isolation;
mod leaving;
mod lists;
mod manage;
mod matrix;
mod minting;
mod records;
mod refusals;
mod responses;
mod rights;
mod rotation;
mod scene;
mod script;
mod served;
mod settings;
mod sign_in;
mod surfaces;
