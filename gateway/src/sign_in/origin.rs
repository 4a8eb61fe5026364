//! From which page a request comes, pure: the cookie of a session counts only for pages of this node's own, and for
//! those of the origins that its configuration names.

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

/// A header that no page of another origin can send without asking first, and then it is refused.
const X_REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// A page of the node's own or of an origin that is named, or a program that no page can make send the like.
    Ours,
    /// It does not say, and any page could have sent it.
    Unknown,
    /// Another page.
    Elsewhere,
}

/// By which name the node was reached.
pub(crate) fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| uri.authority().map(http::uri::Authority::as_str))
}

/// Where a request comes from. `allowed` are the origins of the configuration; `*` names none of them.
pub(crate) fn of(headers: &HeaderMap, authority: Option<&str>, allowed: &[HeaderValue]) -> From {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return if cannot_be_a_form(headers) {
            From::Ours
        } else {
            From::Unknown
        };
    };
    let named = allowed
        .iter()
        .any(|allowed| allowed == origin && allowed != "*" && allowed != "null");
    let own = origin.to_str().is_ok_and(|origin| is_own(origin, authority));
    if origins.next().is_none() && (named || own) {
        From::Ours
    } else {
        From::Elsewhere
    }
}

/// True for the origin of a page that the node served itself, whether or not a proxy adds TLS.
fn is_own(origin: &str, authority: Option<&str>) -> bool {
    let of_origin = ["https://", "http://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    match (of_origin, authority) {
        (Some(of_origin), Some(authority)) => {
            !of_origin.is_empty() && of_origin.eq_ignore_ascii_case(authority.trim())
        }
        _ => false,
    }
}

/// True for what pages send only after they were given leave.
fn cannot_be_a_form(headers: &HeaderMap) -> bool {
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .and_then(|kind| kind.split(';').next())
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    is_json || headers.contains_key(X_REQUESTED_WITH)
}

/// True for a name of the machine itself.
pub(crate) fn is_loopback(authority: Option<&str>) -> bool {
    let Some(authority) = authority else {
        return false;
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback());
    host.eq_ignore_ascii_case("localhost") || is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn from(lines: &[(&'static str, &'static str)]) -> From {
        let allowed = [
            HeaderValue::from_static("https://console.example.com"),
            HeaderValue::from_static("*"),
            HeaderValue::from_static("null"),
        ];
        of(&headers(lines), Some("gw.example.com:3333"), &allowed)
    }

    #[test]
    fn pages_of_ones_own_and_of_named_origins_are_ours_and_look_alikes_are_not() {
        for (origin, expected) in [
            ("http://gw.example.com:3333", From::Ours),
            ("https://GW.example.com:3333", From::Ours),
            ("https://console.example.com", From::Ours),
            ("https://gw.example.com", From::Elsewhere),
            ("https://gw.example.com:33330", From::Elsewhere),
            ("https://gw.example.com:3333.evil.org", From::Elsewhere),
            ("https://evilgw.example.com:3333", From::Elsewhere),
            ("https://console.example.com.evil.org", From::Elsewhere),
            ("https://console.example.com:443", From::Elsewhere),
            ("http://console.example.com", From::Elsewhere),
            ("https://evil.org", From::Elsewhere),
            ("null", From::Elsewhere),
            ("*", From::Elsewhere),
            ("", From::Elsewhere),
            ("gw.example.com:3333", From::Elsewhere),
            ("file://gw.example.com:3333", From::Elsewhere),
        ] {
            let lines: &[(&str, &str)] = &[("origin", origin), ("content-type", "application/json")];
            let lines: Vec<(&'static str, &'static str)> = lines
                .iter()
                .map(|(name, value)| (leaked(name), leaked(value)))
                .collect();
            assert_eq!(from(&lines), expected, "{origin}");
        }
        let twice = [
            ("origin", "http://gw.example.com:3333"),
            ("origin", "https://evil.org"),
        ];
        assert_eq!(from(&twice), From::Elsewhere);
    }

    fn leaked(text: &str) -> &'static str {
        Box::leak(text.to_owned().into_boxed_str())
    }

    #[test]
    fn what_does_not_say_where_it_comes_from_is_ours_if_no_form_can_send_it() {
        assert_eq!(from(&[]), From::Unknown);
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; a=application/json",
        ] {
            assert_eq!(from(&[("content-type", leaked(kind))]), From::Unknown, "{kind}");
        }
        assert_eq!(
            from(&[("content-type", "application/json; charset=utf-8")]),
            From::Ours
        );
        assert_eq!(from(&[("x-requested-with", "fetch")]), From::Ours);
    }

    #[test]
    fn names_of_the_machine_itself_are_told_from_those_that_look_like_them() {
        for (authority, expected) in [
            ("localhost:3333", true),
            ("LOCALHOST", true),
            ("127.0.0.1:80", true),
            ("127.8.8.8", true),
            ("[::1]:3333", true),
            ("[::1]", true),
            ("localhost.evil.org", false),
            ("127.0.0.1.evil.org:80", false),
            ("10.0.0.1:80", false),
            ("[2001:db8::1]:80", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(Some(authority)), expected, "{authority}");
        }
        assert!(!is_loopback(None));
    }
}
