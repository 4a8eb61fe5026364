//! `waybill endpoints`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Action, Column, Kind, Said, Step, given, member};
use crate::UsageError;
use crate::records;

const COLUMNS: [Column; 7] = [
    ("ID", |endpoint| records::text(&endpoint["id"])),
    ("TENANT", |endpoint| records::text(&endpoint["tenant"])),
    ("NAME", |endpoint| records::text(&endpoint["name"])),
    ("KIND", |endpoint| records::text(&endpoint["kind"])),
    ("CREDENTIAL", |endpoint| {
        records::text(&endpoint["credential"]["kind"])
    }),
    ("STATE", records::state_cell),
    ("BACKENDS", |endpoint| {
        let backends = endpoint["backends"].as_array().into_iter().flatten();
        let urls: Vec<String> = backends.map(|backend| records::text(&backend["url"])).collect();
        urls.join(" ")
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
        /// The pool of routers that alone can call it, and for whom its credential is sealed.
        #[arg(long, value_name = "POOL")]
        router_pool: Option<String>,
        /// What proves to it who calls.
        #[command(flatten)]
        credential: CredentialFlags,
    },
    /// List endpoints.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show an endpoint.
    Show {
        /// Which, by its id.
        id: String,
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
    },
    /// Remove an endpoint and the routes that lead to it.
    Delete {
        /// Which, by its id.
        id: String,
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
                .map_err(|problem| UsageError(format!("{} cannot be read: {problem}", path.display())))?;
            return Ok(Some(json!({"value": text.trim()})));
        }
        let env = self.credential_env.as_ref().map(|name| json!({"env": name}));
        Ok(env.or_else(|| self.credential_file.as_ref().map(|path| json!({"file": path}))))
    }
}

fn addresses(urls: &[String]) -> Option<Value> {
    let backends = urls.iter().map(|url| json!({"url": url}));
    (!urls.is_empty()).then(|| backends.collect())
}

impl Action for EndpointAction {
    const KIND: Kind = Kind::of("/api/v1/endpoints", &COLUMNS);

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List { tenant } => Self::KIND.list(tenant.as_deref()),
            Self::Show { id } => Self::KIND.show(id),
            Self::Create {
                name,
                urls,
                tenant,
                kind,
                model,
                upstream_model,
                router_pool,
                credential,
            } => Self::KIND.create(given([
                ("name", Some(json!(name))),
                ("backends", addresses(urls)),
                ("tenant", member(tenant.as_ref())),
                ("kind", member(kind.as_ref())),
                ("model", member(model.as_ref())),
                ("upstream_model", member(upstream_model.as_ref())),
                ("pool", member(router_pool.as_ref())),
                ("credential", credential.read()?),
            ])),
            Self::Set {
                id,
                name,
                urls,
                disabled,
                credential,
            } => {
                let members = given([
                    ("name", member(name.as_ref())),
                    ("backends", addresses(urls)),
                    ("disabled", disabled.map(Value::from)),
                    ("credential", credential.read()?),
                ]);
                records::change(Self::KIND.at(id), members, &Said::default())
            }
            Self::Delete { id } => Self::KIND.remove(id),
        })
    }

    /// An endpoint that was made, and that its calls cost nothing where that is so.
    fn told(&self, endpoint: &Value) -> Option<String> {
        let is_free = matches!(self, Self::Create { .. }) && endpoint["priced"] == false;
        is_free.then(|| {
            format!(
                "{}no price holds for its model yet, so calls cost nothing: waybill prices create MODEL --usd \
                 prompt=USD --usd completion=USD\n",
                records::printed_one(&COLUMNS, endpoint, false)
            )
        })
    }
}
