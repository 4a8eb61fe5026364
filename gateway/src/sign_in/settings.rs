//! What a node tells of signing in.

use schemars::JsonSchema;
use schemas::account::attempts::Allowance;
use schemas::catalog::Role;
use schemas::id::{DEFAULT_TENANT, TenantId};
use schemas::secret::Secret;
use serde::Serialize;

use super::mail::Server;

/// How people sign in. [`Settings::default`] has everything but the secret: without one nobody signs in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Signs tokens; the same on every gateway. `None` turns sign-in off.
    pub secret: Option<Secret<Vec<u8>>>,
    /// False where whoever comes without a credential is an administrator: for one's own machine.
    pub required: bool,
    /// Serves such visitors under any name of this node, not only under those of the machine itself.
    pub insecure: bool,
    /// How long an access token is good, in seconds.
    pub access_seconds: u64,
    /// How long a session lasts that is not refreshed, in seconds.
    pub refresh_seconds: u64,
    /// The name of the cookie with the refresh token.
    pub cookie_name: String,
    /// Browsers send the cookie over TLS only. Never said to those that reach the node by a name of its own machine.
    pub cookie_secure: bool,
    /// The domain of the cookie; `None` for the name that the node is reached by.
    pub cookie_domain: Option<String>,
    /// Attempts to sign in to one account.
    pub logins_of_email: Allowance,
    /// Attempts from one address.
    pub logins_of_address: Allowance,
    /// Who may sign up.
    pub sign_up: SignUp,
    /// What takes mail; `None` where nobody is written to.
    pub mail: Option<Server>,
    /// By what else people sign in; `None` where they do by passwords alone.
    pub oidc: Option<Provider>,
    /// What the console is told of the site.
    pub site: Site,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            secret: None,
            required: true,
            insecure: false,
            access_seconds: 15 * 60,
            refresh_seconds: 30 * 86_400,
            cookie_name: "refresh_token".to_owned(),
            cookie_secure: true,
            cookie_domain: None,
            logins_of_email: Allowance {
                attempts_max: 5,
                seconds: 15 * 60,
            },
            logins_of_address: Allowance {
                attempts_max: 20,
                seconds: 3_600,
            },
            sign_up: SignUp::default(),
            mail: None,
            oidc: None,
            site: Site::default(),
        }
    }
}

/// A provider of identities, as `OpenID` Connect has it.
#[derive(Debug, Clone)]
pub struct Provider {
    /// Its address, which is its name as well.
    pub issuer: String,
    /// What it knows this deployment by.
    pub client_id: String,
    /// With what this deployment shows that it is that; `None` where the provider asks for nothing.
    pub client_secret: Option<Secret<String>>,
    /// What is asked of it: `openid` and `email` at least.
    pub scopes: Vec<String>,
    /// Whose addresses may sign in, written as [`SignUp::domains`] are; with none, those of every domain.
    pub domains: Vec<String>,
    /// The tenant whose members sign in by it, and that new ones are of.
    pub tenant: TenantId,
    /// Whoever is no member is made one; `None` where people may sign up by themselves.
    pub create_members: Option<bool>,
    /// What new members may do.
    pub role: Role,
    /// Where it sends browsers back to: `/auth/oidc/callback` of this site.
    pub redirect_uri: String,
}

/// Who may sign up by himself.
#[derive(Debug, Clone)]
pub struct SignUp {
    /// Anybody may at all.
    pub enabled: bool,
    /// Whoever is of no domain of the list waits for an administrator; without it he is refused.
    pub approval: bool,
    /// Domains of addresses of mail that need no approval: `example.com`, or `*.example.com` for all below it.
    pub domains: Vec<String>,
    /// The tenant that new members are of.
    pub tenant: TenantId,
    /// How many may sign up from one address.
    pub of_address: Allowance,
}

impl Default for SignUp {
    fn default() -> Self {
        Self {
            enabled: false,
            approval: true,
            domains: Vec::new(),
            tenant: TenantId::from(DEFAULT_TENANT),
            of_address: Allowance {
                attempts_max: 5,
                seconds: 3_600,
            },
        }
    }
}

/// What pages say of the site.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// Its name.
    pub name: Option<String>,
    /// Where it is reached.
    pub base_url: Option<String>,
    /// Whom users write to.
    pub support_email: Option<String>,
    /// Where its documentation is.
    pub docs_url: Option<String>,
    /// What there is; nothing is said of it where no distribution is served.
    pub features: Option<Features>,
}

/// What visitors are told that there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "SiteFeatures")]
pub struct Features {
    /// How calls may be routed.
    pub routers: Vec<String>,
    /// Whether visitors are meant to sign up.
    pub public_signup: bool,
    /// Whether documents can be searched.
    pub rag: bool,
}
