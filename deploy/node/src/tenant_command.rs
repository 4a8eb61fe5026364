//! `waybill tenants`: through the management API of the node that runs on the data directory.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::command_line::{Flags, Output, Said, TenantAction};
use crate::config::Config;
use crate::management::RunningNode;
use crate::resource::{self, Column};

const PATH: &str = "/api/v1/tenants";

const COLUMNS: [Column; 4] = [
    ("ID", |tenant| resource::text(&tenant["id"])),
    ("NAME", |tenant| resource::text(&tenant["name"])),
    ("STATE", resource::state_cell),
    ("LIMITS", resource::limits_cell),
];

/// Carries out an action and returns what to print.
pub async fn run(
    action: TenantAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let Output { json: as_json, flags } = action.output();
    let (as_json, node) = (*as_json, RunningNode::running(&load(flags)?, flags)?);
    let of = |id: &str| format!("{PATH}/{}", resource::encoded(id));
    let record = match &action {
        TenantAction::List { .. } => {
            let tenants = resource::all(&node, PATH, "").await?;
            return Ok(resource::printed(&COLUMNS, &tenants, as_json));
        }
        TenantAction::History { id, .. } => {
            let history = node
                .call(Method::GET, &format!("{}/history", of(id)), None)
                .await?;
            return Ok(resource::printed_changes(&history, as_json));
        }
        TenantAction::Create { id, said, .. } => {
            let body = resource::described(said, &[("id", Some(json!(id)))])?;
            node.call(Method::POST, PATH, Some(body)).await?
        }
        TenantAction::Show { id, .. } => node.call(Method::GET, &of(id), None).await?,
        TenantAction::Set { id, said, .. } => resource::change(&node, &of(id), &Map::new(), said).await?,
        TenantAction::Disable { id, .. } => disable(&node, &of(id), true).await?,
        TenantAction::Enable { id, .. } => disable(&node, &of(id), false).await?,
    };
    Ok(resource::printed_one(&COLUMNS, &record, as_json))
}

async fn disable(node: &RunningNode, path: &str, disabled: bool) -> anyhow::Result<Value> {
    let members = Map::from_iter([("disabled".to_owned(), json!(disabled))]);
    resource::change(node, path, &members, &Said::default()).await
}
