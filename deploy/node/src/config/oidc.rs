//! The provider of identities by which members sign in: section `oidc`.

use gateway::sign_in::oidc::is_address;
use gateway::sign_in::settings::Provider;
use schemas::catalog::Role;

use super::{Error, Resolver};
use crate::keys;

/// Where it is set with what this deployment shows the provider that it is itself.
const SECRET: &str = "OIDC_CLIENT_SECRET";
/// Where browsers find this site.
const BASE_URL: &str = "SITE_PUBLIC_BASE_URL";
/// Where the provider sends them back to.
const CALLBACK: &str = "/auth/oidc/callback";
/// What is asked of it in any case, and what where nothing is said.
const SCOPES_MIN: [&str; 2] = ["openid", "email"];

impl Resolver<'_> {
    pub(super) fn oidc(&self) -> Result<Option<Provider>, Error> {
        let Some(told) = &self.settings.oidc else {
            return Ok(None);
        };
        let wrong = |key: &str, message: &str, remedy: &str| {
            let path = format!("oidc.{key}");
            Err(self.document.problem(&path, message, remedy).into())
        };
        if !is_address(&told.issuer) {
            let remedy =
                "write it as the provider does, like https://login.example.com; http:// only on this machine";
            return wrong("issuer", "this is no address of a provider", remedy);
        }
        if told.client_id.trim().is_empty() {
            return wrong(
                "client_id",
                "the client has no name",
                "write what the provider calls it",
            );
        }
        let mut scopes: Vec<String> = SCOPES_MIN.map(str::to_owned).to_vec();
        for scope in told.scopes.iter().flatten() {
            if scope.is_empty() || scope.contains(|char: char| !char.is_ascii_graphic()) {
                return wrong(
                    "scopes",
                    "a scope is one word",
                    "write them as a list, like [openid, email]",
                );
            }
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        let tenant = self.tenant_at("oidc.tenant", told.tenant.as_deref())?;
        let role = keys::role(told.role.as_deref().unwrap_or("free"));
        let Some(role) = role.filter(|role| *role < Role::Operator) else {
            let remedy = "use free, pro, internal or admin; operators are made by operators";
            return wrong("role", "new members cannot have this role", remedy);
        };
        let file = ("oidc.client_secret_file", told.client_secret_file.as_deref());
        Ok(Some(Provider {
            issuer: told.issuer.clone(),
            client_id: told.client_id.trim().to_owned(),
            client_secret: self.secret_of((SECRET, told.client_secret.as_ref()), file)?,
            scopes,
            domains: told.allowed_domains.clone(),
            tenant,
            create_members: told.create_members,
            role,
            redirect_uri: self.redirect_uri()?,
        }))
    }

    /// Never by what a request says of this site's name.
    fn redirect_uri(&self) -> Result<String, Error> {
        let base = self.environment.get(BASE_URL).map(str::trim);
        let base = base.map(|base| base.trim_end_matches('/'));
        if let Some(base) = base.filter(|base| is_address(base)) {
            return Ok(format!("{base}{CALLBACK}"));
        }
        let message = "the provider sends browsers back to this site, whose address is not set".to_owned();
        let remedy = "set SITE_PUBLIC_BASE_URL, like https://waybill.example.com";
        Err(self.given(("oidc", None, BASE_URL), message, remedy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sign_in::tests::settings;

    const SITE: (&str, &str) = (BASE_URL, "https://gw.example.com/");

    fn oidc(yaml: &str, variables: &[(&str, &str)]) -> Result<Option<Provider>, String> {
        settings(yaml, variables).map(|settings| settings.oidc)
    }

    #[test]
    fn a_provider_is_named_with_what_it_may_do_and_nothing_of_it_is_guessed() {
        assert!(oidc("", &[SITE]).expect("settings").is_none());
        let yaml = "tenants: [{ id: acme }]\n\
                    oidc: { issuer: 'https://login.example.com', client_id: waybill, client_secret: '${S}', \
                    scopes: [openid, profile], allowed_domains: [example.com], tenant: acme, role: pro, \
                    create_members: true }";
        let provider = oidc(yaml, &[SITE, ("S", "hush")])
            .expect("settings")
            .expect("a provider");

        assert_eq!(provider.redirect_uri, "https://gw.example.com/auth/oidc/callback");
        assert_eq!(provider.scopes, ["openid", "email", "profile"]);
        assert_eq!((provider.tenant.as_str(), provider.role), ("acme", Role::Pro));
        assert_eq!(provider.create_members, Some(true));
        assert_eq!(
            provider.client_secret.as_ref().expect("a secret").reveal(),
            "hush"
        );
        assert!(!format!("{provider:?}").contains("hush"));
        let least = "oidc: { issuer: 'http://127.0.0.1:8080', client_id: waybill }";
        let provider = oidc(least, &[SITE, (SECRET, "hush")])
            .expect("settings")
            .expect("a provider");
        assert_eq!((provider.tenant.as_str(), provider.role), ("default", Role::Free));
        assert_eq!(provider.create_members, None);
        assert!(provider.client_secret.is_some());
    }

    #[test]
    fn what_nobody_can_sign_in_by_is_told_with_its_place() {
        let least = "issuer: 'https://login.example.com', client_id: waybill";
        for (yaml, place) in [
            (
                "oidc: { issuer: 'http://login.example.com', client_id: waybill }".to_owned(),
                "oidc.issuer",
            ),
            (
                "oidc: { issuer: login, client_id: waybill }".to_owned(),
                "oidc.issuer",
            ),
            (
                "oidc: { issuer: 'https://login.example.com', client_id: '' }".to_owned(),
                "oidc.client_id",
            ),
            (format!("oidc: {{ {least}, role: operator }}"), "oidc.role"),
            (format!("oidc: {{ {least}, role: king }}"), "oidc.role"),
            (format!("oidc: {{ {least}, tenant: 'a b' }}"), "oidc.tenant"),
            (format!("oidc: {{ {least}, tenant: ghost }}"), "oidc.tenant"),
            (
                format!("oidc: {{ {least}, create_members: maybe }}"),
                "create_members",
            ),
            (format!("oidc: {{ {least}, scopes: ['a b'] }}"), "oidc.scopes"),
            (format!("oidc: {{ {least}, scope: a }}"), "scope"),
        ] {
            let told = oidc(&yaml, &[SITE]).expect_err(&yaml);
            assert!(told.contains(place), "{yaml}: {told}");
        }
        let yaml = format!("oidc: {{ {least} }}");
        let told = oidc(&yaml, &[]).expect_err("no site");
        assert!(told.contains("SITE_PUBLIC_BASE_URL"), "{told}");
    }
}
