//! `waybill endpoints`, `waybill routes` and `waybill prices`: through the management API of the node that runs on the
//! data directory.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::command_line::{Flags, Output, Said};
use crate::config::Config;
use crate::management::RunningNode;
use crate::resource::{self, Column};

mod import;

const ENDPOINTS: &str = "/api/v1/endpoints";
const ROUTES: &str = "/api/v1/model-routes";
const PRICES: &str = "/api/v1/prices";

const OF_ENDPOINTS: [Column; 7] = [
    ("ID", |endpoint| resource::text(&endpoint["id"])),
    ("TENANT", |endpoint| resource::text(&endpoint["tenant"])),
    ("NAME", |endpoint| resource::text(&endpoint["name"])),
    ("KIND", |endpoint| resource::text(&endpoint["kind"])),
    ("CREDENTIAL", |endpoint| {
        resource::text(&endpoint["credential"]["kind"])
    }),
    ("STATE", resource::state_cell),
    ("BACKENDS", |endpoint| {
        let backends = endpoint["backends"].as_array().into_iter().flatten();
        let urls: Vec<String> = backends.map(|backend| resource::text(&backend["url"])).collect();
        urls.join(" ")
    }),
];

const OF_ROUTES: [Column; 7] = [
    ("ID", |route| resource::text(&route["id"])),
    ("TENANT", |route| resource::text(&route["tenant"])),
    ("MODEL", |route| resource::text(&route["model"])),
    ("ENDPOINT", |route| resource::text(&route["endpoint"])),
    ("UPSTREAM", |route| resource::text(&route["upstream_model"])),
    ("PRIORITY", |route| resource::text(&route["priority"])),
    ("WEIGHT", |route| resource::text(&route["weight"])),
];

const OF_PRICES: [Column; 6] = [
    ("ID", |price| resource::text(&price["id"])),
    ("TENANT", |price| resource::text(&price["tenant"])),
    ("MODEL", |price| resource::text(&price["model"])),
    ("ENDPOINT", |price| resource::text(&price["endpoint"])),
    ("FROM", |price| resource::text(&price["effective_from"])),
    ("USD", |price| {
        let parts = price["pricing"].as_object().into_iter().flatten();
        let told: Vec<String> = parts
            .map(|(name, usd)| format!("{name}={}", resource::text(usd)))
            .collect();
        told.join(" ")
    }),
];

/// What can be done with endpoints.
#[derive(Debug, Subcommand)]
pub enum EndpointAction {
    /// Make an endpoint, and a route to it.
    Create {
        /// The name people read, and the model's where --model is left out.
        name: String,
        /// An address; several for several replicas.
        #[arg(long = "url", value_name = "URL", required = true)]
        urls: Vec<String>,
        /// Whose it is; the key's own tenant where it is left out.
        #[arg(long)]
        tenant: Option<String>,
        /// The kind of server: vllm, openai, anthropic and others.
        #[arg(long)]
        kind: Option<String>,
        /// The name that callers ask for.
        #[arg(long)]
        model: Option<String>,
        /// The upstream's name of the model.
        #[arg(long)]
        upstream_model: Option<String>,
        /// What proves to it who calls.
        #[command(flatten)]
        credential: CredentialFlags,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// List endpoints.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
        /// How they are told.
        #[command(flatten)]
        output: Output,
    },
    /// Change what is named of an endpoint; everything else stays, but another address voids the credential.
    Set {
        /// Which, by its id.
        id: String,
        /// The name people read.
        #[arg(long)]
        name: Option<String>,
        /// All addresses.
        #[arg(long = "url", value_name = "URL")]
        urls: Vec<String>,
        /// true: nothing is sent there.
        #[arg(long)]
        disabled: Option<bool>,
        /// What proves to it who calls.
        #[command(flatten)]
        credential: CredentialFlags,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// Remove an endpoint and the routes that lead to it.
    Delete {
        /// Which, by its id.
        id: String,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
}

/// A credential is never typed: it would be in the history of the shell.
#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_field_names, reason = "the names are those of the flags")]
pub struct CredentialFlags {
    /// A file here that holds the credential; it is sent sealed.
    #[arg(long, value_name = "PATH")]
    credential_from: Option<PathBuf>,
    /// A variable of the routers' environment.
    #[arg(long, value_name = "NAME")]
    credential_env: Option<String>,
    /// A file on the routers' machines.
    #[arg(long, value_name = "PATH")]
    credential_file: Option<String>,
}

impl CredentialFlags {
    fn read(&self) -> anyhow::Result<Option<Value>> {
        if let Some(path) = &self.credential_from {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("{} cannot be read", path.display()))?;
            return Ok(Some(json!({"value": text.trim()})));
        }
        let env = self.credential_env.as_ref().map(|name| json!({"env": name}));
        Ok(env.or_else(|| self.credential_file.as_ref().map(|path| json!({"file": path}))))
    }
}

/// What can be done with routes.
#[derive(Debug, Subcommand)]
pub enum RouteAction {
    /// Add a route to a model.
    Create {
        /// The name that callers ask for.
        model: String,
        /// The endpoint, by its id or its name.
        #[arg(long)]
        endpoint: String,
        /// Whose callers it serves.
        #[arg(long)]
        tenant: Option<String>,
        /// What else is said of it.
        #[command(flatten)]
        said: RouteFlags,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// List the routes that were added.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
        /// How they are told.
        #[command(flatten)]
        output: Output,
    },
    /// Change what is named of a route; everything else stays.
    Set {
        /// Which, by its id.
        id: String,
        /// The endpoint, by its id or its name.
        #[arg(long)]
        endpoint: Option<String>,
        /// What else is said of it.
        #[command(flatten)]
        said: RouteFlags,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// Remove a route.
    Delete {
        /// Which, by its id.
        id: String,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
}

/// What is said of a route.
#[derive(Debug, Clone, Default, Args)]
pub struct RouteFlags {
    /// The upstream's name of the model.
    #[arg(long)]
    upstream_model: Option<String>,
    /// 0 is tried first.
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Share of the draw within a priority.
    #[arg(long)]
    weight: Option<u32>,
    /// The pool of routers that may run it.
    #[arg(long, value_name = "POOL")]
    router_pool: Option<String>,
}

impl RouteFlags {
    fn members(&self) -> Map<String, Value> {
        let members = [
            (
                "upstream_model",
                self.upstream_model.as_ref().map(|text| json!(text)),
            ),
            ("priority", self.priority.map(|number| json!(number))),
            ("weight", self.weight.map(|number| json!(number))),
            ("pool", self.router_pool.as_ref().map(|text| json!(text))),
        ];
        given(members)
    }
}

/// What can be done with prices.
#[derive(Debug, Subcommand)]
pub enum PriceAction {
    /// Make a version of a price: USD as decimals, per million tokens or each.
    Create {
        /// The model, by the name that callers ask for.
        model: String,
        /// Such as prompt=0.15; several times.
        #[arg(long = "usd", value_name = "NAME=USD", required = true)]
        usd: Vec<String>,
        /// From when on, as 2026-12-01T00:00:00Z; from now on where it is left out.
        #[arg(long)]
        from: Option<String>,
        /// Whose model.
        #[arg(long)]
        tenant: Option<String>,
        /// Only where this endpoint serves it, by its id.
        #[arg(long)]
        endpoint: Option<String>,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// List the versions of prices.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
        /// How they are told.
        #[command(flatten)]
        output: Output,
    },
    /// Remove a version of a price.
    Delete {
        /// Which, by its id.
        id: String,
        /// How it is told.
        #[command(flatten)]
        output: Output,
    },
    /// Make versions of prices from LiteLLM's list, for the models that are served.
    Import {
        /// The list: `model_prices_and_context_window.json`.
        file: PathBuf,
        /// From when on; from now on where it is left out.
        #[arg(long)]
        from: Option<String>,
        /// Say what would be made, and make nothing.
        #[arg(long)]
        dry_run: bool,
        /// How they are told.
        #[command(flatten)]
        output: Output,
    },
}

/// Members that are there.
fn given<const N: usize>(members: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let members = members.into_iter();
    members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn narrowed(tenant: Option<&str>) -> String {
    let query = tenant.map(|tenant| format!("&tenant={}", resource::encoded(tenant)));
    query.unwrap_or_default()
}

fn addresses(urls: &[String]) -> Option<Value> {
    let backends = urls.iter().map(|url| json!({"url": url}));
    (!urls.is_empty()).then(|| backends.collect())
}

/// Carries out an action on endpoints and returns what to print.
pub async fn endpoints(
    action: EndpointAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let (EndpointAction::Create { output, .. }
    | EndpointAction::List { output, .. }
    | EndpointAction::Set { output, .. }
    | EndpointAction::Delete { output, .. }) = &action;
    let (as_json, node) = asked(output, load)?;
    let of = |id: &str| format!("{ENDPOINTS}/{}", resource::encoded(id));
    let record = match &action {
        EndpointAction::List { tenant, .. } => {
            let found = resource::all(&node, ENDPOINTS, &narrowed(tenant.as_deref())).await?;
            return Ok(resource::printed(&OF_ENDPOINTS, &found, as_json));
        }
        EndpointAction::Create {
            name,
            urls,
            tenant,
            kind,
            model,
            upstream_model,
            credential,
            ..
        } => {
            let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
            let body = given([
                ("name", Some(json!(name))),
                ("backends", addresses(urls)),
                ("tenant", text(tenant)),
                ("kind", text(kind)),
                ("model", text(model)),
                ("upstream_model", text(upstream_model)),
                ("credential", credential.read()?),
            ]);
            node.call(Method::POST, ENDPOINTS, Some(Value::Object(body)))
                .await?
        }
        EndpointAction::Set {
            id,
            name,
            urls,
            disabled,
            credential,
            ..
        } => {
            let members = given([
                ("name", name.as_ref().map(|name| json!(name))),
                ("backends", addresses(urls)),
                ("disabled", disabled.map(|disabled| json!(disabled))),
                ("credential", credential.read()?),
            ]);
            resource::change(&node, &of(id), &members, &Said::default()).await?
        }
        EndpointAction::Delete { id, .. } => node.call(Method::DELETE, &of(id), None).await?,
    };
    Ok(resource::printed_one(&OF_ENDPOINTS, &record, as_json))
}

/// Carries out an action on routes and returns what to print.
pub async fn routes(
    action: RouteAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let (RouteAction::Create { output, .. }
    | RouteAction::List { output, .. }
    | RouteAction::Set { output, .. }
    | RouteAction::Delete { output, .. }) = &action;
    let (as_json, node) = asked(output, load)?;
    let of = |id: &str| format!("{ROUTES}/{}", resource::encoded(id));
    let record = match &action {
        RouteAction::List { tenant, .. } => {
            let found = resource::all(&node, ROUTES, &narrowed(tenant.as_deref())).await?;
            return Ok(resource::printed(&OF_ROUTES, &found, as_json));
        }
        RouteAction::Create {
            model,
            endpoint,
            tenant,
            said,
            ..
        } => {
            let mut body = said.members();
            body.insert("model".to_owned(), json!(model));
            body.insert("endpoint".to_owned(), json!(endpoint));
            body.extend(given([("tenant", tenant.as_ref().map(|tenant| json!(tenant)))]));
            node.call(Method::POST, ROUTES, Some(Value::Object(body))).await?
        }
        RouteAction::Set {
            id, endpoint, said, ..
        } => {
            let mut members = said.members();
            members.extend(given([("endpoint", endpoint.as_ref().map(|id| json!(id)))]));
            resource::change(&node, &of(id), &members, &Said::default()).await?
        }
        RouteAction::Delete { id, .. } => node.call(Method::DELETE, &of(id), None).await?,
    };
    Ok(resource::printed_one(&OF_ROUTES, &record, as_json))
}

/// Carries out an action on prices and returns what to print.
pub async fn prices(
    action: PriceAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let (PriceAction::Create { output, .. }
    | PriceAction::List { output, .. }
    | PriceAction::Delete { output, .. }
    | PriceAction::Import { output, .. }) = &action;
    let (as_json, node) = asked(output, load)?;
    let record = match &action {
        PriceAction::List { tenant, .. } => {
            let found = resource::all(&node, PRICES, &narrowed(tenant.as_deref())).await?;
            return Ok(resource::printed(&OF_PRICES, &found, as_json));
        }
        PriceAction::Create {
            model,
            usd,
            from,
            tenant,
            endpoint,
            ..
        } => {
            let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
            let body = given([
                ("model", Some(json!(model))),
                ("pricing", Some(Value::Object(import::amounts(usd)?))),
                ("effective_from", text(from)),
                ("tenant", text(tenant)),
                ("endpoint", text(endpoint)),
            ]);
            node.call(Method::POST, PRICES, Some(Value::Object(body))).await?
        }
        PriceAction::Delete { id, .. } => {
            let path = format!("{PRICES}/{}", resource::encoded(id));
            node.call(Method::DELETE, &path, None).await?
        }
        PriceAction::Import {
            file, from, dry_run, ..
        } => {
            let made = import::run(&node, file, from.as_deref(), *dry_run).await?;
            return Ok(import::told(&made, &OF_PRICES, as_json));
        }
    };
    Ok(resource::printed_one(&OF_PRICES, &record, as_json))
}

fn asked(
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<(bool, RunningNode)> {
    let Output { json, flags } = output;
    Ok((*json, RunningNode::running(&load(flags)?, flags)?))
}
