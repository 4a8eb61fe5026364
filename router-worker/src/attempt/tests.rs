//! Attempts over real sockets: what the caller gets, what the upstream saw, what the report says.

mod failing;
mod http2;
mod promises;
mod streams;
mod whole;
