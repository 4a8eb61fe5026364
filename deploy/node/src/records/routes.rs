//! `waybill routes`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{Action, Column, Kind, Said, Step, given, member};
use crate::records;

const COLUMNS: [Column; 7] = [
    ("ID", |route| records::text(&route["id"])),
    ("TENANT", |route| records::text(&route["tenant"])),
    ("MODEL", |route| records::text(&route["model"])),
    ("ENDPOINT", |route| records::text(&route["endpoint"])),
    ("UPSTREAM", |route| records::text(&route["upstream_model"])),
    ("PRIORITY", |route| records::text(&route["priority"])),
    ("WEIGHT", |route| records::text(&route["weight"])),
];

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
    },
    /// List the routes that were added.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show a route.
    Show {
        /// Which, by its id.
        id: String,
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
    },
    /// Remove a route.
    Delete {
        /// Which, by its id.
        id: String,
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

impl Action for RouteAction {
    const KIND: Kind = Kind::of("/api/v1/model-routes", &COLUMNS);

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List { tenant } => Self::KIND.list(tenant.as_deref()),
            Self::Show { id } => Self::KIND.show(id),
            Self::Create {
                model,
                endpoint,
                tenant,
                said,
            } => {
                let mut body = given([
                    ("model", Some(json!(model))),
                    ("endpoint", Some(json!(endpoint))),
                    ("tenant", member(tenant.as_ref())),
                ]);
                body.extend(said.members());
                Self::KIND.create(body)
            }
            Self::Set { id, endpoint, said } => {
                let mut members = said.members();
                members.extend(given([("endpoint", member(endpoint.as_ref()))]));
                records::change(Self::KIND.at(id), members, &Said::default())
            }
            Self::Delete { id } => Self::KIND.remove(id),
        })
    }
}
