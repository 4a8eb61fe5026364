//! `waybill grants`: with the token of whoever hands out grants, which is no key.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Action, Column, Kind, Step, given, member};
use crate::records;

const COLUMNS: [Column; 7] = [
    ("ID", |grant| records::text(&grant["id"])),
    ("TENANT", |grant| records::text(&grant["tenant"])),
    ("USER", |grant| records::text(&grant["user"])),
    ("JOB", |grant| records::text(&grant["external_job_id"])),
    ("MODELS", |grant| records::models_cell(&grant["allowed_models"])),
    ("UNTIL", |grant| records::text(&grant["expires_at"])),
    ("STATE", records::credential_cell),
];

/// What can be done with grants.
#[derive(Debug, Subcommand)]
pub enum GrantAction {
    /// Hand out a grant and print its token once.
    Create {
        /// The member for whom the job works.
        user: String,
        /// How the job is called; it stands in the rows of its calls.
        #[arg(long)]
        job: String,
        /// How long it lasts.
        #[arg(long)]
        minutes: u32,
        /// Whose member; `default` where it is left out.
        #[arg(long)]
        tenant: Option<String>,
        /// Only these models, separated by commas.
        #[arg(long, value_delimiter = ',')]
        models: Option<Vec<String>>,
    },
    /// List grants.
    List {
        /// Only for members of this tenant.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Revoke a grant.
    Revoke {
        /// Which, by its id.
        id: String,
    },
}

impl Action for GrantAction {
    const KIND: Kind = Kind {
        path: "/internal/agent-grants",
        columns: &COLUMNS,
        credential: &["GATEWAY_GRANT_DISPATCH_TOKEN"],
    };

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List { tenant } => Self::KIND.list(tenant.as_deref()),
            Self::Create {
                user,
                job,
                minutes,
                tenant,
                models,
            } => Self::KIND.create(given([
                ("user", Some(json!(user))),
                ("external_job_id", Some(json!(job))),
                ("minutes", Some(json!(minutes))),
                ("tenant", member(tenant.as_ref())),
                ("allowed_models", models.as_ref().map(|models| json!(models))),
            ])),
            Self::Revoke { id } => Self::KIND.revoke(id),
        })
    }

    /// The token of a grant that was made.
    fn told(&self, grant: &Value) -> Option<String> {
        let text = |field: &str| records::text(&grant[field]);
        matches!(self, Self::Create { .. }).then(|| {
            format!(
                "id    {}\ntoken {}\nuntil {}\nThe token is shown only now.\n",
                text("id"),
                text("token"),
                text("expires_at")
            )
        })
    }
}
