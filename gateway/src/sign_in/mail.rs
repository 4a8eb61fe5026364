//! Mail to members: one server that takes it, and letters in plain text. What is sent over the wire is never chosen by
//! whoever the letter is about: no line of it is his, but for his address.

use std::time::Duration;

use bus::mint::Mint;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp;
use lettre::transport::smtp::AsyncSmtpTransport;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls as Wire, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, AsyncTransport as _, Tokio1Executor};
use schemas::account::email::Email;
use schemas::secret::Secret;

pub(super) mod letter;

use letter::Letter;

/// How long the server may take over each command.
const WITHIN: Duration = Duration::from_secs(20);

/// A server that takes mail.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its name, which its certificate has to have.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How what is said is kept from others.
    pub tls: Tls,
    /// As whom one says to come, and with which password; `None` where nobody is asked.
    pub login: Option<(String, Secret<String>)>,
    /// From whom letters are: `Name <name@example.com>`, or the address alone.
    pub from: String,
}

/// How a connection to a server of mail is kept from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Begins in the clear and goes on under TLS, or not at all.
    Starttls,
    /// TLS from the first byte.
    Wrapped,
    /// Everything in the clear.
    None,
}

/// True for what can stand as the one whom letters are from.
pub fn is_sender(text: &str) -> bool {
    let one_line = !text.chars().any(char::is_control);
    one_line && text.parse::<Mailbox>().is_ok()
}

/// Why a letter was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The server will not take it, or nobody can be written to there: with its code, where it said one.
    Refused(Option<u16>),
    /// It may be sent later.
    Later(Option<u16>),
}

/// Sends letters.
pub(crate) struct Post {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl Post {
    /// By way of a server. `None` where it can never work: the sender is none, or there is no TLS.
    pub(super) fn new(server: &Server) -> Option<Self> {
        let from: Mailbox = server.from.parse().ok()?;
        let parameters = || TlsParameters::new(server.host.clone()).ok();
        let wire = match server.tls {
            Tls::Starttls => Wire::Required(parameters()?),
            Tls::Wrapped => Wire::Wrapper(parameters()?),
            Tls::None => Wire::None,
        };
        let hello = ClientId::Domain(from.email.domain().to_owned());
        let builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(server.host.as_str())
            .port(server.port)
            .tls(wire)
            .hello_name(hello)
            .timeout(Some(WITHIN));
        let builder = match &server.login {
            Some((user, password)) => {
                builder.credentials(Credentials::new(user.clone(), password.reveal().clone()))
            }
            None => builder,
        };
        Some(Self {
            transport: builder.build(),
            from,
        })
    }

    /// Sends one letter, once.
    pub(super) async fn send(&self, to: &Email, letter: &Letter, mint: &Mint) -> Result<(), Unsent> {
        let message = self.message(to, letter, mint).ok_or(Unsent::Refused(None))?;
        match self.transport.send(message).await {
            Ok(_) => Ok(()),
            // What the server says beyond its code may hold the address.
            Err(problem) => {
                let code = status(&problem);
                Err(if problem.is_permanent() {
                    Unsent::Refused(code)
                } else {
                    Unsent::Later(code)
                })
            }
        }
    }

    /// A letter as it is sent; `None` for an address that no mail can have.
    fn message(&self, to: &Email, letter: &Letter, mint: &Mint) -> Option<Message> {
        let to: Address = to.as_str().parse().ok()?;
        let id = format!(
            "<{:032x}@{}>",
            u128::from_le_bytes(mint.random()),
            self.from.email.domain()
        );
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(letter.subject.clone())
            .message_id(Some(id))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(letter.text.clone())
            .ok()
    }
}

fn status(problem: &smtp::Error) -> Option<u16> {
    problem.status().map(u16::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(from: &str) -> Option<Post> {
        Post::new(&Server {
            host: "localhost".to_owned(),
            port: 25,
            tls: Tls::None,
            login: None,
            from: from.to_owned(),
        })
    }

    fn lines(to: &str) -> Option<Vec<String>> {
        let letter = Letter {
            subject: "A subject".to_owned(),
            text: "The first line\n.\nthe last".to_owned(),
        };
        let mint = Mint::new().expect("randomness");
        let post = post("Waybill <no-reply@example.com>").expect("a sender");
        let message = post.message(&Email::parse(to)?, &letter, &mint)?;
        let text = String::from_utf8(message.formatted()).expect("text");
        Some(text.split("\r\n").map(str::to_owned).collect())
    }

    #[test]
    fn a_letter_has_one_recipient_and_says_that_a_program_wrote_it() {
        let lines = lines("ann@example.org").expect("a letter");
        let has = |line: &str| lines.iter().filter(|own| *own == line).count();

        assert_eq!(has("To: ann@example.org"), 1, "{lines:?}");
        assert_eq!(has("From: Waybill <no-reply@example.com>"), 1, "{lines:?}");
        assert_eq!(has("Subject: A subject"), 1, "{lines:?}");
        assert_eq!(has("Auto-Submitted: auto-generated"), 1, "{lines:?}");
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("Message-ID: <") && line.ends_with("@example.com>")),
            "{lines:?}"
        );
    }

    #[test]
    fn no_address_adds_a_recipient_or_a_line() {
        for to in [
            "ann@example.org\r\nBcc: eve@example.org",
            "ann@example.org\nBcc:eve@example.org",
            "ann@example.org,eve@example.org",
            "ann@example.org>,<eve@example.org",
            "<ann@example.org>",
            "ann@example.org>\u{2028}x",
            "\"ann@example.org",
            "ann@exam\u{0}ple.org",
            "ann;eve@[127.0.0.1",
            "ann@example.org(eve)",
        ] {
            assert_eq!(lines(to), None, "{to:?}");
        }
        for to in ["Ann.Lee+tag@example.org", "o'hara@example.org"] {
            let lines = lines(to).expect("an address");
            let recipients = lines.iter().filter(|line| line.contains("@example.org")).count();
            assert_eq!(recipients, 1, "{lines:?}");
        }
    }

    #[test]
    fn whom_letters_are_from_is_one_address_on_one_line() {
        for (from, expected) in [
            ("no-reply@example.com", true),
            ("Waybill <no-reply@example.com>", true),
            ("\"Way, bill\" <no-reply@example.com>", true),
            ("Waybill", false),
            ("Waybill <no-reply@example.com>\r\nBcc: eve@example.org", false),
            ("a@example.com, b@example.com", false),
            ("", false),
        ] {
            assert_eq!(is_sender(from), expected, "{from:?}");
            assert!(!expected || post(from).is_some(), "{from:?}");
        }
    }
}
