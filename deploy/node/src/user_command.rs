//! `waybill users`: through the management API of the node that runs on the data directory.

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::command_line::{Flags, Output, Said, UserAction, UserId};
use crate::config::Config;
use crate::management::RunningNode;
use crate::resource::{self, Column};

const PATH: &str = "/api/v1/users";

const COLUMNS: [Column; 7] = [
    ("TENANT", |user| resource::text(&user["tenant"])),
    ("ID", |user| resource::text(&user["id"])),
    ("NAME", |user| resource::text(&user["name"])),
    ("EMAIL", |user| resource::text(&user["email"])),
    ("ROLE", |user| resource::text(&user["role"])),
    ("STATE", resource::state_cell),
    ("LIMITS", resource::limits_cell),
];

/// Carries out an action and returns what to print.
pub async fn run(
    action: UserAction,
    load: impl Fn(&Flags) -> anyhow::Result<Config>,
) -> anyhow::Result<String> {
    let Output { json: as_json, flags } = action.output();
    let (as_json, node) = (*as_json, RunningNode::running(&load(flags)?, flags)?);
    let record = match &action {
        UserAction::List { tenant, .. } => {
            let query = tenant
                .as_deref()
                .map(|tenant| format!("&tenant={}", resource::encoded(tenant)));
            let users = resource::all(&node, PATH, &query.unwrap_or_default()).await?;
            return Ok(resource::printed(&COLUMNS, &users, as_json));
        }
        UserAction::History { user, .. } => {
            let history = node.call(Method::GET, &of(user, "/history"), None).await?;
            return Ok(resource::printed_changes(&history, as_json));
        }
        UserAction::ResetPassword { user, .. } => {
            let token = node
                .call(Method::POST, &of(user, "/password-reset"), None)
                .await?;
            return Ok(told_token(&token, as_json));
        }
        UserAction::Create {
            id,
            tenant,
            email,
            role,
            said,
            ..
        } => {
            let members = [("id", id), ("tenant", tenant), ("email", email), ("role", role)];
            let members = members.map(|(field, text)| (field, text.as_ref().map(|text| json!(text))));
            let body = resource::described(said, &members)?;
            node.call(Method::POST, PATH, Some(body)).await?
        }
        UserAction::Show { user, .. } => node.call(Method::GET, &of(user, ""), None).await?,
        UserAction::Set {
            user,
            email,
            role,
            said,
            ..
        } => {
            let members = [("email", email), ("role", role)];
            let members = members
                .into_iter()
                .filter_map(|(field, text)| Some((field.to_owned(), json!(text.as_ref()?))));
            resource::change(&node, &of(user, ""), &members.collect(), said).await?
        }
        UserAction::Disable { user, .. } => disable(&node, user, true).await?,
        UserAction::Enable { user, .. } => disable(&node, user, false).await?,
    };
    Ok(resource::printed_one(&COLUMNS, &record, as_json))
}

/// A token for choosing a password, as it is printed.
fn told_token(token: &Value, as_json: bool) -> String {
    if as_json {
        return format!("{token:#}\n");
    }
    let text = |field: &str| resource::text(&token[field]);
    format!(
        "token       {}\nexpires at  {}\n\nWhoever has it chooses the password: POST /auth/reset-password with \
         {{\"token\": .., \"new_password\": ..}}\n",
        text("token"),
        text("expires_at")
    )
}

/// The path of a member, or of something of his.
fn of(user: &UserId, part: &str) -> String {
    let tenant = user
        .tenant
        .as_deref()
        .map(|tenant| format!("?tenant={}", resource::encoded(tenant)));
    format!(
        "{PATH}/{}{part}{}",
        resource::encoded(&user.id),
        tenant.unwrap_or_default()
    )
}

async fn disable(node: &RunningNode, user: &UserId, disabled: bool) -> anyhow::Result<Value> {
    let members = Map::from_iter([("disabled".to_owned(), json!(disabled))]);
    resource::change(node, &of(user, ""), &members, &Said::default()).await
}
