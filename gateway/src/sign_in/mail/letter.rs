//! What letters say, pure. Names that people gave themselves stand in none of them: whoever signs up with the address
//! of somebody else chooses no word of what that one is sent.

use std::fmt::Write as _;

use schemas::account::email::Email;
use schemas::secret::Secret;

use crate::sign_in::settings::Site;

/// A letter to one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sign_in) struct Letter {
    pub(in crate::sign_in) subject: String,
    pub(in crate::sign_in) text: String,
}

/// Why somebody is written to.
#[derive(Debug, Clone)]
pub(in crate::sign_in) enum Occasion {
    /// He asked for another password.
    Forgotten(Token),
    /// An administrator gave him an account, or another way into his.
    Invited(Token),
    /// Somebody signed up with his address.
    SignedUp {
        /// With what he chooses the password.
        token: Token,
        /// An administrator has to let him in, too.
        waits: bool,
    },
    /// Somebody signed up with his address although he has an account.
    Known,
    /// An administrator let him in.
    Approved,
}

/// A token for choosing a password.
#[derive(Debug, Clone)]
pub(in crate::sign_in) struct Token(Secret<String>);

impl Token {
    pub(in crate::sign_in) fn new(text: String) -> Self {
        Self(Secret::new(text))
    }

    pub(in crate::sign_in) fn reveal(&self) -> &str {
        self.0.reveal()
    }
}

/// What somebody is sent.
pub(in crate::sign_in) fn letter(site: &Site, to: &Email, occasion: &Occasion) -> Letter {
    let name = one_line(site.name.as_deref().unwrap_or("Waybill"));
    let (subject, opening, token, closing) = match occasion {
        Occasion::Forgotten(token) => (
            format!("Another password for {name}"),
            format!("Somebody, most likely you, asked for another password for {to} at {name}."),
            Some(token),
            "If it was not you, do nothing: the password stays as it is.",
        ),
        Occasion::Invited(token) => (
            format!("Your account at {name}"),
            format!("An administrator asks you to choose the password of your account {to} at {name}."),
            Some(token),
            "If you do not expect this, do nothing.",
        ),
        Occasion::SignedUp { token, waits } => (
            format!("Your account at {name}"),
            format!("Somebody, most likely you, signed up as {to} at {name}."),
            Some(token),
            if *waits {
                "After that the account waits for the approval of an administrator, of which you are told. If it was \
                 not you, do nothing."
            } else {
                "If it was not you, do nothing: nobody can sign in."
            },
        ),
        Occasion::Known => (
            format!("Your account at {name}"),
            format!(
                "Somebody, most likely you, signed up as {to} at {name}. You have an account there already."
            ),
            None,
            "Sign in, or ask for another password there. If it was not you, do nothing: nothing is changed.",
        ),
        Occasion::Approved => (
            format!("Your account at {name}"),
            format!("Your account {to} at {name} is approved: you can sign in."),
            None,
            "If you have no password yet, or have forgotten it, ask for another one there.",
        ),
    };
    let base = site.base_url.as_deref().map(one_line);
    let text = text((&opening, closing), token, base.as_deref());
    Letter { subject, text }
}

fn text((opening, closing): (&str, &str), token: Option<&Token>, base: Option<&str>) -> String {
    let mut text = format!("{opening}\n\n");
    let base = base.map(|base| base.trim_end_matches('/'));
    // Writing to a string never fails.
    let _ = match (token.map(Token::reveal), base) {
        // Behind a # nothing is sent to any server, so that it stands in no log.
        (Some(token), Some(base)) => write!(
            text,
            "Choose the password within a day:\n\n{base}/reset-password#token={token}\n\n"
        ),
        (Some(token), None) => write!(
            text,
            "Choose the password within a day, by POST /auth/reset-password with new_password and this token:\n\n\
             {token}\n\n"
        ),
        (None, Some(base)) => write!(text, "{base}\n\n"),
        (None, None) => Ok(()),
    };
    text.push_str(closing);
    text.push('\n');
    text
}

/// A text of the configuration, on one line.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(site: &Site, occasion: &Occasion) -> Letter {
        letter(
            site,
            &Email::parse("ann@example.com").expect("an address"),
            occasion,
        )
    }

    fn token() -> Token {
        Token::new("acme.YW5u.c2VjcmV0".to_owned())
    }

    #[test]
    fn a_token_stands_in_the_letters_that_have_one_alone_and_behind_what_servers_see() {
        let site = Site {
            name: Some("Freight".to_owned()),
            base_url: Some("https://gw.example.com/".to_owned()),
            ..Site::default()
        };
        let waits = |waits| Occasion::SignedUp {
            token: token(),
            waits,
        };
        for (occasion, subject, has_token, says) in [
            (
                Occasion::Forgotten(token()),
                "Another password for Freight",
                true,
                "asked for another",
            ),
            (
                Occasion::Invited(token()),
                "Your account at Freight",
                true,
                "An administrator asks",
            ),
            (
                waits(true),
                "Your account at Freight",
                true,
                "waits for the approval",
            ),
            (
                waits(false),
                "Your account at Freight",
                true,
                "nobody can sign in",
            ),
            (
                Occasion::Known,
                "Your account at Freight",
                false,
                "have an account there already",
            ),
            (
                Occasion::Approved,
                "Your account at Freight",
                false,
                "is approved",
            ),
        ] {
            let Letter { subject: told, text } = written(&site, &occasion);
            assert_eq!(told, subject);
            assert!(text.contains(says) && text.contains("ann@example.com"), "{text}");
            let link = "\nhttps://gw.example.com/reset-password#token=acme.YW5u.c2VjcmV0\n";
            assert_eq!(text.contains(link), has_token, "{text}");
            assert_eq!(text.matches("c2VjcmV0").count(), usize::from(has_token), "{text}");
            assert!(text.contains("https://gw.example.com"), "{text}");
        }
        assert!(!format!("{:?}", Occasion::Invited(token())).contains("c2VjcmV0"));
    }

    #[test]
    fn a_site_without_an_address_says_what_the_token_is_for_and_its_name_is_one_line() {
        let site = Site {
            name: Some("Way\r\nBcc: eve@example.com".to_owned()),
            ..Site::default()
        };
        let Letter { subject, text } = written(&site, &Occasion::Forgotten(token()));

        assert!(!subject.contains(['\r', '\n']), "{subject:?}");
        assert!(
            text.contains("POST /auth/reset-password") && text.contains("\nacme.YW5u.c2VjcmV0\n"),
            "{text}"
        );
        assert!(!text.contains("\nBcc"), "{text}");
    }
}
