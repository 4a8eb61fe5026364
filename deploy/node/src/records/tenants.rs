//! `waybill tenants`.

use clap::Subcommand;
use serde_json::{Map, json};

use super::{Action, Column, Kind, Said, Step};
use crate::records;

const COLUMNS: [Column; 4] = [
    ("ID", |tenant| records::text(&tenant["id"])),
    ("NAME", |tenant| records::text(&tenant["name"])),
    ("STATE", records::state_cell),
    ("LIMITS", records::limits_cell),
];

/// What can be done with tenants.
#[derive(Debug, Subcommand)]
pub enum TenantAction {
    /// Make a tenant.
    Create {
        /// Lower-case letters, digits and hyphens.
        id: String,
        /// What is said of it.
        #[command(flatten)]
        said: Said,
    },
    /// List tenants.
    List,
    /// Show one tenant.
    Show {
        /// Which.
        id: String,
    },
    /// Change what is named of a tenant; everything else stays.
    Set {
        /// Which.
        id: String,
        /// What is said of it.
        #[command(flatten)]
        said: Said,
    },
    /// Refuse all keys of a tenant.
    Disable {
        /// Which.
        id: String,
    },
    /// Serve its keys again.
    Enable {
        /// Which.
        id: String,
    },
    /// Show who changed a tenant, and what.
    History {
        /// Which.
        id: String,
    },
}

impl Action for TenantAction {
    const KIND: Kind = Kind::of("/api/v1/tenants", &COLUMNS);

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List => Self::KIND.list(None),
            Self::History { id } => Step::History(format!("{}/history", Self::KIND.at(id))),
            Self::Create { id, said } => {
                let mut body = said.described()?;
                body.insert("id".to_owned(), json!(id));
                Self::KIND.create(body)
            }
            Self::Show { id } => Self::KIND.show(id),
            Self::Set { id, said } => records::change(Self::KIND.at(id), Map::new(), said),
            Self::Disable { id } => records::disable(Self::KIND.at(id), true),
            Self::Enable { id } => records::disable(Self::KIND.at(id), false),
        })
    }
}
