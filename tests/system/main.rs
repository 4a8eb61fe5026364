//! Black-box tests: the real binary between a strict client and scripted upstreams, one module a topic.
#![expect(clippy::expect_used, reason = "a test suite")]

mod affinity;
mod books;
mod breaker;
mod caller;
mod chat;
mod client_gone;
mod clients;
mod clocks;
mod cluster;
mod cluster_config;
mod compression;
mod config;
mod connections;
mod control;
mod crash;
mod dialects;
mod drain;
mod engine;
mod failover;
mod first_run;
mod framing;
mod health;
mod idempotency;
mod keys;
mod limits;
mod models;
mod operator;
mod reload;
mod retries;
mod rows;
mod sdk;
mod secrets;
mod smoke;
mod streaming;
mod usage;
