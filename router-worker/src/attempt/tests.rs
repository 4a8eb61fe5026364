//! Attempts over real sockets: what the caller gets, what the upstream saw, what the report says.

mod failing;
mod streams;
mod whole;
