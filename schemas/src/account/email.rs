//! Addresses of mail, as far as they can be told without writing to them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Longest address, in bytes.
pub const EMAIL_BYTES_MAX: usize = 254;

/// An address by which somebody signs in: small letters, so that it is the same however he writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Email(Arc<str>);

impl Email {
    /// Reads an address; `None` for what is none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        let plain =
            text.len() <= EMAIL_BYTES_MAX && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        let (who, host) = text.split_once('@')?;
        let whole = !who.is_empty() && !host.is_empty() && !host.contains('@');
        (plain && whole).then(|| Self(text.into()))
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same, shared.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// True for a text that is this address, however it is written.
    pub fn is(&self, text: &str) -> bool {
        let text = text.trim();
        if text.is_ascii() {
            text.eq_ignore_ascii_case(&self.0)
        } else {
            text.to_lowercase() == *self.0
        }
    }

    /// What stands behind its `@`.
    pub fn domain(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, domain)| domain)
    }

    /// True when its domain is on a list: `example.com` is that domain alone, `*.example.com` all below it.
    pub fn is_of(&self, domains: &[String]) -> bool {
        let domain = self.domain();
        domains.iter().any(|listed| {
            let listed = listed.trim().to_lowercase();
            match listed.strip_prefix('*') {
                Some(suffix) if suffix.starts_with('.') => {
                    domain.len() > suffix.len() && domain.ends_with(suffix)
                }
                _ => !listed.is_empty() && listed == domain,
            }
        })
    }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_however_it_is_written() {
        let email = Email::parse(" Ann.Lee@Example.COM ").expect("an address");
        assert_eq!(email.as_str(), "ann.lee@example.com");
        assert_eq!(email.domain(), "example.com");
        for (text, is) in [
            ("Ann.Lee@example.com ", true),
            ("ann.lee@example.co", false),
            ("änn.lee@example.com", false),
            ("", false),
        ] {
            assert_eq!(email.is(text), is, "{text}");
        }
        let umlaut = Email::parse("Änn@Example.com").expect("an address");
        assert!(umlaut.is("änn@example.COM"));
        for wrong in [
            "",
            "ann",
            "@example.com",
            "ann@",
            "a@b@c",
            "a b@c",
            "a@b\n.c",
            &"x@".repeat(200),
        ] {
            assert_eq!(Email::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_domain_is_listed_by_itself_or_by_what_it_ends_with() {
        let of = |email: &str, listed: &str| {
            Email::parse(email)
                .expect("an address")
                .is_of(&[listed.to_owned()])
        };
        for (email, listed, expected) in [
            ("a@example.com", "example.com", true),
            ("a@example.com", "Example.Com ", true),
            ("a@sub.example.com", "example.com", false),
            ("a@sub.example.com", "*.example.com", true),
            ("a@x.sub.example.com", "*.example.com", true),
            ("a@example.com", "*.example.com", false),
            ("a@notexample.com", "*.example.com", false),
            ("a@evilexample.com", "example.com", false),
            ("a@example.com.evil.org", "*.example.com", false),
            ("a@mit.edu", "*.edu", true),
            ("a@edu", "*.edu", false),
            ("a@anything", "*", false),
            ("a@anything", "", false),
        ] {
            assert_eq!(of(email, listed), expected, "{email} {listed}");
        }
    }
}
