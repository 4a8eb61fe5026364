//! `waybill users`.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use super::{Action, Column, Kind, Said, Step, given, member};
use crate::records;

const COLUMNS: [Column; 7] = [
    ("TENANT", |user| records::text(&user["tenant"])),
    ("ID", |user| records::text(&user["id"])),
    ("NAME", |user| records::text(&user["name"])),
    ("EMAIL", |user| records::text(&user["email"])),
    ("ROLE", |user| records::text(&user["role"])),
    ("STATE", records::state_cell),
    ("LIMITS", records::limits_cell),
];

/// What can be done with members of tenants.
#[derive(Debug, Subcommand)]
pub enum UserAction {
    /// Make a member.
    Create {
        /// His id within the tenant; a fresh one where it is left out.
        #[arg(long)]
        id: Option<String>,
        /// Whose member; the key's own tenant where it is left out.
        #[arg(long)]
        tenant: Option<String>,
        /// Where he is written to.
        #[arg(long)]
        email: Option<String>,
        /// What he may do at most: free, pro, internal, admin or operator.
        #[arg(long)]
        role: Option<String>,
        /// What else is said of him.
        #[command(flatten)]
        said: Said,
    },
    /// List members.
    List {
        /// Only this tenant's.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Show one member.
    Show {
        /// Who.
        #[command(flatten)]
        user: UserId,
    },
    /// Change what is named of a member; everything else stays.
    Set {
        /// Who.
        #[command(flatten)]
        user: UserId,
        /// Where he is written to.
        #[arg(long)]
        email: Option<String>,
        /// What he may do at most.
        #[arg(long)]
        role: Option<String>,
        /// What else is said of him.
        #[command(flatten)]
        said: Said,
    },
    /// Refuse all keys of a member.
    Disable {
        /// Who.
        #[command(flatten)]
        user: UserId,
    },
    /// Serve his keys again.
    Enable {
        /// Who.
        #[command(flatten)]
        user: UserId,
    },
    /// Make a token with which a member may choose a password, once and within a day.
    ResetPassword {
        /// Who.
        #[command(flatten)]
        user: UserId,
        /// Shows the token although mail is sent.
        #[arg(long)]
        show: bool,
    },
    /// Show who changed a member, and what.
    History {
        /// Who.
        #[command(flatten)]
        user: UserId,
    },
}

/// A member.
#[derive(Debug, Clone, Args)]
pub struct UserId {
    /// His id within the tenant.
    pub id: String,
    /// Whose member; the key's own tenant where it is left out.
    #[arg(long)]
    pub tenant: Option<String>,
}

impl UserId {
    /// The path of a member, or of something of his.
    fn at(&self, part: &str) -> String {
        let tenant = self.tenant.as_deref();
        let query = tenant.map(|tenant| format!("?tenant={}", records::encoded(tenant)));
        let path = UserAction::KIND.at(&self.id);
        format!("{path}{part}{}", query.unwrap_or_default())
    }
}

impl Action for UserAction {
    const KIND: Kind = Kind::of("/api/v1/users", &COLUMNS);

    fn step(&self) -> anyhow::Result<Step> {
        Ok(match self {
            Self::List { tenant } => Self::KIND.list(tenant.as_deref()),
            Self::History { user } => Step::History(user.at("/history")),
            Self::ResetPassword { user, show } => {
                let path = user.at("/password-reset");
                let glue = if path.contains('?') { '&' } else { '?' };
                Step::Call {
                    method: Method::POST,
                    path: if *show {
                        format!("{path}{glue}mail=false")
                    } else {
                        path
                    },
                    body: None,
                }
            }
            Self::Create {
                id,
                tenant,
                email,
                role,
                said,
            } => {
                let mut body = said.described()?;
                body.extend(given([
                    ("id", member(id.as_ref())),
                    ("tenant", member(tenant.as_ref())),
                    ("email", member(email.as_ref())),
                    ("role", member(role.as_ref())),
                ]));
                Self::KIND.create(body)
            }
            Self::Show { user } => records::show(user.at("")),
            Self::Set {
                user,
                email,
                role,
                said,
            } => {
                let members = given([("email", member(email.as_ref())), ("role", member(role.as_ref()))]);
                records::change(user.at(""), members, said)
            }
            Self::Disable { user } => records::disable(user.at(""), true),
            Self::Enable { user } => records::disable(user.at(""), false),
        })
    }

    /// A token for choosing a password.
    fn told(&self, answer: &Value) -> Option<String> {
        let text = |field: &str| records::text(&answer[field]);
        matches!(self, Self::ResetPassword { .. }).then(|| {
            if answer["token"].is_null() {
                return format!(
                    "mailed to   {}\nexpires at  {}\n",
                    text("mailed_to"),
                    text("expires_at")
                );
            }
            format!(
                "token       {}\nexpires at  {}\n\nWhoever has it chooses the password: POST \
                 /auth/reset-password with {{\"token\": .., \"new_password\": ..}}\n",
                text("token"),
                text("expires_at")
            )
        })
    }
}
