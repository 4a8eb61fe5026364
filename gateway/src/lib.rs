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
//! Start reading at [`bind`] and `router`, then `dispatch`. Guarantees: a request that was admitted settles exactly
//! once, whatever becomes of its connection; the end mark leaves only after its waybill is in the spool; nothing a
//! caller is not entitled to shows in status, body or headers.

mod arrival;
mod body;
pub mod caller;
mod config;
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
mod pulse;
mod refusal;
mod relay;
mod responses;
mod serve;
mod settle;
mod shape;
mod small;
mod standing;
mod state;
mod unwritten;

use axum::Router;
use axum::routing::{delete, get, post};

pub use config::Config;
pub use error::Error;
pub use serve::{Gateway, bind, run};
pub use settle::recover;
pub use small::SmallCalls;
pub use state::Ports;

use state::Shared;

/// Every path of the main listener. The management API and the metrics are on it unless they have their own.
fn router(state: &Shared) -> Router {
    let mut router = Router::new()
        .route("/", get(ops::root))
        .merge(inference())
        .merge(health())
        .route("/routing", get(ops::routing));
    if state.config.admin_listen.is_none() {
        router = router
            .merge(manage())
            .route("/metrics", get(ops::metrics_of_loopback));
    }
    layers::completed(router, state)
}

/// The paths that clients of models know, and the bases they are told, which some of them try first.
fn inference() -> Router<Shared> {
    let mut router = Router::new();
    for (path, _) in inference::call::Call::PATHS {
        router = router.route(path, post(inference::call::create));
    }
    for base in ["/v1", "/v1/", "/anthropic", "/anthropic/", "/anthropic/v1"] {
        router = router.route(base, get(ops::root));
    }
    for path in path::MODELS {
        router = router.route(path, get(inference::models::list));
    }
    for path in path::COUNTS {
        router = router.route(path, post(inference::count::create));
    }
    router
        .route(
            "/v1/responses/{id}",
            get(inference::responses::show).delete(inference::responses::delete),
        )
        .route(
            "/v1/responses/{id}/input_items",
            get(inference::responses::input_items),
        )
        .route("/v1/models/{*id}", get(inference::models::show))
        .route("/anthropic/v1/models/{*id}", get(inference::models::show))
        .route(path::BALANCE, get(inference::balance::show))
}

/// Every path of the administrators' listener.
fn admin_router(state: &Shared) -> Router {
    let router = health()
        .merge(manage())
        .route("/metrics", get(ops::metrics))
        .route("/routing", get(ops::routing));
    layers::completed(router, state)
}

fn health() -> Router<Shared> {
    Router::new()
        .route("/health", get(ops::health))
        .route("/health/ready", get(ops::ready))
        .route("/health/deep", get(ops::deep))
}

fn manage() -> Router<Shared> {
    Router::new()
        .route("/api/v1/logs", get(manage::logs::list))
        .route("/api/v1/logs/{id}", get(manage::logs::show))
        .route("/api/v1/usage", get(manage::usage::sums))
        .route(
            "/api/v1/tenant/api-keys",
            get(manage::keys::list).post(manage::keys::create),
        )
        .route("/api/v1/tenant/api-keys/{id}", delete(manage::keys::revoke))
        .route("/api/v1/system/rebuild", post(manage::system::rebuild))
}
