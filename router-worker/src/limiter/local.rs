//! Whether a backend stands in one's own network: told by its address, without a look-up.

use std::net::IpAddr;

/// Names that no public host has, by their ends.
const LOCAL_ENDS: [&str; 4] = [".local", ".localhost", ".internal", ".lan"];

/// True for addresses of this machine and of private networks, and for names that only those resolve.
pub(crate) fn is_local(base_url: &str) -> bool {
    let host = host(base_url);
    if let Ok(address) = host.parse::<IpAddr>() {
        return match address {
            IpAddr::V4(address) => {
                address.is_loopback()
                    || address.is_private()
                    || address.is_link_local()
                    || address.is_unspecified()
            }
            IpAddr::V6(address) => {
                address.is_loopback()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
                    || address.is_unspecified()
            }
        };
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    // A name without a dot is one of a machine or of a service beside us.
    !host.contains('.') || LOCAL_ENDS.iter().any(|end| host.ends_with(end))
}

/// The host of `http(s)://[user@]host[:port][/path]`, without the brackets of an address.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_of_ones_own_network_are_told_from_providers() {
        for url in [
            "http://localhost:8000/v1",
            "http://127.0.0.1:1",
            "http://[::1]:8000",
            "http://10.1.2.3/v1",
            "http://192.168.0.9:8000",
            "http://172.31.0.1",
            "http://[fd00::1]/v1",
            "http://0.0.0.0:8000",
            "http://vllm:8000/v1",
            "http://gpu-1.local",
            "http://host.docker.internal:11434",
        ] {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "https://api.openai.com/v1",
            "https://openrouter.ai/api/v1",
            "http://8.8.8.8:8000",
            "http://172.32.0.1",
            "http://[2606:4700::1111]",
            "https://user@api.example.com:443/v1?x=localhost",
            "https://local.example.com",
        ] {
            assert!(!is_local(url), "{url}");
        }
    }
}
