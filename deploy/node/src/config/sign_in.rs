//! How people sign in: by the section `sign_in` and by the variables that operators of the field know.

use gateway::sign_in::settings::{Features, Settings, SignUp, Site};
use schemas::account::attempts::Allowance;
use schemas::id::{DEFAULT_TENANT, TenantId};

use super::{Error, Resolver};
use crate::yaml::Problem;

/// Whether anybody is asked who he is.
const REQUIRED: &str = "USER_AUTH_ENABLED";
/// Does it although others than this machine reach the node.
const INSECURE: &str = "WAYBILL_INSECURE";
const ACCESS_MINUTES: &str = "JWT_ACCESS_TOKEN_EXPIRE_MINUTES";
const REFRESH_DAYS: &str = "JWT_REFRESH_TOKEN_EXPIRE_DAYS";
const ALGORITHM: &str = "JWT_ALGORITHM";
const COOKIE_NAME: &str = "REFRESH_TOKEN_COOKIE_NAME";
const COOKIE_DOMAIN: &str = "COOKIE_DOMAIN";

impl Resolver<'_> {
    pub(super) fn sign_in(&self) -> Result<Settings, Error> {
        let default = Settings::default();
        let access_minutes = self.within(ACCESS_MINUTES, 43_200)?;
        let refresh_days = self.within(REFRESH_DAYS, 3_650)?;
        self.algorithm()?;
        Ok(Settings {
            secret: None,
            required: self.switch(REQUIRED)?.unwrap_or(default.required),
            insecure: self.switch(INSECURE)?.unwrap_or(default.insecure),
            access_seconds: access_minutes.map_or(default.access_seconds, |minutes| minutes * 60),
            refresh_seconds: refresh_days.map_or(default.refresh_seconds, |days| days * 86_400),
            cookie_name: self.token_of_header(COOKIE_NAME)?.unwrap_or(default.cookie_name),
            cookie_secure: self.switch("COOKIE_SECURE")?.unwrap_or(default.cookie_secure),
            cookie_domain: self.token_of_header(COOKIE_DOMAIN)?,
            logins_of_email: self.allowance("LOGIN_RATE_LIMIT_PER_15MIN", default.logins_of_email)?,
            logins_of_address: self
                .allowance("LOGIN_RATE_LIMIT_PER_HOUR_PER_IP", default.logins_of_address)?,
            sign_up: self.sign_up()?,
            mail: self.mail()?,
            oidc: self.oidc()?,
            site: self.site(),
        })
    }

    /// True where whoever comes is let in.
    pub(super) fn asks_nobody(&self) -> bool {
        self.switch(REQUIRED).is_ok_and(|asks| asks == Some(false))
    }

    /// Why nobody may be let in without being asked who he is, if so.
    pub(super) fn open_to_others(&self) -> Result<Option<Problem>, Error> {
        let is_open = !self.switch(REQUIRED)?.unwrap_or(true) && !self.switch(INSECURE)?.unwrap_or(false);
        let addresses = [self.listen()?, self.admin_listen()?];
        let mut others = addresses.into_iter().flatten();
        let others = others.find(|address| !address.ip().is_loopback());
        let Some(address) = others.filter(|_| is_open) else {
            return Ok(None);
        };
        Ok(Some(of_environment(
            REQUIRED,
            &format!("whoever reaches {address} would be an administrator"),
            "listen on 127.0.0.1, or unset it; WAYBILL_INSECURE=1 does it all the same",
        )))
    }

    fn sign_up(&self) -> Result<SignUp, Error> {
        let (default, told) = (SignUp::default(), &self.settings.sign_in.sign_up);
        let enabled = self.switch("SIGNUP_ENABLED")?.or(told.enabled);
        let tenant = self.tenant_at("sign_in.sign_up.tenant", told.tenant.as_deref())?;
        Ok(SignUp {
            enabled: enabled.unwrap_or(default.enabled),
            approval: told.approval.unwrap_or(default.approval),
            domains: told.domains.clone(),
            tenant,
            of_address: self.allowance("SIGNUP_RATE_LIMIT_PER_HOUR", default.of_address)?,
        })
    }

    /// The tenant that is named at a place: one of the file, as that of a key is; the default one where none is.
    pub(super) fn tenant_at(&self, path: &str, named: Option<&str>) -> Result<TenantId, Error> {
        let named = named.unwrap_or(DEFAULT_TENANT);
        let mut tenants = self.settings.tenants.iter();
        let is_known = named == DEFAULT_TENANT || tenants.any(|known| known.id == named);
        TenantId::parse(named).filter(|_| is_known).ok_or_else(|| {
            let message = format!("there is no tenant \"{}\"", named.escape_debug());
            let problem = self.document.problem(path, message, "add it under tenants");
            problem.into()
        })
    }

    /// What visitors are told: what the manifest of a distribution says that is served, else the environment.
    fn site(&self) -> Site {
        let told = |variable: &str| self.environment.get(variable).map(str::to_owned);
        let said = |text: &String| (!text.trim().is_empty()).then(|| text.clone());
        let served = self
            .manifest
            .site
            .as_ref()
            .filter(|_| self.manifest.broken.is_none());
        let site = served.map(|(site, _)| site);
        let name = site.and_then(|_| said(&self.manifest.distribution.display_name));
        let base_url = site.and_then(|site| site.public_base_url.as_ref().and_then(said));
        let support_email = site.and_then(|site| site.support_email.as_ref().and_then(said));
        Site {
            name: name.or_else(|| told("SITE_NAME")),
            base_url: base_url.or_else(|| told("SITE_PUBLIC_BASE_URL")),
            support_email: support_email.or_else(|| told("SITE_SUPPORT_EMAIL")),
            docs_url: told("SITE_DOCS_URL"),
            features: served.map(|(_, features)| Features {
                routers: features.routers.clone(),
                public_signup: features.public_signup,
                rag: features.rag,
            }),
        }
    }

    /// How often something may be tried; 0 for any number.
    fn allowance(&self, variable: &str, default: Allowance) -> Result<Allowance, Error> {
        Ok(Allowance {
            attempts_max: self.number(variable)?.unwrap_or(default.attempts_max),
            ..default
        })
    }

    /// A number from 1 to `most`.
    fn within(&self, variable: &str, most: u64) -> Result<Option<u64>, Error> {
        match self.number::<u64>(variable)? {
            Some(number) if !(1..=most).contains(&number) => {
                let remedy = format!("write 1 to {most}");
                Err(Error::Wrong(of_environment(
                    variable,
                    "the number is out of bounds",
                    &remedy,
                )))
            }
            number => Ok(number),
        }
    }

    /// A word that can stand in the header of a cookie.
    fn token_of_header(&self, variable: &str) -> Result<Option<String>, Error> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        match self.environment.get(variable) {
            Some(word) if !word.bytes().all(plain) => Err(Error::Wrong(of_environment(
                variable,
                "it cannot stand in a cookie",
                "use letters, digits, dots, hyphens and underscores",
            ))),
            word => Ok(word.map(str::to_owned)),
        }
    }

    /// Tokens are signed by one algorithm, whatever others there are.
    fn algorithm(&self) -> Result<(), Error> {
        match self.environment.get(ALGORITHM).map(str::trim) {
            None | Some("HS256") => Ok(()),
            Some(_) => Err(Error::Wrong(of_environment(
                ALGORITHM,
                "tokens are signed with HS256 and nothing else",
                "unset it",
            ))),
        }
    }
}

fn of_environment(variable: &str, message: &str, remedy: &str) -> Problem {
    Problem {
        file: "environment".to_owned(),
        line: 0,
        path: variable.to_owned(),
        message: message.to_owned(),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::{Config, testing};

    fn loaded(yaml: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        testing::loaded(yaml, variables).map_err(|problem| problem.to_string())
    }

    pub(in crate::config) fn settings(yaml: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        loaded(yaml, variables).map(|config| config.sign_in)
    }

    #[test]
    fn visitors_are_told_what_a_distribution_says_of_its_site_while_it_is_served() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("manifest.yaml");
        let manifest = "schema_version: 1\ndistribution: { display_name: Harbor }\n\
                        site: { public_base_url: https://harbor.example, support_email: '' }\n\
                        features: { routers: [fixed], public_signup: true }\n";
        std::fs::write(&path, manifest).expect("a file");
        let named = path.to_str().expect("a path");
        let site = |mode: &str| {
            let variables = [
                ("DISTRIBUTION_CONFIG_PATH", named),
                ("DISTRIBUTION_CONFIG_MODE", mode),
                ("SITE_NAME", "Ours"),
                ("SITE_SUPPORT_EMAIL", "help@ours.example"),
            ];
            settings("", &variables).expect("settings").site
        };

        let served = site("active");
        assert_eq!(served.name.as_deref(), Some("Harbor"));
        assert_eq!(served.base_url.as_deref(), Some("https://harbor.example"));
        // Where it says nothing, the environment does.
        assert_eq!(served.support_email.as_deref(), Some("help@ours.example"));
        let features = Features {
            routers: vec!["fixed".into()],
            public_signup: true,
            rag: false,
        };
        assert_eq!(served.features, Some(features));

        let dark = site("dark");
        assert_eq!((dark.name.as_deref(), dark.base_url), (Some("Ours"), None));
        assert_eq!(dark.features, None);
    }

    #[test]
    fn sign_up_is_off_and_times_and_limits_are_the_fields_own_unless_told_otherwise() {
        let default = settings("", &[]).expect("settings");
        assert_eq!(
            (default.access_seconds, default.refresh_seconds),
            (900, 2_592_000)
        );
        assert_eq!(default.logins_of_email.attempts_max, 5);
        assert_eq!(default.logins_of_address.attempts_max, 20);
        assert!(default.required && !default.sign_up.enabled && default.sign_up.approval);

        let yaml = "tenants: [{ id: acme }]\n\
                    sign_in: { sign_up: { enabled: true, approval: false, domains: ['*.example.com'], tenant: acme } }";
        let told = settings(
            yaml,
            &[
                ("JWT_ACCESS_TOKEN_EXPIRE_MINUTES", "1"),
                ("LOGIN_RATE_LIMIT_PER_15MIN", "0"),
            ],
        );
        let told = told.expect("settings");
        assert!(told.sign_up.enabled && !told.sign_up.approval);
        assert_eq!(told.sign_up.domains, ["*.example.com"]);
        assert_eq!(told.sign_up.tenant.as_str(), "acme");
        assert_eq!((told.access_seconds, told.logins_of_email.attempts_max), (60, 0));
        let off = settings(yaml, &[("SIGNUP_ENABLED", "false")]).expect("settings");
        assert!(!off.sign_up.enabled, "a variable wins over the file");
    }

    #[test]
    fn people_sign_up_to_a_tenant_of_the_file_and_to_no_other() {
        let told = |tenant: &str| {
            let yaml = format!("tenants: [{{ id: acme }}]\nsign_in:\n  sign_up:\n    tenant: {tenant}\n");
            settings(&yaml, &[]).map(|settings| settings.sign_up.tenant.to_string())
        };

        assert_eq!(told("acme").as_deref(), Ok("acme"));
        assert_eq!(told("default").as_deref(), Ok("default"));
        for unknown in ["ghost", "'a b'", "''"] {
            let problem = told(unknown).expect_err(unknown);
            assert!(
                problem.contains("sign_in.sign_up.tenant") && problem.contains("add it under tenants"),
                "{problem}"
            );
            assert!(problem.contains("yaml:4"), "{problem}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_named() {
        for (variable, value) in [
            ("JWT_ACCESS_TOKEN_EXPIRE_MINUTES", "0"),
            ("JWT_REFRESH_TOKEN_EXPIRE_DAYS", "3651"),
            ("JWT_ALGORITHM", "none"),
            ("REFRESH_TOKEN_COOKIE_NAME", "a;b"),
            ("COOKIE_DOMAIN", "a; Secure"),
            ("USER_AUTH_ENABLED", "maybe"),
        ] {
            let told = settings("", &[(variable, value)]).expect_err(variable);
            assert!(told.contains(variable), "{told}");
        }
    }

    #[test]
    fn nobody_is_let_in_unasked_where_others_reach_the_node() {
        let servable = |variables: &[(&str, &str)]| {
            let config = loaded("", variables).expect("a configuration");
            config.servable().map_err(|problem| problem.to_string())
        };
        let off = ("USER_AUTH_ENABLED", "false");
        let everywhere = ("WAYBILL_LISTEN", "0.0.0.0:3333");

        assert_eq!(servable(&[off]), Ok(()));
        assert_eq!(servable(&[everywhere]), Ok(()));
        assert_eq!(servable(&[off, everywhere, ("WAYBILL_INSECURE", "1")]), Ok(()));
        let told = servable(&[off, everywhere]).expect_err("refused");
        assert!(told.contains("USER_AUTH_ENABLED"), "{told}");
        let admin = ("WAYBILL_ADMIN_LISTEN", "[::]:3334");
        assert!(servable(&[off, admin]).is_err());
    }
}
