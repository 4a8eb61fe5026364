//! The server that takes mail to members: section `smtp`, and the variables that operators of the field know.

use std::net::IpAddr;

use gateway::sign_in::mail::{Server, Tls, is_sender};
use schemas::secret::Secret;

use super::{Error, Resolver};

/// Where mail is handed in, in the clear at first.
const PORT_STARTTLS: u16 = 587;
/// Where it is, under TLS from the first byte.
const PORT_TLS: u16 = 465;
/// Where servers take it from each other, and those of one's own machine.
const PORT_NONE: u16 = 25;
/// Where it is set with what one signs in to the server.
const PASSWORD: &str = "SMTP_PASSWORD";

impl Resolver<'_> {
    /// What takes mail; `None` where no server is named.
    pub(super) fn mail(&self) -> Result<Option<Server>, Error> {
        let told = self.settings.smtp.clone().unwrap_or_default();
        let host = self.pick(None, "SMTP_HOST", told.host.as_ref());
        let Some(host) = host.map(|host| host.trim().to_owned()) else {
            return self.settings.smtp.as_ref().map_or(Ok(None), |_| {
                let message = "no server is named".to_owned();
                Err(self.of_mail(
                    "host",
                    "SMTP_HOST",
                    message,
                    "write its name, or drop the section",
                ))
            });
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            let message = "the name of the server is none".to_owned();
            return Err(self.of_mail("host", "SMTP_HOST", message, "write it like smtp.example.com"));
        }
        let tls = self.tls_of_mail(told.tls.as_deref())?;
        let login = self.login_of_mail(&host, tls)?;
        let port = self
            .number::<u16>("SMTP_PORT")?
            .or(told.port)
            .unwrap_or(match tls {
                Tls::Starttls => PORT_STARTTLS,
                Tls::Wrapped => PORT_TLS,
                Tls::None => PORT_NONE,
            });
        Ok(Some(Server {
            from: self.sender()?,
            host,
            port,
            tls,
            login,
        }))
    }

    fn tls_of_mail(&self, told: Option<&str>) -> Result<Tls, Error> {
        match told.unwrap_or("starttls") {
            "starttls" => Ok(Tls::Starttls),
            "tls" => Ok(Tls::Wrapped),
            "none" => Ok(Tls::None),
            other => {
                let message = format!("\"{}\" is no way to keep mail from others", other.escape_debug());
                Err(self.of_mail("tls", "", message, "use starttls, tls or none"))
            }
        }
    }

    /// As whom one comes. A password goes in the clear to one's own machine alone.
    fn login_of_mail(&self, host: &str, tls: Tls) -> Result<Option<(String, Secret<String>)>, Error> {
        let told = self.settings.smtp.clone().unwrap_or_default();
        let user = self.pick(None, "SMTP_USER", told.user.as_ref());
        let place = ("smtp.password_file", told.password_file.as_deref());
        let password = self.secret_of((PASSWORD, told.password.as_ref()), place)?;
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match (user, password) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) if tls == Tls::None && !is_here => {
                let message = "the password would be sent in the clear".to_owned();
                Err(self.of_mail(
                    "tls",
                    "",
                    message,
                    "use starttls or tls, or drop user and password",
                ))
            }
            (Some(user), Some(password)) => Ok(Some((user, password))),
            _ => {
                let message = "a user and a password go together".to_owned();
                Err(self.of_mail("user", "SMTP_USER", message, "give both, or none"))
            }
        }
    }

    /// From whom letters are.
    fn sender(&self) -> Result<String, Error> {
        let told = self.settings.smtp.as_ref().and_then(|smtp| smtp.from.clone());
        let address = self.environment.get("SMTP_FROM_EMAIL");
        let from = match (address, self.environment.get("SMTP_FROM_NAME")) {
            (Some(address), Some(name)) => Some(format!("\"{name}\" <{address}>")),
            (Some(address), None) => Some(address.to_owned()),
            (None, _) => told,
        };
        from.filter(|from| is_sender(from)).ok_or_else(|| {
            let message = "letters are from nobody, or from what is no address of mail".to_owned();
            let remedy = "write it like Waybill <no-reply@example.com>";
            self.of_mail("from", "SMTP_FROM_EMAIL", message, remedy)
        })
    }

    /// A secret: of its variable, of its key in the file, or of the file that another key names.
    pub(super) fn secret_of(
        &self,
        (variable, told): (&str, Option<&Secret<String>>),
        (path, file): (&str, Option<&str>),
    ) -> Result<Option<Secret<String>>, Error> {
        let told = self.secret(variable).or_else(|| told.cloned());
        let Some(file) = file else {
            return Ok(told.filter(|secret| !secret.reveal().is_empty()));
        };
        if told.is_some() {
            let message = "the secret is given twice";
            let remedy = format!("drop this, or {variable} and the key beside it");
            return Err(self.document.problem(path, message, remedy).into());
        }
        let text = super::read(&self.files, file.as_ref())?;
        let text = text.trim_end_matches(['\r', '\n']).to_owned();
        if text.is_empty() {
            return Err(self
                .document
                .problem(path, "the file is empty", "write the secret into it")
                .into());
        }
        Ok(Some(Secret::new(text)))
    }

    fn of_mail(&self, key: &str, variable: &str, message: String, remedy: &str) -> Error {
        self.given((&format!("smtp.{key}"), None, variable), message, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sign_in::tests::settings;

    fn mail(yaml: &str, variables: &[(&str, &str)]) -> Result<Option<Server>, String> {
        settings(yaml, variables).map(|settings| settings.mail)
    }

    #[test]
    fn mail_is_off_until_a_server_is_named_and_goes_under_tls_unless_told_otherwise() {
        assert!(mail("", &[]).expect("settings").is_none());
        let yaml = "smtp: { host: mail.example.com, from: 'Waybill <no-reply@example.com>', user: w, password: '${PW}' }";
        let server = mail(yaml, &[("PW", "hush")])
            .expect("settings")
            .expect("a server");
        assert_eq!(
            (server.host.as_str(), server.port, server.tls),
            ("mail.example.com", 587, Tls::Starttls)
        );
        let (user, password) = server.login.clone().expect("a login");
        assert_eq!((user.as_str(), password.reveal().as_str()), ("w", "hush"));
        assert!(!format!("{server:?}").contains("hush"));

        let variables = [
            ("SMTP_HOST", "smtp.example.org"),
            ("SMTP_PORT", "2525"),
            ("SMTP_USER", "w"),
            ("SMTP_PASSWORD", "hush"),
            ("SMTP_FROM_EMAIL", "no-reply@example.org"),
            ("SMTP_FROM_NAME", "Freight"),
        ];
        let server = mail("", &variables).expect("settings").expect("a server");
        assert_eq!(
            (server.port, server.from.as_str()),
            (2525, "\"Freight\" <no-reply@example.org>")
        );
        let wrapped = "smtp: { host: h, from: a@b.c, tls: tls }";
        assert_eq!(mail(wrapped, &[]).expect("settings").expect("a server").port, 465);
    }

    #[test]
    fn a_password_is_read_from_a_file_and_given_once() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hush\n").expect("written");
        let yaml = format!(
            "smtp: {{ host: h, from: a@b.c, user: w, password_file: '{}' }}",
            file.path().display()
        );
        let server = mail(&yaml, &[]).expect("settings").expect("a server");
        assert_eq!(server.login.expect("a login").1.reveal(), "hush");
        let twice = mail(&yaml, &[("SMTP_PASSWORD", "other")]).expect_err("twice");
        assert!(
            twice.contains("smtp.password_file") && !twice.contains("other"),
            "{twice}"
        );
    }

    #[test]
    fn what_cannot_be_mailed_by_is_told_with_its_place() {
        for (yaml, place) in [
            ("smtp: { from: a@b.c }", "smtp.host"),
            ("smtp: { host: 'a b', from: a@b.c }", "smtp.host"),
            ("smtp: { host: h }", "smtp.from"),
            ("smtp: { host: h, from: nobody }", "smtp.from"),
            ("smtp: { host: h, from: a@b.c, tls: maybe }", "smtp.tls"),
            ("smtp: { host: h, from: a@b.c, user: w }", "smtp.user"),
            (
                "smtp: { host: h, from: a@b.c, tls: none, user: w, password: x }",
                "smtp.tls",
            ),
            ("smtp: { host: h, from: a@b.c, port: 99999 }", "port"),
            ("smtp: { host: h, from: a@b.c, hots: x }", "hots"),
        ] {
            let told = mail(yaml, &[]).expect_err(yaml);
            assert!(told.contains(place), "{yaml}: {told}");
        }
        let here = "smtp: { host: 127.0.0.1, from: a@b.c, tls: none, user: w, password: x }";
        assert!(mail(here, &[]).is_ok());
    }
}
