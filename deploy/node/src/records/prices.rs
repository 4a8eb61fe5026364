//! `waybill prices`.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Action, Column, Kind, Step, given, member};
use crate::command_line::{Flags, Output};
use crate::config::Config;
use crate::management::{OPERATOR, RunningNode};
use crate::records;

mod import;

const COLUMNS: [Column; 6] = [
    ("ID", |price| records::text(&price["id"])),
    ("TENANT", |price| records::text(&price["tenant"])),
    ("MODEL", |price| records::text(&price["model"])),
    ("ENDPOINT", |price| records::text(&price["endpoint"])),
    ("FROM", |price| records::text(&price["effective_from"])),
    ("USD", |price| {
        let parts = price["pricing"].as_object().into_iter().flatten();
        let told: Vec<String> = parts
            .map(|(name, usd)| format!("{name}={}", records::text(usd)))
            .collect();
        told.join(" ")
    }),
];

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
    },
    /// List the versions of prices.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show a version of a price.
    Show {
        /// Which, by its id.
        id: String,
    },
    /// Remove a version of a price.
    Delete {
        /// Which, by its id.
        id: String,
    },
}

impl Action for PriceAction {
    const KIND: Kind = Kind::of("/api/v1/prices", &COLUMNS);

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List { tenant } => Self::KIND.list(tenant.as_deref()),
            Self::Show { id } => Self::KIND.show(id),
            Self::Create {
                model,
                usd,
                from,
                tenant,
                endpoint,
            } => Self::KIND.create(given([
                ("model", Some(json!(model))),
                ("pricing", Some(Value::Object(import::amounts(usd)?))),
                ("effective_from", member(from.as_ref())),
                ("tenant", member(tenant.as_ref())),
                ("endpoint", member(endpoint.as_ref())),
            ])),
            Self::Delete { id } => Self::KIND.remove(id),
        })
    }
}

/// What can be done with prices, and with lists of them.
#[derive(Debug, Subcommand)]
pub enum PricesAction {
    /// With single ones.
    #[command(flatten)]
    Of(PriceAction),
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
    },
}

/// Carries out an action and returns what to print.
pub async fn run(
    action: &PricesAction,
    output: &Output,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    match action {
        PricesAction::Of(action) => records::run(action, output, load).await,
        PricesAction::Import { file, from, dry_run } => {
            let node = RunningNode::running(&load(&output.flags)?, &output.flags, OPERATOR)?;
            let made = import::run(&node, file, from.as_deref(), *dry_run).await?;
            Ok(import::told(&made, &COLUMNS, output.json))
        }
    }
}
