//! One way to the provider and back, pure: what the browser is given and what the provider is told. All of it follows
//! from the browser's cookie and the deployment's secret, so that any node takes back whom another one sent out, and
//! whoever has no cookie of ours, or that of another browser, has nothing that fits.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemas::time::Timestamp;

use crate::sign_in::token::Signer;

/// How long one may be on the way, in seconds.
pub(super) const LIFE_SECONDS: i64 = 600;
/// Seconds by which the clock of the node that sent him may be ahead.
const SKEW_SECONDS: i64 = 60;
/// Longest place to come back to, in bytes.
const RETURN_BYTES_MAX: usize = 1_024;
/// Longest cookie that is looked at, in bytes.
const COOKIE_BYTES_MAX: usize = 4_096;
/// Where one comes back to who names no place.
const HOME: &str = "/";

/// One way to the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    /// Random; what else there is follows from it.
    id: String,
    /// When it began, in seconds.
    at: i64,
    /// Where it ends: a path of ours.
    pub(super) return_to: String,
}

impl Flow {
    /// One that begins now; `None` where the place to come back to is none of ours.
    pub(super) fn new(random: [u8; 32], return_to: Option<&str>, now: Timestamp) -> Option<Self> {
        let return_to = return_to.unwrap_or(HOME);
        is_own_path(return_to).then(|| Self {
            id: URL_SAFE_NO_PAD.encode(random),
            at: now.micros().div_euclid(1_000_000),
            return_to: return_to.to_owned(),
        })
    }

    /// What the browser keeps: `<id>.<second>.<place in base64url>.<signature>`.
    pub(super) fn cookie(&self, signer: &Signer) -> String {
        let place = URL_SAFE_NO_PAD.encode(&self.return_to);
        let text = format!("{}.{}.{place}", self.id, self.at);
        let signature = signer.derived("cookie", &text);
        format!("{text}.{signature}")
    }

    /// Reads what a browser kept; `None` for what is none of ours, or too old.
    pub(super) fn read(cookie: &str, signer: &Signer, now: Timestamp) -> Option<Self> {
        let (text, signature) = cookie.rsplit_once('.')?;
        if cookie.len() > COOKIE_BYTES_MAX || !is_same(&signer.derived("cookie", text), signature) {
            return None;
        }
        let mut parts = text.split('.');
        let mut part = || parts.next();
        let (id, at, place) = (part()?, part()?, part()?);
        let at: i64 = at.parse().ok()?;
        let age = now.micros().div_euclid(1_000_000) - at;
        let return_to = String::from_utf8(URL_SAFE_NO_PAD.decode(place).ok()?).ok()?;
        (-SKEW_SECONDS..LIFE_SECONDS).contains(&age).then(|| Self {
            id: id.to_owned(),
            at,
            return_to,
        })
    }

    /// What the provider hands back through the browser.
    pub(super) fn state(&self, signer: &Signer) -> String {
        signer.derived("state", &self.id)
    }

    /// True for the state of this way.
    pub(super) fn is_of(&self, state: &str, signer: &Signer) -> bool {
        is_same(&self.state(signer), state)
    }

    /// What the provider puts into the token.
    pub(super) fn nonce(&self, signer: &Signer) -> String {
        signer.derived("nonce", &self.id)
    }

    /// What shows the provider that the code comes from whoever asked for it.
    pub(super) fn verifier(&self, signer: &Signer) -> String {
        signer.derived("verifier", &self.id)
    }

    /// Its digest, which the provider is told first.
    pub(super) fn challenge(&self, signer: &Signer) -> String {
        let digest = crate::idempotency::sha256(&[self.verifier(signer).as_bytes()]);
        URL_SAFE_NO_PAD.encode(digest.0)
    }
}

/// True for a path on this node's own name, in whatever way a browser may read it: two slashes, or one and a backslash,
/// begin the name of another, and browsers pass over tabs and line ends.
fn is_own_path(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars.next() == Some('/') && !matches!(chars.next(), Some('/' | '\\'));
    let plain = |char: char| char.is_ascii_graphic() && char != '\\';
    begins && text.len() <= RETURN_BYTES_MAX && text.chars().all(plain)
}

/// Compares all bytes, wherever the first difference is.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::from_micros(1_796_000_000_000_000);

    fn signer() -> Signer {
        Signer::new(b"a secret of the deployment", "local")
    }

    fn flow() -> Flow {
        Flow::new([7; 32], Some("/usage?month=2026-11#top"), NOON).expect("a path of ours")
    }

    #[test]
    fn what_a_browser_kept_is_read_back_for_ten_minutes_and_nothing_that_is_changed() {
        let cookie = flow().cookie(&signer());
        let at = |seconds: i64| NOON.plus_micros(seconds * 1_000_000);

        for (seconds, is_good) in [(-61, false), (-60, true), (0, true), (599, true), (600, false)] {
            let read = Flow::read(&cookie, &signer(), at(seconds));
            assert_eq!(read.is_some(), is_good, "{seconds}");
        }
        assert_eq!(Flow::read(&cookie, &signer(), NOON), Some(flow()));
        for place in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("text");
            assert_eq!(Flow::read(&changed, &signer(), NOON), None, "{place}");
        }
        let other = Signer::new(b"another", "local");
        assert_eq!(Flow::read(&cookie, &other, NOON), None);
        assert_eq!(Flow::read("", &signer(), NOON), None);
    }

    #[test]
    fn state_nonce_and_verifier_are_of_one_way_alone_and_none_tells_another() {
        let other = Flow::new([8; 32], None, NOON).expect("a way");
        let signer = signer();
        let all = [&flow(), &other].map(|flow| {
            [
                flow.state(&signer),
                flow.nonce(&signer),
                flow.verifier(&signer),
                flow.challenge(&signer),
                flow.id.clone(),
            ]
        });
        let mut told: Vec<&String> = all.iter().flatten().collect();
        told.sort_unstable();
        told.dedup();

        assert_eq!(told.len(), 10);
        assert!(told.iter().all(|text| text.len() == 43), "{told:?}");
        assert!(flow().is_of(&flow().state(&signer), &signer));
        for state in [other.state(&signer), flow().nonce(&signer), String::new()] {
            assert!(!flow().is_of(&state, &signer));
        }
        assert_eq!(other.return_to, "/");
    }

    #[test]
    fn one_comes_back_to_paths_of_ours_alone() {
        for (place, expected) in [
            ("/", true),
            ("/usage?a=b&c=//d#e", true),
            ("/a//b", true),
            ("", false),
            ("usage", false),
            ("//evil.org", false),
            ("///evil.org", false),
            ("/\\evil.org", false),
            ("\\\\evil.org", false),
            ("/\t/evil.org", false),
            ("/\n/evil.org", false),
            ("/a\\..\\b", false),
            ("https://evil.org/", false),
            ("https:/evil.org", false),
            ("javascript:alert(1)", false),
            ("/a\r\nSet-Cookie: b=c", false),
            ("/ \u{e9}", false),
            (&format!("/{}", "a".repeat(1_024)), false),
        ] {
            assert_eq!(
                Flow::new([7; 32], Some(place), NOON).is_some(),
                expected,
                "{place:?}"
            );
        }
    }
}
