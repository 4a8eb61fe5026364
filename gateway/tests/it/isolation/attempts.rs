//! Every way to name a thing: each path of the router with each method, and there each variable of the path, parameter,
//! header and field of a body. What there is comes from the router's own table and from its description, so that a new
//! route, parameter or field is tried without a line here.

use std::collections::{BTreeMap, BTreeSet};

use gateway::routes::Listed;
use serde_json::{Value, json};

use super::fields::{self, Spot};

/// Where something is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Path,
    Query(String),
    Header(&'static str),
    /// Within the body.
    Field(Spot),
}

/// A way to name a thing.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) place: Place,
    /// What the body has beside.
    base: Value,
}

/// Parameters that are tried everywhere, whether they are known there or not.
const PARAMETERS: [&str; 6] = ["tenant", "user", "key", "id", "after", "tenant_id"];
/// Headers that mean something somewhere, or might.
const HEADERS: [&str; 20] = [
    "idempotency-key",
    "if-match",
    "if-none-match",
    "x-route-pin",
    "x-session-id",
    "x-claude-code-session-id",
    "x-request-id",
    "x-end-user",
    "x-tenant",
    "x-reasoning-passthrough",
    "cookie",
    "anthropic-beta",
    "anthropic-version",
    "openai-organization",
    "openai-project",
    "content-type",
    "origin",
    "forwarded",
    "x-requested-with",
    "x-api-key",
];
/// What a caller may say to a path, whether it is served or not.
const METHODS: [&str; 7] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"];
/// What ends the session of whoever calls it, and names nothing.
const LEFT_OUT: [&str; 2] = ["/auth/logout", "/auth/refresh"];

/// Where things lie: the step of a path behind which they are named.
const HOMES: [(&str, &str); 16] = [
    ("a tenant", "tenants"),
    ("a member", "users"),
    ("a key", "api-keys"),
    ("an administrator's key", "api-keys"),
    ("an endpoint", "endpoints"),
    ("an endpoint", "proxy"),
    ("a model", "models"),
    ("a hidden model", "models"),
    ("its other name", "models"),
    ("a route", "model-routes"),
    ("a price", "prices"),
    ("a key of an endpoint", "endpoint-keys"),
    ("a grant", "agent-grants"),
    ("a response", "responses"),
    ("a request", "logs"),
    ("a change", "audit"),
];

/// All ways over these routes, as they are described.
pub(super) fn all(routes: &[Listed], described: &Value) -> Vec<Way> {
    let mut ways = Vec::new();
    for route in routes.iter().filter(|route| !LEFT_OUT.contains(&route.path)) {
        let operation = &described["paths"][route.path.replace("{*", "{")][route.method.to_lowercase()];
        if route.path.contains('{') {
            ways.push(way(route, Place::Path));
        }
        let queries = parameters(operation).into_iter().map(Place::Query);
        let places = queries.chain(HEADERS.map(Place::Header));
        ways.extend(places.map(|place| way(route, place)));
        let spots = fields::of(route, described, operation).into_iter();
        ways.extend(spots.map(|(spot, base)| Way {
            base,
            ..way(route, Place::Field(spot))
        }));
    }
    ways.extend(by_other_methods(routes));
    ways
}

fn way(route: &Listed, place: Place) -> Way {
    Way {
        method: route.method,
        path: route.path,
        place,
        base: json!({}),
    }
}

/// The paths that name something, by the methods that they are not served with, or that are answered as another one.
fn by_other_methods(routes: &[Listed]) -> Vec<Way> {
    let paths: BTreeSet<&'static str> = routes.iter().map(|route| route.path).collect();
    let named = paths.into_iter().filter(|path| path.contains('{'));
    let every = named.flat_map(|path| METHODS.map(|method| Listed { path, method }));
    let others = every.filter(|one| !routes.contains(one));
    others.map(|one| way(&one, Place::Path)).collect()
}

fn parameters(operation: &Value) -> Vec<String> {
    let told = operation["parameters"].as_array().into_iter().flatten();
    let of_query = told.filter(|one| one["in"] == "query");
    let names = of_query.filter_map(|one| one["name"].as_str());
    let mut names: Vec<String> = names.chain(PARAMETERS).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// A call.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) line: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Way {
    /// True for a path on which such a thing lies.
    pub(super) fn leads_to(&self, what: &str) -> bool {
        let mut homes = HOMES.iter().filter(|(thing, _)| *thing == what);
        self.place == Place::Path && homes.any(|(_, home)| self.path.contains(&format!("/{home}/{{")))
    }

    /// True for what only reads.
    pub(super) fn reads(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS")
    }

    /// True for what says something in a body, which may be kept.
    pub(super) const fn says(&self) -> bool {
        matches!(self.place, Place::Field(..))
    }

    /// True for what may ask a model.
    pub(super) fn asks(&self) -> bool {
        self.method == "POST" && !self.path.starts_with("/api/") && !self.path.starts_with("/a")
            || self.path.starts_with("/anthropic")
    }

    /// The call that names this. `own` are the caller's own things by the path of their kind, and his endpoint.
    pub(super) fn sent(&self, named: &str, own: &BTreeMap<&'static str, String>) -> Sent {
        let variable = match &self.place {
            Place::Path => encoded(named),
            // What is taken away is not there the next time.
            _ if self.method == "DELETE" => "nothing".to_owned(),
            _ => {
                let kind = own.iter().find(|(kind, _)| self.path.starts_with(*kind));
                kind.map_or_else(|| "nothing".to_owned(), |(_, id)| encoded(id))
            }
        };
        let mut line = format!("{} {}", self.method, filled(self.path, &variable));
        let mut headers = Vec::new();
        let mut body = self.base.clone();
        match &self.place {
            Place::Path => {}
            Place::Query(name) => line.extend(["?", name, "=", &encoded(named)]),
            Place::Header(name) => headers.push((*name, named.to_owned())),
            Place::Field(spot) => spot.name(&mut body, named),
        }
        fields::own(&mut body, named, &own["/api/v1/endpoints/"]);
        Sent {
            line,
            headers,
            body: if self.reads() {
                String::new()
            } else {
                body.to_string()
            },
        }
    }
}

/// A path with something for its variables.
fn filled(path: &str, variable: &str) -> String {
    let steps = path
        .split('/')
        .map(|step| if step.starts_with('{') { variable } else { step });
    steps.collect::<Vec<_>>().join("/")
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
