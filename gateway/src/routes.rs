//! Every path and method of both listeners, each added in one place that also notes it: what is served and what is
//! told to be served cannot differ, and a test holds who may call each of them.

use std::panic::resume_unwind;

use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, delete, get, options, patch, post, put};
use axum::{Extension, Router};

use http::StatusCode;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::config::Config;
use crate::inference::{balance, call, count, models, responses};
use crate::manage::endpoint_keys::EndpointKeys;
use crate::manage::endpoints::Endpoints;
use crate::manage::keys::Keys;
use crate::manage::model_routes::Routes;
use crate::manage::models::Models;
use crate::manage::openapi::Operation;
use crate::manage::policies::{InferenceConfig, KeyPolicies, ModelPolicies};
use crate::manage::prices::Prices;
use crate::manage::providers::Providers;
use crate::manage::resource;
use crate::manage::settings::Settings;
use crate::manage::tenants::Tenants;
use crate::manage::users::Users;
use crate::state::Shared;
use crate::{dispatch, manage, ops, path, sign_in};

/// A router, and what is in it.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) router: Router<Shared>,
    listed: Vec<Listed>,
    /// What of it is described.
    described: Vec<(Listed, Operation)>,
    /// What changes something by the routes that are added is done to its end, though its caller leaves.
    is_whole: bool,
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

/// What of the management API is described, in order.
pub(crate) fn described() -> Vec<(Listed, Operation)> {
    let mut described = management(Table::default()).described;
    described.sort_by(|(one, _), (other, _)| one.cmp(other));
    described
}

/// Routes that nobody describes although they are neither of those that clients of models know nor of health.
#[cfg(test)]
pub(crate) fn undescribed() -> Vec<Listed> {
    let known = |table: Table| table.described.into_iter().map(|(listed, _)| listed);
    let all = management(health(inference(Table::default())));
    let others = health(inference(Table::default())).listed;
    let mut listed = all.listed.clone();
    let described: Vec<Listed> = known(all).collect();
    listed.retain(|route| !described.contains(route) && !others.contains(route));
    listed
}

impl Table {
    fn add(mut self, method: &'static str, path: &'static str, handler: MethodRouter<Shared>) -> Self {
        self.listed.push(Listed { path, method });
        let handler = if self.is_whole && method != "GET" {
            handler.layer(middleware::from_fn(to_its_end))
        } else {
            handler
        };
        self.router = self.router.route(path, handler);
        self
    }

    /// Says what the route does that was added last.
    fn told(mut self, operation: Operation) -> Self {
        if let Some(last) = self.listed.last() {
            self.described.push((last.clone(), operation));
        }
        self
    }

    fn get<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("GET", path, get(handler))
    }

    fn post<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("POST", path, post(handler))
    }

    fn put<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("PUT", path, put(handler))
    }

    fn patch<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("PATCH", path, patch(handler))
    }

    fn delete<T: 'static>(self, path: &'static str, handler: impl Handler<T, Shared>) -> Self {
        self.add("DELETE", path, delete(handler))
    }
}

/// Does what a call asks for in a task of its own. Whoever leaves takes his connection with him and all that is done on
/// it; what is written in several steps would stay half written, and what is written would not be told of.
async fn to_its_end(Extension(tasks): Extension<TaskTracker>, request: Request, next: Next) -> Response {
    let done = tasks.spawn(next.run(request).in_current_span()).await;
    done.unwrap_or_else(|ended| match ended.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        // The node ends, and whoever waits with it.
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    })
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

/// Where calls pass to an endpoint as they are.
const PASSING: &str = "/api/v1/proxy/{endpoint}/{*path}";

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
        .get(PASSING, dispatch::raw::pass)
        .post(PASSING, dispatch::raw::pass)
        .put(PASSING, dispatch::raw::pass)
        .patch(PASSING, dispatch::raw::pass)
        .delete(PASSING, dispatch::raw::pass)
        .add("OPTIONS", PASSING, options(dispatch::raw::pass))
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

/// How people sign in, and who they are then.
fn sign_in(table: Table) -> Table {
    table
        .post("/auth/setup", sign_in::setup::create)
        .told(sign_in::setup::SETUP)
        .post("/auth/signup", sign_in::sign_up::create)
        .told(sign_in::sign_up::SIGN_UP)
        .post("/auth/login", sign_in::login::login)
        .told(sign_in::login::LOGIN)
        .get("/auth/oidc/login", sign_in::oidc::login)
        .told(sign_in::oidc::LOGIN)
        .get("/auth/oidc/callback", sign_in::oidc::callback)
        .told(sign_in::oidc::CALLBACK)
        .post("/auth/refresh", sign_in::refresh::refresh)
        .told(sign_in::refresh::REFRESH)
        .post("/auth/logout", sign_in::refresh::logout)
        .told(sign_in::refresh::LOGOUT)
        .post("/auth/forgot-password", sign_in::reset::forget)
        .told(sign_in::reset::FORGET)
        .post("/auth/reset-password", sign_in::password::choose)
        .told(sign_in::password::CHOOSE)
        .post("/user/change-password", sign_in::password::change)
        .told(sign_in::password::CHANGE)
        .get("/user/me", sign_in::me::show)
        .told(sign_in::me::ME)
        .get("/site-config", sign_in::me::site)
        .told(sign_in::me::SITE)
        .post("/api/v1/users/{id}/password-reset", sign_in::reset::reset)
        .told(sign_in::reset::RESET)
}

/// The management API. Each route says what it does: see [`manage::openapi`].
fn management(table: Table) -> Table {
    let table = Table {
        is_whole: true,
        ..table
    };
    aliases(policies(settings(credentials(sign_in(served(books(table)))))))
        .get("/api/v1/audit", manage::audit::list)
        .told(manage::audit::LIST)
        .get("/api/v1/nodes", manage::nodes::list)
        .told(manage::nodes::LIST)
        .post("/api/v1/nodes/{node}/gpu", manage::temperatures::report)
        .told(manage::temperatures::REPORT)
        .get("/api/v1/openapi.json", manage::openapi::show)
        .told(manage::openapi::SHOW)
        .get("/admin/config", manage::config::show)
        .told(manage::config::SHOW)
        .get("/admin/config/problems", manage::config::problems)
        .told(manage::config::PROBLEMS)
        .get("/admin/config/history", manage::config::history)
        .told(manage::config::HISTORY)
        .get("/admin/config/history/{id}", manage::config::revision)
        .told(manage::config::REVISION)
        .get("/admin/config/diff", manage::config::diff)
        .told(manage::config::DIFF)
        .post("/admin/config/rollback", manage::config::rollback::create)
        .told(manage::config::rollback::ROLLBACK)
        .get("/admin/config/export", manage::config::transfer::export)
        .told(manage::config::transfer::EXPORT)
        .post("/admin/config/import", manage::config::transfer::import)
        .told(manage::config::transfer::IMPORT)
        .get("/api/v1/logs", manage::logs::list)
        .told(manage::logs::LIST)
        .get("/api/v1/logs/export", manage::logs::export::export)
        .told(manage::logs::export::EXPORT)
        .get("/api/v1/logs/{id}", manage::logs::show)
        .told(manage::logs::SHOW)
        .get("/api/v1/usage", manage::usage::sums)
        .told(manage::usage::SUMS)
        .get("/api/v1/usage/events", manage::feed::list)
        .told(manage::feed::LIST)
        .get("/api/v1/tenant/api-keys", manage::keys::list)
        .told(manage::keys::LIST)
        .post("/api/v1/tenant/api-keys", resource::create::<Keys>)
        .told(manage::keys::CREATE)
        .delete("/api/v1/tenant/api-keys/{id}", manage::keys::revoke)
        .told(manage::keys::REVOKE)
        .get("/api/v1/tenants", resource::list::<Tenants>)
        .told(manage::tenants::LIST)
        .post("/api/v1/tenants", resource::create::<Tenants>)
        .told(manage::tenants::CREATE)
        .get("/api/v1/tenants/{id}", resource::show::<Tenants>)
        .told(manage::tenants::SHOW)
        .patch("/api/v1/tenants/{id}", resource::change::<Tenants>)
        .told(manage::tenants::CHANGE)
        .get("/api/v1/tenants/{id}/history", resource::history::<Tenants>)
        .told(manage::tenants::HISTORY)
        .get("/api/v1/users", resource::list::<Users>)
        .told(manage::users::LIST)
        .post("/api/v1/users", resource::create::<Users>)
        .told(manage::users::CREATE)
        .get("/api/v1/users/{id}", resource::show::<Users>)
        .told(manage::users::SHOW)
        .patch("/api/v1/users/{id}", resource::change::<Users>)
        .told(manage::users::CHANGE)
        .get("/api/v1/users/{id}/history", resource::history::<Users>)
        .told(manage::users::HISTORY)
}

/// What operators do to the books as a whole.
fn books(table: Table) -> Table {
    table
        .post("/api/v1/system/rebuild", manage::system::rebuild)
        .told(manage::system::REBUILD)
        .get("/api/v1/system/counters", manage::counters::compare)
        .told(manage::counters::COMPARE)
        .post("/api/v1/system/reprice", manage::reprice::create)
        .told(manage::reprice::REPRICE)
}

/// Keys one by one, keys of endpoints, and grants.
fn credentials(table: Table) -> Table {
    table
        .get("/api/v1/tenant/api-keys/{id}", manage::keys::show)
        .told(manage::keys::SHOW)
        .patch("/api/v1/tenant/api-keys/{id}", resource::change::<Keys>)
        .told(manage::keys::CHANGE)
        .get("/api/v1/tenant/api-keys/{id}/history", resource::history::<Keys>)
        .told(manage::keys::HISTORY)
        .post("/api/v1/tenant/api-keys/{id}/rotate", manage::keys::rotate)
        .told(manage::keys::ROTATE)
        .get("/api/v1/endpoint-keys", manage::endpoint_keys::list)
        .told(manage::endpoint_keys::LIST)
        .post("/api/v1/endpoint-keys", resource::create::<EndpointKeys>)
        .told(manage::endpoint_keys::CREATE)
        .get("/api/v1/endpoint-keys/{id}", resource::show::<EndpointKeys>)
        .told(manage::endpoint_keys::SHOW)
        .delete("/api/v1/endpoint-keys/{id}", manage::endpoint_keys::revoke)
        .told(manage::endpoint_keys::REVOKE)
        .get(
            "/api/v1/endpoint-keys/{id}/history",
            resource::history::<EndpointKeys>,
        )
        .told(manage::endpoint_keys::HISTORY)
        .post("/api/v1/endpoint-keys/{id}/rotate", manage::endpoint_keys::rotate)
        .told(manage::endpoint_keys::ROTATE)
        .get("/internal/agent-grants", manage::grants::list)
        .told(manage::grants::LIST)
        .post("/internal/agent-grants", manage::grants::create)
        .told(manage::grants::CREATE)
        .delete("/internal/agent-grants/{id}", manage::grants::revoke)
        .told(manage::grants::REVOKE)
}

/// What operators set at run time.
fn settings(table: Table) -> Table {
    table
        .get("/admin/settings", manage::settings::list)
        .told(manage::settings::LIST)
        .get("/admin/settings/{name}", resource::show::<Settings>)
        .told(manage::settings::SHOW)
        .put("/admin/settings/{name}", resource::change::<Settings>)
        .told(manage::settings::SET)
        .patch("/admin/settings/{name}", resource::change::<Settings>)
        .told(manage::settings::SET)
        .delete("/admin/settings/{name}", resource::remove::<Settings>)
        .told(manage::settings::DROP)
        .get("/admin/settings/{name}/history", resource::history::<Settings>)
        .told(manage::settings::HISTORY)
        .get("/admin/providers", manage::providers::list)
        .told(manage::providers::LIST)
        .get("/admin/providers/{provider}", resource::show::<Providers>)
        .told(manage::providers::SHOW)
        .patch("/admin/providers/{provider}", resource::change::<Providers>)
        .told(manage::providers::CHANGE)
        .patch(
            "/admin/providers/{provider}/disabled",
            resource::change::<Providers>,
        )
        .told(manage::providers::CHANGE)
        .get(
            "/admin/providers/{provider}/history",
            resource::history::<Providers>,
        )
        .told(manage::providers::HISTORY)
        .get("/admin/routing", ops::routing_of_platform)
        .told(ops::ROUTING_OF_PLATFORM)
}

/// How calls are routed that leave the choice of a model to us.
fn policies(table: Table) -> Table {
    table
        .get(
            "/api/v1/system/inference-config",
            resource::show::<InferenceConfig>,
        )
        .told(manage::policies::INFERENCE)
        .put(
            "/api/v1/system/inference-config",
            resource::change::<InferenceConfig>,
        )
        .told(manage::policies::SET_INFERENCE)
        .get(
            "/api/v1/tenant/api-keys/{id}/routing-policy",
            resource::show::<KeyPolicies>,
        )
        .told(manage::policies::KEY)
        .put(
            "/api/v1/tenant/api-keys/{id}/routing-policy",
            resource::change::<KeyPolicies>,
        )
        .told(manage::policies::SET_KEY)
        .get("/api/v1/models/routing-policies", resource::list::<ModelPolicies>)
        .told(manage::policies::MODELS)
        .put(
            "/api/v1/models/routing-policies",
            resource::change::<ModelPolicies>,
        )
        .told(manage::policies::SET_MODEL)
}

/// Endpoints, ways to models, models and prices.
fn served(table: Table) -> Table {
    table
        .delete("/api/v1/tenants/{id}/overlay", resource::remove::<Tenants>)
        .told(manage::tenants::RESTORE)
        .delete("/api/v1/users/{id}/overlay", resource::remove::<Users>)
        .told(manage::users::RESTORE)
        .get("/api/v1/endpoints", resource::list::<Endpoints>)
        .told(manage::endpoints::LIST)
        .post("/api/v1/endpoints", resource::create::<Endpoints>)
        .told(manage::endpoints::CREATE)
        .get("/api/v1/endpoints/{id}", resource::show::<Endpoints>)
        .told(manage::endpoints::SHOW)
        .patch("/api/v1/endpoints/{id}", resource::change::<Endpoints>)
        .told(manage::endpoints::CHANGE)
        .delete("/api/v1/endpoints/{id}", resource::remove::<Endpoints>)
        .told(manage::endpoints::REMOVE)
        .get("/api/v1/endpoints/{id}/history", resource::history::<Endpoints>)
        .told(manage::endpoints::HISTORY)
        .post("/api/v1/endpoints/{id}/test", manage::endpoint_test::create)
        .told(manage::endpoint_test::TEST)
        .get("/api/v1/model-routes", resource::list::<Routes>)
        .told(manage::model_routes::LIST)
        .post("/api/v1/model-routes", resource::create::<Routes>)
        .told(manage::model_routes::CREATE)
        .get("/api/v1/model-routes/{id}", resource::show::<Routes>)
        .told(manage::model_routes::SHOW)
        .patch("/api/v1/model-routes/{id}", resource::change::<Routes>)
        .told(manage::model_routes::CHANGE)
        .delete("/api/v1/model-routes/{id}", resource::remove::<Routes>)
        .told(manage::model_routes::REMOVE)
        .get("/api/v1/model-routes/{id}/history", resource::history::<Routes>)
        .told(manage::model_routes::HISTORY)
        .get("/api/v1/models", manage::models::list)
        .told(manage::models::LIST)
        .get("/api/v1/models/{id}", resource::show::<Models>)
        .told(manage::models::SHOW)
        .patch("/api/v1/models/{id}", resource::change::<Models>)
        .told(manage::models::CHANGE)
        .delete("/api/v1/models/{id}/overlay", resource::remove::<Models>)
        .told(manage::models::DROP)
        .get("/api/v1/models/{id}/history", resource::history::<Models>)
        .told(manage::models::HISTORY)
        .get("/api/v1/prices", resource::list::<Prices>)
        .told(manage::prices::LIST)
        .post("/api/v1/prices", resource::create::<Prices>)
        .told(manage::prices::CREATE)
        .get("/api/v1/prices/{id}", resource::show::<Prices>)
        .told(manage::prices::SHOW)
        .delete("/api/v1/prices/{id}", resource::remove::<Prices>)
        .told(manage::prices::REMOVE)
        .get("/api/v1/prices/{id}/history", resource::history::<Prices>)
        .told(manage::prices::HISTORY)
}

/// The paths of consoles, which ask the same.
fn aliases(table: Table) -> Table {
    use manage::{aliases, audit, keys, nodes, users};

    table
        .get("/capabilities", aliases::capabilities)
        .told(aliases::CAPABILITIES)
        .get("/api/v1/tenant/usage", aliases::of_tenant)
        .told(aliases::OF_TENANT)
        .get("/admin/users", resource::list::<Users>)
        .told(users::LIST)
        .post("/admin/users", resource::create::<Users>)
        .told(users::CREATE)
        .get("/admin/users/{id}", resource::show::<Users>)
        .told(users::SHOW)
        .patch("/admin/users/{id}", resource::change::<Users>)
        .told(users::CHANGE)
        .get("/admin/users/{id}/history", resource::history::<Users>)
        .told(users::HISTORY)
        .get("/admin/models", manage::models::list)
        .told(manage::models::LIST)
        .get("/admin/models/{id}", resource::show::<Models>)
        .told(manage::models::SHOW)
        .patch("/admin/models/{id}", resource::change::<Models>)
        .told(manage::models::CHANGE)
        .get("/admin/api-keys", keys::list)
        .told(keys::LIST)
        .post("/admin/api-keys", resource::create::<Keys>)
        .told(keys::CREATE)
        .get("/admin/api-keys/{id}", keys::show)
        .told(keys::SHOW)
        .patch("/admin/api-keys/{id}", resource::change::<Keys>)
        .told(keys::CHANGE)
        .delete("/admin/api-keys/{id}", keys::revoke)
        .told(keys::REVOKE)
        .get("/admin/api-keys/{id}/history", resource::history::<Keys>)
        .told(keys::HISTORY)
        .get("/admin/recent-requests", aliases::recent)
        .told(aliases::RECENT)
        .get("/admin/audit-log", audit::list)
        .told(audit::LIST)
        .get("/admin/stats", aliases::stats)
        .told(aliases::STATS)
        .get("/admin/nodes", nodes::list)
        .told(nodes::LIST)
        .get("/user/models", models::list_own)
        .told(models::OWN)
        .get("/user/usage", aliases::own_usage)
        .told(aliases::OWN_USAGE)
        .get("/user/recent-requests", aliases::own_recent)
        .told(aliases::OWN_RECENT)
        .get("/user/api-keys", keys::list_own)
        .told(aliases::OWN_KEYS)
}
