//! The allow-list for an upstream's own words: what explains a refused request may pass, what could name a
//! host, a path or a credential may not.

/// Most characters of a message that is passed on.
const MESSAGE_CHARS_MAX: usize = 300;
/// Most characters of a parameter's name.
const PARAM_CHARS_MAX: usize = 64;

/// Pieces of text, in lower case, that speak of places and secrets.
const UNSAFE_PIECES: [&str; 26] = [
    "://",
    "//",
    "sk-",
    "bearer",
    "key",
    "secret",
    "password",
    "credential",
    "authoriz",
    "authent",
    "account",
    "organization",
    "billing",
    "@",
    "\\",
    "www.",
    ".com",
    ".net",
    ".org",
    ".ai",
    ".io",
    ".dev",
    ".cloud",
    ".local",
    ".internal",
    "localhost",
];

/// Members of a request of which an upstream may say that they are at fault.
const MEMBERS: [&str; 52] = [
    "audio",
    "cache_control",
    "contents",
    "dimensions",
    "encoding_format",
    "frequency_penalty",
    "function_call",
    "functions",
    "generation_config",
    "include",
    "input",
    "instructions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "min_p",
    "modalities",
    "model",
    "n",
    "output_config",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "reasoning",
    "reasoning_effort",
    "repetition_penalty",
    "response_format",
    "seed",
    "service_tier",
    "stop",
    "stop_sequences",
    "store",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "text",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "verbosity",
];

/// The message, if it is short, printable and names neither places nor secrets.
pub(super) fn safe_message(text: &str) -> Option<String> {
    let text = text.trim();
    let printable = text.chars().all(|symbol| !symbol.is_control());
    if text.is_empty() || !printable || text.chars().count() > MESSAGE_CHARS_MAX {
        return None;
    }
    let lower = text.to_lowercase();
    let names_place = UNSAFE_PIECES.iter().any(|piece| lower.contains(piece));
    (!names_place && !lower.split_whitespace().any(looks_like_address)).then(|| text.to_owned())
}

/// A path into a request: a known member, then lower-case names and places in lists. Free text has no way out.
pub(super) fn safe_param(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.[]".contains(&byte);
    let member = text.split(['.', '[']).next().unwrap_or_default();
    let valid = text.len() <= PARAM_CHARS_MAX && text.bytes().all(plain) && MEMBERS.contains(&member);
    valid.then(|| text.to_owned())
}

/// `10.0.0.7`, `10.0.0.7:8000`, `host:8000`, `[::1]`, `/srv/models/x`.
fn looks_like_address(word: &str) -> bool {
    let word = word.trim_matches(|symbol: char| "()'\"`,;<>".contains(symbol));
    let word = word.trim_end_matches(['.', ':']);
    let dots = word.matches('.').count();
    let numeric =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let (host, port) = word.rsplit_once(':').unwrap_or((word, ""));
    let dotted = dots == 3 && numeric(host);
    let ported = !host.is_empty() && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    dotted || ported || word.contains("::") || word.matches('/').count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_explains_a_request_passes() {
        for text in [
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "temperature must be between 0 and 2, got 3.5",
            "Unexpected role 'wizard' in messages[0]",
            "input/output mismatch",
        ] {
            assert_eq!(safe_message(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_names_places_or_secrets_does_not() {
        for text in [
            "Incorrect API key provided: sk-abc",
            "see https://provider.example/docs",
            "no route to 10.0.0.7",
            "connect to gpu-3:8000 failed",
            "cannot open /srv/models/llama",
            "ask support@provider",
            "api.provider.com said no",
            "a\nb",
            "",
            &"x".repeat(301),
        ] {
            assert_eq!(safe_message(text), None, "{text}");
        }
    }

    #[test]
    fn parameters_are_names_and_nothing_else() {
        assert_eq!(
            safe_param("messages[0].role").as_deref(),
            Some("messages[0].role")
        );
        assert_eq!(
            safe_param("tools.[1].function.name").as_deref(),
            Some("tools.[1].function.name")
        );
        for text in [
            "",
            "a b",
            "provider-7f3a",
            "gpu_7",
            "messages.Xy9",
            "messages[0].a-b",
        ] {
            assert_eq!(safe_param(text), None, "{text}");
        }
        assert_eq!(safe_param(&format!("messages{}", "[0]".repeat(20))), None);
    }
}
