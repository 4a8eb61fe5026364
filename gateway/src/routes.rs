//! Every path and method of both listeners, each added in one place that also notes it: what is served and what is
//! told to be served cannot differ, and a test holds who may call each of them.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{MethodRouter, delete, get, patch, post};

use crate::config::Config;
use crate::inference::{balance, call, count, models, responses};
use crate::state::Shared;
use crate::{manage, ops, path};

/// A router, and what is in it.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) router: Router<Shared>,
    listed: Vec<Listed>,
}

/// One method of one path, as the router knows it: `{id}` stands for a segment, `{*id}` for the rest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The path.
    pub path: &'static str,
    /// The method; `GET` answers `HEAD` as well.
    pub method: &'static str,
}

/// What is served on the main listener.
pub fn of_main(config: &Config) -> Vec<Listed> {
    main(config).listed
}

/// What is served on the administrators' listener.
pub fn of_admin() -> Vec<Listed> {
    admin().listed
}

impl Table {
    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<Shared>) -> Self {
        self.listed.push(Listed { path, method });
        self.router = self.router.route(path, handler);
        self
    }

    fn get<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("GET", path, get(handler))
    }

    fn post<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("POST", path, post(handler))
    }

    fn patch<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("PATCH", path, patch(handler))
    }

    fn delete<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("DELETE", path, delete(handler))
    }
}

/// Every path of the main listener. The management API and the metrics are on it unless they have their own.
pub(crate) fn main(config: &Config) -> Table {
    let table = inference(Table::default().get("/", ops::root));
    let table = health(table).get("/routing", ops::routing);
    if config.admin_listen.is_some() {
        return table;
    }
    management(table).get("/metrics", ops::metrics_of_loopback)
}

/// Every path of the administrators' listener.
pub(crate) fn admin() -> Table {
    management(health(Table::default()))
        .get("/metrics", ops::metrics)
        .get("/routing", ops::routing)
}

/// The paths that clients of models know, and the bases they are told, which some of them try first.
fn inference(mut table: Table) -> Table {
    for (path, _) in call::Call::PATHS {
        table = table.post(path, call::create);
    }
    for base in ["/v1", "/v1/", "/anthropic", "/anthropic/", "/anthropic/v1"] {
        table = table.get(base, ops::root);
    }
    for path in path::MODELS {
        table = table.get(path, models::list);
    }
    for path in path::COUNTS {
        table = table.post(path, count::create);
    }
    table
        .get("/v1/responses/{id}", responses::show)
        .delete("/v1/responses/{id}", responses::delete)
        .get("/v1/responses/{id}/input_items", responses::input_items)
        .get("/v1/models/{*id}", models::show)
        .get("/anthropic/v1/models/{*id}", models::show)
        .get(path::BALANCE, balance::show)
}

fn health(table: Table) -> Table {
    table
        .get("/health", ops::health)
        .get("/health/ready", ops::ready)
        .get("/health/deep", ops::deep)
}

fn management(table: Table) -> Table {
    table
        .get("/api/v1/logs", manage::logs::list)
        .get("/api/v1/logs/{id}", manage::logs::show)
        .get("/api/v1/usage", manage::usage::sums)
        .get("/api/v1/tenant/api-keys", manage::keys::list)
        .post("/api/v1/tenant/api-keys", manage::keys::create)
        .delete("/api/v1/tenant/api-keys/{id}", manage::keys::revoke)
        .get("/api/v1/tenants", manage::tenants::list)
        .post("/api/v1/tenants", manage::tenants::create)
        .get("/api/v1/tenants/{id}", manage::tenants::show)
        .patch("/api/v1/tenants/{id}", manage::tenants::patch)
        .get("/api/v1/tenants/{id}/history", manage::tenants::history)
        .get("/api/v1/users", manage::users::list)
        .post("/api/v1/users", manage::users::create)
        .get("/api/v1/users/{id}", manage::users::show)
        .patch("/api/v1/users/{id}", manage::users::patch)
        .get("/api/v1/users/{id}/history", manage::users::history)
        .post("/api/v1/system/rebuild", manage::system::rebuild)
}
