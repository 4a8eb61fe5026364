//! `GET /user/me` and `GET /site-config`: who calls, and what pages must know before anybody has signed in.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use schemas::account::Account;
use schemas::catalog::user::User;
use schemas::catalog::{Catalog, Role};
use schemas::id::{TenantId, UserId};
use schemas::time::Timestamp;
use serde::Serialize;

use super::accounts;
use super::settings::Features;
use crate::caller::Caller;
use crate::manage::openapi::Operation;
use crate::manage::{self, json};
use crate::state::Shared;

/// Who calls.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Me")]
pub(crate) struct Me {
    /// The member; null for a key that is nobody's.
    id: Option<UserId>,
    /// Whose member.
    tenant: TenantId,
    /// His address of mail.
    email: Option<Arc<str>>,
    /// His name.
    user_name: Option<Arc<str>>,
    /// What he may do with the credential that he brought.
    role: Role,
    /// Whether he may call.
    #[schemars(with = "String")]
    status: &'static str,
    /// Always true: whoever may sign in needs to show no more.
    email_verified: bool,
    /// He administers his tenant, or operates the platform.
    is_admin: bool,
    /// When he was made; null for a member of a file.
    created_at: Option<Timestamp>,
    /// When he signed in last; null for whoever never did.
    last_login_at: Option<Timestamp>,
}

/// What pages must know before anybody has signed in.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SiteConfig")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each a member of the answer"
)]
pub(crate) struct Told<'a> {
    /// The site's name.
    site_name: &'a str,
    /// Where it is reached.
    public_base_url: Option<&'a str>,
    /// Whom users write to.
    support_email: Option<&'a str>,
    /// Where its documentation is.
    docs_url: Option<&'a str>,
    /// False where whoever comes is an administrator.
    user_auth_enabled: bool,
    /// People can sign in at all.
    sign_in_enabled: bool,
    /// Anybody may sign up.
    signup_enabled: bool,
    /// What there is; null where no distribution is served.
    features: Option<&'a Features>,
    /// Addresses are written to before they count: where mail is sent.
    signup_require_email_verification: bool,
    /// Whoever forgot his password has a letter sent.
    password_reset_enabled: bool,
    /// People can sign in by a provider of identities.
    oidc_enabled: bool,
}

pub(crate) const ME: Operation = Operation::read::<Me>("Shows who calls").of_callers();
pub(crate) const SITE: Operation =
    Operation::read::<Told<'static>>("Shows what pages must know before anybody has signed in")
        .of_everybody();

/// Shows who calls.
pub(crate) async fn show(State(state): State<Shared>, caller: Caller) -> Response {
    let mut me = of_caller(&caller, &state.ports.catalog.load());
    if let Some(user) = &me.id {
        // Without the store everything else is known all the same.
        let account = accounts::of(&state, (&me.tenant, user)).await;
        me.last_login_at = account.ok().flatten().and_then(|account| account.signed_in_at);
    }
    json(&me)
}

/// Shows what pages must know.
pub(crate) async fn site(State(state): State<Shared>) -> Response {
    let settings = &state.config.sign_in;
    let site = state.site();
    json(&Told {
        site_name: site.name.as_deref().unwrap_or("Waybill"),
        public_base_url: site.base_url.as_deref(),
        support_email: site.support_email.as_deref(),
        docs_url: site.docs_url.as_deref(),
        user_auth_enabled: settings.required,
        sign_in_enabled: settings.secret.is_some(),
        signup_enabled: settings.secret.is_some() && manage::settings::sign_up(&state).enabled,
        features: site.features.as_ref(),
        signup_require_email_verification: state.sign_in.errands.sends_mail(),
        password_reset_enabled: settings.secret.is_some() && state.sign_in.errands.sends_mail(),
        oidc_enabled: settings.secret.is_some() && settings.oidc.is_some(),
    })
}

fn of_caller(caller: &Caller, catalog: &Catalog) -> Me {
    let user = caller.key.user.clone();
    let member = user.as_ref().and_then(|user| catalog.user(caller.tenant(), user));
    Me {
        id: user.clone(),
        role: caller.role(),
        is_admin: caller.role() >= Role::Admin,
        ..of_member(caller.tenant(), member)
    }
}

/// Who an account is of.
pub(super) fn of_account(account: &Account, catalog: &Catalog) -> Me {
    let member = catalog.user(&account.tenant, &account.user);
    Me {
        id: Some(account.user.clone()),
        email: Some(account.email.text()),
        last_login_at: account.signed_in_at,
        ..of_member(&account.tenant, member)
    }
}

fn of_member(tenant: &TenantId, member: Option<&User>) -> Me {
    let role = member.and_then(|member| member.role).unwrap_or_default();
    Me {
        id: None,
        tenant: tenant.clone(),
        email: member.and_then(|member| member.email.clone()),
        user_name: member.and_then(|member| member.name.clone()),
        role,
        status: "active",
        email_verified: true,
        is_admin: role >= Role::Admin,
        created_at: member.and_then(|member| member.created_at),
        last_login_at: None,
    }
}
