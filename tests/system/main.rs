//! Black-box tests: the real binary between a strict client and scripted upstreams, one module a topic.

mod breaker;
mod chat;
mod clocks;
mod failover;
mod framing;
mod retries;
mod rows;
mod smoke;
mod streaming;
mod usage;
