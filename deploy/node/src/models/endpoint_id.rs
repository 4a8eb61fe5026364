//! Names of endpoints: `{model}:{location}`, the form that operators of HybridInference know from their
//! metrics and overrides. Two legs that would share a name each get their host and port as a suffix.

/// Hosts that mean this machine.
const LOCAL_HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "0.0.0.0", "host.docker.internal"];
/// Kinds whose location is told by their host.
const NAMED_BY_HOST: [&str; 5] = ["openai_compat", "staging", "vllm", "sglang", "kimi"];

/// Host and port of an address, lower case; the port only where it is written.
pub fn host_and_port(url: &str) -> Option<(String, Option<u16>)> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    if let Some(inner) = authority.strip_prefix('[') {
        let (host, rest) = inner.split_once(']')?;
        return Some((
            host.to_ascii_lowercase(),
            rest.strip_prefix(':').and_then(|port| port.parse().ok()),
        ));
    }
    let (host, port) = authority
        .rsplit_once(':')
        .map_or((authority, None), |(host, port)| (host, Some(port)));
    let port = port.map(str::parse).transpose().ok()?;
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

/// The name of a leg's endpoint.
pub fn derive(model: &str, kind: &str, base_url: &str) -> String {
    let Some((host, port)) = host_and_port(base_url) else {
        return format!("{model}:{kind}");
    };
    if LOCAL_HOSTS.contains(&host.as_str()) || host == "::1" {
        return port.map_or_else(
            || format!("{model}:local"),
            |port| format!("{model}:local-{port}"),
        );
    }
    if NAMED_BY_HOST.contains(&kind) {
        let bare = host.replace("api.", "").replace("llm.", "");
        let label = bare.split('.').next().unwrap_or_default();
        return format!("{model}:{label}-api");
    }
    let plain = kind.split('[').next().unwrap_or(kind);
    format!("{model}:{plain}-api")
}

/// The suffix that tells two legs apart.
pub fn suffix(base_url: &str) -> String {
    match host_and_port(base_url) {
        Some((host, Some(port))) => format!("@{host}:{port}"),
        Some((host, None)) => format!("@{host}"),
        None => "@?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_follow_kind_and_host() {
        for (kind, url, id) in [
            ("vllm", "http://localhost:8000/v1", "m:local-8000"),
            ("openai_compat", "http://127.0.0.1", "m:local"),
            ("openai_compat", "https://api.example.com/v1", "m:example-api"),
            ("vllm", "http://10.0.0.5:8000", "m:10-api"),
            (
                "openrouter[deepinfra]",
                "https://openrouter.ai/api/v1",
                "m:openrouter-api",
            ),
            ("deepseek", "https://api.deepseek.com", "m:deepseek-api"),
            ("zai", "", "m:zai"),
        ] {
            assert_eq!(derive("m", kind, url), id, "{kind} {url}");
        }
        assert_eq!(suffix("http://10.0.0.5:8000/v1"), "@10.0.0.5:8000");
    }
}
