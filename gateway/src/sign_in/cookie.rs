//! The cookie with the refresh token. No script reads it, and browsers send it to the paths of signing in alone.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use super::settings::Settings;

/// The paths that the cookie is sent to.
const PATH: &str = "/auth";

/// A cookie that a browser is to keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) name: &'a str,
    /// The paths that it is sent to.
    pub(super) path: &'a str,
    /// For how long; 0 takes it away.
    pub(super) seconds: u64,
}

/// The token of a request's cookie. Two that differ are none.
pub(super) fn of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let texts = headers.get_all(COOKIE).iter().map(|value| value.to_str().ok());
    let mut found = None;
    for pair in texts.flatten().flat_map(|text| text.split(';')) {
        let Some((_, value)) = pair.split_once('=').filter(|(own, _)| own.trim() == name) else {
            continue;
        };
        let value = value.trim();
        if found.is_some_and(|other| other != value) {
            return None;
        }
        found = Some(value);
    }
    found.filter(|value| !value.is_empty())
}

/// The header that keeps a token in the browser for as long as it is good; the empty one takes it away.
/// `is_loopback` says that the node was reached by a name of its own machine, where there is no TLS.
pub(super) fn set(settings: &Settings, token: &str, is_loopback: bool) -> Option<HeaderValue> {
    let seconds = if token.is_empty() {
        0
    } else {
        settings.refresh_seconds
    };
    let kept = Kept {
        name: &settings.cookie_name,
        path: PATH,
        seconds,
    };
    keep(settings, kept, (token, is_loopback))
}

/// The header that has a browser keep a text, which no script reads.
pub(super) fn keep(
    settings: &Settings,
    Kept { name, path, seconds }: Kept<'_>,
    (text, is_loopback): (&str, bool),
) -> Option<HeaderValue> {
    let mut text = format!("{name}={text}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax");
    if settings.cookie_secure && !is_loopback {
        text.push_str("; Secure");
    }
    if let Some(domain) = &settings.cookie_domain {
        text.push_str("; Domain=");
        text.push_str(domain);
    }
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(COOKIE, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_token_is_found_among_other_cookies_and_two_that_differ_are_none() {
        let of = |values: &[&'static str]| of(&headers(values), "refresh_token").map(str::to_owned);

        assert_eq!(of(&["a=1; refresh_token=t.1; b=2"]).as_deref(), Some("t.1"));
        assert_eq!(of(&["a=1", "refresh_token=t"]).as_deref(), Some("t"));
        assert_eq!(of(&["refresh_token=t; refresh_token=t"]).as_deref(), Some("t"));
        for none in [
            &["refresh_token=t; refresh_token=u"][..],
            &["refresh_token=t", "refresh_token=u"],
            &["xrefresh_token=t"],
            &["refresh_token="],
            &["refresh_token"],
            &[],
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn the_cookie_is_for_tls_but_on_ones_own_machine() {
        let settings = Settings::default();
        let text = |is_loopback: bool| {
            let value = set(&settings, "t", is_loopback).expect("a header");
            value.to_str().expect("text").to_owned()
        };

        assert_eq!(
            text(false),
            "refresh_token=t; Path=/auth; Max-Age=2592000; HttpOnly; SameSite=Lax; Secure"
        );
        assert!(!text(true).contains("Secure"));
        let gone = set(&settings, "", false).expect("a header");
        assert!(
            gone.to_str()
                .expect("text")
                .starts_with("refresh_token=; Path=/auth; Max-Age=0;")
        );
    }
}
