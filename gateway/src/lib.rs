//! The ingress: admits a request, dispatches it, relays the answer and settles the waybill.
//!
//! ```text
//! serve ─► layers ─► inference::call ─► dispatch::run       admit: caller · body · skim · gate · spool
//!                                          │
//!                                          ▼
//!                     Dispatcher ◄──── Running (relay) ───► stream or whole answer
//!                                          │
//!                                          ▼
//!                                   settle ─► Spool          before the last byte leaves
//! ```
//!
//! Start reading at [`bind`] and `routes`, then `dispatch`. Guarantees: a request that was admitted settles exactly
//! once, whatever becomes of its connection; the end mark leaves only after its waybill is in the spool; nothing a
//! caller is not entitled to shows in status, body or headers.

mod arrival;
mod auto;
mod body;
pub mod caller;
mod config;
mod configuration;
mod connection;
mod demand;
mod dispatch;
mod error;
mod gate;
mod idempotency;
mod inference;
pub mod key;
mod layers;
pub mod limits;
mod manage;
pub mod metrics;
mod open;
mod ops;
mod path;
mod peers;
mod proxy;
mod pulse;
mod refusal;
mod relay;
mod responses;
pub mod routes;
mod serve;
mod settle;
mod shape;
pub mod sign_in;
mod small;
mod standing;
mod state;
mod unwritten;

pub use config::Config;
pub use configuration::Configuration;
pub use error::Error;
pub use manage::openapi::text as openapi;
pub use serve::{Calls, Gateway, bind, run};
pub use settle::recover;
pub use small::SmallCalls;
pub use state::Ports;
