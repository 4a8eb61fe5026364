//! What can be typed after `waybill`. Every flag of `serve` has an environment variable and a key of
//! waybill.yaml; the flag wins over the variable, the variable over the file.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::reconcile;
use crate::records::Said;
use crate::records::endpoints::EndpointAction;
use crate::records::grants::GrantAction;
use crate::records::prices::PricesAction;
use crate::records::routes::RouteAction;
use crate::records::tenants::TenantAction;
use crate::records::users::UserAction;
use crate::reprice;
use crate::simulate::SimulateAction;
use crate::verify;

/// An LLM inference gateway whose core is a log.
#[derive(Debug, Parser)]
#[command(name = "waybill", version, arg_required_else_help = true)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run this node.
    Serve(Flags),
    /// Say what the configuration means and what is wrong with it, then exit.
    CheckConfig(Flags),
    /// Bring the tables of the books up to date.
    Migrate(Flags),
    /// Empty the spool: a node that runs on the data directory drains and ends, without one the spool is opened.
    Drain {
        /// How long the books may take.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        wait_seconds: u64,
        /// Where the node's data is, and how the bus is reached.
        #[command(flatten)]
        flags: Flags,
    },
    /// Have a running node read its files again: models.yaml, routing.yaml, the credentials that they name, the manifest,
    /// and the tenants, users, role limits and keys of waybill.yaml. It does so by itself when one of them changes.
    Reload(Flags),
    /// See what of the configuration files is in force, what is wrong with them, what they changed, and put it back.
    Config {
        /// What to do.
        #[command(subcommand)]
        action: ConfigAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Print the catalogue of a running node as YAML, without keys and secrets.
    Export(Output),
    /// Have a running node take in the records of an exported catalogue that are of run time.
    Import {
        /// The document, YAML or JSON; - for stdin.
        file: PathBuf,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// See who is in the cluster, declare a node gone.
    Node {
        /// What to do with them.
        #[command(subcommand)]
        action: NodeAction,
    },
    /// Read the log again.
    Replay {
        /// Replace the tables by what the log says.
        #[arg(long)]
        rebuild: bool,
        /// Publish the events of a spool that was rescued from a lost node.
        #[arg(long, value_name = "DIR", conflicts_with = "rebuild")]
        spool: Option<PathBuf>,
        /// How long the books may take to have what is published.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        wait_seconds: u64,
        /// Where the node's data is, and how it is reached.
        #[command(flatten)]
        flags: Flags,
    },
    /// Manage virtual keys.
    Keys {
        /// What to do with them.
        #[command(subcommand)]
        action: KeyAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Manage tenants, through the node that runs here.
    Tenants {
        /// What to do with them.
        #[command(subcommand)]
        action: TenantAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Manage members of tenants, through the node that runs here.
    Users {
        /// What to do with them.
        #[command(subcommand)]
        action: UserAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Manage endpoints, through the node that runs here.
    Endpoints {
        /// What to do with them.
        #[command(subcommand)]
        action: EndpointAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Manage routes to models that were added at run time, through the node that runs here.
    Routes {
        /// What to do with them.
        #[command(subcommand)]
        action: RouteAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Manage prices, through the node that runs here.
    Prices {
        /// What to do with them.
        #[command(subcommand)]
        action: PricesAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Hand out, list and revoke grants for jobs, through the node that runs here, with the token for it.
    Grants {
        /// What to do with them.
        #[command(subcommand)]
        action: GrantAction,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Compare what a provider bills with the books of the node that runs here.
    Reconcile {
        /// What is compared.
        #[command(flatten)]
        asked: reconcile::Asked,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Compare the counters of quotas with the books, through the node that runs here.
    Counters(Output),
    /// Compute what requests cost by prices that were corrected afterwards, through the node that runs here.
    Reprice {
        /// What is repriced.
        #[command(flatten)]
        asked: reprice::Asked,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Compute the seals of days again from the books: finds rows that were changed, dropped, added or swapped.
    Verify {
        /// What is verified.
        #[command(flatten)]
        asked: verify::Asked,
        /// How the outcome is told.
        #[command(flatten)]
        output: Output,
    },
    /// Try policies out on paper: on mock engines, and on requests that were recorded.
    Simulate {
        /// What to simulate.
        #[command(subcommand)]
        action: SimulateAction,
    },
    /// Print the version.
    Version,
}

/// What can be done with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigAction {
    /// Which files are in force at which node.
    Show,
    /// What is wrong with the files of the node that runs here.
    Problems,
    /// What files changed, the newest first.
    History,
    /// What is different between two revisions.
    Diff {
        /// The number of a revision.
        from: u64,
        /// The number of another.
        to: u64,
    },
    /// Put back what files said after a revision. The files stay as they are, and their next change wins.
    Rollback {
        /// The number of the revision.
        to: u64,
    },
}

/// What can be done with the nodes of a cluster.
#[derive(Debug, Subcommand)]
pub enum NodeAction {
    /// List nodes, and whether they live.
    List {
        /// How the bus is reached.
        #[command(flatten)]
        flags: Flags,
    },
    /// Declare a node gone for good: its open requests become lost.
    Forget {
        /// The node's name, or the id of its spool.
        id: String,
        /// Also when it lives.
        #[arg(long)]
        force: bool,
        /// How the bus is reached.
        #[command(flatten)]
        flags: Flags,
    },
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Mint a key and print it once.
    Create {
        /// Its name.
        #[arg(long)]
        name: String,
        /// Who pays.
        #[arg(long, default_value = "default")]
        tenant: String,
        /// The member it belongs to.
        #[arg(long)]
        user: Option<String>,
        /// free, pro, internal, admin or operator.
        #[arg(long, default_value = "free")]
        role: String,
        /// Only these models, separated by commas.
        #[arg(long, value_delimiter = ',')]
        models: Option<Vec<String>>,
        /// What it may use, such as `rpm=60`, `daily_usd=1.50` or, of one model, `rpm@MODEL=10`; repeatable.
        #[arg(long = "limit", value_name = "KEY[@MODEL]=AMOUNT")]
        limits: Vec<String>,
        /// Most output tokens of a call that names no maximum.
        #[arg(long, value_name = "TOKENS")]
        output_default_max: Option<u64>,
        /// Refused from then on: RFC 3339.
        #[arg(long)]
        expires_at: Option<String>,
    },
    /// List keys.
    List,
    /// Change what is named of a key, through the node that runs here; everything else stays.
    Set {
        /// Its id or name.
        #[arg(value_name = "KEY")]
        named: String,
        /// What is said of it.
        #[command(flatten)]
        said: Said,
        /// Only these models, separated by commas.
        #[arg(long, value_delimiter = ',', conflicts_with = "all_models")]
        models: Option<Vec<String>>,
        /// All models that the key may use which is presented.
        #[arg(long)]
        all_models: bool,
        /// Refused from then on: RFC 3339, or `never`.
        #[arg(long)]
        expires_at: Option<String>,
        /// Most output tokens of a call that names no maximum; 0 for none.
        #[arg(long, value_name = "TOKENS")]
        output_default_max: Option<u64>,
    },
    /// Print what gateways are given as `WAYBILL_PUBLIC_KEY`; it follows from the master key.
    Public,
    /// Revoke a key by its id or name.
    Revoke {
        /// Its id or name.
        #[arg(value_name = "KEY")]
        named: String,
    },
}

/// How the outcome of a command is told, and where the node is that is asked.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// JSON instead of a table.
    #[arg(long, global = true)]
    pub json: bool,
    /// Where the node's data is, and how it is reached.
    #[command(flatten)]
    pub flags: Flags,
}

/// Node settings that can be given as flags.
#[derive(Debug, Clone, Default, Args)]
pub struct Flags {
    /// waybill.yaml [env: `WAYBILL_CONFIG`]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to bind; port 0 picks a free one [env: `WAYBILL_LISTEN`] [default: 127.0.0.1:3333]
    #[arg(long, global = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// A second address for management, metrics and health [env: `WAYBILL_ADMIN_LISTEN`]
    #[arg(long, global = true, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Where everything lives [env: `WAYBILL_DATA_DIR`] [default: ./data]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Roles of this process: all, or a list of gateway, router, health, ledger [env: `WAYBILL_ROLES`]
    #[arg(long, global = true)]
    pub roles: Option<String>,
    /// Pool of its router [env: `WAYBILL_POOL`] [default: default]
    #[arg(long, global = true)]
    pub pool: Option<String>,
    /// NATS servers [env: `NATS_URL`]
    #[arg(long, global = true, value_name = "URL")]
    pub nats_url: Option<String>,
    /// Postgres [env: `DATABASE_URL`]
    #[arg(long, global = true, value_name = "URL")]
    pub database_url: Option<String>,
    /// text or json [env: `LOG_FORMAT`] [default: text]
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// The key that management calls to a running node present [env: `WAYBILL_KEY`, `ADMIN_TOKEN`]
    #[arg(long, global = true, value_name = "KEY")]
    pub key: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_argument_has_a_name_of_its_own() {
        super::CommandLine::command().debug_assert();
    }
}
