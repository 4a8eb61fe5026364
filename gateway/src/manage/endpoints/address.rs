//! Where the replicas of an endpoint are, and what is no address.

use std::sync::Arc;

use schemars::JsonSchema;
use schemas::catalog::{Backend, replica};
use schemas::failure::Failure;
use schemas::id::EndpointId;
use serde::{Deserialize, Serialize};

use crate::manage::{description, invalid};

/// Replicas of an endpoint.
const BACKENDS_MAX: usize = 64;
/// Longest address, in bytes.
pub(super) const ADDRESS_BYTES_MAX: usize = 1_024;

/// A replica.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EndpointBackend")]
pub(super) struct Address {
    /// `http(s)://host[:port][/path]`.
    pub(super) url: String,
    /// The host that it runs on.
    #[serde(default)]
    pub(super) node: Option<String>,
}

/// The host that a replica runs on, where it was told.
type Host = Option<Arc<str>>;

/// Replicas and their hosts.
pub(super) fn replicas(id: &EndpointId, told: &[Address]) -> Result<(Vec<Backend>, Vec<Host>), Failure> {
    if told.is_empty() || told.len() > BACKENDS_MAX {
        return Err(invalid("backends", "expected 1 to 64 replicas"));
    }
    let mut base_urls: Vec<String> = Vec::with_capacity(told.len());
    let mut hosts = Vec::with_capacity(told.len());
    for (n, one) in told.iter().enumerate() {
        let base_url = address(&one.url).ok_or_else(|| {
            invalid(
                format!("backends[{n}].url"),
                "expected an address such as https://host:8000/v1, without user, query and fragment",
            )
        })?;
        if base_urls.contains(&base_url) {
            return Err(invalid(
                format!("backends[{n}].url"),
                "the address is there twice",
            ));
        }
        base_urls.push(base_url);
        hosts.push(
            one.node
                .clone()
                .map(|node| description::named("node", node))
                .transpose()?,
        );
    }
    Ok((replica::replicas(id, &base_urls), hosts))
}

/// An address without trailing slashes; `None` for what is none.
fn address(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let legal =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'#' | b'?');
    if text.len() > ADDRESS_BYTES_MAX || !text.bytes().all(legal) {
        return None;
    }
    let uri: http::Uri = text.parse().ok()?;
    let is_http = matches!(uri.scheme_str()?, "http" | "https");
    let authority = uri.authority()?;
    let is_plain = !authority.as_str().contains('@') && !authority.host().is_empty() && uri.query().is_none();
    let port = authority.as_str().strip_prefix(authority.host())?;
    let port = port.is_empty() || port.strip_prefix(':')?.parse::<u16>().is_ok_and(|port| port != 0);
    let steps = uri.path().split('/').any(|step| matches!(step, "." | ".."));
    (is_http && is_plain && !steps && port).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_path_and_nothing_else() {
        for (text, kept) in [
            ("http://h", "http://h"),
            ("https://h:8000/v1/", "https://h:8000/v1"),
            ("http://[::1]:80", "http://[::1]:80"),
        ] {
            assert_eq!(address(text).as_deref(), Some(kept), "{text}");
        }
        for text in [
            "",
            "h",
            "ftp://h",
            "http://",
            "http://u@h",
            "http://u:p@h",
            "http://h?x=1",
            "http://h#x",
            "http://h/../x",
            "http://h/ x",
            "http://h:0",
            "http://h:",
            "http://h:800a",
            "http://h:65536",
            "file:///etc/passwd",
            "//h",
            "http:h",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }
}
